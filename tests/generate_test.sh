#!/usr/bin/env bash
# `lazytrain generate`: greedy and sampled text, repeatable, with and without the chat template.
source "$(dirname "$0")/lib.sh"
cd "$work"

new_model model
"$root/demo/make_problems.sh" 1 8 train >train.jsonl
write_config run.yaml
check "a model that learns 8 problems by heart" "$LAZYTRAIN" train run.yaml data.pack=false seq=128 batch=8 steps=150 optimizer.lr=0.004
question=$(sed -nE '1s/^\{"question": "(.*)", "answer": .*/\1/p' train.jsonl)
answer=$(sed -nE '1s/.*"answer": "(.*)"\}$/\1/p' train.jsonl)

generate() { "$LAZYTRAIN" generate --model "$@"; }

learnt() {
  local got
  got=$(generate run/model --chat "$question" "$@") || return 1
  [[ $got == "$(printf '%b' "$answer")" ]] || { echo "expected: $answer, got: $got"; return 1; }
}
check "--chat prints what was learnt and stops at the end of the turn" learnt
check "in fp32 too" learnt --compute fp32
check "--prompt goes on with the text as it is" bash -c "[[ \$('$LAZYTRAIN' generate --model run/model --max-new-tokens 64 \
  --prompt \$'<|im_start|>user\n'\"$question\"\$'<|im_end|>\n<|im_start|>assistant\n') == \"\$(printf '%b' '$answer')\" ]]"
check "greedy text is the same twice" bash -c "cmp <('$LAZYTRAIN' generate --model model --prompt Anna --max-new-tokens 12) \
  <('$LAZYTRAIN' generate --model model --prompt Anna --max-new-tokens 12 --temperature 0 --seed 9)"
check "a seed repeats a sample" bash -c "cmp <('$LAZYTRAIN' generate --model model --prompt Anna --max-new-tokens 12 --temperature 1 --seed 3) \
  <('$LAZYTRAIN' generate --model model --prompt Anna --max-new-tokens 12 --temperature 1 --seed 3)"
check "another seed gives another" bash -c "! cmp -s <('$LAZYTRAIN' generate --model model --prompt Anna --max-new-tokens 12 --temperature 1 --seed 3) \
  <('$LAZYTRAIN' generate --model model --prompt Anna --max-new-tokens 12 --temperature 1 --seed 4)"

tokens_of() {
  local text
  text=$(generate run/model --chat "$question" --max-new-tokens 3) || return 1
  [[ $("$LAZYTRAIN" tokenize --model model --text "$text" | tr ',' '\n' | wc -l) -le 3 && -n $text ]] || { echo "got: $text"; return 1; }
}
check "--max-new-tokens 3 ends after 3" tokens_of
expect "neither --prompt nor --chat is wrong usage" 2 "prompt" generate model
expect "both are wrong usage" 2 "chat" generate model --prompt a --chat b
expect "a negative temperature is refused" 2 "temperature" generate model --prompt a --temperature -1
expect "a prompt longer than the model's positions is refused" 2 "position" generate model --prompt "$(printf 'a b %.0s' {1..600})"
expect "a model that is not there is named" 2 "no_model" generate no_model --prompt a

run generate run/model --chat "$question" --json
check "--json prints one object and nothing else" bash -c "[[ \$(wc -l <'$logs/out') -eq 1 ]] &&
  grep -qE '^\{\"text\":\".*\",\"tokens\":[0-9]+,\"ids\":\[[0-9,]+\],\"stopped_by\":\"end\"\}\$' '$logs/out'"
for seed in -1 18446744073709551616 1.5; do
  expect "a seed that is no whole number from 0 on: $seed" 2 "seed" generate model --prompt a --seed "$seed"
done
expect "a number of tokens below 1" 2 "max-new-tokens" generate model --prompt a --max-new-tokens -1

cp -r model broken
printf '\300\177' | dd of=broken/model.safetensors bs=1 seek=$(($(stat -c %s broken/model.safetensors) - 2)) conv=notrunc status=none
expect "a weight that is NaN names file and tensor" 1 "broken/model.safetensors: tensor 'model.norm.weight': 1 of its 128" \
  generate broken --prompt Anna --max-new-tokens 2
cp -r model raising
echo '{{ raise_exception("no such role") }}' >raising/chat_template.jinja
expect "what a template raises names the template" 1 "raising/chat_template.jinja.*no such role" generate raising --chat hello

finish
