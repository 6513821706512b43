#!/usr/bin/env python3
"""Makes the tokenizers wp-*.json and golden-wp.json with Hugging Face's library.

    pip install tokenizers; python3 golden_wp.py

WordPiece with BERT's normalizer, in four settings of it. The texts are random: words of corpus.txt and characters of
every plane and class. Left out are characters that the library's tables of Unicode 8 and Python's do not agree on."""
import json
import pathlib
import random
import string
import unicodedata

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = pathlib.Path(__file__).parent
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BERT = normalizers.BertNormalizer
CLEAN = BERT(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
STRIP = BERT(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
LOWER = BERT(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=True)


def agreed(c):
    """Whether the classes of a character that BERT's tokenizers look at are the same in both tables."""
    kind, s = unicodedata.category(c), f"a{c}b"
    if kind in ("Cn", "Cs"):
        return False
    dropped = c in "\0\ufffd" or (kind in ("Cc", "Cf", "Co") and c not in "\t\n\r")
    alone = kind[0] == "P" or c in string.punctuation
    bare = "".join(x for x in unicodedata.normalize("NFD", s) if unicodedata.category(x) != "Mn")
    return ((CLEAN.normalize_str(s) == "ab") == dropped and STRIP.normalize_str(s) == bare and LOWER.normalize_str(s) == s.lower()
            and (len(pre_tokenizers.BertPreTokenizer().pre_tokenize_str(s)) == 3) == alone)


def texts():
    r = random.Random(20261130)
    some = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and agreed(chr(c))]
    of = lambda f: [c for c in some if f(c)]
    sets = [some, of(lambda c: unicodedata.category(c) == "Mn"), of(lambda c: unicodedata.category(c) in ("Mc", "Me")),
            of(lambda c: unicodedata.category(c)[0] == "P"), of(lambda c: unicodedata.category(c) in ("Cc", "Cf")),
            of(lambda c: unicodedata.category(c) in ("Lu", "Lt")), of(lambda c: "\xc0" <= c < "\u0250" or "\u1e00" <= c < "\u2000"),
            of(lambda c: "\u2e80" <= c < "\ua4d0" or "\uac00" <= c < "\ud7a4" or "\U00020000" <= c < "\U00030000"),
            of(lambda c: "\U0001f300" <= c < "\U0001fb00" or c in "\u200d\ufe0f"), list(map(chr, range(33, 127)))]
    spaces = [c for c in "\t\n\v\f\r\x1c \x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u200b" if c in some]
    words = (here / "corpus.txt").read_text().split()
    yield from ["", " ", "Hello, World's end.", "caf\xe9 CAFE\u0301 \u0130stanbul \u01c5 \u1e9e \u03a3\u03a3", "a" * 100, "a" * 101,
                "\xe9" * 100, "the [MASK] of[SEP][CLS] [mask] <x> <X>", "ab\0cd\ufffdef\x7f\ue000", "\u4e2da\u6587\U0002b820\U0002b920"]
    for _ in range(140):
        out = []
        for _ in range(r.randint(1, 9)):
            k = r.random()
            out.append(r.choice(words) if k < 0.5 else r.choice(words).upper() if k < 0.55 else r.choice(SPECIAL) if k < 0.6 else
                       "".join(r.choice(r.choice(sets)) for _ in range(r.randint(1, 6))))
            out.append(r.choice([" ", " ", "", r.choice(spaces)]))
        yield "".join(out)


def make(sample):
    for name, kw, cleanup in [("wp-uncased", {}, True), ("wp-cased", {"lowercase": False}, True),
                              ("wp-accents", {"strip_accents": False, "clean_text": False}, False),
                              ("wp-bare", {"lowercase": False, "strip_accents": True, "handle_chinese_chars": False}, None)]:
        tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tok.normalizer = BERT(**{"strip_accents": None} | kw)
        tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=700, limit_alphabet=330, special_tokens=SPECIAL, show_progress=False)
        tok.train_from_iterator([*((here / "corpus.txt").read_text().splitlines() * 9), *sample], trainer)
        tok.add_special_tokens([AddedToken("[MASK]", special=True, lstrip=name == "wp-cased")])
        tok.add_tokens([AddedToken("<x>", normalized=True)])
        if name == "wp-cased":
            tok.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        else:
            tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
        if cleanup is not None:
            tok.decoder = decoders.WordPiece(cleanup=cleanup)
        yield name, tok


def main():
    sample = list(texts())
    golden = {"texts": sample}
    for name, tok in make(sample):
        text = json.dumps(json.loads(tok.to_str()), ensure_ascii=False, separators=(",", ":"))
        (here / f"{name}.json").write_text(text + "\n")
        ids = [tok.encode(t, add_special_tokens=False).ids for t in sample]
        golden[name] = {"special": ids, "decoded": [tok.decode(i, skip_special_tokens=False) for i in ids]}
        tok.encode_special_tokens = True
        golden[name]["plain"] = [tok.encode(t, add_special_tokens=False).ids for t in sample]
        pairs = list(zip(ids, golden[name]["plain"]))
        golden[name]["plain"] = {str(i): b for i, (a, b) in enumerate(pairs) if a != b}
    text = json.dumps(golden, ensure_ascii=True, separators=(",", ":"))
    (here / "golden-wp.json").write_text(text.replace("]],", "]],\n") + "\n")


main()
# SPDX-License-Identifier: Apache-2.0
