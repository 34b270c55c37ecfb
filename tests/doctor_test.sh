#!/usr/bin/env bash
# lazytrain doctor.
source "$(dirname "$0")/lib.sh"
cd "$work"

expect "it names cores" 0 "^threads +[1-9]" "$LAZYTRAIN" doctor
expect "it names the device" 0 "^devices +cpu$" "$LAZYTRAIN" doctor
expect "it names the CUDA card, or says why there is none" 0 "^CUDA card +(none: .+|.+ free; CUDA .+)$" "$LAZYTRAIN" doctor
expect "a plugin that is not there" 0 "^CUDA card +none: there is no /nowhere/plugin.so" \
  env LAZYTRAIN_CUDA_PLUGIN=/nowhere/plugin.so "$LAZYTRAIN" doctor
expect "it names oneDNN" 0 "^oneDNN +[0-9]+\.[0-9]+" "$LAZYTRAIN" doctor
expect "as an object" 0 '^\{"cpu":.*"threads":[1-9].*"memory_available":[1-9][0-9]+.*"disk_free":[0-9]+.*\}$' "$LAZYTRAIN" doctor --json
check "the object is one line" bash -c "[[ \$('$LAZYTRAIN' doctor --json 2>/dev/null | wc -l) -eq 1 ]]"
if command -v taskset >/dev/null; then
  expect "affinity counts" 0 '"threads":1,' taskset -c "$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')" "$LAZYTRAIN" doctor --json
fi

finish
