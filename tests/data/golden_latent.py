#!/usr/bin/env python3
"""Golden outputs of latent attention, from transformers: greedy tokens and logits of DeepSeek-V2 and V3 with
the random weights of golden-deepseek2.h5 and golden-deepseek3.h5, in fp32 with its own KV cache.

    golden_latent.py    writes golden-latent.json beside this script

Run by hand: it needs torch, transformers (5.x) and h5py, which are not dependencies. For each model

    prompt, greedy    token ids of the prompt, and the greedy tokens that follow, up to the model's 24
    positions margin            the smallest difference between the two largest logits, that is, how close the
    list is to a tie logits            [greedy] the complete logits for each of these tokens
"""
import json
import os

import h5py
import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = {"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
LEAVES = {
    "attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm", "attn.q_a": "self_attn.q_a_proj",
    "attn.q_a_norm": "self_attn.q_a_layernorm", "attn.kv_a": "self_attn.kv_a_proj_with_mqa",
    "attn.kv_a_norm": "self_attn.kv_a_layernorm", "attn.kv_b": "self_attn.kv_b_proj", "attn.o": "self_attn.o_proj",
    "mlp.gate": "mlp.gate_proj", "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj", "mlp.router": "mlp.gate",
    "mlp.shared.gate": "mlp.shared_experts.gate_proj", "mlp.shared.up": "mlp.shared_experts.up_proj",
    "mlp.shared.down": "mlp.shared_experts.down_proj",
}


def config(a):
    kind = {"deepseek_v2": transformers.DeepseekV2Config, "deepseek_v3": transformers.DeepseekV3Config}[a["family"].decode()]
    i = {k: int(v) for k, v in a.items() if k not in ("family",) and not isinstance(v, bytes)}
    v3 = kind is transformers.DeepseekV3Config
    return kind(
        vocab_size=i["vocab"], hidden_size=i["hidden"], intermediate_size=i["ffn"], num_hidden_layers=i["layers"],
        num_attention_heads=i["heads"], num_key_value_heads=i["heads"], max_position_embeddings=i["max_seq"],
        kv_lora_rank=i["kv_rank"], q_lora_rank=i.get("q_rank") or None, qk_nope_head_dim=i["head_dim"] - i["rope_dim"],
        qk_rope_head_dim=i["rope_dim"], v_head_dim=i["v_dim"], n_routed_experts=i["experts"],
        num_experts_per_tok=i["experts_used"], moe_intermediate_size=i["expert_ffn"],
        n_shared_experts=i["shared_ffn"] // i["expert_ffn"], first_k_dense_replace=i["dense_layers"],
        n_group=i["router_groups"], topk_group=i["router_groups_used"], routed_scaling_factor=float(a["router_scale"]),
        norm_topk_prob=v3, rms_norm_eps=float(a["norm_eps"]), tie_word_embeddings=False, attention_bias=False,
        rope_parameters=dict(rope_type="default", rope_theta=float(a["rope_theta"])),
        **({} if v3 else {"topk_method": "group_limited_greedy"}),
    )


def hf_weights(f, experts):
    out, n = {}, int(f.attrs["experts"])
    for name, w in ((k, f["param/" + k]) for k in f["param"] if isinstance(f["param/" + k], h5py.Dataset)):
        w = torch.tensor(w[()])
        part = name.split(".")
        if part[0] != "layers":
            out[f"{NAMES[part[0]]}.weight"] = w
            continue
        at, leaf, kind = f"model.layers.{part[1]}.", ".".join(part[2:-1]), part[-1]
        if leaf == "attn.q":
            leaf = "self_attn.q_b_proj" if f.attrs.get("q_rank", 0) else "self_attn.q_proj"
            out[f"{at}{leaf}.weight"] = w
        elif leaf.startswith("mlp.experts."):
            experts.setdefault(at, {})[leaf.split(".")[-1]] = w.chunk(n)
        elif (leaf, kind) == ("mlp.router", "bias"):
            out[at + "mlp.gate.e_score_correction_bias"] = w
        else:
            out[f"{at}{LEAVES[leaf]}.weight"] = w
    for at, e in experts.items():
        out[at + "mlp.experts.gate_up_proj"] = torch.stack([torch.cat(x) for x in zip(e["gate"], e["up"])])
        out[at + "mlp.experts.down_proj"] = torch.stack(e["down"])
    return out


def compute(name):
    with h5py.File(os.path.join(HERE, f"golden-{name}.h5")) as f:
        c = config(f.attrs)
        m = transformers.AutoModelForCausalLM.from_config(c, attn_implementation="eager").float().eval()
        m.load_state_dict(hf_weights(f, {}), strict=True)
        prompt, want = f["ids"][0, :5].tolist(), torch.tensor(f["logits"][0])
        with torch.no_grad():
            got = m(torch.tensor(f["ids"][:1].tolist())).logits[0]
        apart = float((got - want).abs().max() / want.abs().max())
        print(f"{name}: logits differ from golden-{name}.h5 by {apart:.2g} of the largest")
        assert apart < 1e-5
        at, cache, greedy, logits, margin = torch.tensor([prompt]), None, [], [], float("inf")
        with torch.no_grad():
            while len(prompt) + len(greedy) < int(f.attrs["max_seq"]):
                r = m(at, past_key_values=cache, use_cache=True)
                cache, row = r.past_key_values, r.logits[0, -1]
                best = torch.topk(row, 2)
                margin = min(margin, float(best.values[0] - best.values[1]))
                greedy.append(int(best.indices[0]))
                logits.append([float(f"{x:.8g}") for x in row.tolist()])
                at = best.indices[:1][None]
    return dict(prompt=prompt, greedy=greedy, margin=margin, logits=logits)


if __name__ == "__main__":
    with open(os.path.join(HERE, "golden-latent.json"), "w") as out:
        json.dump({m: compute(m) for m in ("deepseek2", "deepseek3")}, out, separators=(",", ":"))
        out.write("\n")
# SPDX-License-Identifier: Apache-2.0
