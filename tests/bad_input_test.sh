#!/usr/bin/env bash
# Broken input: each case ends with the right exit code and a message that names the file, key or tensor; no signal.
source "$(dirname "$0")/lib.sh"
cd "$work"
trap 'umount "$work/full" 2>/dev/null || true; clean_up' EXIT

new_model model
"$root/demo/make_problems.sh" 1 20 train >train.jsonl
write_config run.yaml

# broken NAME: a copy of the model to break.
broken() {
  rm -rf "$1"
  cp -r model "$1"
}
train() { "$LAZYTRAIN" train run.yaml "output=out" "$@"; }

# --- config.json
broken m && printf '{"model_type": "qwen2", ' >m/config.json
expect "config.json that ends early" 1 "m/config.json.*line 1" train model=m
broken m && sed -i '/"hidden_size"/d' m/config.json
expect "config.json without a key" 1 "m/config.json.*hidden_size" train model=m
broken m && sed -i 's/"num_attention_heads": 4/"num_attention_heads": "four"/' m/config.json
expect "a number that is a text" 1 "m/config.json.*num_attention_heads" train model=m
broken m && sed -i 's/"hidden_size": 128/"hidden_size": 9000000000000000000/' m/config.json
expect "a size out of bounds" 1 "m/config.json.*hidden_size" train model=m
broken m && sed -i 's/"model_type": "qwen2"/"model_type": "qwen9"/' m/config.json
expect "an unknown model_type names the nearest" 2 "qwen9.*qwen2" train model=m
broken m && sed -i 's/"hidden_act": "silu"/"hidden_act": "gelu"/' m/config.json
expect "maths that is not there is refused by name" 2 "hidden_act" train model=m
broken m && sed -i 's/"hidden_size": 128,/"hidden_size": 128, "hidden_size": 128,/' m/config.json
expect "a key that stands twice" 1 "m/config.json.*hidden_size" train model=m
broken m && rm m/config.json
expect "a folder without config.json" 2 "m.*config.json" train model=m
expect "a model folder that is not there" 2 "nowhere" train model=nowhere

# --- weights
size=$(stat -c %s model/model.safetensors)
for cut in 0 7 100 $((size / 2)) $((size - 1)); do
  broken m && truncate -s "$cut" m/model.safetensors
  expect "model.safetensors cut to $cut bytes" 1 "m/model.safetensors" train model=m
done
broken m && printf 'x' >>m/model.safetensors
expect "bytes behind the weights" 1 "m/model.safetensors" train model=m
broken m && printf '\377\377\377\377\377\377\377\177' | dd of=m/model.safetensors conv=notrunc status=none
expect "a header of 2^63 bytes" 1 "m/model.safetensors" train model=m
broken m && sed -i 's/"intermediate_size": 256/"intermediate_size": 320/' m/config.json
expect "weights of another shape name tensor and both shapes" 1 "mlp.*256.*320|mlp.*320.*256" train model=m
broken m && sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' m/config.json
expect "a missing tensor is named" 1 "model.layers.2" train model=m
broken m && LC_ALL=C sed -i '0,/input_layernorm.weight/s/input_layernorm.weight/input_layernorm.wEIGHT/' m/model.safetensors
expect "a renamed tensor is missing" 1 "input_layernorm.weight" train model=m
broken m && printf '\300\177' | dd of=m/model.safetensors bs=1 seek=$((size - 2)) conv=notrunc status=none
expect "a weight that is NaN names file and tensor, not the rate" 1 "m/model.safetensors: tensor 'model.norm.weight': 1 of its 128" train model=m
broken m && rm m/model.safetensors
expect "a folder without weights" 2 "safetensors" train model=m
broken m && rm m/model.safetensors && printf '{"metadata": {}, "weight_map": {"model.norm.weight": "../model/model.safetensors"}}' \
  >m/model.safetensors.index.json
expect "an index that points out of the folder" 1 "index.json" train model=m

# --- tokenizer
broken m && rm m/tokenizer.json
expect "a model without tokenizer.json" 2 "tokenizer.json" train model=m
broken m && truncate -s 1000 m/tokenizer.json
expect "tokenizer.json that ends early" 1 "m/tokenizer.json" train model=m
broken m && sed -i 's/"chat_template": ".*"/"chat_template": "{% for %}"/' m/tokenizer_config.json
expect "a broken chat template" "1" "template" train model=m

