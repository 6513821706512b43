/* Converts x for products with packed weights: each row once, into all operands that the weights need. */
#include "kernels/cpu/quant_job.h"
#include "kernels/moe.h"

/* Converts row r of x to row `to` of the operands. quants: also to the quantised one. */
static void prepare_row(const struct dt_quant_job *j, int64_t r, int64_t to, bool quants)
{
	const struct dt_packed *w = j->w;
	const void *x = dt_at(j->x, r * w->k);

	if (j->q && quants)
		j->kernel.row(j->q + to * w->blocks * DT_QK, j->xb + to * w->blocks, x, j->x.dtype,
			      w->blocks);
	if (j->q && quants)
		dt_quant_tiles_fill(&j->tiles, to, j->q, j->xb);
	if (j->f)
		dt_quant_widen_row(j->f + to * w->blocks * DT_QK, x, j->x.dtype, w->k, w->blocks);
	if (j->h)
		dt_quant_round_row(j->h + to * w->blocks * DT_QK, x, j->x.dtype, w->k, w->blocks);
}

/* Brings n rows of x from r on, and their lines of the operands, into the caches. */
static void fetch_rows(const struct dt_quant_job *j, int64_t r, int64_t n)
{
	const int64_t k = j->w->k, wide = j->w->blocks * DT_QK;

	if (j->q) {
		dt_own_lines(j->q + r * wide, n * wide);
		dt_own_lines(j->xb + r * j->w->blocks, n * j->w->blocks * (int64_t)sizeof *j->xb);
	}
	if (j->h)
		dt_own_lines(j->h + r * wide, n * wide * (int64_t)sizeof *j->h);
	dt_fetch_lines(dt_at(j->x, r * k), n * k * dt_dtype_size(j->x.dtype));
}

static void copy_row(const struct dt_quant_job *j, int64_t from, int64_t to)
{
	const int64_t n = j->w->blocks * DT_QK;

	if (j->q) {
		memcpy(j->q + to * n, j->q + from * n, (size_t)n);
		memcpy(j->xb + to * j->w->blocks, j->xb + from * j->w->blocks,
		       (size_t)j->w->blocks * sizeof *j->xb);
	}
	dt_quant_tiles_fill(&j->tiles, to, j->q, j->xb);
	if (j->f)
		memcpy(j->f + to * n, j->f + from * n, (size_t)n * sizeof *j->f);
	if (j->h)
		memcpy(j->h + to * n, j->h + from * n, (size_t)n * sizeof *j->h);
}

/* Converts row r of x for a set: once for all the places it goes to. */
static void prepare_met(const struct dt_quant_job *j, int64_t r)
{
	const int64_t used = j->meet->used;
	const int32_t *at = j->meet->at + r * used;
	int32_t had = DT_MOE_AWAY;

	for (int64_t i = 0; i < used; i++) {
		if (at[i] == DT_MOE_AWAY)
			continue;
		if (had == DT_MOE_AWAY)
			prepare_row(j, r, at[i], true);
		else
			copy_row(j, had, at[i]);
		had = at[i];
	}
}

void dt_quant_prepare(const struct dt_quant_job *j, int64_t r, int64_t rows)
{
	const bool whole =
		dt_quant_by_tiles(j) && dt_quant_tiled(&j->tiles, r, DT_XTILE_ROWS) == DT_XTILE_ROWS;
	const bool met = j->meet && j->meet->used;

	if (!whole && !met)
		fetch_rows(j, r, rows);
	if (whole)
		j->kernel.tile((struct dt_xtile *)dt_quant_tiles_at(&j->tiles, r), dt_at(j->x, r * j->w->k),
			       j->x.dtype, j->w->blocks);
	for (int64_t i = r; i < r + rows; i++)
		if (met)
			prepare_met(j, i);
		else
			prepare_row(j, i, i, !whole);
}
/* SPDX-License-Identifier: Apache-2.0 */
