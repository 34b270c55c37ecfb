#!/usr/bin/env bash
# lazytrain plan, simulate and profile: figures of a step before it is run.
source "$(dirname "$0")/lib.sh"
cd "$work"
config=$root/demo/config.json

plan_on() {
  local machine=$1
  shift
  "$LAZYTRAIN" plan --model "$config" --batch 8 --seq 128 --micro-batch 4 --profile "$machine" "$@"
}
plan() { plan_on machine.json "$@"; }
figures='"step_s":[0-9.e-]+,"exposed_s":[0-9.e-]+,"lanes":\{"compute":\{"busy_s":[0-9.e-]+\}.*"peak_bytes":\{"device":[1-9][0-9]*,"host":[1-9][0-9]*,"disk":0\},"tok_per_s":[0-9.e+]+,"tflops":[0-9.e-]+'
# field NAME FILE: a number of a JSON object.
field() { grep -oE "\"$1\":[0-9.e+-]+" "$2" | head -n 1 | cut -d: -f2; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }

# --- profile
expect "a profile" 0 "^matrix products +[0-9.]+ GFLOPS" "$LAZYTRAIN" profile --out machine.json
check "the profile holds the rates" grep -q '"gemm_flops": [1-9]' machine.json
check "and says that host and device are one memory" grep -q '"one_memory": true' machine.json
expect "a profile as an object" 0 '^\{"name":"this","one_memory":true,"gemm_flops":[1-9].*\}$' "$LAZYTRAIN" profile --out m2.json --json
expect "a profile that cannot be written" 1 "/dev/null/x" "$LAZYTRAIN" profile --out /dev/null/x
expect "the disk of a folder is measured" 0 "^disk +[0-9.]+ GB/s read" "$LAZYTRAIN" profile --out m3.json --disk .
check "the profile holds the disk" grep -q '"disk_bytes": [1-9]' m3.json
check "every figure has a source" grep -q '"links.disk_write": "measured' m3.json
expect "a disk that is not there" 2 "no such folder" "$LAZYTRAIN" profile --out x.json --disk no/such/folder

# --- plan
expect "a plan in words" 0 "^plan: resident, batch 8 in 2 micro-batches of 4, seq 128" plan
expect "its placement map" 0 "^placement: hKKL$" plan
expect "its memory by purpose" 0 "^ +optimizer state +[0-9.]+ .B$" plan
expect "its step time" 0 "^predicted: .* a step, [0-9]+ tokens/s, .* TFLOPS \(6 N tokens/s" plan
expect "as an object" 0 "^\{$figures.*\"policy\":\"resident\".*\}$" plan --json
expect "megatrain" 0 "^placement: hBrL$" plan --policy megatrain
expect "fp32" 0 "compute fp32" plan --compute fp32
expect "this machine without a profile" 0 "on this$" "$LAZYTRAIN" plan --model "$config" --batch 8 --seq 128
plan --json >resident.json 2>/dev/null
plan --json --policy megatrain >megatrain.json 2>/dev/null
check "megatrain takes less device memory" less "$(field device megatrain.json)" "$(field device resident.json)"
check "and more time" less "$(field step_s resident.json)" "$(field step_s megatrain.json)"

# --- what does not fit
device=$(field device resident.json)
expect "exactly enough memory fits" 0 "resident" plan --policy resident --device-memory "$device"
expect "a byte less does not" 3 "^device: .* 1 B short" plan --policy resident --device-memory "$((device - 1))"
expect "the breakdown names purposes" 3 "retained [0-9.]+ [kM]B" plan --policy resident --device-memory "$((device - 1))"
expect "a remedy has its figures" 3 "^  .*micro_batch=2 +device .*time a token" plan --policy resident --device-memory "$((device - 1))"
run plan --policy resident --device-memory "$((device - 1))" --json
check "an infeasible plan leaves standard output empty" test ! -s "$logs/out"
expect "the remedy works" 0 "resident" "$LAZYTRAIN" plan --model "$config" --batch 8 --seq 128 --micro-batch 2 \
  --profile machine.json --policy resident --device-memory "$((device - 1))"
expect "without a policy the smaller one is taken" 0 "^plan: megatrain" plan --device-memory "$((device - 1))"
expect "host memory" 3 "^host: .*optimizer state" plan --host-memory 1MB
sed 's/"host_bytes": [0-9][0-9]*/"host_bytes": 1000000/' machine.json >small.json
expect "a small machine" 3 "one memory" plan_on small.json

# --- simulate
expect "a plan's file" 0 "^plan" plan --out plan.json
expect "simulate in words" 0 "^predicted:" "$LAZYTRAIN" simulate --plan plan.json
expect "simulate as an object" 0 "^\{$figures\}$" "$LAZYTRAIN" simulate --plan plan.json --json --trace trace.json
check "it is the plan's figure" test "$(field step_s "$logs/out")" = "$(field step_s resident.json)"
check "the trace has lanes" grep -q '"thread_name"' trace.json
check "and slices" grep -q '"name":"layer.0 forward 0"' trace.json
check "and memory" grep -q '"device bytes"' trace.json
differs='made for another model: layers 2 in the plan, 24 here, hidden 128 in the plan, 896 here, vocabulary .*parameters '
expect "another model is refused by what differs" 2 "^error: plan.json was $differs" "$LAZYTRAIN" simulate --plan plan.json \
  --model "$root/configs/qwen2.5-0.5b.json"
