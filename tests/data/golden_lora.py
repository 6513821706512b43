#!/usr/bin/python3
"""Golden values for adapters, from transformers and peft.

A small Llama of transformers (grouped heads, rotary pairs half a head apart) with peft's adapters on every
linear of its layers, with nonzero B: logits, loss and the gradients of A and B in fp64. Written beside this
script:

    golden-lora.h5       in the format of golden_models.py, with attributes lora_rank and lora_alpha; /param
    has the
                         base and the adapters under the names of libcommon/model/params.h, /grad the
                         adapters'
    lora/base/           config.json, model.safetensors: the base as transformers saves it
    lora/adapter/        adapter_config.json, adapter_model.safetensors: as peft saves it
    lora/rs/             the same with use_rslora, rank_pattern and alpha_pattern, on q, v and down only; its
                         logits are /rs_logits
    lora/merged/         model.safetensors of peft's merge_and_unload of lora/adapter
    lora/dora/           as lora/adapter with use_dora, on q, v, gate and down; its logits are /dora_logits
    lora/saved/          q and v, with the head, the embeddings and the last norm in modules_to_save; its
    logits are
                         /saved_logits
    golden-saved.h5      as golden-dora.h5 without use_dora, with those modules and the norms before attention
    in
                         modules_to_save: /param has their trained values, /grad their gradients
    golden-dora.h5       as golden-lora.h5, of a smaller model with attention biases, with use_dora;
    magnitudes are
                         stored as differences from the norms of the base's rows, in fp64 before rounding

    golden_lora.py           writes them
    golden_lora.py --check   recomputes the values from the files and compares; exit status 0, 3 if one
    differs,
                             77 if peft or h5py is not installed
"""

import os
import sys

try:
    import h5py
    import numpy as np
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM
except ImportError as e:
    print(f"golden_lora.py: needs torch, transformers, peft and h5py: {e}", file=sys.stderr)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
DIR = os.path.join(HERE, "lora")
FILE = os.path.join(HERE, "golden-lora.h5")
DORA_FILE = os.path.join(HERE, "golden-dora.h5")
RANK, ALPHA = 3, 7.0
BATCH, SEQ = 2, 17
CONFIG = dict(
    vocab_size=67, hidden_size=48, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=24, rms_norm_eps=1e-5, rope_theta=10000.0,
    tie_word_embeddings=False, initializer_range=0.1, attn_implementation="eager", bos_token_id=1, eos_token_id=2,
)
ATTRS = dict(
    family="llama", vocab=67, hidden=48, ffn=88, layers=2, heads=4, kv_heads=2, head_dim=12, max_seq=24, batch=BATCH,
    seq=SEQ, norm="rms", norm_eps=1e-5, pos="rope", rope_theta=10000.0, rope_scaling="none", rope_factor=1.0,
    rope_low_freq=1.0, rope_high_freq=4.0, rope_original_seq=0, rope_pairing="half", act="silu", gated=True, tied=False,
    qkv_bias=False, out_bias=False, mlp_bias=False, qk_norm=False, window=0, lora_rank=RANK, lora_alpha=ALPHA, seed=0,
)
DORA_CONFIG = dict(CONFIG, vocab_size=41, hidden_size=32, intermediate_size=40, attention_bias=True)
DORA_ATTRS = dict(ATTRS, vocab=41, hidden=32, ffn=40, head_dim=8, qkv_bias=True, out_bias=True, lora_dora=True)
SAVED = ["lm_head", "embed_tokens", "norm"]
SAVED_FILE = os.path.join(HERE, "golden-saved.h5")
SAVED_ATTRS = dict(DORA_ATTRS, lora_dora=False, lora_modules_to_save="head|embed|norm|.*attn_norm")
NAMES = {
    "embed_tokens": "embed", "self_attn.q_proj": "attn.q", "self_attn.k_proj": "attn.k", "self_attn.v_proj": "attn.v",
    "self_attn.o_proj": "attn.o", "mlp.gate_proj": "mlp.gate", "mlp.up_proj": "mlp.up", "mlp.down_proj": "mlp.down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "mlp_norm", "lm_head": "head",
}


