#!/usr/bin/env bash
# Training with 8-bit optimizer state: less memory, nearly the same losses, the same bits in every home and on resuming.
source "$(dirname "$0")/lib.sh"
cd "$work"

"$root/demo/make_problems.sh" 1 60 train >train.jsonl
write_config run.yaml
new_model model 's/"num_hidden_layers": 2/"num_hidden_layers": 3/'
mkdir disk
keys=(batch=4 data.pack=false steps=24 save.every=8 save.keep=5)

train() {  # OUTPUT STATE KEY...
  local output=$1 state=$2
  shift 2
  "$LAZYTRAIN" train run.yaml "output=$output" "optimizer.state=$state" "${keys[@]}" "$@" 2>"$output.log"
}
loss_of() { json_number loss <(tail -n 1 "$1/metrics.jsonl"); }
# Bytes of optimizer state in the printed memory table.
state_bytes() {
  sed -nE 's/^ +optimizer state +([0-9.]+) (.?B)$/\1 \2/p' "$1.log" | head -n 1 |
    awk '{f["B"] = 1; f["kB"] = 1e3; f["MB"] = 1e6; f["GB"] = 1e9; print $1 * f[$2]}'
}
state_file() { echo "$1/checkpoints/step-24/state.safetensors"; }
mean_loss() { sed -E 's/.*"loss":([^,]*),.*/\1/' "$1/metrics.jsonl" | tail -n 8 | awk '{s += $1} END {print s / NR}'; }

check "fp32" train fp32 fp32
check "8bit" train 8bit 8bit
for state in 8bit:4096+embedding hybrid:0.3; do
  check "$state" train "$state" "$state"
done
for state in 8bit 8bit:4096+embedding hybrid:0.3; do
  check "$state has other losses than fp32" test "$(loss_of "$state")" != "$(loss_of fp32)"
  check "and within 3 %" awk -v a="$(mean_loss "$state")" -v b="$(mean_loss fp32)" \
    'BEGIN {d = (a - b) / b; exit !(d < 0.03 && d > -0.03)}'
  check "its memory is less in the plan" awk -v a="$(state_bytes "$state")" -v b="$(state_bytes fp32)" 'BEGIN {exit !(a > 0 && a < 0.9 * b)}'
  check "and in the checkpoint" test "$(stat -c %s "$(state_file "$state")")" -lt "$(stat -c %s "$(state_file fp32)")"
done

# Going on gives the bits of not having stopped.
cp -r 8bit whole
rm 8bit/checkpoints/step-{16,24}/COMPLETE
check "8bit goes on from step 8" train 8bit 8bit --resume
check "from there" grep -q "going on from .*step-8 " 8bit.log
check "it equals the uninterrupted run" same_run whole 8bit
check "to the last byte of the checkpoint" cmp "$(state_file whole)" "$(state_file 8bit)"
check "nothing is converted" bash -c "! grep -q converted 8bit.log"

# Every home.
for policy in megatrain state-on-disk all-on-disk; do
  check "$policy" train "$policy" 8bit "plan.policy=$policy" disk.path=disk disk.verify=true
  check "$policy has the same numbers" same_run whole "$policy"
  check "and the same checkpoint" cmp "$(state_file whole)" "$(state_file "$policy")"
done
check "an emulated machine" train emulated 8bit device.profile=rtx3090 device.threads=1
check "one memory with one thread" train thread 8bit device.threads=1
check "has its numbers" same_run thread emulated

# From one kind to the other.
cp -r fp32 mixed
expect "fp32 state is converted with a line" 0 "optimizer state of .* saved as fp32 is converted to this run's 8bit:256" \
  "$LAZYTRAIN" train run.yaml output=mixed optimizer.state=8bit "${keys[@]}" steps=26 --resume
expect "and back" 0 "saved as 8bit:256 is converted to this run's fp32" \
  "$LAZYTRAIN" train run.yaml output=mixed optimizer.state=fp32 "${keys[@]}" steps=28 --resume
check "the weights are exported" "$LAZYTRAIN" export whole exported
check "they are the run's" cmp exported/model.safetensors whole/model/model.safetensors
expect "a plan of another kind" 2 "optimizer.state 8bit in the plan, fp32 here" \
  "$LAZYTRAIN" train run.yaml output=none plan.policy=whole/plan.json "${keys[@]}" --dry-run
expect "an unknown kind" 2 "optimizer.state: .*'4bit' is unknown" "$LAZYTRAIN" train run.yaml output=none \
  optimizer.state=4bit --dry-run

finish
