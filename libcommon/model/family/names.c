/*
 * Parameter names of most families: as in Hugging Face's modelling code of Llama, and gguf-py's tensor map.
 * Names of a single family are in its file.
 */
#include "model/names.h"
#include "model/family/family.h"

#include <stdio.h>
#include <string.h>

const struct dt_tensor_name dt_names_llama[] = {
	{DT_W_EMBED, "embed_tokens.weight"},
	{DT_W_ATTN_NORM, "layers.%d.input_layernorm.weight"},
	{DT_W_Q, "layers.%d.self_attn.q_proj.weight"},
	{DT_W_K, "layers.%d.self_attn.k_proj.weight"},
	{DT_W_V, "layers.%d.self_attn.v_proj.weight"},
	{DT_W_Q_B, "layers.%d.self_attn.q_proj.bias"},
	{DT_W_K_B, "layers.%d.self_attn.k_proj.bias"},
	{DT_W_V_B, "layers.%d.self_attn.v_proj.bias"},
	{DT_W_Q_NORM, "layers.%d.self_attn.q_norm.weight"},
	{DT_W_K_NORM, "layers.%d.self_attn.k_norm.weight"},
	{DT_W_O, "layers.%d.self_attn.o_proj.weight"},
	{DT_W_O_B, "layers.%d.self_attn.o_proj.bias"},
	{DT_W_MLP_NORM, "layers.%d.post_attention_layernorm.weight"},
	{DT_W_GATE, "layers.%d.mlp.gate_proj.weight"},
	{DT_W_UP, "layers.%d.mlp.up_proj.weight"},
	{DT_W_GATE_B, "layers.%d.mlp.gate_proj.bias"},
	{DT_W_UP_B, "layers.%d.mlp.up_proj.bias"},
	{DT_W_DOWN, "layers.%d.mlp.down_proj.weight"},
	{DT_W_DOWN_B, "layers.%d.mlp.down_proj.bias"},
	{DT_W_FINAL_NORM, "norm.weight"},
	{DT_W_HEAD, "lm_head.weight"},
	{DT_W_POST_ATTN_NORM, "layers.%d.post_attention_layernorm.weight"},
	{DT_W_POST_MLP_NORM, "layers.%d.post_feedforward_layernorm.weight"},
	{0},
};

const struct dt_tensor_name dt_names_gguf[] = {
	{DT_W_EMBED, "token_embd.weight"},
	{DT_W_POS, "position_embd.weight"},
	{DT_W_ATTN_NORM, "blk.%d.attn_norm.weight"},
	{DT_W_ATTN_NORM_B, "blk.%d.attn_norm.bias"},
	{DT_W_Q, "blk.%d.attn_q.weight"},
	{DT_W_K, "blk.%d.attn_k.weight"},
	{DT_W_V, "blk.%d.attn_v.weight"},
	{DT_W_Q_B, "blk.%d.attn_q.bias"},
	{DT_W_K_B, "blk.%d.attn_k.bias"},
	{DT_W_V_B, "blk.%d.attn_v.bias"},
	{DT_W_Q_NORM, "blk.%d.attn_q_norm.weight"},
	{DT_W_K_NORM, "blk.%d.attn_k_norm.weight"},
	{DT_W_O, "blk.%d.attn_output.weight"},
	{DT_W_O_B, "blk.%d.attn_output.bias"},
	{DT_W_MLP_NORM, "blk.%d.ffn_norm.weight"},
	{DT_W_MLP_NORM_B, "blk.%d.ffn_norm.bias"},
	{DT_W_GATE, "blk.%d.ffn_gate.weight"},
	{DT_W_UP, "blk.%d.ffn_up.weight"},
	{DT_W_GATE_B, "blk.%d.ffn_gate.bias"},
	{DT_W_UP_B, "blk.%d.ffn_up.bias"},
	{DT_W_DOWN, "blk.%d.ffn_down.weight"},
	{DT_W_DOWN_B, "blk.%d.ffn_down.bias"},
	{DT_W_FINAL_NORM, "output_norm.weight"},
	{DT_W_FINAL_NORM_B, "output_norm.bias"},
	{DT_W_HEAD, "output.weight"},
	{DT_W_POST_ATTN_NORM, "blk.%d.post_attention_norm.weight"},
	{DT_W_POST_MLP_NORM, "blk.%d.post_ffw_norm.weight"},
	{DT_W_ROUTER, "blk.%d.ffn_gate_inp.weight"},
	{DT_W_EXPERT_GATE, "blk.%d.ffn_gate_exps.weight"},
	{DT_W_EXPERT_UP, "blk.%d.ffn_up_exps.weight"},
	{DT_W_EXPERT_DOWN, "blk.%d.ffn_down_exps.weight"},
	{0},
};

