#!/usr/bin/python3
"""Golden tokens and target masks of chats, from transformers.

    golden_chat.py TEMPLATES      writes golden-chat.json and tokenizer/chat*.json beside this script
        TEMPLATES  the folder chat_templates of the package trl: the published templates of model families,
        and variants
                   of them with {% generation %} marks around the assistant's text

The tokenizer is byte-level BPE, trained here on tokenizer/corpus.txt, with the special tokens of every
family; DeepSeek's are in a second tokenizer.
Templates are run by transformers' Jinja. Targets follow from two texts: the conversation up to the
assistant's turn with the generation prompt, and the conversation including that turn. What the second text
adds, up to the token that ends the turn, is the target. A token is a target if its offsets, from the
tokenizers library, overlap that part. If trl has a template with marks, transformers' own mask is compared:
it may have additional tokens of white space only. """

import json
import os
import sys

try:
    import tokenizers
    import transformers
except ImportError as e:
    print(f"golden_chat.py: needs tokenizers and transformers: {e}", file=sys.stderr)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
QWEN = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
CHATML = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
MISTRAL = """{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}\
{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}"""

# DeepSeek-V2's template, written from its description, without comparison with the published file.
DEEPSEEK2 = """{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ 'User: ' + m.content + '\\n\\n' }}\
{% elif m.role == 'assistant' %}{{ 'Assistant: ' + m.content + eos_token }}{% else %}{{ m.content + '\\n\\n' }}\
{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"""
EOS = "<｜end▁of▁sentence｜>"

# name: template file or text, end of a turn, words that identify it, whether it has a system turn, eos, bos
FAMILIES = {
    "chatml": (CHATML, "<|im_end|>", "<|im_start|>", True, "<|im_end|>"),
    "qwen": ("qwen2_5", "<|im_end|>", "'<|im_start|>system\\n" + QWEN + "<|im_end|>\\n'", True, "<|im_end|>"),
    "llama3": ("llama3", "<|eot_id|>", "<|start_header_id|>", True, "<|eot_id|>"),
    "llama31": ("llama3_1", "<|eot_id|>", "<|start_header_id|> Cutting Knowledge Date", True, "<|eot_id|>"),
    "gemma": ("gemma", "<end_of_turn>", "<start_of_turn>", False, "<eos>"),
    "mistral": (MISTRAL, "</s>", "[INST]", False, "</s>"),
    "phi3": ("phi3", "<|end|>", "<|end|> <|assistant|>", True, "<|endoftext|>"),
    "deepseek2": (DEEPSEEK2, EOS, "'User: ' 'Assistant: '", True, EOS),
    "deepseek3": ("deepseekv3", EOS, "<｜User｜> <｜Assistant｜>", True, EOS),
}
MORE = ["<｜User｜>", "<｜Assistant｜>", EOS]
SPECIALS = ["<s>", "</s>", "<|endoftext|>", "<eos>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>",
            "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]"]
# with the flags of Phi-3's tokenizer: these tokens strip blanks
STRIPPING = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]

TURNS = [
    [("user", "Hello, world!"), ("assistant", "The quick brown fox.")],
    [("system", "Answer in one word."), ("user", "What is the answer?"), ("assistant", "forty-two"),
     ("user", "And then?"), ("assistant", "Nothing.\n\nAt all.")],
    [("user", "blanks  "), ("assistant", "  \n at both ends \n"), ("user", "and"), ("assistant", "")],
    [("user", "é ü 漢字 \U0001f600"), ("assistant", "café ☕ 漢字"), ("user", "the end")],
]
PROMPT = [("system", "Be brief."), ("user", "One?"), ("assistant", "<think>\nHm.\n</think>\n\nTwo. <"),
          ("system", "Briefer."), ("user", " Three? ")]


def make_tokenizer(name, more):
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    t.train([os.path.join(HERE, "tokenizer", "corpus.txt")], trainer)
    t.add_special_tokens([tokenizers.AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    t.add_special_tokens([tokenizers.AddedToken(s, special=True, normalized=False, rstrip=True)
                          for s in STRIPPING])
    t.add_special_tokens([tokenizers.AddedToken(s, special=True, normalized=False) for s in more])
    t.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", t.token_to_id("<s>"))])
    path = os.path.join(HERE, "tokenizer", name)
    t.save(path)


def render(tok, messages, template, prompt):
    return tok.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=prompt)


def spans(tok, messages, template, end):
    found = []
    for i, m in enumerate(messages):
        if m["role"] != "assistant":
            continue
        before = render(tok, messages[:i], template, True)
        after = render(tok, messages[:i + 1], template, False)
        assert after.startswith(before), (before, after)
        stop = after.index(end, len(before)) + len(end)
        found.append((len(before), stop))
    return found


def masked(tok, text, parts):
    enc = tok(text, add_special_tokens=False, return_offsets_mapping=True)
    ends = [a + len(text[a:b].rstrip()) if text[a:b].rstrip() in STRIPPING else b
            for a, b in enc["offset_mapping"]]  # without the blanks that a stripping token includes
    mask = [int(any(a < stop and b > start for start, stop in parts))
            for (a, _), b in zip(enc["offset_mapping"], ends)]
    return enc["input_ids"], mask


def marked(tok, messages, template, ids, mask):
    """True if transformers' mask of the template with marks equals ours, apart from white space."""
    out = tok.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True,
                                  return_assistant_tokens_mask=True)
    assert out["input_ids"] == ids, "another text"
    for i, (a, b) in enumerate(zip(out["assistant_masks"], mask)):
        if a != b:
            text = tok.decode([ids[i]])
            assert a == 1 and (text.strip() == "" or text in ["<|endoftext|>", *STRIPPING, *MORE]), (i, text, a, b)


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    make_tokenizer("chat.json", [])
    make_tokenizer("chat-deepseek.json", MORE)
    cases = []
    for name, (source, end, words, system, eos) in FAMILIES.items():
        file = "chat-deepseek.json" if name.startswith("deepseek") else "chat.json"
        path = os.path.join(HERE, "tokenizer", file)
        tok = transformers.PreTrainedTokenizerFast(tokenizer_file=path, bos_token="<s>", eos_token=eos)
        template, marks = source, None
        if "{" not in source:
            with open(os.path.join(sys.argv[1], source + ".jinja"), encoding="utf-8") as f:
                template = f.read()
            # in V3's template the prompt ends here; the file has R1's, which continues
            if name == "deepseek3":
                template = template.replace("<｜Assistant｜><think>\\n", "<｜Assistant｜>")
            other = os.path.join(sys.argv[1], source + "_training.jinja")
            if os.path.exists(other):
                with open(other, encoding="utf-8") as f:
                    marks = f.read()
        for turns in TURNS:
            messages = [{"role": r, "content": c} for r, c in turns if system or r != "system"]
            text = render(tok, messages, template, False)
            ids, mask = masked(tok, text, spans(tok, messages, template, end))
            if marks:
                marked(tok, messages, marks, ids, mask)
            cases.append({"family": name, "words": words, "messages": messages, "ids": ids, "mask": mask})
        if name.startswith("deepseek"):
            messages = [{"role": r, "content": c} for r, c in PROMPT]
            text = render(tok, messages, template, True)
            cases.append({"family": name, "words": words, "messages": messages,
                          "prompt": tok(text, add_special_tokens=False)["input_ids"]})
    with open(os.path.join(HERE, "golden-chat.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
    print(f"{len(cases)} conversations, transformers {transformers.__version__}, tokenizers {tokenizers.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
