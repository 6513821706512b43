/*
 * A pass whose rows are divided over the ranks of cp. Each rank has the whole cache and all weights (except
 * experts, divided by ep), and computes its rows, which may be part of a sequence. Before attention the keys
 * and values of all rows are gathered into every rank's cache (call_serve_rows.c). So each rank computes only
 * its part of a long prompt. If rows do not divide evenly, the first ranks have one more, so a single row is
 * the first rank's. With pipeline stages the ranks of each stage do so for every part of a pass; a rank sends
 * its rows to the rank at its place in the next stage.
 */
#include "comm/comm.h"
#include "nn/infer_priv.h"

#include <errno.h>
#include <stdlib.h>

enum { TAG_LOGITS = 100 /* distinct from those of nn/infer_ranks.c */ };

/* The first of rows [row, end) of a rank. */
static int row_at(const struct dt_infer *m, int row, int end, int rank)
{
	return row + dt_infer_row_at(end - row, rank, m->ranks.layout.cp);
}

/* The number of wanted rows before row `end`. */
static int wants_before(const struct dt_infer_batch *b, int end)
{
	int n = 0;

	while (n < b->nwant && b->want[n] < end)
		n++;
	return n;
}

struct dt_infer_batch dt_infer_own_rows(struct dt_infer *m, const struct dt_infer_batch *b, int row, int end)
{
	const int own = row_at(m, row, end, m->ranks.at.cp);
	struct dt_infer_batch p =
		dt_infer_part_of(m, b, own, row_at(m, row, end, m->ranks.at.cp + 1), wants_before(b, own));

	p.all_slots = b->slot + row;
	return p;
}

int dt_infer_join_rows(struct dt_infer *m, const struct dt_infer_batch *b, int row, int end, const float *own,
		       float *logits, struct dt_err *err)
{
	const size_t vocab = (size_t)m->config.vocab;
	int rc = 0;

	if (m->ranks.at.tp > 0)
		return 0;
	for (int r = m->ranks.at.cp; r < m->ranks.layout.cp && rc == 0; r++) {
		const int from = wants_before(b, row_at(m, row, end, r)),
			  n = wants_before(b, row_at(m, row, end, r + 1)) - from;

		if (m->ranks.at.cp > 0)
			return n ? dt_send(m->ranks.cp, own, (size_t)n * vocab, DT_F32, 0, TAG_LOGITS,
					   "logits", err)
				 : 0;
		if (r > 0 && n > 0)
			rc = dt_recv(m->ranks.cp, logits + (size_t)from * vocab, (size_t)n * vocab, DT_F32, r,
				     TAG_LOGITS, "logits", err);
	}
	return rc;
}

/* Sums pooled states over cp; each rank has a part of the sequences' rows, or none. */
int dt_infer_join_pool(struct dt_infer *m, const struct dt_infer_batch *b, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; b->pool && i < b->nseq && rc == 0; i++)
		if (b->pool[i])
			rc = dt_all_reduce(m->ranks.cp, b->pool[i], NULL, (size_t)m->config.hidden, DT_F32,
					   DT_SUM, "pooled states", err);
	return rc;
}

int dt_infer_cut_rows(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	const bool first = m->ranks.at.cp == 0, speaks = m->ranks.at.tp == 0;
	struct dt_infer_batch p = dt_infer_own_rows(m, b, 0, b->ntokens);
	float *own = first ? logits : malloc(((size_t)p.nwant * (size_t)m->config.vocab + 1) * sizeof(*own));
	int rc = own || !speaks ? 0 : dt_err_sys(err, -ENOMEM, "cannot compute a step");

	dt_infer_count_rows(m, b, 0, 1, &p);
	if (rc == 0)
		rc = dt_infer_run(m, &p, own, err);
	if (rc == 0)
		rc = dt_infer_join_rows(m, b, 0, b->ntokens, own, logits, err);
	if (!first)
		free(own);
	if (rc == 0)
		rc = dt_infer_join_pool(m, b, err);
	return rc == 0 && b->draw ? dt_infer_draw(m, b, logits, err) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
