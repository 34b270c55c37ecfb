#!/usr/bin/env bash
# Builds the libFuzzer programs (preset asan, clang) and runs each for SECONDS (default 60), one more at a time than there
# are cores. Prints one line a target and exits with the number of targets that failed. New inputs and crashes stay in
# build/asan/; a crash file is run again with build/asan/fuzz/TARGET FILE.
#   scripts/fuzz.sh [SECONDS] [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
[[ $seconds =~ ^[0-9]+$ ]] || { echo "usage: scripts/fuzz.sh [SECONDS] [TARGET...]" >&2; exit 2; }
shift || true
cores=$(nproc)
cmake --preset asan >/dev/null
if [[ $# -gt 0 ]]; then
  targets=("$@")
else
  targets=()
  for source in fuzz/*_fuzz.cc; do targets+=("$(basename "$source" .cc)"); done
fi
cmake --build --preset asan --target "${targets[@]}" -- -j "$cores"

run_target() {
  local name=$1 work=build/asan/work/$1
  mkdir -p "$work/corpus" "$work/crashes" "fuzz/corpus/$name"
  local status=0
  # New inputs go to the first folder, the committed seeds are only read.
  build/asan/fuzz/"$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="$work/crashes/" "$work/corpus" "fuzz/corpus/$name" >"$work/log" 2>&1 || status=$?
  local runs
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log")
  if [[ $status -eq 0 ]]; then
    echo "$name: ok, ${runs:-0} inputs in $seconds s"
  else
    echo "$name: FAILED (exit $status), see $work/log and $work/crashes/"
    return 1
  fi
}

pids=()
failed=0
reap() {
  wait "${pids[0]}" || failed=$((failed + 1))
  pids=("${pids[@]:1}")
}
for name in "${targets[@]}"; do
  if [[ ${#pids[@]} -gt $cores ]]; then reap; fi
  run_target "$name" &
  pids+=($!)
done
while [[ ${#pids[@]} -gt 0 ]]; do reap; done
exit "$failed"
