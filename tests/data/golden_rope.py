#!/usr/bin/env python3
"""Prints rope_scaling as computed by transformers: angles per position for every pair, and the factor of cos
and sin.

The output is included in tests/unit/test_rope.c. Needs transformers (tested with 5.23).
"""
import json
import sys

import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

SHORT, LONG = [1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 1.75, 2.0], [1.08, 1.25, 1.7, 2.5, 4.0, 9.5, 20.25, 32.0]
CASES = [
    (None, 64),
    ({"rope_type": "linear", "factor": 4.0}, 64),
    ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 64}, 512),
    ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, 256),
    ({"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 64, "beta_fast": 8.0, "beta_slow": 0.5,
      "attention_factor": 1.5}, 1024),
    ({"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 0.707,
      "mscale_all_dim": 1.0}, 163840),
    ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "truncate": False}, 256),
    ({"rope_type": "dynamic", "factor": 4.0}, 64),
    ({"rope_type": "longrope", "original_max_position_embeddings": 64, "short_factor": SHORT, "long_factor": LONG}, 256),
    ({"rope_type": "longrope", "original_max_position_embeddings": 256, "short_factor": SHORT, "long_factor": LONG,
      "attention_factor": 1.125}, 512),
    ({"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 16}, 64),
]

for scaling, length in CASES:
    c = LlamaConfig(hidden_size=64, num_attention_heads=4, head_dim=16, max_position_embeddings=length)
    c.rope_parameters = dict(scaling or {"rope_type": "default"}, rope_theta=10000.0)
    kind = c.rope_parameters["rope_type"]
    if kind == "default":
        freq, factor = 10000.0 ** -(torch.arange(0, 16, 2, dtype=torch.float64) / 16), 1.0
    else:
        freq, factor = ROPE_INIT_FUNCTIONS[kind](c, "cpu", 150 if kind in ("dynamic", "longrope") else None)
    text = json.dumps(json.dumps(scaling)) if scaling else "NULL"
    print("{%s, %d, %s, {%s}}," % (text, length, repr(float(factor)), ", ".join("%.9g" % float(f) for f in freq)))
    sys.stdout.flush()
# SPDX-License-Identifier: Apache-2.0
