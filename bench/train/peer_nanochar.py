#!/usr/bin/python3
"""Trains nanoGPT's character recipe in PyTorch, for the loss that tests/cli/nanogpt-char.bats expects.

    peer_nanochar.py input.txt [--seeds 3] [--windows fixed|random] [--no-bias]

4 layers, 4 heads, 128 wide, context 64, batch 12, 2000 steps, AdamW (0.9, 0.99), weight decay 0.1 on matrices, clipping at 1,
learning rate 1e-3 after 100 steps of warm-up, cosine decay to 1e-4, fp32, one thread. --windows fixed: the windows that
dt-train reads (a shuffled epoch of windows that do not overlap); random: those of nanoGPT (random starts). nanoGPT itself has
no biases in this recipe. The loss is the mean over all windows of the last tenth of the text; nanoGPT's published 1.88 is an
estimate from 20 batches. Prints one JSON line per seed."""

import argparse
import json
import math
import sys
import time

if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
    asked = sys.argv[1:2] in (["-h"], ["--help"])
    print(__doc__, file=sys.stdout if asked else sys.stderr)
    sys.exit(0 if asked else 2)

try:
    import torch
    import torch.nn as nn
except ImportError as e:
    print(f"peer_nanochar.py: {e}", file=sys.stderr)
    sys.exit(77)

from peer_torch import GPT2

SEQ, BATCH, STEPS = 64, 12, 2000


def schedule(step):
    """nanoGPT's get_lr: linear warm-up, then half a cosine down to a tenth."""
    if step < 100:
        return 1e-3 * (step + 1) / 101
    return 1e-4 + 0.5 * (1 + math.cos(math.pi * (step - 100) / (STEPS - 100))) * (1e-3 - 1e-4)


def windows(tokens, kind):
    """Starts of training windows, for ever."""
    while True:
        if kind == "random":
            yield int(torch.randint(0, len(tokens) - SEQ, (1,)))
        else:
            yield from (torch.randperm((len(tokens) - 1) // SEQ) * SEQ).tolist()


def cut(tokens, starts):
    x = torch.stack([tokens[s : s + SEQ + 1] for s in starts])
    return x[:, :-1].contiguous(), x[:, 1:].contiguous()


def train(text, seed, kind, bias):
    torch.manual_seed(seed)
    chars = sorted(set(text))
    tokens = torch.tensor([chars.index(c) for c in text])
    n = len(tokens) * 9 // 10
    training, held_out = tokens[:n], tokens[n:]
    model = GPT2(4, 4, 128, len(chars), SEQ)
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(p)
            p.requires_grad_(bias)
        elif name.endswith(("out.weight", "down.weight")):
            nn.init.normal_(p, std=0.02 / math.sqrt(2 * 4))
    groups = [dict(params=[p for p in model.parameters() if p.requires_grad and (p.ndim == 2) == matrix],
                   weight_decay=0.1 if matrix else 0.0) for matrix in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
    starts = windows(training, kind)
    for step in range(STEPS):
        for g in optimizer.param_groups:
            g["lr"] = schedule(step)
        loss = model(*cut(training, [next(starts) for _ in range(BATCH)]))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        every = range(0, len(held_out) - SEQ, SEQ)
        return sum(model(*cut(held_out, [s])).item() for s in every) / len(every)


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("text")
    a.add_argument("--seeds", type=int, default=3)
    a.add_argument("--windows", choices=["fixed", "random"], default="fixed")
    a.add_argument("--bias", action=argparse.BooleanOptionalAction, default=True)
    o = a.parse_args()
    torch.set_num_threads(1)
    with open(o.text, encoding="utf-8") as f:
        text = f.read()
    for seed in range(o.seeds):
        start = time.time()
        loss = train(text, seed, o.windows, o.bias)
        print(json.dumps(dict(schema=1, seed=seed, windows=o.windows, bias=o.bias, eval_loss=loss,
                              train_s=time.time() - start)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
