#!/usr/bin/env python3
"""Makes the tokenizers sp-*.json and golden-sp.json with Hugging Face's library.

    pip install tokenizers; python3 golden_sp.py

SentencePiece's BPE in the three spellings that models use: Llama 2's normaliser, Metaspace, Gemma's. The texts
are those of golden.json.
"""
import json
import pathlib

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

here = pathlib.Path(__file__).parent
MARK = "\u2581"
BYTES = [f"<0x{i:02X}>" for i in range(256)]


def base():
    """Trains merges on words with a preceding mark, as SentencePiece does."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    tok.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme="never", split=True)
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=["<unk>", "<s>", "</s>"] + BYTES, show_progress=False)
    tok.train([str(here / "corpus.txt")], trainer)
    d = json.loads(tok.to_str())
    d["added_tokens"] = [a for a in d["added_tokens"] if a["content"] not in BYTES]
    return d


def make():
    strip = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    d = base()
    tok = Tokenizer.from_str(json.dumps(d))
    tok.pre_tokenizer = None
    tok.decoder = decoders.Sequence([*strip, decoders.Strip(" ", 1, 0)])
    yield "sp-llama", json.loads(tok.to_str()) | {"pre_tokenizer": None}
    for scheme, split in [("first", False), ("always", True)]:
        tok = Tokenizer.from_str(json.dumps(d | {"normalizer": None}))
        tok.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme=scheme, split=split)
        tok.decoder = decoders.Sequence([*strip, decoders.Strip(" ", 1, 0)])
        yield f"sp-{scheme}", json.loads(tok.to_str())
    tok = Tokenizer.from_str(json.dumps(d))
    tok.normalizer = normalizers.Replace(" ", MARK)
    tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tok.decoder = decoders.Sequence(strip)
    yield "sp-gemma", json.loads(tok.to_str())


ADDED = [  # looked for after normalisation
    AddedToken("<a>", normalized=True),
    AddedToken("<b>", normalized=True, lstrip=True, rstrip=True),
    AddedToken("qu", normalized=True, rstrip=True),
    AddedToken(" x", normalized=True),
    AddedToken("x  y", normalized=True, lstrip=True),
    AddedToken("<c>", normalized=False, lstrip=True),
]
AMONG = [
    "a", "<a>", " <a>", "<a> a", "one <a>two", "<b>", "  <b>  ", "a <b> b", "a\n<b>\t b", "<b><a>", "<b> <a>  <b> the",
    "quick", "the quick, qu  ick", " x", "a x", "a  x", "x", "x  y", " x  y", "a x  y", "a  \u2003x  y",
    "<c>x", "<c> <a>", "a <c><a>the", " <c> the", "\u3000<a>", "the\u3000 <b>\u3000 the", "\u2581<a>\u2581x", "<a><a>",
]


def main():
    texts = json.loads((here / "golden.json").read_text())["texts"]
    golden = {}
    for name, d in make():
        (here / f"{name}.json").write_text(json.dumps(d, ensure_ascii=False, separators=(",", ":")) + "\n")
        tok = Tokenizer.from_file(str(here / f"{name}.json"))
        plain = Tokenizer.from_file(str(here / f"{name}.json"))
        plain.encode_special_tokens = True
        ids = [tok.encode(t, add_special_tokens=False).ids for t in texts]
        golden[name] = {
            "special": ids,
            "plain": [plain.encode(t, add_special_tokens=False).ids for t in texts],
            "decoded": [tok.decode(i, skip_special_tokens=False) for i in ids],
        }
        tok.add_tokens(ADDED)
        golden[name]["added_tokens"] = json.loads(tok.to_str())["added_tokens"]
        golden[name]["among"] = [tok.encode(t, add_special_tokens=False).ids for t in AMONG]
    golden["among"] = AMONG
    text = json.dumps(golden, ensure_ascii=True, separators=(",", ":"))
    (here / "golden-sp.json").write_text(text.replace("]],", "]],\n") + "\n")


main()
# SPDX-License-Identifier: Apache-2.0
