/*
 * Names of parameters in other formats. One row a role; %d is the layer, %e the expert. The third and fourth
 * columns are GGUF's (gguf-py's tensor map; GPT-2 has q, k and v in one), the first two Hugging Face's
 * modelling code's.
 */
#include "model/names.h"

#include "kernels/rope.h"

#include <stdio.h>
#include <string.h>

static const struct {
	enum dt_role role;
	const char *llama, *gpt2, *gguf, *gguf_gpt2; /* gguf_gpt2 NULL: as gguf */
} rows[] = {
	{DT_W_EMBED, "embed_tokens.weight", "wte.weight", "token_embd.weight", NULL},
	{DT_W_POS, NULL, "wpe.weight", "position_embd.weight", NULL},
	{DT_W_ATTN_NORM, "layers.%d.input_layernorm.weight", "h.%d.ln_1.weight", "blk.%d.attn_norm.weight",
	 NULL},
	{DT_W_ATTN_NORM_B, NULL, "h.%d.ln_1.bias", "blk.%d.attn_norm.bias", NULL},
	{DT_W_Q, "layers.%d.self_attn.q_proj.weight", "h.%d.attn.c_attn.weight", "blk.%d.attn_q.weight",
	 "blk.%d.attn_qkv.weight"},
	{DT_W_K, "layers.%d.self_attn.k_proj.weight", "h.%d.attn.c_attn.weight", "blk.%d.attn_k.weight",
	 "blk.%d.attn_qkv.weight"},
	{DT_W_V, "layers.%d.self_attn.v_proj.weight", "h.%d.attn.c_attn.weight", "blk.%d.attn_v.weight",
	 "blk.%d.attn_qkv.weight"},
	{DT_W_Q_B, "layers.%d.self_attn.q_proj.bias", "h.%d.attn.c_attn.bias", "blk.%d.attn_q.bias",
	 "blk.%d.attn_qkv.bias"},
	{DT_W_K_B, "layers.%d.self_attn.k_proj.bias", "h.%d.attn.c_attn.bias", "blk.%d.attn_k.bias",
	 "blk.%d.attn_qkv.bias"},
	{DT_W_V_B, "layers.%d.self_attn.v_proj.bias", "h.%d.attn.c_attn.bias", "blk.%d.attn_v.bias",
	 "blk.%d.attn_qkv.bias"},
	{DT_W_Q_NORM, "layers.%d.self_attn.q_norm.weight", NULL, "blk.%d.attn_q_norm.weight", NULL},
	{DT_W_K_NORM, "layers.%d.self_attn.k_norm.weight", NULL, "blk.%d.attn_k_norm.weight", NULL},
	{DT_W_O, "layers.%d.self_attn.o_proj.weight", "h.%d.attn.c_proj.weight", "blk.%d.attn_output.weight",
	 NULL},
	{DT_W_O_B, "layers.%d.self_attn.o_proj.bias", "h.%d.attn.c_proj.bias", "blk.%d.attn_output.bias",
	 NULL},
	{DT_W_MLP_NORM, "layers.%d.post_attention_layernorm.weight", "h.%d.ln_2.weight",
	 "blk.%d.ffn_norm.weight", NULL},
	{DT_W_MLP_NORM_B, NULL, "h.%d.ln_2.bias", "blk.%d.ffn_norm.bias", NULL},
	{DT_W_GATE, "layers.%d.mlp.gate_proj.weight", NULL, "blk.%d.ffn_gate.weight", NULL},
	{DT_W_UP, "layers.%d.mlp.up_proj.weight", "h.%d.mlp.c_fc.weight", "blk.%d.ffn_up.weight", NULL},
	{DT_W_GATE_B, "layers.%d.mlp.gate_proj.bias", NULL, "blk.%d.ffn_gate.bias", NULL},
	{DT_W_UP_B, "layers.%d.mlp.up_proj.bias", "h.%d.mlp.c_fc.bias", "blk.%d.ffn_up.bias", NULL},
	{DT_W_DOWN, "layers.%d.mlp.down_proj.weight", "h.%d.mlp.c_proj.weight", "blk.%d.ffn_down.weight",
	 NULL},
	{DT_W_DOWN_B, "layers.%d.mlp.down_proj.bias", "h.%d.mlp.c_proj.bias", "blk.%d.ffn_down.bias", NULL},
	{DT_W_FINAL_NORM, "norm.weight", "ln_f.weight", "output_norm.weight", NULL},
	{DT_W_FINAL_NORM_B, NULL, "ln_f.bias", "output_norm.bias", NULL},
	{DT_W_HEAD, "lm_head.weight", "lm_head.weight", "output.weight", NULL},
	{DT_W_POST_ATTN_NORM, "layers.%d.post_attention_layernorm.weight", NULL,
	 "blk.%d.post_attention_norm.weight", NULL},
	{DT_W_POST_MLP_NORM, "layers.%d.post_feedforward_layernorm.weight", NULL,
	 "blk.%d.post_ffw_norm.weight", NULL},
	{DT_W_ROUTER, NULL, NULL, "blk.%d.ffn_gate_inp.weight", NULL},
	{DT_W_EXPERT_GATE, NULL, NULL, "blk.%d.ffn_gate_exps.weight", NULL},
	{DT_W_EXPERT_UP, NULL, NULL, "blk.%d.ffn_up_exps.weight", NULL},
	{DT_W_EXPERT_DOWN, NULL, NULL, "blk.%d.ffn_down_exps.weight", NULL},
};

