/*
 * All-gathers rows of a pass over a group, in rank order. With ep these are the inputs of experts
 * (model/op/rows.c), whose sums are sent back; with cp they are keys and values. Each rank knows the number
 * of rows of every rank, so numbers are not sent. A rank without rows takes part too.
 */
#include "comm/comm.h"
#include "nn/infer_priv.h"

#include <string.h>

/* The number of rows of each rank if all have the same, else -1. */
static int32_t rows_of_each(const struct dt_comm *c, const int32_t *rows_of)
{
	for (int r = 1; r < dt_comm_size(c); r++)
		if (rows_of[r] != rows_of[0])
			return -1;
	return rows_of[0];
}

/* All-gathers the ranks' rows in place. */
static int gather(struct dt_infer *m, struct dt_comm *c, const int32_t *rows_of, char *all, int64_t cols,
		  const char *what, struct dt_err *err)
{
	const enum dt_dtype type = m->x.dtype;
	const size_t row = (size_t)(cols * dt_dtype_size(type));
	const int32_t each = rows_of_each(c, rows_of);
	int rc = 0;

	if (each == 0)
		return 0;
	if (each > 0)
		return dt_all_gather(c, all, NULL, (size_t)(m->batch->ntokens * cols), type, what, err);
	for (int r = 0; r < dt_comm_size(c) && rc == 0; r++)
		if (rows_of[r] > 0)
			rc = dt_broadcast(c, all + (size_t)dt_infer_rows_before(rows_of, r) * row,
					  (size_t)(rows_of[r] * cols), type, r, what, err);
	return rc;
}

/* Reduce-scatters the sums of all ranks' rows, each to the rank that owns the row. */
static int scatter(struct dt_infer *m, struct dt_comm *c, const int32_t *rows_of, char *own, char *all,
		   int64_t cols, struct dt_err *err)
{
	const enum dt_dtype type = m->x.dtype;
	const size_t row = (size_t)(cols * dt_dtype_size(type));
	const int32_t each = rows_of_each(c, rows_of);
	int rc = 0;

	if (each == 0)
		return 0;
	if (each > 0)
		return dt_reduce_scatter(c, own, all, (size_t)(m->batch->ntokens * cols), type, DT_SUM,
					 "sums of experts", err);
	for (int r = 0; r < dt_comm_size(c) && rc == 0; r++)
		if (rows_of[r] > 0)
			rc = dt_reduce(c, own, all + (size_t)dt_infer_rows_before(rows_of, r) * row,
				       (size_t)(rows_of[r] * cols), type, DT_SUM, r, "sums of experts", err);
	return rc;
}

/* The address of this rank's rows among all. */
static char *own_of(const struct dt_infer *m, const struct dt_comm *c, const int32_t *rows_of, char *all,
		    int64_t cols)
{
	return all +
	       (size_t)(dt_infer_rows_before(rows_of, dt_comm_rank(c)) * cols * dt_dtype_size(m->x.dtype));
}

int dt_serve_exchange(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_infer *m = x->owner;
	char *in = dt_call_at(x, n->in[0]), *out = dt_call_at(x, n->out[0]);
	const int64_t cols = x->p->value[n->in[0]].cols;
	const int32_t *rows_of = m->batch->rows_of_ep;

	if (n->attr.back)
		return scatter(m, m->ranks.ep, rows_of, out, in, cols, err);
	TRY(dt_dev_copy(x->dev, own_of(m, m->ranks.ep, rows_of, out, cols), in,
			(size_t)(m->batch->ntokens * cols * dt_dtype_size(x->dtype))));
	return gather(m, m->ranks.ep, rows_of, out, cols, "rows of experts", err);
}

int dt_serve_kv_gather(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_infer *m = x->owner;
	const struct dt_tensor kv = dt_call_mat(x, n->out[0]), qkv = dt_call_mat(x, n->in[0]);
	const int32_t *rows_of = m->batch->rows_of_cp;
	const struct dt_tensor own = dt_t2(own_of(m, m->ranks.cp, rows_of, kv.data, kv.dim[1]), kv.dtype,
					   m->batch->ntokens, kv.dim[1]);

	TRY(x->dev->ops->columns(x->dev, own, 0, qkv, n->attr.heads * n->attr.head_dim, kv.dim[1], false));
	return gather(m, m->ranks.cp, rows_of, kv.data, kv.dim[1], "keys and values", err);
}
/* SPDX-License-Identifier: Apache-2.0 */
