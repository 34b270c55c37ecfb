#!/usr/bin/env bash
# Weights in and out: what is not trained keeps its bytes, what is exported is what was trained.
source "$(dirname "$0")/lib.sh"
cd "$work"

new_model model
"$root/demo/make_problems.sh" 1 20 train >train.jsonl
write_config run.yaml
still=(steps=1 optimizer.lr=0 optimizer.weight_decay=0)

check "a run at rate 0" "$LAZYTRAIN" train run.yaml output=still "${still[@]}"
check "an untrained bf16 model keeps the bytes of its tensors" cmp model/model.safetensors still/model/model.safetensors
check "export writes them too" bash -c "'$LAZYTRAIN' export still exported && cmp model/model.safetensors exported/model.safetensors"

check "a run that trains" "$LAZYTRAIN" train run.yaml
check "export as bf16 is the model of the run" bash -c "'$LAZYTRAIN' export run bf16 --dtype bf16 &&
  cmp run/model/model.safetensors bf16/model.safetensors && cmp run/model/tokenizer.json bf16/tokenizer.json"
check "it differs from the untrained one" bash -c "! cmp -s model/model.safetensors run/model/model.safetensors"
check "export as fp32 takes twice the room" bash -c "'$LAZYTRAIN' export run fp32 --dtype fp32 &&
  [[ \$(stat -c %s fp32/model.safetensors) -gt \$((19 * \$(stat -c %s bf16/model.safetensors) / 10)) ]]"
check "the fp32 weights go through a run at rate 0 unchanged" bash -c "
  '$LAZYTRAIN' train run.yaml output=again model=fp32 ${still[*]} && '$LAZYTRAIN' export again fp32_again --dtype fp32 &&
  cmp fp32/model.safetensors fp32_again/model.safetensors"
check "config.json says the dtype" grep -q '"\(torch_\)\?dtype": "float32"' fp32/config.json
check "every exported folder is a model" bash -c "for m in exported bf16 fp32; do
  '$LAZYTRAIN' generate --model \$m --prompt 'Anna has' --max-new-tokens 2 || exit 1; done"
expect "export does not write over another folder" 2 "bf16" "$LAZYTRAIN" export run bf16
expect "export of a folder that is no run" 2 "model" "$LAZYTRAIN" export model out
expect "export of a folder that is not there" 2 "nowhere" "$LAZYTRAIN" export nowhere out
expect "an unknown dtype is named" 2 "fp8" "$LAZYTRAIN" export run out --dtype fp8

finish
