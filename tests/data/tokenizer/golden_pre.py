#!/usr/bin/env python3
"""Makes golden-pre.json: how Hugging Face's library splits texts with the pre-tokenizers of published families.

    pip install tokenizers; python3 golden_pre.py

For each family: its names in GGUF, its normalizer and pre_tokenizer as in its tokenizer.json, and for each
text the lengths in bytes of the words that the normalised text is split into.
"""
import json
import pathlib

from tokenizers import Tokenizer

here = pathlib.Path(__file__).parent


def split(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def digits(each=True):
    return {"type": "Digits", "individual_digits": each}


def byte_level(regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": regex}


SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
CL100K = ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN2 = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
START = r"[^\r\n\p{L}\p{N}]?"
SLASH = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
TEKKEN = f"{START}{UPPER}*{LOWER}+|{START}{UPPER}+{LOWER}*|" + r"\p{N}" + SLASH
GPT4O = f"{START}{UPPER}*{LOWER}+{ENDINGS}?|{START}{UPPER}+{LOWER}*{ENDINGS}?|" + r"\p{N}{1,3}" + SLASH
CJK = "[一-龥ࠀ-一가-\ud7ff]+"
# Upper- and lower-case letters of the European scripts, as DeepSeek LLM's file lists them.
LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ"
    "\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿ"
    "ﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
V3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^".replace(r"\"", '"')
    + "\r\n"
    + r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+["
    + "\r\n"
    + r"]*|\s*["
    + "\r\n"
    + r"]+|\s+(?!\S)|\s+"
)

FAMILIES = {  # name: (names of GGUF, the one that comes back first), normalizer, pre-tokenizers
    "gpt-2, phi-2": (["gpt-2", "phi-2"], None, [byte_level(True)]),
    "starcoder, refact, smollm": (["smollm", "starcoder", "refact"], None, [digits(), byte_level(True)]),
    "command-r": (["command-r"], "NFC", [digits(), byte_level(True)]),
    "mpt, olmo": (["olmo", "mpt"], "NFC", [byte_level(True)]),
    "phi-4, dbrx": (["dbrx"], None, [split(CL100K), byte_level(False)]),
    "llama 3": (["llama-bpe", "llama3"], None, [split(CL100K), byte_level(False)]),
    "qwen2": (["qwen2", "deepseek-r1-qwen"], "NFC", [split(QWEN2), byte_level(False)]),
    "falcon": (
        ["falcon"],
        None,
        [{"type": "Punctuation", "behavior": "Contiguous"}, byte_level(True), digits(False), split("[0-9][0-9][0-9]")],
    ),
    "deepseek-llm": (
        ["deepseek-llm"],
        None,
        [
            split("[\r\n]"),
            split(rf"\s?[{LETTERS}]+"),
            split("\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+"),
            split(r"\s+$"),
            split(CJK),
            digits(),
            byte_level(False),
        ],
    ),
    "deepseek-coder": (
        ["deepseek-coder"],
        None,
        [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(CJK), digits(), byte_level(False)],
    ),
    "deepseek-v3": (
        ["deepseek-v3"],
        None,
        [split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(V3), byte_level(False)],
    ),
    "tekken": (["tekken"], None, [split(TEKKEN), byte_level(False)]),
    "gpt-4o": (["gpt-4o", "llama4"], None, [split(GPT4O), byte_level(False)]),
    # patterns with empty matches, which GGUF has no names for
    "digits in threes from the right": ([], None, [split(r"(?=(\d{3})+(?!\d))"), split(QWEN2), byte_level(False)]),
    "edges of words": ([], None, [split(r"\b|(?<=[aeiou])|;*"), byte_level(False)]),
}

TEXTS = [
    "I'll DON'T we'Ve they'RE it's o'clock 'tis 'S 'ſ x'LLama",
    "HelloWorld camelCase HTTPServer XMLHttpRequest iPhone McDonald ÀÉÎõü ǅungla ʰaspirated",
    "1 12 123 1234 12345 123456789 3.14159 1,234,567 0x1F v2.0-rc1 1e-5 ½ ²³ ⅷ ٣٤٥ 一二三 ९८७",
    "don't!! wait... what?! (yes) [no] {maybe} <tag/> a+b=c $5 €3 ^_^ `code` ~/path/to//file.txt #1 @you 50% x|y \\n",
    "one  two   three    four\tfive\t\tsix \t seven \u00a0eight\u3000nine\u2003ten ",
    "line\nline\r\nline\n\nline \n \n\tline\r\r\nend  \n  ",
    "   \n\n\n   \t\n",
    " ",
    "\n",
    "trailing spaces   ",
    "中文字符混合English和数字123以及标点。，！？「」『』ー～・ひらがなカタカナｶﾅ한국어 텍스트 龦鿿",
    "你好，世界！这是一个测试。2024年1月1日",
    "Привет мир! ЁЛКА ёжик Ґрунт Україна",
    "Ελληνικά ΆΈ ᾳ ὅς ᾿ Ω K Å ﬁ ﬃ Ａｂｃ １２３",
    "Հայերեն Ա Ֆ ա ֆ ქართული Ა ა ᏣᎳᎩ",
    "العربية ١٢٣ עברית हिन्दी ไทย ខ្មែរ မြန်မာ தமிழ்",
    "é e\u0301 ñ n\u0303 Å A\u030a 각 각 ﬀ Ω \u0301alone",
    "🚀 🦙👨‍👩‍👧 😶‍🌫️ ✅❤️ 🏳️‍🌈 ☃️ ①② ™©®",
    "def f(x: int) -> str:\n    return f\"{x!r}\"  # comment\n\n\nclass A:\n\tpass\n",
    "https://example.com/a/b?c=d&e=f#g user.name+tag@mail-host.co.uk ../../x/*.c //// ///\n/* c */\n",
    "''''' \"\"\" ``` --- === ### *** ___ ,,, ;;; ::: ||| \\\\\\",
    "A\u200bB\u200cC\ufeffD\u00adE\u2028F\u2029G\u0085H\u180eI\x0bJ\x0cK\x1cL\x7fM",
    "ⅫⅣ Ⅻ ⑩ ㉈ ㊗ 〇 〡 𝟘𝟙 𝔸𝕓 𐐀𐐨 𞤀𞤢",
    "‘single’ “double” «guillemets» ‹x› – — ― … ‼ ⁇ ′ ″ ‰ § ¶ † ‡ • ¡¿",
    "A1B2C3 abc123def 12abc34 v1v2 3rd 2nd 1st 100km 5G",
    "WHAT'S UP DOC'S IT'LL I'D y'all'd've ’s ’t",
]


def words(tok, text):
    norm = tok.normalizer.normalize_str(text) if tok.normalizer else text
    return [len(w) for w, _ in tok.pre_tokenizer.pre_tokenize_str(norm)]  # one character is one byte


def main():
    out = {"texts": TEXTS, "families": {}}
    for name, (gguf, normal, steps) in FAMILIES.items():
        spec = {
            "normalizer": {"type": normal} if normal else None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps} if len(steps) > 1 else steps[0],
        }
        model = {"type": "BPE", "vocab": {}, "merges": []}
        tok = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model, **spec}))
        out["families"][name] = {"gguf": gguf, **spec, "words": [words(tok, t) for t in TEXTS]}
    path = here / "golden-pre.json"
    path.write_text(json.dumps(out, ensure_ascii=True, separators=(",", ":")).replace('},"', '},\n"') + "\n")


main()
# SPDX-License-Identifier: Apache-2.0
