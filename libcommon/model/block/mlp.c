/* The MLP of a layer, plain or gated (Shazeer 2020), and mixtures of experts (Fedus et al. 2021). */
#include "model/block/block.h"

#include <stdio.h>

/* choices: the router's choices if rows are ordered by choice; else -1 */
static int activation(struct dt_builder *b, int up, int choices, const struct dt_attr *attr)
{
	static const char *const out[] = {"act"};
	struct dt_node *n = dt_node_add(b, b->c->gated ? DT_OP_GATED : DT_OP_ACT, "act", 1, out);

	if (!n)
		return -1;
	n->in[0] = up;
	n->in[1] = choices;
	n->attr = *attr;
	n->attr.act = b->c->act;
	return n->out[0];
}

int dt_block_mlp(struct dt_builder *b, int h)
{
	const struct dt_config *c = b->c;
	int weight[2], bias[2] = {-1, -1}, n = c->gated ? 2 : 1, down, down_bias = -1,
		       first = c->gated ? 0 : 1;
	static const char *const weights[] = {"mlp.gate.weight", "mlp.up.weight"};
	static const char *const biases[] = {"mlp.gate.bias", "mlp.up.bias"};
	static const enum dt_role role[] = {DT_W_GATE, DT_W_UP}, role_b[] = {DT_W_GATE_B, DT_W_UP_B};
	const struct dt_attr plain = {0};
	struct dt_param *p;
	int up;

	for (int k = first; k < 2; k++) {
		weight[k - first] = dt_tensor_add(b, role[k], weights[k], c->ffn, c->hidden);
		dt_tensor_cut(b, weight[k - first], DT_CUT_UNITS, 0, 1);
		p = dt_tensor_at(b, weight[k - first]);
		if (p)
			p->fused = k > first;
	}
	for (int k = first; c->mlp_bias && k < 2; k++) {
		bias[k - first] = dt_tensor_add(b, role_b[k], biases[k], c->ffn, 0);
		dt_tensor_cut(b, bias[k - first], DT_CUT_UNITS, 0, 1);
		p = dt_tensor_at(b, bias[k - first]);
		if (p)
			p->fused = k > first;
	}
	up = activation(b, dt_block_linear(b, "up", "up", h, n, weight, bias), -1, &plain);
	down = dt_tensor_add(b, DT_W_DOWN, "mlp.down.weight", c->hidden, c->ffn);
	dt_tensor_cut(b, down, DT_CUT_UNITS, 1, 1);
	p = dt_tensor_at(b, down);
	if (p)
		p->init_std = dt_block_residual_std(b);
	if (c->mlp_bias)
		down_bias = dt_tensor_add(b, DT_W_DOWN_B, "mlp.down.bias", c->hidden, 0);
	return dt_block_linear(b, "down", c->post_norms ? "post2" : "delta", up, 1, &down, &down_bias);
}

/* Adds gate, up and down of n experts, stacked along the rows; role is gate's, the others follow it. */
static void add_tensors(struct dt_builder *b, enum dt_role role, const char *name, int64_t width, int64_t n,
			int tensor[3])
{
	static const char *const part[] = {"gate", "up", "down"};
	const struct dt_config *c = b->c;
	char full[40];

	tensor[0] = -1;
	for (int i = c->gated ? 0 : 1; i < 3; i++) {
		struct dt_param *p;

		snprintf(full, sizeof(full), "mlp.%s.%s.weight", name, part[i]);
		tensor[i] = i < 2 ? dt_tensor_add(b, role + i, full, n * width, c->hidden)
				  : dt_tensor_add(b, role + i, full, n * c->hidden, width);
		if (role == DT_W_EXPERT_GATE) /* cut only between experts */
			dt_tensor_cut(b, tensor[i], DT_CUT_UNITS, 0, i < 2 ? width : c->hidden);
		else
			dt_tensor_cut(b, tensor[i], DT_CUT_UNITS, i < 2 ? 0 : 1, 1);
		p = dt_tensor_at(b, tensor[i]);
		if (!p)
			return;
		p->experts = role == DT_W_EXPERT_GATE ? n : 0;
		if (i == 2)
			p->init_std = dt_block_residual_std(b);
	}
}

