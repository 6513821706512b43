"""Golden files of quantised Hugging Face folders: code shared by golden_bnb.py and golden_coded.py.

A file has one group per folder: the attribute config (config.json), the dataset file (the bytes of
model.safetensors) and dense/NAME, matrices as the peer dequantises them.
"""

import io
import os
import sys

import h5py
import numpy as np


def write(path, golden):
    """Writes golden: {name: (config, file, {matrix: array})}."""
    buf = io.BytesIO()
    with h5py.File(buf, "w", track_order=False) as f:
        for name, (config, data, dense) in golden.items():
            g = f.create_group(name)
            g.attrs["config"] = np.bytes_(config)
            g.create_dataset("file", data=data, compression="gzip", compression_opts=9)
            for k, v in dense.items():
                g.create_dataset(f"dense/{k}", data=v, compression="gzip", compression_opts=9)
    with open(path, "wb") as out:
        out.write(buf.getvalue())


def check(path, golden):
    """Compares with the file; exits with 3 on a difference."""
    with h5py.File(path) as f:
        for name, (config, data, dense) in golden.items():
            same = f[name].attrs["config"].decode() == config and np.array_equal(f[name]["file"], data)
            if not same or not all(np.array_equal(f[name]["dense"][k], v) for k, v in dense.items()):
                print(f"{os.path.basename(sys.argv[0])}: {name} differs", file=sys.stderr)
                sys.exit(3)


def main(path, golden):
    (check if sys.argv[1:] == ["--check"] else write)(path, golden)
# SPDX-License-Identifier: Apache-2.0
