#!/usr/bin/python3
"""Golden file of a gpt-oss folder whose experts are in MXFP4, as transformers unpacks them.

golden-mxfp4.h5 has the group mxfp4 (see golden_folders.py); dense/NAME are gate, up and down, the experts one below
the other, f32 [experts * out, in].

    golden_mxfp4.py            writes golden-mxfp4.h5 beside this script
    golden_mxfp4.py --check    recomputes and compares; exit status 0, 3 on a difference, 77 without transformers
"""

import json
import os
import sys

try:
    import golden_folders
    import numpy as np
    import torch
    from safetensors.torch import save
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
except ImportError as e:
    print(f"golden_mxfp4.py: needs torch, safetensors, h5py and transformers: {e}", file=sys.stderr)
    sys.exit(77)

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden-mxfp4.h5")
HIDDEN, FFN, VOCAB, EXPERTS, HEADS, DIM = 64, 32, 16, 3, 4, 8
CONFIG = dict(
    architectures=["GptOssForCausalLM"], model_type="gpt_oss", vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN,
    num_hidden_layers=1, num_attention_heads=HEADS, num_key_value_heads=2, head_dim=DIM, max_position_embeddings=32,
    num_local_experts=EXPERTS, num_experts_per_tok=2, rope_parameters=dict(rope_type="default", rope_theta=10000.0),
    quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=["lm_head"]),
)


def compute():
    rng = np.random.default_rng(7)
    p = "model.layers.0."
    tensors, dense = {}, {}

    def draw(*shape):
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32) * 0.1).bfloat16()

    for name, rows, cols in (("gate_up_proj", 2 * FFN, HIDDEN), ("down_proj", HIDDEN, FFN)):
        blocks = torch.from_numpy(rng.integers(0, 256, (EXPERTS, rows, cols // 32, 16), dtype=np.uint8))
        scales = torch.from_numpy(rng.integers(115, 131, (EXPERTS, rows, cols // 32), dtype=np.uint8))
        full = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).transpose(1, 2)  # [experts, rows, cols]
        parts = dict(gate=full[:, ::2], up=full[:, 1::2]) if name != "down_proj" else dict(down=full)
        dense.update({k: v.reshape(-1, cols).contiguous().numpy() for k, v in parts.items()})
        tensors[f"{p}mlp.experts.{name}_blocks"], tensors[f"{p}mlp.experts.{name}_scales"] = blocks, scales
        tensors[f"{p}mlp.experts.{name}_bias"] = draw(EXPERTS, rows)
    for name, rows, cols in (("q", HEADS * DIM, HIDDEN), ("k", 2 * DIM, HIDDEN), ("v", 2 * DIM, HIDDEN), ("o", HIDDEN, HEADS * DIM)):
        tensors[f"{p}self_attn.{name}_proj.weight"], tensors[f"{p}self_attn.{name}_proj.bias"] = draw(rows, cols), draw(rows)
    tensors[p + "self_attn.sinks"] = draw(HEADS)
    tensors[p + "mlp.router.weight"], tensors[p + "mlp.router.bias"] = draw(EXPERTS, HIDDEN), draw(EXPERTS)
    for key in (p + "input_layernorm", p + "post_attention_layernorm", "model.norm"):
        tensors[key + ".weight"] = torch.ones(HIDDEN).bfloat16()
    tensors["model.embed_tokens.weight"], tensors["lm_head.weight"] = draw(VOCAB, HIDDEN), draw(VOCAB, HIDDEN)
    return {"mxfp4": (json.dumps(CONFIG), np.frombuffer(save(tensors), np.uint8), dense)}


golden_folders.main(FILE, compute())
# SPDX-License-Identifier: Apache-2.0
