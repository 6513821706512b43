#!/usr/bin/python3
"""Golden results of the reference implementations of GPTQ (AutoGPTQ 0.7's class GPTQ) and AWQ (AutoAWQ 0.2's
search) on one layer.

golden-rounding.h5: w f32 [out, in], x f32 [rows, in], and the quantised w, f32 [out, in]: gptq, gptq-act
(columns with the largest inputs first, groups unchanged), awq. All with 4 bits, symmetric, in groups of 32.

    golden_rounding.py            writes golden-rounding.h5 beside this script
    golden_rounding.py --check    recomputes and compares; exit status 0, 3 on a difference, 77 without the
    peers

PYTHONPATH names folders with the peers' packages unpacked.
"""

import importlib.util
import logging
import os
import sys
import types

try:
    import h5py
    import numpy as np
    import torch
    import transformers
    import transformers.pytorch_utils
except ImportError as e:
    print(f"golden_rounding.py: needs torch, transformers and h5py: {e}", file=sys.stderr)
    sys.exit(77)

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden-rounding.h5")
OUT, IN, ROWS, GROUP = 24, 128, 256, 32


def find(path):
    for root in sys.path:
        if os.path.exists(os.path.join(root, path)):
            return os.path.join(root, path)
    print(f"golden_rounding.py: no {path} on the path", file=sys.stderr)
    sys.exit(77)


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, find(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def gptq(w, x, act):
    for name in "auto_gptq", "auto_gptq.quantization":
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    transformers.Conv1D = transformers.pytorch_utils.Conv1D
    torch.cuda.synchronize = lambda: None
    load("auto_gptq.quantization.quantizer", "auto_gptq/quantization/quantizer.py")
    cls = load("auto_gptq.quantization.gptq", "auto_gptq/quantization/gptq.py").GPTQ
    layer = torch.nn.Linear(IN, OUT, bias=False)
    layer.weight.data = w.clone()
    g = cls(layer)
    g.quantizer.configure(4, perchannel=True, sym=True, mse=False)
    g.add_batch(x, None)
    g.fasterquant(percdamp=0.01, group_size=GROUP, actorder=act, static_groups=act)
    return layer.weight.data


def awq(w, x):
    """Returns the two functions of AutoAWQ's quantizer that search, unchanged from its file."""
    import ast

    path = find("awq/quantize/quantizer.py")
    tree = ast.parse(open(path).read())
    wanted = {"pseudo_quantize_tensor", "_compute_best_scale", "_compute_loss", "_module_forward"}
    cls = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "AwqQuantizer")
    cls.body = [n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name in wanted]
    cls.bases = []
    import typing

    scope = {"torch": torch, "nn": torch.nn, "logging": logging, **{k: getattr(typing, k) for k in ("Dict", "List", "Optional", "Tuple")}}
    exec(compile(ast.Module([cls], []), path, "exec"), scope)
    q = scope["AwqQuantizer"]()
    q.group_size, q.w_bit, q.zero_point, q.duo_scaling = GROUP, 4, False, False
    q.max_chunk_memory, q.n_parallel_calib_samples = 1 << 30, None
    layer = torch.nn.Linear(IN, OUT, bias=False)
    layer.weight.data = w.clone()
    layer.weight.requires_grad_(False)
    torch.Tensor.cpu = torch.Tensor.clone  # from a GPU, cpu() copies, which the search relies on
    with torch.no_grad():
        s = q._compute_best_scale(x, torch.ones(IN), x.abs().mean(0), layer, [layer], layer(x), {}).view(1, -1)
        return q.pseudo_quantize_tensor(w * s)[0] / s


def compute():
    rng = np.random.default_rng(5)
    w = rng.standard_normal((OUT, IN)) * rng.gamma(2.0, 0.5, (1, IN)) * 0.05
    # correlated inputs, some of them large
    x = rng.standard_normal((ROWS, 12)) @ rng.standard_normal((12, IN)) + rng.standard_normal((ROWS, IN))
    x *= np.where(rng.random(IN) < 0.05, 8.0, 1.0) * rng.gamma(4.0, 0.25, IN)
    w, x = torch.from_numpy(w.astype(np.float32)), torch.from_numpy(x.astype(np.float32))
    return {"w": w, "x": x, "gptq": gptq(w, x, False), "gptq-act": gptq(w, x, True), "awq": awq(w, x)}


def main():
    golden = {k: v.detach().numpy() for k, v in compute().items()}
    if sys.argv[1:] == ["--check"]:
        with h5py.File(FILE) as f:
            for k, v in golden.items():
                # another order of summation in a product can change a value near the middle between two codes
                if np.abs(f[k][:] - v).max() > 1e-5 and np.mean(np.abs(f[k][:] - v) > 1e-5) > 0.01:
                    print(f"golden_rounding.py: {k} differs", file=sys.stderr)
                    sys.exit(3)
        return
    with h5py.File(FILE, "w", track_order=False) as f:
        for k, v in golden.items():
            f.create_dataset(k, data=v, compression="gzip", compression_opts=9)
    d = {k: (v - golden["w"]) @ golden["x"].T for k, v in golden.items() if k not in ("w", "x")}
    print({k: float((v * v).mean()) for k, v in d.items()})


if __name__ == "__main__":
    main()
# SPDX-License-Identifier: Apache-2.0
