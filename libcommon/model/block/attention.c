/*
 * Attention on q, k and v from one joined linear (Vaswani et al. 2017; grouped queries: Ainslie et al. 2023),
 * and on k and v from a latent (DeepSeek-V2, 2024, section 2.1).
 */
#include "model/block/block.h"

#include <math.h>

static struct dt_attr heads_of(const struct dt_builder *b)
{
	const struct dt_config *c = b->c;

	return (struct dt_attr){.heads = c->heads,
				.kv_heads = c->kv_heads,
				.head_dim = c->head_dim,
				.value_dim = dt_value_dim(c),
				.eps = (float)c->norm_eps,
				.plus_one = c->norm_plus_one,
				.window = dt_layer_window(c, b->layer),
				.tokens = dt_config_tokens(c),
				.all = c->encoder || dt_config_tokens(c),
				.scale = (float)dt_score_scale(c),
				.latent_dim = c->kv_rank,
				.rope_dim = c->kv_rank ? c->rope_dim : 0};
}

static int heads_norm(struct dt_builder *b, int qkv)
{
	static const char *const out[] = {"qkv", "qkv.raw", "qk.rstd"};
	const struct dt_config *c = b->c;
	bool whole = c->qk_norm_whole;
	int q = dt_tensor_add(b, DT_W_Q_NORM, "attn.q_norm.weight", (whole ? c->heads : 1) * c->head_dim, 0),
	    k = dt_tensor_add(b, DT_W_K_NORM, "attn.k_norm.weight", (whole ? c->kv_heads : 1) * c->head_dim,
			      0);
	struct dt_node *n;

	for (int i = 0; i < 2; i++) {
		struct dt_param *p = dt_tensor_at(b, i ? k : q);

		if (p)
			p->init = b->c->norm_plus_one ? DT_INIT_ZEROS : DT_INIT_ONES;
		if (whole) /* cut like the heads that it scales */
			dt_tensor_cut(b, i ? k : q, i ? DT_CUT_KV : DT_CUT_UNITS, 0, c->head_dim);
	}
	n = dt_node_add(b, DT_OP_HEADS_NORM, "heads", 3, out);
	if (!n)
		return -1;
	n->in[0] = qkv;
	n->param[0] = q;
	n->param[1] = k;
	n->attr = heads_of(b);
	n->attr.whole = whole;
	return n->out[0];
}

static int rope(struct dt_builder *b, int qkv)
{
	static const char *const out[] = {"qkv"};
	struct dt_node *n = dt_node_add(b, DT_OP_ROPE, "rope", 1, out);

	if (!n)
		return -1;
	n->in[0] = qkv;
	n->attr = heads_of(b);
	n->attr.local = b->c->rope_local_theta > 0 && n->attr.window > 0;
	return n->out[0];
}

static int scores(struct dt_builder *b, int qkv)
{
	static const char *const out[] = {"attn", "lse"};
	int sinks = -1;
	struct dt_node *n;

	if (b->c->attn_sinks) {
		sinks = dt_tensor_add(b, DT_W_SINKS, "attn.sinks", b->c->heads, 0);
		dt_tensor_cut(b, sinks, DT_CUT_UNITS, 0, 1);
	}
	n = dt_node_add(b, DT_OP_ATTENTION, "attention", 2, out);

	if (!n)
		return -1;
	n->in[0] = qkv;
	n->param[0] = sinks;
	n->attr = heads_of(b);
	n->attr.cap = (float)b->c->score_cap;
	return n->out[0];
}

/* The output projection, which writes to the residual stream. */
static int output(struct dt_builder *b, int attn, int64_t width)
{
	const struct dt_config *c = b->c;
	int o = dt_tensor_add(b, DT_W_O, "attn.o.weight", c->hidden, c->heads * width), bias = -1;
	struct dt_param *p = dt_tensor_at(b, o);

	dt_tensor_cut(b, o, DT_CUT_UNITS, 1, width);
	if (p)
		p->init_std = dt_block_residual_std(b);
	if (c->out_bias)
		bias = dt_tensor_add(b, DT_W_O_B, "attn.o.bias", c->hidden, 0);
	return dt_block_linear(b, "o", c->post_norms ? "post1" : "delta", attn, 1, &o, &bias);
}

