#!/usr/bin/env bash
# lazytrain report: a page of a plan and of a run, and the trace of a run.
source "$(dirname "$0")/lib.sh"
cd "$work"

"$LAZYTRAIN" plan --model "$root/demo/config.json" --batch 4 --seq 64 --out plan.json >/dev/null 2>&1
expect "a page of a plan" 0 "^plan.html$" "$LAZYTRAIN" report plan.json
check "it has lanes, memory and placement" bash -c "grep -q 'Lanes: predicted step' plan.html &&
  grep -q 'Memory over time' plan.html && grep -q 'class=\"tiles\"' plan.html"
check "it asks nobody for anything" bash -c "! grep -qE 'https?:|src=|@import|url\(' plan.html"

new_model model
"$root/demo/make_problems.sh" 1 20 train >train.jsonl
write_config run.yaml
check "a run" "$LAZYTRAIN" train run.yaml
expect "a page of a run" 0 "^run/report.html$" "$LAZYTRAIN" report run
check "it shows the loss" bash -c "grep -q '<h2>loss</h2>' run/report.html && grep -q '<h2>grad_norm</h2>' run/report.html"
check "and the measured step" grep -q "last step, measured" run/report.html
expect "a run's plan can be simulated" 0 "^predicted:" "$LAZYTRAIN" simulate --plan run/plan.json
expect "and run again" 0 "model: again/model" "$LAZYTRAIN" train run.yaml output=again plan.policy=run/plan.json
check "with the same numbers" same_run run again
expect "another name" 0 "^page.html$" "$LAZYTRAIN" report run -o page.html
rm run/trace.json
expect "a run without trace" 0 "report.html" "$LAZYTRAIN" report run
check "says so" grep -q "no trace.json" run/report.html
printf '{"step":7,"lo' >>run/metrics.jsonl
expect "a metrics line that a kill cut short" 0 "report.html" "$LAZYTRAIN" report run
printf 'ss"\n' >>run/metrics.jsonl
expect "a broken metrics line is named" 1 "metrics.jsonl: line 7" "$LAZYTRAIN" report run
expect "a folder that is no run" 2 "^error: model: no plan.json" "$LAZYTRAIN" report model
expect "nothing there" 2 "^error: nowhere" "$LAZYTRAIN" report nowhere

expect "as an object" 0 '^\{"file":"plan.html"\}$' "$LAZYTRAIN" report plan.json --json

finish
