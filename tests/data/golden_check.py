#!/usr/bin/python3
"""Compares golden-*.h5 with Hugging Face transformers: the same weights in its models must give the same
logits, loss and gradients. Run by hand when a golden file changes; transformers is not a dependency.

    python3 -m venv --system-site-packages V && V/bin/pip install transformers==4.37.2 && V/bin/python
    golden_check.py

That version works with Debian's PyTorch 1.13 and lacks Qwen3, Gemma 3 and Llama 3.1. A current one (5.23) has
them all, and stores the experts of a layer in one tensor, as this script expects. A model that it lacks is
skipped with a message. Computed in fp64, but transformers computes norms and softmax in fp32 in places, so
agreement is limited to fp32. Exit status: 0 if all models compared agree, 3 if one differs.
"""

import os
import sys

import h5py
import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
TOLERANCE = 1e-5  # largest difference relative to the largest value


def attributes(f):
    return {k: v.decode() if isinstance(v, bytes) else v.item() for k, v in f.attrs.items()}


def hf_config(name, c):
    """Returns the Hugging Face configuration of a model."""
    eager = dict(attn_implementation="eager", use_cache=False)
    if name == "gpt2":
        return transformers.GPT2Config(
            vocab_size=c["vocab"], n_positions=c["max_seq"], n_embd=c["hidden"], n_layer=c["layers"],
            n_head=c["heads"], n_inner=c["ffn"], activation_function="gelu_new", layer_norm_epsilon=c["norm_eps"],
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **eager,
        )
    if name == "mamba2":
        return transformers.Mamba2Config(
            vocab_size=c["vocab"], hidden_size=c["hidden"], num_hidden_layers=c["layers"], num_heads=c["ssm_heads"],
            head_dim=c["ssm_head_dim"], n_groups=c["ssm_groups"], state_size=c["ssm_state"], conv_kernel=c["ssm_kernel"],
            expand=c["ssm_heads"] * c["ssm_head_dim"] // c["hidden"], layer_norm_epsilon=c["norm_eps"],
            tie_word_embeddings=bool(c["tied"]), chunk_size=32, use_cache=False, residual_in_fp32=False,
        )
    args = dict(
        vocab_size=c["vocab"], hidden_size=c["hidden"], intermediate_size=c["ffn"], num_hidden_layers=c["layers"],
        num_attention_heads=c["heads"], num_key_value_heads=c["kv_heads"], hidden_act=c["act"],
        max_position_embeddings=c["max_seq"], rms_norm_eps=c["norm_eps"], rope_theta=c["rope_theta"],
        tie_word_embeddings=bool(c["tied"]), **eager,
    )
    if name in ("qwen3", "qwen3moe", "gemma3"):
        args["head_dim"] = c["head_dim"]
    if name == "mixtral":
        args.update(num_local_experts=c["experts"], num_experts_per_tok=c["experts_used"], sliding_window=None,
                    experts_implementation="eager")
    if name == "olmoe":
        args.update(num_experts=c["experts"], num_experts_per_tok=c["experts_used"],
                    norm_topk_prob=not c["router_unscaled"], experts_implementation="eager", pad_token_id=None)
    if name == "qwen3moe":
        args.update(num_experts=c["experts"], num_experts_per_tok=c["experts_used"],
                    moe_intermediate_size=c["expert_ffn"], norm_topk_prob=not c["router_unscaled"],
                    experts_implementation="eager")
    if name == "gemma3":
        del args["hidden_act"], args["rope_theta"]
        types = ["full_attention" if (i + 1) % c["global_every"] == 0 else "sliding_attention" for i in range(c["layers"])]
        args.update(hidden_activation="gelu_pytorch_tanh", pad_token_id=None, query_pre_attn_scalar=c["score_dim"], layer_types=types,
                    sliding_window=c["window"], rope_parameters={
                        "full_attention": dict(rope_type="linear", factor=c["rope_factor"], rope_theta=c["rope_theta"]),
                        "sliding_attention": dict(rope_type="default", rope_theta=c["rope_local_theta"])})
    if name == "olmo3":
        del args["rope_theta"]
        types = ["full_attention" if (i + 1) % c["global_every"] == 0 else "sliding_attention" for i in range(c["layers"])]
        args.update(layer_types=types, sliding_window=c["window"], pad_token_id=None, rope_parameters={
            "full_attention": dict(rope_type="linear", factor=c["rope_factor"], rope_theta=c["rope_theta"]),
            "sliding_attention": dict(rope_type="default", rope_theta=c["rope_local_theta"])})
    if name == "olmo2":
        args["pad_token_id"] = None
    if name == "smollm3":
        args.update(no_rope_layer_interval=c["rope_skip_every"], pad_token_id=None)
    if c["family"] == "gpt_neox":
        del args["num_key_value_heads"], args["rms_norm_eps"], args["rope_theta"]
        args.update(hidden_act={"gelu_erf": "gelu", "gelu_tanh": "gelu_new"}[c["act"]], layer_norm_eps=c["norm_eps"],
                    use_parallel_residual=bool(c.get("parallel_residual")), rotary_emb_base=c["rope_theta"],
                    rotary_pct=c["rope_dim"] / c["head_dim"])
    if name == "phi4":
        del args["rope_theta"]
        args.update(original_max_position_embeddings=int(c["rope_original_seq"]), pad_token_id=None, rope_parameters=dict(
            rope_type="longrope", rope_theta=c["rope_theta"], partial_rotary_factor=c["rope_dim"] / c["head_dim"],
            attention_factor=c["rope_mscale"],
            **{k + "_factor": [float(x) for x in c["rope_" + k].split()] for k in ("short", "long")}))
    if "attn_layers" in c:
        listed = [int(x) for x in c["attn_layers"].split()]
        args.update(mamba_n_heads=c["ssm_heads"], mamba_d_head=c["ssm_head_dim"], mamba_n_groups=c["ssm_groups"],
                    mamba_d_state=c["ssm_state"], mamba_d_conv=c["ssm_kernel"], mamba_chunk_size=32, pad_token_id=None,
                    mamba_expand=c["ssm_heads"] * c["ssm_head_dim"] // c["hidden"])
    if name.startswith("granitehybrid"):
        args.update(position_embedding_type="nope", num_local_experts=c.get("experts", 0), rope_theta=1e4,
                    num_experts_per_tok=c.get("experts_used", 0), shared_intermediate_size=c.get("shared_ffn", c["ffn"]),
                    layer_types=["attention" if i in listed else "mamba" for i in range(c["layers"])],
                    experts_implementation="eager")
    if name == "bamba":
        args.update(attn_layer_indices=listed, mlp_bias=bool(c["mlp_bias"]), attention_bias=bool(c["qkv_bias"]))
    if name.startswith("granitemoe"):
        args.update(num_local_experts=c["experts"], num_experts_per_tok=c["experts_used"], experts_implementation="eager")
    if name == "granitemoeshared":
        args["shared_intermediate_size"] = c["shared_ffn"]
    if name.startswith("granite"):
        args.update(embedding_multiplier=c["embed_factor"], attention_multiplier=c["score_factor"],
                    residual_multiplier=c["residual_factor"], logits_scaling=c["logit_divisor"])
    if name.startswith("cohere"):
        del args["rms_norm_eps"]
        args.update(layer_norm_eps=c["norm_eps"], logit_scale=1 / c["logit_divisor"], pad_token_id=None)
    if name == "cohere2":
        args.update(sliding_window=c["window"], layer_types=[
            "full_attention" if (i + 1) % c["global_every"] == 0 else "sliding_attention" for i in range(c["layers"])])
    if name == "starcoder2":
        del args["rms_norm_eps"]
        args.update(hidden_act="gelu_pytorch_tanh", norm_epsilon=c["norm_eps"], sliding_window=c["window"])
    if name == "minimaxm2":
        args.update(num_local_experts=c["experts"], num_experts_per_tok=c["experts_used"], head_dim=c["head_dim"],
                    partial_rotary_factor=c["rope_dim"] / c["head_dim"], bos_token_id=None, eos_token_id=None,
                    experts_implementation="eager")
    if name in ("glm4", "glm4moe"):
        args.update(head_dim=c["head_dim"], attention_bias=bool(c["qkv_bias"]), pad_token_id=None,
                    partial_rotary_factor=c["rope_dim"] / c["head_dim"])
    if name == "glm4":
        args["eos_token_id"] = 1
    if name == "glm4moe":
        args.update(use_qk_norm=bool(c["qk_norm"]), n_routed_experts=c["experts"], num_experts_per_tok=c["experts_used"],
                    moe_intermediate_size=c["expert_ffn"], n_shared_experts=c["shared_ffn"] // c["expert_ffn"],
                    first_k_dense_replace=c["dense_layers"], routed_scaling_factor=c["router_scale"],
                    experts_implementation="eager")
    if name == "gptoss":
        types = ["full_attention" if (i + 1) % c["global_every"] == 0 else "sliding_attention" for i in range(c["layers"])]
        del args["rope_theta"], args["hidden_act"]
        args.update(head_dim=c["head_dim"], num_local_experts=c["experts"], num_experts_per_tok=c["experts_used"],
                    layer_types=types, sliding_window=c["window"], experts_implementation="eager", rope_parameters=dict(
                        rope_type="yarn", rope_theta=c["rope_theta"], factor=c["rope_factor"], truncate=False,
                        beta_fast=c["rope_beta_fast"], beta_slow=c["rope_beta_slow"],
                        original_max_position_embeddings=int(c["rope_original_seq"])))
    if name == "mistral":
        args["sliding_window"] = c["window"]
    if name == "llama31":
        args["max_position_embeddings"] = int(c["rope_original_seq"] * c["rope_factor"])
        args["rope_scaling"] = dict(
            rope_type="llama3", factor=c["rope_factor"], low_freq_factor=c["rope_low_freq"],
            high_freq_factor=c["rope_high_freq"], original_max_position_embeddings=c["rope_original_seq"],
        )
    kind = {"llama": "Llama", "llama31": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral",
            "mixtral": "Mixtral", "qwen3moe": "Qwen3Moe", "olmoe": "Olmoe", "gemma3": "Gemma3Text",
            "olmo2": "Olmo2", "olmo3": "Olmo3", "smollm3": "SmolLM3", "glm4": "Glm4",
            "glm4moe": "Glm4Moe", "minimaxm2": "MiniMaxM2", "gptoss": "GptOss", "granite": "Granite",
            "neox": "GPTNeoX", "neoxseq": "GPTNeoX", "phi4": "Phi3",
            "cohere": "Cohere", "cohere2": "Cohere2", "starcoder2": "Starcoder2",
            "granitehybrid": "GraniteMoeHybrid", "granitehybridmoe": "GraniteMoeHybrid", "bamba": "Bamba",
            "granitemoe": "GraniteMoe", "granitemoeshared": "GraniteMoeShared"}[name]
    return getattr(transformers, kind + "Config")(**args)


MODELS = dict(gpt2="GPT2LMHeadModel", llama="LlamaForCausalLM", llama31="LlamaForCausalLM", qwen2="Qwen2ForCausalLM",
              qwen3="Qwen3ForCausalLM", mistral="MistralForCausalLM", gemma3="Gemma3ForCausalLM",
              mixtral="MixtralForCausalLM", qwen3moe="Qwen3MoeForCausalLM", olmoe="OlmoeForCausalLM",
              olmo2="Olmo2ForCausalLM", olmo3="Olmo3ForCausalLM", smollm3="SmolLM3ForCausalLM",
              glm4="Glm4ForCausalLM", glm4moe="Glm4MoeForCausalLM",
              minimaxm2="MiniMaxM2ForCausalLM", gptoss="GptOssForCausalLM", granite="GraniteForCausalLM",
              neox="GPTNeoXForCausalLM", neoxseq="GPTNeoXForCausalLM", phi4="Phi3ForCausalLM",
              cohere="CohereForCausalLM", cohere2="Cohere2ForCausalLM", starcoder2="Starcoder2ForCausalLM",
              granitemoe="GraniteMoeForCausalLM", granitemoeshared="GraniteMoeSharedForCausalLM",
              mamba2="Mamba2ForCausalLM", bamba="BambaForCausalLM", granitehybrid="GraniteMoeHybridForCausalLM",
              granitehybridmoe="GraniteMoeHybridForCausalLM")
LLAMA_NAMES = {
    "embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head", "attn_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm", "attn.q": "self_attn.q_proj", "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj", "attn.o": "self_attn.o_proj", "attn.q_norm": "self_attn.q_norm",
    "attn.k_norm": "self_attn.k_norm", "mlp.gate": "mlp.gate_proj", "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj",
    "mlp.router": "mlp.router",
}
GEMMA_NAMES = {"mlp_norm": "pre_feedforward_layernorm", "attn_post_norm": "post_attention_layernorm",
               "mlp_post_norm": "post_feedforward_layernorm"}
OLMO_NAMES = {"attn_post_norm": "post_attention_layernorm", "mlp_post_norm": "post_feedforward_layernorm"}
BAMBA_NAMES = {"norm": "model.final_layernorm", "mlp_norm": "pre_ff_layernorm", "mlp.gate": "feed_forward.gate_proj",
               "mlp.up": "feed_forward.up_proj", "mlp.down": "feed_forward.down_proj"}
STARCODER_NAMES = {"mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"}
GLM_NAMES = {"attn_post_norm": "post_self_attn_layernorm", "mlp_post_norm": "post_mlp_layernorm"}
GPT2_NAMES = {"embed": "transformer.wte", "pos": "transformer.wpe", "norm": "transformer.ln_f", "attn_norm": "ln_1",
              "mlp_norm": "ln_2", "attn.o": "attn.c_proj", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"}
HEADS = {"neox": 4, "neoxseq": 4}
SIZES = {"phi4": (32, 16)}  # rows of q, of k
MAMBA_NAMES = {"embeddings.weight": "embed.weight", "norm_f.weight": "norm.weight", "norm.weight": "mixer_norm.weight",
               "mixer.dt_bias": "ssm.dt.bias", "mixer.A_log": "ssm.a_log", "mixer.D": "ssm.d",
               "mixer.norm.weight": "ssm.norm.weight", "mixer.out_proj.weight": "ssm.out.weight"}
NEOX_NAMES = {"embed": "gpt_neox.embed_in", "norm": "gpt_neox.final_layer_norm", "head": "lm_head",
              "attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm", "attn.o": "attention.dense",
              "mlp.up": "mlp.dense_h_to_4h", "mlp.down": "mlp.dense_4h_to_h"}


def mixer_tensors(layer, stem, t):
    """Our names of a tensor of a mixer of 8 heads of 8: the rows of z, x, B, C and dt, or of x, B and C."""
    if "in_proj" in stem:
        group = (t.shape[0] - 136) // 2
        return {f"{layer}ssm.{k}.weight": p for k, p in zip(("z", "x", "b", "c", "dt"), t.split([64, 64, group, group, 8]))}
    if "conv1d" in stem:
        group, leaf = (t.shape[0] - 64) // 2, stem.split(".")[-1]
        return {f"{layer}ssm.conv_{k}.{leaf}": p.squeeze(1) if p.ndim == 3 else p for k, p in zip("xbc", t.split([64, group, group]))}
    return {layer + MAMBA_NAMES[stem]: t}


def mamba_tensors(hf):
    out = {}
    for key, t in hf.items():
        stem = key.removeprefix("backbone.")
        layer, stem = (stem[: stem.index(".", 7) + 1], stem.split(".", 2)[2]) if stem.startswith("layers.") else ("", stem)
        out.update(mixer_tensors(layer, stem, t))
    return out


def our_tensors(name, hf):
    """Maps our parameter names to views of transformers' tensors (or of their gradients), in our shapes."""
    if name == "mamba2":
        return mamba_tensors(hf)
    gpt2 = name == "gpt2"
    more = {"gemma3": GEMMA_NAMES, "olmo2": OLMO_NAMES, "olmo3": OLMO_NAMES, "glm4": GLM_NAMES,
            "starcoder2": STARCODER_NAMES, "bamba": BAMBA_NAMES}.get(name, {})
    names = GPT2_NAMES if gpt2 else NEOX_NAMES if name.startswith("neox") else dict(LLAMA_NAMES, **more)
    back = {v: k for k, v in names.items() if not (more in (GEMMA_NAMES, OLMO_NAMES) and k == "mlp_norm" and k not in more)}
    out = {}
    for key, t in hf.items():
        if ".mamba." in key:
            number, stem = key.removeprefix("model.layers.").split(".", 1)
            out.update(mixer_tensors(f"layers.{number}.", stem.replace("mamba.", "mixer."), t))
            continue
        if ".experts." in key and name == "gptoss":  # [experts, columns, rows], rows of gate and up in turns
            layer = "layers." + key.split(".")[2]
            leaf = "bias" if key.endswith("_bias") else "weight"
            parts = {"gate": t[..., ::2], "up": t[..., 1::2]} if "gate_up_proj" in key else {"down": t}
            for part, piece in parts.items():
                out[f"{layer}.mlp.experts.{part}.{leaf}"] = piece if leaf == "bias" else piece.transpose(1, 2)
            continue
        if key.endswith(".sinks"):
            out["layers." + key.split(".")[2] + ".attn.sinks"] = t
            continue
        if ".experts." in key:  # [experts, rows, columns], rows of gate before those of up
            layer = "layers." + key.split(".")[2]
            parts = dict(zip(("gate", "up"), t.chunk(2, dim=1))) if key.endswith("gate_up_proj") else {"down": t}
            for part, piece in parts.items():
                out[f"{layer}.mlp.experts.{part}.weight"] = piece
            continue
        if ".block_sparse_moe.router." in key:
            out["layers." + key.split(".")[2] + ".mlp.router.weight"] = t
            continue
        if ".shared_mlp." in key:
            parts = zip(("gate", "up"), t.chunk(2)) if "input_linear" in key else [("down", t)]
            for part, piece in parts:
                out["layers." + key.split(".")[2] + f".mlp.{'' if name == 'granitehybrid' else 'shared.'}{part}.weight"] = piece
            continue
        if key.endswith(".mlp.e_score_correction_bias"):
            out["layers." + key.split(".")[2] + ".mlp.router.bias"] = t
            continue
        if ".mlp.gate." in key or ".mlp.shared_experts." in key:
            stem = key.split(".", 2)[2].replace("mlp.gate.", "mlp.router.").replace("e_score_correction_bias", "bias")
            out["layers." + stem.replace("shared_experts", "shared").replace("_proj", "")] = t
            continue
        if key.endswith(".gate_up_proj.weight"):
            for part, piece in zip(("gate", "up"), t.chunk(2)):
                out["layers." + key.split(".")[2] + f".mlp.{part}.weight"] = piece
            continue
        stem, leaf = key.rsplit(".", 1)
        layer = ""
        for prefix in ("transformer.h.", "model.layers.", "gpt_neox.layers."):
            if stem.startswith(prefix):
                number, stem = stem[len(prefix):].split(".", 1)
                layer = f"layers.{number}."
        if stem == "attn.c_attn":  # fused, Conv1D: [in, 3 out]
            for part, piece in zip("qkv", t.chunk(3, dim=-1)):
                out[f"{layer}attn.{part}.{leaf}"] = piece.t() if piece.ndim == 2 else piece
            continue
        if stem == "attention.query_key_value":  # [heads, 3, head_dim] rows
            for part, piece in zip("qkv", t.unflatten(0, (HEADS[name], 3, -1)).unbind(1)):
                out[f"{layer}attn.{part}.{leaf}"] = piece
            continue
        if stem == "self_attn.qkv_proj":
            heads, kv = SIZES[name]
            for part, piece in zip("qkv", t.split([heads, kv, kv])):
                out[f"{layer}attn.{part}.{leaf}"] = piece
            continue
        conv1d = gpt2 and layer and t.ndim == 2
        out[f"{layer}{back[stem]}.{leaf}"] = t.t() if conv1d else t
    # the norm in front of a mixer has a name of its own
    mixed = {k.split(".ssm.")[0] + "." for k in out if ".ssm." in k}
    return {k.replace("attn_norm", "mixer_norm") if k.split("attn_norm")[0] in mixed else k: t for k, t in out.items()}


def err(got, want):
    return ((got - want).abs().max() / want.abs().max()).item()


def compare(name):
    """Returns the largest relative differences of logits, loss and gradients, or the reason why nothing is
    compared."""
    with h5py.File(os.path.join(HERE, f"golden-{name}.h5")) as f:
        c = attributes(f)
        data = {}
        f.visititems(lambda k, o: data.__setitem__(k, torch.from_numpy(o[()])) if isinstance(o, h5py.Dataset) and o.shape else None)
        loss = f["loss"][()]
    if not hasattr(transformers, MODELS[name]):
        return f"transformers {transformers.__version__} has no {MODELS[name]}"
    if name == "llama31" and int(transformers.__version__.split(".")[0]) * 100 + int(transformers.__version__.split(".")[1]) < 443:
        return f"transformers {transformers.__version__} has no llama3 scaling"
    model = getattr(transformers, MODELS[name])(hf_config(name, c)).double().eval()
    biases = {k: b for k, b in model.named_buffers() if k.endswith("correction_bias")}
    theirs = our_tensors(name, dict(model.named_parameters(), **biases))
    ours = {k[6:]: v.double() for k, v in data.items() if k.startswith("param/")}
    if set(theirs) != set(ours):
        return f"names differ: {sorted(set(theirs) ^ set(ours))}"
    with torch.no_grad():
        for k, v in theirs.items():
            v.copy_(ours[k].reshape(v.shape))
    logits = model(data["ids"].long()).logits
    mine = torch.nn.functional.cross_entropy(logits.view(-1, c["vocab"]), data["targets"].long().view(-1), ignore_index=-1)
    mine.backward()
    grads = our_tensors(name, {k: p.grad for k, p in model.named_parameters()})
    largest = max(data["grad/" + k].abs().max() for k in grads)
    worst = max(((grads[k] - data["grad/" + k].reshape(grads[k].shape)).abs().max() / largest).item() for k in grads)
    return err(logits.detach(), data["logits"].double()), abs(mine.item() - loss) / loss, worst


def main():
    status = 0
    torch.set_default_dtype(torch.float64)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}: difference over largest value")
    for name in MODELS:
        r = compare(name)
        if isinstance(r, str):
            print(f"{name:8s} not compared: {r}")
            status = 3 if r.startswith("names") else status
            continue
        ok = max(r) <= TOLERANCE
        status = status if ok else 3
        print(f"{name:8s} logits {r[0]:.1e}  loss {r[1]:.1e}  gradients {r[2]:.1e}  {'agrees' if ok else 'DIFFERS'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
