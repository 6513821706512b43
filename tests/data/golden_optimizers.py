#!/usr/bin/env python3
"""200 steps of optimizers in fp64: PyTorch's where it has them, otherwise the published rule written out.

    golden_optimizers.py [--check]

Writes golden-optimizers.h5 beside this script: for each KIND /KIND/w [12, 20] and /KIND/b [20], the
parameters after 200 steps from /init with the gradients of gradient() (tests/unit/test_whole_step.c computes
the same integers), and /map/signed and /map/unsigned, bitsandbytes' dynamic maps. Weight decay applies to the
matrix, not to the vector. --check compares: exit status 3 on a difference, 77 without the packages torch,
bitsandbytes and h5py. """
import os
import sys

try:
    import h5py
    import numpy as np
    import torch
    from bitsandbytes.functional import create_dynamic_map

    torch.optim.Adafactor
except (ImportError, AttributeError):
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, SHAPES, LR, DECAY = 200, {"w": (12, 20), "b": (20,)}, 0.01, 0.1


def hashed(i, t):
    """Returns a number in [-1, 1) by integer arithmetic that is the same in every language."""
    with np.errstate(over="ignore"):
        h = (i.astype(np.uint32) * np.uint32(0x9E3779B1)) ^ (np.uint32(t) * np.uint32(0x85EBCA77))
        for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39)):
            h = (h ^ (h >> np.uint32(shift))) * np.uint32(factor)
        h ^= h >> np.uint32(15)
    return h.astype(np.float64) / 2.0**31 - 1


def values(name, t, scale):
    shape = SHAPES[name]
    first = 0 if name == "w" else 1000
    return (scale * hashed(np.arange(first, first + int(np.prod(shape))), t)).astype(np.float32).reshape(shape)


def gradient(name, t):
    return values(name, t, 0.1)


def by_torch(make):
    p = {k: torch.tensor(values(k, 0, 1), dtype=torch.float64, requires_grad=True) for k in SHAPES}
    opt = make([{"params": [p["w"]], "weight_decay": DECAY}, {"params": [p["b"]], "weight_decay": 0.0}])
    for t in range(1, STEPS + 1):
        for k in p:
            p[k].grad = torch.tensor(gradient(k, t), dtype=torch.float64)
        opt.step()
    return {k: v.detach().numpy() for k, v in p.items()}


def by_rule(rule):
    """Runs 200 steps of rule(p, g, state, t, decay), which returns the new p; decay is 0 for the vector."""
    p = {k: values(k, 0, 1).astype(np.float64) for k in SHAPES}
    state = {k: {} for k in SHAPES}
    for t in range(1, STEPS + 1):
        for k in p:
            p[k] = rule(p[k], gradient(k, t).astype(np.float64), state[k], t, DECAY if k == "w" else 0.0)
    return p


def adam_moments(g, s, t, b1=0.9, b2=0.95):
    s["m"] = b1 * s.get("m", 0 * g) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0 * g) + (1 - b2) * g * g
    return s["m"] / (1 - b1**t) / (np.sqrt(s["v"] / (1 - b2**t)) + 1e-8)


def lion(p, g, s, t, wd):
    """Chen et al. 2023, algorithm 2."""
    m = s.get("m", 0 * g)
    s["m"] = 0.99 * m + 0.01 * g
    return p - LR * (np.sign(0.9 * m + 0.1 * g) + wd * p)


def lamb(p, g, s, t, wd):
    """You et al. 2019, algorithm 2, phi(x) = x; vectors are not scaled."""
    r = adam_moments(g, s, t) + wd * p
    return p - LR * (np.linalg.norm(p) / np.linalg.norm(r) if p.ndim == 2 else 1) * r


def lars(p, g, s, t, wd):
    """You et al. 2017, algorithm 1, eta 0.001."""
    norm = np.linalg.norm
    ratio = 0.001 * norm(p) / (norm(g) + wd * norm(p)) if p.ndim == 2 else 1
    s["v"] = 0.9 * s.get("v", 0 * g) + LR * ratio * (g + wd * p)
    return p - s["v"]


def newton_schulz(g):
    """Jordan et al. 2024, in fp64."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (np.linalg.norm(g) + 1e-7)
    for _ in range(5):
        y = x @ x.T
        x = a * x + (b * y + c * y @ y) @ x
    return x


def muon(p, g, s, t, wd):
    """With the scale of Moonlight (Liu et al. 2025); vectors are updated by AdamW."""
    if p.ndim == 1:
        return p - LR * (adam_moments(g, s, t) + wd * p)
    s["m"] = 0.95 * s.get("m", 0 * g) + 0.05 * g
    u = 0.05 * g + 0.95 * s["m"]
    return (1 - LR * wd) * p - LR * 0.2 * np.sqrt(max(p.shape)) * newton_schulz(u)


def rounded(x, values):
    """Encodes a block's values as codes relative to its largest magnitude, and decodes them."""
    y = x.reshape(-1)
    for i in range(0, y.size, 256):
        b = y[i:i + 256]
        scale = b[np.argmax(np.abs(b))]
        if scale != 0:
            y[i:i + 256] = scale * values[np.argmin(np.abs(b[:, None] / scale - values[None, :]), axis=1)]
    return y.reshape(x.shape)


def adamw8bit(p, g, s, t, wd):
    """Dettmers et al. 2022: the update uses the moments before they are rounded."""
    step = adam_moments(g, s, t) + wd * p
    s["m"], s["v"] = rounded(s["m"], MAPS["signed"]), rounded(s["v"], MAPS["unsigned"])
    return p - LR * step


MAPS = {name: create_dynamic_map(signed=name == "signed").numpy().astype(np.float64) for name in ("signed", "unsigned")}


def make():
    sgd, nadam, adafactor = torch.optim.SGD, torch.optim.NAdam, torch.optim.Adafactor
    kinds = {
        "nesterov": by_torch(lambda p: sgd(p, lr=LR, momentum=0.9, nesterov=True)),
        "nadam": by_torch(lambda p: nadam(p, lr=LR, betas=(0.9, 0.95), eps=1e-8)),
        "adamw": by_torch(lambda p: torch.optim.AdamW(p, lr=LR, betas=(0.9, 0.95), eps=1e-8)),
        "adafactor": by_torch(lambda p: adafactor(p, lr=LR, eps=(1e-30, 1e-3))),
        "lion": by_rule(lion), "lamb": by_rule(lamb), "lars": by_rule(lars), "muon": by_rule(muon),
        "adamw8bit": by_rule(adamw8bit),
    }
    data = {f"{kind}/{k}": v for kind, p in kinds.items() for k, v in p.items()}
    data.update({f"map/{k}": v.astype(np.float32) for k, v in MAPS.items()})
    data.update({f"init/{k}": values(k, 0, 1) for k in SHAPES})
    return data


def main():
    path = os.path.join(HERE, "golden-optimizers.h5")
    data = make()
    if "--check" in sys.argv:
        with h5py.File(path, "r") as f:
            for name, want in data.items():
                if not np.allclose(f[name][()], want, rtol=1e-9, atol=1e-9):
                    print(f"golden-optimizers.h5: /{name} differs", file=sys.stderr)
                    return 3
        return 0
    with h5py.File(path, "w", libver="earliest") as f:
        for name, x in data.items():
            f.create_dataset(name, data=x, track_times=False)
    return 0


sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
