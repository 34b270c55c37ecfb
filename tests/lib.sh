# Helpers of the end-to-end tests: sourced by them, not run. A test works in the folder $work, which goes away with it.
# shellcheck shell=bash
set -euo pipefail

: "${LAZYTRAIN:?set it to the path of the lazytrain program}"
LAZYTRAIN=$(realpath "$LAZYTRAIN")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/lazytrain-test.XXXXXX")
logs=$work/.logs  # what commands print, apart from a test's own files
mkdir "$logs"
passed=0
failed=0

clean_up() {
  local job
  for job in $(jobs -p); do kill -9 "$job" 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean_up EXIT

ok() {
  passed=$((passed + 1))
  echo "ok $1"
}

not_ok() {
  failed=$((failed + 1))
  echo "not ok $1: $2"
}

# finish: the last line of every test.
finish() {
  echo "$passed passed, $failed failed"
  [[ $failed -eq 0 ]] || exit 1
  exit 0
}

# check NAME COMMAND...: ok when the command succeeds; what it printed is the reason when it does not.
check() {
  local name=$1
  shift
  if "$@" >"$logs/check" 2>&1; then
    ok "$name"
  else
    not_ok "$name" "$* failed: $(tail -n 3 "$logs/check" | tr '\n' ' ')"
  fi
}

# run COMMAND...: sets $status; standard output is in $logs/out, standard error in $logs/err.
run() {
  status=0
  "$@" >"$logs/out" 2>"$logs/err" || status=$?
}

# expect NAME CODE PATTERN COMMAND...: ok when the command exits with CODE and what it prints matches PATTERN (extended
# regular expression; one line of standard output or standard error).
expect() {
  local name=$1 code=$2 pattern=$3
  shift 3
  run "$@"
  if [[ $status -ne $code ]]; then
    not_ok "$name" "exit code $status, expected $code: $(tail -n 2 "$logs/err" | tr '\n' ' ')"
  elif ! grep -qaE -- "$pattern" "$logs/err" "$logs/out"; then
    not_ok "$name" "expected a line that matches '$pattern', got: $(tail -n 2 "$logs/err" | tr '\n' ' ')"
  else
    ok "$name"
  fi
}

# new_model FOLDER [SED_SCRIPT]: a small random model with the demo's tokenizer; the script edits the demo's config.json.
new_model() {
  local folder=$1
  sed "${2:-}" "$root/demo/config.json" >"$logs/config.json"
  "$LAZYTRAIN" new-model --config "$logs/config.json" --tokenizer "$root/demo/tokenizer" --seed 1 "$folder" \
    >/dev/null 2>"$logs/new_model" || {
    cat "$logs/new_model" >&2
    return 1
  }
}

# A configuration that a test completes with overrides: fast steps on $work/model and $work/train.jsonl.
write_config() {
  cat >"$1" <<'YAML'
model: model
output: run
data:
  train: train.jsonl
seq: 64
batch: 3
steps: 6
seed: 7
device:
  threads: 2
optimizer:
  lr: 0.002
  schedule: cosine
  warmup: 2
log:
  every: 1000
YAML
}

# numbers_of RUN: what must not differ between equal runs, a line a step.
numbers_of() {
  sed -E 's/^\{"step":([0-9]+),"loss":([^,]*),"grad_norm":([^,]*),"lr":([^,]*),"tokens":([0-9]+),.*/\1 \2 \3 \4 \5/' \
    "$1/metrics.jsonl"
}

# same_run A B: losses, norms, rates and tokens of every step, and the trained weights, bit for bit.
same_run() {
  [[ -s $1/metrics.jsonl ]] || { echo "$1/metrics.jsonl is empty"; return 1; }
  diff <(numbers_of "$1") <(numbers_of "$2") | head -n 4 && cmp "$1/model/model.safetensors" "$2/model/model.safetensors" &&
    diff -q <(numbers_of "$1") <(numbers_of "$2") >/dev/null
}

# newest_complete RUN: the step of the newest complete checkpoint, 0 when there is none.
newest_complete() {
  local marker newest=0 step
  for marker in "$1"/checkpoints/step-*/COMPLETE; do
    [[ -e $marker ]] || continue
    step=${marker%/COMPLETE}
    step=${step##*step-}
    if [[ $step =~ ^[0-9]+$ && $step -gt $newest ]]; then newest=$step; fi
  done
  echo "$newest"
}

# json_number KEY FILE: the number behind a key of a one-line JSON object.
json_number() {
  sed -nE "s/.*\"$1\": ?(-?[0-9][0-9.eE+-]*).*/\1/p" "$2" | head -n 1
}
