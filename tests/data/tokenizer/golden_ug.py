#!/usr/bin/env python3
"""Makes the tokenizers ug-*.json and golden-ug.json with Hugging Face's library.

    pip install tokenizers sentencepiece; python3 golden_ug.py

Unigram as in T5, and with bytes to fall back on. SentencePiece compiles the map of characters from a few rules. The texts
are those of golden-wp.json, and some that the rules apply to."""
import io
import json
import pathlib
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = pathlib.Path(__file__).parent
BYTES = [f"<0x{i:02X}>" for i in range(256)]
RULES = {"\xe9": "e\u0301", "e\u0301": "E", "\u3000": " ", "\t": " ", "\r": "", "\r\n": "x", "\ufb01": "fi", "\u0130": "I", "\u0915": "k",
         "\u0915\u094d": "kk", "\xa0": " ", "\u2026": "...", "\U0001f1e9": "D"}
MORE = ["caf\xe9 cafe\u0301 \u3000 x\ty", "a\r\nb\rc", "\ufb01n\u2026 \u0130 \u0915\u094d \u0915\u094d\u0930", "  two  blanks   ", "\u2581a\u2581\u2581 b",
        "\U0001f1e9\U0001f1ea \U0001f1e9", "<x> the<x>the <pad> </s>", "zqzqzqzq \u4e2d\u6587 \u4e2d a", "x" * 300, "the " * 60, " ", "\t"]


def charsmap(folder):
    rules = pathlib.Path(folder) / "rules.tsv"
    code = lambda s: " ".join(f"{ord(c):X}" for c in s)
    rules.write_text("".join(f"{code(a)}\t{code(b)}\n" for a, b in RULES.items()))
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter((here / "corpus.txt").read_text().splitlines()), model_writer=out, vocab_size=600,
                                             hard_vocab_limit=False, normalization_rule_tsv=str(rules), minloglevel=2)
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(out.getvalue())
    return model.normalizer_spec.precompiled_charsmap


def make(folder):
    meta = pre_tokenizers.Metaspace
    t5 = normalizers.Sequence([normalizers.Precompiled(charsmap(folder)), normalizers.Strip(left=False, right=True),
                               normalizers.Replace(Regex(" {2,}"), "\u2581")])
    for name, normalizer, pre, special in [("ug-t5", t5, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), meta()]), ["<pad>", "</s>", "<unk>"]),
                                           ("ug-bytes", None, meta(split=False), ["<s>", "</s>", "<unk>", *BYTES])]:
        tok = Tokenizer(models.Unigram())
        tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), meta()])
        trainer = trainers.UnigramTrainer(vocab_size=650 + len(special), special_tokens=special, unk_token="<unk>", show_progress=False)
        tok.train([str(here / "corpus.txt")], trainer)
        d = json.loads(tok.to_str())
        d["added_tokens"] = [a for a in d["added_tokens"] if a["content"] not in BYTES]
        d["model"]["byte_fallback"] = name == "ug-bytes"
        tok = Tokenizer.from_str(json.dumps(d))
        if normalizer:
            tok.normalizer = normalizer
        tok.pre_tokenizer = pre
        strip = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        tok.decoder = decoders.Metaspace() if name == "ug-t5" else decoders.Sequence(strip)
        tok.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
        tok.add_tokens([AddedToken("<x>", normalized=True)])
        yield name, tok


def main():
    sample = MORE + json.loads((here / "golden-wp.json").read_text())["texts"][:90]
    golden = {"texts": sample}
    with tempfile.TemporaryDirectory() as folder:
        for name, tok in make(folder):
            (here / f"{name}.json").write_text(json.dumps(json.loads(tok.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
            ids = [tok.encode(t, add_special_tokens=False).ids for t in sample]
            golden[name] = {"special": ids, "decoded": [tok.decode(i, skip_special_tokens=False) for i in ids]}
            tok.encode_special_tokens = True
            plain = [tok.encode(t, add_special_tokens=False).ids for t in sample]
            golden[name]["plain"] = {str(i): b for i, (a, b) in enumerate(zip(ids, plain)) if a != b}
    text = json.dumps(golden, ensure_ascii=True, separators=(",", ":"))
    (here / "golden-ug.json").write_text(text.replace("]],", "]],\n") + "\n")


main()
# SPDX-License-Identifier: Apache-2.0
