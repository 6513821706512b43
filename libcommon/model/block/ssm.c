/*
 * Mamba-2's mixer (Dao and Gu 2024, section 7.1, figure 6): projections z, x, B, C and dt of the same rows, a
 * short convolution of x, B and C, the scan of a state a head, a gate and a norm of each group's columns,
 * and the output projection.
 */
#include "model/block/block.h"

#include <math.h>
#include <stdio.h>

static struct dt_attr attr_of(const struct dt_config *c)
{
	return (struct dt_attr){.heads = c->ssm_heads,
				.kv_heads = c->ssm_groups,
				.head_dim = c->ssm_head_dim,
				.value_dim = c->ssm_state,
				.taps = c->ssm_kernel,
				.whole = c->ssm_groups == 1,
				.eps = (float)c->norm_eps};
}

/* A tensor cut over tp by heads, or by groups, of `unit` rows each; a vector if cols is 0. */
static int tensor(struct dt_builder *b, enum dt_role role, const char *name, bool groups, int64_t unit,
		  int64_t cols)
{
	const int t =
		dt_tensor_add(b, role, name, (groups ? b->c->ssm_groups : b->c->ssm_heads) * unit, cols);

	dt_tensor_cut(b, t, groups ? DT_CUT_KV : DT_CUT_UNITS, 0, unit);
	return t;
}

static int vector(struct dt_builder *b, enum dt_role role, const char *name, int64_t unit, enum dt_init init)
{
	const int t = tensor(b, role, name, false, unit, 0);
	struct dt_param *p = dt_tensor_at(b, t);

	if (p)
		p->init = init;
	return t;
}

static int projection(struct dt_builder *b, int h, enum dt_role role, const char *name, int64_t unit)
{
	char full[24];
	int w;

	snprintf(full, sizeof(full), "ssm.%s.weight", name);
	w = tensor(b, role, full, false, unit, b->c->hidden);
	return dt_block_linear(b, name, name, h, 1, &w, NULL);
}

/* Adds the weights, or (cols 0) biases, of x, B and C, which lie next to each other. */
static void three(struct dt_builder *b, enum dt_role role, const char *const name[3], int64_t cols,
		  int ret[3])
{
	for (int i = 0; i < 3; i++) {
		struct dt_param *p;

		ret[i] = tensor(b, role + i, name[i], i > 0, i ? b->c->ssm_state : b->c->ssm_head_dim, cols);
		p = dt_tensor_at(b, ret[i]);
		if (p)
			p->fused = i > 0;
	}
}

static int convolution(struct dt_builder *b, int u)
{
	static const char *const weights[] = {"ssm.conv_x.weight", "ssm.conv_b.weight", "ssm.conv_c.weight"},
				 *const biases[] = {"ssm.conv_x.bias", "ssm.conv_b.bias", "ssm.conv_c.bias"},
				 *const out[] = {"xbc"};
	int weight[3], bias[3];
	struct dt_node *n;

	three(b, DT_W_SSM_CONV_X, weights, b->c->ssm_kernel, weight);
	three(b, DT_W_SSM_CONV_X_B, biases, 0, bias);
	n = dt_node_add(b, DT_OP_SSM_CONV, "conv", 1, out);
	if (!n)
		return -1;
	n->in[0] = u;
	n->attr = attr_of(b->c);
	for (int i = 0; i < 3; i++) {
		struct dt_param *p = dt_tensor_at(b, weight[i]);

		n->param[i] = weight[i];
		n->param[3 + i] = bias[i];
		p->init = DT_INIT_UNIFORM; /* as PyTorch initialises convolutions */
		p->init_std = 1 / sqrt((double)b->c->ssm_kernel);
		p->channels = true;
	}
	return n->out[0];
}

static int scan(struct dt_builder *b, int xbc, int t)
{
	static const char *const out[] = {"scan"};
	const int bias = vector(b, DT_W_SSM_DT_B, "ssm.dt.bias", 1, DT_INIT_SSM_STEP),
		  a = vector(b, DT_W_SSM_A_LOG, "ssm.a_log", 1, DT_INIT_SSM_DECAY),
		  d = vector(b, DT_W_SSM_D, "ssm.d", 1, DT_INIT_ONES);
	struct dt_node *n = dt_node_add(b, DT_OP_SSM_SCAN, "scan", 1, out);

	if (!n)
		return -1;
	n->in[0] = xbc;
	n->in[1] = t;
	n->param[0] = bias;
	n->param[1] = a;
	n->param[2] = d;
	n->attr = attr_of(b->c);
	return n->out[0];
}

static int gated_norm(struct dt_builder *b, int y, int z)
{
	static const char *const gated[] = {"gated"}, *const out[] = {"normed", "ssm.rstd"};
	struct dt_node *n = dt_node_add(b, DT_OP_SSM_GATE, "gate", 1, gated);
	int v, w;

	if (!n)
		return -1;
	n->in[0] = y;
	n->in[1] = z;
	n->attr = attr_of(b->c);
	v = n->out[0];
	w = vector(b, DT_W_SSM_NORM, "ssm.norm.weight", b->c->ssm_head_dim, DT_INIT_ONES);
	n = dt_node_add(b, DT_OP_SSM_NORM, "ssm_norm", 2, out);
	if (!n)
		return -1;
	n->in[0] = v;
	n->param[0] = w;
	n->attr = attr_of(b->c);
	return n->out[0];
}

int dt_block_ssm(struct dt_builder *b, int h)
{
	static const char *const names[] = {"ssm.x.weight", "ssm.b.weight", "ssm.c.weight"};
	const struct dt_config *c = b->c;
	int weight[3], z, u, t, o;
	struct dt_param *p;

	z = projection(b, h, DT_W_SSM_Z, "z", c->ssm_head_dim);
	three(b, DT_W_SSM_X, names, c->hidden, weight);
	u = dt_block_linear(b, "in", "in", h, 3, weight, NULL);
	t = projection(b, h, DT_W_SSM_DT, "dt", 1);
	u = gated_norm(b, scan(b, convolution(b, u), t), z);
	o = dt_tensor_add(b, DT_W_SSM_OUT, "ssm.out.weight", c->hidden, c->ssm_heads * c->ssm_head_dim);
	dt_tensor_cut(b, o, DT_CUT_UNITS, 1, c->ssm_head_dim);
	p = dt_tensor_at(b, o);
	if (p)
		p->init_std = dt_block_residual_std(b);
	return dt_block_linear(b, "out", "delta", u, 1, &o, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
