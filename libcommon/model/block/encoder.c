/*
 * Blocks of encoders (BERT: Devlin et al. 2018, arXiv 1810.04805): norms behind the sums of the residual
 * stream (Vaswani et al. 2017), and what stands behind the last layer.
 */
#include "model/block/encoder.h"

#include "model/block/image.h"

int dt_block_post_norm(struct dt_builder *b, int x, int delta, enum dt_role role, const char *name,
		       const char *const out[4], bool last)
{
	int sum = x, h = dt_block_add_norm(b, &sum, delta, role, name, out);

	/* Full recomputation of the layer above starts from this layer's last sum. */
	if (!b->failed)
		b->g->node[b->g->nnode - 1].entry = last;
	return h;
}

/* A square linear with a bias, y = h w^T + b, in tensors named PREFIX.weight and PREFIX.bias. */
static int dense(struct dt_builder *b, int h, enum dt_role role, const char *const name[2])
{
	const int64_t n = b->c->hidden;
	int w = dt_tensor_add(b, role, name[0], n, n), bias = dt_tensor_add(b, role + 1, name[1], n, 0);

	return dt_block_linear(b, "dense", "dense", h, 1, &w, &bias);
}

void dt_block_masked_head(struct dt_builder *b, int h, int embed)
{
	static const char *const names[] = {"masked.dense.weight", "masked.dense.bias"};
	static const char *const act[] = {"act"}, *const norm[] = {"norm", NULL, "mean", "rstd"};
	const struct dt_config *c = b->c;
	struct dt_node *n;
	int head = embed, bias;

	h = dense(b, h, DT_W_MASKED, names);
	n = dt_node_add(b, DT_OP_ACT, "act", 1, act);
	if (!n)
		return;
	n->in[0] = h;
	n->attr.act = c->act;
	h = n->out[0];
	h = dt_block_add_norm(b, &h, -1, DT_W_MASKED_NORM, "masked.norm", norm);
	if (!c->tied) {
		head = dt_tensor_add(b, DT_W_HEAD, "head.weight", c->vocab, c->hidden);
		dt_tensor_cut(b, head, DT_CUT_UNITS, 0, 1);
	}
	bias = dt_tensor_add(b, DT_W_HEAD_B, "head.bias", c->vocab, 0);
	dt_tensor_cut(b, bias, DT_CUT_UNITS, 0, 1);
	n = dt_node_add(b, DT_OP_LOSS, "head", 0, NULL);
	if (!n)
		return;
	n->in[0] = h;
	n->param[0] = head;
	n->param[2] = bias;
	n->attr.scale = 1;
}

static const char *const pooler[] = {"pooler.weight", "pooler.bias"};

void dt_block_states(struct dt_builder *b, int h)
{
	const int64_t n = b->c->hidden;
	struct dt_node *states;

	if (b->c->pooler) {
		dt_tensor_add(b, DT_W_POOLER, pooler[0], n, n);
		dt_tensor_add(b, DT_W_POOLER_B, pooler[1], n, 0);
	}
	states = dt_node_add(b, DT_OP_STATES, "states", 0, NULL);
	if (states)
		states->in[0] = h;
}

void dt_block_labels(struct dt_builder *b, int h)
{
	struct dt_node *states = dt_node_add(b, DT_OP_STATES, "states", 0, NULL);
	struct dt_plane x;

	if (!states)
		return;
	states->in[0] = h;
	x = dt_block_class_row(b, h);
	x.v = dense(b, x.v, DT_W_LABELS_DENSE, pooler);
	dt_block_labels_loss(b, dt_block_act(b, x, DT_ACT_TANH));
}
/* SPDX-License-Identifier: Apache-2.0 */
