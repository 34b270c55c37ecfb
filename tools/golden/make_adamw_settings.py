#!/usr/bin/env python3
"""Write what torch.optim.AdamW makes of adversarial gradients over a thousand steps, for settings that people use.

  python make_adamw_settings.py SRC_FOLDER

Writes optim/testdata/adamw_settings.json below the folder: for each setting, the bits of the 32 parameters after the
steps named, and of both moments after the last. Gradients are not stored: gradient_bits gives them, here and in
src/optim/adamw_torch_test.cc.

torch takes roots from a library that rounds them correctly on some CPUs and not on others; the roots here are numpy's,
which are correct everywhere.
"""
import json
import os
import struct
import sys

import numpy
import torch

SIZE, STEPS, SHOWN = 32, 1000, [1, 2, 10, 100, 1000]
MASK = 0xffffffff


def gradient_bits(i, step):
    """fp32 bits of parameter i's gradient in step `step` (from 1), by i modulo 8: 1e-30 to 1e30; the same size with a
    sign that flips; 1e-15 to 1e15; denormals and zeros; 1e-30 to 1e-20; squares near the end of fp32; ordinary; zeros
    with rare spikes of 1e10."""
    x = (i * 0x9e3779b1 + step * 0x85ebca6b) & MASK
    x = ((x ^ (x >> 15)) * 0x2c1b3c6d) & MASK
    x = ((x ^ (x >> 12)) * 0x297a2d39) & MASK
    x ^= x >> 15
    mantissa, sign, spread = x & 0x7fffff, (x >> 23) & 1, x >> 24  # spread: 0 to 255
    kind = i % 8
    if kind == 1:
        return (step % 2) << 31 | 117 << 23 | 0x123456
    if kind == 3:
        return 0 if spread < 64 else sign << 31 | mantissa
    if kind == 7 and spread != 0:
        return sign << 31
    low, span = [(27, 200), (0, 0), (77, 100), (0, 0), (27, 34), (188, 3), (110, 14), (160, 1)][kind]
    return sign << 31 | (low + spread * span // 256) << 23 | mantissa


def floats(bits):
    return torch.tensor([struct.unpack("<f", struct.pack("<I", b))[0] for b in bits])


def bits(tensor):
    return [v & MASK for v in tensor.detach().view(torch.int32).tolist()]


def run(setting):
    param = torch.nn.Parameter(torch.tensor([(i - 16) / 64 for i in range(SIZE)]))
    optimizer = torch.optim.AdamW([param], lr=setting["lr"], betas=(0.9, setting["beta2"]), eps=setting["eps"],
                                  weight_decay=setting["weight_decay"], foreach=False)
    shown = []
    for step in range(1, STEPS + 1):
        param.grad = floats([gradient_bits(i, step) for i in range(SIZE)])
        if step == 2 and setting["updates_before"]:
            optimizer.state[param]["step"] += setting["updates_before"]
        optimizer.step()
        if step in SHOWN:
            shown.append(bits(param))
    state = optimizer.state[param]
    return {**setting, "param": shown, "exp_avg": bits(state["exp_avg"]), "exp_avg_sq": bits(state["exp_avg_sq"])}


def main(src):
    torch.set_num_threads(1)
    torch.Tensor.sqrt = lambda self: torch.from_numpy(numpy.sqrt(self.numpy()))
    settings = [{"lr": 1e-3, "beta2": beta2, "eps": eps, "weight_decay": 0.1, "updates_before": 0}
                for beta2, eps in [(0.95, 1e-8), (0.98, 1e-6), (0.99, 1e-15), (0.999, 1e-15), (0.9999, 1e-8)]]
    settings += [{"lr": 0.0, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.1, "updates_before": 0},
                 {"lr": 1e-3, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "updates_before": 10**6}]
    with open(os.path.join(src, "optim/testdata/adamw_settings.json"), "w", encoding="utf-8") as f:
        f.write(f'{{"size": {SIZE}, "steps": {STEPS}, "shown": {SHOWN},\n"settings": [\n')
        f.write(",\n".join(json.dumps(run(s)) for s in settings) + "\n]}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