def our_name(name):
    name = name.replace("base_model.model.", "").replace("model.", "").replace(".base_layer", "")
    for theirs, ours in NAMES.items():
        name = name.replace(theirs, ours)
    name = name.replace(".modules_to_save.default", "")
    name = name.replace("lora_magnitude_vector.default.weight", "lora_m")
    return name.replace("lora_A.default.weight", "lora_a").replace("lora_B.default.weight", "lora_b")


def randomise(model, seed):
    g = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if "lora_magnitude" in name:
            p.data = p.data * (1 + torch.randn(p.shape, generator=g) * 0.2)
        elif "modules_to_save" in name:
            p.data = p.data + torch.randn(p.shape, generator=g) * 0.1
        elif "lora_" in name or "bias" in name:
            p.data = torch.randn(p.shape, generator=g) * 0.1


def run(model, ids, targets):
    """Returns logits, mean loss and gradients in fp64."""
    model = model.double()
    logits = model(ids).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
    loss.backward()
    grads = {our_name(n): p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
    return logits.detach().numpy(), float(loss), grads


def base():
    return LlamaForCausalLM.from_pretrained(os.path.join(DIR, "base"), attn_implementation="eager",
                                            dtype=torch.float32)


def tokens(vocab=67):
    rs = np.random.RandomState(5)
    ids, targets = rs.randint(0, vocab, (BATCH, SEQ)), rs.randint(0, vocab, (BATCH, SEQ))
    targets[0, 3] = targets[1, 11:14] = -1
    return torch.tensor(ids), torch.tensor(targets)


def compute():
    ids, targets = tokens()
    model = PeftModel.from_pretrained(base(), os.path.join(DIR, "adapter"), is_trainable=True)
    params = {our_name(n): p.detach().numpy().copy() for n, p in model.named_parameters()}
    logits, loss, grads = run(model, ids, targets)
    others = [run(PeftModel.from_pretrained(base(), os.path.join(DIR, name), is_trainable=True), ids, targets)[0]
              for name in ("rs", "dora", "saved")]
    return ids.numpy(), targets.numpy(), params, logits, loss, grads, *others


def dora_model():
    torch.manual_seed(4)
    model = get_peft_model(LlamaForCausalLM(LlamaConfig(**DORA_CONFIG)),
                           LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", use_dora=True,
                                      task_type="CAUSAL_LM"))
    randomise(model, 6)
    return model.double()


def compute_saved():
    ids, targets = tokens(41)
    torch.manual_seed(8)
    model = get_peft_model(LlamaForCausalLM(LlamaConfig(**DORA_CONFIG)),
                           LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM",
                                      modules_to_save=SAVED + ["input_layernorm"]))
    randomise(model, 9)
    model = model.double()
    params = {our_name(n): p.detach().numpy().copy() for n, p in model.named_parameters()
              if "original_module" not in n}
    return ids.numpy(), targets.numpy(), params, *run(model, ids, targets)


def compute_dora():
    ids, targets = tokens(41)
    model = dora_model()
    params = {our_name(n): p.detach().numpy().copy() for n, p in model.named_parameters()}
    for n, p in params.items():
        if n.endswith("lora_m"):
            params[n] = p - np.linalg.norm(params[n.replace("lora_m", "weight")], axis=1)
    return ids.numpy(), targets.numpy(), params, *run(model, ids, targets)


def make_saved():
    model = get_peft_model(base(), LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=["q_proj", "v_proj"],
                                              modules_to_save=SAVED, task_type="CAUSAL_LM"))
    randomise(model, 10)
    model.save_pretrained(os.path.join(DIR, "saved"))


