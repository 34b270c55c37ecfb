#!/usr/bin/env python3
"""Write tiny models with the losses, gradients and training curves that transformers and torch give for them.

  python make_models.py OUT_FOLDER [CASE ...]

Each case becomes a folder: config.json and model.safetensors (a real Hugging Face folder), batch.json, and what must
come out: expected.json and expected.safetensors. README.md beside this file says what each holds. Everything is
computed in fp32 on one thread, document by document; a float64 repetition measures the rounding noise.
"""
import copy
import json
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

VOCAB, LAYERS, STEPS, MAX_POSITIONS = 517, 2, 20, 32
OPTIMIZER = {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0}

COMMON = {"num_hidden_layers": LAYERS, "vocab_size": VOCAB, "hidden_act": "silu", "attention_dropout": 0.0,
          "initializer_range": 0.02, "bos_token_id": 1, "eos_token_id": 2}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": False,
         "max_position_embeddings": 512, **COMMON}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "mlp_bias": False,
         "max_position_embeddings": 512, **COMMON}

# rows: a list of rows, a row is a list of documents, a document is (tokens, leading tokens that are not counted).
CASES = {
    "qwen2_tied_mqa": {
        "config": {**QWEN2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 1,
                   "intermediate_size": 100, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
                   "rope_theta": 1000000.0, "rope_scaling": None, "torch_dtype": "bfloat16"},
        "rows": [[(1, 0)], [(257, 0)], [(33, 10)]], "seed": 11},
    "qwen2_untied_mha_packed": {
        "config": {**QWEN2, "hidden_size": 72, "num_attention_heads": 6, "num_key_value_heads": 6,
                   "intermediate_size": 104, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
                   "rope_theta": 10000.0, "torch_dtype": "bfloat16"},
        "rows": [[(17, 0), (5, 2), (1, 0), (40, 11)], [(64, 0)], [(3, 0), (60, 20)], [(2, 0), (2, 2), (9, 3)]],
        "seed": 12},
    "llama_tied_head_dim": {
        "config": {**LLAMA, "hidden_size": 72, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 32,
                   "intermediate_size": 100, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
                   "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0}, "dtype": "bfloat16"},
        "rows": [[(37, 4), (20, 0)], [(50, 25)]], "seed": 13},
    "llama_untied_llama3_rope": {
        "config": {**LLAMA, "hidden_size": 72, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 12,
                   "intermediate_size": 96, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
                   "rope_parameters": {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0,
                                       "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                       "original_max_position_embeddings": 64},
                   "dtype": "bfloat16"},
        "rows": [[(200, 0)], [(96, 30), (130, 0)]], "seed": 14},
    "qwen2_tied_gqa_uneven": {
        "config": {**QWEN2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
                   "intermediate_size": 100, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
                   "layer_types": ["full_attention"] * LAYERS,
                   "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0}, "dtype": "bfloat16"},
        "rows": [[(48, 45)], [(96, 5)], [(60, 50), (36, 34)], [(64, 20)]], "seed": 15},
}


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


def weights(config, generator):
    """bf16 tensors in which nothing is invisible: no norm weight is 1, no bias is 0."""
    hidden, inter, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    dim = config.get("head_dim", hidden // heads)
    q, kv = heads * dim, config["num_key_value_heads"] * dim
    tensors = {}

    def put(name, shape, std, mean=0.0):
        tensors[name] = (mean + std * torch.randn(shape, generator=generator)).to(torch.bfloat16)

    put("model.embed_tokens.weight", (VOCAB, hidden), 0.3)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        put(layer + "input_layernorm.weight", (hidden,), 0.2, 1.0)
        put(layer + "post_attention_layernorm.weight", (hidden,), 0.2, 1.0)
        for name, out in (("q", q), ("k", kv), ("v", kv)):
            put(f"{layer}self_attn.{name}_proj.weight", (out, hidden), 1.2 * hidden**-0.5)
            if config["model_type"] == "qwen2":
                put(f"{layer}self_attn.{name}_proj.bias", (out,), 0.4)
        put(layer + "self_attn.o_proj.weight", (hidden, q), q**-0.5)
        put(layer + "mlp.gate_proj.weight", (inter, hidden), hidden**-0.5)
        put(layer + "mlp.up_proj.weight", (inter, hidden), hidden**-0.5)
        put(layer + "mlp.down_proj.weight", (hidden, inter), inter**-0.5)
    put("model.norm.weight", (hidden,), 0.2, 1.0)
    if not config["tie_word_embeddings"]:
        put("lm_head.weight", (VOCAB, hidden), 0.2)
    return tensors


def make_batch(rows, generator):
    """Skewed random ids (so that ids repeat) and labels aligned with them; a document's first token is no target."""
    batch = []
    for row in rows:
        documents, labels = [], []
        for length, masked in row:
            ids = (torch.rand(length, generator=generator) ** 2 * VOCAB).long().tolist()
            counted = torch.rand(length, generator=generator) < 0.9  # holes inside the counted part as well
            documents.append(ids)
            labels.append([t if i >= max(masked, 1) and (counted[i] or i + 1 == length) else -100
                           for i, t in enumerate(ids)])
        batch.append({"documents": documents, "labels": labels})
    return batch


def count(batch):
    return sum(label != -100 for row in batch for labels in row["labels"] for label in labels)


def loss_of(model, batch, logits=None):
    """Sum over counted targets over their number in the whole batch; every document is a sequence of its own."""
    total = 0.0
    for row in batch:
        per_row = []
        for ids, labels in zip(row["documents"], row["labels"]):
            out = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
            per_row.append(out.detach())
            if len(ids) > 1:
                total = total + torch.nn.functional.cross_entropy(
                    out[:-1], torch.tensor(labels[1:]), ignore_index=-100, reduction="sum")
        if logits is not None:
            logits.append(torch.cat(per_row))
    return total / count(batch)


def chosen_positions(batch):
    """At most MAX_POSITIONS (row, token offset in the row): ends of documents first, then evenly spread ones."""
    ends, others = [], []
    for r, row in enumerate(batch):
        at = 0
        for ids in row["documents"]:
            ends += [(r, at), (r, at + len(ids) - 1)]
            others += [(r, at + i) for i in range(1, len(ids) - 1)]
            at += len(ids)
    ends = sorted(set(ends))
    room = MAX_POSITIONS - len(ends)
    others = [others[i * len(others) // room] for i in range(room)] if room > 0 else []
    return sorted(set(ends + others))[:MAX_POSITIONS]


def train(model, batch):
    """Losses and gradient norms of STEPS AdamW steps, and the first step's gradients."""
    decayed = [p for p in model.parameters() if p.dim() == 2]
    plain = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": OPTIMIZER["weight_decay"]}, {"params": plain, "weight_decay": 0.0}],
        lr=OPTIMIZER["lr"], betas=OPTIMIZER["betas"], eps=OPTIMIZER["eps"], foreach=False)
    losses, norms, first = [], [], {}
    for step in range(STEPS):
        loss = loss_of(model, batch)
        loss.backward()
        if step == 0:
            first = {name: p.grad.clone() for name, p in model.named_parameters()}
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip"], foreach=False)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        norms.append(norm.item())
    return losses, norms, first


def make_case(name, out):
    case = CASES[name]
    generator = torch.Generator().manual_seed(case["seed"])
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    write_json(os.path.join(folder, "config.json"), case["config"])
    save_file(weights(case["config"], generator), os.path.join(folder, "model.safetensors"), {"format": "pt"})
    batch = make_batch(case["rows"], generator)
    with open(os.path.join(folder, "batch.json"), "w", encoding="utf-8") as f:
        f.write('{"rows": [\n' + ",\n".join(json.dumps(row) for row in batch) + "\n]}\n")

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").train()
    exact = copy.deepcopy(model).double()
    logits = []
    loss_of(model, batch, logits)
    positions = chosen_positions(batch)
    losses, norms, gradients = train(model, batch)
    exact_losses, exact_norms, exact_gradients = train(exact, batch)
    noise = {
        "losses_max_abs": max(abs(a - b) for a, b in zip(losses, exact_losses)),
        "grad_norms_max_rel": max(abs(a - b) / b for a, b in zip(norms, exact_norms)),
        "gradient_max_rel_rms": max(float((gradients[n].double() - g).norm() / g.norm())
                                    for n, g in exact_gradients.items()),
    }
    save_file({**gradients, "logits": torch.stack([logits[r][i] for r, i in positions]),
               "positions": torch.tensor(positions)}, os.path.join(folder, "expected.safetensors"))
    final = {n: {"sum": p.detach().double().sum().item(), "sum_squares": p.detach().double().square().sum().item()}
             for n, p in model.named_parameters()}
    write_json(os.path.join(folder, "expected.json"), {
        "counted_tokens": count(batch), "loss": losses[0], "grad_norm": norms[0], "losses": losses,
        "grad_norms": norms, "final_parameters": final, "fp32_noise": noise,
        "settings": {**OPTIMIZER, "optimizer": "adamw", "schedule": "constant", "steps": STEPS, "compute": "fp32",
                     "weight_decay_on": "2-D weights only, embedding included",
                     "clip_factor": "min(1, clip / (norm + 1e-6))"}})
    print(f"{name}: {count(batch)} counted, loss {losses[0]:.4f} -> {losses[-1]:.4f}, "
          f"norm {norms[0]:.3f} -> {norms[-1]:.3f} (least {min(norms):.3f}), noise {noise}", file=sys.stderr)


def main(out, names):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in names or CASES:
        make_case(name, out)


if __name__ == "__main__":
    if len(sys.argv) < 2 or any(name not in CASES for name in sys.argv[2:]):
        sys.exit(__doc__ + "\nCases: " + ", ".join(CASES))
    main(sys.argv[1], sys.argv[2:])
