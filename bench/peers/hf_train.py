#!/usr/bin/env python3
"""Train a model of a given config from random weights with transformers and torch on the CPU, as users do it.

Prints one JSON object: tok_per_s (median over the steps after the first), step_s of every step, losses, the peak
resident bytes of the process (VmHWM) and the versions. Labels are the ids; AdamW, gradient clip 1.0. Needs the
packages of tools/golden/requirements.txt.

  python hf_train.py --config ../../configs/qwen2.5-0.5b.json --batch 4 --seq 512 --steps 3 --threads 2 --mode autocast

Modes: autocast       fp32 weights and optimizer state, matmuls in bf16 (torch.autocast)
       pure_bf16      weights, gradients and optimizer state in bf16 (no fp32 master: cheaper, and less exact)
       checkpointing  autocast with gradient checkpointing in every layer
"""
import argparse
import json
import os
import statistics
import sys
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--attn", default="sdpa", choices=["sdpa", "eager"])
    parser.add_argument("--mode", default="autocast", choices=["autocast", "pure_bf16", "checkpointing"])
    args = parser.parse_args()
    if min(args.batch, args.seq, args.threads) < 1 or args.steps < 2:
        parser.error("--batch, --seq and --threads must be at least 1, --steps at least 2 (the first is warm-up)")
    return args


def peak_resident_bytes():
    with open("/proc/self/status", encoding="ascii") as f:
        line = next(line for line in f if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def main():
    args = arguments()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # read when torch is loaded
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    with open(args.config, encoding="utf-8") as f:
        fields = json.load(f)
    fields.pop("torch_dtype", None), fields.pop("dtype", None)
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    config._attn_implementation = args.attn
    dtype = torch.bfloat16 if args.mode == "pure_bf16" else torch.float32
    torch.set_default_dtype(dtype)
    model = transformers.AutoModelForCausalLM.from_config(config)
    torch.set_default_dtype(torch.float32)
    model.train()
    model.config.use_cache = False
    if args.mode == "checkpointing":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    generator = torch.Generator().manual_seed(args.seed)

    losses, step_s = [], []
    for step in range(args.steps):
        ids = torch.randint(config.vocab_size, (args.batch, args.seq), generator=generator)
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=args.mode != "pure_bf16"):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        step_s.append(time.perf_counter() - begin)
        print(f"step {step + 1}: loss {losses[-1]:.4f}, {step_s[-1]:.2f} s", file=sys.stderr, flush=True)

    tokens = args.batch * args.seq
    print(json.dumps({
        "peer": "transformers", "mode": args.mode, "config": os.path.basename(args.config), "batch": args.batch,
        "seq": args.seq, "threads": args.threads, "parameters": sum(p.numel() for p in model.parameters()),
        "tok_per_s": round(tokens / statistics.median(step_s[1:]), 3), "step_s": [round(s, 3) for s in step_s],
        "losses": losses, "peak_rss_bytes": peak_resident_bytes(), "torch": torch.__version__,
        "transformers": transformers.__version__,
    }))


if __name__ == "__main__":
    main()
