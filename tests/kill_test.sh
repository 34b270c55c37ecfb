#!/usr/bin/env bash
# kill -9 at 20 random instants of a run that saves after every step: each time the newest complete checkpoint loads, and
# the run that was killed and resumed again and again ends with the bits of the one that was not.
# SEED in the environment repeats a test's instants; KILLS and KEYS are for tests that kill other runs in this way.
source "$(dirname "$0")/lib.sh"
cd "$work"

readonly kills=${KILLS:-20}
readonly steps=40
seed=${SEED:-$RANDOM}
RANDOM=$seed
echo "seed $seed"

new_model model
"$root/demo/make_problems.sh" 1 50 train >train.jsonl
write_config run.yaml
mkdir disk
read -ra keys <<<"steps=$steps save.every=1 ${KEYS:-}"
check "the uninterrupted run" "$LAZYTRAIN" train run.yaml output=whole "${keys[@]}"

# Waits until the run has written or rotated something more, or for a random time from its start, then a random time.
wait_a_while() {
  local pid=$1 before=$2 waited=0
  if [[ $((RANDOM % 4)) -ne 0 ]]; then
    while [[ $(newest_complete run) -le $before && $waited -lt 3000 ]] && kill -0 "$pid" 2>/dev/null; do
      sleep 0.01
      waited=$((waited + 1))
    done
  fi
  sleep "$(printf '0.%03d' $((RANDOM % 250)))"
}

killed=0
finished=0
rm -rf run
while [[ $killed -lt $kills ]]; do
  before=$(newest_complete run)
  "$LAZYTRAIN" train run.yaml output=run "${keys[@]}" --resume 2>run.log &
  pid=$!
  wait_a_while "$pid" "$before"
  kill -9 "$pid" 2>/dev/null || true
  status=0
  wait "$pid" 2>/dev/null || status=$?
  if [[ $status -eq 137 ]]; then
    killed=$((killed + 1))
    newest=$(newest_complete run)
    [[ $newest -ge $before ]] || not_ok "kill $killed" "the newest complete checkpoint went from step $before back to $newest"
    if [[ $newest -gt 0 ]]; then
      rm -rf loaded
      check "kill $killed: the checkpoint of step $newest loads" "$LAZYTRAIN" export run loaded
    else
      ok "kill $killed: came before the first checkpoint"
    fi
  elif [[ $status -eq 0 ]]; then
    finished=$((finished + 1))
    check "the killed run number $finished equals the uninterrupted one bit for bit" same_run whole run
    rm -rf run
  else
    not_ok "resuming" "exit code $status: $(tail -n 2 run.log)"
    break
  fi
done
check "the rest of the run" "$LAZYTRAIN" train run.yaml output=run "${keys[@]}" --resume
check "it equals the uninterrupted one bit for bit" same_run whole run
check "only complete checkpoints are left, as many as save.keep" bash -c \
  "[[ \$(ls run/checkpoints | tr '\n' ' ') == 'step-39 step-40 ' ]]"
check "and nothing on the disk of the tier" test -z "$(ls disk)"

finish
