/* Matrix products whose rows must not depend on each other (matmul.h). */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul_path.h"

/* Packs columns j0 .. j0 + cols of b into panel [words of k, ld], with zeros up to the panel's width. */
static void pack_panel(const struct dt_tile *t, const struct dt_matmul_key *key, struct dt_tensor b,
		       int64_t j0, int64_t cols, int64_t wide, int64_t ld, uint32_t *panel)
{
	const void *row[DT_TILE];

	if (key->tb) {
		for (int64_t j = 0; j < cols; j++)
			row[j] = dt_at(b, (j0 + j) * key->k);
		dt_tile_pack_lanes(t, panel, row, b.dtype, cols, key->k);
		return;
	}
	for (int64_t k = 0; t->pairs && k < key->k; k += DT_TILE) {
		const int64_t n = dt_min64(DT_TILE, key->k - k);

		for (int64_t i = 0; i < n; i++)
			row[i] = dt_at(b, (k + i) * key->n + j0);
		dt_tile_pack_depth(t, panel + k / 2 * ld, row, b.dtype, n, cols);
	}
	for (int64_t k = 0; !t->pairs && k < key->k; k++) {
		memcpy(panel + k * ld, dt_at(b, k * key->n + j0), (size_t)cols * 4);
		memset(panel + k * ld + cols, 0, (size_t)(wide - cols) * 4);
	}
}

/* c = (accumulate ? c : 0) + (tile + add) from element `at` of c on, cols columns; add NULL: zeros. */
static DT_SIMD void put_tile(struct dt_tensor c, int64_t at, int64_t ldc, float *tile, const float *add,
			     int64_t rows, int64_t cols, bool accumulate)
{
	for (int64_t r = 0; r < rows; r++, at += ldc, tile += DT_TILE) {
		float buf[DT_TILE];
		const float *old = accumulate ? dt_load(buf, dt_at(c, at), c.dtype, cols) : NULL;

		for (int64_t j = 0; add && j < cols; j++)
			tile[j] += add[j];
		for (int64_t j = 0; old && j < cols; j++)
			tile[j] += old[j];
		if (c.dtype == DT_F32)
			memcpy(dt_at(c, at), tile, (size_t)cols * 4);
		else
			dt_store(dt_at(c, at), c.dtype, tile, cols);
	}
}

/* Columns j0 .. j0 + 64 of rows i0 .. i1 of c. Uses panel for b, and tile [64, 64] for sums. */
static void product_panel(const struct dt_tile *t, const struct dt_matmul_key *key, struct dt_tensor c,
			  struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias, int64_t j0,
			  int64_t i0, int64_t i1, uint32_t *panel, float *tile)
{
	const int64_t cols = dt_min64(DT_TILE, key->n - j0), wide = dt_ceil_div(cols, 16) * 16;
	const int64_t ld = t->pairs && !key->tb ? wide : DT_TILE, each = t->pairs ? 2 : 1;
	const bool in_place = wide == cols && !bias.data && !key->accumulate && c.dtype == DT_F32;
	float buf[DT_TILE];
	const float *add = bias.data ? dt_load(buf, dt_at(bias, j0), bias.dtype, cols) : NULL;

	pack_panel(t, key, b, j0, cols, wide, ld, panel);
	for (int64_t i = i0; i < i1; i += DT_TILE) {
		const int64_t rows = dt_min64(DT_TILE, i1 - i), at = i * key->n + j0;

		t->mul(in_place ? (float *)dt_at(c, at) : tile, in_place ? key->n : DT_TILE,
		       dt_at(a, i * (key->ta ? 1 : key->lda)), key->ta ? 1 : key->lda / each,
		       key->ta ? key->lda : 1, panel, ld, rows, wide, key->k / each, false);
		if (!in_place)
			put_tile(c, at, key->n, tile, add, rows, cols, key->accumulate);
	}
}

/* Row i of block n of b in dt_matmul_pack's order: 64 elements, with tb of a column. NULL: no such column */
static const char *block_row(const struct dt_matmul_key *key, struct dt_tensor b, int64_t n, int64_t i)
{
	const int64_t along = key->k / DT_TILE, j = n / along * DT_TILE, k = n % along * DT_TILE;

	if (!key->tb)
		return dt_at(b, (k + i) * key->n + j);
	return j + i < key->n ? dt_at(b, (j + i) * key->k + k) : NULL;
}

/*
 * Packs block n of b to `to`. The next block's rows, two lines each, and its place are asked for: rows are
 * too short for the processor to foresee them, and the place was last read by other threads.
 */
static void pack_block(const struct dt_tile *t, const struct dt_matmul_key *key, struct dt_tensor b,
		       int64_t n, int64_t blocks, uint32_t *to)
{
	const void *row[DT_TILE];

	for (int64_t i = 0; i < DT_TILE; i++) {
		const char *next = n + 1 < blocks ? block_row(key, b, n + 1, i) : NULL;

		row[i] = block_row(key, b, n, i);
		if (!next)
			continue;
		__builtin_prefetch(next);
		__builtin_prefetch(next + 64);
		__builtin_prefetch(to + (DT_TILE + i) * (DT_TILE / 2), 1);
		__builtin_prefetch(to + (DT_TILE + i) * (DT_TILE / 2) + 16, 1);
	}
	if (key->tb)
		dt_tile_pack_lanes(t, to, row, DT_BF16, DT_TILE, DT_TILE);
	else
		dt_tile_pack_depth(t, to, row, DT_BF16, DT_TILE, DT_TILE);
}

uint32_t *dt_matmul_pack(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor b)
{
	const struct dt_tile *t = dt_tile(DT_BF16);
	const int64_t blocks = dt_ceil_div(key->n, DT_TILE) * (key->k / DT_TILE);
	uint32_t *to = dt_cpu_scratch_of(dev, DT_SCRATCH_PANELS, dt_matmul_packed_bytes(key));

	if (!to)
		return NULL;
#pragma omp parallel for num_threads(dev->nthreads)
	for (int64_t n = 0; n < blocks; n++)
		pack_block(t, key, b, n, blocks, to + n * DT_TILE * (DT_TILE / 2));
	return to;
}

bool dt_matmul_rows_takes(const struct dt_matmul_key *key)
{
	return dt_matmul_rows_takes_on(key, dt_isa()->amx_onednn);
}

int dt_matmul_rows(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
		   struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias)
{
	const struct dt_tile *tile = dt_tile_with_amx(key->in);
	const int64_t words = dt_matmul_panel_words(key);
	/* Fewer panels than threads: also splits rows, and each part packs the panel again. */
	const int64_t panels = dt_ceil_div(key->n, DT_TILE), tiles = dt_ceil_div(key->m, DT_TILE),
		      parts = dt_min64(tiles, dt_ceil_div(dev->nthreads, panels));
	uint32_t *all = dt_cpu_scratch_of(dev, DT_SCRATCH_PANELS, dt_matmul_panels_bytes(key, dev->nthreads));

	if (!all)
		return -ENOMEM;
#pragma omp parallel num_threads(dev->nthreads)
	{
		uint32_t *panel = all + omp_get_thread_num() * words;

		dt_tile_begin(tile, DT_TILE);
#pragma omp for schedule(dynamic) collapse(2)
		for (int64_t j = 0; j < panels; j++)
			for (int64_t i = 0; i < parts; i++)
				product_panel(tile, key, c, a, b, bias, j * DT_TILE,
					      tiles * i / parts * DT_TILE,
					      dt_min64(key->m, tiles * (i + 1) / parts * DT_TILE), panel,
					      (float *)(panel + words - DT_TILE * DT_TILE));
		dt_tile_end(tile);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
