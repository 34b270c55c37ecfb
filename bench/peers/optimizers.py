#!/usr/bin/env python3
"""Time AdamW steps on the CPU of those optimizers that can be imported: torch (fused, foreach), DeepSpeed CPUAdam,
bitsandbytes AdamW8bit, torchao AdamW8bit. Those that cannot are printed as skipped with the reason.

  python optimizers.py --millions 100 400 --threads 1 2

fp32 parameters and gradients in tensors of 10 M elements; AdamW, no clipping. Prints a line a measurement: name,
millions of parameters, threads, milliseconds and processor time (the least of several steps after a warm-up),
parameters a second. Every measurement is a process of its own. DeepSpeed compiles its extension when first used (it needs g++ and ninja).
"""
import argparse
import os
import subprocess
import sys
import time

PIECE = 10_000_000


def torch_fused(params):
    import torch

    return torch.optim.AdamW(params, lr=1e-5, weight_decay=0.01, fused=True)


def torch_foreach(params):
    import torch

    return torch.optim.AdamW(params, lr=1e-5, weight_decay=0.01, foreach=True)


def deepspeed_cpu_adam(params):
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    return DeepSpeedCPUAdam(params, lr=1e-5, weight_decay=0.01, adamw_mode=True)


def bitsandbytes_8bit(params):
    import bitsandbytes

    return bitsandbytes.optim.AdamW8bit(params, lr=1e-5, weight_decay=0.01)


def torchao_8bit(params):
    from torchao.optim import AdamW8bit

    return AdamW8bit(params, lr=1e-5, weight_decay=0.01)


PEERS = {
    "torch fused": torch_fused,
    "torch foreach": torch_foreach,
    "DeepSpeed CPUAdam": deepspeed_cpu_adam,
    "bitsandbytes AdamW8bit": bitsandbytes_8bit,
    "torchao AdamW8bit": torchao_8bit,
}


def measure(name, millions, threads):
    """In a process of its own: prints milliseconds of a step, on the clock and of all processors."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    params = []
    for _ in range(millions * 1_000_000 // PIECE):
        param = torch.nn.Parameter(torch.randn(PIECE // 1000, 1000) * 0.02)
        param.grad = torch.randn(PIECE // 1000, 1000) * 1e-5
        params.append(param)
    optimizer = PEERS[name](params)
    optimizer.step()
    least, least_cpu, begin = float("inf"), float("inf"), time.perf_counter()
    for step in range(20):
        start, start_cpu = time.perf_counter(), time.process_time()
        optimizer.step()
        least = min(least, time.perf_counter() - start)
        least_cpu = min(least_cpu, time.process_time() - start_cpu)
        if step >= 1 and time.perf_counter() - begin > 8:
            break
    print(f"{least * 1e3:.2f} {least_cpu * 1e3:.2f}")


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=int, nargs="+", default=[100, 400])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--measure", choices=PEERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if min(args.millions) * 1_000_000 < PIECE or min(args.threads) < 1:
        parser.error(f"--millions must be at least {PIECE // 1_000_000}, --threads at least 1")
    if args.measure:
        measure(args.measure, args.millions[0], args.threads[0])
        return
    print(f"{'optimizer':24}{'millions':>9}{'threads':>9}{'ms':>10}{'cpu ms':>10}{'M param/s':>11}")
    for name in args.only:
        for millions in args.millions:
            for threads in args.threads:
                command = [sys.executable, __file__, "--measure", name, "--millions", str(millions)]
                environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
                done = subprocess.run(command + ["--threads", str(threads)], capture_output=True, text=True,
                                      env=environment, check=False)
                if done.returncode != 0:
                    print(f"{name:24}{millions:9}{threads:9}   skipped: {last_line(done.stderr)}", flush=True)
                    continue
                ms, cpu = (float(word) for word in last_line(done.stdout).split())
                print(f"{name:24}{millions:9}{threads:9}{ms:10.1f}{cpu:10.1f}{millions / ms * 1e3:11.0f}", flush=True)


if __name__ == "__main__":
    main()
