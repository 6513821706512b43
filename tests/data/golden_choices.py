#!/usr/bin/python3
"""Results of lm-evaluation-harness on the tasks in eval/, for the test of dt-eval.

    golden_choices.py BIN STORIES     writes golden-choices.json beside this script
        BIN      the folder of dt-shard-ckpt
        STORIES  the folder of stories260K.bin and tok512.bin
    golden_choices.py --check BIN STORIES
                                      recomputes and compares; exit status 0, 3 on a difference, 77 without
                                      the harness

The model is stories260K as a Hugging Face folder, in fp32, with its tokenizer's default tokens. The harness
(0.4.13) runs its own code: each task is a ConfigurableTask of kind multiple_choice, with our template
converted to Jinja, evaluated by simple_evaluate with HFLM. Stored are the log-likelihoods of each item's
choices, and each task's metrics with standard errors. `alone` is a task whose choices mostly have no context.
It is also evaluated with two tokenizers that add no token themselves: one declares <s> as bos, the other
declares <unk> as eos and has no bos; the harness puts this token in front of such a choice. `rolling` is
HFLM.loglikelihood_rolling of a text in windows of 128 tokens. PYTHONPATH names a folder with lm-eval
unpacked. """

import json
import logging
import os
import re
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
try:
    import datasets
    import lm_eval
    import torch
    from lm_eval.api.instance import Instance
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
except ImportError as e:
    print(f"golden_choices.py: needs lm-eval, torch and transformers: {e}", file=sys.stderr)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = HERE + "/golden-choices.json"
TASKS = "story", "choices", "bare", "labels"
ALONE = {"alone_bos": {"bos_token": "<s>", "eos_token": "</s>"}, "alone_eos": {"eos_token": "<unk>"}}
METRICS = "acc", "acc_norm", "acc_bytes"
WINDOW = 128


def jinja(template):
    """Converts our template to Jinja: {field} is a field, {{ and }} are braces."""
    part = {"{{": "{{ '{' }}", "}}": "{{ '}' }}"}
    return re.sub(r"\{\{|\}\}|\{([^}]*)\}", lambda m: part.get(m[0]) or "{{" + m[1] + "}}", template)


def task_of(name):
    """Returns a task file as the harness's task."""
    with open(f"{HERE}/eval/{name}.jsonl", encoding="utf-8") as f:
        head, *items = [json.loads(line) for line in f]
    shots = head.get("shots", [])
    for o in items + shots:
        o.setdefault("choices", head.get("choices"))
        o["gold"] = o["answer"] if isinstance(o["answer"], int) else o["choices"].index(o["answer"])
        for k in o.keys() - {"choices", "gold"}:
            o[k] = o[k] if isinstance(o[k], str) else json.dumps(o[k])
    return ConfigurableTask(config={
        "task": name, "custom_dataset": lambda **_: {"test": datasets.Dataset.from_list(items)}, "test_split": "test",
        "output_type": "multiple_choice", "doc_to_text": jinja(head["template"]), "doc_to_target": "gold",
        "doc_to_choice": "choices", "target_delimiter": head.get("delimiter", " "),
        "fewshot_delimiter": head.get("separator", "\n\n"), "num_fewshot": len(shots),
        "fewshot_config": {"sampler": "first_n", "samples": shots} if shots else None,
        "metric_list": [{"metric": m, "aggregation": "mean", "higher_is_better": True} for m in METRICS]})


def evaluate(lm, name):
    out = lm_eval.simple_evaluate(model=lm, tasks=[task_of(name)], bootstrap_iters=1, log_samples=True,
                                  task_manager=TaskManager(include_defaults=False))
    samples = sorted(out["samples"][name], key=lambda s: s["doc_id"])
    result = out["results"][name]
    return {"contexts": [s["arguments"][0][0] for s in samples],
            "logprobs": [[r[0][0] for r in s["resps"]] for s in samples],
            **{m: result[m + ",none"] for m in METRICS},
            **{m + "_stderr": result.get(m + "_stderr,none") for m in METRICS}}


def rename(folder, names):
    """Makes the folder's tokenizer add no tokens, and declare these special tokens."""
    for file, change in (("tokenizer.json", {"post_processor": None}), ("tokenizer_config.json", names)):
        with open(f"{folder}/{file}", encoding="utf-8") as f:
            o = json.load(f)
        if change is names:
            o = {k: v for k, v in o.items() if k not in ("bos_token", "eos_token")}
        with open(f"{folder}/{file}", "w", encoding="utf-8") as f:
            json.dump({**o, **change}, f)


def compute(bin_dir, stories):
    out = {"harness": lm_eval.__version__, "window": WINDOW}
    with tempfile.TemporaryDirectory() as tmp:
        subprocess.run([bin_dir + "/dt-shard-ckpt", "convert", "--tokenizer", stories + "/tok512.bin", "--to",
                        "safetensors", stories + "/stories260K.bin", tmp + "/hf"], check=True, stdout=2)
        lm = HFLM(pretrained=tmp + "/hf", dtype="float32", device="cpu", batch_size=1)
        for name in TASKS:
            out[name] = evaluate(lm, name)
        with open(HERE + "/../../LICENSE", encoding="utf-8") as f:
            text = f.read()[:6000]
        # With the tokenizer's default the harness would add <s> twice.
        lm = HFLM(pretrained=tmp + "/hf", dtype="float32", device="cpu", batch_size=1, max_length=WINDOW,
                  add_bos_token=False)
        request = Instance(request_type="loglikelihood_rolling", doc={}, arguments=(text,), idx=0)
        rolling = lm.loglikelihood_rolling([request])[0]
        out["rolling"] = {"logprob": rolling, "tokens": len(lm.tok_encode(text))}
        for key, names in ALONE.items():
            rename(tmp + "/hf", names)
            lm = HFLM(pretrained=tmp + "/hf", dtype="float32", device="cpu", batch_size=1)
            assert lm.tok_encode("a") == lm.tok_encode("a", add_special_tokens=False), key
            out[key] = {"prefix": lm.tokenizer.decode(lm.prefix_token_id), **evaluate(lm, "alone")}
    return out


def differs(a, b, at=""):
    """Returns where two values differ, allowing rounding of log-probabilities; None if nowhere."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        pairs = [(a[k], b[k], f"{at}.{k}") for k in a if k != "harness"]
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = [(x, y, f"{at}[{i}]") for i, (x, y) in enumerate(zip(a, b))]
    elif isinstance(a, float) and isinstance(b, float):
        return None if abs(a - b) < 1e-4 * max(1, abs(a)) else at
    else:
        return None if a == b else at
    return next((d for d in (differs(*p) for p in pairs) if d is not None), None)


def main(args):
    check = args[:1] == ["--check"]
    if len(args) != 2 + check:
        sys.exit(__doc__)
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    out = compute(*args[-2:])
    if check:
        with open(FILE, encoding="utf-8") as f:
            where = differs(json.load(f), out)
        print("the same" if where is None else f"differs at '{where}'")
        sys.exit(0 if where is None else 3)
    with open(FILE, "w", encoding="utf-8") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main(sys.argv[1:])
# SPDX-License-Identifier: Apache-2.0
