#include "model/block/block.h"

#include <math.h>

int dt_block_linear(struct dt_builder *b, const char *name, const char *out, int h, int n, const int *weight,
		    const int *bias)
{
	struct dt_node *l = dt_node_add(b, DT_OP_LINEAR, name, 1, &out);

	if (!l)
		return -1;
	l->in[0] = h;
	for (int i = 0; i < n; i++) {
		l->param[i] = weight[i];
		l->param[3 + i] = bias ? bias[i] : -1;
	}
	return l->out[0];
}

double dt_block_residual_std(const struct dt_builder *b)
{
	return b->c->patch || b->c->encoder ? b->c->init_std
					    : b->c->init_std / sqrt(2.0 * (double)b->c->layers);
}
/* SPDX-License-Identifier: Apache-2.0 */
