#!/usr/bin/env bash
# Follows the README literally: runs the commands of its first training run, as they stand there, on a folder made to look
# like the reader's own.
source "$(dirname "$0")/lib.sh"
cd "$work"

# The ```sh blocks of the section, in order.
sed -n '/^## A first training run/,/^## /p' "$root/README.md" | sed -n '/^```sh$/,/^```$/p' | grep -v '^```' >commands.sh

lines=$(grep -cv '^ *\(#.*\)\?$' commands.sh || true)
check "the first run is at most 20 lines" test "$lines" -le 20 -a "$lines" -ge 8

# What the reader has: the program, a model folder, questions and answers.
mkdir -p build/release my-model
ln -s "$LAZYTRAIN" build/release/lazytrain
new_model my-model
"$root/demo/make_problems.sh" 1 40 train >my-data.jsonl
"$root/demo/make_problems.sh" 2 10 test >my-test.jsonl

follow() {
  timeout 300 bash -euo pipefail commands.sh >log 2>&1 || { echo "exit code $?: $(tail -n 3 log)"; return 1; }
}
check "its commands run as they stand there" follow
for path in my-run.yaml my-run/metrics.jsonl my-run/model/model.safetensors my-run/plan.json; do
  check "they leave $path" test -s "$path"
done
check "the evaluation printed an exact match" grep -qi 'exact' log

# Every `lazytrain ...` line of every block is a command with options that the program knows.
options_are_known() {
  local bad=0 command options option
  while read -r command options; do
    "$LAZYTRAIN" "$command" --help >help.txt 2>&1 || { echo "there is no command $command"; bad=1; }
    while read -r option; do
      grep -qE -- "$option\b" help.txt || { echo "$command has no $option"; bad=1; }
    done < <(grep -oE -- '--[a-z-]+' <<<"$options" || true)
  done < <(sed -n '/^```/,/^```$/p' "$root/README.md" | grep -oE '(^|/| )lazytrain [a-z-]+ .*' | sed -E 's/^.*lazytrain //; s/#.*//')
  return "$bad"
}
check "the README's commands and options exist" options_are_known

finish
