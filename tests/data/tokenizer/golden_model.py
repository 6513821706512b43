#!/usr/bin/env python3
"""Trains the SentencePiece models of this folder and makes golden-model.json with SentencePiece's own library.

    pip install sentencepiece; python3 golden_model.py

golden-model.json: for each model the ids of each text of golden.json that contains no NUL. model-llama.model
has the settings of Llama 2 (a blank before the text), model-gemma.model those of Gemma (no blank,
user-defined symbols); both are BPE with byte fallback. With both a blank and user-defined symbols, dt follows
Hugging Face, which adds a blank after each symbol, whereas SentencePiece adds one only before the text; no
model here has both.
"""
import json
import pathlib

import sentencepiece as spm

here = pathlib.Path(__file__).parent


def train(name, **kw):
    spm.SentencePieceTrainer.train(
        input=str(here / "corpus.txt"),
        model_prefix=str(here / name),
        model_type="bpe",
        vocab_size=1000,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        control_symbols=["<mask>"],
        num_threads=1,
        minloglevel=2,
        **kw,
    )
    (here / f"{name}.vocab").unlink()
    return spm.SentencePieceProcessor(model_file=str(here / f"{name}.model"))


def main():
    texts = [t for t in json.loads((here / "golden.json").read_text())["texts"] if "\0" not in t]
    texts += ["<tool>x <tool> <mask> </s>", "a\n\nb\n\n\nc", "  two  blanks  ", "▁mark ▁▁", ""]
    out = {"texts": texts}
    for name, kw in (
        ("model-llama", {"add_dummy_prefix": True, "character_coverage": 0.98}),
        ("model-gemma", {"add_dummy_prefix": False, "split_digits": True, "allow_whitespace_only_pieces": True,
                         "user_defined_symbols": ["<tool>", "\n\n"]}),
    ):
        sp = train(name, **kw)
        out[name] = [sp.encode(t) for t in texts]
    (here / "golden-model.json").write_text(json.dumps(out, separators=(",", ":")) + "\n")


main()
# SPDX-License-Identifier: Apache-2.0
