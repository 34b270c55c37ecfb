#!/usr/bin/env bash
# `lazytrain eval`: counts and loss, agreement with training's own evaluation, and that what was learnt by heart counts.
source "$(dirname "$0")/lib.sh"
cd "$work"

new_model model
"$root/demo/make_problems.sh" 1 8 train >train.jsonl
"$root/demo/make_problems.sh" 2 5 test >unseen.jsonl
write_config run.yaml
check "a model that learns 8 problems by heart" "$LAZYTRAIN" train run.yaml data.eval=unseen.jsonl data.pack=false seq=128 batch=8 \
  steps=150 optimizer.lr=0.004

evaluate() { "$LAZYTRAIN" eval --model "$1" --data "$2" --max-new-tokens 64 --json "${@:3}"; }
value() { [[ $(json_number "$1" "$logs/out") == "$2" ]]; }

run evaluate model train.jsonl
check "one JSON object on standard output, nothing else" bash -c "[[ \$(wc -l <.logs/out) -eq 1 ]] && grep -q '^{.*}\$' .logs/out"
check "the untrained model answers nothing right" value correct 0
check "and its loss is about that of guessing, ln 448 = 6.1" bash -c "awk -v l=\$(sed -E 's/.*\"loss\": ?([0-9.]+).*/\1/' .logs/out) 'BEGIN { exit !(l > 5 && l < 7.5) }'"
run evaluate run/model train.jsonl --out answers.jsonl
check "the trained one answers all 8 right" value correct 8
check "of 8" value total 8
check "exact_match is their ratio" bash -c "awk -v m=\$(sed -E 's/.*\"exact_match\": ?([0-9.]+).*/\1/' .logs/out) 'BEGIN { exit !(m == 1) }'"
check "--out has a line a question" bash -c "[[ \$(wc -l <answers.jsonl) -eq 8 ]]"
check "with the answer in it" grep -q 'The answer is' answers.jsonl

same_loss() {
  local trainer evaluated
  trainer=$(tail -n 1 run/metrics.jsonl | sed -nE 's/.*"eval_loss":([0-9.e+-]+).*/\1/p')
  evaluate run/model unseen.jsonl --seq 128 >unseen.json || return 1
  evaluated=$(json_number loss unseen.json)
  awk -v a="$trainer" -v b="$evaluated" 'BEGIN { d = a > b ? a - b : b - a; exit !(a > 0 && d <= 1e-3 * a) }' ||
    { echo "training measured $trainer, eval $evaluated"; return 1; }
}
check "eval's loss is the eval_loss of training" same_loss

run evaluate run/model train.jsonl --limit 3
check "--limit 3 takes 3 questions" value total 3
run evaluate run/model train.jsonl --batch 3 --compute fp32
check "another batch and fp32 change no answer" value correct 8
run evaluate run/model train.jsonl --template none
check "--template none asks in another way" bash -c "[[ \$(sed -E 's/.*\"total\": ?([0-9]+).*/\1/' .logs/out) == 8 ]]"
expect "without --json it prints for a person" 0 "8" "$LAZYTRAIN" eval --model run/model --data train.jsonl --max-new-tokens 64

# Numbers are compared by value, behind a marker or as the last ones; what is no number is compared as text.
sed -E 's/#### ([0-9]+)/#### $\1.00/' train.jsonl >dollars.jsonl
run evaluate run/model dollars.jsonl
check "\$12.00 is 12" value correct 8
sed -E 's/(####|The answer is:) ([0-9]+)/\1 7\2/g' train.jsonl >wrong.jsonl
run evaluate run/model wrong.jsonl
check "another number is wrong" value correct 0

expect "a file that is not there is named" 1 "nothing.jsonl" evaluate run/model nothing.jsonl
expect "a model that is not there is named" 2 "no_model" evaluate no_model train.jsonl
expect "an option without value is wrong usage" 2 "limit" evaluate run/model train.jsonl --limit

printf '{"prompt": "", "completion": ""}\n' >empty.jsonl
expect "rows without any text are said to be empty" 1 "empty.jsonl: the rows are empty" evaluate model empty.jsonl --template none
expect "a batch of nothing" 2 "batch" evaluate model train.jsonl --batch 0
expect "a negative limit" 2 "limit" evaluate model train.jsonl --limit -1

finish