/* Adds the biases of gate, up and down of all experts, stacked likewise. */
static void add_biases(struct dt_builder *b, int tensor[3])
{
	static const char *const name[] = {"mlp.experts.gate.bias", "mlp.experts.up.bias",
					   "mlp.experts.down.bias"};
	const struct dt_config *c = b->c;

	for (int i = 0; i < 3; i++)
		tensor[i] = -1;
	for (int i = c->gated ? 0 : 1; c->expert_bias && i < 3; i++) {
		int64_t width = i < 2 ? c->expert_ffn : c->hidden;
		struct dt_param *p;

		tensor[i] = dt_tensor_add(b, DT_W_EXPERT_GATE_B + i, name[i], c->experts * width, 0);
		dt_tensor_cut(b, tensor[i], DT_CUT_UNITS, 0, width);
		p = dt_tensor_at(b, tensor[i]);
		if (p)
			p->experts = c->experts;
	}
}

/* The shared experts, which process every token. */
static int shared(struct dt_builder *b, int h)
{
	int t[3], first = b->c->gated ? 0 : 1;
	const struct dt_attr plain = {0};

	add_tensors(b, DT_W_SHARED_GATE, "shared", b->c->shared_ffn, 1, t);
	return dt_block_linear(
		b, "shared_down", "shared",
		activation(b, dt_block_linear(b, "shared_up", "up", h, 2 - first, t + first, NULL), -1,
			   &plain),
		1, t + 2, NULL);
}

static struct dt_attr routing(const struct dt_config *c)
{
	return (struct dt_attr){.experts = c->experts,
				.used = c->experts_used,
				.unscaled = c->router_unscaled,
				.sigmoid = c->router_sigmoid,
				.groups = c->router_groups,
				.groups_used = c->router_groups_used,
				.route_scale = (float)c->router_scale,
				.gated = c->gated,
				.act = c->act};
}

/* One of the three grouped products of the experts on their rows. */
static int experts(struct dt_builder *b, const char *name, const char *out, int x, int routed, bool gather,
		   const int *tensor, const int *bias, int n)
{
	struct dt_node *e = dt_node_add(b, DT_OP_EXPERTS, name, 1, &out);

	if (!e)
		return -1;
	e->in[0] = x;
	e->in[1] = routed;
	for (int i = 0; i < n; i++)
		e->param[i] = tensor[i], e->param[3 + i] = bias[i];
	e->attr = routing(b->c);
	e->attr.gated = gather; /* rows are ordered by token, to be gathered; else already by choice */
	e->attr.down = !gather;
	return e->out[0];
}

int dt_block_experts(struct dt_builder *b, int h)
{
	static const char *const route_out[] = {"choices", "choice weights", "scores", NULL, "load"};
	static const char *const sum[] = {"delta"};
	const struct dt_config *c = b->c;
	int router = dt_tensor_add(b, DT_W_ROUTER, "mlp.router.weight", c->experts, c->hidden), bias = -1,
	    score_bias = -1, also = -1, choices, weights, out, t[3], biases[3], first = c->gated ? 0 : 1;
	struct dt_attr attr;
	struct dt_node *n;

	if (c->router_bias)
		bias = dt_tensor_add(b, DT_W_ROUTER_B, "mlp.router.bias", c->experts, 0);
	if (c->expert_bias)
		score_bias = dt_tensor_add(b, DT_W_ROUTER_SCORE_B, "mlp.router.bias", c->experts, 0);
	if (c->shared_ffn)
		also = shared(b, h);
	add_tensors(b, DT_W_EXPERT_GATE, "experts", c->expert_ffn, c->experts, t);
	add_biases(b, biases);
	n = dt_node_add(b, DT_OP_ROUTE, "router", 5, route_out);
	if (!n)
		return -1;
	n->in[0] = h;
	n->param[0] = router;
	n->param[3] = bias;
	n->param[4] = score_bias;
	n->attr = routing(c);
	choices = n->out[0];
	weights = n->out[1];
	out = experts(b, "expert_up", "up", h, choices, true, t + first, biases + first, 2 - first);
	attr = routing(c);
	out = experts(b, "expert_down", "routed", activation(b, out, choices, &attr), choices, false, t + 2,
		      biases + 2, 1);
	n = dt_node_add(b, DT_OP_COMBINE, "combine", 1, sum);
	if (!n)
		return -1;
	n->in[0] = out;
	n->in[1] = choices;
	n->in[2] = weights;
	n->in[3] = also;
	n->attr = routing(c);
	return n->out[0];
}
/* SPDX-License-Identifier: Apache-2.0 */