# --- data
{ head -n 3 train.jsonl && echo '{"question": "a", "answer": ' && tail -n 3 train.jsonl; } >bad.jsonl
expect "a broken line names file and line" 1 "bad.jsonl: line 4" train data.train=bad.jsonl
{ head -n 3 train.jsonl && echo '[1, 2]'; } >bad.jsonl
expect "a line that is no object" 1 "bad.jsonl: line 4" train data.train=bad.jsonl
{ head -n 3 train.jsonl && echo '{"question": "a"}'; } >bad.jsonl
expect "a row without its response names line and key" 1 "bad.jsonl: line 4.*answer" train data.train=bad.jsonl
echo '{"text": "a"}' >bad.jsonl
expect "unknown keys: those found and those expected" 1 "bad.jsonl.*(text.*question|question.*text)" train data.train=bad.jsonl
expect "a mapping to a key that is not there" 1 "train.jsonl: line 1.*reply" train data.prompt=question data.response=reply
: >bad.jsonl
expect "an empty data file" 1 "bad.jsonl" train data.train=bad.jsonl
printf '{"prompt": "%s", "completion": "1"}\n' "$(printf 'a b c %.0s' {1..200})" >bad.jsonl
expect "a data file whose rows have no target left names them" 1 "bad.jsonl.*1" train data.train=bad.jsonl data.template=none
printf '{"prompt": "\xff\xfe", "completion": "1"}\n' >bad.jsonl
expect "bytes that are no UTF-8" 1 "bad.jsonl: line 1" train data.train=bad.jsonl
expect "a data file that is not there" 2 "data.train.*nowhere" train data.train=nowhere.jsonl
expect "an evaluation file that is not there" 2 "data.eval.*nowhere" train data.eval=nowhere.jsonl

# --- configuration, plan, checkpoint
printf 'model: [unclosed\n' >bad.yaml
expect "a configuration that is no YAML" 2 "bad.yaml: line" "$LAZYTRAIN" train bad.yaml
expect "a configuration that is not there" 2 "nowhere.yaml" "$LAZYTRAIN" train nowhere.yaml
printf 'model: model\ndata: {train: train.jsonl}\n' >bad.yaml
expect "output is not set" 2 "output" "$LAZYTRAIN" train bad.yaml
echo '{"name": "x"}' >bad.json
expect "a plan that is none" 1 "bad.json" train plan.policy=bad.json
expect "an unknown policy names those that exist" 2 "residnet.*resident" train plan.policy=residnet
check "a run to break" "$LAZYTRAIN" train run.yaml output=run steps=3
cp -r run damaged && rm -r damaged/model && truncate -s 5000 damaged/checkpoints/step-3/state.safetensors
expect "a checkpoint that was cut is passed over by name" 0 "step-3" "$LAZYTRAIN" train run.yaml output=damaged steps=3 --resume
new_model other 's/"intermediate_size": 256/"intermediate_size": 320/'
expect "a checkpoint of another model" 1 "run.*model|model.*run" "$LAZYTRAIN" train run.yaml output=run model=other steps=4 --resume

# --- disk
if [[ $(id -u) -ne 0 ]]; then
  mkdir locked && chmod a-w locked
  expect "an output folder that is not writable" 2 "locked" train output=locked/run
else
  expect "an output folder that is not writable" 2 "/proc/nothing" train output=/proc/nothing/run
fi
expect "an output that is a file" 2 "train.jsonl" train output=train.jsonl
if [[ $(id -u) -ne 0 ]]; then
  echo "skipped: a full disk (mounting a small file system needs root)"
elif ! mkdir -p full || ! mount -t tmpfs -o size=9m tmpfs full 2>/dev/null; then
  echo "skipped: a full disk (this system lets nobody mount a file system)"
else
  # A checkpoint takes 4 MB: two fit, the third does not.
  run train output=full/run save.every=1 save.keep=5 steps=5
  if [[ $status -eq 1 ]] && grep -qi 'no space' "$logs/err" && [[ $(newest_complete full/run) -ge 1 ]]; then
    ok "a full disk is exit code 1, says so, and leaves the checkpoints before"
    check "it names the checkpoint that stays, and what to do" bash -c \
      "grep -q 'the run goes on, step-[0-9]* stays' '$logs/err' && grep -q 'free space and add --resume: it goes on from step-' '$logs/err'"
  else
    not_ok "a full disk" "exit code $status, newest complete checkpoint $(newest_complete full/run): $(tail -n 2 "$logs/err" | tr '\n' ' ')"
  fi
  check "the small file system is let go" umount full
  mount -t tmpfs -o size=2m tmpfs full  # not even one fits
  expect "a disk without room for any checkpoint says that there is none" 1 "error: .*it goes on from the beginning, since nothing" \
    train output=full/run save.every=2 steps=5
  check "already while it runs" grep -q "the run goes on, without a checkpoint so far" "$logs/err"
  check "and every step has its line" test "$(wc -l <full/run/metrics.jsonl)" -eq 5
  umount full
fi

finish
