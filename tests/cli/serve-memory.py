#!/usr/bin/env python3
"""Compares the memory of dt-serve with random models with dt-memest's estimate, by category and by process.

serve-memory.py COUNT [SEED]   in an empty folder; DT_BIN: folder of the programs

Each trial writes a GGUF file (random family and sizes, a random type for every matrix), starts dt-serve on it
with random options for weights, cache, length, sequences, blocks and batch, and sends as many requests at
once as fill its cache. The bytes in /metrics must equal the estimate of `dt-memest --check` and be labelled
exact. The process may use 3% and CONSTANT bytes more than that (see dt-memest(1)), and must use at least the
weights and the blocks that hold tokens, less 3%. All weights are zero, which changes no size. Exit status: 0
yes, 3 no. """
import json
import os
import random
import struct
import subprocess
import sys
import urllib.request

CONSTANT = 32 << 20
BIN = os.environ["DT_BIN"]
# name: elements per block, bytes per block, number in GGUF
TYPES = {"f32": (1, 4, 0), "f16": (1, 2, 1), "bf16": (1, 2, 30), "q4_0": (32, 18, 2), "q4_1": (32, 20, 3), "q5_0": (32, 22, 6),
         "q8_0": (32, 34, 8), "q4_k": (256, 144, 12), "q6_k": (256, 210, 14)}


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def byte_tokens():
    """GPT-2's characters for bytes: printable bytes stand for themselves, the others are numbered from
    256."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    more = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(more)) for b in range(256)] + ["<|end|>"]


def shapes(m):
    h, a, kv, f, e = m["hidden"], m["heads"] * m["dim"], m["kv"] * m["dim"], m["ffn"], m["experts"]
    arch, norms = m["arch"], ["attn_norm", "ffn_norm"]
    out = {"token_embd.weight": (m["vocab"], h), "output_norm.weight": (h,)}
    if not m["tied"]:
        out["output.weight"] = (m["vocab"], h)
    if arch == "gpt2":
        out |= {"position_embd.weight": (m["positions"], h), "output_norm.bias": (h,)}
    if arch == "gemma3":
        norms += ["post_attention_norm", "post_ffw_norm"]
    for i in range(m["layers"]):
        p = f"blk.{i}."
        out |= {f"{p}{n}.weight": (h,) for n in norms} | {p + "attn_output.weight": (h, a)}
        if arch == "gpt2":
            out |= {p + "attn_qkv.weight": (3 * h, h), p + "ffn_up.weight": (f, h), p + "ffn_down.weight": (h, f),
                    p + "attn_norm.bias": (h,), p + "ffn_norm.bias": (h,), p + "attn_qkv.bias": (3 * h,),
                    p + "attn_output.bias": (h,), p + "ffn_up.bias": (f,), p + "ffn_down.bias": (h,)}
            continue
        out |= {p + "attn_q.weight": (a, h), p + "attn_k.weight": (kv, h), p + "attn_v.weight": (kv, h)}
        if arch == "qwen2":
            out |= {p + "attn_q.bias": (a,), p + "attn_k.bias": (kv,), p + "attn_v.bias": (kv,)}
        if arch in ("qwen3", "qwen3moe", "gemma3"):
            out |= {p + "attn_q_norm.weight": (m["dim"],), p + "attn_k_norm.weight": (m["dim"],)}
        if e:
            out |= {p + "ffn_gate_inp.weight": (e, h), p + "ffn_gate_exps.weight": (e, f, h),
                    p + "ffn_up_exps.weight": (e, f, h), p + "ffn_down_exps.weight": (e, h, f)}
        else:
            out |= {p + "ffn_gate.weight": (f, h), p + "ffn_up.weight": (f, h), p + "ffn_down.weight": (h, f)}
    return out


def write_gguf(path, m, types):
    a = m["arch"]
    u32, f32 = (lambda v: (4, struct.pack("<I", v))), (lambda v: (6, struct.pack("<f", v)))
    tokens = byte_tokens()
    keys = {"general.architecture": (8, text(a)), "tokenizer.ggml.model": (8, text("gpt2")),
            "tokenizer.ggml.pre": (8, text("gpt-2")),
            "tokenizer.ggml.tokens": (9, struct.pack("<IQ", 8, len(tokens)) + b"".join(map(text, tokens))),
            "tokenizer.ggml.token_type": (9, struct.pack(f"<IQ{len(tokens)}i", 5, len(tokens), *[1] * 256, 3)),
            "tokenizer.ggml.merges": (9, struct.pack("<IQ", 8, 0)), "tokenizer.ggml.eos_token_id": u32(256),
            f"{a}.context_length": u32(m["positions"]), f"{a}.embedding_length": u32(m["hidden"]),
            f"{a}.block_count": u32(m["layers"]), f"{a}.feed_forward_length": u32(m["ffn"]),
            f"{a}.attention.head_count": u32(m["heads"])}
    if a == "gpt2":
        keys[f"{a}.attention.layer_norm_epsilon"] = f32(1e-5)
    else:
        keys |= {f"{a}.attention.layer_norm_rms_epsilon": f32(1e-5), f"{a}.attention.head_count_kv": u32(m["kv"]),
                 f"{a}.attention.key_length": u32(m["dim"]), f"{a}.rope.freq_base": f32(10000)}
    if m["experts"]:
        keys |= {f"{a}.expert_count": u32(m["experts"]), f"{a}.expert_used_count": u32(2),
                 f"{a}.expert_feed_forward_length": u32(m["ffn"])}
    if a == "gemma3":
        keys |= {f"{a}.attention.sliding_window": u32(64), f"{a}.attention.sliding_window_pattern": u32(2)}
    tensors = shapes(m)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(text(k) + struct.pack("<I", t) + v for k, (t, v) in keys.items())
    at = 0
    for name, shape in tensors.items():
        kind = types.get(name, "f32")
        block, size, number = TYPES[kind]
        n = 1
        for d in shape:
            n *= d
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], number, at)
        at += n // block * size + 31 & ~31
    with open(path, "wb") as f:  # the file is sparse
        f.write(head + bytes(-len(head) % 32))
        f.truncate(f.tell() + at)


def draw(r):
    """Draws a model and the options of both programs."""
    arch = r.choice(["llama", "llama", "mixtral", "qwen2", "qwen3", "qwen3moe", "gemma3", "gpt2"])
    m = {"arch": "llama" if arch == "mixtral" else arch, "hidden": r.choice([256, 512, 1024]), "heads": r.choice([4, 8]),
         "layers": r.choice([1, 2, 3, 5]), "vocab": r.choice([257, 300, 1024, 8191, 32000]), "positions": 2048,
         "ffn": r.choice([256, 512, 1280]), "experts": r.choice([2, 3, 4]) if arch in ("mixtral", "qwen3moe") else 0,
         "tied": arch in ("gpt2", "gemma3") or r.random() < 0.3}
    m["dim"] = m["hidden"] // m["heads"]
    m["kv"] = m["heads"] if arch == "gpt2" else r.choice([1, 2, 4])
    kinds = r.choice([["f32"], ["bf16"], ["f16"], ["q8_0"], ["q4_k", "q6_k"], list(TYPES)])
    chosen = {}
    serve = {"weights": r.choice(["auto", "auto", "auto", "bf16", "q8_0", "q4_0"]), "precision": r.choice(["bf16", "bf16", "fp32"]),
             "kv-cache-dtype": r.choice(["auto", "auto", "fp32", "int8"]), "max-model-len": r.choice([33, 64, 100, 256, 500]),
             "max-num-seqs": r.choice([1, 2, 3, 5, 8, 16]), "block-size": r.choice([4, 8, 16, 17, 32]),
             "max-num-batched-tokens": r.choice([33, 128, 500, 512, 2048])}
    memest = ["--serve", "--account", "dt", "--threads", "1", "--activations", serve["precision"], "--max-len", serve["max-model-len"],
              "--max-seqs", serve["max-num-seqs"], "--block-size", serve["block-size"], "--max-tokens",
              serve["max-num-batched-tokens"], "--kv-precision", serve["kv-cache-dtype"]]
    if serve["weights"] != "auto":
        memest += ["--precision", serve["weights"]]
    for name, shape in shapes(m).items():  # parts of a fused matrix may differ in type
        if len(shape) > 1 and "gate_inp" not in name and "position" not in name:
            chosen[name] = r.choice(kinds)
    return m, chosen, [x for k, v in serve.items() for x in ("--" + k, str(v))], [str(x) for x in memest], serve


def measure(options, serve, r):
    """Returns the server's memory metrics as text, and the memory of its process when its cache is full."""
    with open("log", "w") as log:
        p = subprocess.Popen([f"{BIN}/dt-serve", "model.gguf", "--port", "0", "--threads", "1", *options],
                             stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        url = p.stdout.readline().strip()
        if not url:
            sys.exit("dt-serve did not start: " + open("log").read())
        prompts = [[r.randrange(256) for _ in range(serve["max-model-len"] - 1)] for _ in range(serve["max-num-seqs"])]
        body = {"prompt": prompts, "max_tokens": 1, "temperature": 0, "ignore_eos": True}
        q = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        answer = json.load(urllib.request.urlopen(q, timeout=600))
        assert len(answer["choices"]) == len(prompts), answer
        said = urllib.request.urlopen(url + "/metrics", timeout=600).read().decode()
        with open(f"/proc/{p.pid}/smaps_rollup") as f:
            pss = next(int(line.split()[1]) << 10 for line in f if line.startswith("Pss_Anon:"))
    finally:
        p.kill()
        p.wait()
    return said, pss


def main(count, seed=8128):
    r, bad, most = random.Random(int(seed)), 0, 0
    for i in range(int(count)):
        m, types, options, memest, serve = draw(r)
        write_gguf("model.gguf", m, types)
        metrics, pss = measure(options, serve, r)
        with open("metrics.txt", "w") as f:
            f.write(metrics)
        check = subprocess.run([f"{BIN}/dt-memest", "model.gguf", *memest, "--check", "metrics.txt", "--json"],
                               capture_output=True, text=True)
        est = subprocess.run([f"{BIN}/dt-memest", "model.gguf", *memest, "--json"], capture_output=True, text=True)
        print(f"{i + 1}: {m} of {sorted(set(types.values()))} {' '.join(options)}")
        if check.returncode or est.returncode:
            print("   differs:", check.stdout, check.stderr, est.stderr)
            bad += 1
            continue
        est = json.loads(est.stdout)
        cat = {c["name"]: c["bytes"] for c in est["categories"]}
        said = {line.split('category="')[1].split('"')[0]: int(line.split()[-1])
                for line in metrics.splitlines() if line.startswith("dt_serve_memory_bytes{")}
        ok = cat == said and all(c["exact"] for c in est["categories"])
        kept = cat["weights"] + cat["kv-cache"] * (serve["max-model-len"] - 1) // (
            -(-serve["max-model-len"] // serve["block-size"]) * serve["block-size"])
        ok &= 0.97 * kept < pss < 1.03 * est["peak_bytes"] + CONSTANT
        most = max(most, pss - 1.03 * est["peak_bytes"])
        print(f"   {'equal' if ok else 'OFF'}: {cat}, /metrics {said}; process {pss}, estimate {est['peak_bytes']}")
        bad += not ok
    print(f"{count} servers, {bad} off; the largest constant beside 3%: {most / 2**20:.1f} MiB")
    return 3 if bad else 0


sys.exit(main(*sys.argv[1:]))
# SPDX-License-Identifier: Apache-2.0
