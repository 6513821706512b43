#!/usr/bin/env python3
"""Makes a cross-encoder of a masked language model of transformers: BertForSequenceClassification with one class,
whose new tensors have fixed pseudo-random numbers.

cross-encoder.py FOLDER NEW
"""
import json
import os
import random
import shutil
import struct
import sys

old, new = sys.argv[1:]
rng = random.Random(1)
shutil.copytree(old, new)
with open(os.path.join(new, "config.json")) as f:
    config = json.load(f)
config.update(architectures=["BertForSequenceClassification"], num_labels=1, id2label={"0": "LABEL_0"})
with open(os.path.join(new, "config.json"), "w") as f:
    json.dump(config, f)
if not os.path.exists(os.path.join(new, "tokenizer_config.json")):
    with open(os.path.join(new, "tokenizer_config.json"), "w") as f:
        f.write("{}")
path = os.path.join(new, "model.safetensors")
with open(path, "rb") as f:
    size, = struct.unpack("<Q", f.read(8))
    header, data = json.loads(f.read(size)), f.read()
tensors, n = {}, config["hidden_size"]
for name, t in header.items():
    if name != "__metadata__" and not name.startswith("cls."):
        tensors[name] = (t["dtype"], t["shape"], data[t["data_offsets"][0]:t["data_offsets"][1]])
for name, shape in ("bert.pooler.dense.weight", [n, n]), ("bert.pooler.dense.bias", [n]), ("classifier.weight", [1, n]), ("classifier.bias", [1]):
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    tensors[name] = ("F32", shape, struct.pack("<%df" % count, *(rng.gauss(0, 0.2) for _ in range(count))))
out, at = {}, 0
for name, (dtype, shape, raw) in tensors.items():
    out[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
    at += len(raw)
text = json.dumps(out).encode()
with open(path, "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + b"".join(raw for _, _, raw in tensors.values()))
# SPDX-License-Identifier: Apache-2.0
