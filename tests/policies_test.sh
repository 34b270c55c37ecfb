#!/usr/bin/env bash
# The policy never changes the result: every named policy gives the losses, norms and weights of `resident`, bit for bit.
source "$(dirname "$0")/lib.sh"
cd "$work"

policies=(megatrain)  # besides resident

"$root/demo/make_problems.sh" 1 40 train >train.jsonl
write_config run.yaml
six='s/"num_hidden_layers": 2/"num_hidden_layers": 6/'
new_model tied "$six"
new_model untied "$six;s/\"tie_word_embeddings\": true/\"tie_word_embeddings\": false/"

plans_differ() {
  ! diff -q <(grep -v '"name"\|predicted' "$1/plan.json") <(grep -v '"name"\|predicted' "$2/plan.json") >/dev/null
}

for model in tied untied; do
  for compute in bf16 fp32; do
    for micro in 5 2; do  # the whole batch; three micro-batches, the last one smaller
      keys=("model=$model" "compute=$compute" batch=5 "micro_batch=$micro" data.pack=false steps=4)
      name=$model-$compute-$micro
      check "resident ($name)" "$LAZYTRAIN" train run.yaml "output=resident-$name" plan.policy=resident "${keys[@]}"
      for policy in "${policies[@]}"; do
        check "$policy ($name)" "$LAZYTRAIN" train run.yaml "output=$policy-$name" "plan.policy=$policy" "${keys[@]}"
        check "$policy is another plan than resident ($name)" plans_differ "resident-$name" "$policy-$name"
        check "$policy gives the bits of resident ($name)" same_run "resident-$name" "$policy-$name"
        check "and the same master weights ($name)" bash -c "
          '$LAZYTRAIN' export resident-$name a-$policy-$name --dtype fp32 && '$LAZYTRAIN' export $policy-$name b-$policy-$name --dtype fp32 &&
          cmp a-$policy-$name/model.safetensors b-$policy-$name/model.safetensors"
      done
    done
  done
done
check "a plan.json is a policy" "$LAZYTRAIN" train run.yaml output=from_plan model=tied batch=5 data.pack=false steps=4 \
  plan.policy=megatrain-tied-bf16-5/plan.json
check "and gives the bits of the run it is from" same_run megatrain-tied-bf16-5 from_plan

finish
