#!/usr/bin/python3
"""Golden perplexities of real models, from transformers: golden-eval-real.json beside this script.

    golden_eval_real.py MODELS BIN LLAMA
                 MODELS is the folder of the files that golden_greedy.py --list names, BIN that of
                 dt-shard-ckpt, LLAMA the program llama-perplexity (the file was made with the sources in
                 llama-cpp-python 0.3.36)

Weights are dequantised by the package gguf, in fp32. Tokens come from transformers' tokenizer of the GGUF
file, corrected for SmolLM2, whose tokenizer splits digits first, which that conversion omits. Losses come
from transformers' logits, in fp64. The text is LICENSE with each run of spaces reduced to one, because
transformers' conversion of Gemma's tokenizer splits runs differently than SentencePiece. `llama-perplexity`
is the program's output for the model as an f32 GGUF, with an f32 cache and without flash attention. For
windows and choices see golden_eval.py. """

import json
import os
import re
import subprocess
import sys
import tempfile

try:
    import tokenizers
    import transformers

    import golden_eval
    import golden_greedy
except ImportError as e:
    print(f"golden_eval_real.py: needs torch, transformers and gguf: {e}", file=sys.stderr)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = 3000  # bytes of LICENSE, after reduction of spaces


class Model(golden_eval.Model):
    def __init__(self, name, path):
        self.model = golden_greedy.load(name, path)
        self.tok = transformers.AutoTokenizer.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path))
        self.begin = self.tok("").input_ids
        if name == "smollm2":
            self.prefix = self.tok.bos_token_id  # HFLM.prefix_token_id
            pre = tokenizers.pre_tokenizers
            self.tok.backend_tokenizer.pre_tokenizer = pre.Sequence([pre.Digits(True), pre.ByteLevel(False)])


def llama_perplexity(bin_dir, llama, file, text):
    """Returns the mean negative log-likelihood that llama-perplexity prints, to six decimals."""
    with tempfile.TemporaryDirectory() as tmp:
        with open(tmp + "/text", "w", encoding="utf-8") as f:
            f.write(text)
        subprocess.run([bin_dir + "/dt-shard-ckpt", "convert", "--type", "f32", file, tmp + "/f32.gguf"], check=True,
                       stdout=2)
        seq = str(golden_eval.SEQ)
        out = subprocess.run([llama, "-m", tmp + "/f32.gguf", "-f", tmp + "/text", "-c", seq, "-b", seq, "-ctk", "f32",
                              "-ctv", "f32", "-fa", "off", "-t", "1", "--ppl-output-type", "1"], check=True, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    rows = re.findall(r"^ *\d+ +\d+\.\d+ +(\d+\.\d+) ", out, re.M)
    return {"nll": float(rows[-1]), "tokens": len(rows) * (golden_eval.SEQ // 2 - 1)}


def main(models, bin_dir, llama):
    out = {"seq": golden_eval.SEQ, "stride": golden_eval.STRIDE, "text": TEXT}
    with open(HERE + "/../../LICENSE", encoding="utf-8") as f:
        text = re.sub(" +", " ", f.read())[:TEXT]
    with open(HERE + "/eval/story.jsonl", encoding="utf-8") as f:
        items = [json.loads(line) for line in f][1:]
    for name in "smollm2", "gemma3":
        file = golden_greedy.MODELS[name][0]
        m = Model(name, os.path.join(models, file))
        ids = m.begin + m.ids(text)
        out[name] = {"file": file, "llama-perplexity": llama_perplexity(bin_dir, llama, os.path.join(models, file), text)}
        for way, run in ("transformers", golden_eval.transformers_windows), ("llama.cpp", golden_eval.llama_windows), \
                ("rolling", golden_eval.rolling_windows):
            nll, count = run(m, ids)
            out[name][way] = {"nll": nll, "tokens": count}
        out[name]["choices"] = [[golden_eval.choice(m, o["begin"], " " + c) for c in o["choices"]] for o in items]
    with open(HERE + "/golden-eval-real.json", "w", encoding="utf-8") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
# SPDX-License-Identifier: Apache-2.0