expect "for its report too" 2 "^error: plan.json was $differs" "$LAZYTRAIN" report plan.json --model "$root/configs/qwen2.5-0.5b.json"
sed '/^  "made_for": {/,/^  },/d' plan.json >older.json
check "a plan from before plans knew their model" test "$(grep -c made_for plan.json older.json | tr '\n' ' ')" = "plan.json:1 older.json:0 "
expect "is simulated" 0 "^predicted:" "$LAZYTRAIN" simulate --plan older.json
expect "and refused likewise" 2 "^error: older.json was $differs" "$LAZYTRAIN" simulate --plan older.json --model "$root/configs/qwen2.5-0.5b.json"
sed 's/"rms_norm_eps": [0-9.e-]*/"rms_norm_eps": 0.001/' "$config" >eps.json
expect "the same sizes and other maths" 2 "another model: other keys of config.json, of the same sizes" \
  "$LAZYTRAIN" simulate --plan plan.json --model eps.json
expect "another machine" 0 "on this$" "$LAZYTRAIN" simulate --plan plan.json --profile this
sed 's/"micro_batch": 4/"micro_batch": 0/' plan.json >broken.json
expect "a plan out of range" 1 "broken.json.*micro_batch" "$LAZYTRAIN" simulate --plan broken.json
head -c 300 plan.json >cut.json
expect "a plan that ends early" 1 "cut.json.*line" "$LAZYTRAIN" simulate --plan cut.json
expect "a plan that is not there" 1 "nowhere" "$LAZYTRAIN" simulate --plan nowhere.json

# --- wrong usage
expect "an unknown profile says what there is" 2 "'h100'.*this" plan_on h100
sed -e 's/"one_memory": true/"one_memory": false/' -e 's/"h2d": [0-9.e+]*/"h2d": 0/' machine.json >gpu.json
expect "a machine with two memories needs links" 1 "gpu.json.*links" plan_on gpu.json
expect "a broken profile" 1 "plan.json.*gemm_flops" plan_on plan.json
expect "an unknown policy names those known" 2 "'paper'.*megatrain.*resident" plan --policy paper
expect "a micro-batch above the batch" 2 "^error: --micro-batch" "$LAZYTRAIN" plan --model "$config" --batch 2 --seq 128 --micro-batch 4
expect "a sequence above the model's" 2 "^error: --seq: 1024 .*512" "$LAZYTRAIN" plan --model "$config" --batch 2 --seq 1024
expect "a size that is none" 2 "^error: --device-memory" plan --device-memory lots
expect "8-bit optimizer state" 0 "^ +optimizer state +[0-9.]+ .B$" plan --optimizer-state 8bit
expect "an unknown optimizer state" 2 "optimizer state '4bit' is unknown" plan --optimizer-state 4bit
expect "--no-clip has no meaning in one memory" 2 "^error: --no-clip" plan --no-clip
for option in --gap --time-limit --mps --disk-memory; do
  expect "$option has no meaning in one memory" 2 "^error: $option" plan "$option" 1
done
expect "too many micro-batches" 2 "micro-batches of .* units are more than a program holds" \
  "$LAZYTRAIN" plan --model "$config" --profile machine.json --batch 1000000 --micro-batch 1 --seq 16
sed 's/"seq": 128/"seq": 4096/' plan.json >long.json
expect "a plan with more positions than the model" 1 "seq 4096 .*512 positions" "$LAZYTRAIN" simulate --plan long.json
sed 's/"compute": "bf16"/"compute": "x"/' plan.json >other.json
expect "a plan of an unknown compute" 2 "other.json: compute: 'x'" "$LAZYTRAIN" simulate --plan other.json
expect "no model" 2 "^error: plan needs --model" "$LAZYTRAIN" plan --batch 1 --seq 1
expect "no shape" 2 "^error: plan needs --batch" "$LAZYTRAIN" plan --model "$config"
sed 's/"host_bytes": [0-9][0-9]*/"host_bytes": 10000000000000/' machine.json >large.json
expect "a large model needs no weights" 0 "^plan: .* 72.7 B parameters" "$LAZYTRAIN" plan --profile large.json --batch 4 --seq 2048 \
  --model "$root/configs/qwen2.5-72b.json"


expect "the published system" 0 "^plan: lazytrain-paper.*7.62 B" "$LAZYTRAIN" plan --profile h800-paper --batch 8 --seq 1024 \
  --policy lazytrain-paper --model "$root/configs/qwen2.5-7b.json"
expect "the published system without room" 3 "^error: policy lazytrain-paper: no checkpoints" "$LAZYTRAIN" plan --batch 8 \
  --seq 1024 --profile h800-paper --policy lazytrain-paper --device-memory 1GB --model "$root/configs/qwen2.5-7b.json"

finish
