#include "model/block/block.h"

int dt_block_embed_table(struct dt_builder *b)
{
	int token = dt_tensor_add(b, DT_W_EMBED, "embed.weight", b->c->vocab, b->c->hidden);

	dt_tensor_cut(b, token, DT_CUT_UNITS, 0, 1);
	return token;
}

int dt_block_embed(struct dt_builder *b)
{
	static const char *const out[] = {"resid"};
	const struct dt_config *c = b->c;
	int token = dt_block_embed_table(b), position = -1, types = -1, x;
	struct dt_node *n;

	if (c->pos == DT_POS_LEARNED)
		position = dt_tensor_add(b, DT_W_POS, "pos.weight", c->pos_first + c->max_seq, c->hidden);
	if (c->token_types)
		types = dt_tensor_add(b, DT_W_TYPES, "type.weight", c->token_types, c->hidden);
	n = dt_node_add(b, DT_OP_EMBED, "embed", 1, out);
	if (!n)
		return -1;
	n->param[0] = token;
	n->param[1] = position;
	n->param[2] = types;
	n->attr.scale = (float)dt_embed_scale(c);
	x = n->out[0];
	return x;
}

static struct dt_node *loss(struct dt_builder *b, const char *name, int h, int head)
{
	struct dt_node *n = dt_node_add(b, DT_OP_LOSS, name, 0, NULL);

	if (!n)
		return NULL;
	n->in[0] = h;
	n->param[0] = head;
	n->attr.scale = (float)dt_logit_scale(b->c);
	n->attr.cap = (float)b->c->logit_cap;
	return n;
}

int dt_block_head(struct dt_builder *b, int h, int embed)
{
	const struct dt_config *c = b->c;
	int head = embed, value = -1;
	struct dt_node *n;

	if (!c->tied) {
		head = dt_tensor_add(b, DT_W_HEAD, "head.weight", c->vocab, c->hidden);
		dt_tensor_cut(b, head, DT_CUT_UNITS, 0, 1);
	}
	if (c->value_head)
		value = dt_tensor_add(b, DT_W_VALUE, "value_head.weight", c->hidden, 0);
	n = loss(b, "head", h, head);
	if (n)
		n->param[1] = value;
	return head;
}

void dt_block_mtp_head(struct dt_builder *b, int h, int head)
{
	loss(b, "head", h, head);
}
/* SPDX-License-Identifier: Apache-2.0 */