def make_folders():
    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(**CONFIG)).save_pretrained(os.path.join(DIR, "base"))
    model = get_peft_model(base(), LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear",
                                              task_type="CAUSAL_LM"))
    randomise(model, 2)
    model.save_pretrained(os.path.join(DIR, "adapter"))
    merged = model.merge_and_unload()
    os.makedirs(os.path.join(DIR, "merged"), exist_ok=True)
    merged.save_pretrained(os.path.join(DIR, "merged"))
    rs = get_peft_model(base(), LoraConfig(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "down_proj"],
                                           use_rslora=True, rank_pattern={"down_proj": 2},
                                           alpha_pattern={"layers.1.self_attn.v_proj": 3}, task_type="CAUSAL_LM"))
    randomise(rs, 3)
    rs.save_pretrained(os.path.join(DIR, "rs"))
    dora = get_peft_model(base(), LoraConfig(r=4, lora_alpha=6, use_dora=True, task_type="CAUSAL_LM",
                                             target_modules=["q_proj", "v_proj", "gate_proj", "down_proj"]))
    randomise(dora, 7)
    dora.save_pretrained(os.path.join(DIR, "dora"))
    make_saved()
    for folder in "adapter", "rs", "dora", "saved":
        os.unlink(os.path.join(DIR, folder, "README.md"))
        path = os.path.join(DIR, folder, "adapter_config.json")
        text = open(path, encoding="utf-8").read().replace(os.path.join(DIR, "base"), "base")
        open(path, "w", encoding="utf-8").write(text)
    for folder in "base", "merged":
        path = os.path.join(DIR, folder, "generation_config.json")
        if os.path.exists(path):
            os.unlink(path)


def put(path, attrs, ids, targets, params, logits, loss, grads, more=None):
    with h5py.File(path, "w", libver="earliest", track_order=False) as f:
        for k, v in attrs.items():
            f.attrs[k] = np.bytes_(v) if isinstance(v, str) else int(v) if isinstance(v, bool) else v
        f["ids"], f["targets"] = ids.astype(np.int32), targets.astype(np.int32)
        for n, p in params.items():
            f[f"param/{n}"] = p.astype(np.float32)
        for n, g in grads.items():
            f[f"grad/{n}"] = g.astype(np.float32)
        f["logits"], f["loss"] = logits.astype(np.float32), loss
        for n, v in (more or {}).items():
            f[n] = v.astype(np.float32)


def write():
    make_folders()
    *golden, rs_logits, dora_logits, saved_logits = compute()
    put(FILE, ATTRS, *golden, dict(rs_logits=rs_logits, dora_logits=dora_logits, saved_logits=saved_logits))
    put(SAVED_FILE, SAVED_ATTRS, *compute_saved())
    put(DORA_FILE, DORA_ATTRS, *compute_dora())


def differing(path, logits, loss, grads, more=None):
    bad = []
    with h5py.File(path, "r") as f:
        for name, got in [("logits", logits), ("loss", loss)] + list((more or {}).items()) + [
                (f"grad/{n}", g) for n, g in grads.items()]:
            want = f[name][()]
            if np.abs(got - want).max() > 1e-5 * max(1e-3, np.abs(want).max()):
                bad.append(f"{os.path.basename(path)}: {name}")
    return bad


def check():
    _, _, _, logits, loss, grads, rs_logits, dora_logits, saved_logits = compute()
    bad = differing(FILE, logits, loss, grads,
                    dict(rs_logits=rs_logits, dora_logits=dora_logits, saved_logits=saved_logits))
    bad += differing(SAVED_FILE, *compute_saved()[3:])
    bad += differing(DORA_FILE, *compute_dora()[3:])
    for name in bad:
        print(f"golden_lora.py: {name} differs", file=sys.stderr)
    sys.exit(3 if bad else 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        check()
    write()
# SPDX-License-Identifier: Apache-2.0
