#!/usr/bin/env bash
# From a bare machine to a trained model: sets up, builds, makes its own input under runs/demo, shows the plan, trains a
# small model to add and subtract in word problems, and measures it on problems it has never seen, before and after.
#   scripts/demo.sh
# Exits 1 when the trained model answers fewer than 60 % of the held-out problems. Run it as often as you like.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly needed=0.6
readonly lazytrain=build/release/lazytrain
readonly demo=runs/demo

say() { printf '\n== %s\n' "$*"; }

# The number behind a key of the one object that `eval --json` prints.
number_of() { sed -nE "s/.*\"$1\": ?(-?[0-9][0-9.eE+-]*).*/\1/p" "$2"; }

# evaluate MODEL NAME: prints the exact match and leaves the answers in NAME.jsonl.
evaluate() {
  "$lazytrain" eval --model "$1" --data "$demo/eval.jsonl" --compute fp32 --max-new-tokens 64 --out "$demo/$2.jsonl" \
    --json >"$demo/$2.json"
  echo "$(number_of correct "$demo/$2.json") of $(number_of total "$demo/$2.json") held-out problems are answered right" \
    "(exact match $(number_of exact_match "$demo/$2.json"), loss $(number_of loss "$demo/$2.json"))"
}

say "set up and build"
scripts/setup.sh
scripts/build.sh release lazytrain

say "input: 20000 problems to learn from, 200 held out, a model with random weights"
start=$SECONDS
rm -rf "$demo"
mkdir -p "$demo"
demo/make_problems.sh 1 20000 train >"$demo/train.jsonl"
demo/make_problems.sh 2 200 test >"$demo/eval.jsonl"
"$lazytrain" new-model --config demo/config.json --tokenizer demo/tokenizer --seed 1 "$demo/start"

say "the plan and its memory (train --dry-run)"
"$lazytrain" train demo/train.yaml --dry-run

say "before training"
evaluate "$demo/start" before

say "training (demo/train.yaml)"
"$lazytrain" train demo/train.yaml

say "after training"
evaluate "$demo/run/model" after

say "one held-out problem"
question=$(sed -nE '1s/^\{"question": "(.*)", "answer": .*/\1/p' "$demo/eval.jsonl")
echo "Q: $question"
echo "A: $("$lazytrain" generate --model "$demo/run/model" --chat "$question" --compute fp32 --max-new-tokens 64)"

say "where to look next"
"$lazytrain" report "$demo/run" -o "$demo/report.html" >/dev/null
cat <<TEXT
  $demo/report.html           the run as one page: lanes, memory, placement, loss
  $demo/run/metrics.jsonl     a line a step
  $demo/run/trace.json        the last step, for https://ui.perfetto.dev
  $demo/run/model/            the trained model, a Hugging Face folder
  $demo/after.jsonl           every held-out problem with the model's answer
  README.md                   a run on your own model
TEXT
echo "the demo took $((SECONDS - start)) s without the build"

exact_match=$(number_of exact_match "$demo/after.json")
if ! awk -v got="$exact_match" -v needed="$needed" 'BEGIN { exit !(got > needed) }'; then
  echo "demo: the exact match is $exact_match, expected more than $needed" >&2
  exit 1
fi
