#!/usr/bin/python3
"""Times a GPT-2 training step in PyTorch and prints one JSON line.

The model equals the one that dt-train trains for the preset: learned positions, pre-LayerNorm, GELU tanh, biases
everywhere, tied head. The step is tuned for this version of PyTorch: autocast for bf16, fused attention
(scaled_dot_product_attention) and fused AdamW if the version has them, gradient clipping at 1. Before the steps, the same
process times square matrix products in the same precision, as the peak rate of the machine at that time."""

import argparse
import json
import resource
import statistics
import sys
import time

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError as e:
    print(f"peer_torch.py: {e}", file=sys.stderr)
    sys.exit(77)

SIZES = {  # layers, heads, hidden, vocab, positions
    "gpt2-124m": (12, 12, 768, 50257, 1024),
    "gpt2-355m": (24, 16, 1024, 50257, 1024),
    "gpt2-774m": (36, 20, 1280, 50257, 1024),
    "gpt2-1558m": (48, 25, 1600, 50257, 1024),
}
FUSED_ATTENTION = hasattr(F, "scaled_dot_product_attention")


class Block(nn.Module):
    def __init__(self, hidden, heads, positions):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.gelu = nn.GELU(approximate="tanh")
        if not FUSED_ATTENTION:
            self.register_buffer("future", torch.ones(positions, positions).triu(1).bool(), persistent=False)

    def attention(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        if FUSED_ATTENTION:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            score = (q @ k.transpose(-2, -1)) * (c // self.heads) ** -0.5
            y = score.masked_fill(self.future[:t, :t], float("-inf")).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, c))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(self.gelu(self.up(self.norm2(x))))


class GPT2(nn.Module):
    def __init__(self, layers, heads, hidden, vocab, positions):
        super().__init__()
        self.embed, self.pos = nn.Embedding(vocab, hidden), nn.Embedding(positions, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, positions) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.embed(ids) + self.pos.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def matmul_flops(dtype, n=2048, tries=8):
    """Flops per second of the fastest of `tries` n x n x n matrix products."""
    a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
    best = float("inf")
    for _ in range(tries + 2):
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return 2 * n**3 / best


def make_optimizer(model):
    matrices = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [dict(params=matrices, weight_decay=0.1), dict(params=others, weight_decay=0.0)]
    for fastest in (dict(fused=True), dict(foreach=True), dict()):
        try:
            return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), **fastest), next(iter(fastest), "plain")
        except (RuntimeError, TypeError):
            continue


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--model", choices=SIZES, default="gpt2-124m")
    a.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    a.add_argument("--batch", type=int, default=4)
    a.add_argument("--seq", type=int, default=512)
    a.add_argument("--steps", type=int, default=4, help="number of timed steps, after the warm-up steps")
    a.add_argument("--warmup", type=int, default=1)
    a.add_argument("--threads", type=int, default=0, help="number of threads; 0: PyTorch's default")
    a.add_argument("--compile", action="store_true", help="use torch.compile (PyTorch 2.0 and later)")
    a.add_argument("--matmul-only", action="store_true")
    o = a.parse_args()
    if o.threads:
        torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    dtype = torch.bfloat16 if o.precision == "bf16" else torch.float32
    result = dict(schema=1, peer="torch", version=torch.__version__, precision=o.precision, compiled=o.compile,
                  threads=torch.get_num_threads(), matmul_flops=matmul_flops(dtype))
    if o.matmul_only:
        print(json.dumps(result))
        return 0
    model = GPT2(*SIZES[o.model])
    optimizer, kind = make_optimizer(model)
    forward = torch.compile(model) if o.compile else model
    tokens = torch.randint(0, SIZES[o.model][3], (o.batch, o.seq + 1))
    times, losses = [], []
    for step in range(o.warmup + o.steps):
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=o.precision == "bf16"):
            loss = forward(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step >= o.warmup:
            times.append(time.perf_counter() - start)
    step_s = statistics.median(times)
    result.update(model=o.model, batch=o.batch, seq=o.seq, steps=o.steps, optimizer_kernel=kind,
                  fused_attention=FUSED_ATTENTION, step_s=step_s, step_min_s=min(times),
                  tokens_per_s=o.batch * o.seq / step_s, loss_first=losses[0], loss_last=losses[-1],
                  peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
