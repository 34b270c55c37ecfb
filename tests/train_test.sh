#!/usr/bin/env bash
# `lazytrain train`: what it writes, in which order it takes samples, what it refuses, and that a dry run touches nothing.
source "$(dirname "$0")/lib.sh"
cd "$work"

new_model model
"$root/demo/make_problems.sh" 1 40 train >train.jsonl
"$root/demo/make_problems.sh" 2 8 test >eval.jsonl
write_config run.yaml

expect "train ends with exit code 0" 0 "" "$LAZYTRAIN" train run.yaml data.eval=eval.jsonl eval.every=2 save.every=2
check "train leaves standard output to results" test ! -s "$logs/out"

every_step_has_its_fields() {
  local number='-?[0-9][0-9.e+-]*' step=0 line
  while read -r line; do
    step=$((step + 1))
    for field in "\"step\":$step," "\"loss\":$number," "\"grad_norm\":$number," "\"lr\":$number," '"tokens":[1-9][0-9]*,' \
      "\"tok_per_s\":$number," "\"step_s\":$number," "\"exposed_s\":$number," \
      '"peak_bytes":\{"device":[1-9][0-9]*,"host":[1-9][0-9]*,"disk":0\}'; do
      [[ $line =~ $field ]] || { echo "step $step has no field $field: $line"; return 1; }
    done
  done <run/metrics.jsonl
  [[ $step -eq 6 ]] || { echo "$step lines, expected 6"; return 1; }
}
check "metrics.jsonl has a line a step with every field" every_step_has_its_fields
check "eval_loss stands at steps 2, 4, 6" bash -c \
  "[[ \$(grep eval_loss run/metrics.jsonl | grep -oE '\"step\":[0-9]+' | tr '\n' ' ') == '\"step\":2 \"step\":4 \"step\":6 ' ]]"
check "the first rate under warm-up is 0" grep -qE '^\{"step":1,.*"lr":0\.0,' run/metrics.jsonl

layout() {
  local path
  for path in config.yaml plan.json metrics.jsonl trace.json checkpoints/step-6/COMPLETE checkpoints/step-4/COMPLETE \
    model/config.json model/model.safetensors model/tokenizer.json model/tokenizer_config.json; do
    [[ -s run/$path ]] || { echo "run/$path is missing"; return 1; }
  done
  [[ ! -e run/checkpoints/step-2 ]] || { echo "save.keep 2 kept step-2"; return 1; }
}
check "the run folder has its layout, and the newest two checkpoints" layout
check "the written configuration is a configuration" "$LAZYTRAIN" train run/config.yaml --dry-run
check "the trained model is evaluated" "$LAZYTRAIN" eval --model run/model --data eval.jsonl --limit 2 --max-new-tokens 4 --json
check "the trained model generates" "$LAZYTRAIN" generate --model run/model --prompt "Anna has 3" --max-new-tokens 4
expect "a second run does not overwrite the first" 2 "run.*--resume" "$LAZYTRAIN" train run.yaml
check "the same run again gives the same bits" bash -c "'$LAZYTRAIN' train run.yaml output=again data.eval=eval.jsonl 2>/dev/null &&
  cmp run/model/model.safetensors again/model/model.safetensors"

# Without shuffling and packing, step k takes samples (k - 1) * batch ... in file order, wrapping round: 7 samples of
# 3, 4, ... 9 tokens, told apart by how many tokens a step has.
for length in 1 2 3 4 5 6 7; do
  printf '{"prompt": "1", "completion": "%s"}\n' "$(printf '%*s' "$length" '' | tr ' ' 2)"
done >lengths.jsonl
file_order() {
  local samples=() step expected actual i ids
  for length in 1 2 3 4 5 6 7; do
    ids=$("$LAZYTRAIN" tokenize --model model --text "$(printf '%*s' "$length" '' | tr ' ' 2)" | tr ',' '\n' | wc -l)
    samples+=($((1 + ids + 1)))  # prompt, response, EOS
  done
  "$LAZYTRAIN" train run.yaml output=order data.train=lengths.jsonl data.template=none data.pack=false data.shuffle=false \
    batch=3 micro_batch=2 steps=6 || return 1
  for step in 1 2 3 4 5 6; do
    expected=0
    for i in 0 1 2; do expected=$((expected + samples[((step - 1) * 3 + i) % 7])); done
    actual=$(sed -n "${step}p" order/metrics.jsonl | grep -oE '"tokens":[0-9]+')
    [[ $actual == "\"tokens\":$expected" ]] || { echo "step $step has $actual, expected $expected"; return 1; }
  done
}
check "data.shuffle false, data.pack false: file order, wrapping round" file_order

printf 'model: model\nmicro_bach: 2\n' >bad.yaml
expect "an unknown key in the file names file, line and the nearest key" 2 "bad.yaml: line 2: .*micro_bach.*micro_batch" \
  "$LAZYTRAIN" train bad.yaml
