#!/usr/bin/python3
"""Golden values for the models and the optimizers, from PyTorch.

Plain PyTorch models written from the parameter table (libcommon/model/params.h) and the contracts of the ops
(kernels/*.h): small weights, logits, loss and gradients of every parameter, one HDF5 file per model.

    golden_models.py            writes golden-*.h5 beside this script
    golden_models.py --check    recomputes them and compares with the files; exit status 0, 3 if one differs,
                                77 if PyTorch or h5py is not installed

Weights and tokens are exact, in fp32 and int32. All results are computed in fp64 and stored as f32 (the loss
as f64). The attributes fp32_logits_err and fp32_grad_err are the errors of the same model computed in fp32,
relative to the largest logit and to the largest gradient of any parameter; tests derive their tolerances from
them. (Gradients of a k bias without RoPE are exactly zero, because softmax is invariant to a constant.
Compare them on the scale of the others.)

File: attributes as in struct dt_config, and batch, seq;  /ids /targets [batch, seq] (target -1: ignored);
/param/NAME;  /hidden/I [batch, seq, hidden], the residual stream before layer I, the last one before the
final norm;  /logits [batch, seq, vocab];  /loss, the mean over targets that are not ignored;  /grad/NAME. Of a
model with a module for a further token also /ids_ahead /targets_ahead [batch, seq] that the module reads, its
/mtp_logits [batch, seq, vocab], and /mtp_loss, their sum over the number of /targets that are not ignored; /grad is of
loss + mtp_loss_weight mtp_loss.

golden-optim.h5: /init/T [n], /grad/T [steps, n], /lr [steps];  /KIND/T [steps, n], the parameters after each
step, and /KIND/state1/T, /KIND/state2/T, the optimizer's states after the last step; attributes of KIND:
optimizer, beta1, beta2, eps, weight_decay. Groups NAME and NAME_wd for each optimizer of kernels/optim.h.
"""

import os
import sys

try:
    import h5py
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as e:
    print(f"golden_models.py: needs python3-torch and python3-h5py: {e}", file=sys.stderr)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))

