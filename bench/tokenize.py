#!/usr/bin/env python3
"""Compares dt-tokenize with Hugging Face's tokenizers: speed of encoding and of training, and equality of ids and merges.

    pip install tokenizers; python3 bench/tokenize.py BUILD/tools/dt-tokenize TOKENIZER.json TEXT

One thread each, best of three, all in one run. dt's time is the process time minus the time to load the tokenizer."""
import json
import os
import subprocess
import sys
import tempfile
import time

if len(sys.argv) < 4 or sys.argv[1] in ("-h", "--help"):
    asked = sys.argv[1:2] in (["-h"], ["--help"])
    print(__doc__, file=sys.stdout if asked else sys.stderr)
    sys.exit(0 if asked else 2)

os.environ["TOKENIZERS_PARALLELISM"] = "false"
try:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
except ImportError as e:
    print(f"tokenize.py: {e}", file=sys.stderr)
    sys.exit(77)

tool, spec, path = sys.argv[1:4]
text = open(path, encoding="utf-8", errors="ignore", newline="").read(5_000_000)
raw = text.encode()
docs = [text[i : i + 4000] for i in range(0, len(text), 4000)]


def best(f, n=3):
    times = []
    for _ in range(n):
        t = time.perf_counter()
        f()
        times.append(time.perf_counter() - t)
    return min(times)


def dt(*args, **kw):
    return subprocess.run([tool, *args], check=True, capture_output=True, **kw).stdout


def encoding():
    peer = Tokenizer.from_file(spec)
    records = b"".join(d.encode() + b"\0" for d in docs)
    want = [e.ids for e in peer.encode_batch_fast(docs, add_special_tokens=False)]
    got = [list(map(int, line.split())) for line in dt("encode", "-z", "--special", "-t", spec, input=records).splitlines()]
    load = best(lambda: dt("info", "-t", spec))
    ours = best(lambda: dt("encode", "--special", "--binary", "i32", "-t", spec, input=raw)) - load
    theirs = best(lambda: peer.encode_batch_fast(docs, add_special_tokens=False))
    mb = len(raw) / 1e6
    print(f"encode: dt {mb / ours:.1f} MB/s, tokenizers {mb / theirs:.1f} MB/s, ratio {theirs / ours:.1f}; "
          f"ids {'equal' if want == got else 'DIFFER'} in {len(docs)} documents")


def training(vocab=8000):
    def peer():
        tok = Tokenizer(models.BPE())
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=vocab, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        tok.train_from_iterator([text], trainer)
        return tok

    with tempfile.TemporaryDirectory() as d:
        src, out = os.path.join(d, "text"), os.path.join(d, "tok.json")
        open(src, "wb").write(raw)
        ours = best(lambda: dt("train", "--vocab", str(vocab), "--out", out, src))
        got = [tuple(m.split(" ")) for m in json.load(open(out))["model"]["merges"]]
    theirs = best(peer, 1)
    want = [tuple(m.split(" ") if isinstance(m, str) else m) for m in json.loads(peer().to_str())["model"]["merges"]]
    print(f"train {vocab}: dt {ours:.2f} s, tokenizers {theirs:.2f} s, ratio {theirs / ours:.1f}; "
          f"merges {'equal' if want == got else 'DIFFER'}")


encoding()
training()
# SPDX-License-Identifier: Apache-2.0