expect "an unknown override names the nearest key" 2 "optimizer.lrr.*optimizer.lr" "$LAZYTRAIN" train run.yaml optimizer.lrr=1
expect "a value out of range names the key" 2 "batch.*0" "$LAZYTRAIN" train run.yaml batch=0
expect "a row longer than the model's positions is refused" 2 "seq.*max_position_embeddings" "$LAZYTRAIN" train run.yaml seq=100000
expect "too little memory is exit code 3 and says how much" 3 "[0-9] [kMG]B" "$LAZYTRAIN" train run.yaml output=small host.memory=1MB

touches_nothing() {
  local before after
  before=$(find . -type f -not -path './.logs/*' -exec cksum {} + | sort -k 3)
  "$LAZYTRAIN" train run.yaml output=dry --dry-run >"$logs/dry" 2>&1 || return 1
  grep -qi predicted "$logs/dry" || { echo "no prediction"; return 1; }
  grep -qi weights "$logs/dry" || { echo "no memory table"; return 1; }
  after=$(find . -type f -not -path './.logs/*' -exec cksum {} + | sort -k 3)
  [[ $before == "$after" ]] || { diff <(echo "$before") <(echo "$after"); return 1; }
}
check "--dry-run prints plan and memory, and touches nothing" touches_nothing

# --- what the run refuses, the dry run refuses too, and neither leaves anything
mkdir no_weights && cp model/*.json no_weights
cp -r model no_tokenizer && rm no_tokenizer/tokenizer.json
for dry in "" --dry-run; do
  refused() { expect "$1 is refused ${dry:+by a dry run too}" "$2" "$3" "$LAZYTRAIN" train run.yaml output=refused/run "${@:4}" $dry; }
  refused "a folder with config.json alone" 2 "no_weights.*safetensors" model=no_weights
  refused "a model without tokenizer" 2 "tokenizer.json" model=no_tokenizer
  refused "a folder as data" 2 "data.train: model is a folder" data.train=model
  refused "an output below a file" 2 "output: train.jsonl/run.*is a file" output=train.jsonl/run
  refused "the model's folder as output" 2 "output: ./model is the folder of" output=./model
done
dry=
{ head -n 1 train.jsonl && echo '{'; } >bad.jsonl
refused "a broken row" 1 "bad.jsonl: line 2" data.train=bad.jsonl
check "nothing is left of what was refused" test ! -e refused

# --- one process a run folder
two_at_a_time() {
  local pid waited=0 status=0
  "$LAZYTRAIN" train run.yaml output=shared steps=100000 save.every=1 2>"$logs/shared" &
  pid=$!
  while [[ ! -s shared/metrics.jsonl && $waited -lt 3000 ]]; do sleep 0.01; waited=$((waited + 1)); done
  "$LAZYTRAIN" train run.yaml output=shared steps=5 --resume 2>"$logs/second" || status=$?
  kill -9 "$pid"
  wait "$pid" 2>/dev/null || true
  [[ $status -eq 2 ]] || { echo "the second ended with $status"; return 1; }
  grep -q "another process trains into shared" "$logs/second" || { echo "it said: $(tail -n 1 "$logs/second")"; return 1; }
}
check "a second process is kept out" two_at_a_time
expect "a killed one leaves no lock behind" 0 "model: shared/model" "$LAZYTRAIN" train run.yaml output=shared steps=1 --resume

# --- a signal before the first step
early() {
  local pid waited=0 status=0
  "$LAZYTRAIN" train run.yaml output=early steps=100000 2>"$logs/early" &
  pid=$!
  # Until SIGINT is caught (bit 1 of the mask).
  until [[ $(sed -n 's/^SigCgt:.*\(.\)$/\1/p' "/proc/$pid/status" 2>/dev/null) =~ [2367abef] || $waited -gt 1000 ]]; do
    waited=$((waited + 1))
  done
  kill -INT "$pid"
  wait "$pid" || status=$?
  [[ $status -eq 1 ]] || { echo "exit code $status"; return 1; }
  grep -q "interrupted before the first step: nothing saved" "$logs/early"
}
check "SIGINT before the first step is exit 1 and says that nothing is saved" early

# --- results for scripts, and a standard error that takes nothing
run "$LAZYTRAIN" train run.yaml output=object --json
check "--json prints one object" bash -c "[[ \$(wc -l <'$logs/out') -eq 1 ]] &&
  grep -qE '\"steps\":6,\"total_steps\":6,\"loss\":[0-9.]+,.*\"checkpoint\":\"object/checkpoints/step-6\",\"model\":\"object/model\"\}\$' '$logs/out'"
expect "--dry-run --json too" 0 '^\{"policy":"[a-z0-9-]+","predicted_step_s":[0-9.e-]+\}$' \
  "$LAZYTRAIN" train run.yaml output=dry --dry-run --json
if [[ -c /dev/full ]]; then
  check "a log on a full disk ends no run" bash -c "'$LAZYTRAIN' train run.yaml output=unheard 2>/dev/full && test -s unheard/model/config.json"
fi
printf '{"prompt": "1 2", "completion": "3"}\n' >one.jsonl
expect "one of a kind is no plural" 0 "1 sample in 1 row, " "$LAZYTRAIN" train run.yaml output=one data.train=one.jsonl steps=1 batch=1
check "nor is one step" grep -q "in 1 step)" "$logs/err"

finish
