/*
 * The parameter table of a transformer. Initial values: normal with init_std (0.02 as GPT-2 and Llama
 * publish), the two projections that write to the residual stream (attn.o, mlp.down) divided by
 * sqrt(2 layers), GPT-2 section 2.3. Megatron-LM does the same for its Llama-like models, and so do we for
 * every family. Position embeddings use init_std like the rest; biases start at 0, norms at 1.
 */
#include "model/params.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PER_LAYER = 40, OUTSIDE = 5 }; /* upper bounds */

struct builder {
	const struct dt_config *c;
	struct dt_params *t;
	int layer;
};

/* Appends a parameter; its name follows the layer it is in. cols 0: a vector. */
static struct dt_param *add(struct builder *b, enum dt_role role, const char *name, int64_t rows,
			    int64_t cols)
{
	struct dt_param *p = &b->t->p[b->t->n++];

	if (b->layer >= 0 && b->layer < b->c->layers)
		snprintf(p->name, sizeof(p->name), "layers.%d.%s", b->layer, name);
	else
		snprintf(p->name, sizeof(p->name), "%s", name);
	p->role = role;
	p->layer = b->layer;
	p->ndim = cols ? 2 : 1;
	p->shape[0] = rows;
	p->shape[1] = cols ? cols : 1;
	p->init = cols ? DT_INIT_NORMAL : DT_INIT_ZEROS;
	p->init_std = cols ? b->c->init_std : 0;
	p->decay = cols != 0;
	p->cut = DT_CUT_NONE;
	p->cut_unit = 1;
	return p;
}

static void cut(struct dt_param *p, enum dt_cut how, int dim, int64_t unit)
{
	p->cut = how;
	p->cut_dim = dim;
	p->cut_unit = unit;
}

/* What a norm multiplies by; at first 1. */
static void add_scale(struct builder *b, enum dt_role role, const char *name, int64_t n)
{
	add(b, role, name, n, 0)->init = b->c->norm_plus_one ? DT_INIT_ZEROS : DT_INIT_ONES;
}

/* roles: the weight's, the bias's behind it. */
static void add_norm(struct builder *b, enum dt_role role, const char *name)
{
	char full[32];

	snprintf(full, sizeof(full), "%s.weight", name);
	add_scale(b, role, full, b->c->hidden);
	if (b->c->norm != DT_NORM_LAYER)
		return;
	snprintf(full, sizeof(full), "%s.bias", name);
	add(b, role + 1, full, b->c->hidden, 0);
}

/* DeepSeek-V2, 2024, section 2.1: q and kv go down to a rank and up again; every head shares a rotated key.
 */
static void add_latent(struct builder *b)
{
	const struct dt_config *c = b->c;
	int64_t from = c->q_rank ? c->q_rank : c->hidden, nope = c->head_dim - c->rope_dim;
	struct dt_param *p;

	if (c->q_rank) {
		add(b, DT_W_Q_A, "attn.q_a.weight", c->q_rank, c->hidden);
		add_scale(b, DT_W_Q_A_NORM, "attn.q_a_norm.weight", c->q_rank);
	}
	cut(add(b, DT_W_Q, "attn.q.weight", c->heads * c->head_dim, from), DT_CUT_UNITS, 0, c->head_dim);
	add(b, DT_W_KV_A, "attn.kv_a.weight", c->kv_rank + c->rope_dim, c->hidden);
	add_scale(b, DT_W_KV_A_NORM, "attn.kv_a_norm.weight", c->kv_rank);
	p = add(b, DT_W_KV_B, "attn.kv_b.weight", c->heads * (nope + c->v_dim), c->kv_rank);
	cut(p, DT_CUT_UNITS, 0, nope + c->v_dim);
	p = add(b, DT_W_O, "attn.o.weight", c->hidden, c->heads * c->v_dim);
	cut(p, DT_CUT_UNITS, 1, c->v_dim);
	p->init_std = c->init_std / sqrt(2.0 * (double)c->layers);
}

