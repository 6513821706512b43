#!/usr/bin/python3
"""Golden values of dt-eval, from transformers.

    golden_eval.py BIN STORIES      writes golden-eval.json beside this script
        BIN      the folder of dt-shard-ckpt
        STORIES  the folder of stories260K.bin and tok512.bin

The model is stories260K as a Hugging Face folder. Tokens come from transformers' tokenizer, losses from its
logits, in fp64. Windows follow the definitions in libcommon/eval/windows.h, but are cut here independently:
transformers' windows by the loop of its documentation page on perplexity, llama.cpp's by the loop of
llama-perplexity. Choices are scored as in lm-evaluation-harness: the choice's tokens are those of context and
choice together, minus those of the context alone; blanks at the end of the context are moved to the choice.
"""

import json
import os
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError as e:
    print(f"golden_eval.py: needs torch and transformers: {e}", file=sys.stderr)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
SEQ, STRIDE = 128, 64


class Model:
    def __init__(self, folder):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.tok = transformers.PreTrainedTokenizerFast(tokenizer_file=folder + "/tokenizer.json")
        self.begin = [1]  # token that its tokenizer puts in front of a text

    def ids(self, text):
        return self.tok.encode(text, add_special_tokens=False)

    def logprobs(self, ids):
        with torch.no_grad():
            return self.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)

    def nll(self, window, targets):
        lp = self.logprobs(window)
        return -sum(lp[t - 1, window[t]].item() for t in targets)


def transformers_windows(m, ids):
    total, count, before = 0.0, 0, 0
    for begin in range(0, len(ids), STRIDE):
        end = min(begin + SEQ, len(ids))
        targets = range(max(before, begin + 1) - begin, end - begin)
        total += m.nll(ids[begin:end], targets)
        count += len(targets)
        before = end
        if end == len(ids):
            break
    return total / count, count


def llama_windows(m, ids):
    total, count = 0.0, 0
    for chunk in range(len(ids) // SEQ):
        window = m.begin + ids[chunk * SEQ + len(m.begin):(chunk + 1) * SEQ]
        targets = range(SEQ // 2 + 1, SEQ)
        total += m.nll(window, targets)
        count += len(targets)
    return total / count, count


def rolling_windows(m, ids):
    total, at = 0.0, 1
    while at < len(ids):
        end = min(at + (STRIDE if at > 1 else SEQ), len(ids))
        begin = max(end - 1 - SEQ, 0)
        total += m.nll(ids[begin:end], range(at - begin, end - begin))
        at = end
    return total / (len(ids) - 1), len(ids) - 1


def choice(m, context, text):
    bare = context.rstrip()
    n = len(m.begin + m.ids(bare))
    ids = m.begin + m.ids(context + text)
    if n == 0:  # no context: lm-evaluation-harness uses the prefix token
        n, ids = 1, [m.prefix] + ids
    return -m.nll(ids, range(n, len(ids)))


def main(bin_dir, stories):
    out = {"seq": SEQ, "stride": STRIDE}
    with tempfile.TemporaryDirectory() as tmp:
        subprocess.run([bin_dir + "/dt-shard-ckpt", "convert", "--tokenizer", stories + "/tok512.bin", "--to",
                        "safetensors", stories + "/stories260K.bin", tmp + "/hf"], check=True, stdout=2)
        m = Model(tmp + "/hf")
        with open(HERE + "/../../LICENSE", encoding="utf-8") as f:
            text = f.read()[:6000]
        ids = m.begin + m.ids(text)
        for name, run in ("transformers", transformers_windows), ("llama.cpp", llama_windows), \
                ("rolling", rolling_windows):
            nll, count = run(m, ids)
            out[name] = {"nll": nll, "tokens": count}
        with open(HERE + "/eval/story.jsonl", encoding="utf-8") as f:
            items = [json.loads(line) for line in f][1:]
        out["choices"] = [[choice(m, o["begin"], " " + c) for c in o["choices"]] for o in items]
    with open(HERE + "/golden-eval.json", "w", encoding="utf-8") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
# SPDX-License-Identifier: Apache-2.0
