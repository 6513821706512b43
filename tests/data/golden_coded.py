#!/usr/bin/python3
"""Golden files of quantised Hugging Face folders, packed and unpacked by AutoGPTQ 0.7 and AutoAWQ 0.2.

golden-coded.h5 has one group per folder: the attribute config (config.json), the dataset file (the bytes of
model.safetensors) and dense/NAME, two matrices as the peer's own layer computes them, f32 [out, in] (a
product with the identity). The fp8 folder is packed with PyTorch's float8_e4m3fn; its dense matrices are the
decoded values times the block's scale.

    golden_coded.py            writes golden-coded.h5 beside this script
    golden_coded.py --check    recomputes and compares; exit status 0, 3 on a difference, 77 without the peers

The parts of the peers' packages used here need only PyTorch; PYTHONPATH may name folders where they are
unpacked. """

import importlib.util
import json
import os
import sys
import types

try:
    import golden_folders
    import numpy as np
    import torch
    from safetensors.torch import save
except ImportError as e:
    print(f"golden_coded.py: needs torch, safetensors and h5py: {e}", file=sys.stderr)
    sys.exit(77)

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden-coded.h5")
HIDDEN, FFN, VOCAB = 64, 32, 16
KEPT = ("self_attn.k_proj", "mlp.down_proj")  # matrices whose dense weights are stored
LINEAR = {
    "self_attn.q_proj": (32, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64), "self_attn.o_proj": (64, 32),
    "mlp.gate_proj": (32, 64), "mlp.up_proj": (32, 64), "mlp.down_proj": (64, 32),
}
CONFIG = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN,
    num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=4, head_dim=8, max_position_embeddings=32, rms_norm_eps=1e-5,
    rope_theta=10000.0, tie_word_embeddings=False, hidden_act="silu", torch_dtype="float16",
)


