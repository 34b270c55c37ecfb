#!/usr/bin/env python3
"""Check that transformers loads an exported folder and reads the same numbers from it; print a greedy continuation.

  python check_hf.py FOLDER [--prompt-ids 1,2,3] [--max-new-tokens 16]

Loads with AutoModelForCausalLM in fp32 and compares every tensor of the folder's safetensors files, bit for bit, with
the loaded parameter of its name. Prints one JSON object; exit 1 when something is missing, left over or different.
"""
import argparse
import glob
import json
import os
import sys

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM


def stored_tensors(folder):
    tensors = {}
    for path in sorted(glob.glob(os.path.join(folder, "model*.safetensors"))):
        with safe_open(path, framework="pt") as f:
            for name in f.keys():
                if name in tensors:
                    sys.exit(f"{path}: tensor {name} is in another file as well")
                tensors[name] = f.get_tensor(name)
    if not tensors:
        sys.exit(f"{folder}: no model*.safetensors file")
    return tensors


def compare(model, stored):
    """Problems as text: every stored tensor must be a parameter with these values, every parameter must be stored."""
    loaded = dict(model.state_dict())
    tied = model.config.get_text_config().tie_word_embeddings
    problems = []
    for name, tensor in stored.items():
        if name not in loaded:
            problems.append(f"{name}: the model has no such parameter")
        elif loaded[name].shape != tensor.shape:
            problems.append(f"{name}: shape {list(tensor.shape)}, the model has {list(loaded[name].shape)}")
        elif not torch.equal(loaded[name].view(torch.int32), tensor.float().view(torch.int32)):
            problems.append(f"{name}: values differ")
    problems += [f"{name}: not in the folder" for name in loaded
                 if name not in stored and not (tied and name == "lm_head.weight")]
    return problems


@torch.no_grad()
def greedy(model, prompt, steps):
    ids = list(prompt)
    for _ in range(steps):
        ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(prompt):]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--prompt-ids", default="", help="comma-separated token ids")
    parser.add_argument("--max-new-tokens", type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    stored = stored_tensors(args.folder)
    model = AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32, attn_implementation="eager").eval()
    problems = compare(model, stored)
    result = {"folder": args.folder, "model": type(model).__name__, "tensors": len(stored),
              "parameters": sum(p.numel() for p in model.parameters()),
              "dtypes": sorted({str(t.dtype).removeprefix("torch.") for t in stored.values()}), "problems": problems}
    if args.prompt_ids:
        prompt = [int(i) for i in args.prompt_ids.split(",")]
        result["greedy_ids"] = greedy(model, prompt, args.max_new_tokens)
    if os.path.exists(os.path.join(args.folder, "tokenizer.json")):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(args.folder)
        result["tokenizer"] = {"size": len(tokenizer), "eos": tokenizer.eos_token,
                               "chat_template": tokenizer.chat_template is not None}
        if "greedy_ids" in result:
            result["greedy_text"] = tokenizer.decode(result["greedy_ids"])
    print(json.dumps(result, ensure_ascii=False, indent=1))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
