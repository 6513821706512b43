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

bin_dir, data, folder, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
seed = int(sys.argv[5]) if len(sys.argv) > 5 else 1
rng = random.Random(seed)


def write_models():
    """Models with a number of layers that no pipeline divides evenly, 2 key/value heads under 4 heads, sizes
    that are no multiple of 16; with a tied embedding; with norms over all heads; with layers without positions,
    and others with windows; with heads that are rotated in part; with LongRoPE; with attention and MLP
    beside each other, behind norms of their own or one norm; with experts, without and with latent attention, and with biases and attention sinks."""
    common = {"vocab_size": 261, "hidden_size": 48, "intermediate_size": 90, "num_hidden_layers": 5, "num_attention_heads": 4,
              "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000}
    mixtral = {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None}
    latent = {"kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 12,
              "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
              "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2, "norm_topk_prob": True}
    glm = {"head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
           "attention_bias": True, "use_qk_norm": True}
    sinks = {"head_dim": 16, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 7,
             "rope_scaling": {"rope_type": "yarn", "factor": 4, "truncate": False, "original_max_position_embeddings": 16}}
    more = {"llama": {}, "qwen3": {"head_dim": 20, "tie_word_embeddings": True}, "olmo2": {}, "mixtral": mixtral,
            "deepseek_v3": latent, "glm4": {"head_dim": 12}, "glm4_moe": glm, "gpt_oss": sinks, "olmo3": {"sliding_window": 7},
            "smollm3": {"no_rope_layer_interval": 2}, "minimax_m2": {"head_dim": 12, "rotary_dim": 6, "num_local_experts": 8,
            "num_experts_per_tok": 3, "bos_token_id": None, "eos_token_id": None},
            "granite": {"embedding_multiplier": 12, "attention_multiplier": 0.125, "residual_multiplier": 0.22, "logits_scaling": 3},
            "gpt_neox": {"rotary_pct": 0.5}, "cohere": {"logit_scale": 0.25}, "starcoder2": {}, "cohere2": {"sliding_window": 7,
            "sliding_window_pattern": 3}, "phi3": {"partial_rotary_factor": 0.5, "original_max_position_embeddings": 16,
            "rope_scaling": {"type": "longrope", "short_factor": [1, 1.1, 1.5], "long_factor": [1.2, 2, 4]}},
            "granitemoeshared": {"num_local_experts": 8, "num_experts_per_tok": 3, "shared_intermediate_size": 40,
            "residual_multiplier": 0.22, "logits_scaling": 3}}
    paths = []
    for kind, keys in more.items():
        paths.append(os.path.join(folder, kind + ".json"))
        with open(paths[-1], "w") as f:
            json.dump({"model_type": kind, **common, **keys}, f)
    return paths


def draw(models):
    r = {"model": rng.choice(["gpt2-tiny", "llama-tiny", models[0]] + models)}
    experts = any(kind in r["model"] for kind in ("mixtral", "deepseek", "glm4_moe", "gpt_oss", "minimax", "granitemoe"))
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
    models, bad, refused = write_models(), 0, 0
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
