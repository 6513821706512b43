#!/usr/bin/python3
"""Writes the seed files of tests/fuzz/corpus: make_corpus.py DT-SHARD-CKPT. Small models in every format.

tokenizer_file/small.model is apart: SentencePiece's library trained it, 275 pieces of BPE with byte fallback."""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def split(scope, model, to):
    """One file for fuzz_gguf_split.c: the length of the first part, the first, the second."""
    scope["split"](model + ".gguf", model, 2)
    parts = [open(f"{model}-0000{i}-of-00002.gguf", "rb").read() for i in (1, 2)]
    with open(to, "wb") as f:
        f.write(struct.pack("<I", len(parts[0])) + parts[0] + parts[1])


def main(tool):
    source = open(os.path.join(HERE, "../cli/convert.py")).read()
    source = re.sub(r"^H, HEADS.*$", "H, HEADS, KV, D, F, L, V, T = 32, 2, 1, 16, 32, 1, 40, 8", source, flags=re.M)
    source = source[: source.rindex("globals()")]
    scope = {"__name__": "corpus"}
    exec(source, scope)
    out = os.path.join(HERE, "corpus")
    with tempfile.TemporaryDirectory() as tmp:
        for family in ["gpt2", "llama", "qwen2", "qwen3"]:
            folder = os.path.join(tmp, family)
            scope["make"](family, "BF16", folder)
            run = lambda *a: subprocess.run([tool, "convert", *a], check=True, capture_output=True)
            for d in ["gguf", "gguf_split", "safetensors", "config", "bin", "manifest"]:
                os.makedirs(os.path.join(out, d), exist_ok=True)
            shutil.copy(os.path.join(folder, "config.json"), os.path.join(out, "config", family + ".json"))
            st = os.path.join(folder, "model.safetensors")
            shutil.copy(st, os.path.join(out, "safetensors", family))
            run("--type", "q8_0", folder, os.path.join(tmp, family + ".gguf"))
            shutil.copy(os.path.join(tmp, family + ".gguf"), os.path.join(out, "gguf", family))
            split(scope, os.path.join(tmp, family), os.path.join(out, "gguf_split", family))
            run("--type", "bf16", "--compress", folder, os.path.join(tmp, family + "-dt"))
            m = os.path.join(tmp, family + "-dt/latest/manifest.json")
            shutil.copy(m, os.path.join(out, "manifest", family + ".json"))
            own = json.load(open(m))["model"]
            json.dump(own, open(os.path.join(out, "config", family + "-own.json"), "w"))
        if os.path.exists(os.path.join(out, "bin", "llmc")):
            os.remove(os.path.join(out, "bin", "llmc"))
        run("--to", "llmc", os.path.join(tmp, "gpt2"), os.path.join(out, "bin", "llmc"))
    tok = os.path.join(out, "tokenizer")
    os.makedirs(tok, exist_ok=True)
    alphabet = [chr(c) for c in list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))] + [
        chr(256 + i) for i in range(68)]
    vocab = {c: i for i, c in enumerate(alphabet)} | {"He": 256, "ll": 257, "Hell": 258}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    json.dump({"version": "1.0", "added_tokens": [{"id": 259, "content": "</s>", "special": True, "normalized": False,
                                                  "lstrip": False, "rstrip": False, "single_word": False}],
               "normalizer": {"type": "NFC"}, "pre_tokenizer": level, "post_processor": None, "decoder": level,
               "model": {"type": "BPE", "vocab": vocab, "merges": ["H e", ["l", "l"], "He ll"]}},
              open(os.path.join(tok, "small.json"), "w"))


main(sys.argv[1])
