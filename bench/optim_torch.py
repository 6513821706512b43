#!/usr/bin/env python3
"""Times AdamW of dt, of PyTorch (fused and foreach) and of DeepSpeed (CPUAdam, if installed), in turns, in CPU time.

    optim_torch.py build/bench/kernels [TURNS]

One thread each, 16 Mi float32 parameters. A step also writes a bfloat16 copy of the parameters, which dt does in the same
pass. Prints nanoseconds per element, the minimum over all turns, and ratios to dt's."""
import re
import subprocess
import sys
import time

if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
    asked = sys.argv[1:2] in (["-h"], ["--help"])
    print(__doc__, file=sys.stdout if asked else sys.stderr)
    sys.exit(0 if asked else 2)

del sys.path[0]  # this folder's tokenize.py would hide the standard module
try:
    import torch
except ImportError as e:
    print(f"optim_torch.py: {e}", file=sys.stderr)
    sys.exit(77)

try:  # compiles its code at first use; needs DS_ACCELERATOR=cpu, a C++ compiler and ninja
    from deepspeed.ops.adam import DeepSpeedCPUAdam
except ImportError:
    DeepSpeedCPUAdam = None

N = 16 << 20


def ours(kernels):
    out = subprocess.run([kernels, "1", "0.3", "optim"], check=True, capture_output=True, text=True).stdout
    return float(re.search(r"optim_step .* f32\s+([0-9.]+)", out).group(1)) * 1e6 / N


def theirs(kind):
    p = torch.zeros(N, requires_grad=True)
    p.grad = torch.full((N,), 1e-3)
    copy = torch.empty(N, dtype=torch.bfloat16)
    how = {"lr": 1e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}
    if kind == "deepspeed":
        optim = DeepSpeedCPUAdam([p], adamw_mode=True, **how)
    else:
        optim = torch.optim.AdamW([p], **how, **{kind: True})
    best = float("inf")
    for _ in range(6):
        start = time.process_time()
        optim.step()
        copy.copy_(p.detach())
        best = min(best, time.process_time() - start)
    return best * 1e9 / N


def main():
    torch.set_num_threads(1)
    turns = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    best = {}
    for _ in range(turns):
        for name in ("dt", "fused", "foreach") + (("deepspeed",) if DeepSpeedCPUAdam else ()):
            ns = ours(sys.argv[1]) if name == "dt" else theirs(name)
            best[name] = min(ns, best.get(name, ns))
    for name, ns in best.items():
        print(f"{name:8} {ns:6.2f} ns per element, {ns / best['dt']:.2f} times dt's")


main()
# SPDX-License-Identifier: Apache-2.0
