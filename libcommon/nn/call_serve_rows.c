/*
 * Rows of a pass that the experts of other ranks are for (model/op/rows.c): those of all ranks of the group
 * over ep one behind the other, in the order of ranks, and the sums of what experts make of them on the way
 * back. Each rank knows how many rows each has, so nothing is told; a rank without rows has experts too.
 */
#include "comm/comm.h"
#include "nn/infer_priv.h"

#include <string.h>

int64_t dt_infer_rows_before(const struct dt_infer *m, int rank)
{
	int64_t n = 0;

	for (int r = 0; r < rank; r++)
		n += m->batch->tokens_of[r];
	return n;
}

static bool even(const struct dt_infer *m)
{
	const int32_t *n = m->batch->tokens_of;

	for (int r = 1; r < m->ranks.layout.ep; r++)
		if (n[r] != n[0])
			return false;
	return true;
}

static int uneven_rows(const struct dt_infer *m, const struct dt_node *n, char *all, char *own, int64_t cols,
		       struct dt_err *err)
{
	const enum dt_dtype type = m->x.dtype;
	const size_t row = (size_t)(cols * dt_dtype_size(type));
	struct dt_comm *c = m->ranks.ep;
	int rc = 0;

	if (!n->attr.back)
		memcpy(all + (size_t)dt_infer_rows_before(m, dt_comm_rank(c)) * row, own,
		       (size_t)m->batch->ntokens * row);
	for (int r = 0; r < m->ranks.layout.ep && rc == 0; r++) {
		char *at = all + (size_t)dt_infer_rows_before(m, r) * row;
		const size_t count = (size_t)(m->batch->tokens_of[r] * cols);

		if (count > 0)
			rc = n->attr.back
				     ? dt_reduce(c, own, at, count, type, DT_SUM, r, "sums of experts", err)
				     : dt_broadcast(c, at, count, type, r, "rows of experts", err);
	}
	return rc;
}

int dt_serve_exchange(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_infer *m = x->owner;
	char *in = dt_call_at(x, n->in[0]), *out = dt_call_at(x, n->out[0]);
	const int64_t cols = x->p->value[n->in[0]].cols;
	const size_t own = (size_t)(m->batch->ntokens * cols);

	if (!even(m))
		return uneven_rows(m, n, n->attr.back ? in : out, n->attr.back ? out : in, cols, err);
	if (n->attr.back)
		return dt_reduce_scatter(m->ranks.ep, out, in, own, x->dtype, DT_SUM, "sums of experts", err);
	return dt_all_gather(m->ranks.ep, out, in, own, x->dtype, "rows of experts", err);
}
/* SPDX-License-Identifier: Apache-2.0 */
