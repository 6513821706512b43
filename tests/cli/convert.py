#!/usr/bin/python3
"""Writes and reads models in other programs' formats with numpy alone.

convert.py make FAMILY DTYPE DIR [FILES]   writes a tiny model with random weights as a Hugging Face folder;
gemma3
                                           is gemma3_text inside the configuration of the multimodal model
convert.py same DIR DIR                    same tensors, bit by bit, and same config.json in the keys that
matter? convert.py gguf DIR FILE TYPE              is FILE the folder's model in GGUF (TYPE f32 f16 bf16 q8_0
q4_0)? convert.py llmc DIR FILE                   is FILE the folder's model in llm.c's .bin format?
convert.py further DIR [eh_proj]           adds a module behind the layers to the folder (without that tensor)
convert.py mean DIR DIR DIR                is the third the mean of the other two (f32)?
convert.py peers DIR HF GGUF...            do PyPI's safetensors and gguf read the folder's model from HF and
the files? convert.py split FILE PREFIX N             cuts a GGUF into PREFIX-00001-of-0000N.gguf and so on,
as gguf-split does convert.py text TOK512 IDS                 decodes ids (JSON on standard input) with
llama2.c's tokenizer convert.py serve                           runs such commands, one per line of standard
input with arguments separated
                                           by tabs; after the output of each prints a line "status N"
Exit status: 0 yes, 3 no, 77 without numpy.
"""
import json
import os
import struct
import sys
import traceback

try:
    import numpy as np
except ImportError:
    sys.exit(77)

H, HEADS, KV, D, F, L, V, T, E, W = 64, 4, 2, 16, 96, 2, 300, 32, 3, 32
TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I32": "<i4"}


def to_bf16(x):
    u = x.astype("<f4").view("<u4").astype("<u8")
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype("<u2")


def as_f32(dtype, x):
    return (x.astype("<u4") << 16).view("<f4") if dtype == "BF16" else x.astype("<f4")


def config(family):
    if family == "gpt2":
        return {"model_type": "gpt2", "vocab_size": V, "n_embd": H, "n_inner": 4 * H, "n_layer": L, "n_head": HEADS,
                "n_positions": T, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "bos_token_id": 3,
                "eos_token_id": 3}
    c = {"model_type": family, "vocab_size": V, "hidden_size": H, "intermediate_size": F, "num_hidden_layers": L,
         "num_attention_heads": HEADS, "num_key_value_heads": KV, "max_position_embeddings": T, "rms_norm_eps": 1e-5,
         "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": family == "qwen3", "bos_token_id": 1,
         "eos_token_id": 2}
    if family == "llama":
        c["rope_scaling"] = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                             "original_max_position_embeddings": 8192}
    if family == "mistral":
        c["sliding_window"] = 8
    if family in ("qwen3", "qwen3_moe"):
        c["head_dim"] = D
    if family == "qwen3_moe":
        c |= {"num_experts": E, "num_experts_per_tok": 2, "moe_intermediate_size": W, "norm_topk_prob": True}
    if family == "mixtral":
        c |= {"num_local_experts": E, "num_experts_per_tok": 2, "rope_theta": 1e6}
    if family.startswith("deepseek"):  # V3 also compresses queries into a latent
        c |= {"num_key_value_heads": HEADS, "kv_lora_rank": 24, "q_lora_rank": 40 if family == "deepseek_v3" else None,
              "qk_nope_head_dim": 12, "qk_rope_head_dim": 6, "v_head_dim": 10, "n_routed_experts": E, "n_shared_experts": 2,
              "num_experts_per_tok": 2, "moe_intermediate_size": W, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
              "norm_topk_prob": family == "deepseek_v3", "routed_scaling_factor": 2.5}
    if family == "gemma3_text":
        del c["hidden_act"]
        c |= {"head_dim": D, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": D, "sliding_window": 8,
              "sliding_window_pattern": 2, "layer_types": ["sliding_attention", "full_attention"],
              "rope_local_base_freq": 12345.0, "rope_theta": 1e6,
              "rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 8.0},
              "tie_word_embeddings": True}
    return c


