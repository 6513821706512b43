#include "model/block/block.h"

#include <stdio.h>

/* Adds the weight, initialised to 1, and the bias if there is one, whose role follows the weight's. */
static void add_params(struct dt_builder *b, enum dt_role role, const char *name, int64_t n, bool bias,
		       int param[2])
{
	char full[48];
	struct dt_param *p;

	snprintf(full, sizeof(full), "%s.weight", name);
	param[0] = dt_tensor_add(b, role, full, n, 0);
	p = dt_tensor_at(b, param[0]);
	if (p)
		p->init = b->c->norm_plus_one ? DT_INIT_ZEROS : DT_INIT_ONES;
	param[1] = -1;
	if (!bias)
		return;
	snprintf(full, sizeof(full), "%s.bias", name);
	param[1] = dt_tensor_add(b, role + 1, full, n, 0);
}

static struct dt_node *add(struct dt_builder *b, enum dt_role role, const char *name, bool layernorm,
			   int64_t width, const char *const out[4])
{
	const char *const names[4] = {out[0], out[1], layernorm ? out[2] : NULL, out[3]};
	struct dt_node *n;
	int param[2];

	add_params(b, role, name, width, layernorm && !b->c->norm_no_bias, param);
	n = dt_node_add(b, DT_OP_NORM, name, 4, names);
	if (!n)
		return NULL;
	n->param[0] = param[0];
	n->param[1] = param[1];
	n->attr.layernorm = layernorm;
	n->attr.plus_one = b->c->norm_plus_one;
	n->attr.eps = (float)b->c->norm_eps;
	return n;
}

int dt_block_add_norm(struct dt_builder *b, int *x, int delta, enum dt_role role, const char *name,
		      const char *const out[4])
{
	const char *const names[4] = {out[0], delta < 0 ? NULL : out[1], out[2], out[3]};
	struct dt_node *n = add(b, role, name, b->c->norm == DT_NORM_LAYER, b->c->hidden, names);

	if (!n)
		return -1;
	n->in[0] = *x;
	n->in[1] = delta;
	n->attr.eps = (float)dt_stream_eps(b->c);
	n->entry = !b->entered;
	b->entered = true;
	if (delta >= 0)
		*x = n->out[1];
	return n->out[0];
}

int dt_block_add(struct dt_builder *b, int x, int delta, const char *name, const char *out)
{
	struct dt_node *n;

	if (delta < 0)
		return x;
	n = dt_node_add(b, DT_OP_ADD, name, 1, &out);
	if (!n)
		return -1;
	n->in[0] = x;
	n->in[1] = delta;
	n->entry = !b->entered;
	b->entered = true;
	return n->out[0];
}

int dt_block_norm(struct dt_builder *b, int x, enum dt_role role, const char *name, const char *const out[4])
{
	const char *const names[4] = {out[0], NULL, NULL, out[3]};
	int64_t width = role == DT_W_Q_A_NORM	 ? b->c->q_rank
			: role == DT_W_KV_A_NORM ? b->c->kv_rank
						 : b->c->hidden;
	struct dt_node *n = add(b, role, name, false, width, names);

	if (!n)
		return -1;
	n->in[0] = x;
	return n->out[0];
}
/* SPDX-License-Identifier: Apache-2.0 */
