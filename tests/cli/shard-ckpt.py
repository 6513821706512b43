#!/usr/bin/python3
"""Checks a checkpoint made by make-ckpt with h5py alone against the formula of its elements.

shard-ckpt.py FOLDER SEED [bf16]: reads whole tensors by name through index.h5; exit status 77 without h5py.
shard-ckpt.py --manual PAGE FOLDER: runs the example of dt-checkpoint(5), which reads bytes, and compares its
result with index.h5 and with the datasets of the shards, found by the names that the page documents.
"""
import json
import re
import subprocess
import sys

try:
    import h5py
    import numpy as np
except ImportError:
    sys.exit(77)


def value(seed, name, n):
    h = 2166136261
    for c in name.encode():
        h = (h ^ c) * 16777619 & 0xFFFFFFFF
    i = np.arange(n, dtype=np.uint64)
    x = (np.uint64(h * 2654435761 & 0xFFFFFFFF) + i * np.uint64(40503) + np.uint64(seed * 97)) & np.uint64(0xFFFFFFFF)
    return ((x % np.uint64(20011)).astype(np.float32) / np.float32(1024) - np.float32(9)).astype(np.float32)


def to_bf16(x):
    u = x.view(np.uint32).astype(np.uint64)
    return ((u + np.uint64(0x7FFF) + (u >> np.uint64(16) & np.uint64(1))) & np.uint64(0xFFFF0000)).astype(np.uint32).view(np.float32)


def check_values(folder, seed, bf16):
    names = []
    with h5py.File(folder + "/index.h5", "r") as f:
        f.visititems(lambda n, o: names.append(n) if isinstance(o, h5py.Dataset) else None)
        listed = json.load(open(folder + "/manifest.json"))["tensors"]
        assert sorted(names) == sorted(t["name"] for t in listed), "index and manifest list other tensors"
        for name in names:
            got = f[name][...].astype(np.float32)
            want = value(seed, name, got.size).reshape(got.shape)
            if bf16 and name.startswith("model/"):
                want = to_bf16(want)
            assert np.array_equal(got, want), name
    print(len(names), "tensors as expected")


def by_dataset(folder):
    """Assembles whole tensors from the datasets of the shards, as the page's section Shards describes."""
    manifest = json.load(open(folder + "/manifest.json"))
    shards = [h5py.File(f"{folder}/{f['name']}", "r") for f in manifest["files"]]
    for tensor in manifest["tensors"]:
        whole = np.full(tensor["shape"], np.nan, np.float64)
        for piece in tensor["pieces"]:
            data = shards[piece["file"]][tensor["name"] + "@" + ",".join(map(str, piece["offset"]))]
            assert list(data.shape) == piece["shape"], tensor["name"]
            if "filter" in piece:
                assert data.chunks == data.shape and data.shuffle and data.compression == "gzip", tensor["name"]
                assert data.id.get_storage_size() == piece["stored_bytes"], tensor["name"]
            else:
                assert data.chunks is None and data.id.get_offset() == piece["at"], tensor["name"]
            whole[tuple(slice(o, o + s) for o, s in zip(piece["offset"], piece["shape"]))] = data[...]
        yield tensor["name"], whole


def check_manual(page, folder):
    text = subprocess.run(["mandoc", "-T", "utf8", "-O", "width=200", page], capture_output=True, check=True).stdout.decode()
    text = re.sub(".\b", "", text)
    lines = text[text.index("EXAMPLES"):].splitlines()
    start = next(i for i, l in enumerate(lines) if l.strip().startswith("import json"))
    indent = len(lines[start]) - len(lines[start].lstrip())
    code = []
    for l in lines[start:]:
        if l.strip() and len(l) - len(l.lstrip()) < indent:
            break
        code.append(l[indent:])
    scope = {"__name__": "manual"}
    exec("\n".join(code), scope)
    n = 0
    with h5py.File(folder + "/index.h5", "r") as f:
        for name, got in scope["read_checkpoint"](folder):
            assert np.array_equal(np.asarray(got, dtype=np.float32), f[name][...].astype(np.float32)), name
            n += 1
    for (name, got), (other, whole) in zip(scope["read_checkpoint"](folder), by_dataset(folder), strict=True):
        assert name == other and np.array_equal(np.asarray(got, dtype=np.float64), whole), name
    assert n > 0
    print(n, "tensors read by the example")


if sys.argv[1] == "--manual":
    check_manual(sys.argv[2], sys.argv[3])
else:
    check_values(sys.argv[1], int(sys.argv[2]), "bf16" in sys.argv[3:])
# SPDX-License-Identifier: Apache-2.0