def shapes(family):
    if family == "gpt2":
        out = {"wte.weight": (V, H), "wpe.weight": (T, H), "ln_f.weight": (H,), "ln_f.bias": (H,)}
        for i in range(L):
            p = f"h.{i}."
            out |= {p + "ln_1.weight": (H,), p + "ln_1.bias": (H,), p + "ln_2.weight": (H,), p + "ln_2.bias": (H,),
                    p + "attn.c_attn.weight": (H, 3 * H), p + "attn.c_attn.bias": (3 * H,),
                    p + "attn.c_proj.weight": (H, H), p + "attn.c_proj.bias": (H,), p + "mlp.c_fc.weight": (H, 4 * H),
                    p + "mlp.c_fc.bias": (4 * H,), p + "mlp.c_proj.weight": (4 * H, H), p + "mlp.c_proj.bias": (H,)}
        return {"transformer." + k: v for k, v in out.items()}
    out = {"model.embed_tokens.weight": (V, H), "model.norm.weight": (H,)}
    if family not in ("qwen3", "gemma3_text"):
        out["lm_head.weight"] = (V, H)
    for i in range(L):
        p, a = f"model.layers.{i}.", f"model.layers.{i}.self_attn."
        out |= {p + "input_layernorm.weight": (H,), p + "post_attention_layernorm.weight": (H,),
                a + "q_proj.weight": (HEADS * D, H), a + "k_proj.weight": (KV * D, H), a + "v_proj.weight": (KV * D, H),
                a + "o_proj.weight": (H, HEADS * D), p + "mlp.gate_proj.weight": (F, H), p + "mlp.up_proj.weight": (F, H),
                p + "mlp.down_proj.weight": (H, F)}
        if family == "qwen2":
            out |= {a + "q_proj.bias": (HEADS * D,), a + "k_proj.bias": (KV * D,), a + "v_proj.bias": (KV * D,)}
        if family == "mixtral":
            for w in "gate", "up", "down":
                del out[f"{p}mlp.{w}_proj.weight"]
            m = p + "block_sparse_moe."
            out |= {m + "gate.weight": (E, H)}
            for e in range(E):
                out |= {f"{m}experts.{e}.w1.weight": (F, H), f"{m}experts.{e}.w2.weight": (H, F),
                        f"{m}experts.{e}.w3.weight": (F, H)}
        if family == "qwen3_moe":
            for w in "gate", "up", "down":
                del out[f"{p}mlp.{w}_proj.weight"]
            out |= {p + "mlp.gate.weight": (E, H)}
            for e in range(E):
                m = f"{p}mlp.experts.{e}."
                out |= {m + "gate_proj.weight": (W, H), m + "up_proj.weight": (W, H), m + "down_proj.weight": (H, W)}
        if family.startswith("deepseek"):
            for w in "q", "k", "v":
                del out[f"{a}{w}_proj.weight"]
            v3 = family == "deepseek_v3"
            out |= {a + "kv_a_proj_with_mqa.weight": (24 + 6, H), a + "kv_a_layernorm.weight": (24,),
                    a + "kv_b_proj.weight": (HEADS * (12 + 10), 24), a + "o_proj.weight": (H, HEADS * 10)}
            out |= {a + "q_a_proj.weight": (40, H), a + "q_a_layernorm.weight": (40,),
                    a + "q_b_proj.weight": (HEADS * 18, 40)} if v3 else {a + "q_proj.weight": (HEADS * 18, H)}
        if family.startswith("deepseek") and i >= 1:
            for w in "gate", "up", "down":
                del out[f"{p}mlp.{w}_proj.weight"]
            out |= {p + "mlp.gate.weight": (E, H)} | ({p + "mlp.gate.e_score_correction_bias": (E,)} if v3 else {})
            for m, wide in [(f"{p}mlp.experts.{e}.", W) for e in range(E)] + [(p + "mlp.shared_experts.", 2 * W)]:
                out |= {m + "gate_proj.weight": (wide, H), m + "up_proj.weight": (wide, H), m + "down_proj.weight": (H, wide)}
        if family == "gemma3_text":
            out |= {p + "pre_feedforward_layernorm.weight": (H,), p + "post_feedforward_layernorm.weight": (H,)}
        if family in ("qwen3", "qwen3_moe", "gemma3_text"):
            out |= {a + "q_norm.weight": (D,), a + "k_norm.weight": (D,)}
    return out


