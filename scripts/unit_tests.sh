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

# The sum of what a sed script finds over the result files: in line 2 the totals of a program, then a line a suite.
sum_of() {
  find "$results" -name '*.xml' -exec sed -s -n "$1" {} + | awk '{ sum += $1 } END { print sum + 0 }'
}
total_of() { sum_of "2s/^<testsuites .*\b$1=\"\([0-9]*\)\".*/\1/p"; }
cases=$(total_of tests)
failed=$(total_of failures)
errors=$(total_of errors)
disabled=$(total_of disabled)
skipped=$(sum_of 's/^  <testsuite name="[^"]*" .*\bskipped="\([0-9]*\)".*/\1/p')
passed=$((cases - failed - errors - disabled - skipped))
failed=$((failed + errors))

# Programs that ctest saw fail although no case of theirs did: they crashed, leaked, ran too long or could not start.
if [[ -f $build/Testing/Temporary/LastTestsFailed.log ]]; then
  while IFS=: read -r _ name; do
    if ! sed -n 2p "$results/${name}_test.xml" 2>/dev/null | grep -qE '\b(failures|errors)="[1-9]'; then
      echo "failed: $name: the program failed outside of its cases"
      failed=$((failed + 1))
    fi
  done <"$build/Testing/Temporary/LastTestsFailed.log"
fi
# The failed cases by name, last, where a long log is read first.
find "$results" -name '*.xml' -exec awk '
  match($0, /<testcase name="[^"]*"/) { name = substr($0, RSTART + 16, RLENGTH - 17) }
  match($0, /classname="[^"]*"/) { name = substr($0, RSTART + 11, RLENGTH - 12) "." name }
  match($0, /<failure message="[^"]*"/) { print "failed: " name ": " substr($0, RSTART + 18, RLENGTH - 19) }' {} + |
  sed 's/&#x0A;/ | /g; s/&lt;/</g; s/&gt;/>/g; s/&quot;/"/g; s/&apos;/'"'"'/g; s/&amp;/\&/g' | cut -c 1-600
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
