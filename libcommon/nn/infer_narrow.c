/*
 * Rows without wanted logits leave a pass at the model's last attention: their keys and values are in the
 * cache by then, and nothing after that node reads them. The wanted rows of the values that are still used
 * move to the front, in place, and the rest of the pass has only those: of a prompt, one row goes through the
 * last layer's products. All ranks of tp drop the same rows; with cp or ep, where ranks have different rows,
 * none are dropped, nor where a layer of Mamba-2, whose states are those of all rows, is behind the last
 * attention.
 */
#include "nn/exec.h"
#include "nn/infer_priv.h"

#include <errno.h>
#include <stdlib.h>

int dt_infer_narrow_open(struct dt_infer *m, struct dt_err *err)
{
	const struct dt_prog *p = &m->plan.stage.chunk[0];
	struct dt_infer_narrow *a = &m->narrow;
	const int seqs = m->p.max_seqs;
	int i = p->start[DT_LIST_FORWARD + 1] - 1;

	a->step = -1;
	a->worth = 64;
	if (!dt_infer_last_stage(m) || m->ranks.cp || m->ranks.ep || m->config.encoder)
		return 0;
	while (i >= p->start[DT_LIST_FORWARD] && p->step[i].n.op != DT_OP_ATTENTION &&
	       p->step[i].n.op != DT_OP_SSM_SCAN)
		i--;
	if (i < p->start[DT_LIST_FORWARD] || p->step[i].n.op == DT_OP_SSM_SCAN)
		return 0;
	a->q_start = calloc((size_t)seqs + 1, sizeof(*a->q_start));
	a->want = calloc((size_t)seqs + 1, sizeof(*a->want));
	if (!a->q_start || !a->want)
		return dt_err_sys(err, -ENOMEM, "cannot load the model");
	for (int k = 0; k < seqs; k++)
		a->want[k] = k;
	a->step = i;
	return 0;
}

void dt_infer_narrow_release(struct dt_infer *m)
{
	free(m->narrow.q_start);
	free(m->narrow.want);
}

/* A card's tables of adapters and of heads' first rows were made for all rows. */
static bool card_allows(const struct dt_infer *m, const struct dt_infer_batch *b)
{
	if (dt_dev_is_host(m->dev))
		return true;
	for (int i = 0; b->adapter && i < b->nseq; i++)
		if (b->adapter[i])
			return false;
	return !m->config.kv_rank && b->ntokens / m->narrow.worth >= b->nwant;
}

/* Attention takes a sequence's query rows to be its last tokens: false if other rows are wanted. */
static bool count_wanted(struct dt_infer_narrow *a, const struct dt_infer_batch *b)
{
	int n = 0;

	a->q_start[0] = 0;
	for (int i = 0; i < b->nseq; i++) {
		const int first = n, end = b->q_start[i + 1];

		while (n < b->nwant && b->want[n] < end)
			n++;
		for (int k = first; k < n; k++)
			if (b->want[k] != end - (n - k))
				return false;
		a->q_start[i + 1] = n;
	}
	return n == b->nwant;
}

void dt_infer_narrow_begin(struct dt_infer *m, const struct dt_infer_batch *b)
{
	struct dt_infer_narrow *a = &m->narrow;

	a->at = NULL;
	if (a->step >= 0 && b->nwant < b->ntokens && !m->wholes && !b->pool && !b->hidden &&
	    card_allows(m, b) && count_wanted(a, b))
		a->at = &m->plan.stage.chunk[0].step[a->step].n;
}

/* Moves the wanted rows of a value to its front. They ascend. */
static int move(struct dt_exec *x, int v, const struct dt_infer_batch *b)
{
	const struct dt_value *value = &x->p->value[v];
	const size_t row = (size_t)(value->mul * value->cols * dt_dtype_size(value->dtype));

	return dt_call_pick(x->dev, dt_call_at(x, v), dt_call_at(x, v), row, b->want, b->nwant);
}

static bool has(const int *values, int n, int v)
{
	for (int i = 0; i < n; i++)
		if (values[i] == v)
			return true;
	return false;
}

/* Whether operand i of step j is from before step k, and this is its first use since. */
static bool is_first_use(const struct dt_prog *p, int k, int j, int i)
{
	const int v = p->step[j].n.in[i];

	if (v < 0 || p->value[v].rows == DT_ROWS_NONE || has(p->step[j].n.in, i, v))
		return false;
	for (int s = k; s < j; s++)
		if (has(p->step[s].n.in, DT_NODE_IN, v) || has(p->step[s].n.out, DT_NODE_OUT, v))
			return false;
	return true;
}

int dt_infer_narrow(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_infer *m = x->owner;
	struct dt_infer_narrow *a = &m->narrow;
	const struct dt_infer_batch *b = m->batch;
	const struct dt_prog *p = x->p;
	int64_t *rows = m->plan.stage.chunk[0].rows;

	if (n != a->at)
		return 0;
	a->at = NULL;
	for (int j = a->step; j < p->start[DT_LIST_LOSS + 1]; j++)
		for (int i = 0; i < DT_NODE_IN; i++)
			if (is_first_use(p, a->step, j, i))
				TRY(move(x, p->step[j].n.in[i], b));
	a->batch = *b;
	a->batch.ntokens = b->nwant;
	a->batch.q_start = a->q_start;
	a->batch.want = a->want;
	m->batch = &a->batch;
	rows[DT_ROWS_ALL] = rows[DT_ROWS_STREAM] = rows[DT_ROWS_SEQ] = rows[DT_ROWS_EXPERTS] = b->nwant;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