def write_st(path, tensors, dtype):
    head, at = {}, 0
    for k, v in tensors.items():
        head[k] = {"dtype": dtype, "shape": list(v.shape), "data_offsets": [at, at + v.nbytes]}
        at += v.nbytes
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for v in tensors.values():
            f.write(v.tobytes())


def read_st(folder):
    """Returns {name: (dtype, array)}."""
    index, out = os.path.join(folder, "model.safetensors.index.json"), {}
    files = ["model.safetensors"]
    if os.path.exists(index):
        files = sorted(set(json.load(open(index))["weight_map"].values()))
    for name in files:
        raw = open(os.path.join(folder, name), "rb").read()
        (n,) = struct.unpack_from("<Q", raw)
        for k, t in json.loads(raw[8 : 8 + n]).items():
            if k != "__metadata__":
                a, b = t["data_offsets"]
                out[k] = (t["dtype"], np.frombuffer(raw[8 + n + a : 8 + n + b], TYPES[t["dtype"]]).reshape(t["shape"]))
    return out


def make(family, dtype, folder, files="1"):
    sees, family = family == "gemma3", "gemma3_text" if family == "gemma3" else family
    rng = np.random.default_rng(sum(map(ord, family + dtype + folder[-1])))
    os.makedirs(folder)
    tensors = {}
    for k, s in shapes(family).items():
        x = rng.standard_normal(s).astype("<f4")
        tensors[k] = to_bf16(x) if dtype == "BF16" else x.astype(TYPES[dtype])
    c = config(family)
    if sees:
        c = {"model_type": "gemma3", "text_config": c, "vision_config": {"hidden_size": 8}}
        tensors = {"language_model." + k: v for k, v in tensors.items()}
        for k in "vision_tower.vision_model.head.weight", "multi_modal_projector.mm_soft_emb_norm.weight":
            tensors[k] = np.zeros((2, 2), TYPES[dtype])
    json.dump(c, open(os.path.join(folder, "config.json"), "w"))
    json.dump({"chat_template": "{{ messages }}"}, open(os.path.join(folder, "tokenizer_config.json"), "w"))
    n = int(files)
    if n == 1:
        return write_st(os.path.join(folder, "model.safetensors"), tensors, dtype)
    names, where = list(tensors), {}
    for i in range(n):
        part = {k: tensors[k] for k in names[i::n]}
        write_st(os.path.join(folder, f"part-{i}.safetensors"), part, dtype)
        where |= {k: f"part-{i}.safetensors" for k in part}
    json.dump({"weight_map": where}, open(os.path.join(folder, "model.safetensors.index.json"), "w"))


def further(folder, *without):
    """Adds a module behind the layers, as DeepSeek-V3 and GLM-4.5 have one to predict a second token."""
    tensors = read_st(folder)
    last = "layers." + str(max(int(k.split(".")[2]) for k in tensors if ".layers." in k)) + "."
    next_ = f"layers.{int(last.split('.')[1]) + 1}."
    new = {k.replace(last, next_): v for k, v in tensors.items() if last in k}
    new |= {f"model.{next_}{k}.weight": tensors["model.norm.weight"] for k in ("eh_proj", "enorm", "hnorm") if k not in without}
    dtype = next(iter(tensors.values()))[0]
    write_st(os.path.join(folder, "model.safetensors"), {k: v for k, (_, v) in (tensors | new).items()}, dtype)


def check(ok, *what):
    if not ok:
        print("differs:", *what)
        sys.exit(3)


def same(a, b):
    x, y = read_st(a), read_st(b)
    check(sorted(x) == sorted(y), "names", set(x) ^ set(y))
    for k in x:
        check(x[k][0] == y[k][0] and x[k][1].tobytes() == y[k][1].tobytes() and x[k][1].shape == y[k][1].shape, k)
    c, d = (json.load(open(os.path.join(f, "config.json"))) for f in (a, b))
    for k, v in c.items():
        check(d.get(k) == v or (k == "rope_theta" and abs(d[k] - v) < 1e-3), k, v, d.get(k))
    t = [json.load(open(os.path.join(f, "tokenizer_config.json")))["chat_template"] for f in (a, b)]
    check(t[0] == t[1], "chat template", t)


