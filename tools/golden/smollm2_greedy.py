#!/usr/bin/env python3
"""Write transformers' greedy completions of 20 chat prompts as JSON.

  python smollm2_greedy.py MODEL_FOLDER OUT.json

The folder is SmolLM2-135M-Instruct in Hugging Face form (config, bf16 safetensors, tokenizer, chat template).
Everything is computed in fp32. `min_gap` is the least distance between the two greatest logits over the generated
tokens: an implementation whose logits differ by less than half of it must produce the same ids.
"""
import hashlib
import json
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

NEW_TOKENS = 64
PROMPTS = [
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "How many legs does a spider have?",
    "Explain in two sentences why the sky is blue.",
    "Translate to French: Good morning, my friend.",
    "List three fruits that are red.",
    "What is 12 + 30?",
    "Tom has 5 apples and buys 7 more. How many apples does he have?",
    "Write a Python function that adds two numbers.",
    "Who wrote Romeo and Juliet?",
    "Give me a short recipe for pancakes.",
    "What does the word \"gravity\" mean?",
    "Name the largest planet of the solar system.",
    "Rewrite more politely: Give me the report now!",
    "Wie heißt die Hauptstadt von Deutschland?",
    "日本の首都はどこですか?",
    "Is the number 17 prime? Answer yes or no.",
    "Write a haiku about winter \u2744\ufe0f.",
    "  Leading spaces and\n\na blank line: what is this?",
    "1234567 and 89 are numbers. Which one is greater?",
]
SYSTEM = {3: "You answer like a pirate.", 11: "Be brief."}


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


@torch.no_grad()
def complete(model, tokenizer, messages):
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
    ids, gaps, cache = [], [], None
    feed = torch.tensor([prompt])
    while len(ids) < NEW_TOKENS:
        out = model(feed, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = out.past_key_values
        top = out.logits[0, -1].topk(2)
        gaps.append(float(top.values[0] - top.values[1]))
        ids.append(int(out.logits[0, -1].argmax()))
        if ids[-1] == model.config.eos_token_id:
            break
        feed = torch.tensor([[ids[-1]]])
    return {"messages": messages, "prompt_text": text, "prompt_ids": prompt, "ids": ids,
            "text": tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False),
            "ended": ids[-1] == model.config.eos_token_id, "min_gap": round(min(gaps), 6)}


def main(folder, out):
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    cases = []
    for i, prompt in enumerate(PROMPTS):
        messages = [{"role": "system", "content": SYSTEM[i]}] if i in SYSTEM else []
        cases.append(complete(model, tokenizer, messages + [{"role": "user", "content": prompt}]))
        print(f"{i}: min_gap {cases[-1]['min_gap']:.4f} {cases[-1]['text'][:70]!r}", file=sys.stderr)
    weights = os.path.join(folder, "model.safetensors")
    result = {"model_sha256": sha256(weights), "max_new_tokens": NEW_TOKENS, "compute": "fp32", "cases": cases}
    with open(out, "w", encoding="utf-8") as f:
        json.dump(result, f, ensure_ascii=False, indent=1)
        f.write("\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
