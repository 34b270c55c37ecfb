#!/usr/bin/env bash
# device.kind: cuda, through a plugin that emulates a card: near the CPU's losses, the same bits under every policy, after
# a resume and from checkpoints; and what is said where there is no card.
source "$(dirname "$0")/lib.sh"
cd "$work"

plugin=$(dirname "$LAZYTRAIN")/liblazytrain_cuda_emulated.so
if [[ ! -e $plugin ]]; then
  echo "there is no $plugin"
  exit 77
fi
"$root/demo/make_problems.sh" 1 40 train >train.jsonl
write_config run.yaml
new_model tied 's/"num_hidden_layers": 2/"num_hidden_layers": 4/'
keys=(model=tied batch=4 micro_batch=2 data.pack=false steps=4 save.every=2 device.threads=1)
cuda=(device.kind=cuda device.profile=rtx3090)

expect "without a plugin it says so" 1 "there is no /nowhere.so" \
  env LAZYTRAIN_CUDA_PLUGIN=/nowhere.so "$LAZYTRAIN" train run.yaml output=none "${keys[@]}" "${cuda[@]}"
export LAZYTRAIN_CUDA_PLUGIN=$plugin
expect "doctor names the card" 0 "^CUDA card +emulation on the CPU, .* free; CUDA 0.0" "$LAZYTRAIN" doctor
expect "a profile is needed" 2 "device.kind: cuda needs device.profile" "$LAZYTRAIN" train run.yaml output=none \
  "${keys[@]}" device.kind=cuda
expect "fp32 is the CPU's" 2 "compute: fp32 is not available on CUDA" "$LAZYTRAIN" train run.yaml output=none \
  "${keys[@]}" "${cuda[@]}" compute=fp32

check "the CPU trains" "$LAZYTRAIN" train run.yaml output=cpu plan.policy=resident "${keys[@]}"
for policy in resident megatrain auto; do
  check "the card trains under $policy" "$LAZYTRAIN" train run.yaml "output=$policy" "plan.policy=$policy" "${keys[@]}" \
    "${cuda[@]}"
done
check "megatrain gives the bits of resident" same_run resident megatrain
check "auto gives the bits of resident" same_run resident auto
check "checkpoints are the same file" cmp resident/checkpoints/step-2/state.safetensors \
  megatrain/checkpoints/step-2/state.safetensors

near() {
  paste <(numbers_of "$1" | cut -d ' ' -f 2) <(numbers_of "$2" | cut -d ' ' -f 2) | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 0.005 * $1) bad++; n++ }
    END { exit !(n >= 4 && bad == 0) }'
}
check "losses are those of the CPU" near cpu resident

check "a run that loses its last checkpoint" "$LAZYTRAIN" train run.yaml output=again "${keys[@]}" "${cuda[@]}" plan.policy=megatrain
rm -r again/checkpoints/step-4 again/model
check "goes on from step 2" "$LAZYTRAIN" train run.yaml output=again "${keys[@]}" "${cuda[@]}" plan.policy=resident --resume
check "to the same bits" cmp again/checkpoints/step-4/state.safetensors resident/checkpoints/step-4/state.safetensors
finish