def read_gguf(path):
    raw, at = open(path, "rb").read(), 4
    fmt = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def scalar(f):
        nonlocal at
        (v,) = struct.unpack_from("<" + f, raw, at)
        at += struct.calcsize("<" + f)
        return v

    def text():
        nonlocal at
        n = scalar("Q")
        at += n
        return raw[at - n : at].decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            inner, n = scalar("I"), scalar("Q")
            return [value(inner) for _ in range(n)]
        return scalar(fmt[kind])

    check(raw[:4] == b"GGUF" and scalar("I") == 3, "magic")
    nt, nkv = scalar("Q"), scalar("Q")
    kv = {}
    for _ in range(nkv):
        key = text()
        kv[key] = value(scalar("I"))
    infos = []
    for _ in range(nt):
        name, nd = text(), scalar("I")
        dims = [scalar("Q") for _ in range(nd)]
        infos.append((name, dims[::-1], scalar("I"), scalar("Q")))
    data = (at + 31) // 32 * 32
    check(all(o % 32 == 0 for *_, o in infos), "alignment")
    return kv, {n: (s, t, raw[data + o :]) for n, s, t, o in infos}


def blocks(x, kind):
    """Rounds rows of 32 as GGUF's reference code does."""
    x = x.reshape(-1, 32)
    if kind == 8:
        d = np.abs(x).max(1, keepdims=True) / np.float32(127)
        inv = np.where(d == 0, 0, 1 / d).astype("<f4")
        y = x * inv
        q = (np.sign(y) * np.floor(np.abs(y) + np.float32(0.5))).astype("i1").view("u1")
    else:
        big = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)
        d = big / np.float32(-8)
        inv = np.where(d == 0, 0, 1 / d).astype("<f4")
        q = np.minimum(np.trunc(x * inv + np.float32(8.5)).astype("u1"), 15)
        q = q[:, :16] | q[:, 16:] << 4
    return np.concatenate([d.astype("<f2").view("u1"), q], 1).tobytes()


def rest_of(stem):
    return stem.split(".", 2)[2] if stem.startswith("layers.") else stem


