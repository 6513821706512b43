"""Configurations of small models, one of each kind of block that the programs know."""
import json
import os


# Rows that every block format divides.
WIDE = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64, "rotary_dim": 32, "kv_lora_rank": 256, "q_lora_rank": 256,
        "v_head_dim": 64, "moe_intermediate_size": 256, "shared_intermediate_size": 256}


def write_models(folder, wide=False, **keys_of_all):
    """Models with a number of layers that no pipeline divides evenly, 2 key/value heads under 4 heads, sizes
    that are no multiple of 16; with a tied embedding; with norms over all heads; with layers without positions,
    and others with windows; with heads that are rotated in part; with LongRoPE; with attention and MLP
    beside each other, behind norms of their own or one norm; with experts, without and with latent attention, and with
    biases and attention sinks; of Mamba-2, in two groups. wide: with rows that can be quantised to any format, and fewer
    layers."""
    common = {"vocab_size": 261, "hidden_size": 48, "intermediate_size": 90, "num_hidden_layers": 5, "num_attention_heads": 4,
              "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000, **keys_of_all}
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
            "residual_multiplier": 0.22, "logits_scaling": 3},
            "mamba2": {"num_heads": 8, "head_dim": 12, "n_groups": 2, "state_size": 10, "conv_kernel": 3}}
    paths = []
    for kind, keys in more.items():
        paths.append(os.path.join(folder, kind + ".json"))
        with open(paths[-1], "w") as f:
            config = {"model_type": kind, **common, **keys}
            if wide:
                config["num_hidden_layers"] = 3
                config.update((k, v) for k, v in WIDE.items() if k in config)
                for key, factors in config.get("rope_scaling", {}).items():
                    if isinstance(factors, list):  # of LongRoPE, one per pair of a head's rotated half
                        config["rope_scaling"][key] = [factors[i * len(factors) // 16] for i in range(16)]
            json.dump(config, f)
    return paths


def has_experts(path):
    return any(kind in path for kind in ("mixtral", "deepseek", "glm4_moe", "gpt_oss", "minimax", "granitemoe"))


# SPDX-License-Identifier: Apache-2.0