const struct dt_tensor_name dt_names_gguf_qkv[] = {
	{DT_W_Q, "blk.%d.attn_qkv.weight", DT_JOINED_QKV},
	{DT_W_K, "blk.%d.attn_qkv.weight", DT_JOINED_QKV},
	{DT_W_V, "blk.%d.attn_qkv.weight", DT_JOINED_QKV},
	{DT_W_Q_B, "blk.%d.attn_qkv.bias", DT_JOINED_QKV},
	{DT_W_K_B, "blk.%d.attn_qkv.bias", DT_JOINED_QKV},
	{DT_W_V_B, "blk.%d.attn_qkv.bias", DT_JOINED_QKV},
	{0},
};

const struct dt_tensor_name dt_names_experts[] = {
	{DT_W_ROUTER, "layers.%d.mlp.gate.weight"},
	{DT_W_EXPERT_GATE, "layers.%d.mlp.experts.%e.gate_proj.weight"},
	{DT_W_EXPERT_UP, "layers.%d.mlp.experts.%e.up_proj.weight"},
	{DT_W_EXPERT_DOWN, "layers.%d.mlp.experts.%e.down_proj.weight"},
	{0},
};

const struct dt_tensor_name dt_names_mixtral[] = {
	{DT_W_ROUTER, "layers.%d.block_sparse_moe.gate.weight"},
	{DT_W_EXPERT_GATE, "layers.%d.block_sparse_moe.experts.%e.w1.weight"},
	{DT_W_EXPERT_UP, "layers.%d.block_sparse_moe.experts.%e.w3.weight"},
	{DT_W_EXPERT_DOWN, "layers.%d.block_sparse_moe.experts.%e.w2.weight"},
	{0},
};

const struct dt_tensor_name dt_names_shared[] = {
	{DT_W_ROUTER_B, "layers.%d.mlp.gate.e_score_correction_bias"},
	{DT_W_SHARED_GATE, "layers.%d.mlp.shared_experts.gate_proj.weight"},
	{DT_W_SHARED_UP, "layers.%d.mlp.shared_experts.up_proj.weight"},
	{DT_W_SHARED_DOWN, "layers.%d.mlp.shared_experts.down_proj.weight"},
	{0},
};

/* Of a module for a further token; its block has the names of a layer behind the last one. */
const struct dt_tensor_name dt_names_mtp[] = {
	{DT_W_MTP_EMBED_NORM, "layers.%d.enorm.weight"},
	{DT_W_MTP_HIDDEN_NORM, "layers.%d.hnorm.weight"},
	{DT_W_MTP_PROJ, "layers.%d.eh_proj.weight"},
	{DT_W_MTP_NORM, "layers.%d.shared_head.norm.weight"},
	{0},
};

const struct dt_tensor_name dt_names_gguf_mtp[] = {
	{DT_W_MTP_EMBED_NORM, "blk.%d.nextn.enorm.weight"},
	{DT_W_MTP_HIDDEN_NORM, "blk.%d.nextn.hnorm.weight"},
	{DT_W_MTP_PROJ, "blk.%d.nextn.eh_proj.weight"},
	{DT_W_MTP_NORM, "blk.%d.nextn.shared_head_norm.weight"},
	{0},
};

const struct dt_tensor_name dt_names_gguf_shared[] = {
	{DT_W_ROUTER_B, "blk.%d.exp_probs_b.bias"},
	{DT_W_SHARED_GATE, "blk.%d.ffn_gate_shexp.weight"},
	{DT_W_SHARED_UP, "blk.%d.ffn_up_shexp.weight"},
	{DT_W_SHARED_DOWN, "blk.%d.ffn_down_shexp.weight"},
	{0},
};

const char *dt_names_of_images(const char *name, char buf[DT_NAMES_MAX])
{
	static const char module[] = "module.", linear[] = "linear.", shortcut[] = ".shortcut.";
	const char *at;

	if (!strncmp(name, module, sizeof(module) - 1))
		name += sizeof(module) - 1;
	at = strstr(name, shortcut);
	if (!strncmp(name, linear, sizeof(linear) - 1))
		snprintf(buf, DT_NAMES_MAX, "fc.%s", name + sizeof(linear) - 1);
	else if (at)
		snprintf(buf, DT_NAMES_MAX, "%.*s.downsample.%s", (int)(at - name), name,
			 at + sizeof(shortcut) - 1);
	else
		return name;
	return buf;
}
/* SPDX-License-Identifier: Apache-2.0 */
