#!/usr/bin/env python3
"""Writes a tokenizer.json from the vocabulary and merges of a GGUF file (GPT-2's byte-level BPE)."""
import json
import struct
import sys

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def scalar(self, fmt):
        (v,) = struct.unpack_from("<" + fmt, self.data, self.at)
        self.at += struct.calcsize("<" + fmt)
        return v

    def string(self):
        n = self.scalar("Q")
        s = self.data[self.at : self.at + n].decode("utf-8", "surrogateescape")
        self.at += n
        return s

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            inner, n = self.scalar("I"), self.scalar("Q")
            return [self.value(inner) for _ in range(n)]
        return self.scalar(SCALARS[kind])


def main(path, out):
    r = Reader(open(path, "rb").read())
    assert r.data[:4] == b"GGUF", "not a GGUF file"
    r.at = 8
    r.scalar("Q")
    kv = {}
    for _ in range(r.scalar("Q")):
        key = r.string()
        kv[key] = r.value(r.scalar("I"))
    tokens = kv["tokenizer.ggml.tokens"]
    kinds = kv.get("tokenizer.ggml.token_type", [1] * len(tokens))
    control = [i for i, k in enumerate(kinds) if k == 3]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    json.dump(
        {
            "version": "1.0",
            "added_tokens": [{"id": i, "content": tokens[i], **flags} for i in control],
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "vocab": {t: i for i, t in enumerate(tokens)},
                "merges": kv["tokenizer.ggml.merges"],
            },
        },
        open(out, "w"),
    )


main(*sys.argv[1:3])
# SPDX-License-Identifier: Apache-2.0
