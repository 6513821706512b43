/*
 * Encoders in serving: token types, and attention among the rows of each sequence, all of which are in the
 * pass. Nothing is kept of them, so there is no cache.
 */
#include "nn/infer_priv.h"

int dt_serve_types(struct dt_exec *x, const struct dt_node *n, struct dt_tensor y, struct dt_tensor at,
		   struct dt_err *err)
{
	const struct dt_infer *m = x->owner;
	const struct dt_tensor types = x->w[n->param[2]];

	if (!m->batch->types)
		return dt_call_first_type(x, n, y, err);
	TRY(x->dev->ops->embedding_forward(x->dev, at, m->batch->types + x->row, NULL, types, DT_NONE, 0));
	TRY(x->dev->ops->add(x->dev, y, y, at));
	return 0;
}

/* The number of sequences from `first` on that are as long as it is: they are computed in one call. */
static int alike(const struct dt_infer_batch *b, int first)
{
	const int32_t rows = b->q_start[first + 1] - b->q_start[first];
	int i = first + 1;

	while (i < b->nseq && b->q_start[i + 1] - b->q_start[i] == rows)
		i++;
	return i - first;
}

int dt_serve_attention_all(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_infer_batch *b = ((const struct dt_infer *)x->owner)->batch;
	const struct dt_tensor qkv = dt_call_mat(x, n->in[0]), o = dt_call_mat(x, n->out[0]);
	float *lse = dt_call_at(x, n->out[1]);

	for (int i = 0, k; i < b->nseq; i += k) {
		const int64_t first = b->q_start[i], rows = b->q_start[i + 1] - first;
		const struct dt_attn_run run = {0, 0};
		struct dt_attn a = {.seq = rows,
				    .heads = n->attr.heads,
				    .kv_heads = n->attr.kv_heads,
				    .head_dim = n->attr.head_dim,
				    .scale = n->attr.scale};
		struct dt_attn_span s = {.rows = rows,
					 .all = true,
					 .nrun = 1,
					 .run = &run,
					 .run_keys = rows,
					 .stride = rows,
					 .k_col = a.heads * a.head_dim,
					 .v_col = (a.heads + a.kv_heads) * a.head_dim};
		struct dt_tensor in;

		k = alike(b, i);
		a.batch = k;
		in = dt_call_rows_of(qkv, first, k * rows);
		TRY(x->dev->ops->attention_span_forward(
			x->dev, dt_call_rows_of(o, first, k * rows),
			dt_t1(lse + first * a.heads, DT_F32, k * rows * a.heads), in, in, &a, &s));
	}
	return 0;
}

int dt_serve_states(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	return 0; /* nn/infer_pass.c reads them */
}
/* SPDX-License-Identifier: Apache-2.0 */