def load(package, path, stubs=()):
    """Imports one file of a package, without the rest of the package."""
    for root in sys.path:
        file = os.path.join(root, package, path)
        if os.path.exists(file):
            break
    else:
        print(f"golden_coded.py: no {package}/{path} on the path", file=sys.stderr)
        sys.exit(77)
    for name, members in stubs:
        module = types.ModuleType(name)
        module.__dict__.update(members)
        sys.modules[name] = module
    spec = importlib.util.spec_from_file_location(path.replace("/", "_")[:-3], file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def params(w, bits, group, sym):
    """Returns scales and zero points [out, groups] from the minimum and maximum of each group."""
    out, cols = w.shape
    g = w.reshape(out, cols // group, group)
    top = 2**bits - 1
    if sym:
        scale = g.abs().amax(2) * 2 / top
        zero = torch.full_like(scale, (top + 1) / 2)
    else:
        lo, hi = g.amin(2).clamp(max=0), g.amax(2).clamp(min=0)
        scale = (hi - lo) / top
        zero = torch.round(-lo / scale).clamp(1, top)
    return scale.half().float(), zero


def rounded(w, scale, zero, g_idx, bits):
    s, z = scale[:, g_idx], zero[:, g_idx]
    return s * (torch.clamp(torch.round(w / s) + z, 0, 2**bits - 1) - z)


def gptq(w, bits, group, sym, act, cls):
    group = w.shape[1] if group < 0 else group
    scale, zero = params(w, bits, group, sym)
    g_idx = torch.arange(w.shape[1]) // group
    if act:
        g_idx = g_idx[torch.from_numpy(np.random.default_rng(3).permutation(w.shape[1]))]
    lin = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
    lin.weight.data = rounded(w, scale, zero, g_idx, bits)
    q = cls(bits, group, w.shape[1], w.shape[0], False, weight_dtype=torch.float32)
    q.pack(lin, scale, zero, g_idx.to(torch.int32))
    q.autogptq_cuda_available = False
    q.eval()
    with torch.no_grad():
        dense = q(torch.eye(w.shape[1])).T.contiguous()
    t = {"qweight": q.qweight, "qzeros": q.qzeros, "scales": q.scales.half(), "g_idx": q.g_idx.to(torch.int32)}
    return t, dense


def awq(w, group, module):
    scale, zero = params(w, 4, group, False)
    lin = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
    lin.weight.data = rounded(w, scale, zero, torch.arange(w.shape[1]) // group, 4)
    q = module.WQLinear_GEMM.from_linear(lin, 4, group, scales=scale.T.contiguous(), zeros=zero.T.contiguous())
    dense = module.dequantize_gemm(q.qweight, q.qzeros, q.scales, 4, group).T.float().contiguous()
    return {"qweight": q.qweight, "qzeros": q.qzeros, "scales": q.scales}, dense


def fp8(w, block):
    out, cols = w.shape
    tiles = w.reshape(out // block, block, cols // block, block)
    scale = tiles.abs().amax((1, 3)) / 448
    q = (tiles / scale[:, None, :, None]).reshape(out, cols).to(torch.float8_e4m3fn)
    dense = (q.float().reshape(tiles.shape) * scale[:, None, :, None]).reshape(out, cols)
    return {"weight": q, "weight_scale_inv": scale}, dense


def folders():
    import transformers.pytorch_utils  # the peers expect it to be imported
    del transformers
    cls = load("auto_gptq", "nn_modules/qlinear/qlinear_cuda.py").QuantLinear
    packing = load("awq", "utils/packing_utils.py")
    module = load("awq", "modules/linear/gemm.py", [
        ("awq", {}), ("awq.utils", {}), ("awq.utils.module", {"try_import": lambda name: (None, "")}),
        ("awq.utils.utils", {"get_best_device": lambda: "cpu"}),
        ("awq.utils.packing_utils", {"dequantize_gemm": packing.dequantize_gemm}),
    ])
    q = {"quant_method": "gptq", "desc_act": False}
    return {
        "gptq4": (lambda w: gptq(w, 4, 32, True, False, cls), dict(q, bits=4, group_size=32, sym=True)),
        "gptq4-asym": (lambda w: gptq(w, 4, 32, False, False, cls), dict(q, bits=4, group_size=32, sym=False)),
        "gptq4-row": (lambda w: gptq(w, 4, -1, True, False, cls), dict(q, bits=4, group_size=-1, sym=True)),
        "gptq4-act": (lambda w: gptq(w, 4, 32, False, True, cls),
                      dict(q, bits=4, group_size=32, sym=False, desc_act=True)),
        "gptq8": (lambda w: gptq(w, 8, 32, True, False, cls), dict(q, bits=8, group_size=32, sym=True)),
        "gptq3": (lambda w: gptq(w, 3, 32, False, False, cls), dict(q, bits=3, group_size=32, sym=False)),
        "gptq2": (lambda w: gptq(w, 2, 32, False, False, cls), dict(q, bits=2, group_size=32, sym=False)),
        "awq": (lambda w: awq(w, 32, module),
                {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}),
        "fp8": (lambda w: fp8(w, 32), {"quant_method": "fp8", "weight_block_size": [32, 32]}),
    }


def compute():
    ret = {}
    for name, (pack, quant) in folders().items():
        rng = np.random.default_rng(11)
        tensors, dense = {}, {}

        def draw(*shape):
            return torch.from_numpy(rng.standard_normal(shape).astype(np.float32) * 0.1)

        for key, shape in LINEAR.items():
            parts, d = pack(draw(*shape))
            if key in KEPT:
                dense[key.split(".")[1]] = d.float().numpy()
            for part, t in parts.items():
                tensors[f"model.layers.0.{key}.{part}"] = t.contiguous()
        for key in ("model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm", "model.norm"):
            tensors[f"{key}.weight"] = torch.ones(HIDDEN, dtype=torch.float16)
        tensors["model.embed_tokens.weight"] = draw(VOCAB, HIDDEN).half()
        tensors["lm_head.weight"] = draw(VOCAB, HIDDEN).half()
        ret[name] = (json.dumps(dict(CONFIG, quantization_config=quant)), np.frombuffer(save(tensors), np.uint8), dense)
    return ret


golden_folders.main(FILE, compute())
# SPDX-License-Identifier: Apache-2.0
