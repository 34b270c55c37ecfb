#!/usr/bin/env python3
"""Write what transformers and torch give for rotary frequencies, learning-rate schedules and AdamW.

  python make_numbers.py SRC_FOLDER

Writes model/testdata/rope_inv_freq.json, optim/testdata/schedules.json, optim/testdata/adamw.safetensors and
optim/testdata/adamw.json below the folder. README.md beside this file says what each holds.
"""
import json
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.optimization import get_scheduler

STEPS, SIZE = 25, 48


def write_lines(path, head, key, items):
    """JSON with one item a line, so that a difference can be read."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write("{" + "".join(f"{json.dumps(k)}: {json.dumps(v)},\n" for k, v in head.items()))
        f.write(json.dumps(key) + ": [\n" + ",\n".join(json.dumps(item) for item in items) + "\n]}\n")


def rope_cases():
    def llama3(theta, factor, low, high, original):
        return {"rope_type": "llama3", "rope_theta": theta, "factor": factor, "low_freq_factor": low,
                "high_freq_factor": high, "original_max_position_embeddings": original}

    settings = [
        (64, {"rope_type": "default", "rope_theta": 1000000.0}),
        (12, {"rope_type": "default", "rope_theta": 10000.0}),
        (128, llama3(500000.0, 8.0, 1.0, 4.0, 8192)),
        (64, llama3(500000.0, 32.0, 1.0, 4.0, 8192)),
        (12, llama3(10000.0, 8.0, 1.0, 4.0, 64)),
        (32, llama3(10000.0, 2.0, 0.5, 2.0, 256)),
    ]
    for head_dim, rope in settings:
        config = LlamaConfig(hidden_size=2 * head_dim, num_attention_heads=2, head_dim=head_dim,
                             max_position_embeddings=131072, rope_parameters=rope)
        yield {"head_dim": head_dim, **rope, "inv_freq": LlamaRotaryEmbedding(config).inv_freq.tolist()}


def schedule_cases():
    for name in ("constant", "linear", "cosine"):
        for total in (20, 100):
            for warmup in (0, 10, 0.03, 0.25):
                steps = int(warmup) if warmup >= 1 else -(-total * round(warmup * 100) // 100)
                optimizer = torch.optim.SGD([torch.zeros(1)], lr=2e-5)
                kind = "constant_with_warmup" if name == "constant" else name
                scheduler = get_scheduler(kind, optimizer, num_warmup_steps=steps, num_training_steps=total)
                lrs = []
                for _ in range(total + 2):  # a little past the end as well
                    lrs.append(scheduler.get_last_lr()[0])
                    optimizer.step()
                    scheduler.step()
                yield {"schedule": name, "lr": 2e-5, "warmup": warmup, "warmup_steps": steps, "total_steps": total,
                       "lrs": lrs}


def weird_gradients(generator):
    """Per tensor [STEPS, SIZE]: `wide` spans 1e-30..1e30 (squares overflow), `sparse` holds zeros, negative zeros and
    denormals, `flips` changes sign every step at magnitudes that stay."""
    def uniform(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    sign = torch.where(uniform(STEPS, SIZE) < 0.5, -1.0, 1.0)
    top = torch.where(torch.arange(SIZE) < SIZE // 2, 18.0, 30.0).expand(STEPS, SIZE).clone()
    top[::2] = 1.0  # every other step is tame, so that clipping does not always wipe out the other tensors
    wide = sign * 10 ** (-30 + uniform(STEPS, SIZE) * (top + 30))
    kind = (uniform(STEPS, SIZE) * 6).long()
    choices = torch.stack([torch.zeros(STEPS, SIZE), -torch.zeros(STEPS, SIZE), sign * 1e-40, sign * 1.5e-45,
                           sign * 1e-3 * uniform(STEPS, SIZE), sign * 1e-20])
    sparse = choices.gather(0, kind[None])[0]
    sparse[:, :4] = 0.0
    flips = (-1.0) ** torch.arange(STEPS)[:, None] * 10 ** (-12 + 15 * uniform(1, SIZE).expand(STEPS, SIZE))
    return {"wide": wide.float(), "sparse": sparse.float(), "flips": flips.float()}


def adamw_run(start, gradients, lrs, weight_decay, clip):
    """Parameters after every step, the final moments, and the norms. The norm is taken in float64 and the factor
    applied in fp32, because the squares overflow fp32."""
    params = {n: torch.nn.Parameter(p.clone()) for n, p in start.items()}
    groups = [{"params": [p], "weight_decay": weight_decay if n != "sparse" else 0.0} for n, p in params.items()]
    optimizer = torch.optim.AdamW(groups, lr=lrs[0], betas=(0.9, 0.999), eps=1e-8, foreach=False)
    path, norms = {n: [] for n in params}, []
    for step in range(STEPS):
        norms.append(sum(g[step].double().square().sum() for g in gradients.values()).sqrt())
        factor = torch.tensor(min(1.0, clip / (norms[-1].item() + 1e-6)) if clip else 1.0, dtype=torch.float32)
        for group, (n, p) in zip(optimizer.param_groups, params.items()):
            group["lr"] = lrs[step]
            p.grad = gradients[n][step] * factor
        optimizer.step()
        for n, p in params.items():
            path[n].append(p.detach().clone())
    moments = {n: optimizer.state[p] for n, p in params.items()}
    return {n: torch.stack(p) for n, p in path.items()}, moments, torch.stack(norms)


def write_adamw(folder):
    generator = torch.Generator().manual_seed(7)
    gradients = weird_gradients(generator)
    start = {n: torch.randn(SIZE, generator=generator) * 10 ** (torch.rand(SIZE, generator=generator) * 6 - 4)
             for n in gradients}
    lrs = [1e-3 * (1 - 0.03 * step) for step in range(STEPS)]
    variants = [{"name": "plain", "weight_decay": 0.0, "clip": 0.0},
                {"name": "decay", "weight_decay": 0.1, "clip": 0.0},
                {"name": "decay_clip", "weight_decay": 0.1, "clip": 1.0}]
    tensors = {"lr": torch.tensor(lrs, dtype=torch.float64)}
    for n in gradients:
        tensors[f"gradient.{n}"], tensors[f"start.{n}"] = gradients[n], start[n]
    for v in variants:
        path, moments, tensors["grad_norm"] = adamw_run(start, gradients, lrs, v["weight_decay"], v["clip"])
        for n in gradients:
            tensors[f"{v['name']}.param.{n}"] = path[n]
            tensors[f"{v['name']}.exp_avg.{n}"] = moments[n]["exp_avg"]
            tensors[f"{v['name']}.exp_avg_sq.{n}"] = moments[n]["exp_avg_sq"]
    os.makedirs(folder, exist_ok=True)
    save_file(tensors, os.path.join(folder, "adamw.safetensors"))
    write_lines(os.path.join(folder, "adamw.json"),
                {"betas": [0.9, 0.999], "eps": 1e-8, "steps": STEPS, "tensors": list(gradients),
                 "decayed": ["wide", "flips"]}, "variants", variants)


def main(src):
    torch.set_num_threads(1)
    write_lines(os.path.join(src, "model/testdata/rope_inv_freq.json"), {}, "cases", rope_cases())
    write_lines(os.path.join(src, "optim/testdata/schedules.json"), {}, "cases", schedule_cases())
    write_adamw(os.path.join(src, "optim/testdata"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
