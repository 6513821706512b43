#!/usr/bin/env python3
"""Golden files of 4-bit Hugging Face folders, packed and unpacked by bitsandbytes.

    golden_bnb.py [--check]

Writes golden-bnb.h5 beside this script, in the layout of golden_coded.py: one group per folder with the
attribute config (config.json), the dataset file (the bytes of model.safetensors, with bitsandbytes' own keys)
and dense/NAME, two matrices as dequantised by bitsandbytes' dequantize_4bit. --check compares: exit status 3
on a difference, 77 without the packages torch, safetensors, bitsandbytes and h5py.
"""
import json
import os
import sys

try:
    import golden_folders
    import numpy as np
    import torch
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit
    from safetensors.torch import save
except ImportError:
    sys.exit(77)

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden-bnb.h5")
HIDDEN, FFN, VOCAB = 64, 64, 16
KEPT = ("self_attn.k_proj", "mlp.down_proj")  # matrices whose dense weights are stored
LINEAR = {
    "self_attn.q_proj": (320, 64), "self_attn.k_proj": (320, 64), "self_attn.v_proj": (320, 64), "self_attn.o_proj": (64, 320),
    "mlp.gate_proj": (64, 64), "mlp.up_proj": (64, 64), "mlp.down_proj": (64, 64),
}  # matrices with 320 rows have 320 blocks: two groups of scales, the second one partial. Rows are whole
# blocks, because otherwise dequantize_4bit of bitsandbytes 0.50 on the CPU does not restore the input.
CONFIG = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN,
    num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=4, head_dim=80, max_position_embeddings=32,
    rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False, hidden_act="silu", torch_dtype="bfloat16",
)
FOLDERS = {
    "nf4": ("nf4", True, torch.bfloat16), "nf4-plain": ("nf4", False, torch.float16), "fp4": ("fp4", True, torch.float32),
}


def folder(kind, double, dtype):
    rng = np.random.default_rng(11)
    tensors, dense = {}, {}

    def draw(*shape):
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32) * 0.1).to(dtype)

    for key, shape in LINEAR.items():
        q, state = quantize_4bit(draw(*shape), blocksize=64, compress_statistics=double, quant_type=kind)
        name = f"model.layers.0.{key}.weight"
        tensors[name] = q.contiguous()
        for part, t in state.as_dict(packed=True).items():
            tensors[f"{name}.{part}"] = t.contiguous()
        if key in KEPT:
            dense[key.split(".")[1]] = dequantize_4bit(q, state).float().numpy()
    for key in ("model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm", "model.norm"):
        tensors[f"{key}.weight"] = torch.ones(HIDDEN, dtype=dtype)
    tensors["model.embed_tokens.weight"] = draw(VOCAB, HIDDEN)
    tensors["lm_head.weight"] = draw(VOCAB, HIDDEN)
    quant = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": kind,
             "bnb_4bit_use_double_quant": double, "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8"}
    return json.dumps(dict(CONFIG, quantization_config=quant)), np.frombuffer(save(tensors), np.uint8), dense


golden_folders.main(FILE, {name: folder(*what) for name, what in FOLDERS.items()})
# SPDX-License-Identifier: Apache-2.0
