#!/usr/bin/env python3
"""Times PyTorch's distributed checkpoint (DCP) relative to plain system calls, as bench/ckpt.c does for dt.

    ckpt_torch.py FOLDER [MIB [TURNS]]

One process, 32 float32 tensors. write: DCP save with fsync, relative to write + fsync of a plain file. read: DCP load,
relative to a read of that file, both from the page cache."""
import os
import shutil
import statistics
import sys
import time
import warnings

if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
    asked = sys.argv[1:2] in (["-h"], ["--help"])
    print(__doc__, file=sys.stdout if asked else sys.stderr)
    sys.exit(0 if asked else 2)

del sys.path[0]  # this folder's tokenize.py would hide the standard module
try:
    import torch
    import torch.distributed.checkpoint as dcp
except ImportError as e:
    print(f"ckpt_torch.py: {e}", file=sys.stderr)
    sys.exit(77)

warnings.filterwarnings("ignore")


def timed(f):
    t = time.perf_counter()
    f()
    return time.perf_counter() - t


def plain_write(path, data):
    with open(path, "wb", buffering=0) as f:
        view = memoryview(data).cast("B")
        while len(view):
            view = view[f.write(view) :]
        os.fsync(f.fileno())


def plain_read(path, into):
    with open(path, "rb", buffering=0) as f:
        view = memoryview(into).cast("B")
        while len(view):
            view = view[f.readinto(view) :]


def main(folder, mib=256, turns=5):
    mib, turns = int(mib), int(turns)
    root = os.path.join(folder, f"bench-dcp-{os.getpid()}")
    os.makedirs(root)
    state = {f"layers.{i}.weight": torch.randn(mib * 2**20 // 32 // 4096, 1024) for i in range(32)}
    data = torch.cat(list(state.values())).numpy()
    into = torch.empty(data.size).numpy()
    w, r = [], []
    try:
        for k in range(turns):
            at = os.path.join(root, "dcp")
            shutil.rmtree(at, ignore_errors=True)
            pw = timed(lambda: plain_write(os.path.join(root, "plain"), data))
            w.append(pw / timed(lambda: dcp.save(state, checkpoint_id=at, no_dist=True)))
            pr = timed(lambda: plain_read(os.path.join(root, "plain"), into))
            r.append(pr / timed(lambda: dcp.load(state, checkpoint_id=at, no_dist=True)))
    finally:
        shutil.rmtree(root)
    print(f"DCP of PyTorch {torch.__version__}: write {statistics.median(w):.2f} of the plain speed, read {statistics.median(r):.2f} of the plain speed")


main(*sys.argv[1:])
# SPDX-License-Identifier: Apache-2.0
