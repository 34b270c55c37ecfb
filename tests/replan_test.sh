#!/usr/bin/env bash
# Planning again while a run goes on: on a machine that is not what its profile says, a run plans again with the times of
# its steps, changes its plan or says why not, and its result is that of the run which kept its plan, bit for bit.
source "$(dirname "$0")/lib.sh"
cd "$work"

"$root/demo/make_problems.sh" 1 60 train >train.jsonl
write_config run.yaml
new_model model 's/"num_hidden_layers": 2/"num_hidden_layers": 6/'
mkdir disk

# A card whose disk is said to be as fast as its memory.
sed -E 's/"name": ".*"/"name": "boaster"/; s/"disk_(read|write)": [0-9.]+/"disk_\1": 1e14/; /"sources"/,/^  \}/d; s/("disk_bytes": [0-9]+),/\1/' \
  "$root/profiles/rtx3090.json" >boaster.json
keys=(batch=4 micro_batch=2 data.pack=false steps=80 save.every=20 save.keep=9 device.threads=1)
boaster=(device.profile=boaster.json disk.path=disk host.memory=76MB)

# Whether steps miss their prediction is this machine's to say: where they meet it there is nothing to plan again, and
# where they miss it late the run may end before the new plan is there.
deviates() {
  if grep -qE '^\{"step":[1-5]?[0-9],.*"replan":\{"action":"started"' on/metrics.jsonl; then "${@:2}"; else echo "skipped: the prediction held"; fi
}
decided() { grep -qE '"replan":\{"action":"(kept|changed)"' "$1/metrics.jsonl"; }

check "a run that keeps its plan" "$LAZYTRAIN" train run.yaml output=off "${boaster[@]}" "${keys[@]}" plan.replan=false
check "it does not plan again" bash -c '! grep -q replan off/metrics.jsonl'
run "$LAZYTRAIN" train run.yaml output=on "${boaster[@]}" "${keys[@]}"
check "a run that may change it" test "$status" -eq 0
grep -E 'planning again|planned again' "$logs/err" || true
deviates on true
check "it decides when it plans again" deviates on decided on
check "with a line in the log" deviates on grep -qE 'step [0-9]+: planned again: the plan (stays|changes)' "$logs/err"
check "every step has one line of metrics" test "$(wc -l <on/metrics.jsonl)" -eq 80
check "with the prediction of its plan" grep -qE '^\{"step":80,.*"predicted":\{"step_s":[0-9.e-]+,"exposed_s":' on/metrics.jsonl
check "the result is the same, bit for bit" same_run off on
check "its measurements are those of this model" grep -q '"kind": "measurements"' on/measured.json

# From checkpoints on both sides of the decision.
for step in 20 60; do
  cp -r on "from-$step"
  rm -r "from-$step/model"
  for newer in "from-$step"/checkpoints/step-*; do
    if [[ ${newer##*step-} -gt $step ]]; then rm -r "$newer"; fi
  done
  check "going on from step $step" "$LAZYTRAIN" train run.yaml "output=from-$step" "${boaster[@]}" "${keys[@]}" --resume
  check "gives the same bits" same_run off "from-$step"
done

# A plan that the user names is not replaced, and the log says so once.
run "$LAZYTRAIN" train run.yaml output=named plan.policy=off/plan.json "${boaster[@]}" "${keys[@]}"
check "a plan that is named trains" test "$status" -eq 0
check "it stays, which is said" deviates named grep -q 'the plan stays, since plan.policy names it' "$logs/err"
check "and changes nothing" bash -c '! grep -q replan named/metrics.jsonl'
check "not a bit" same_run off named

finish
