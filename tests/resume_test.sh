#!/usr/bin/env bash
# Interrupting and resuming: the run that was stopped and went on equals the run that was not, bit for bit.
source "$(dirname "$0")/lib.sh"
cd "$work"

new_model model 's/"num_hidden_layers": 2/"num_hidden_layers": 6/'  # more layers than megatrain's checkpoint interval
"$root/demo/make_problems.sh" 1 97 train >train.jsonl
write_config run.yaml
# 97 rows and 7 of them a step: no step but the 97th ends with an epoch, and the order changes inside of steps.
keys=(data.pack=false batch=7 micro_batch=3 steps=60)

# stopped_and_resumed OUTPUT SIGNAL LINES KEY...: sends SIGNAL once LINES steps are in metrics.jsonl, then resumes.
stopped_and_resumed() {
  local output=$1 signal=$2 lines=$3 pid status=0 waited=0
  shift 3
  "$LAZYTRAIN" train run.yaml "output=$output" "$@" 2>"$output.log" &
  pid=$!
  while [[ $(wc -l <"$output/metrics.jsonl" 2>/dev/null || echo 0) -lt $lines ]]; do
    sleep 0.01
    waited=$((waited + 1))
    if [[ $waited -gt 6000 ]] || ! kill -0 "$pid" 2>/dev/null; then
      echo "step $lines did not come: $(tail -n 2 "$output.log")"
      return 1
    fi
  done
  kill "-$signal" "$pid"
  wait "$pid" || status=$?
  [[ $status -eq 130 ]] || { echo "exit code $status behind SIG$signal, expected 130: $(tail -n 2 "$output.log")"; return 1; }
  steps_done=$(newest_complete "$output")
  [[ $steps_done -ge $lines && $steps_done -lt 60 ]] || { echo "the checkpoint is of step $steps_done"; return 1; }
  [[ $(wc -l <"$output/metrics.jsonl") -eq $steps_done ]] || { echo "metrics.jsonl is not as long as the run"; return 1; }
  [[ ! -e $output/model ]] || { echo "a model was written before the end"; return 1; }
  "$LAZYTRAIN" train run.yaml "output=$output" "$@" --resume 2>>"$output.log"
}

for variant in "resident bf16" "megatrain bf16" "resident fp32"; do
  read -r policy compute <<<"$variant"
  plan=("plan.policy=$policy" "compute=$compute")
  check "an uninterrupted run ($variant)" "$LAZYTRAIN" train run.yaml "output=whole_$policy$compute" "${keys[@]}" "${plan[@]}"
  for signal in INT TERM; do
    [[ $signal == INT || $variant == "resident bf16" ]] || continue
    name=$policy$compute$signal
    check "SIG$signal ends the step, saves and exits with 130; --resume goes on ($variant)" \
      stopped_and_resumed "$name" "$signal" 17 "${keys[@]}" "${plan[@]}"
    check "the resumed run equals the uninterrupted one bit for bit ($variant, SIG$signal)" same_run "whole_$policy$compute" "$name"
  done
done

check "a run stopped under one policy goes on under the other" stopped_and_resumed mixed INT 9 "${keys[@]}" plan.policy=megatrain
check "the result is the same" same_run whole_residentbf16 mixed
check "--resume of a finished run changes nothing" bash -c "cp -r mixed before &&
  '$LAZYTRAIN' train run.yaml output=mixed ${keys[*]} plan.policy=resident --resume 2>'$logs/finished'"
check "its model and metrics stay" same_run before mixed
check "--resume without a checkpoint starts from the beginning" "$LAZYTRAIN" train run.yaml output=fresh "${keys[@]}" --resume
check "its result is that of a new run" same_run whole_residentbf16 fresh
check "a finished run says that it is" grep -q "the run was finished already, with step 60" "$logs/finished"
expect "a changed configuration is said, with both values" 0 "differ.*steps: 60 -> 61" \
  "$LAZYTRAIN" train run.yaml output=fresh "${keys[@]}" steps=61 --resume
check "and nothing that did not change" bash -c "! grep -qE 'batch:|data.train' '$logs/err'"
sed 's/Anna/Otto/' train.jsonl >other.jsonl
expect "changed data is said by file" 0 "differ.*data.train: train.jsonl -> other.jsonl; the tokens of data.train, other.jsonl" \
  "$LAZYTRAIN" train run.yaml output=fresh "${keys[@]}" steps=61 data.train=other.jsonl --resume

cp -r fresh moved && mv moved/checkpoints/step-61 moved/checkpoints/step-62
expect "a checkpoint of another step than its folder" 1 "step-62/trainer.json.*61" \
  "$LAZYTRAIN" train run.yaml output=moved "${keys[@]}" steps=70 --resume
cp -r fresh marked && rm marked/checkpoints/*/COMPLETE && rm -r marked/model
run "$LAZYTRAIN" train run.yaml output=marked "${keys[@]}" steps=2 --resume
check "no older checkpoint is promised where there is none" bash -c "grep -q 'there is no older one' '$logs/err' && ! grep -q 'is taken' '$logs/err'"

finish