COMMON = dict(
    vocab=67, max_seq=24, batch=2, seq=17, norm_eps=1e-5, rope_theta=10000.0, rope_scaling="none",
    rope_factor=1.0, rope_low_freq=1.0, rope_high_freq=4.0, rope_original_seq=0, rope_pairing="half",
    qkv_bias=False, out_bias=False, mlp_bias=False, qk_norm=False, window=0,
)
LLAMA = dict(COMMON, norm="rms", pos="rope", act="silu", gated=True, tied=False)
CONFIGS = {
    "gpt2": dict(
        COMMON, family="gpt2", seed=1, hidden=48, ffn=88, layers=2, heads=4, kv_heads=4, head_dim=12,
        norm="layer", pos="learned", act="gelu_tanh", gated=False, tied=True, qkv_bias=True, out_bias=True,
        mlp_bias=True,
    ),
    "llama": dict(LLAMA, family="llama", seed=2, hidden=48, ffn=88, layers=2, heads=4, kv_heads=2, head_dim=12),
    # biases on q, k, v only; one key/value head; tied
    "qwen2": dict(
        LLAMA, family="qwen2", seed=3, hidden=32, ffn=56, layers=3, heads=4, kv_heads=1, head_dim=8, tied=True,
        qkv_bias=True, norm_eps=1e-6, rope_theta=1e6,
    ),
    # heads * head_dim differs from hidden; q and k are normalised over head_dim
    "qwen3": dict(
        LLAMA, family="qwen3", seed=4, hidden=32, ffn=56, layers=2, heads=4, kv_heads=2, head_dim=16, qk_norm=True,
        norm_eps=1e-6, rope_theta=1e6,
    ),
    # position i attends to i - 4 .. i
    "mistral": dict(
        LLAMA, family="mistral", seed=5, hidden=32, ffn=56, layers=2, heads=4, kv_heads=2, head_dim=8, window=5
    ),
    # Llama 3.1's RoPE scaling, with an original context so short that all three frequency bands occur
    "llama31": dict(
        LLAMA, family="llama", seed=6, hidden=32, ffn=56, layers=2, heads=2, kv_heads=1, head_dim=16,
        rope_theta=500.0, rope_scaling="llama3", rope_factor=8.0, rope_original_seq=16,
    ),
    # layers 0, 1 and 3 attend to i - 3 .. i with a RoPE base of their own, layer 2 to all positions with
    # scaled frequencies; norms with weight 1 + w, also after attention and MLP; scores divided by sqrt(24)
    "gemma3": dict(
        LLAMA, family="gemma3_text", seed=8, hidden=48, ffn=72, layers=4, heads=4, kv_heads=2, head_dim=16,
        act="gelu_tanh", tied=True, qk_norm=True, norm_eps=1e-6, rope_theta=1e6, rope_scaling="linear",
        rope_factor=8.0, window=4, global_every=3, post_norms=True, norm_plus_one=True, embed_scaled=True,
        rope_local_theta=1e3, score_dim=24,
    ),
    # no norms before attention and MLP, but after them; q and k normalised over all heads
    "olmo2": dict(
        LLAMA, family="olmo2", seed=11, hidden=32, ffn=56, layers=3, heads=4, kv_heads=2, head_dim=8, qk_norm=True,
        qk_norm_whole=True, post_norms=True, no_pre_norms=True, norm_eps=1e-6, rope_theta=5e5,
    ),
    # the same; layers 0, 1 and 3 attend to i - 4 .. i, layer 2 to all positions with scaled frequencies
    "olmo3": dict(
        LLAMA, family="olmo3", seed=18, hidden=32, ffn=56, layers=4, heads=4, kv_heads=2, head_dim=8, qk_norm=True,
        qk_norm_whole=True, post_norms=True, no_pre_norms=True, norm_eps=1e-6, rope_theta=5e3, rope_local_theta=5e3,
        rope_scaling="linear", rope_factor=8.0, window=5, global_every=3,
    ),
    # as Llama; layer 3 has no positions
    "smollm3": dict(
        LLAMA, family="smollm3", seed=19, hidden=32, ffn=56, layers=5, heads=4, kv_heads=2, head_dim=8, tied=True,
        norm_eps=1e-6, rope_theta=5e3, rope_skip_every=4,
    ),
    # as Llama, with a sliding window
    "phi3": dict(
        LLAMA, family="phi3", seed=12, hidden=32, ffn=56, layers=2, heads=4, kv_heads=4, head_dim=8, window=6,
    ),
    # three quarters of each head rotated, with LongRoPE's divisors of sequences longer than the original length
    "phi4": dict(
        LLAMA, family="phi3", seed=28, hidden=32, ffn=56, layers=2, heads=4, kv_heads=2, head_dim=8, rope_dim=6, tied=True,
        rope_theta=100.0, rope_scaling="longrope", rope_factor=3.0, rope_original_seq=8, rope_mscale=1.2360679774997898,
        rope_short="1 1.25 1.5", rope_long="1.125 2.5 7",
    ),
    # layers 0 and 2 attend to i - 4 .. i; capped scores and logits, many of which exceed the cap
    "gemma2": dict(
        LLAMA, family="gemma2", seed=13, hidden=48, ffn=72, layers=4, heads=4, kv_heads=2, head_dim=16,
        act="gelu_tanh", tied=True, norm_eps=1e-6, window=5, global_every=2, post_norms=True, norm_plus_one=True,
        embed_scaled=True, score_dim=24, score_cap=2.0, logit_cap=3.0,
    ),
    # half of each head is rotated, in adjacent pairs; norms after attention and MLP, too
    "glm4": dict(
        LLAMA, family="glm4", seed=20, hidden=32, ffn=56, layers=2, heads=4, kv_heads=2, head_dim=12, rope_dim=6,
        qkv_bias=True, rope_pairing="adjacent", post_norms=True,
    ),
    # half of each head is rotated, in halves; the router and experts of DeepSeek-V3 without groups
    "glm4moe": dict(
        LLAMA, family="glm4_moe", seed=24, hidden=32, ffn=64, layers=3, heads=4, kv_heads=2, head_dim=16, rope_dim=8,
        qkv_bias=True, qk_norm=True, experts=8, experts_used=3, expert_ffn=32, shared_ffn=32, dense_layers=1,
        router_sigmoid=True, router_bias=True, router_scale=1.5,
    ),
    # likewise in every layer, without shared experts; q and k normalised over all heads
    "minimaxm2": dict(
        LLAMA, family="minimax_m2", seed=22, hidden=32, ffn=32, layers=2, heads=4, kv_heads=2, head_dim=16, rope_dim=8,
        qk_norm=True, qk_norm_whole=True, experts=8, experts_used=3, expert_ffn=32, router_sigmoid=True, router_bias=True,
    ),
    # factors of embeddings, scores, residuals and logits
    "granite": dict(
        LLAMA, family="granite", seed=25, hidden=32, ffn=56, layers=3, heads=4, kv_heads=2, head_dim=8, tied=True,
        embed_factor=3.0, score_factor=0.2, residual_factor=0.4, logit_divisor=1.75, norm_eps=1e-2,
    ),
    # the same factors; top 3 of 6 experts, whose weights add up to 1; with a shared expert of another width
    "granitemoe": dict(
        LLAMA, family="granitemoe", seed=29, hidden=32, ffn=32, layers=2, heads=4, kv_heads=2, head_dim=8, tied=True,
        embed_factor=3.0, score_factor=0.2, residual_factor=0.4, logit_divisor=1.75, norm_eps=1e-2, experts=6,
        experts_used=3, expert_ffn=32,
    ),
    "granitemoeshared": dict(
        LLAMA, family="granitemoeshared", seed=30, hidden=32, ffn=32, layers=2, heads=4, kv_heads=2, head_dim=8,
        embed_factor=3.0, score_factor=0.2, residual_factor=0.4, logit_divisor=1.75, norm_eps=1e-2, experts=6,
        experts_used=3, expert_ffn=32, shared_ffn=64,
    ),
    # norms with biases, a third of each head rotated; attention and MLP read the same stream; and one after the
    # other
    "neox": dict(
        LLAMA, family="gpt_neox", seed=26, hidden=48, ffn=88, layers=3, heads=4, kv_heads=4, head_dim=12, rope_dim=4,
        norm="layer", act="gelu_erf", gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, parallel_residual=True,
    ),
    "neoxseq": dict(
        LLAMA, family="gpt_neox", seed=27, hidden=32, ffn=72, layers=2, heads=4, kv_heads=4, head_dim=8, rope_dim=8,
        norm="layer", act="gelu_tanh", gated=False, qkv_bias=True, out_bias=True, mlp_bias=True,
    ),
    # attention and MLP read one norm without bias; scaled logits; adjacent pairs; and the same with layers 0, 1, 3
    # and 4 that attend to i - 4 .. i, and layer 2, which sees all positions and has none itself
    "cohere": dict(
        LLAMA, family="cohere", seed=31, hidden=48, ffn=88, layers=3, heads=4, kv_heads=2, head_dim=12, tied=True,
        norm="layer", parallel_residual=True, one_norm=True, norm_no_bias=True, rope_pairing="adjacent",
        logit_divisor=4.0,
    ),
    "cohere2": dict(
        LLAMA, family="cohere2", seed=32, hidden=32, ffn=56, layers=5, heads=4, kv_heads=2, head_dim=8, tied=True,
        norm="layer", parallel_residual=True, one_norm=True, norm_no_bias=True, rope_pairing="adjacent",
        logit_divisor=2.5, window=5, global_every=3, rope_skip_every=3,
    ),
    # norms and linears with biases, two heads a key/value head, a tanh GELU; position i attends to i - 5 .. i
    "starcoder2": dict(
        LLAMA, family="starcoder2", seed=33, hidden=48, ffn=96, layers=2, heads=4, kv_heads=2, head_dim=12, tied=True,
        norm="layer", act="gelu_tanh", gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, window=6,
    ),
    # top 2 of 5 experts, whose weights add up to 1
    "mixtral": dict(
        LLAMA, family="mixtral", seed=9, hidden=32, ffn=64, layers=2, heads=4, kv_heads=2, head_dim=8, experts=5,
        experts_used=2, expert_ffn=64,
    ),
    # top 3 of 8 experts, weighted by the softmax over all
    "qwen3moe": dict(
        LLAMA, family="qwen3_moe", seed=10, hidden=32, ffn=56, layers=2, heads=4, kv_heads=2, head_dim=16, qk_norm=True,
        norm_eps=1e-6, rope_theta=1e6, experts=8, experts_used=3, expert_ffn=32, router_unscaled=True,
    ),
    # top 3 of 6 experts, likewise; q and k normalised over all heads
    "olmoe": dict(
        LLAMA, family="olmoe", seed=14, hidden=32, ffn=64, layers=2, heads=4, kv_heads=2, head_dim=8, qk_norm=True,
        qk_norm_whole=True, experts=6, experts_used=3, expert_ffn=64, router_unscaled=True,
    ),
    # biases everywhere, sinks, clamped gates whose limits many values exceed; layers 0 and 2 attend to i - 4 .. i;
    # YaRN whose blend does not end at whole pairs
    "gptoss": dict(
        LLAMA, family="gpt_oss", seed=20, hidden=32, ffn=32, layers=3, heads=4, kv_heads=2, head_dim=16,
        act="silu_clamped", qkv_bias=True, out_bias=True, attn_sinks=True, window=5, global_every=2, rope_theta=200.0,
        rope_scaling="yarn", rope_factor=8.0, rope_original_seq=16, rope_beta_fast=32.0, rope_beta_slow=1.0,
        rope_mscale=1.2079441541679836, rope_untruncated=True, experts=6, experts_used=2, expert_ffn=32, expert_bias=True,
    ),
    # latent attention; experts from the best groups, shared experts, a dense first layer. V3 also compresses
    # queries to a latent, its router uses sigmoids, and a bias is added for the selection of experts
    "deepseek2": dict(
        LLAMA, family="deepseek_v2", seed=16, hidden=32, ffn=56, layers=3, heads=4, kv_heads=4, head_dim=12, rope_dim=4,
        v_dim=6, kv_rank=12, rope_pairing="adjacent", experts=8, experts_used=3, expert_ffn=24, shared_ffn=48,
        dense_layers=1, router_unscaled=True, router_groups=4, router_groups_used=2, router_scale=16.0, norm_eps=1e-6,
    ),
    "deepseek3": dict(
        LLAMA, family="deepseek_v3", seed=17, hidden=32, ffn=56, layers=3, heads=4, kv_heads=4, head_dim=14, rope_dim=6,
        v_dim=16, kv_rank=16, q_rank=20, rope_pairing="adjacent", experts=8, experts_used=3, expert_ffn=24, shared_ffn=24,
        dense_layers=1, router_sigmoid=True, router_bias=True, router_groups=4, router_groups_used=2, router_scale=2.5,
        norm_eps=1e-6,
    ),
}
# Mamba-2: of more than a chunk of 128 tokens; a norm a group, tied
CONFIGS["mamba2"] = dict(
    COMMON, family="mamba2", seed=40, hidden=32, ffn=0, layers=2, heads=1, kv_heads=1, head_dim=1, norm="rms", pos="none",
    act="silu", gated=False, tied=True, ssm_heads=8, ssm_head_dim=8, ssm_groups=2, ssm_state=12, ssm_kernel=4,
)
CONFIGS["mamba2"].update(max_seq=1 << 20, seq=150, rope_theta=0.0, rope_factor=0.0, rope_low_freq=0.0, rope_high_freq=0.0)
# Mamba-2's mixer in most layers, attention in those listed, without positions; the factors of Granite. With an MLP
# behind each, or with experts and a shared one.
HYBRID = dict(
    COMMON, hidden=32, layers=3, heads=4, kv_heads=2, head_dim=8, norm="rms", pos="none", act="silu", gated=True, tied=True,
    ssm_heads=8, ssm_head_dim=8, ssm_groups=2, ssm_state=12, ssm_kernel=4, attn_layers="1", norm_eps=1e-2,
)
HYBRID.update(max_seq=2048, rope_theta=0.0, rope_factor=0.0, rope_low_freq=0.0, rope_high_freq=0.0)
FACTORS = dict(embed_factor=3.0, score_factor=0.2, residual_factor=0.4, logit_divisor=1.75)
CONFIGS["granitehybrid"] = dict(HYBRID, **FACTORS, family="granitemoehybrid", seed=42, ffn=56)
CONFIGS["granitehybridmoe"] = dict(
    HYBRID, **FACTORS, family="granitemoehybrid", seed=43, ssm_groups=1, layers=2, ffn=24, experts=6,
    experts_used=3, expert_ffn=24, shared_ffn=40,
)
# half of each attention head rotated, no factors, biases in the MLP
CONFIGS["bamba"] = dict(
    HYBRID, family="bamba", seed=44, layers=2, attn_layers="0", ffn=56, pos="rope", rope_theta=500.0, rope_dim=4, mlp_bias=True,
    out_bias=True, qkv_bias=True, tied=False,
)
# with a module that predicts the token after the next one, whose head is the model's, tied or not
CONFIGS["glm4mtp"] = dict(CONFIGS["glm4moe"], seed=26, layers=2, tied=True, mtp_layers=1, mtp_loss_weight=0.3)
CONFIGS["deepseek3mtp"] = dict(CONFIGS["deepseek3"], seed=27, layers=2, mtp_layers=1, mtp_loss_weight=0.7)


