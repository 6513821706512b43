#!/usr/bin/env python3
"""Draws random models and servers: options that must not change answers (batches, blocks, caches, speculation,
ranks) against one request after another on one rank without any of them.

random-serves.py BIN DATA FOLDER N [SEED]    prints differences; exits with 1 if there are any

Greedy answers of one rank and their log-probabilities are equal to the last digit. Ranks add in another order: there,
log-probabilities may differ by TIE, and answers may part where two tokens are as probable.
"""
import json
import os
import random
import subprocess
import sys

from random_models import has_experts, write_models

bin_dir, data, folder, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
seed = int(sys.argv[5]) if len(sys.argv) > 5 else 1
rng = random.Random(seed)
TIE = {"fp32": 1e-3, "bf16": 0.5, "int8": 0.05, "--weights": 0.05}  # int8: of keys, or of what quantised weights multiply
FORMATS = ["q8_0", "q4_0", "q4_1", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "mxfp4", "iq4_xs"]
if count > 20:  # each server looks for codes for many seconds
    FORMATS += ["iq3_s", "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs"]


def run(argv, text=""):
    p = subprocess.run(argv, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    return p.returncode, p.stdout, p.stderr.strip()


def checkpoint(config):
    """Returns the checkpoint of a model, made when it is first drawn."""
    to = config[:-5]
    if not os.path.isdir(to):
        rc, _, err = run([bin_dir + "/dt-train", "--model", config, "--data", data, "--steps", "1", "--lr", "0", "--no-mfu",
                          "--threads", "1", "--seq", "32", "--save", to])
        assert rc == 0, err
    return to + "/latest"


def prompts():
    """Lines of requests: some share a beginning, some repeat themselves, some are a single token."""
    lines, head = [], [rng.randrange(3, 250) for _ in range(rng.choice([8, 17, 24]))]
    for i in range(6):
        ids = [rng.randrange(3, 250) for _ in range(rng.choice([1, 2, 5, 9]))]
        if i % 2:
            ids = head[:rng.choice([7, 8, 16, 24])] + ids
        if i == 4:
            ids = ids * 3
        lines.append(json.dumps({"id": str(i), "prompt": ids, "max_tokens": rng.choice([1, 6, 20]), "temperature": 0,
                                 "ignore_eos": True, "logprobs": 2, "return_token_ids": True}))
    return "\n".join(lines) + "\n"


def draw(models):
    r = {"model": rng.choice(models), "precision": rng.choice(["bf16", "fp32"]), "ranks": 1}
    same = ["--precision", r["precision"]]
    if rng.random() < 0.6:
        same += ["--weights", rng.choice(FORMATS)]
    if rng.random() < 0.3:
        same += ["--kv-cache-dtype", "int8"]
    # int8 keys are kept by sixteens: blocks of eight have another layout, and other rounding
    other = ["--max-num-seqs", rng.choice([2, 3, 8]), "--max-num-batched-tokens", rng.choice([8, 13, 64, 512]),
             "--block-size", rng.choice([16, 32] if "int8" in same else [8, 16, 32]), "--threads", rng.choice([1, 2])]
    if rng.random() < 0.35:
        tp, pp = rng.choice([(2, 1), (1, 2), (2, 2), (4, 1)])
        r["ranks"] = tp * pp
        if has_experts(r["model"]): # bf16 rounds router scores, and other experts compute other answers
            same[1] = r["precision"] = "fp32"
        layout = "tp%d.pp%d" % (tp, pp)
        if has_experts(r["model"]) and rng.random() < 0.5:
            layout, r["ranks"] = "dp2.ep2", 2
        other += ["--layout", layout]
    for chance, more in [(0.3, ["--no-prefix-caching"]), (0.4, ["--speculate", rng.choice([1, 3, 8])]),
                         (0.2, ["--kv-cache-mem", rng.choice(["64KiB", "128KiB", "1MiB"])]),
                         (0.15, ["--kv-host", "1MiB"]), (0.15, ["--weights-disk", folder, "--weights-memory", "64KiB"])]:
        if rng.random() < chance:
            other += more
    r["same"], r["other"] = [str(a) for a in same], [str(a) for a in other]
    return r


def answers(out):
    return {a["id"]: a for a in map(json.loads, out.splitlines())}


def parted(a, b, tie):
    """Says where two answers differ, if not at a tie: there, both chose a token of nearly the same probability."""
    if "error" in a or "error" in b:
        return None if a.get("error") == b.get("error") else "%s / %s" % (a.get("error"), b.get("error"))
    x, y = a["token_ids"], b["token_ids"]
    p, q = a["logprobs"]["token_logprobs"], b["logprobs"]["token_logprobs"]
    if len(x) != len(y):
        return "%d tokens / %d tokens" % (len(x), len(y))
    for at in range(len(x)):
        if abs(p[at] - q[at]) > tie:
            return "token %d: %d with %.7f / %d with %.7f" % (at, x[at], p[at], y[at], q[at])
        if x[at] != y[at]:
            return None if tie else "token %d: %d / %d" % (at, x[at], y[at])
    return None


def refusal(rc, out, err):
    """The message with which a server ends before it answers; None: it answered."""
    said = [line for line in err.splitlines() if line.startswith("dt-serve: ")]
    return said[0] if rc in (1, 2) and not out and said else None


def compare(r):
    """Returns (refusal, difference)."""
    text = prompts()
    serve = [bin_dir + "/dt-serve", "--batch", checkpoint(r["model"])] + r["same"]
    rc, out, err = run(serve + ["--threads", "1", "--max-num-seqs", "1", "--no-prefix-caching"], text)
    no = refusal(rc, out, err)
    if no or rc not in (0, 1):
        return no, None if no else "exit %d: %s" % (rc, err)
    one, argv = answers(out), serve + r["other"]
    rc, out, err = run(["mpirun", "-np", str(r["ranks"])] + argv if r["ranks"] > 1 else argv, text)
    no = refusal(rc, out, err)
    if no or rc not in (0, 1) or not out:
        return no, None if no else "exit %d: %s" % (rc, err)
    two = answers(out)
    if one.keys() != two.keys():
        return None, "answers to %s / %s" % (sorted(one), sorted(two))
    tie = max(TIE[kind] for kind in TIE if kind in r["same"]) if r["ranks"] > 1 else 0
    said = [(k, parted(one[k], two[k], tie)) for k in one]
    return None, "; ".join("%s: %s" % pair for pair in said if pair[1])


def main():
    models, bad, refused = write_models(folder, wide=True, initializer_range=0.15), 0, {}
    for i in range(count):
        r = draw(models)
        no, what = compare(r)
        if no:
            refused[no] = refused.get(no, 0) + 1
        elif what:
            bad += 1
            print("%d: %s %s | %s\n  %s" % (i, r["model"], " ".join(r["same"]), " ".join(r["other"]), what[:1500]), flush=True)
    for line, n in sorted(refused.items()):
        print("refused %d times: %s" % (n, line))
    none = sum(refused.values())
    print("%d servers drawn with seed %d, %d refused, %d answer differently" % (count, seed, none, bad))
    return bad > 0 or none > count / 2


sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