/* Hugging Face's names that only one family has. */
static const struct {
	const char *family;
	enum dt_role role;
	const char *name;
} own[] = {
	{"gemma3_text", DT_W_MLP_NORM, "layers.%d.pre_feedforward_layernorm.weight"},
	{"mixtral", DT_W_ROUTER, "layers.%d.block_sparse_moe.gate.weight"},
	{"mixtral", DT_W_EXPERT_GATE, "layers.%d.block_sparse_moe.experts.%e.w1.weight"},
	{"mixtral", DT_W_EXPERT_UP, "layers.%d.block_sparse_moe.experts.%e.w3.weight"},
	{"mixtral", DT_W_EXPERT_DOWN, "layers.%d.block_sparse_moe.experts.%e.w2.weight"},
	{"qwen3_moe", DT_W_ROUTER, "layers.%d.mlp.gate.weight"},
	{"qwen3_moe", DT_W_EXPERT_GATE, "layers.%d.mlp.experts.%e.gate_proj.weight"},
	{"qwen3_moe", DT_W_EXPERT_UP, "layers.%d.mlp.experts.%e.up_proj.weight"},
	{"qwen3_moe", DT_W_EXPERT_DOWN, "layers.%d.mlp.experts.%e.down_proj.weight"},
};

static bool is_gpt2(const struct dt_config *c)
{
	return !strcmp(c->family, "gpt2");
}

/* Where a part of a joined q, k, v begins; -1: not one of them. */
static int64_t qkv_row(const struct dt_config *c, enum dt_role role)
{
	int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;

	switch (role) {
	case DT_W_Q:
	case DT_W_Q_B:
		return 0;
	case DT_W_K:
	case DT_W_K_B:
		return q;
	case DT_W_V:
	case DT_W_V_B:
		return q + kv;
	default:
		return -1;
	}
}

static bool is_conv1d(enum dt_role role)
{
	return role == DT_W_Q || role == DT_W_K || role == DT_W_V || role == DT_W_O || role == DT_W_UP ||
	       role == DT_W_DOWN;
}

/* pattern with %d and %e replaced; patterns are ours. */
static void expand(const char *pattern, int layer, int64_t expert, char *out, size_t n)
{
	size_t k = 0;

	for (const char *s = pattern; *s && k + 1 < n; s++)
		if (*s != '%')
			out[k++] = *s;
		else
			k += (size_t)snprintf(out + k, n - k, "%lld",
					      *++s == 'e' ? (long long)expert : (long long)layer);
	out[k < n ? k : n - 1] = '\0';
}

/* NULL: the scheme has none. */
static const char *pattern_of(enum dt_names scheme, const struct dt_config *c, enum dt_role role)
{
	bool gpt2 = is_gpt2(c);

	for (size_t i = 0; scheme == DT_NAMES_HF && i < sizeof(own) / sizeof(own[0]); i++)
		if (own[i].role == role && !strcmp(own[i].family, c->family))
			return own[i].name;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].role == role)
			return scheme == DT_NAMES_HF	   ? gpt2 ? rows[i].gpt2 : rows[i].llama
			       : gpt2 && rows[i].gguf_gpt2 ? rows[i].gguf_gpt2
							   : rows[i].gguf;
	return NULL;
}

bool dt_names_place(enum dt_names scheme, const struct dt_config *c, const struct dt_param *p, int64_t expert,
		    struct dt_place_in_file *ret)
{
	const char *name = pattern_of(scheme, c, p->role);
	bool gpt2 = is_gpt2(c);
	int64_t row = gpt2 ? qkv_row(c, p->role) : -1;

	if (!name)
		return false;
	expand(name, p->layer, expert, ret->name, sizeof(ret->name));
	ret->split = strstr(name, "%e") ? p->experts : 1;
	ret->stack = scheme == DT_NAMES_GGUF ? p->experts : 0;
	ret->transposed = scheme == DT_NAMES_HF && gpt2 && is_conv1d(p->role);
	ret->first = row < 0 ? 0 : row;
	ret->rows = row < 0 ? p->shape[0] / ret->split : (c->heads + 2 * c->kv_heads) * c->head_dim;
	return true;
}

static bool ends(const char *s, const char *with)
{
	size_t n = strlen(s), k = strlen(with);

	return n >= k && !strcmp(s + n - k, with);
}

bool dt_names_is_buffer(enum dt_names scheme, const struct dt_config *c, const char *name)
{
	if (scheme == DT_NAMES_GGUF)
		return !strcmp(name, "rope_freqs.weight");
	if (is_gpt2(c) && !strncmp(name, "h.", 2) &&
	    (ends(name, ".attn.bias") || ends(name, ".attn.masked_bias")))
		return true;
	if (!strcmp(c->family, "gemma3_text") && /* the half that sees */
	    (!strncmp(name, "vision_tower.", 13) || !strncmp(name, "multi_modal_projector.", 22)))
		return true;
	return ends(name, ".rotary_emb.inv_freq") || (c->tied && !strcmp(name, "lm_head.weight"));
}

int64_t dt_rope_row(int64_t r, int64_t dim, int from, int to)
{
	int64_t head = r / dim * dim, i = r % dim, half = dim / 2;

	if (from == to)
		return r;
	if (to == DT_ROPE_ADJACENT)
		return head + (i % 2) * half + i / 2;
	return head + (i < half ? 2 * i : 2 * (i - half) + 1);
}

bool dt_param_is_rotary(const struct dt_config *c, const struct dt_param *p)
{
	return c->pos == DT_POS_ROPE &&
	       (p->role == DT_W_Q || p->role == DT_W_K || p->role == DT_W_Q_B || p->role == DT_W_K_B ||
		p->role == DT_W_Q_NORM || p->role == DT_W_K_NORM);
}
