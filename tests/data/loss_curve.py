#!/usr/bin/env python3
"""Records loss-week.txt.gz: loss and gradient norm of each step of a long run without faults on real text,
for the test of the spike detector. One line per step, both in thousandths. 40320 steps, a week at 15 s per
step; about half an hour on one core.

loss_curve.py TOOLS TEXT [OUT]      TOOLS: a folder with dt-dataset and dt-train
loss_curve.py --pack METRICS OUT    from the metrics of a run already made with the same commands

The text was the 73 public-domain books of mlschmitt/classic-books-markdown (9448827), 52.6 MB. A batch has 32
sequences of 64 bytes: with four, some steps have a loss 25 spreads above the median, because a page of
numbers is a quarter of the batch. """
import gzip
import json
import os
import subprocess
import sys
import tempfile

MODEL = {"model_type": "llama", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
         "rope_theta": 10000}


def pack(metrics, out):
    with open(metrics) as f:
        steps = [m for m in map(json.loads, f) if "loss" in m]
    text = "".join(f"{round(1000 * m['loss'])} {round(1000 * m['grad_norm'])}\n" for m in steps)
    with open(out, "wb") as f:
        f.write(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{out}: {len(steps)} steps, {os.path.getsize(out)} bytes")


def record(tools, text, out):
    with tempfile.TemporaryDirectory() as folder:
        model, data, metrics = (os.path.join(folder, name) for name in ("small.json", "d.h5", "m.jsonl"))
        with open(model, "w") as f:
            json.dump(MODEL, f)
        subprocess.run([f"{tools}/dt-dataset", "build", "--tokenizer", "byte", "--out", data, text], check=True)
        subprocess.run([f"{tools}/dt-train", "--model", model, "--data", data, "--seq", "64", "--global-batch", "32",
                        "--microbatch", "32", "--threads", "1", "--no-mfu", "--steps", "40320", "--lr", "2e-3", "--warmup",
                        "1000", "--metrics", metrics, "--progress", "off"], check=True,
                       env=dict(os.environ, OMP_NUM_THREADS="1"))
        pack(metrics, out)


if len(sys.argv) == 4 and sys.argv[1] == "--pack":
    pack(sys.argv[2], sys.argv[3])
elif len(sys.argv) in (3, 4):
    record(sys.argv[1], sys.argv[2],
           sys.argv[3] if len(sys.argv) == 4 else os.path.join(os.path.dirname(os.path.realpath(__file__)), "loss-week.txt.gz"))
else:
    sys.exit(__doc__)
# SPDX-License-Identifier: Apache-2.0
