#!/usr/bin/env bash
# lazytrain chat-template: the bare text, and what a template raises.
source "$(dirname "$0")/lib.sh"
cd "$work"
tokenizer=$root/demo/tokenizer

render() { "$LAZYTRAIN" chat-template --model "$1" --messages "$2"; }

cat >messages.json <<'JSON'
{"messages": [{"role": "user", "content": "How many?"}], "add_generation_prompt": true}
JSON
run render "$tokenizer" messages.json
check "a conversation renders" test "$status" -eq 0
check "the question stands in it" grep -q "How many?" "$logs/out"
check "its end is the generation prompt" bash -c "[[ \$(tail -n 1 '$logs/out') == '<|im_start|>assistant' ]]"

cp -r "$tokenizer" own
own() { printf '%s' "$1" >own/chat_template.jinja; }
own 'x{{ messages[0].content }}'
printf 'xHow many?' >expected
check "nothing is added to the text" bash -c "'$LAZYTRAIN' chat-template --model own --messages messages.json | cmp - expected"
own '{{ name }}'
echo '{"messages": [], "name": "Zoë"}' >variable.json
expect "any other variable reaches the template" 0 '^Zoë$' render own variable.json
own '{{ raise_exception("no such role") }}'
expect "a raised error is exit 1 with its message" 1 "no such role" render own messages.json
expect "and with the template's name" 1 "own/chat_template.jinja.*no such role" render own messages.json
own 'x{{ messages[0].content }}'
expect "as an object" 0 '^\{"text":"xHow many\?"\}$' "$LAZYTRAIN" chat-template --model own --messages messages.json --json
own '{% for %}'
expect "a broken template" "1" "own/chat_template.jinja" render own messages.json

rm own/chat_template.jinja
echo '{"eos_token": "<|im_end|>"}' >own/tokenizer_config.json
expect "a folder without template" 2 "own: no chat template" render own messages.json
echo '[1]' >list.json
expect "a file that is no object" 1 "list.json.*messages" render "$tokenizer" list.json
echo '{"messages": [' >cut.json
expect "a file that ends early" 1 "cut.json.*line" render "$tokenizer" cut.json
expect "a file that is not there" 1 "nowhere.json" render "$tokenizer" nowhere.json

finish
