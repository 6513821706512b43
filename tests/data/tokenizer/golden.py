#!/usr/bin/env python3
"""Makes the tokenizers of this folder with dt-tokenize and golden.json with Hugging Face's library.

    pip install tokenizers; python3 golden.py BUILD/tools/dt-tokenize

golden.json: for each tokenizer the ids of each text, with and without its special tokens recognised.
"""
import json
import pathlib
import random
import subprocess
import sys
import unicodedata

from tokenizers import Tokenizer

here = pathlib.Path(__file__).parent
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def train(name, *args):
    path = here / f"{name}.json"
    subprocess.run([sys.argv[1], "train", "--out", path, *args, here / "corpus.txt"], check=True)
    return json.loads(path.read_text())


def save(name, tok):
    (here / f"{name}.json").write_text(json.dumps(tok, ensure_ascii=False, separators=(",", ":")) + "\n")


def added(tok, content, **flags):
    n = max([*tok["model"]["vocab"].values(), *(a["id"] for a in tok["added_tokens"])]) + 1
    tok["added_tokens"].append({"id": n, "content": content, **FLAGS, **flags})
    return n


def make():
    tok = train("gpt2", "--vocab", "512")
    save("gpt2", tok)

    tok = train("llama3", "--vocab", "512", "--pattern", "llama3", "--special-token", "<|end_of_text|>")
    # a word that no merges produce: only ignore_merges finds it (its id must be below the added tokens')
    end = tok["added_tokens"].pop()
    tok["model"]["ignore_merges"] = True
    tok["model"]["vocab"]["Ġxylophone"] = end["id"]
    added(tok, end["content"])
    bos = added(tok, "<|begin_of_text|>")
    added(tok, "<mask>", lstrip=True, rstrip=True)
    added(tok, "\t\t", special=False)
    added(tok, "\t\t\t", special=False)
    tok["post_processor"] = {
        "type": "Sequence",
        "processors": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
            {
                "type": "TemplateProcessing",
                "single": [
                    {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}},
                ],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {
                    "<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [bos], "tokens": ["<|begin_of_text|>"]}
                },
            },
        ],
    }
    save("llama3", tok)

    tok = train("qwen2", "--vocab", "512", "--pattern", "qwen2")
    added(tok, "<|im_start|>")
    added(tok, "<think>", special=False)
    added(tok, "Ångström", special=False, normalized=True)
    tok["normalizer"] = {"type": "NFC"}
    tok["model"]["merges"] = [m.split(" ") for m in tok["model"]["merges"]]
    save("qwen2", tok)

    tok = train("digits", "--vocab", "400")
    tok["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "Split", "pattern": {"String": "|"}, "behavior": "Removed", "invert": False},
            {**tok["pre_tokenizer"], "add_prefix_space": True},
        ],
    }
    tok["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFKC"}]}
    save("digits", tok)


PARTS = """ |  |\n|\r\n|\t|\t\t|\t\t\t|\u3000|\u00a0|\u2028|\u0085|\u180e|\u200b|'s|'LL|'\u017f|don't|Hello| world|1|234|56789|٣|½|Ⅷ|é|e\u0301
\u0301|n\u0303|가|ㄱ|한국어|中文字|日本語テキスト|العربية|עברית|हिन्दी|ไทย|🦙|👨‍👩‍👧‍👦|🇩🇪|\ufe0f|Å|ﬁ|Ω|Ω|int main(void)|{|}|();|!=
->|_x|#|"|<|endoftext|>|<|im_start|>|<think>|<mask>| <mask> |<|begin_of_text|>|<|end_of_text|>|Ångström|A\u030angstro\u0308m
\u1e9b\u0323|\U0001d15e|\ud7a3|K|ſ|\ufeff|\ufffd|\x7f|\x01| xylophone|xylophone|the|The| the""".replace("\n", "|")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|begin_of_text|>", "<|end_of_text|>", "|"]


def texts():
    rng = random.Random(20240607)
    for name in SPECIAL[:-1]:
        rest = PARTS.replace(name, "\0")
    parts = [p for p in rest.replace("\0", "").split("|") if p] + SPECIAL
    out = ["", " ", "\n", "\n\n", "a", "\u00e9", "e\u0301", "Hello, world!", "  two  spaces  ", "tabs\t\t\tand\t\tmore"]
    out += (here / "corpus.txt").read_text().split("\n")
    for _ in range(250):
        s = "".join(rng.choice(parts) for _ in range(rng.randrange(1, 16)))
        s += "".join(chr(rng.randrange(0x20, 0x3000)) for _ in range(rng.randrange(3)))
        # libraries differ in the properties of characters newer than Unicode 12
        out.append("".join(c for c in s if unicodedata.ucd_3_2_0.category(c) != "Cn" or c in "🦙👨👩👧🇩🇪"))
    return out


def main():
    make()
    golden = {"texts": texts(), "tokenizers": {}}
    for name in ["gpt2", "llama3", "qwen2", "digits"]:
        tok = Tokenizer.from_file(str(here / f"{name}.json"))
        plain = Tokenizer.from_file(str(here / f"{name}.json"))
        plain.encode_special_tokens = True
        golden["tokenizers"][name] = {
            "special": [tok.encode(t, add_special_tokens=False).ids for t in golden["texts"]],
            "plain": [plain.encode(t, add_special_tokens=False).ids for t in golden["texts"]],
        }
    text = json.dumps(golden, ensure_ascii=True, separators=(",", ":"))
    (here / "golden.json").write_text(text.replace("]],", "]],\n").replace('],"', '],\n"') + "\n")


main()
# SPDX-License-Identifier: Apache-2.0
