#!/bin/sh
# Prints word problems with one step of arithmetic as JSON lines {"question", "answer"}.
#
#   demo/make_problems.sh SEED COUNT [train|test] [LARGEST]
#
# The same arguments give the same bytes with every POSIX awk. A pair of operands, whatever its order, its operation and
# the words around it, belongs either to train or to test, so no held-out sum was ever seen in training.
set -eu
usage() {
  echo "usage: $0 SEED COUNT [train|test] [LARGEST number in a question, 5..999, default 50]" >&2
  exit 2
}
[ $# -ge 2 ] && [ $# -le 4 ] || usage
split=${3:-train}
largest=${4:-50}
for number in "$1" "$2" "$largest"; do
  case $number in '' | *[!0-9]* | ??????????*) usage ;; esac
done
case $split in train | test) ;; *) usage ;; esac
[ "$largest" -ge 5 ] && [ "$largest" -le 999 ] || usage

LC_ALL=C exec awk -v seed="$1" -v count="$2" -v split_name="$split" -v largest="$largest" '
  # Lehmer generator: products stay below 2^53, so every awk computes them exactly.
  function below(n) { state = (state * 48271) % 2147483647; return int(state / 2147483647 * n) }
  function pick(list, n) { return list[1 + below(n)] }
  function held_out(a, b,   low, high) {
    low = a < b ? a : b
    high = a < b ? b : a
    return (low * 7919 + high * 104729 + low * high * 31) % 1009 % 5 == 0
  }
  function problem(kind,   who, other, thing, place) {
    who = pick(names, name_count)
    do other = pick(names, name_count); while (other == who)
    thing = pick(things, thing_count)
    place = pick(places, place_count)
    if (kind == 0) return who " has " a " " thing " and gets " b " more. How many " thing " does " who " have now?"
    if (kind == 3) return who " has " a " " thing " and gives " b " to " other \
                          ". How many " thing " does " who " have left?"
    if (kind == 4) return "There are " a " " thing " in the " place ". " who " takes " b \
                          ". How many " thing " are left?"
    if (kind == 2) return "There are " a " " thing " in the " place ". " who " adds " b \
                          ". How many " thing " are in the " place " now?"
    return who " has " a " " thing " and " other " has " b ". How many " \
           (kind == 1 ? thing " do they have together?" : "more " thing " does " who " have than " other "?")
  }
  function answer(work, tens, result) {
    return work ", tens " tens ".\\nThe answer is: " result "\\n#### " result
  }
  function added(a, b,   ones, carry, tens) {
    ones = a % 10 + b % 10
    carry = ones >= 10 ? 1 : 0
    tens = int(a / 10) " + " int(b / 10) " + " carry " = " int(a / 10) + int(b / 10) + carry
    return answer(a " + " b ": ones " a % 10 " + " b % 10 " = " ones, tens, a + b)
  }
  function subtracted(a, b,   top, borrow, tens) {
    borrow = a % 10 < b % 10 ? 1 : 0
    top = a % 10 + 10 * borrow
    tens = int(a / 10) " - " int(b / 10) " - " borrow " = " int(a / 10) - int(b / 10) - borrow
    return answer(a " - " b ": ones " top " - " b % 10 " = " top - b % 10, tens, a - b)
  }
  BEGIN {
    name_count = split("Anna Ben Carla David Emma Felix Greta Hugo Ida Jonas Karin Leo", names, " ")
    thing_count = split("apples books cards coins eggs flowers pencils shells stamps toys", things, " ")
    place_count = split("bag box drawer room", places, " ")
    state = (seed * 7 + (split_name == "test" ? 3 : 1)) % 2147483646 + 1
    for (i = 0; i < 10; i++) below(2)
    while (made < count) {
      kind = below(6)
      a = 1 + below(largest)
      b = 1 + below(largest)
      if (a == b || held_out(a, b) != (split_name == "test")) continue
      if (kind >= 3 && a < b) { swap = a; a = b; b = swap }
      printf "{\"question\": \"%s\", \"answer\": \"%s\"}\n", problem(kind), (kind < 3 ? added(a, b) : subtracted(a, b))
      made++
    }
  }'
