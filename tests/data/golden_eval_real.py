#!/usr/bin/python3
"""Golden perplexities of real models, from transformers: golden-eval-real.json beside this script.

    golden_eval_real.py MODELS       the folder of the files that golden_greedy.py --list names

Weights are those that package gguf unpacks, in fp32; tokens those of transformers' own tokenizer of the GGUF
file, which forgets that SmolLM2's takes digits one by one before all else; losses those of its logits, in fp64.
Windows and choices: golden_eval.py.
"""

import json
import os
import sys

try:
    import tokenizers
    import transformers

    import golden_eval
    import golden_greedy
except ImportError as e:
    print(f"golden_eval_real.py: needs torch, transformers and gguf: {e}", file=sys.stderr)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = 3000  # bytes of LICENSE


class Model(golden_eval.Model):
    def __init__(self, name, path):
        self.model = golden_greedy.load(name, path)
        self.tok = transformers.AutoTokenizer.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path))
        self.begin = self.tok("").input_ids
        if name == "smollm2":
            self.end = self.tok.convert_tokens_to_ids("<|endoftext|>")
            pre = tokenizers.pre_tokenizers
            self.tok.backend_tokenizer.pre_tokenizer = pre.Sequence([pre.Digits(True), pre.ByteLevel(False)])


def main(models):
    out = {"seq": golden_eval.SEQ, "stride": golden_eval.STRIDE, "text": TEXT}
    with open(HERE + "/../../LICENSE", encoding="utf-8") as f:
        text = f.read()[:TEXT]
    with open(HERE + "/eval/story.jsonl", encoding="utf-8") as f:
        items = [json.loads(line) for line in f][1:]
    for name in "smollm2", "gemma3":
        file = golden_greedy.MODELS[name][0]
        m = Model(name, os.path.join(models, file))
        ids = m.begin + m.ids(text)
        out[name] = {"file": file}
        # what is made of Gemma's GGUF cuts runs of spaces otherwise than SentencePiece does, and this text has some
        for way, run in [] if name == "gemma3" else [
                ("transformers", golden_eval.transformers_windows), ("llama.cpp", golden_eval.llama_windows),
                ("rolling", golden_eval.rolling_windows)]:
            nll, count = run(m, ids)
            out[name][way] = {"nll": nll, "tokens": count}
        out[name]["choices"] = [[golden_eval.choice(m, o["begin"], " " + c) for c in o["choices"]] for o in items]
    with open(HERE + "/golden-eval-real.json", "w", encoding="utf-8") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
# SPDX-License-Identifier: Apache-2.0
