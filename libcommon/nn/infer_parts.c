/*
 * A pass over the stages of a pipeline in parts: while one stage computes the rows of a part, the stage
 * before computes those of the next, so that m parts take (m + stages - 1) / m of what one stage takes
 * for all rows (GPipe: Huang et al. 2019). Rows are cut anywhere, also within a sequence, whose later
 * rows see the keys of the earlier ones in the cache: numbers do not depend on it. Steps with few rows
 * are not cut: each part reads the weights again. Over ep the ranks of a group have unlike rows, but meet
 * in the same passes: as many parts as the one with most rows has.
 */
#include "nn/exec.h"
#include "nn/infer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int dt_infer_parts_open(struct dt_infer *m, struct dt_err *err)
{
	const size_t seqs = (size_t)m->p.max_seqs;
	struct dt_infer_parts *c = &m->cut;

	if (!m->ranks.pp && !m->ranks.cp)
		return 0;
	c->q_start = calloc(seqs + 1, sizeof(*c->q_start));
	c->kv_len = calloc(seqs, sizeof(*c->kv_len));
	c->want = calloc(seqs, sizeof(*c->want));
	c->tokens_of = calloc((size_t)(m->ranks.layout.ep * m->ranks.layout.cp), sizeof(*c->tokens_of));
	if (!c->q_start || !c->kv_len || !c->want || !c->tokens_of)
		return dt_err_sys(err, -ENOMEM, "cannot load the model");
	return 0;
}

void dt_infer_parts_release(struct dt_infer *m)
{
	free(m->cut.q_start);
	free(m->cut.kv_len);
	free(m->cut.want);
	free(m->cut.tokens_of);
}

struct dt_infer_batch dt_infer_part_of(struct dt_infer *m, const struct dt_infer_batch *b, int row, int end,
				       int want)
{
	struct dt_infer_parts *c = &m->cut;
	struct dt_infer_batch p = *b;
	int first = 0, n;

	while (first < b->nseq && b->q_start[first + 1] <= row)
		first++;
	for (n = 0; first + n < b->nseq && b->q_start[first + n] < end; n++) {
		const int from = b->q_start[first + n], to = b->q_start[first + n + 1];

		c->q_start[n] = from > row ? from - row : 0;
		c->kv_len[n] = b->kv_len[first + n] - (to > end ? to - end : 0);
	}
	c->q_start[n] = end - row;
	for (p.nwant = 0; want + p.nwant < b->nwant && b->want[want + p.nwant] < end; p.nwant++)
		c->want[p.nwant] = b->want[want + p.nwant] - row;
	p.nseq = n;
	p.ntokens = end - row;
	p.ids += row;
	p.pos += row;
	p.slot += row;
	p.q_start = c->q_start;
	p.kv_len = c->kv_len;
	p.block_table += (size_t)first * (size_t)b->max_blocks;
	p.want = c->want;
	p.pool = b->pool ? b->pool + first : NULL;
	p.adapter = b->adapter ? b->adapter + first : NULL;
	p.draw = NULL; /* the first stage draws when all logits have come */
	return p;
}

static int parts_of(const struct dt_infer *m, const struct dt_infer_batch *b)
{
	int rows = b->ntokens;

	for (int r = 0; m->ranks.ep && r < m->ranks.layout.ep; r++)
		rows = b->tokens_of[r] > rows ? b->tokens_of[r] : rows;
	return dt_infer_parts(rows, m->p.part_rows, m->ranks.layout.pp);
}

/* Rows [row, end) as p, or over cp this rank's of them; those before had `want` wanted ones. */
static int part(struct dt_infer *m, const struct dt_infer_batch *b, struct dt_infer_batch *p, int row,
		int end, int want, float *made, struct dt_err *err)
{
	const size_t vocab = (size_t)m->config.vocab;
	int rc;

	if (m->ranks.cp)
		*p = dt_infer_own_rows(m, b, row, end);
	rc = dt_infer_pass(m, p, NULL, err);
	if (made && rc == 0 && p->nwant > 0)
		memcpy(made + (size_t)want * vocab, dt_infer_made(m),
		       (size_t)p->nwant * vocab * sizeof(*made));
	if (rc == 0 && m->ranks.cp && dt_infer_last_stage(m))
		rc = dt_infer_join_rows(m, b, row, end, m->ranks.at.tp ? NULL : dt_infer_made(m), made, err);
	return rc;
}

int dt_infer_in_parts(struct dt_infer *m, const struct dt_infer_batch *b, float *made, struct dt_err *err)
{
	const int n = parts_of(m, b);
	int want = 0, rc = 0;

	for (int i = 0; i < n && rc == 0; i++) {
		const int row = dt_infer_part_at(b->ntokens, i, n),
			  end = dt_infer_part_at(b->ntokens, i + 1, n);
		struct dt_infer_batch p = dt_infer_part_of(m, b, row, end, want);
		const int wants = p.nwant;

		for (int r = 0; m->ranks.ep && r < m->ranks.layout.ep; r++)
			m->cut.tokens_of[r] = dt_infer_part_at(b->tokens_of[r], i + 1, n) -
					      dt_infer_part_at(b->tokens_of[r], i, n);
		p.tokens_of = m->ranks.ep ? m->cut.tokens_of : NULL;
		rc = part(m, b, &p, row, end, want, made, err);
		want += wants;
	}
	return rc == 0 && m->ranks.cp && dt_infer_last_stage(m) ? dt_infer_join_pool(m, b, err) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
