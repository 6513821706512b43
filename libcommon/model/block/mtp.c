/*
 * A module that predicts one token more than the model does: multi-token prediction (DeepSeek-V3, 2024,
 * section 2.2, arXiv 2412.19437). At position t it reads the model's final hidden state h_t and the embedding
 * of token t + 1, and predicts token t + 2:
 *
 *   x_t = proj [norm(embed(token t + 1)); norm(h_t)]     then a decoder block, a norm, and the model's head
 *
 * The embedding comes first, and h_t is the result of the final norm, as in the published weights of
 * DeepSeek-V3 and GLM-4.5 and the servers that read them; the paper has the other order. Embedding and head
 * are the model's own tensors.
 *
 * Nodes of the module have `ahead`, and are in the last unit: those of the embedding read the ids, those of
 * the loss the targets one position further on.
 */
#include "model/block/block.h"

static const char *const embed_norm[] = {"ahead norm", NULL, NULL, "ahead norm.rstd"};
static const char *const hidden_norm[] = {"hidden norm", NULL, NULL, "hidden norm.rstd"};

int dt_block_mtp(struct dt_builder *b, int h, int embed)
{
	static const char *const embedded[] = {"ahead"}, *const joined[] = {"joined"};
	const struct dt_config *c = b->c;
	struct dt_node *n = dt_node_add(b, DT_OP_EMBED, "embed", 1, embedded);
	int e, proj;

	if (!n)
		return -1;
	n->param[0] = embed;
	n->attr.scale = (float)dt_embed_scale(c);
	e = dt_block_norm(b, n->out[0], DT_W_MTP_EMBED_NORM, "embed_norm", embed_norm);
	h = dt_block_norm(b, h, DT_W_MTP_HIDDEN_NORM, "hidden_norm", hidden_norm);
	n = dt_node_add(b, DT_OP_JOIN, "join", 1, joined);
	if (!n)
		return -1;
	n->in[0] = e;
	n->in[1] = h;
	e = n->out[0];
	proj = dt_tensor_add(b, DT_W_MTP_PROJ, "proj.weight", c->hidden, 2 * c->hidden);
	return dt_block_linear(b, "proj", "resid", e, 1, &proj, NULL);
}

int dt_block_given(struct dt_builder *b)
{
	static const char *const out[] = {"given"};
	struct dt_node *n = dt_node_add(b, DT_OP_GIVEN, "given", 1, out);

	return n ? n->out[0] : -1;
}
/* SPDX-License-Identifier: Apache-2.0 */
