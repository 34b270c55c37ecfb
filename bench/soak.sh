#!/usr/bin/env bash
# A long run of tiny steps with state on disk and planning again while it goes on: memory and file descriptors of the
# process, between 10 and 20 % of its steps and in its last 10 %. Fails when memory differs by more than 1 %, or the number
# of descriptors at all.
#   [LAZYTRAIN=build/release/lazytrain] bench/soak.sh [STEPS=10000] [SAMPLES.tsv]
#   bench/soak.sh --judge SAMPLES.tsv      judges samples that were taken before: step, kB of memory, descriptors a line
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# judge SAMPLES STEPS: the table, and 0 when both are flat.
judge() {
  awk -v steps="$2" '
    function median(v, n,    i, j, t) {
      for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] < v[j - 1]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
      return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    $1 >= 0.1 * steps && $1 < 0.2 * steps { a++; ma[a] = $2; fa[a] = $3 }
    $1 >= 0.9 * steps { b++; mb[b] = $2; fb[b] = $3 }
    END {
      if (a < 3 || b < 3) { print "too few samples: " a + 0 " early, " b + 0 " late, at least 3 of each: more steps"; exit 1 }
      early = median(ma, a); late = median(mb, b); growth = 100 * (late / early - 1)
      open_early = median(fa, a); open_late = median(fb, b)
      printf "%-18s %14s %14s %9s\n", "median of samples", "10-20 % (" a ")", "90-100 % (" b ")", "change"
      printf "%-18s %11.2f MB %11.2f MB %8.2f%%\n", "resident memory", early / 1e3, late / 1e3, growth
      printf "%-18s %14d %14d %9d\n", "file descriptors", open_early, open_late, open_late - open_early
      exit !(growth <= 1 && growth >= -1 && open_late == open_early)
    }' "$1"
}

if [[ ${1:-} == --judge ]]; then
  judge "$2" "$(tail -n 1 "$2" | cut -f 1)"
  exit
fi
steps=${1:-10000}
lazytrain=$(realpath "${LAZYTRAIN:-$root/build/release/lazytrain}")
work=$(mktemp -d)
pid=
clean_up() {
  if [[ -n $pid ]]; then kill "$pid" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap clean_up EXIT
samples=$(realpath -m "${2:-$work/samples.tsv}")

cd "$work"
mkdir disk
"$root/demo/make_problems.sh" 1 200 train >train.jsonl
sed 's/"hidden_size": 128/"hidden_size": 32/; s/"intermediate_size": 256/"intermediate_size": 64/' \
  "$root/demo/config.json" >config.json
"$lazytrain" new-model --config config.json --tokenizer "$root/demo/tokenizer" --seed 1 model 2>log
# plan.policy auto goes to the disk where memory is short: here just enough for the plan that needs least of it.
cat >run.yaml <<YAML
model: model
output: run
data: {train: train.jsonl, pack: false}
seq: 48
batch: 2
steps: $steps
device: {threads: 1}
disk: {path: disk}
optimizer: {lr: 0.001}
save: {every: $((steps / 20 + 1)), keep: 1}
log: {every: $((steps / 10 + 1))}
YAML
least=$("$lazytrain" train run.yaml --dry-run host.memory=1MB 2>&1 | sed -nE 's/^(error: )?host: ([0-9.]+) MB needed.*/\2/p')
[[ -n $least ]] || { echo "no plan says how much memory it needs" >&2; exit 1; }
"$lazytrain" train run.yaml "host.memory=$(awk -v mb="$least" 'BEGIN { print mb + 0.1 }')MB" >/dev/null 2>log &
pid=$!
: >"$samples"
while kill -0 "$pid" 2>/dev/null; do
  step=$(wc -l 2>/dev/null <run/metrics.jsonl || echo 0)
  memory=$(sed -nE 's/^VmRSS:\s+([0-9]+) kB/\1/p' "/proc/$pid/status" 2>/dev/null || true)
  open=("/proc/$pid/fd/"*)
  if [[ $step -gt 0 && -n $memory && ${#open[@]} -gt 1 ]]; then printf '%d\t%d\t%d\n' "$step" "$memory" "${#open[@]}" >>"$samples"; fi
  sleep 0.05
done
status=0
wait "$pid" || status=$?
pid=
if [[ $status -ne 0 ]]; then
  cat log >&2
  echo "the run ended with exit code $status" >&2
  exit 1
fi
grep -q '"disk"' run/plan.json || { echo "the plan does not use the disk" >&2; exit 1; }
printf '%d steps, planned again: %s started, %s kept, %s changed\n' "$(wc -l <run/metrics.jsonl)" \
  "$(grep -c '"replan":{"action":"started"' run/metrics.jsonl || true)" "$(grep -c '"replan":{"action":"kept"' run/metrics.jsonl || true)" \
  "$(grep -c '"replan":{"action":"changed"' run/metrics.jsonl || true)"
sed -nE 's/^(step: median .*)/\1/p' log
judge "$samples" "$steps"
