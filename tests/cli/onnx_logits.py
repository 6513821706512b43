#!/usr/bin/env python3
"""Compares the outputs of an exported model under onnxruntime with dt-eval's outputs of the source model.

    onnx_logits.py text MODEL.onnx TEXT NLL         mean negative log-likelihood of bytes 1 .. of TEXT, one
    window onnx_logits.py make                             writes a.idx, l.idx (28 x 28, grey) and c.bin
    (CIFAR-10): 24 images each onnx_logits.py images MODEL.onnx a.idx|c.bin PREDICTIONS.jsonl   probabilities
    of the classes listed there

Exit status: 0 within a tolerance of 1e-4, 1 not, 77 without onnxruntime or numpy.
"""
import json
import struct
import sys

try:
    import numpy as np
    import onnxruntime
except ImportError as e:
    print(e, file=sys.stderr)
    sys.exit(77)


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def text(session, path, want):
    ids = np.frombuffer(open(path, "rb").read(), np.uint8).astype(np.int64)
    both = np.stack([ids, ids[::-1]])  # a second sequence in the batch must not change the first
    rows = log_softmax(session.run(None, {"input_ids": both})[0])[0]
    got = -rows[np.arange(len(ids) - 1), ids[1:]].mean()
    print(f"nll {got:.7f}, dt-eval {float(want):.7f}")
    return abs(got - float(want))


def make():
    rng = np.random.default_rng(1)
    labels = np.arange(24) % 3
    for channels, side in ((1, 28), (3, 32)):
        x = rng.integers(0, 60, (24, channels, side, side))
        for i, k in enumerate(labels):
            x[i, :, :, 9 * k : 9 * k + 9] += 3 * i + 80
        x = x.astype(np.uint8)
        if channels == 1:
            open("a.idx", "wb").write(struct.pack(">IIII", 2051, 24, side, side) + x.tobytes())
            open("l.idx", "wb").write(struct.pack(">II", 2049, 24) + labels.astype(np.uint8).tobytes())
        else:
            open("c.bin", "wb").write(b"".join(bytes([k]) + y.tobytes() for k, y in zip(labels, x)))


def images(session, data, predictions):
    meta = json.loads(session.get_modelmeta().custom_metadata_map["images"])
    raw = np.frombuffer(open(data, "rb").read(), np.uint8)
    raw = raw[16:].reshape(24, 1, 28, 28) if data.endswith(".idx") else raw.reshape(24, 3073)[:, 1:].reshape(24, 3, 32, 32)
    pixels = raw.astype(np.float32) / 255
    shape = (1, -1, 1, 1)
    x = (pixels - np.reshape(meta["mean"], shape)) / np.reshape(meta["deviation"], shape)
    p = np.exp(log_softmax(session.run(None, {"pixels": x.astype(np.float32)})[0]))
    worst = 0
    for line in map(json.loads, open(predictions)):
        given = line["given"]
        k = meta["classes"].index(given) if isinstance(given, str) else given
        worst = max(worst, abs(p[line["image"], k] - line["probability"]))
    print(f"probabilities differ by {worst:.2e}")
    return worst


if sys.argv[1] == "make":
    make()
    sys.exit()
session = onnxruntime.InferenceSession(sys.argv[2])
sys.exit(not (text if sys.argv[1] == "text" else images)(session, *sys.argv[3:]) < 1e-4)
# SPDX-License-Identifier: Apache-2.0
