#!/usr/bin/env bash
# lazytrain version, the help texts, and how the program meets wrong usage and a reader that goes away.
source "$(dirname "$0")/lib.sh"
cd "$work"

expect "version" 0 "^lazytrain [0-9]+\.[0-9]+\.[0-9]+$" "$LAZYTRAIN" version
expect "version names libraries" 0 "^oneDNN: [0-9]" "$LAZYTRAIN" version
expect "version as an object" 0 '^\{"version":"[0-9.]+","compiler":".*"libraries":\{.*\}\}$' "$LAZYTRAIN" version --json
expect "--version is the same" 0 "^oneDNN: [0-9]" "$LAZYTRAIN" --version
expect "as an object too" 0 '^\{"version":' "$LAZYTRAIN" --version --json
expect "--help" 0 "Exit codes" "$LAZYTRAIN" --help
for command in train plan simulate profile eval generate tokenize chat-template new-model export report doctor version; do
  expect "$command --help" 0 "Usage: lazytrain $command" "$LAZYTRAIN" "$command" --help
  expect "$command refuses an unknown flag" 2 "^error: .*--no-such-flag" "$LAZYTRAIN" "$command" --no-such-flag
done
expect "train --help lists the keys" 0 "optimizer\.lr" "$LAZYTRAIN" train --help
expect "no command" 2 "^error: .*subcommand" "$LAZYTRAIN"
expect "an unknown command names the nearest" 2 "'tokenise'.*tokenize" "$LAZYTRAIN" tokenise
expect "a missing argument" 2 "^error: .*--model" "$LAZYTRAIN" tokenize --text a
expect "a number that is none" 2 "^error: .*batch" "$LAZYTRAIN" plan --model x --batch many --seq 1
expect "a number out of range" 2 "^error: .*batch" "$LAZYTRAIN" plan --model x --batch 0 --seq 1

run "$LAZYTRAIN" plan --no-such-flag
check "an error leaves standard output empty" test ! -s "$logs/out"
check "a closed standard output is no crash" bash -c "'$LAZYTRAIN' version >&-"
check "a reader that is gone is no crash" bash -c "set -o pipefail; '$LAZYTRAIN' doctor | true"
if [[ -c /dev/full ]]; then
  expect "a full device is an error" 1 "standard output" bash -c "'$LAZYTRAIN' version >/dev/full"
fi

finish