def gguf(folder, path, kind):
    hf = read_st(folder)
    c = json.load(open(os.path.join(folder, "config.json")))
    family = c["model_type"]
    kv, have = read_gguf(path)
    arch = {"mistral": "llama", "mixtral": "llama", "gemma3_text": "gemma3", "qwen3_moe": "qwen3moe",
            "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2"}.get(family, family)
    check(kv["general.architecture"] == arch, "architecture")
    check(kv[arch + ".embedding_length"] == H and kv[arch + ".block_count"] == L, "sizes")
    check(kv["tokenizer.chat_template"] == "{{ messages }}", "chat template")
    names = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
             "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.q_norm": "attn_q_norm",
             "self_attn.k_norm": "attn_k_norm", "wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm",
             "ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
             "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down", "block_sparse_moe.gate": "ffn_gate_inp",
             "block_sparse_moe.w1": "ffn_gate_exps", "block_sparse_moe.w2": "ffn_down_exps",
             "block_sparse_moe.w3": "ffn_up_exps", "mlp.gate": "ffn_gate_inp", "mlp.experts.gate_proj": "ffn_gate_exps",
             "mlp.experts.up_proj": "ffn_up_exps", "mlp.experts.down_proj": "ffn_down_exps",
             "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
             "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
             "self_attn.kv_b_proj": "attn_kv_b", "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
             "mlp.shared_experts.up_proj": "ffn_up_shexp", "mlp.shared_experts.down_proj": "ffn_down_shexp"}
    if family == "gemma3_text":
        names |= {"pre_feedforward_layernorm": "ffn_norm", "post_attention_layernorm": "post_attention_norm",
                  "post_feedforward_layernorm": "post_ffw_norm"}
        check(kv["gemma3.attention.sliding_window_pattern"] == 2 and kv["gemma3.attention.sliding_window"] == 8, "window")
        check(kv["gemma3.rope.freq_base_swa"] == 12345 and kv["gemma3.rope.freq_base"] == 1e6, "rotary bases")
        check(kv["gemma3.rope.scaling.factor"] == 8, "rotary scaling")
    if family == "mixtral":
        check(kv["llama.expert_count"] == E and kv["llama.expert_used_count"] == 2, "experts")
        for i in range(L):
            m = f"model.layers.{i}.block_sparse_moe."
            for w in "w1", "w2", "w3":
                each = [hf.pop(f"{m}experts.{e}.{w}.weight") for e in range(E)]
                hf[f"{m}{w}.weight"] = each[0][0], np.stack([x for _, x in each])
    if family.startswith("deepseek"):
        v3 = family == "deepseek_v3"
        want = {"leading_dense_block_count": 1, "expert_shared_count": 2, "expert_gating_func": 2 if v3 else 1,
                "expert_weights_norm": v3, "expert_weights_scale": 2.5, "attention.kv_lora_rank": 24,
                "attention.q_lora_rank": 40 if v3 else None, "attention.key_length": 18, "attention.value_length": 10,
                "attention.head_count_kv": HEADS, "rope.dimension_count": 6, "feed_forward_length": F}
        for key, v in want.items():
            check(kv.get("deepseek2." + key) == v, key, kv.get("deepseek2." + key))
    if family == "qwen3_moe" or family.startswith("deepseek"):
        check(kv[arch + ".expert_count"] == E and kv[arch + ".expert_used_count"] == 2, "experts")
        check(kv[arch + ".expert_feed_forward_length"] == W, "width of an expert")
        for i in range(1 if family.startswith("deepseek") else 0, L):
            m = f"model.layers.{i}.mlp.experts."
            for w in "gate_proj", "up_proj", "down_proj":
                each = [hf.pop(f"{m}{e}.{w}.weight") for e in range(E)]
                hf[f"{m}{w}.weight"] = each[0][0], np.stack([x for _, x in each])
    number = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}[kind]
    for k, (dtype, x) in hf.items():
        bare = k.removeprefix("model.").removeprefix("transformer.")
        stem, tail = bare.rsplit(".", 1)
        if stem.startswith(("layers.", "h.")):
            _, layer, rest = stem.split(".", 2)
            name = f"blk.{layer}.{names[rest]}.{tail}"
        else:
            name = f"{names[stem]}.{tail}"
        if rest_of(stem) == "mlp.gate" and tail == "e_score_correction_bias":
            name = f"blk.{layer}.exp_probs_b.bias"
        x = as_f32(dtype, x)
        if stem.endswith(("c_attn", "c_proj", "c_fc")) and x.ndim == 2:
            x = np.ascontiguousarray(x.T)
        if arch == "llama" and (".attn_q." in name or ".attn_k." in name):  # rotary pairs adjacent
            heads = HEADS if ".attn_q." in name else KV
            x = np.ascontiguousarray(x.reshape(heads, 2, D // 2, -1).swapaxes(1, 2)).reshape(x.shape)
        if family == "gemma3_text" and x.ndim == 1:  # GGUF stores 1 + w
            x = np.float32(1) + x
        shape, t, raw = have.pop(name)
        check(shape == list(x.shape), name, shape, x.shape)
        want = number if x.ndim > 1 and (kind in ("f32", "f16", "bf16") or name != "position_embd.weight") else 0
        want = 1 if want in (2, 8) and x.shape[-1] % 32 else want  # not a multiple of the block size
        want = 0 if ".ffn_gate_inp." in name else want
        check(t == want, name, "type", t, want)
        data = {0: lambda: x.tobytes(), 1: lambda: x.astype("<f2").tobytes(), 30: lambda: to_bf16(x).tobytes(),
                8: lambda: blocks(x, 8), 2: lambda: blocks(x, 2)}[t]()
        check(raw[: len(data)] == data, name, "elements")
    if family == "llama":
        _, _, raw = have.pop("rope_freqs.weight")
        got = np.frombuffer(raw[: 4 * D // 2], "<f4").astype(float)
        f = 10000.0 ** (-2 * np.arange(D // 2) / D)
        wave = 2 * np.pi / f
        s = (8192 / wave - 1) / 3
        want = np.where(wave < 2048, 1, np.where(wave > 8192, 8, 1 / ((1 - s) / 8 + s)))
        check(np.allclose(got, want, rtol=1e-6), "rope_freqs", got, want)
    check(not have, "more tensors", list(have))


def llmc(folder, path):
    hf, raw = read_st(folder), open(path, "rb").read()
    h = struct.unpack_from("<8i", raw)
    vp = (V + 127) // 128 * 128
    check(h == (20240326, 3 if hf["transformer.wte.weight"][0] == "F32" else 5, T, V, L, HEADS, H, vp), "head", h)
    body, at = np.frombuffer(raw, "<f4" if h[1] == 3 else "<u2", offset=1024), 0
    wte = hf["transformer.wte.weight"][1]
    check(np.array_equal(body[: V * H], wte.reshape(-1)) and not body[V * H : vp * H].any(), "wte")
    at = vp * H
    order = ["wpe.weight"] + [f"h.%d.{n}" for n in (
        "ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
        "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias")] + [
        "ln_f.weight", "ln_f.bias"]
    for name in order:
        for i in range(L if "%d" in name else 1):
            k = "transformer." + (name % i if "%d" in name else name)
            x = hf[k][1]
            x = x.T if x.ndim == 2 and k.startswith("transformer.h.") else x
            check(np.array_equal(body[at : at + x.size], x.reshape(-1)), k)
            at += x.size
    check(at == body.size, "length")


def mean(a, b, m):
    x, y, z = read_st(a), read_st(b), read_st(m)
    for k in x:
        want = ((as_f32(*x[k]).astype(float) + as_f32(*y[k]).astype(float)) / 2).astype("<f4")
        check(z[k][0] == "F32" and np.array_equal(z[k][1], want), k)


def unpack(words, bits, axis):
    """Unpacks integers from words along `axis`, lowest bits first."""
    shifts = np.arange(0, 32, bits).reshape((1, -1, 1) if axis == 0 else (1, 1, -1))
    w = words.astype("<u4")[:, None, :] if axis == 0 else words.astype("<u4")[:, :, None]
    return (w >> shifts.astype("<u4") & (2**bits - 1)).reshape((-1, words.shape[1]) if axis == 0 else (words.shape[0], -1))


def packed(source, folder, form, kind):
    """Is the folder, in AutoGPTQ's (version 1) or AutoAWQ's form, its source rounded to blocks here?"""
    have, c = read_st(folder), json.load(open(os.path.join(folder, "config.json")))
    q, bits, seen = c["quantization_config"], 8 if kind == "q8_0" else 4, []
    common = {"quant_method": form, "bits": bits, "group_size": 32}
    special = {"desc_act": False, "sym": True, "checkpoint_format": "gptq"} if form == "gptq" else {"zero_point": True, "version": "gemm"}
    check(q | common | special == q and c["torch_dtype"] == "float16", "config", q)
    for k, (dtype, x) in read_st(source).items():
        base, x = k.removesuffix(".weight"), as_f32(dtype, x)
        layer = ".layers." in k and x.ndim == 2 and not k.endswith("mlp.gate.weight") and not k.endswith("moe.gate.weight")
        if not layer or x.shape[1] % 32 or x.shape[0] % 8:
            check(have.pop(k)[1].tobytes() == x.astype("<f2").tobytes(), k)
            seen += [base.split(".", 3)[3]] if ".layers." in k and x.ndim == 2 else []
            continue
        words, zeros, scales = (have.pop(base + end)[1] for end in (".qweight", ".qzeros", ".scales"))
        if form == "gptq":
            codes, zero = unpack(words, bits, 0), unpack(zeros, bits, 1) + 1
            check(np.array_equal(have.pop(base + ".g_idx")[1], np.arange(x.shape[1]) // 32), k, "g_idx")
        else:
            order = np.argsort([0, 2, 4, 6, 1, 3, 5, 7])  # nibble i of a word belongs to column order[i]
            codes, zero = (unpack(w, 4, 1).reshape(w.shape[0], -1, 8)[:, :, order].reshape(w.shape[0], -1) for w in (words, zeros))
        check((zero == 2 ** (bits - 1)).all() and codes.shape == x.T.shape and scales.shape == (x.shape[1] // 32, x.shape[0]), k)
        codes = codes.T.reshape(-1, 32)
        body = (codes - 128).astype("u1") if bits == 8 else (codes[:, :16] | codes[:, 16:] << 4).astype("u1")
        got = np.concatenate([np.ascontiguousarray(scales.T).reshape(-1, 1).view("u1"), body], 1)
        check(got.tobytes() == blocks(x, 8 if bits == 8 else 2), k)
    check(not have, "more", list(have))
    lists = {m for v in q.get("modules_in_block_to_quantize") or [] for m in v}, set(q.get("modules_to_not_convert") or [])
    check(not lists[0] & set(seen) and bool(lists[0]) == (form == "gptq" and bool(seen)), "packed", lists)
    check(lists[1] == (set(seen) if form == "awq" else set()), "not packed", lists, seen)


def peers(folder, hf, *files):
    import gguf as package
    from safetensors.numpy import load_file

    want, have = read_st(folder), load_file(os.path.join(hf, "model.safetensors"))
    check(sorted(want) == sorted(have), "names")
    for k in want:
        check(np.array_equal(want[k][1], have[k]), k)
    total = sum(x.size for _, x in want.values())
    for path in files:
        kind = path.rsplit("-", 1)[1].removesuffix(".gguf")
        gguf(folder, path, kind)  # checks it with the reader of this file
        _, own = read_gguf(path)
        seen = 0
        for t in package.GGUFReader(path).tensors:
            x = package.quants.dequantize(t.data, t.tensor_type)
            shape, number, raw = own[t.name]
            check(list(x.shape) == shape and int(t.tensor_type) == number, t.name)
            check(t.data.tobytes() == raw[: t.data.nbytes], t.name, "bytes")
            seen += 0 if t.name == "rope_freqs.weight" else x.size
        check(seen == total, "elements", seen, total)


def peers_packed(folder, dense, bound):
    """Compares logits of a packed folder with those of the same values in f32; 8-bit weights are computed in
    f16."""
    import torch
    from transformers import AutoModelForCausalLM

    logits = []
    for path in folder, dense:
        m = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, device_map="cpu")
        kinds = {type(x).__name__ for n, x in m.named_modules() if n.endswith("q_proj")}
        check((kinds == {"Linear"}) == (path == dense), path, kinds)
        with torch.no_grad():
            logits.append(m(torch.arange(3, 27)[None]).logits.float())
    off = (logits[0] - logits[1]).abs().max().item()
    check(off <= float(bound) * logits[1].abs().max().item(), off)


def split(path, prefix, parts):
    """Puts the metadata and the first tensors into the first file; each file states its number."""
    raw, n = open(path, "rb").read(), int(parts)
    _, tensors = read_gguf(path)
    _, nkv = struct.unpack_from("<QQ", raw, 8)

    def string(s):
        return struct.pack("<Q", len(s)) + s.encode()

    # the metadata ends where the name of the first tensor begins
    infos_at = raw.index(string(next(iter(tensors))) + struct.pack("<I", len(next(iter(tensors.values()))[0])), 24)
    keys = raw[24:infos_at]
    names = list(tensors)
    places = sorted(len(raw) - len(t[2]) for t in tensors.values()) + [len(raw)]
    for i in range(n):
        mine = names[len(names) * i // n : len(names) * (i + 1) // n]
        own = string("split.no") + struct.pack("<IH", 2, i) + string("split.count") + struct.pack("<IH", 2, n)
        own += string("split.tensors.count") + struct.pack("<Ii", 5, len(names))
        head = struct.pack("<4sIQQ", b"GGUF", 3, len(mine), 3 + (nkv if i == 0 else 0)) + own + (keys if i == 0 else b"")
        data = b""
        for k in mine:
            shape, number, rest = tensors[k]
            begin = len(raw) - len(rest)
            bytes_ = raw[begin : places[places.index(begin) + 1]]  # with its padding
            head += string(k) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape[::-1])
            head += struct.pack("<IQ", number, len(data))
            data += bytes_ + bytes(-len(bytes_) % 32)
        with open(f"{prefix}-{i + 1:05d}-of-{n:05d}.gguf", "wb") as f:
            f.write(head + bytes(-len(head) % 32) + data)


def text(tok):
    raw, at, pieces = open(tok, "rb").read(), 4, []
    while at < len(raw):
        _, n = struct.unpack_from("<fi", raw, at)
        pieces.append(raw[at + 8 : at + 8 + n])
        at += 8 + n
    out = b"".join(bytes([i - 3]) if 3 <= i < 259 else pieces[i] for i in json.load(sys.stdin))
    print(out.decode().lstrip(" "))


def serve():
    for line in sys.stdin:
        name, *args = line.rstrip("\n").split("\t")
        status = 0
        try:
            globals()[name](*args)
        except SystemExit as e:
            status = e.code
        except Exception:
            traceback.print_exc(file=sys.stdout)
            status = 1
        print("status", status, flush=True)


globals()[sys.argv[1]](*sys.argv[2:])
# SPDX-License-Identifier: Apache-2.0
