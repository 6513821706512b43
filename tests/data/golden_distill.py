#!/usr/bin/env python3
"""A student's distillation loss for a teacher's top-k columns and the remaining probability, and its
gradient, by PyTorch in fp64.

    golden_distill.py [--check]

Writes golden-distill.h5 beside this script. Groups /case0 ... have the attributes temperature, weight, k and
vocab; the teacher's columns [rows, k], logprobs [rows, k] and rest [rows], as dt-eval teacher stores them;
the student's logits [rows, vocab] and targets [rows] (-1: ignored); and ce [rows], kl [rows] and grad [rows,
vocab], the gradient of the sum over rows of (1 - weight) ce + weight temperature^2 kl. --check compares: exit
status 3 on a difference, 77 without torch and h5py.
"""
import os
import sys

try:
    import h5py
    import numpy as np
    import torch
except ImportError:
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = [(4, 61, 8, 1.0, 1.0), (4, 61, 8, 2.0, 0.5), (3, 300, 1, 4.0, 0.9), (3, 17, 17, 1.5, 0.7)]


def case(rows, vocab, k, temperature, weight, seed):
    rng = np.random.default_rng(seed)
    teacher, student = (torch.tensor(rng.normal(0, 3, (rows, vocab)).astype(np.float32)) for _ in range(2))
    targets = rng.integers(0, vocab, rows).astype(np.int32)
    targets[-1] = -1
    logprobs, columns = torch.log_softmax(teacher.double() / temperature, -1).topk(k, -1)
    others = (1 - logprobs.exp().sum(-1)).clamp(min=0) if k < vocab else torch.zeros(rows).double()
    z = student.double().requires_grad_()
    real = torch.tensor(targets) >= 0
    ce = torch.nn.functional.cross_entropy(z, torch.tensor(targets).long(), ignore_index=-1, reduction="none")
    own = torch.log_softmax(z / temperature, -1)
    p, q = own.gather(-1, columns), logprobs
    if k < vocab:
        named = torch.zeros_like(own, dtype=torch.bool).scatter(-1, columns, True)
        p = torch.cat([p, own.masked_fill(named, -torch.inf).logsumexp(-1, keepdim=True)], -1)
        q = torch.cat([q, others.log()[:, None]], -1)
    kl = torch.nn.functional.kl_div(p, q, reduction="none", log_target=True).sum(-1) * real
    ((1 - weight) * ce + weight * temperature**2 * kl).sum().backward()
    return {"columns": columns.int().numpy(), "logprobs": logprobs.float().numpy(), "rest": others.log().float().numpy(),
            "logits": student.numpy(), "targets": targets, "ce": ce.detach().numpy(), "kl": kl.detach().numpy(),
            "grad": z.grad.numpy()}


def main():
    path = os.path.join(HERE, "golden-distill.h5")
    check = "--check" in sys.argv[1:]
    with h5py.File(path, "r" if check else "w") as f:
        for i, c in enumerate(CASES):
            rows, vocab, k, temperature, weight = c
            made = case(*c, seed=100 + i)
            if check:
                for name, v in made.items():
                    if not np.allclose(f[f"case{i}/{name}"][...], v, 1e-6, 1e-9):
                        print(f"case{i}/{name} differs")
                        sys.exit(3)
                continue
            g = f.create_group(f"case{i}")
            g.attrs.update(temperature=temperature, weight=weight, k=k, vocab=vocab)
            for name, v in made.items():
                g.create_dataset(name, data=v, track_times=False)


main()
# SPDX-License-Identifier: Apache-2.0
