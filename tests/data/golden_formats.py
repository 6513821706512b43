#!/usr/bin/env python3
"""Blocks of each weight format, decoded and encoded by the gguf Python package.

    golden_formats.py [--check]

Writes golden-formats.h5 beside this script: /FORMAT/blocks (bytes) and /FORMAT/values (f32, the package's
dequantised values); for formats that the package can write also /FORMAT/input (f32) and /FORMAT/quantised
(bytes). The blocks are random bytes with finite scales, so that every nibble, sign and scale occurs; the
inputs contain zeros and ties.
--check recomputes and compares: exit status 3 on a difference, 77 without the packages gguf and h5py.
"""
import os
import sys

try:
    import gguf
    import h5py
    import numpy as np
    from gguf import quants
except ImportError:
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
FORMATS = {  # name: (type, blocks, byte offsets of f16 scales in a block)
    "f16": (gguf.GGMLQuantizationType.F16, 256, [0]),
    "bf16": (gguf.GGMLQuantizationType.BF16, 256, []),
    "q4_0": (gguf.GGMLQuantizationType.Q4_0, 24, [0]),
    "q4_1": (gguf.GGMLQuantizationType.Q4_1, 24, [0, 2]),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, 24, [0]),
    "q4_k": (gguf.GGMLQuantizationType.Q4_K, 8, [0, 2]),
    "q6_k": (gguf.GGMLQuantizationType.Q6_K, 8, [208]),
    "q5_0": (gguf.GGMLQuantizationType.Q5_0, 24, [0]),
    "q5_k": (gguf.GGMLQuantizationType.Q5_K, 8, [0, 2]),
    "mxfp4": (gguf.GGMLQuantizationType.MXFP4, 48, []),
    "iq4_nl": (gguf.GGMLQuantizationType.IQ4_NL, 24, [0]),
    "q5_1": (gguf.GGMLQuantizationType.Q5_1, 24, [0, 2]),
    "q2_k": (gguf.GGMLQuantizationType.Q2_K, 8, [80, 82]),
    "q3_k": (gguf.GGMLQuantizationType.Q3_K, 8, [108]),
    "iq4_xs": (gguf.GGMLQuantizationType.IQ4_XS, 8, [0]),
    "iq3_s": (gguf.GGMLQuantizationType.IQ3_S, 8, [0]),
    "iq3_xxs": (gguf.GGMLQuantizationType.IQ3_XXS, 4, [0]),
    "iq2_s": (gguf.GGMLQuantizationType.IQ2_S, 32, [0]),
    "iq2_xs": (gguf.GGMLQuantizationType.IQ2_XS, 16, [0]),
    "iq2_xxs": (gguf.GGMLQuantizationType.IQ2_XXS, 8, [0]),
}
# the package cannot write the others, whose scales are searched for
WRITABLE = ["f16", "bf16", "q4_0", "q4_1", "q5_0", "q8_0", "mxfp4", "q5_1"]
LATER = ["q5_k", "mxfp4", "iq4_nl", "q5_1", "q2_k", "q3_k", "iq4_xs", "iq3_s", "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs"]


def blocks_of(rng, kind, n, halves):
    _, size = gguf.GGML_QUANT_SIZES[kind]
    b = rng.integers(0, 256, (n, size), dtype=np.uint8)
    if kind == gguf.GGMLQuantizationType.BF16:
        b = (rng.standard_normal(n).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(n, 2)
    # 255 is NaN (OCP), which the package ignores; 253, 254 overflow
    if kind == gguf.GGMLQuantizationType.MXFP4:
        b[:, 0] = rng.integers(0, 253, n)
        b[:4, 0] = [0, 1, 2, 252]
    for at in halves:
        scale = (rng.standard_normal(n) * 10.0 ** rng.integers(-7, 2, n)).astype(np.float16)
        b[:, at : at + 2] = scale.view(np.uint8).reshape(n, 2)
    every_entry(b, kind)
    return b


def every_entry(b, kind):
    """Sets the indices of codebook formats so that each entry occurs once."""
    each = np.arange(len(b))[:, None]
    if kind in (gguf.GGMLQuantizationType.IQ3_S, gguf.GGMLQuantizationType.IQ3_XXS):
        b[:, 2:66] = each * 64 + np.arange(64)
    if kind == gguf.GGMLQuantizationType.IQ3_S:
        b[:, 66:74] = each // 4 * 255
    if kind == gguf.GGMLQuantizationType.IQ2_S:
        b[:, 2:34] = each * 32 + np.arange(32)
        b[:, 66:74] = each // 8 * 0x55
    if kind == gguf.GGMLQuantizationType.IQ2_XS:
        b[:, 2:66:2] = each * 32 + np.arange(32)
        b[:, 3:66:2] = b[:, 3:66:2] & 254 | each // 8
    if kind == gguf.GGMLQuantizationType.IQ2_XXS:
        for j in range(4):
            b[:, 2 + j : 66 : 8] = each * 32 + 4 * np.arange(8) + j


def inputs(rng):
    x = (rng.standard_normal((48, 32)) * 10.0 ** rng.integers(-6, 3, (48, 1))).astype(np.float32)
    x[3] = 0
    x[4, ::2] = 0
    x[5] = np.arange(-16, 16) / 2  # ties
    x[6] = np.linspace(-127, 127, 32)
    x[7] = 1e-30
    x[8] = 3
    x[9] = -3
    return np.concatenate([x, near_ties()])


def near_ties():
    """Multiples of 0.5 and their neighbours in fp32, in blocks whose scale is 1 (q8_0 contains 127, q4_0 -8)
    or not."""
    half = np.arange(32, dtype=np.float32) / 2
    out = []
    for top in (127, -8):
        for to in (-np.inf, np.inf, 0):
            for sign in (1, -1):
                y = sign * (np.nextafter(half, np.float32(to)) if to else half).astype(np.float32)
                y = np.clip(y, -7.99, 7.99) if top == -8 else y
                y[0] = top
                out += [y, y * np.float32(1.7)]
    return np.array(out, dtype=np.float32)


def compute():
    rng = np.random.default_rng(20261121)
    out = {}
    # a generator of its own, so that added formats do not change the others' numbers
    later = np.random.default_rng(20261123)
    for name, (kind, n, halves) in FORMATS.items():
        b = blocks_of(later if name in LATER else rng, kind, n, halves)
        out[name + "/blocks"] = b.reshape(-1)
        out[name + "/values"] = quants.dequantize(b, kind).astype(np.float32).reshape(-1)
    x = inputs(rng)
    for name in WRITABLE:
        out[name + "/input"] = x.reshape(-1)
        out[name + "/quantised"] = quants.quantize(x, FORMATS[name][0]).view(np.uint8).reshape(-1)
    return out


def main():
    path = os.path.join(HERE, "golden-formats.h5")
    new = compute()
    if "--check" in sys.argv:
        with h5py.File(path, "r") as f:
            for key, want in new.items():
                if f[key][...].tobytes() != want.tobytes():
                    print(key, "differs")
                    sys.exit(3)
        return
    with h5py.File(path, "w", track_order=False) as f:
        for key, v in new.items():
            f.create_dataset(key, data=v, track_times=False)


main()
# SPDX-License-Identifier: Apache-2.0
