/*
 * A tower of vision as an encoder. Attention without a causal mask does not depend on the order of rows, so
 * whoever gives the rows of patches gives those that are joined one behind another: joining them is a view.
 */
#include "model/block/tower.h"

int dt_block_patch_positions(struct dt_builder *b)
{
	static const char *const out[] = {"resid"};
	const int table = dt_block_embed_table(b);
	struct dt_node *n = dt_node_add(b, DT_OP_EMBED, "positions", 1, out);

	if (!n)
		return -1;
	n->param[0] = table;
	n->attr.scale = 1;
	return n->out[0];
}

int dt_block_patch_rows(struct dt_builder *b)
{
	const struct dt_tower *t = &b->c->tower;
	const int given = dt_block_given(b),
		  w = dt_tensor_add_conv(b, "patch.weight", t->hidden, t->channels, t->patch),
		  bias = dt_tensor_add(b, DT_W_CONV_B, "patch.bias", t->hidden, 0);

	return given < 0 ? -1 : dt_block_linear(b, "patches", "delta", given, 1, &w, &bias);
}

void dt_block_connector(struct dt_builder *b, int h)
{
	static const char *const out[] = {"joined"};
	const struct dt_tower *t = &b->c->tower;
	const int w =
		dt_tensor_add(b, DT_W_CONNECTOR, "connector.weight", t->out, dt_tower_joined(t) * t->hidden);
	struct dt_node *n = dt_node_add(b, DT_OP_FLATTEN, "join", 1, out);

	if (!n)
		return;
	n->in[0] = h;
	n->attr.joined = dt_tower_joined(t);
	h = dt_block_linear(b, "connector", "rows", n->out[0], 1, &w, NULL);
	n = dt_node_add(b, DT_OP_STATES, "rows", 0, NULL);
	if (n)
		n->in[0] = h;
}
/* SPDX-License-Identifier: Apache-2.0 */
