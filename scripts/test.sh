#!/usr/bin/env bash
# Sets up, builds and tests everything, from a bare machine: unit tests, then the end-to-end tests tests/*.sh.
# An end-to-end test is a script that gets the program's path in LAZYTRAIN. It is one case by its exit status (77: skipped),
# or, when its last line is "N passed, M failed", that many. Files in tests/ that are not executable are helpers.
# The last line is "N passed, M failed", over all cases; exits 1 when M is not 0.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! scripts/setup.sh || ! scripts/build.sh release; then
  echo "nothing could be tested"
  echo "0 passed, 1 failed"
  exit 1
fi

logs=build/release/test-logs
rm -rf "$logs"
mkdir -p "$logs"
passed=0
failed=0
skipped=0

# Adds the counts that stand in the last line of a log, or fails when there are none.
add_counts() {
  local last
  last=$(tail -n 1 "$1")
  [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]] || return 1
  passed=$((passed + BASH_REMATCH[1]))
  failed=$((failed + BASH_REMATCH[2]))
}

# Runs one test; its log is shown whole when it ends, as others run beside it; its exit status is left beside
# the log.
run_end_to_end() {
  local test=$1 log status=0
  log=$logs/$(basename "$test" .sh).log
  LAZYTRAIN=$PWD/build/release/lazytrain "$test" >"$log" 2>&1 || status=$?
  printf '== %s\n%s\n' "$test" "$(cat "$log")"
  echo "$status" >"${log%.log}.status"
}
export -f run_end_to_end
export logs

count_end_to_end() {
  local test=$1 log status before=$failed
  log=$logs/$(basename "$test" .sh).log
  status=$(cat "${log%.log}.status" 2>/dev/null || echo 1)
  if [[ $status -eq 77 ]]; then
    skipped=$((skipped + 1))
    echo "$test: skipped"
  elif ! add_counts "$log"; then
    if [[ $status -eq 0 ]]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  elif [[ $status -ne 0 && $failed -eq $before ]]; then
    failed=$((failed + 1))
  fi
  if [[ $failed -ne $before ]]; then echo "$test: FAILED (exit $status)"; fi
}

scripts/unit_tests.sh release 2>&1 | tee "$logs/unit.log" || true
add_counts "$logs/unit.log" || failed=$((failed + 1))

# As many at a time as there are cores; the longest (tiers, resume) are among the first from behind.
mapfile -t tests < <(find tests -maxdepth 1 -name '*.sh' -executable | sort -r)
# shellcheck disable=SC2016 # the shell that xargs starts expands it
printf '%s\n' "${tests[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_end_to_end "$1"' _ {}
for test in "${tests[@]}"; do count_end_to_end "$test"; done

# The failures once more, last.
for log in "$logs"/*.log; do
  sed -n "s/^failed: /&unit test /p; s|^not ok |failed: tests/$(basename "$log" .log).sh: |p" "$log"
done
if [[ $skipped -gt 0 ]]; then echo "skipped end-to-end tests: $skipped"; fi
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
