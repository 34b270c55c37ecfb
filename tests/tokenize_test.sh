#!/usr/bin/env bash
# lazytrain tokenize: ids of texts and files, and back.
source "$(dirname "$0")/lib.sh"
cd "$work"
tokenizer=$root/demo/tokenizer

tokenize() { "$LAZYTRAIN" tokenize --model "$tokenizer" "$@"; }
# round_trip TEXT: decoding the ids of a text gives the text.
round_trip() { [[ $(tokenize --decode "$(tokenize --text "$1")") == "$1" ]]; }

expect "ids as an object" 0 '^\{"ids":\[[0-9]+(,[0-9]+)*\]\}$' tokenize --text "Anna has 3 apples" --json
expect "ids for a person" 0 '^[0-9]+(,[0-9]+)*$' tokenize --text "Anna has 3 apples"
expect "an empty text" 0 '^\{"ids":\[\]\}$' tokenize --text "" --json
expect "an empty list" 0 '^\{"text":""\}$' tokenize --decode "" --json
check "a text comes back" round_trip "Anna has 3 apples. 7 more?"
check "other scripts come back" round_trip "Größe 模型 🙂"
check "a text that looks like an option" round_trip "--model"
expect "a special token is one id" 0 '^\{"ids":\[1\]\}$' tokenize --text "<|im_start|>" --json
expect "or plain text" 0 '^\{"ids":\[[0-9]+,[0-9]+.*\]\}$' tokenize --text "<|im_start|>" --no-special --json
expect "decoding names special tokens" 0 '^\{"text":"<\|im_start\|>"\}$' tokenize --decode 1 --json
expect "or leaves them out" 0 '^\{"text":""\}$' tokenize --decode 1 --no-special --json

printf 'two\r\nlines\n\n' >file
expect "a file is taken byte for byte" 0 '^\{"text":"two\\r\\nlines\\n\\n"\}$' tokenize --decode "$(tokenize --file file)" --json
printf 'a\0b' >zero
expect "a zero byte too" 0 '^\{"text":"a\\u0000b"\}$' tokenize --decode "$(tokenize --file zero)" --json
printf 'a\377b' >broken
expect "malformed UTF-8 is U+FFFD" 0 $'^\{"text":"a\xef\xbf\xbdb"\}$' tokenize --decode "$(tokenize --file broken)" --json

expect "a folder with tokenizer files alone" 0 '^[0-9]' tokenize --text a
expect "no text" 2 "exactly one of" tokenize
expect "two texts" 2 "exactly one of" tokenize --text a --decode 1
for list in "1,,2" "1,2," "a" "-1" "99999999999" "1 2"; do
  expect "a broken list: '$list'" 2 "^error: --decode" tokenize --decode "$list"
done
expect "a file that is not there" 1 "nowhere" tokenize --file nowhere
expect "a folder that is not there" 2 "nowhere" "$LAZYTRAIN" tokenize --model nowhere --text a

expect "an id that no token has names it and the vocabulary" 2 "id 444: the vocabulary has 444 ids, from 0 to 443" tokenize --decode 1,444
for id in 2147483647 2147483648 4294967296 99999999999999999999; do
  expect "an id far outside: $id" 2 "^error: --decode: no token has the id $id: the vocabulary has 444" tokenize --decode "$id"
done

finish
