/*
 * Groups the sequences of a batch by the tensors that their adapters replace (infer_adapter_whole.c):
 * adjacent sequences with the same weights at a node form a window, and the node is computed window by
 * window.
 */
#include "nn/infer_adapter_priv.h"

bool dt_infer_wholes(const struct dt_infer_batch *b)
{
	for (int i = 0; b->adapter && i < b->nseq; i++)
		if (b->adapter[i] && b->adapter[i]->own)
			return true;
	return false;
}

/* The sequence's adapter if it replaces a tensor of the node; NULL. */
static const struct dt_infer_adapter *whole_at(const struct dt_infer_batch *b, const struct dt_node *n,
					       int seq)
{
	const struct dt_infer_adapter *a = b->adapter ? b->adapter[seq] : NULL;

	for (int i = 0; a && a->own && i < DT_NODE_PARAM; i++)
		if (n->param[i] >= 0 && a->own[n->param[i]])
			return a;
	return NULL;
}

bool dt_infer_window_next(const struct dt_infer *m, const struct dt_node *n, struct dt_infer_window *w)
{
	const struct dt_infer_batch *b = m->batch;

	if (w->end == b->nseq)
		return false;
	w->first = w->end;
	w->whole = whole_at(b, n, w->first);
	do
		w->end++;
	while (w->end < b->nseq && whole_at(b, n, w->end) == w->whole);
	return true;
}

const struct dt_packed *dt_infer_packed_at(const struct dt_infer *m, int param)
{
	const int owner = m->owner[param];
	const struct dt_infer_adapter *a = m->window.whole;

	return a && a->packed[owner] ? a->packed[owner] : m->packed[owner];
}

int dt_infer_in_windows(struct dt_exec *x, const struct dt_node *n, dt_call *call, struct dt_err *err)
{
	struct dt_infer *m = x->owner;
	int64_t *rows = m->plan.stage.chunk[0].rows;
	const struct dt_infer_batch *b = m->batch;
	const struct dt_infer_window all = m->window;
	const int64_t all_rows = b->ntokens;
	struct dt_infer_window w = {0};
	int32_t *pos = x->pos;
	int rc = 0;

	if (!m->wholes || b->nseq == 0)
		return call(x, n, err);
	while (rc == 0 && dt_infer_window_next(m, n, &w)) {
		m->window = w;
		x->row = b->q_start[w.first];
		x->pos = pos + x->row;
		x->w = w.whole ? w.whole->w : m->w;
		rows[DT_ROWS_ALL] = rows[DT_ROWS_STREAM] = b->q_start[w.end] - x->row;
		rc = call(x, n, err);
	}
	m->window = all;
	x->row = 0;
	x->pos = pos;
	x->w = m->w;
	rows[DT_ROWS_ALL] = rows[DT_ROWS_STREAM] = all_rows;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
