#!/usr/bin/env python3
"""Draws random training runs and gives each to dt-memest, dt-plan and dt-train: all three accept it, or all
three refuse it with the same message, and their memory figures agree to the byte.

random-runs.py BIN DATA FOLDER N [SEED]    prints disagreements; exits with 1 if there are any
"""
import json
import os
import random
import subprocess
import sys
import tempfile

from random_models import has_experts, write_models

bin_dir, data, folder, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
seed = int(sys.argv[5]) if len(sys.argv) > 5 else 1
rng = random.Random(seed)


def draw(models):
    r = {"model": rng.choice(["gpt2-tiny", "llama-tiny", models[0]] + models)}
    experts = has_experts(r["model"])
    while True:
        r["dp"], r["tp"], r["pp"], r["cp"] = (rng.choice([1, 1, 2, 4]) for _ in range(4))
        r["ranks"] = r["dp"] * r["tp"] * r["pp"] * r["cp"]
        if r["ranks"] <= 4:
            break
    r["layout"] = ".".join(["dp%d" % r["dp"], "tp%d" % r["tp"], "pp%d" % r["pp"], "cp%d" % r["cp"]])
    if experts and r["dp"] * r["cp"] > 1 and rng.random() < 0.5:
        r["layout"] += ".ep2"
    if rng.random() < 0.5:
        r["layout"] += ".z%d" % rng.choice([1, 2, 3])
    if r["tp"] > 1 and rng.random() < 0.4:
        r["layout"] += ".s1"
    if r["pp"] > 1 and rng.random() < 0.3:
        r["layout"] += ".v2"
    r["microbatch"] = rng.choice([1, 1, 2, 3])
    r["global"] = r["microbatch"] * r["dp"] * rng.choice([1, 2, 2, 4])
    args = ["--layout", r["layout"], "--microbatch", r["microbatch"], "--global-batch", r["global"],
            "--seq", rng.choice([16, 32, 32, 33, 64]), "--precision", rng.choice(["bf16", "bf16", "fp32", "fp16"]),
            "--optimizer", rng.choice(["sgd", "momentum", "nesterov", "rmsprop", "adagrad", "adam", "adamw", "nadam", "lion",
                                       "lars", "lamb", "adafactor", "muon", "adamw8bit"]),
            "--pipeline", rng.choice(["1f1b", "1f1b", "gpipe", "zb-h1"])]
    r["recompute"] = rng.choice(["none", "none", "selective", "full", "every:2"])
    args += ["--recompute", r["recompute"]]
    for chance, more in [(0.2, ["--fp8"]), (0.25, ["--no-master"]), (0.15, ["--reproducible"]),
                         (0.2, ["--grad-comm", "bf16"]), (0.2, ["--loss-chunk", "8"]), (0.3, ["--save-async"]),
                         (0.3, ["--save-grads"]), (0.1, ["--lora", "4"]), (0.1, ["--freeze", ".*norm.*"]),
                         (0.1, ["--qat", "q8_0"]), (0.1, ["--ema", "0.9"]), (0.1, ["--capacity-factor", "1.25"]),
                         (0.1, ["--offload", rng.choice(["optimizer", "weights", "activations"]), "--offload-to", "disk:."]),
                         (0.3, ["--cp-comm", rng.choice(["gather", "ring", "ulysses"])])]:
        if rng.random() < chance:
            args += more
    r["args"] = [str(a) for a in args]
    return r


def run(argv):
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = [line.split(": ", 1)[1] for line in p.stderr.splitlines() if line.startswith("dt-") and ": " in line]
    return p.returncode, p.stdout, said


def reason(said):
    """Returns the error message among the lines of a program, without the rank's prefix and the hint."""
    text = said[-1] if said else ""
    for line in said:
        if not line.startswith("hint: "):
            text = line
    if text.startswith("rank "):
        text = text.split(": ", 1)[1]
    return text.split("; ")[0]


def ask_memest(r):
    rc, out, said = run([bin_dir + "/dt-memest", "--json", "--account", "dt", "--threads", "1", r["model"]] +
                        r["args"])
    return (json.loads(out)["peak_bytes"], None) if rc == 0 else (None, reason(said))


def ask_plan(r):
    if r["recompute"].startswith("every"):
        return None  # dt-plan considers only none, selective and full
    # dt-plan plans fp8 for GPUs only, whose memory holds no --save-async copies, no buffers for a disk, and no
    # overlapped messages of a cut residual stream
    fp8 = "--fp8" in r["args"]
    if fp8 and ("--save-async" in r["args"] or "--offload" in r["args"] or any(".s1" in a for a in r["args"])):
        return None
    rc, out, said = run([bin_dir + "/dt-plan", "--json", "--account", "dt", "--threads", "1", "--gpus", str(r["ranks"]), "--gpu",
                         "H100" if fp8 else "cpu",
                         "--gpu-mem", "64GiB", "--compare"] + r["args"][1:2] + r["args"][2:] + [r["model"]])
    if rc in (0, 3):  # 3: not among the layouts that dt-plan tries by itself
        return json.loads(out)["compared"]["peak_bytes"], None
    return None, reason(said)


def ask_train(r):
    with tempfile.TemporaryDirectory(dir=folder) as fresh:  # dt-train refuses a folder with another run's checkpoints
        return train_once(r, os.path.join(fresh, "save"))


def train_once(r, save):
    argv = [bin_dir + "/dt-train", "--model", r["model"], "--data", data, "--steps", "1", "--no-mfu", "--threads", "1",
            "--comm-timeout", "120", "--save", save] + r["args"]
    if r["ranks"] > 1:
        argv = ["mpirun", "-np", str(r["ranks"])] + argv
    rc, out, said = run(argv)
    if rc == 0:
        return json.loads(out.splitlines()[0])["peak_bytes"], None
    return None, "exit %d: %s" % (rc, said) if rc != 2 else next(
        (reason([s]) for s in said if "parameters; layout" not in s and "global batch" not in s), "")


def main():
    models, bad, refused = write_models(folder), 0, 0
    for i in range(count):
        r = draw(models)
        memest, train, plan = ask_memest(r), ask_train(r), ask_plan(r)
        refused += train[0] is None
        what = None
        if (memest[0] is None) != (train[0] is None) or (plan and (plan[0] is None) != (train[0] is None)):
            what = "one refuses what another takes"
        elif memest[0] != train[0] or (plan and plan[0] != train[0]):
            what = "the memory differs"
        elif memest[1] != train[1]:
            what = "the reasons differ"
        if what:
            bad += 1
            print("%d: %s: %s %s\n  dt-memest: %s\n  dt-train:  %s\n  dt-plan:   %s" %
                  (i, what, r["model"], " ".join(r["args"]), memest, train, plan))
    print("%d runs drawn with seed %d, %d refused, %d disagree" % (count, seed, refused, bad))
    if refused in (0, count):
        print("runs of one kind only show nothing")
    return bad > 0 or refused in (0, count)


sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
