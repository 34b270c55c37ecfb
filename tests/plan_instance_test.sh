#!/usr/bin/env bash
# lazytrain plan --instance: a planning problem from a file, its solvers, its answers and its refusals.
source "$(dirname "$0")/lib.sh"
cd "$work"
instance=$root/src/plan/mip/testdata/small.json
solve() { "$LAZYTRAIN" plan --instance "$instance" "$@"; }
step_of() { "$LAZYTRAIN" plan --json --instance "$@" 2>/dev/null | grep -oE '^\{"status":"[a-z_]+","step_s":[0-9.e-]+' | grep -oE '[0-9.e-]+$'; }
# near A B: equal within the instance's gap.
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d <= 0.002 * b) }'; }
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && a <= b) }'; }

answer='^\{"status":"(optimal|feasible|time_limit)","step_s":[0-9.e-]+,"bound_s":[0-9.e-]+,"gap":[0-9.e-]+,"solver":"[a-z]+","solve_s":[0-9.e-]+,"plan":\{"step_s".*\}\}$'
expect "in words" 0 "^step_s [0-9.]+, no plan is below [0-9.]+" solve
expect "a map" 0 "^boundaries: [DHN.]+ " solve
expect "an object" 0 "$answer" solve --json
expect "the greedy rule" 0 '"solver":"greedy"' solve --json --solver greedy
expect "no time at all" 0 "$answer" solve --json --time-limit 0

reference=$(step_of "$instance" --gap 0)
if [[ $(solve --json) == *'"solver":"highs"'* ]]; then
  check "the gap is kept" near "$(step_of "$instance" --solver highs)" "$reference"
  check "the greedy plan is no better than the best" at_most "$reference" "$(step_of "$instance" --solver greedy)"
  if solve --solver scip >"$logs/scip" 2>&1; then
    check "SCIP agrees" near "$(step_of "$instance" --solver scip)" "$reference"
  else
    echo "skipped: $(tail -n 1 "$logs/scip")"
  fi
else
  expect "HiGHS by name, in a build without it" 2 "without HiGHS" solve --solver highs
fi
expect "SCIP where there is none" 2 "SCIP is not installed.*LAZYTRAIN_SCIP" env LAZYTRAIN_SCIP="$work" \
  "$LAZYTRAIN" plan --instance "$instance" --solver scip
expect "the program as MPS" 0 "" solve --mps program.mps
check "it has rows" grep -q '^ROWS' program.mps
check "and ends" grep -q '^ENDATA' program.mps
expect "an MPS file that cannot be written" 1 "/dev/null/x" solve --mps /dev/null/x

sed 's/"device": [0-9.]*/"device": 0.001/' "$instance" >tight.json
expect "what fits nowhere" 3 "^error: device: [0-9.]+ GB needed, 0.001 allowed, [0-9.]+ GB short" "$LAZYTRAIN" plan --instance tight.json
run "$LAZYTRAIN" plan --instance tight.json --json
check "an infeasible instance leaves standard output empty" test ! -s "$logs/out"
sed '/"forward_s"/{n;d}' "$instance" >short.json
expect "a unit too few" 1 "short.json.*\"forward_s\" has" "$LAZYTRAIN" plan --instance short.json
sed 's/"h2d": [0-9.]*/"h2d": 0/' "$instance" >still.json
expect "a link that stands still" 1 "still.json.*links_gbs.h2d" "$LAZYTRAIN" plan --instance still.json
sed 's/"max_block"/"maximal_block"/' "$instance" >unnamed.json
expect "a key that is missing" 1 "unnamed.json.*max_block" "$LAZYTRAIN" plan --instance unnamed.json
expect "no such file" 1 "nowhere.json" "$LAZYTRAIN" plan --instance nowhere.json

paper=$root/src/plan/mip/testdata/paper_27b.json
expect "the published formulation" 0 "30 device, 21 host, 1 disk, 13 recomputed" "$LAZYTRAIN" plan --instance "$paper"
if [[ $(solve --json) == *'"solver":"highs"'* ]]; then
  expect "its published objective" 0 '^\{"status":"optimal","objective":182\.00152' "$LAZYTRAIN" plan --instance "$paper" --json
  sed '/"gap"/q' "$paper" | sed 's/"gap": 0,/"gap": 0}/' >free.json
  expect "not restricted, nothing is recomputed" 0 "objective 0.014650" "$LAZYTRAIN" plan --instance free.json
fi
sed 's/"max_block": 4/"max_block": 3/' "$paper" >short_blocks.json
expect "a restriction with too long a block" 1 "short_blocks.json.*leaves 4 layers between 16 and 20" \
  "$LAZYTRAIN" plan --instance short_blocks.json
sed 's/"device": 23[0-9.]*/"device": 1/' "$paper" >small_device.json
expect "published capacities that hold nothing" 3 "small_device.json: no checkpoints" "$LAZYTRAIN" plan --instance small_device.json

expect "a misspelled solver" 2 "'hihgs'.*did you mean 'highs'" solve --solver hihgs
for value in -1 1 nan; do expect "a gap of $value" 2 "^error: --gap" solve --gap "$value"; done
for value in -1 nan; do expect "a time limit of $value" 2 "^error: --time-limit" solve --time-limit "$value"; done
expect "a model beside it" 2 "^error: --instance: --model" solve --model "$root/demo/config.json"
expect "a budget beside it" 2 "^error: --instance: --device-memory" solve --device-memory 8GB
finish
