#!/usr/bin/env bash
# What the documentation says of the code: rooms and their includes, links, commands, files it names.
source "$(dirname "$0")/lib.sh"
cd "$root"

# The room table of docs/architecture.md against every #include between rooms.
rooms_hold() {
  local wrong
  wrong=$(
    {
      sed -nE 's/^\| `([a-z]+)` \| ([a-z ]*) ?\|.*/room \1 \2/p' docs/architecture.md
      grep -rnoE '^#include "[a-z]+/' src --include='*.h' --include='*.cc' --include='*.cu' |
        sed -E 's@^src/([a-z]+)/([^:]*):([0-9]+):#include "([a-z]+)/@use \1 \4 src/\1/\2:\3@'
    } | awk '
      $1 == "room" { known[$2] = 1; for (i = 3; i <= NF; i++) allowed[$2, $i] = 1; rooms++ }
      $1 == "use" && $2 != $3 && $3 in known && !(($2, $3) in allowed) { print $4 " includes " $3 }
      $1 == "use" { uses++; if (!($2 in known)) print "room " $2 " is not in docs/architecture.md" }
      END { if (rooms < 10 || uses < 100) print "found " rooms " rooms and " uses " includes" }' | sort -u
  )
  [[ -z $wrong ]] || { echo "$wrong"; return 1; }
}
check "rooms include only what docs/architecture.md allows" rooms_hold

links_hold() {
  local file target bad=0
  for file in *.md docs/*.md; do
    while read -r target; do
      [[ $target == http* || $target == '#'* || -e $(dirname "$file")/${target%%#*} ]] ||
        { echo "$file: the link $target leads nowhere"; bad=1; }
    done < <(grep -oE '\]\([^)]+\)' "$file" | sed -E 's/^\]\(//; s/\)$//')
  done
  return "$bad"
}
check "links lead somewhere" links_hold

# Paths in back quotes that name a file of the repository. Words in capitals stand for a name, * for several.
files_exist() {
  local file path bad=0
  for file in README.md CONTRIBUTING.md docs/*.md; do
    while read -r path; do
      [[ $path =~ [A-Z]{3} && ! $path =~ \.md$ ]] && continue
      compgen -G "$path" >/dev/null || { echo "$file: there is no $path"; bad=1; }
    done < <(grep -oE '`(src|docs|tests|scripts|tools|bench|fuzz|demo|configs)/[^` ]+`' "$file" | tr -d '`')
  done
  return "$bad"
}
check "files that the documentation names exist" files_exist

commands_are_listed() {
  local listed
  listed=$(sed -nE 's/^\| `lazytrain ([a-z-]+).*/\1/p' README.md | sort)
  known=$("$LAZYTRAIN" --help | sed -nE '/^(SUBCOMMANDS|Subcommands):/,$s/^  ([a-z-]+) .*/\1/p' | sort)
  [[ -n $known ]] || { echo "--help lists no commands"; return 1; }
  diff <(echo "$listed") <(echo "$known")
}
check "README lists every command of the program" commands_are_listed

finish