def is_mixer(c, layer):
    return bool(c.get("ssm_heads")) and str(layer) not in c.get("attn_layers", "").split()


def param_shapes(c):
    """Returns the parameter table: name -> shape, in the order of the forward pass. Linear weights are [out,
    in]."""
    h, f, d = c["hidden"], c["ffn"], c["head_dim"]
    q, kv = c["heads"] * d, c["kv_heads"] * d
    t = {"embed.weight": (c["vocab"], h)}

    def norm(name):
        t[name + ".weight"] = (h,)
        if c["norm"] == "layer" and not c.get("norm_no_bias"):
            t[name + ".bias"] = (h,)

    def linears(prefix, names, bias):
        for n, shape in names:
            t[f"{prefix}.{n}.weight"] = shape
        for n, shape in names:
            if bias:
                t[f"{prefix}.{n}.bias"] = shape[:1]

    if c["pos"] == "learned":
        t["pos.weight"] = (c["max_seq"], h)
    def mixer(p):
        n, group = c["ssm_heads"], c["ssm_groups"] * c["ssm_state"]
        inner = n * c["ssm_head_dim"]
        norm(p + ".mixer_norm")
        linears(p + ".ssm", [("z", (inner, h)), ("x", (inner, h)), ("b", (group, h)), ("c", (group, h)), ("dt", (n, h))], False)
        linears(p + ".ssm", [(f"conv_{k}", (m, c["ssm_kernel"])) for k, m in (("x", inner), ("b", group), ("c", group))], True)
        t[p + ".ssm.dt.bias"] = t[p + ".ssm.a_log"] = t[p + ".ssm.d"] = (n,)
        t[p + ".ssm.norm.weight"] = (inner,)
        linears(p + ".ssm", [("out", (h, inner))], False)

    def layer(p, i):
        if is_mixer(c, i):
            mixer(p)
        else:
            attention(p)
        if f or c.get("experts"):
            mlp(p, i)

    def attention(p):
        if not c.get("no_pre_norms"):
            norm(p + ".attn_norm")
        rank = c.get("kv_rank")
        if rank:
            v, nope, from_q = c["v_dim"], d - c["rope_dim"], c.get("q_rank", 0)
            if from_q:
                t[p + ".attn.q_a.weight"], t[p + ".attn.q_a_norm.weight"] = (from_q, h), (from_q,)
            t[p + ".attn.q.weight"] = (q, from_q or h)
            t[p + ".attn.kv_a.weight"], t[p + ".attn.kv_a_norm.weight"] = (rank + c["rope_dim"], h), (rank,)
            t[p + ".attn.kv_b.weight"] = (c["heads"] * (nope + v), rank)
        else:
            linears(p + ".attn", [("q", (q, h)), ("k", (kv, h)), ("v", (kv, h))], c["qkv_bias"])
        if c["qk_norm"]:
            whole = c.get("qk_norm_whole")
            t[p + ".attn.q_norm.weight"], t[p + ".attn.k_norm.weight"] = ((q,), (kv,)) if whole else ((d,), (d,))
        if c.get("attn_sinks"):
            t[p + ".attn.sinks"] = (c["heads"],)
        linears(p + ".attn", [("o", (h, c["heads"] * c["v_dim"] if rank else q))], c["out_bias"])
        if c.get("post_norms"):
            norm(p + ".attn_post_norm")

    def mlp(p, i):
        if not c.get("no_pre_norms") and not c.get("one_norm"):
            norm(p + ".mlp_norm")
        if c.get("experts") and i >= c.get("dense_layers", 0):
            n, e, s = c["experts"], c["expert_ffn"], c.get("shared_ffn", 0)
            linears(p + ".mlp", [("router", (n, h))], c.get("router_bias") or c.get("expert_bias"))
            if s:
                linears(p + ".mlp.shared", [("gate", (s, h)), ("up", (s, h)), ("down", (h, s))], False)
            linears(p + ".mlp.experts", [("gate", (n * e, h)), ("up", (n * e, h)), ("down", (n * h, e))],
                    c.get("expert_bias"))
            return
        linears(p + ".mlp", ([("gate", (f, h))] if c["gated"] else []) + [("up", (f, h))], c["mlp_bias"])
        linears(p + ".mlp", [("down", (h, f))], c["mlp_bias"])
        if c.get("post_norms"):
            norm(p + ".mlp_post_norm")

    for i in range(c["layers"]):
        layer(f"layers.{i}", i)
    norm("norm")
    if c.get("mtp_layers"):
        norm("mtp.embed_norm")
        norm("mtp.hidden_norm")
        t["mtp.proj.weight"] = (h, 2 * h)
        layer("mtp", c["layers"])
        norm("mtp.norm")
    if not c["tied"]:
        t["head.weight"] = (c["vocab"], h)
    return t