static void add_attention(struct builder *b)
{
	static const char *const weights[] = {"attn.q.weight", "attn.k.weight", "attn.v.weight"};
	static const char *const biases[] = {"attn.q.bias", "attn.k.bias", "attn.v.bias"};
	const struct dt_config *c = b->c;
	int64_t d = c->head_dim, rows[] = {c->heads * d, c->kv_heads * d, c->kv_heads * d};
	struct dt_param *p;

	for (int i = 0; i < 3; i++) {
		p = add(b, DT_W_Q + i, weights[i], rows[i], c->hidden);
		cut(p, i ? DT_CUT_KV : DT_CUT_UNITS, 0, d);
		p->fused = i > 0;
	}
	for (int i = 0; c->qkv_bias && i < 3; i++) {
		p = add(b, DT_W_Q_B + i, biases[i], rows[i], 0);
		cut(p, i ? DT_CUT_KV : DT_CUT_UNITS, 0, d);
		p->fused = i > 0;
	}
	if (c->qk_norm) {
		add_scale(b, DT_W_Q_NORM, "attn.q_norm.weight", d);
		add_scale(b, DT_W_K_NORM, "attn.k_norm.weight", d);
	}
	p = add(b, DT_W_O, "attn.o.weight", c->hidden, rows[0]);
	cut(p, DT_CUT_UNITS, 1, d);
	p->init_std = c->init_std / sqrt(2.0 * (double)c->layers);
	if (c->out_bias)
		add(b, DT_W_O_B, "attn.o.bias", c->hidden, 0);
}

/* role: gate's; up and down follow it. n experts of this width in one tensor. */
static void add_expert_mlp(struct builder *b, enum dt_role role, const char *name, int64_t width, int64_t n)
{
	static const char *const part[] = {"gate", "up", "down"};
	const struct dt_config *c = b->c;
	char full[40];

	for (int i = c->gated ? 0 : 1; i < 3; i++) {
		struct dt_param *p;

		snprintf(full, sizeof(full), "mlp.%s.%s.weight", name, part[i]);
		p = i < 2 ? add(b, role + i, full, n * width, c->hidden)
			  : add(b, role + i, full, n * c->hidden, width);
		cut(p, DT_CUT_UNITS, i < 2 ? 0 : 1, 1);
		p->experts = role == DT_W_EXPERT_GATE ? n : 0;
		if (i == 2)
			p->init_std = c->init_std / sqrt(2.0 * (double)c->layers);
	}
}

static void add_experts(struct builder *b)
{
	const struct dt_config *c = b->c;

	add(b, DT_W_ROUTER, "mlp.router.weight", c->experts, c->hidden);
	if (c->router_bias)
		add(b, DT_W_ROUTER_B, "mlp.router.bias", c->experts, 0);
	if (c->shared_ffn)
		add_expert_mlp(b, DT_W_SHARED_GATE, "shared", c->shared_ffn, 1);
	add_expert_mlp(b, DT_W_EXPERT_GATE, "experts", c->expert_ffn, c->experts);
}

static void add_mlp(struct builder *b)
{
	const struct dt_config *c = b->c;
	struct dt_param *p;

	if (dt_layer_has_experts(c, b->layer)) {
		add_experts(b);
		return;
	}
	if (c->gated)
		cut(add(b, DT_W_GATE, "mlp.gate.weight", c->ffn, c->hidden), DT_CUT_UNITS, 0, 1);
	p = add(b, DT_W_UP, "mlp.up.weight", c->ffn, c->hidden);
	cut(p, DT_CUT_UNITS, 0, 1);
	p->fused = c->gated;
	if (c->mlp_bias) {
		if (c->gated)
			cut(add(b, DT_W_GATE_B, "mlp.gate.bias", c->ffn, 0), DT_CUT_UNITS, 0, 1);
		p = add(b, DT_W_UP_B, "mlp.up.bias", c->ffn, 0);
		cut(p, DT_CUT_UNITS, 0, 1);
		p->fused = c->gated;
	}
	p = add(b, DT_W_DOWN, "mlp.down.weight", c->hidden, c->ffn);
	cut(p, DT_CUT_UNITS, 1, 1);
	p->init_std = c->init_std / sqrt(2.0 * (double)c->layers);
	if (c->mlp_bias)
		add(b, DT_W_DOWN_B, "mlp.down.bias", c->hidden, 0);
}

