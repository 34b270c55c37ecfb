#!/usr/bin/env bash
# lazytrain plan and simulate for machines whose device, host and disk are different memories.
source "$(dirname "$0")/lib.sh"
cd "$work"
model=$root/configs/qwen2.5-7b.json
plan_for() {
  local profile=$1
  shift
  "$LAZYTRAIN" plan --model "$model" --profile "$profile" --batch 16 --seq 1024 --time-limit "${limit:-5}" "$@"
}
field() { grep -oE "\"$1\":[0-9.e+-]+" "$2" | head -n 1 | cut -d: -f2; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }
within() { awk -v a="$1" -v b="$2" -v part="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d <= part * b) }'; }

# --- what a person sees
expect "a plan for a card" 0 "^plan: lazytrain, batch 16 in [0-9]+ micro-batch" plan_for rtx3090
check "where boundaries live" grep -qE '^boundary:  [DHN.]{28} ' "$logs/out"
check "which retained sets" grep -qE '^retained:  [a-z]{28} ' "$logs/out"
check "weights" grep -qE '^weights:   [sktnv]{28} ' "$logs/out"
check "memory against its budget" grep -qE '^memory:    device +[0-9.]+ GB of 24.9 GB allowed' "$logs/out"
check "lanes" grep -qE '^ +d2h +[0-9.]+ m?s busy, [0-9]+% of the step' "$logs/out"
check "what compute waits for" grep -q '^waits: ' "$logs/out"
check "the gap" grep -qE '^solver: .*gap [0-9.]+% to a bound of' "$logs/out"
check "no disk unless it is asked for" test "$(grep -c '^memory:    disk' "$logs/out")" = 0
expect "the policies it was held against" 0 "^ +megatrain +micro-batch" plan_for rtx3090 --compare
expect "what layers cost" 0 "^  layer.0: forward" plan_for rtx3090 --explain
expect "a host of 64 GB needs the disk" 0 "planned with it" plan_for rtx3090-64gb
expect "8-bit state" 0 "^predicted" plan_for rtx3090-128gb --optimizer-state 8bit
limit=0 expect "a mathematical program for other solvers" 0 "^predicted" plan_for rtx3090 --mps program.mps
check "it has rows" grep -q '^ROWS' program.mps

# --- figures
plan_for rtx3090 --json --out plan.json >ours.json 2>/dev/null
check "the gap is within 0.5 %" less "$(field gap ours.json)" 0.005
bound=$(field bound_s ours.json)
check "the simulator agrees with the program to 1 %" within "$(field step_s ours.json)" \
  "$(awk -v b="$bound" -v g="$(field gap ours.json)" 'BEGIN { print b / (1 - g) }')" 0.01
for policy in megatrain zero3-offload every-layer; do
  plan_for rtx3090 --policy "$policy" --json >other.json 2>/dev/null
  check "$policy is slower" less "$(field step_s ours.json)" "$(field step_s other.json)"
done
limit=0 plan_for rtx3090 --json >quick.json 2>/dev/null
check "a plan at a time limit of 0" within "$(field step_s quick.json)" "$(field step_s ours.json)" 0.1
plan_for rtx4090 --json >faster.json 2>/dev/null
check "a faster card is faster" less "$(field step_s faster.json)" "$(field step_s ours.json)"

# --- costs as measured: forward of one layer took twice what the profile says, and so all layers'
print_measured() {
  printf '{"kind": "measurements", "model": %s, "steps": 3, "compute": [{"unit": 1, "pass": "%s", "count": 3, "seconds": 2, "analytic_s": 1}]}' \
    "$1" "$2"
}
fingerprint=$(grep -oE '"model": "[^"]+"' plan.json | head -n 1 | cut -d' ' -f2)
print_measured "$fingerprint" forward >measured.json
expect "measured costs are named" 0 "^  layer.0: forward [0-9.]+ m?s \\(measured, 2 of analytic\\)" \
  plan_for rtx3090 --explain --measured measured.json
check "what was not measured is said to be analytic" grep -q 'h2d [0-9.]* GB/s (analytic)' "$logs/out"
plan_for rtx3090 --json --measured measured.json >slower.json 2>/dev/null
check "measured costs are planned with" less "$(field step_s ours.json)" "$(field step_s slower.json)"
print_measured '"another"' forward >another.json
expect "measured of another model" 1 "another.json: measured of a model" plan_for rtx3090 --measured another.json
print_measured "$fingerprint" sideways >sideways.json
expect "measured of no pass" 1 "sideways.json: compute.0.: \"pass\" is 'sideways'" plan_for rtx3090 --measured sideways.json

# --- its file
expect "simulate" 0 "step_s" "$LAZYTRAIN" simulate --plan plan.json --json
check "gives the plan's figure" test "$(field step_s "$logs/out")" = "$(field step_s ours.json)"
expect "simulate on another machine" 0 "on rtx5090$" "$LAZYTRAIN" simulate --plan plan.json --profile rtx5090
"$LAZYTRAIN" plan --model "$root/configs/qwen2.5-7b.json" --profile h800 --policy resident --batch 1 --seq 64 \
  --device-memory 300GB --out large.json >/dev/null 2>&1 || true
expect "a plan that its machine does not hold is said to be one" 0 "large.json does not fit h800 [(]device: [0-9.]+ GB short" \
  "$LAZYTRAIN" simulate --plan large.json
expect "simulate in one memory" 0 "on this$" "$LAZYTRAIN" simulate --plan plan.json --profile this
sed 's/"home": "host"/"home": "device"/' plan.json >edited.json
expect "an edited plan is simulated like any other" 0 "^predicted" "$LAZYTRAIN" simulate --plan edited.json
sed 's/"weight_home": "host"/"weight_home": "device"/' plan.json >apart.json
expect "weights apart from their state" 2 "both on the device, or neither" "$LAZYTRAIN" simulate --plan apart.json
sed 's/"optimizer_home": "host"/"optimizer_home": "tape"/' plan.json >tape.json
expect "a home that is none" 1 "optimizer_home.*'tape'.*device, host, disk" "$LAZYTRAIN" simulate --plan tape.json
new_model m
printf '{"prompt":"a","response":"b"}\n' >data.jsonl
printf 'model: m\noutput: run\ndata: {train: data.jsonl}\nseq: 16\nbatch: 2\nsteps: 1\nplan: {policy: %s}\n' "$work/own.json" >run.yaml
"$LAZYTRAIN" plan --model m --profile rtx3090 --batch 2 --micro-batch 2 --seq 16 --out own.json >/dev/null 2>&1
expect "a plan of another machine does not train here" 2 "^  machine rtx3090 .device 24.9 GB, host .* in the plan, .*one memory of .* here" \
  "$LAZYTRAIN" train run.yaml
check "nor is anything else wrong with it" test "$(grep -c ' in the plan, ' "$logs/err")" = 1
expect "a plan of other keys" 2 "^error: .*own.json: was made for something else:" \
  "$LAZYTRAIN" train run.yaml batch=4 micro_batch=1 seq=32 compute=fp32 optimizer.state=8bit
for line in "batch 2 in the plan, 4 here" "micro_batch 2 in the plan, 1 here" "seq 16 in the plan, 32 here" \
  "compute bf16 in the plan, fp32 here" "optimizer.state fp32 in the plan, 8bit here"; do
  check "it says $line" grep -q "^  $line$" "$logs/err"
done
new_model narrow 's/"intermediate_size": 256/"intermediate_size": 320/'
expect "a plan of another model" 2 "^  parameters [0-9]* in the plan, [0-9]* here" "$LAZYTRAIN" train run.yaml model=narrow
"$LAZYTRAIN" plan --model m --profile rtx3090 --batch 2 --micro-batch 2 --seq 16 --policy resident --out large.json >/dev/null 2>&1
expect "a plan of a larger machine that does not fit an emulated one" 3 "large.json: machine rtx3090 .device 24.9 GB.* in the plan, rtx4090, emulated" \
  "$LAZYTRAIN" train run.yaml device.profile=rtx4090 device.memory=1MB "plan.policy=$work/large.json"

# --- gradients that are not clipped: updates begin in backward
slow_host() { "$LAZYTRAIN" plan --model "$model" --profile slow.json --batch 16 --seq 1024 --time-limit 2 "$@"; }
sed -E 's/"host_bandwidth": [0-9.e+]+/"host_bandwidth": 2e10/' "$root/profiles/rtx3090.json" >slow.json
slow_host --json >clipped.json 2>/dev/null
expect "updates in backward" 0 "^updates: +[1-9][0-9]*% of the parameters in backward" slow_host --no-clip --out early.json
slow_host --no-clip --json >early_figures.json 2>/dev/null
check "on a slow host the step is shorter" less "$(field step_s early_figures.json)" "$(field step_s clipped.json)"
check "its plan says so" grep -q '"update_in_backward": true' early.json
expect "it is simulated like any other" 0 "^updates: " "$LAZYTRAIN" simulate --plan early.json
expect "fixed rules know of no such thing" 2 "^error: --no-clip: policy megatrain is a fixed rule" slow_host --no-clip --policy megatrain
sed -e 's/"update_in_backward": false/"update_in_backward": true/' own.json >own_early.json
expect "it does not train, and why" 2 "own_early.json: has .update_in_backward.*not all finite.*without --no-clip" \
  "$LAZYTRAIN" train run.yaml "plan.policy=$work/own_early.json"
sed 's/"optimizer_home": "host"/"optimizer_home": "disk"/' early.json >no_early.json
expect "a policy that cannot do it" 2 "has update_in_backward, and no unit" "$LAZYTRAIN" simulate --plan no_early.json

# --- what does not fit, and what is wrong
expect "a device that is too small" 3 "^device: .* short" plan_for rtx3090 --device-memory 1GB
expect "state that fits nowhere" 3 "the model's state is [0-9.]+ GB: weights" plan_for rtx3090 --host-memory 20GB --disk-memory 10GB
check "remedies have figures" grep -qE 'tokens/s' "$logs/err"
expect "a policy that does not fit" 3 "policy resident needs" plan_for rtx3090 --policy resident
expect "an unknown profile names the nearest" 2 "nearest is 'rtx3090'" plan_for rtx309
expect "an unknown policy names the nearest" 2 "did you mean megatrain" plan_for rtx3090 --policy megatran
expect "an unknown solver" 2 "^error: --solver" plan_for rtx3090 --solver gurobi
expect "a budget of nothing" 2 "^error: --device-memory" plan_for rtx3090 --device-memory 0
expect "a negative budget" 2 "^error: --host-memory" plan_for rtx3090 --host-memory=-5GB
expect "a batch of nothing" 2 "batch" "$LAZYTRAIN" plan --model "$model" --profile rtx3090 --batch 0 --seq 16
expect "a gap that is none" 2 "^error: --gap" plan_for rtx3090 --gap 2
"$LAZYTRAIN" plan --model "$model" --profile rtx3090 --batch 16 --seq 1024 --device-memory 20GB --time-limit 0 >gb.out 2>/dev/null
"$LAZYTRAIN" plan --model "$model" --profile rtx3090 --batch 16 --seq 1024 --device-memory 20GiB --time-limit 0 >gib.out 2>/dev/null
check "GB and GiB differ" test "$(grep -c 'of 20.0 GB allowed' gb.out) $(grep -c 'of 21.5 GB allowed' gib.out)" = "1 1"
expect "a model with mixed layers" 0 "^plan: lazytrain" "$LAZYTRAIN" plan --model "$root/configs/qwen3.6-27b.json" \
  --profile h100-sxm --batch 8 --seq 1024 --time-limit 2

finish
