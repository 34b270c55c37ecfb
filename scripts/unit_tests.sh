#!/usr/bin/env bash
# Runs the unit tests of a preset that scripts/build.sh has built, and counts their cases. A skipped case is neither
# passed nor failed and is named with its reason; a program that dies counts as one failed case more.
#   scripts/unit_tests.sh [PRESET]
# The last line is "N passed, M failed"; exits 1 when M is not 0 or nothing ran.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/${1:-release}
results=$build/test-results
rm -rf "$results" "$build/Testing/Temporary/LastTestsFailed.log"
mkdir -p "$results"

GTEST_OUTPUT=xml:$PWD/$results/ ctest --test-dir "$build" --output-on-failure --timeout 600 -j "$(nproc)" || true

# The sum of an attribute over the lines of all result files that start with a tag.
sum_of() {
  local tag=$1 attribute=$2
  find "$results" -name '*.xml' -exec sed -n "s/^ *<$tag .*\b$attribute=\"\([0-9]*\)\".*/\1/p" {} + |
    awk '{ sum += $1 } END { print sum + 0 }'
}
cases=$(sum_of testsuites tests)
failed=$(sum_of testsuites failures)
errors=$(sum_of testsuites errors)
disabled=$(sum_of testsuites disabled)
skipped=$(sum_of testsuite skipped)
passed=$((cases - failed - errors - disabled - skipped))
failed=$((failed + errors))

# Programs that ctest saw fail although no case of theirs did: they crashed, leaked, ran too long or could not start.
if [[ -f $build/Testing/Temporary/LastTestsFailed.log ]]; then
  while IFS=: read -r _ name; do
    if ! grep -qsE '^<testsuites .*(failures|errors)="[1-9]' "$results/${name}_test.xml"; then
      echo "$name: the program failed outside of its cases"
      failed=$((failed + 1))
    fi
  done <"$build/Testing/Temporary/LastTestsFailed.log"
fi
if [[ $cases -eq 0 ]]; then
  echo "no test has run: build first (scripts/build.sh ${1:-release})"
  failed=$((failed + 1))
fi
if [[ $((skipped + disabled)) -gt 0 ]]; then
  echo "skipped or disabled: $((skipped + disabled))"
  find "$results" -name '*.xml' -exec sed -n 's/&#x0A;/ /g; s/^ *<skipped message="\([^"]*\)".*/  \1/p' {} + | sort | uniq -c
fi
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