int dt_model_params(const struct dt_config *c, struct dt_params *ret, struct dt_err *err)
{
	struct dt_params t = {0};
	struct builder b = {.c = c, .t = &t, .layer = -1};
	int rc = dt_config_check(c, err);

	if (rc < 0)
		return rc;
	t.p = calloc((size_t)c->layers * PER_LAYER + OUTSIDE, sizeof(*t.p));
	if (!t.p)
		return dt_err_sys(err, -ENOMEM, "cannot list the parameters of '%s'", c->name);
	cut(add(&b, DT_W_EMBED, "embed.weight", c->vocab, c->hidden), DT_CUT_UNITS, 0, 1);
	if (c->pos == DT_POS_LEARNED)
		add(&b, DT_W_POS, "pos.weight", c->max_seq, c->hidden);
	for (b.layer = 0; b.layer < c->layers; b.layer++) {
		add_norm(&b, DT_W_ATTN_NORM, "attn_norm");
		if (c->kv_rank)
			add_latent(&b);
		else
			add_attention(&b);
		if (c->post_norms)
			add_scale(&b, DT_W_POST_ATTN_NORM, "attn_post_norm.weight", c->hidden);
		add_norm(&b, DT_W_MLP_NORM, "mlp_norm");
		add_mlp(&b);
		if (c->post_norms)
			add_scale(&b, DT_W_POST_MLP_NORM, "mlp_post_norm.weight", c->hidden);
	}
	add_norm(&b, DT_W_FINAL_NORM, "norm");
	if (!c->tied)
		cut(add(&b, DT_W_HEAD, "head.weight", c->vocab, c->hidden), DT_CUT_UNITS, 0, 1);
	*ret = t;
	return 0;
}

void dt_params_release(struct dt_params *t)
{
	free(t->p);
	t->p = NULL;
	t->n = 0;
}

int64_t dt_param_numel(const struct dt_param *p)
{
	return p->shape[0] * p->shape[1];
}

int64_t dt_params_total(const struct dt_params *t)
{
	int64_t n = 0;

	for (int i = 0; i < t->n; i++)
		n += dt_param_numel(&t->p[i]);
	return n;
}

int64_t dt_params_active(const struct dt_config *c, const struct dt_params *t)
{
	int64_t n = 0;

	for (int i = 0; i < t->n; i++)
		n += t->p[i].experts ? dt_param_numel(&t->p[i]) / t->p[i].experts * c->experts_used
				     : dt_param_numel(&t->p[i]);
	return n;
}

int dt_params_find(const struct dt_params *t, const char *name)
{
	for (int i = 0; i < t->n; i++)
		if (!strcmp(t->p[i].name, name))
			return i;
	return -1;
}

void dt_param_cut(const struct dt_param *p, int tp, int r, int64_t off[2], int64_t shape[2])
{
	int64_t units = p->shape[p->cut_dim] / p->cut_unit, first, n;

	off[0] = off[1] = 0;
	shape[0] = p->shape[0];
	shape[1] = p->shape[1];
	if (p->cut == DT_CUT_NONE)
		return;
	if (p->cut == DT_CUT_KV && units < tp) {
		first = r * units / tp;
		n = 1;
	} else {
		first = r * (units / tp) + (r < units % tp ? r : units % tp);
		n = units / tp + (r < units % tp);
	}
	off[p->cut_dim] = first * p->cut_unit;
	shape[p->cut_dim] = n * p->cut_unit;
}