def make_params(c, rs):
    """Random weights of a scale at which every term of the model has an effect: no zero biases, no unit
    norms."""
    out = {}
    for name, shape in param_shapes(c).items():
        x = rs.standard_normal(shape)
        if "norm" in name and name.endswith("weight"):
            x = (0 if c.get("norm_plus_one") else 1) + 0.2 * x
        elif name.endswith("bias"):
            x = 0.1 * x
        elif name.endswith("sinks"):
            x = x + 1
        elif name.endswith("a_log") or name.endswith("ssm.d"):
            x = 0.5 * x
        elif c["act"] == "silu_clamped" and (".gate." in name or ".up." in name):
            x = 5 * x / np.sqrt(shape[1])
        elif name not in ("embed.weight", "pos.weight"):
            x = 1.2 * x / np.sqrt(shape[1])
        else:
            x = 0.5 * x
        out[name] = x.astype(np.float32)
    return out


def rope_tables(c, dtype, local=False):
    """Returns cos and sin [seq, head_dim / 2]: Su et al. 2021; the llama3 bands as in Llama 3.1's reference
    code. local: those of Gemma's layers with a sliding window."""
    d = c.get("rope_dim") or c["head_dim"]
    freq = c["rope_local_theta" if local else "rope_theta"] ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    if c["rope_scaling"] == "linear" and not local:
        freq = freq / c["rope_factor"]
    if c["rope_scaling"] == "llama3":
        wavelength = 2 * np.pi / freq
        old, low, high = c["rope_original_seq"], c["rope_low_freq"], c["rope_high_freq"]
        # 1: unchanged (short wavelengths), 0: divided by the factor (long wavelengths), linear in between
        keep = ((old / wavelength - low) / (high - low)).clamp(0, 1)
        freq = keep * freq + (1 - keep) * freq / c["rope_factor"]
    if c["rope_scaling"] == "longrope":  # Ding et al. 2024; the choice is by the whole sequence
        by = c["rope_long" if c["seq"] > c["rope_original_seq"] else "rope_short"]
        freq = freq / torch.tensor([float(x) for x in by.split()], dtype=torch.float64)
    if c["rope_scaling"] == "yarn":  # Peng et al. 2023, section 3.2: blended over pairs between two numbers of turns
        def pair(turns):
            return d * np.log(c["rope_original_seq"] / (turns * 2 * np.pi)) / (2 * np.log(c["rope_theta"]))

        low, high = max(pair(c["rope_beta_fast"]), 0), min(pair(c["rope_beta_slow"]), d - 1)
        keep = 1 - ((torch.arange(d // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
        freq = keep * freq + (1 - keep) * freq / c["rope_factor"]
    by = c.get("rope_mscale", 1) if not local else 1
    angle = torch.outer(torch.arange(c["seq"], dtype=torch.float64), freq)
    return (by * angle.cos()).to(dtype), (by * angle.sin()).to(dtype)


def rope(x, cos, sin, pairing):
    """Rotates x [batch, heads, seq, head_dim]; pair i is (i, i + head_dim / 2), or (2 i, 2 i + 1) when
    adjacent."""
    if pairing == "adjacent":
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


def rmsnorm(x, w, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def forward(c, w, ids, ahead=None):
    """Returns logits [batch, seq, vocab], the residual streams, and the logits of the module for a further
    token, which is given the tokens `ahead`."""
    batch, seq = ids.shape
    d, heads, kv_heads = c["head_dim"], c["heads"], c["kv_heads"]

    def cap(x, name):
        return c[name] * torch.tanh(x / c[name]) if c.get(name) else x

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    def scale(name):
        return w[name + ".weight"] + (1 if c.get("norm_plus_one") else 0)

    def norm(x, name):
        if c["norm"] == "rms":
            return rmsnorm(x, scale(name), c["norm_eps"])
        centred = x - x.mean(-1, keepdim=True)
        rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + c["norm_eps"])
        return centred * rstd * w[name + ".weight"] + w.get(name + ".bias", 0)

    x = w["embed.weight"][ids]
    if c["pos"] == "learned":
        x = x + w["pos.weight"][:seq]
    elif c["pos"] == "rope":
        tables = {False: rope_tables(dict(c, seq=seq), x.dtype)}
        if c.get("rope_local_theta"):
            tables[True] = rope_tables(dict(c, seq=seq), x.dtype, True)
    if c.get("embed_scaled"):
        x = x * c["hidden"] ** 0.5
    x = x * c.get("embed_factor", 1)
    i, j = torch.arange(seq)[:, None], torch.arange(seq)[None, :]

    def split(x, n):  # [batch, seq, n * d] -> [batch, n, seq, d]
        return x.view(batch, seq, n, d).transpose(1, 2)

    def attention(x, p, window, rotates):
        seen = (j <= i) & ((i - j < window) if window else True)
        q, k, v = linear(x, p + ".q"), linear(x, p + ".k"), split(linear(x, p + ".v"), kv_heads)
        if c.get("qk_norm_whole"):
            q = rmsnorm(q, scale(p + ".q_norm"), c["norm_eps"])
            k = rmsnorm(k, scale(p + ".k_norm"), c["norm_eps"])
        q, k = split(q, heads), split(k, kv_heads)
        if c["qk_norm"] and not c.get("qk_norm_whole"):
            q = rmsnorm(q, scale(p + ".q_norm"), c["norm_eps"])
            k = rmsnorm(k, scale(p + ".k_norm"), c["norm_eps"])
        if rotates:
            cos, sin = tables[window > 0 and True in tables]
            r = c.get("rope_dim", d)
            q, k = (torch.cat((rope(y[..., :r], cos, sin, c["rope_pairing"]), y[..., r:]), dim=-1) for y in (q, k))
        k = k.repeat_interleave(heads // kv_heads, dim=1)
        v = v.repeat_interleave(heads // kv_heads, dim=1)
        score = (q @ k.transpose(-1, -2)) * c.get("score_factor", c.get("score_dim", d) ** -0.5)
        score = cap(score, "score_cap")
        score = score.masked_fill(~seen, float("-inf"))
        if c.get("attn_sinks"):
            sink = w[p + ".sinks"][None, :, None, None].expand(batch, heads, seq, 1)
            o = torch.cat((score, sink), dim=-1).softmax(-1)[..., :-1] @ v
        else:
            o = score.softmax(-1) @ v
        return linear(o.transpose(1, 2).reshape(batch, seq, heads * d), p + ".o")

    def latent_attention(x, p):
        """DeepSeek-V2 (2024), equations 9 to 19."""
        nope, r, v, rank = d - c["rope_dim"], c["rope_dim"], c["v_dim"], c["kv_rank"]
        cos, sin = tables[False]
        from_q = rmsnorm(linear(x, p + ".q_a"), scale(p + ".q_a_norm"), c["norm_eps"]) if c.get("q_rank") else x
        q = split(linear(from_q, p + ".q"), heads)
        latent, shared = linear(x, p + ".kv_a").split([rank, r], dim=-1)
        latent = rmsnorm(latent, scale(p + ".kv_a_norm"), c["norm_eps"])
        kv = linear(latent, p + ".kv_b").view(batch, seq, heads, nope + v).transpose(1, 2)
        shared = rope(shared[:, None], cos, sin, c["rope_pairing"]).expand(-1, heads, -1, -1)
        q = torch.cat((q[..., :nope], rope(q[..., nope:], cos, sin, c["rope_pairing"])), dim=-1)
        k = torch.cat((kv[..., :nope], shared), dim=-1)
        score = (q @ k.transpose(-1, -2)) / d**0.5
        o = score.masked_fill(j > i, float("-inf")).softmax(-1) @ kv[..., nope:]
        return linear(o.transpose(1, 2).reshape(batch, seq, heads * v), p + ".o")

    def mixer(x, p):
        """Dao and Gu (2024), section 7.1; the recurrence token by token (equation 1, definition 2.1)."""
        n, d, state, groups = c["ssm_heads"], c["ssm_head_dim"], c["ssm_state"], c["ssm_groups"]

        def convolved(k):
            y = F.pad(linear(x, p + "." + k).transpose(1, 2), (c["ssm_kernel"] - 1, 0))
            weight = w[f"{p}.conv_{k}.weight"]
            y = F.conv1d(y, weight[:, None], w[f"{p}.conv_{k}.bias"], groups=weight.shape[0])
            return F.silu(y).transpose(1, 2)

        xs = convolved("x").unflatten(-1, (n, d))
        b, read = (convolved(k).unflatten(-1, (groups, state)).repeat_interleave(n // groups, dim=2) for k in "bc")
        dt = F.softplus(F.linear(x, w[p + ".dt.weight"]) + w[p + ".dt.bias"])
        keep = torch.exp(-dt * w[p + ".a_log"].exp())
        s, out = x.new_zeros(batch, n, d, state), []
        for t in range(seq):
            s = keep[:, t, :, None, None] * s + (dt[:, t, :, None] * xs[:, t])[..., None] * b[:, t, :, None]
            out.append((s * read[:, t, :, None]).sum(-1) + w[p + ".d"][:, None] * xs[:, t])
        y = torch.stack(out, dim=1).flatten(2) * F.silu(linear(x, p + ".z"))
        y = rmsnorm(y.unflatten(-1, (groups, -1)), 1, c["norm_eps"]).flatten(2) * w[p + ".norm.weight"]
        return linear(y, p + ".out")

    def pre(y, name):
        return y if c.get("no_pre_norms") else norm(y, name)

    clamped = c["act"] == "silu_clamped"

    def act(x):
        if clamped:
            x = x.clamp(max=7)
            return x * torch.sigmoid(1.702 * x)
        return F.silu(x) if c["act"] == "silu" else F.gelu(x) if c["act"] == "gelu_erf" else gelu_tanh(x)

    def gated(gate, up):
        return act(gate) * (up.clamp(-7, 7) + 1 if clamped else up)

    def experts(x, p):
        """Computes every expert on every token; those not selected have weight 0."""
        score = F.linear(x, w[p + ".router.weight"], w[p + ".router.bias"] if c.get("expert_bias") else None)
        share = score.sigmoid() if c.get("router_sigmoid") else score.softmax(-1)
        worth = share + w[p + ".router.bias"] if c.get("router_bias") else share
        if c.get("router_groups"):
            groups = worth.unflatten(-1, (c["router_groups"], -1))
            value = groups.topk(2, dim=-1).values.sum(-1) if c.get("router_sigmoid") else groups.max(-1).values
            kept = torch.zeros_like(value).scatter(-1, value.topk(c["router_groups_used"], dim=-1).indices, 1)
            worth = groups.masked_fill(kept[..., None] == 0, float("-inf")).flatten(-2)
        indices = worth.topk(c["experts_used"], dim=-1).indices
        top = share.gather(-1, indices)
        top = top if c.get("router_unscaled") else top / top.sum(-1, keepdim=True)
        weight = torch.zeros_like(share).scatter(-1, indices, top * c.get("router_scale", 1))
        gate, up, down = (w[f"{p}.experts.{n}.weight"].chunk(c["experts"]) for n in ("gate", "up", "down"))
        b = [w[f"{p}.experts.{n}.bias"].chunk(c["experts"]) if c.get("expert_bias") else [None] * c["experts"]
             for n in ("gate", "up", "down")]
        return sum(weight[..., e, None] * F.linear(gated(F.linear(x, gate[e], b[0][e]), F.linear(x, up[e], b[1][e])),
                                                   down[e], b[2][e])
                   for e in range(c["experts"])) + (mlp(x, p + ".shared", False) if c.get("shared_ffn") else 0)

    def mlp(x, p, routed=True):
        if routed and c.get("experts"):
            return experts(x, p)
        up = linear(x, p + ".up")
        y = gated(linear(x, p + ".gate"), up) if c["gated"] else act(up)
        return linear(y, p + ".down")

    def post(y, name):
        return norm(y, name) if c.get("post_norms") else y

    def layer(x, p, n):
        rotates = c["pos"] == "rope" and (not c.get("rope_skip_every") or (n + 1) % c["rope_skip_every"] != 0)
        window = 0 if c.get("global_every") and (n + 1) % c["global_every"] == 0 else c["window"]
        before, first = x, pre(x, p + (".mixer_norm" if is_mixer(c, n) else ".attn_norm"))
        y = (mixer(first, p + ".ssm") if is_mixer(c, n) else latent_attention(first, p + ".attn") if c.get("kv_rank")
             else attention(first, p + ".attn", window, rotates))
        x = x + post(y, p + ".attn_post_norm") * c.get("residual_factor", 1)
        if not c["ffn"] and not c.get("experts"):
            return x
        seen = before if c.get("parallel_residual") else x
        second = first if c.get("one_norm") else pre(seen, p + ".mlp_norm")
        y = mlp(second, p + ".mlp", n >= c.get("dense_layers", 0))
        return x + post(y, p + ".mlp_post_norm") * c.get("residual_factor", 1)

    def head(x):
        logits = F.linear(x, w["embed.weight" if c["tied"] else "head.weight"])
        return cap(logits / c.get("logit_divisor", 1), "logit_cap")

    hidden = []
    for n in range(c["layers"]):
        hidden.append(x)
        x = layer(x, f"layers.{n}", n)
    hidden.append(x)
    final, more = norm(x, "norm"), None
    if ahead is not None:  # DeepSeek-V3 (2024), equations 21 to 23, in the order of its published weights
        both = (norm(w["embed.weight"][ahead], "mtp.embed_norm"), norm(final, "mtp.hidden_norm"))
        more = head(norm(layer(linear(torch.cat(both, dim=-1), "mtp.proj"), "mtp", c["layers"]), "mtp.norm"))
    return head(final), hidden, more


def run(c, params, ids, targets, dtype, ids_ahead=None, targets_ahead=None):
    """Returns the contents of the golden file in this precision: logits, hidden, loss, gradients."""
    w = {k: torch.tensor(v, dtype=dtype, requires_grad=True) for k, v in params.items()}
    ahead = torch.from_numpy(ids_ahead).long() if c.get("mtp_layers") else None
    logits, hidden, more = forward(c, w, torch.from_numpy(ids).long(), ahead)

    flat = torch.from_numpy(targets).long().view(-1)
    loss = F.cross_entropy(logits.view(-1, c["vocab"]), flat, ignore_index=-1)
    mtp_loss = 0 * loss
    if ahead is not None:  # over the number of the model's targets: equation 24
        flat_ahead = torch.from_numpy(targets_ahead).long().view(-1)
        mtp_loss = F.cross_entropy(more.view(-1, c["vocab"]), flat_ahead, ignore_index=-1, reduction="sum")
        mtp_loss = mtp_loss / int((flat >= 0).sum())
    (loss + c.get("mtp_loss_weight", 0) * mtp_loss).backward()
    return dict(
        logits=logits.detach().numpy(), hidden=[x.detach().numpy() for x in hidden], loss=loss.item(),
        mtp_loss=mtp_loss.item(), mtp_logits=None if more is None else more.detach().numpy(),
        # the bias of the expert selection has no gradient
        grad={k: np.zeros(v.shape) if v.grad is None else v.grad.numpy() for k, v in w.items()},
    )


def rel_err(a, b):
    return float(np.abs(a - b).max() / np.abs(b).max())


def model_golden(c):
    """Returns (attributes, {dataset name: array}) of one golden file."""
    rs = np.random.RandomState(c["seed"])
    params = make_params(c, rs)
    ids = rs.randint(0, c["vocab"], (c["batch"], c["seq"])).astype(np.int32)
    targets = rs.randint(0, c["vocab"], ids.shape).astype(np.int32)
    targets[0, 3] = targets[1, -1] = targets[1, 0] = -1  # ignored
    ids[0, :2] = [0, c["vocab"] - 1]  # both ends of the vocabulary
    ids[1, 5] = ids[1, 6]  # the same row of the embedding twice in succession
    targets[0, :2] = [c["vocab"] - 1, 0]
    ahead = ()
    if c.get("mtp_layers"):
        ahead = (np.roll(ids, -1, axis=1), rs.randint(0, c["vocab"], ids.shape).astype(np.int32))
        ahead[1][:, -1] = ahead[1][0, 2] = -1
    g, g32 = (run(c, params, ids, targets, t, *ahead) for t in (torch.float64, torch.float32))
    attrs = {k: v for k, v in c.items()}
    attrs["fp32_logits_err"] = rel_err(g32["logits"], g["logits"])
    largest = max(np.abs(g["grad"][k]).max() for k in params)
    attrs["fp32_grad_err"] = max(float(np.abs(g32["grad"][k] - g["grad"][k]).max() / largest) for k in params)
    data = {"ids": ids, "targets": targets, "loss": np.float64(g["loss"]), "logits": g["logits"].astype(np.float32)}
    if ahead:
        data |= {"ids_ahead": ahead[0], "targets_ahead": ahead[1], "mtp_loss": np.float64(g["mtp_loss"]),
                 "mtp_logits": g["mtp_logits"].astype(np.float32)}
    for i, x in enumerate(g["hidden"]):
        data[f"hidden/{i}"] = x.astype(np.float32)
    for k, v in params.items():
        data["param/" + k] = v
        data["grad/" + k] = g["grad"][k].astype(np.float32)
    return attrs, data


OPTIM_STEPS = 5
OPTIM_TENSORS = {"matrix": 35, "vector": 13, "block": 64, "one": 1}
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, dict(), dict(beta1=0.0, beta2=0.0, eps=0.0)),
    "momentum": (torch.optim.SGD, dict(momentum=0.9), dict(beta1=0.9, beta2=0.0, eps=0.0)),
    "rmsprop": (torch.optim.RMSprop, dict(alpha=0.99, eps=1e-8), dict(beta1=0.0, beta2=0.99, eps=1e-8)),
    "adagrad": (torch.optim.Adagrad, dict(eps=1e-10), dict(beta1=0.0, beta2=0.0, eps=1e-10)),
    "adam": (torch.optim.Adam, dict(betas=(0.9, 0.95), eps=1e-8), dict(beta1=0.9, beta2=0.95, eps=1e-8)),
    "adamw": (torch.optim.AdamW, dict(betas=(0.9, 0.95), eps=1e-8), dict(beta1=0.9, beta2=0.95, eps=1e-8)),
}
STATES = {"momentum": ["momentum_buffer"], "rmsprop": ["square_avg"], "adagrad": ["sum"],
          "adam": ["exp_avg", "exp_avg_sq"], "adamw": ["exp_avg", "exp_avg_sq"], "sgd": []}


def optim_golden():
    """Runs torch.optim in fp64 on given fp32 gradients with a learning rate that changes in each step."""
    rs = np.random.RandomState(7)
    lr = np.array([1e-3, 2e-2, 1e-2, 5e-3, 3e-2])
    init = {t: rs.standard_normal(n).astype(np.float32) for t, n in OPTIM_TENSORS.items()}
    grad = {t: rs.standard_normal((OPTIM_STEPS, n)).astype(np.float32) for t, n in OPTIM_TENSORS.items()}
    # small and large gradients in one tensor
    grad["block"] *= np.logspace(-4, 2, OPTIM_TENSORS["block"], dtype=np.float32)
    grad["vector"][1:3] = 0  # no gradient for two steps: moments decay, weight decay continues
    data, attrs = {"lr": lr}, {"steps": OPTIM_STEPS}
    for t in OPTIM_TENSORS:
        data["init/" + t], data["grad/" + t] = init[t], grad[t]
    for kind, (cls, args, names) in OPTIMIZERS.items():
        for suffix, wd in (("", 0.0), ("_wd", 0.1)):
            group = kind + suffix
            p = {t: torch.tensor(init[t], dtype=torch.float64, requires_grad=True) for t in init}
            opt = cls(p.values(), lr=1.0, weight_decay=wd, **args)
            path = {t: [] for t in p}
            for step in range(OPTIM_STEPS):
                opt.param_groups[0]["lr"] = lr[step]
                for t in p:
                    p[t].grad = torch.tensor(grad[t][step], dtype=torch.float64)
                opt.step()
                for t in p:
                    path[t].append(p[t].detach().numpy().copy())
            for t in p:
                data[f"{group}/{t}"] = np.stack(path[t]).astype(np.float32)
                for i, key in enumerate(STATES[kind]):
                    data[f"{group}/state{i + 1}/{t}"] = opt.state[p[t]][key].numpy().astype(np.float32)
            attrs[group] = dict(names, optimizer=kind, weight_decay=wd)
    return attrs, data


def write(path, attrs, data):
    """Writes the same bytes for the same values: without time stamps."""
    fcpl, gcpl = h5py.h5p.create(h5py.h5p.FILE_CREATE), h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    fapl = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    fcpl.set_obj_track_times(False)
    gcpl.set_obj_track_times(False)
    fapl.set_libver_bounds(h5py.h5f.LIBVER_V110, h5py.h5f.LIBVER_V110)
    with h5py.File(h5py.h5f.create(path.encode(), h5py.h5f.ACC_TRUNC, fcpl, fapl)) as f:
        groups = {k.rsplit("/", 1)[0] for k in data if "/" in k}
        for group in sorted(groups | {g.split("/")[0] for g in groups}):  # parents first
            h5py.h5g.create(f.id, group.encode(), gcpl=gcpl)
        for k, v in attrs.items():
            if isinstance(v, dict):
                continue
            if isinstance(v, str):
                f.attrs.create(k, np.bytes_(v))
            else:
                f.attrs.create(k, np.float64(v) if isinstance(v, float) else np.int64(v))
        for k, v in data.items():
            big = np.size(v) >= 512
            f.create_dataset(k, data=v, track_times=False, shuffle=big, compression=9 if big else None)
        for group, v in attrs.items():
            if isinstance(v, dict):
                for k, x in v.items():
                    f[group].attrs.create(k, np.bytes_(x) if isinstance(x, str) else np.float64(x))


def check(path, attrs, data):
    """Returns the names of values that differ between the file and the recomputation."""
    bad = []
    with h5py.File(path, "r") as f:
        names = set()
        f.visititems(lambda n, o: names.add(n) if isinstance(o, h5py.Dataset) else None)
        bad += sorted(names ^ set(data))
        for k in names & set(data):
            have, want = f[k][()], np.asarray(data[k])
            if have.shape != want.shape or not np.allclose(have, want, rtol=1e-6, atol=1e-7):
                bad.append(k)
        for k, v in attrs.items():
            if k.startswith("fp32_"):  # measured errors, which differ between processors
                continue
            for name, x, at in [(k, v, f.attrs)] if not isinstance(v, dict) else [(n, x, f[k].attrs) for n, x in v.items()]:
                have = at.get(name)
                have = have.decode() if isinstance(have, bytes) else have
                if have is None or have != x:
                    bad.append(f"attribute {name}")
    return bad


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        print("usage: golden_models.py [--check]", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    goldens = {name: lambda c=c: model_golden(c) for name, c in CONFIGS.items()}
    goldens["optim"] = optim_golden
    status = 0
    for name, make in goldens.items():
        path = os.path.join(HERE, f"golden-{name}.h5")
        attrs, data = make()
        if sys.argv[1:]:
            bad = check(path, attrs, data)
            print(f"golden-{name}.h5: " + (f"differs: {' '.join(bad[:6])}" if bad else f"{len(data)} datasets agree"))
            status = 3 if bad else status
        else:
            write(path, attrs, data)
            errs = [f"{k} {v:.1e}" for k, v in attrs.items() if k.startswith("fp32_")]
            print(" ".join([f"golden-{name}.h5: {os.path.getsize(path)} bytes", *errs]))
    return status


if __name__ == "__main__":
    sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
