#!/usr/bin/env python3
"""How far AdamW updates from 8-bit moments are from those of fp32 moments, on the gradients of a model that trains.

  python optimizer_error.py --model SMOLLM2_FOLDER --data train.jsonl
  python optimizer_error.py --steps 2000            (gradients drawn at random)

The model trains with torch's AdamW in fp32. For a few of its matrices every scheme below carries its own moments along
on the same gradients, rounded after every step as it stores them; printed is, over the second half of the steps, the
relative error of its update (before the learning rate), root of the sum of squares over the elements, and the update's
length along the exact one (1: neither larger nor smaller on the whole).

Schemes: quadratic maps, m = sign(c) (c/127)^2 M, sqrt(v) = (c/255)^2 S, codes of v nearest, rounded at random, or
always up; dynamic maps as bitsandbytes and torchao have them: 7 decades of fractions, half as many in each lower one.
"""
import argparse
import json

BETA1, EPS = 0.9, 1e-8
ELEMENTS = 131072  # of the beginning of each matrix


def dynamic_map(torch, signed):
    values = [0.0, 1.0]
    for decade in range(7):
        count = 2**decade if signed else 2 ** (decade + 1)
        fractions = [0.1 + 0.9 * (k + 0.5) / count for k in range(count)]
        values += [10.0 ** (decade - 6) * f for f in fractions]
    if signed:
        values += [-v for v in values[2:]]
    return torch.tensor(sorted(values))


def nearest(torch, table, x):
    return table[torch.bucketize(x, (table[1:] + table[:-1]) / 2)]


class Scheme:
    """Moments of one tensor of n elements, rounded in blocks after every update; step() returns the update."""

    def __init__(self, torch, kind, block, beta2, n):
        self.torch, self.kind, self.block, self.beta2 = torch, kind, block, beta2
        self.m, self.v, self.t = torch.zeros(n), torch.zeros(n), 0

    def step(self, g):
        self.t += 1
        self.m = BETA1 * self.m + (1 - BETA1) * g
        self.v = self.beta2 * self.v + (1 - self.beta2) * g * g
        mean = self.m / (1 - BETA1**self.t)
        update = mean / ((self.v / (1 - self.beta2**self.t)).sqrt() + EPS)
        if self.kind != "fp32":
            m, v = self.m.view(-1, self.block), self.v.view(-1, self.block)
            m, v = self.dynamic(m, v) if self.kind == "dynamic" else self.quadratic(m, v)
            self.m, self.v = m.flatten(), v.flatten()
        return update

    def dynamic(self, m, v):
        torch = self.torch
        m_scale, v_scale = m.abs().amax(1, keepdim=True) + 1e-38, v.amax(1, keepdim=True) + 1e-38
        return (nearest(torch, dynamic_map(torch, True), m / m_scale) * m_scale,
                nearest(torch, dynamic_map(torch, False), v / v_scale) * v_scale)

    def quadratic(self, m, v):
        torch, root = self.torch, v.sqrt()
        m_scale, root_scale = m.abs().amax(1, keepdim=True) + 1e-30, root.amax(1, keepdim=True) + 1e-30
        code = (m.abs() / m_scale).sqrt().mul(127).round()
        x = (root / root_scale).sqrt() * 255
        up = {"nearest": 0.5, "random": torch.rand_like(x), "up": 1 - 1e-4}[self.kind]
        k = torch.where(root > 0, (x + up).floor().clamp(1, 255), torch.zeros_like(x))
        return m.sign() * (code / 127) ** 2 * m_scale, ((k / 255) ** 2 * root_scale) ** 2


def batches(path, tokenizer, torch, rows, seq):
    ids = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            sample = json.loads(line)
            ids += tokenizer(sample["question"] + "\n" + sample["answer"] + "\n").input_ids
    for begin in range(0, len(ids) - rows * seq, rows * seq):
        yield torch.tensor(ids[begin:begin + rows * seq]).view(rows, seq)


def gradients_of_model(torch, args):
    """Trains; yields, a step, part -> list of gradients, one of each matrix watched."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    last = model.config.num_hidden_layers - 1
    names = [f"model.layers.{i}.{part}.weight" for i in (0, last // 2, last)
             for part in ("self_attn.q_proj", "mlp.down_proj")]
    params = dict(model.named_parameters())
    watched = {"matrices": [params[n] for n in names], "embedding": [params["model.embed_tokens.weight"]]}
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(BETA1, 0.999), weight_decay=0.01)
    for step, ids in zip(range(1, args.steps + 1), batches(args.data, tokenizer, torch, args.rows, args.seq)):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        yield {part: [p.grad.flatten()[:ELEMENTS].bfloat16().float() for p in some] for part, some in watched.items()}
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.4f} norm {norm.item():.3f}", flush=True)


def gradients_drawn(torch, args):
    """The same without a model: sizes of elements log-normal, values normal or (heavy) of Student's t with 3."""
    size = torch.randn(8192).exp() * 1e-3
    heavy = torch.distributions.StudentT(3.0)
    for _ in range(args.steps):
        yield {"normal": [size * torch.randn(8192)], "heavy": [size * heavy.sample((8192,))]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder; without, gradients are drawn")
    parser.add_argument("--data", help="JSONL with question and answer, for the model")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--seq", type=int, default=96)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-4)
    args = parser.parse_args()
    if args.model and not args.data:
        parser.error("--model needs --data")
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    kinds = [("fp32", 256), ("nearest", 256), ("random", 256), ("random", 4096), ("up", 256), ("dynamic", 256)]
    schemes, sums = {}, {}
    source = gradients_of_model(torch, args) if args.model else gradients_drawn(torch, args)
    for step, parts in enumerate(source, 1):
        for part, gradients in parts.items():
            for index, g in enumerate(gradients):
                for beta2 in (0.95, 0.999):
                    exact = None
                    for kind, block in kinds:
                        key = part, index, kind, block, beta2
                        if key not in schemes:
                            schemes[key] = Scheme(torch, kind, block, beta2, len(g))
                        update = schemes[key].step(g)
                        exact = update if kind == "fp32" else exact
                        if step > args.steps // 2 and kind != "fp32":
                            s = sums.setdefault((kind, block, beta2, part), [0.0, 0.0, 0.0])
                            s[0] += float((update - exact).square().sum())
                            s[1] += float(exact.square().sum())
                            s[2] += float((update * exact).sum())
    print(f"{'v codes':9}{'block':>6}{'beta2':>7}  {'of':10}{'error':>8}{'length':>8}")
    for (kind, block, beta2, part), (error, exact, along) in sums.items():
        print(f"{kind:9}{block:6}{beta2:7}  {part:10}{(error / exact) ** 0.5:8.4f}{along / exact:8.4f}")


if __name__ == "__main__":
    main()