int dt_block_attention(struct dt_builder *b, int h)
{
	static const char *const weights[] = {"attn.q.weight", "attn.k.weight", "attn.v.weight"};
	static const char *const biases[] = {"attn.q.bias", "attn.k.bias", "attn.v.bias"};
	const struct dt_config *c = b->c;
	int64_t d = c->head_dim, rows[] = {c->heads * d, c->kv_heads * d, c->kv_heads * d};
	int weight[3], bias[3] = {-1, -1, -1}, qkv;

	for (int i = 0; i < 6; i++) {
		bool vector = i >= 3;
		int k = i % 3, *t = vector ? &bias[k] : &weight[k];
		struct dt_param *p;

		if (vector && !c->qkv_bias)
			break;
		*t = dt_tensor_add(b, (vector ? DT_W_Q_B : DT_W_Q) + k, vector ? biases[k] : weights[k],
				   rows[k], vector ? 0 : c->hidden);
		dt_tensor_cut(b, *t, k ? DT_CUT_KV : DT_CUT_UNITS, 0, d);
		p = dt_tensor_at(b, *t);
		if (p)
			p->fused = k > 0;
	}
	qkv = dt_block_linear(b, "qkv", "qkv", h, 3, weight, bias);
	if (c->qk_norm)
		qkv = heads_norm(b, qkv);
	if (dt_layer_rotates(c, b->layer))
		qkv = rope(b, qkv);
	return output(b, scores(b, qkv), d);
}

/*
 * Norm of a latent. Its epsilon is 1e-6 in DeepSeek's code and in transformers, whatever the configuration's
 * rms_norm_eps is.
 */
static int latent_norm(struct dt_builder *b, int x, enum dt_role role, const char *name)
{
	static const char *const out[] = {"latent", NULL, NULL, "latent.rstd"};

	x = dt_block_norm(b, x, role, name, out);
	if (!b->failed)
		b->g->node[b->g->nnode - 1].attr.eps = 1e-6f;
	return x;
}

int dt_block_latent_attention(struct dt_builder *b, int h)
{
	static const char *const parts[] = {"latent", "key"}, *const joined[] = {"qkv"};
	const struct dt_config *c = b->c;
	int64_t nope = c->head_dim - c->rope_dim;
	int w, from = h, q, kv, key;
	struct dt_node *n;

	if (c->q_rank) {
		w = dt_tensor_add(b, DT_W_Q_A, "attn.q_a.weight", c->q_rank, c->hidden);
		from = dt_block_linear(b, "q_a", "latent", h, 1, &w, NULL);
		from = latent_norm(b, from, DT_W_Q_A_NORM, "attn.q_a_norm");
	}
	w = dt_tensor_add(b, c->q_rank ? DT_W_Q_UP : DT_W_Q, "attn.q.weight", c->heads * c->head_dim,
			  c->q_rank ? c->q_rank : c->hidden);
	dt_tensor_cut(b, w, DT_CUT_UNITS, 0, c->head_dim);
	q = dt_block_linear(b, "q", "q", from, 1, &w, NULL);
	w = dt_tensor_add(b, DT_W_KV_A, "attn.kv_a.weight", c->kv_rank + c->rope_dim, c->hidden);
	kv = dt_block_linear(b, "kv_a", "latent", h, 1, &w, NULL);
	n = dt_node_add(b, DT_OP_LATENT_SPLIT, "split", 2, parts);
	if (!n)
		return -1;
	n->in[0] = kv;
	n->attr.latent_dim = c->kv_rank;
	n->attr.rope_dim = c->rope_dim;
	key = n->out[1];
	from = latent_norm(b, n->out[0], DT_W_KV_A_NORM, "attn.kv_a_norm");
	w = dt_tensor_add(b, DT_W_KV_B, "attn.kv_b.weight", c->heads * (nope + c->v_dim), c->kv_rank);
	dt_tensor_cut(b, w, DT_CUT_UNITS, 0, nope + c->v_dim);
	from = dt_block_linear(b, "kv_b", "kv", from, 1, &w, NULL);
	n = dt_node_add(b, DT_OP_LATENT_JOIN, "join", 1, joined);
	if (!n)
		return -1;
	n->in[0] = q;
	n->in[1] = key;
	n->in[2] = from;
	n->attr = heads_of(b);
	return output(b, scores(b, rope(b, n->out[0])), c->v_dim);
}
/* SPDX-License-Identifier: Apache-2.0 */
