#!/usr/bin/env bash
# lazytrain new-model: random weights that a seed fixes.
source "$(dirname "$0")/lib.sh"
cd "$work"
config=$root/demo/config.json

make() { "$LAZYTRAIN" new-model --config "$config" "$@"; }

expect "a model" 0 "^a: .* parameters, bf16" make --seed 1 a
check "it has configuration and weights" test -s a/config.json -a -s a/model.safetensors
check "and no tokenizer that nobody gave" test ! -e a/tokenizer.json
expect "as an object" 0 '^\{"model":"b","parameters":[0-9]+,"dtype":"bf16","seed":1\}$' make --seed 1 --json b
check "the same seed gives the same bytes" cmp a/model.safetensors b/model.safetensors
check "whatever the threads" bash -c "! command -v taskset >/dev/null ||
  { taskset -c 0 '$LAZYTRAIN' new-model --config '$config' --seed 1 c && cmp a/model.safetensors c/model.safetensors; }"
expect "another seed" 0 "parameters" make --seed 2 d
check "gives others" bash -c "! cmp -s a/model.safetensors d/model.safetensors"
expect "fp32" 0 "fp32" make --seed 1 --dtype fp32 e
check "fp32 takes twice the room" bash -c "[[ \$(stat -c %s e/model.safetensors) -gt \$((19 * \$(stat -c %s a/model.safetensors) / 10)) ]]"
expect "with a tokenizer" 0 "parameters" make --tokenizer "$root/demo/tokenizer" f
check "the tokenizer is copied" cmp f/tokenizer.json "$root/demo/tokenizer/tokenizer.json"
expect "from a folder" 0 "parameters" "$LAZYTRAIN" new-model --config f --seed 3 g
check "with its tokenizer" cmp g/tokenizer.json f/tokenizer.json

expect "a folder that is not empty is refused" 2 "^error: a: .*--force" make --seed 2 a
check "and unchanged" cmp a/model.safetensors b/model.safetensors
expect "unless it is forced" 0 "parameters" make --seed 2 --force a
check "then it is replaced" cmp a/model.safetensors d/model.safetensors
touch file
expect "a file in place of the folder" 2 "^error: file" make file
expect "a folder that cannot be made" 1 "/dev/null/x" make /dev/null/x
expect "an unknown dtype" 2 "fp8" make --dtype fp8 h
expect "a folder without tokenizer" 2 "tokenizer.json" make --tokenizer . h
expect "a configuration that is not there" 2 "nowhere" "$LAZYTRAIN" new-model --config nowhere.json h
echo '{' >cut.json
expect "a configuration that ends early" 1 "cut.json.*line" "$LAZYTRAIN" new-model --config cut.json h
sed 's/"vocab_size": 448/"vocab_size": 100/' "$config" >small.json
expect "a vocabulary smaller than the tokenizer's" 2 "100" "$LAZYTRAIN" new-model --config small.json --tokenizer "$root/demo/tokenizer" h
check "nothing was written by what was refused" test ! -e h

for seed in -1 99999999999999999999; do
  expect "a seed that is no whole number from 0 on: $seed" 2 "seed" make --seed "$seed" h
done
sed 's/"eos_token_id": 2/"eos_token_id": 448/' "$config" >eos.json
expect "an end of text outside the vocabulary" 2 "eos_token_id.* is 448" "$LAZYTRAIN" new-model --config eos.json h
sed 's/"vocab_size": 448/"vocab_size": 500/; s/"eos_token_id": 2/"eos_token_id": [2, 470]/' "$config" >eos.json
expect "one that the tokenizer does not have" 2 "eos_token_id.* is 470.*tokenizer" \
  "$LAZYTRAIN" new-model --config eos.json --tokenizer "$root/demo/tokenizer" h
sed 's/"model_type": "qwen2"/"model_type": "qwen2", "architectures": ["LlamaForCausalLM"]/; /"architectures": \["Qwen2/d' "$config" >other.json
expect "an architecture of another family is a warning" 0 "LlamaForCausalLM.*Qwen2ForCausalLM" \
  "$LAZYTRAIN" new-model --config other.json i
check "nothing was written by what was refused" test ! -e h
if [[ $(id -u) -ne 0 ]]; then
  mkdir locked && chmod a-w locked
  expect "a folder without write permission" 1 "^error: locked/m: cannot be written: locked: Permission denied" make locked/m
fi

finish
