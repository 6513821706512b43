#!/usr/bin/python3
"""NF4 with double quantisation as bitsandbytes stores it.

    golden_nf4.py            writes golden-nf4.h5 beside this script
    golden_nf4.py --check    recomputes and compares; exit status 0, 3 on a difference, 77 without
    bitsandbytes

/x [rows, cols] f32;  /packed u8, two values per byte;  /absmax u8, one per block of 64;  /code [256], /table
[16] f32; /group f32, one scale per 256 of absmax;  /offset;  /y [rows, cols] f32, the values dequantised by
bitsandbytes. """

import os
import sys

try:
    import bitsandbytes.functional as F
    import h5py
    import numpy as np
    import torch
except ImportError as e:
    print(f"golden_nf4.py: needs torch, bitsandbytes and h5py: {e}", file=sys.stderr)
    sys.exit(77)

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden-nf4.h5")
ROWS, COLS = 96, 192


def compute():
    x = torch.from_numpy(np.random.RandomState(3).standard_normal((ROWS, COLS)).astype(np.float32) * 0.05)
    x[5] = 0  # blocks of zeros
    q, s = F.quantize_4bit(x, blocksize=64, quant_type="nf4", compress_statistics=True)
    # the scales as in dequantize_4bit, and the product in the order of its kernels
    scale = s.state2.code[s.absmax.long().flatten()] * s.state2.absmax.repeat_interleave(256)[: s.absmax.numel()]
    scale = scale + s.offset
    nibbles = torch.stack([q.flatten() >> 4, q.flatten() & 15], 1).flatten().long()
    y = s.code[nibbles] * scale.repeat_interleave(64)
    again = F.dequantize_4bit(q, s)
    assert (again.flatten() - y).abs().max() <= 1e-8, "the order of operations has changed"
    return dict(x=x, packed=q.flatten(), absmax=s.absmax.flatten(), code=s.state2.code, table=s.code,
                group=s.state2.absmax, offset=s.offset.reshape(1), y=again)


def main():
    data = {k: v.detach().numpy() for k, v in compute().items()}
    if sys.argv[1:] != ["--check"]:
        with h5py.File(FILE, "w", libver="earliest", track_order=False) as f:
            for k, v in data.items():
                f[k] = v.astype(np.int32) if v.dtype == np.uint8 else v
        return 0
    with h5py.File(FILE, "r") as f:
        bad = [k for k, v in data.items() if not np.array_equal(f[k][()], v)]
    for k in bad:
        print(f"golden_nf4.py: {k} differs", file=sys.stderr)
    return 3 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
