/* Quantised rows of x as AMX tiles (quant.h). */
#include "kernels/cpu/quant.h"

/*
 * Fewest rows for which a tile pays: as the only tile, and as a further one. On a Xeon with both, a tile
 * costs what quant_mul.c takes with AVX-512 for 11 (Q8_0, Q4_0) to 14 rows (Q6_K). bf16 products always use
 * tiles there, as their bits differ.
 */
enum { ALONE = DT_XTILES_FROM, LEFT = 12 };

/* How many of the first rows use tiles. */
static int64_t tiled(int64_t rows)
{
	const int64_t left = rows % DT_XTILE_ROWS, whole = rows - left;

	if (rows < ALONE)
		return 0;
	if (!left || left >= LEFT)
		return rows;
	return whole > DT_XTILE_ROWS ? whole : 0; /* one tile and a few rows: no faster than quant_mul.c */
}

static int64_t tiles_of(int64_t rows)
{
	return tiled(rows) ? dt_ceil_div(rows, DT_XTILE_ROWS) : 0;
}

static int64_t first_of(const struct dt_quant_tiles *t, int e)
{
	return t->first ? t->first[e] : e * t->m;
}

static int64_t rows_of(const struct dt_quant_tiles *t, int e)
{
	return first_of(t, e + 1) - first_of(t, e);
}

/* The weight that a row uses. */
static int weight_of(const struct dt_quant_tiles *t, int64_t row)
{
	int lo = 0, hi = t->n;

	while (hi - lo > 1) {
		const int mid = (lo + hi) / 2;

		if (first_of(t, mid) <= row)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

size_t dt_quant_tiles_bytes(const struct dt_quant_tiles *t)
{
	int64_t tiles = 0;

	for (int e = 0; e < t->n; e++)
		tiles += tiles_of(rows_of(t, e)) * dt_xtiles(t->blocks);
	return tiles ? (size_t)tiles * sizeof *t->at + ((size_t)t->n * sizeof *t->begin + 63) / 64 * 64 : 0;
}

void dt_quant_tiles_lay(struct dt_quant_tiles *t, void *memory)
{
	int64_t tiles = 0;

	if (!dt_quant_tiles_bytes(t)) {
		t->n = 0;
		return;
	}
	t->begin = memory;
	t->at = (struct dt_xtile *)((char *)memory + ((size_t)t->n * sizeof *t->begin + 63) / 64 * 64);
	for (int e = 0; e < t->n; e++) {
		t->begin[e] = tiles;
		tiles += tiles_of(rows_of(t, e)) * dt_xtiles(t->blocks);
	}
}

static struct dt_xtile *tiles_at(const struct dt_quant_tiles *t, int e, int64_t in)
{
	return t->at + t->begin[e] + in / DT_XTILE_ROWS * dt_xtiles(t->blocks);
}

/* Fills row r of tiles; q NULL: zeros. */
static DT_SIMD void fill_row(struct dt_xtile *t, int64_t r, const int8_t *q, const struct dt_xblock *xb,
			     int64_t blocks)
{
	for (int64_t b = 0; b < dt_xtiles(blocks); b++, t++) {
		const bool there = q && b < blocks;

		if (there)
			memcpy(t->q[r], q + b * DT_QK, DT_QK);
		else
			memset(t->q[r], 0, DT_QK);
		t->scale[r] = there ? xb[b].scale : 0;
		t->sum[r] = there ? xb[b].sum : 0;
		t->start8[r] = there ? xb[b].start8 : 0;
		for (int h = 0; h < 2; h++)
			t->half[h][r] = there ? (float)(xb[b].start6[h] / -32) : 0;
	}
}

void dt_quant_tiles_fill(const struct dt_quant_tiles *t, int64_t row, const int8_t *q,
			 const struct dt_xblock *xb)
{
	int64_t in, n;
	int e;

	if (!t->n)
		return;
	e = weight_of(t, row);
	n = rows_of(t, e);
	in = row - first_of(t, e);
	if (!tiles_of(n))
		return;
	fill_row(tiles_at(t, e, in), in % DT_XTILE_ROWS, q + row * t->blocks * DT_QK, xb + row * t->blocks,
		 t->blocks);
	while (in >= n - 1 && ++in % DT_XTILE_ROWS)
		fill_row(tiles_at(t, e, in), in % DT_XTILE_ROWS, NULL, NULL, t->blocks);
}

const struct dt_xtile *dt_quant_tiles_at(const struct dt_quant_tiles *t, int64_t row)
{
	const int e = weight_of(t, row);

	return tiles_at(t, e, row - first_of(t, e));
}

int64_t dt_quant_tiled(const struct dt_quant_tiles *t, int64_t row, int64_t rows)
{
	const int e = t->n ? weight_of(t, row) : 0;
	const int64_t left = t->n ? tiled(rows_of(t, e)) - (row - first_of(t, e)) : 0;

	return left < 0 ? 0 : dt_min64(left, rows);
}
/* SPDX-License-Identifier: Apache-2.0 */
