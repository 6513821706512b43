#!/usr/bin/env python3
"""Decoding and rounding of the 8-bit floats E4M3 and E5M2 by PyTorch.

    golden_fp8.py [--check]

Writes golden-fp8.h5 beside this script: for e4m3 and e5m2 /TYPE/values (f32 [256], the value of every code),
/TYPE/input (f32) and /TYPE/codes (i32, the codes that the inputs round to). Inputs are every finite value,
every midpoint between neighbours and the f32 numbers next to it, random numbers of all magnitudes, and
numbers above the largest value, which are clamped first, because PyTorch's conversion does not saturate.
--check compares: exit status 3 on a difference, 77 without the packages torch (with 8-bit floats) and h5py.
"""
import os
import sys

try:
    import h5py
    import numpy as np
    import torch

    TYPES = {"e4m3": (torch.float8_e4m3fn, 448.0), "e5m2": (torch.float8_e5m2, 57344.0)}
except (ImportError, AttributeError):
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))


def make(kind, most):
    values = torch.arange(256, dtype=torch.uint8).view(kind).to(torch.float32).numpy()
    finite = np.unique(values[np.isfinite(values)])
    edges = np.concatenate([finite, ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)])
    rng = np.random.default_rng(8)
    x = [edges, np.nextafter(edges, np.float32(np.inf)), np.nextafter(edges, np.float32(-np.inf))]
    x.append((rng.standard_normal(512) * 2.0 ** rng.integers(-24, 18, 512)).astype(np.float32))
    x.append(np.array([1e-45, -1e-45, 1e-38, most * 1.01, most * 2, -3e38, np.inf, -np.inf], np.float32))
    x = np.concatenate(x).astype(np.float32)
    codes = torch.from_numpy(np.clip(x, -most, most)).to(kind).view(torch.uint8).numpy().astype(np.int32)
    return {"values": values, "input": x, "codes": codes}


def main():
    path = os.path.join(HERE, "golden-fp8.h5")
    made = {name: make(*what) for name, what in TYPES.items()}
    if "--check" in sys.argv:
        with h5py.File(path, "r") as f:
            for name, sets in made.items():
                for key, want in sets.items():
                    if not np.array_equal(f[name][key][()].view(np.uint8), want.view(np.uint8)):
                        print(f"golden-fp8.h5: /{name}/{key} differs", file=sys.stderr)
                        return 3
        return 0
    with h5py.File(path, "w", libver="earliest") as f:
        for name, sets in made.items():
            for key, want in sets.items():
                f.create_dataset(f"{name}/{key}", data=want, compression="gzip", shuffle=True)
    return 0


sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
