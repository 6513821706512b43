/*
 * A pass over pipeline stages in parts: while one stage computes the rows of a part, the previous stage
 * computes those of the next, so that m parts take (m + stages - 1) / m of one stage's time for all rows
 * (GPipe: Huang et al. 2019). Parts may split a sequence: later rows see the keys of earlier ones in the
 * cache, so results do not depend on the split. Steps with few rows are not split, as each part reads the
 * weights again. With ep, the replicas that compute together have different rows but the same passes: as many
 * parts as the replica with most rows needs.
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

	if (!m->ranks.pp && !m->ranks.cp && !m->ranks.ep)
		return 0;
	c->q_start = calloc(seqs + 1, sizeof(*c->q_start));
	c->kv_len = calloc(seqs, sizeof(*c->kv_len));
	c->want = calloc(seqs, sizeof(*c->want));
	c->rows_of_cp = calloc((size_t)m->ranks.layout.cp, sizeof(*c->rows_of_cp));
	c->rows_of_ep = calloc((size_t)m->ranks.layout.ep, sizeof(*c->rows_of_ep));
	if (!c->q_start || !c->kv_len || !c->want || !c->rows_of_cp || !c->rows_of_ep)
		return dt_err_sys(err, -ENOMEM, "cannot load the model");
	return 0;
}

void dt_infer_parts_release(struct dt_infer *m)
{
	free(m->cut.q_start);
	free(m->cut.kv_len);
	free(m->cut.want);
	free(m->cut.rows_of_cp);
	free(m->cut.rows_of_ep);
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
	p.state = b->state ? b->state + first : NULL;
	p.want = c->want;
	p.pool = b->pool ? b->pool + first : NULL;
	p.adapter = b->adapter ? b->adapter + first : NULL;
	p.draw = NULL; /* the first stage draws when it has all logits */
	return p;
}

/* The number of rows of rank r of cp in part i of n, of `tokens` rows. */
static int32_t rows_of(const struct dt_infer *m, int tokens, int i, int n, int r)
{
	const int cp = m->ranks.layout.cp,
		  part = dt_infer_part_at(tokens, i + 1, n) - dt_infer_part_at(tokens, i, n);

	return dt_infer_row_at(part, r + 1, cp) - dt_infer_row_at(part, r, cp);
}

void dt_infer_count_rows(struct dt_infer *m, const struct dt_infer_batch *b, int i, int n,
			 struct dt_infer_batch *p)
{
	const struct dt_layout *l = &m->ranks.layout;
	const int first = m->ranks.at.dp / dt_layout_joined(l) * dt_layout_joined(l), /* replica */
		group = dt_coords_data(l, m->ranks.at) / l->ep * l->ep;

	for (int r = 0; m->ranks.cp && r < l->cp; r++)
		m->cut.rows_of_cp[r] = rows_of(m, b->ntokens, i, n, r);
	for (int r = group; m->ranks.ep && r < group + l->ep; r++)
		m->cut.rows_of_ep[r - group] = rows_of(m, b->tokens_of[r / l->cp - first], i, n, r % l->cp);
	p->rows_of_cp = m->ranks.cp ? m->cut.rows_of_cp : NULL;
	p->rows_of_ep = m->ranks.ep ? m->cut.rows_of_ep : NULL;
}

static int parts_of(const struct dt_infer *m, const struct dt_infer_batch *b)
{
	int rows = b->ntokens;

	for (int r = 0; m->ranks.ep && r < dt_layout_joined(&m->ranks.layout); r++)
		rows = b->tokens_of[r] > rows ? b->tokens_of[r] : rows;
	return dt_infer_parts(rows, m->p.part_rows, m->ranks.layout.pp);
}

/* Runs part i of n, with cp this rank's rows of it. *want: wanted rows before it; this part's are added. */
static int part(struct dt_infer *m, const struct dt_infer_batch *b, int i, int n, int *want, float *made,
		struct dt_err *err)
{
	const size_t vocab = (size_t)m->config.vocab;
	const int row = dt_infer_part_at(b->ntokens, i, n), end = dt_infer_part_at(b->ntokens, i + 1, n),
		  from = *want;
	struct dt_infer_batch p = dt_infer_part_of(m, b, row, end, from);
	int rc;

	*want += p.nwant;
	if (m->ranks.cp)
		p = dt_infer_own_rows(m, b, row, end);
	dt_infer_count_rows(m, b, i, n, &p);
	rc = dt_infer_run(m, &p, NULL, err);
	if (made && rc == 0 && p.nwant > 0)
		memcpy(made + (size_t)from * vocab, dt_infer_made(m),
		       (size_t)p.nwant * vocab * sizeof(*made));
	if (rc == 0 && m->ranks.cp && dt_infer_last_stage(m))
		rc = dt_infer_join_rows(m, b, row, end, m->ranks.at.tp ? NULL : dt_infer_made(m), made, err);
	return rc;
}

int dt_infer_in_parts(struct dt_infer *m, const struct dt_infer_batch *b, float *made, struct dt_err *err)
{
	const int n = parts_of(m, b);
	int want = 0, rc = 0;

	for (int i = 0; i < n && rc == 0; i++)
		rc = part(m, b, i, n, &want, made, err);
	return rc == 0 && m->ranks.cp && dt_infer_last_stage(m) ? dt_infer_join_pool(m, b, err) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
