/* Products of plain matrices: oneDNN's or tile.h's, whole or in parts. */
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/thin.h"
#include "kernels/cpu/tile.h"

#include <stdlib.h>

#define BLOCK 512  /* rows of c that are added to at a time */
#define DEPTH 2048 /* of k at a time, where k is more than DEEP */
#define DEEP  16384

static struct dt_tensor wide_copy(char **at, struct dt_tensor t)
{
	struct dt_tensor w = t;

	if (!t.data || t.dtype == DT_F32)
		return t;
	w.dtype = DT_F32;
	w.data = *at;
	*at += (dt_numel(t) * 4 + 63) / 64 * 64;
	return w;
}

static int product(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
		   struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias);

/* bf16 without AVX-512, and f16: everything of 16 bits gets an f32 copy. */
static int product_wide(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
			struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias)
{
	struct dt_cpu *cpu = dev->impl;
	struct dt_matmul_cache *t = cpu->matmul;
	struct dt_matmul_key wide = *key;
	int64_t n = dt_numel(a) + dt_numel(b) + dt_numel(c) + (bias.data ? dt_numel(bias) : 0);
	int r = dt_matmul_grow(&t->wide, &t->wide_n, (size_t)n * 4 + 256);
	char *at = t->wide;

	if (r < 0)
		return r;
	struct dt_tensor wa = wide_copy(&at, a), wb = wide_copy(&at, b), wc = wide_copy(&at, c);
	struct dt_tensor wbias = wide_copy(&at, bias);

	wide.in = wide.out = DT_F32;
	r = dt_cpu_convert(dev, wa, a);
	r = r < 0 ? r : dt_cpu_convert(dev, wb, b);
	if (bias.data)
		r = r < 0 ? r : dt_cpu_convert(dev, wbias, bias);
	if (key->accumulate && wc.data != c.data)
		r = r < 0 ? r : dt_cpu_convert(dev, wc, c);
	r = r < 0 ? r : product(dev, &wide, wc, wa, wb, wbias);
	if (r == 0 && wc.data != c.data)
		r = dt_cpu_convert(dev, c, wc);
	return r;
}

/* Columns j0 .. j0 + cols of b go into panel [k, 64], zeros into the rest of wide columns. */
static void pack_panel(const struct dt_tile *t, const struct dt_matmul_key *key, const float *b, int64_t j0,
		       int64_t cols, int64_t wide, uint32_t *panel)
{
	if (key->tb) {
		const void *row[DT_TILE];

		for (int64_t j = 0; j < cols; j++)
			row[j] = b + (j0 + j) * key->k;
		dt_tile_pack_lanes(t, panel, row, DT_F32, cols, key->k);
		return;
	}
	for (int64_t k = 0; k < key->k; k++) {
		memcpy(panel + k * DT_TILE, b + k * key->n + j0, (size_t)cols * 4);
		memset(panel + k * DT_TILE + cols, 0, (size_t)(wide - cols) * 4);
	}
}

/* c = (accumulate ? c : 0) + (tile + add), cols columns; add NULL: zeros */
static void put_tile(float *c, int64_t ldc, float *tile, const float *add, int64_t rows, int64_t cols,
		     bool accumulate)
{
	for (int64_t r = 0; r < rows; r++, c += ldc, tile += DT_TILE) {
		for (int64_t j = 0; add && j < cols; j++)
			tile[j] += add[j];
		for (int64_t j = 0; j < cols; j++)
			c[j] = tile[j] + (accumulate ? c[j] : 0);
	}
}

/* Columns j0 .. j0 + 64 of rows i0 .. i1 of c, f32; b's go into panel [k, 64], sums into tile [64, 64]. */
static void product_panel(const struct dt_tile *t, const struct dt_matmul_key *key, struct dt_tensor c,
			  struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias, int64_t j0,
			  int64_t i0, int64_t i1, uint32_t *panel, float *tile)
{
	const int64_t cols = dt_min64(DT_TILE, key->n - j0), wide = dt_ceil_div(cols, 16) * 16;
	const float *add = bias.data ? (const float *)bias.data + j0 : NULL;
	const bool in_place = wide == cols && !add && !key->accumulate;

	pack_panel(t, key, b.data, j0, cols, wide, panel);
	for (int64_t i = i0; i < i1; i += DT_TILE) {
		const int64_t rows = dt_min64(DT_TILE, i1 - i);
		float *to = (float *)c.data + i * key->n + j0;

		t->mul(in_place ? to : tile, in_place ? key->n : DT_TILE,
		       (const uint32_t *)a.data + i * (key->ta ? 1 : key->lda), key->ta ? 1 : key->lda,
		       key->ta ? key->lda : 1, panel, DT_TILE, rows, wide, key->k, false);
		if (!in_place)
			put_tile(to, key->n, tile, add, rows, cols, key->accumulate);
	}
}

/* Without oneDNN: every element by one chain of multiply-adds over k, whatever the number of rows. */
static int product_rows(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
			struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias)
{
	struct dt_matmul_cache *t = ((struct dt_cpu *)dev->impl)->matmul;
	const struct dt_tile *tile = dt_tile(DT_F32);
	const int64_t words = DT_TILE * (key->k + DT_TILE);
	/* Fewer panels than threads: rows in parts as well, each of which packs the panel again. */
	const int64_t panels = dt_ceil_div(key->n, DT_TILE), tiles = dt_ceil_div(key->m, DT_TILE),
		      parts = dt_min64(tiles, dt_ceil_div(dev->nthreads, panels));
	int r = dt_matmul_grow(&t->panel, &t->panel_n, (size_t)(dev->nthreads * words) * 4);

	if (r < 0)
		return r;
#pragma omp parallel for num_threads(dev->nthreads) schedule(dynamic) collapse(2)
	for (int64_t j = 0; j < panels; j++)
		for (int64_t i = 0; i < parts; i++) {
			uint32_t *panel = (uint32_t *)t->panel + omp_get_thread_num() * words;

			product_panel(tile, key, c, a, b, bias, j * DT_TILE, tiles * i / parts * DT_TILE,
				      dt_min64(key->m, tiles * (i + 1) / parts * DT_TILE), panel,
				      (float *)(panel + DT_TILE * key->k));
		}
	return 0;
}

static int product(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
		   struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias)
{
	struct dt_cpu *cpu = dev->impl;
	struct dt_matmul_entry *e;
	int r = dt_matmul_find(cpu, key, &e);

	if (r < 0)
		return r;
	if (e->widen || (dev->batch_invariant && !e->invariant && key->in != DT_F32))
		return product_wide(dev, key, c, a, b, bias);
	if (e->tiles || (dev->batch_invariant && !e->invariant))
		return product_rows(dev, key, c, a, b, bias);
	return dt_matmul_execute(cpu, e, c.data, a.data, b.data, bias.data);
}

/*
 * A bf16 product added to a large c, or with a transposed, goes in blocks of rows: oneDNN 2.6 sweeps c once
 * more than it must, and a's copy outgrows the cache. Measured from 512 x 768 x 768 to 4096 x 11008 x 1024,
 * 512 rows are 15 to 45 % faster than all at once; f32 gains nothing.
 */
static int product_blocks(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
			  struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias)
{
	int r = 0;

	/* Whatever the number of threads: it decides the order of accumulation. */
	for (int64_t i = 0; r == 0 && i < key->m; i += BLOCK) {
		struct dt_matmul_key block = *key;
		struct dt_matmul_entry *e;

		block.m = dt_min64(BLOCK, key->m - i);
		r = dt_matmul_find(dev->impl, &block, &e);
		if (r == 0 && e->widen)
			return product(dev, key, c, a, b, bias);
		if (r == 0)
			r = dt_matmul_execute(dev->impl, e, dt_at(c, i * key->n),
					      dt_at(a, key->ta ? i : i * key->k), b.data, bias.data);
	}
	return r;
}

/*
 * dx = dy w over a whole vocabulary: a part of k at a time into f32 sums, so that w's part stays in the cache
 * for all rows. 5 to 10 % faster at k = 50257. Not for x w^T, nor for what comes in blocks already.
 */
static bool is_deep(const struct dt_matmul_key *key)
{
	return !key->ta && !key->tb && !key->bias && !key->accumulate && key->in == DT_BF16 &&
	       key->out == DT_BF16 && key->k > DEEP;
}

static int product_deep(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
			struct dt_tensor a, struct dt_tensor b)
{
	struct dt_matmul_cache *t = ((struct dt_cpu *)dev->impl)->matmul;
	int r = dt_matmul_grow(&t->wide, &t->wide_n, (size_t)dt_min64(key->m, BLOCK) * (size_t)key->n * 4);

	for (int64_t i = 0; r == 0 && i < key->m; i += BLOCK) {
		struct dt_matmul_key part = *key;

		part.m = dt_min64(BLOCK, key->m - i);
		part.out = DT_F32;
		for (int64_t k = 0; r == 0 && k < key->k; k += DEPTH) {
			struct dt_matmul_entry *e;

			part.k = dt_min64(DEPTH, key->k - k);
			part.accumulate = k > 0;
			r = dt_matmul_find(dev->impl, &part, &e);
			if (r == 0 && (e->widen || (dev->batch_invariant && !e->invariant)))
				return product(dev, key, c, a, b, DT_NONE);
			if (r == 0)
				r = dt_matmul_execute(dev->impl, e, t->wide, dt_at(a, i * key->k + k),
						      dt_at(b, k * key->n), NULL);
		}
		r = r < 0 ? r
			  : dt_cpu_convert(dev, dt_t2(dt_at(c, i * key->n), c.dtype, part.m, key->n),
					   dt_t2(t->wide, DT_F32, part.m, key->n));
	}
	return r;
}

/* k = 0: c = (accumulate ? c : 0) + bias */
static int product_empty(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor bias, bool accumulate)
{
	const int64_t n = dt_cols(c);
	int r = accumulate ? 0 : dt_cpu_fill(dev, c, 0);

	for (int64_t i = 0; bias.data && r == 0 && i < dt_rows(c); i++)
		r = dt_cpu_axpy(dev, dt_t1(dt_at(c, i * n), c.dtype, n), 1, bias);
	return r;
}

int dt_cpu_matmul(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, bool ta, struct dt_tensor b,
		  bool tb, struct dt_tensor bias, bool accumulate)
{
	struct dt_cpu *cpu = dev->impl;
	struct dt_matmul_key key = {.m = ta ? dt_cols(a) : dt_rows(a),
				    .k = ta ? dt_rows(a) : dt_cols(a),
				    .n = tb ? dt_rows(b) : dt_cols(b),
				    .lda = dt_cols(a),
				    .nthreads = dev->nthreads,
				    .ta = ta,
				    .tb = tb,
				    .in = (uint8_t)a.dtype,
				    .out = (uint8_t)c.dtype,
				    .bias = bias.data != NULL,
				    .accumulate = accumulate};
	int threads, r;

	if (!key.k)
		return product_empty(dev, c, bias, accumulate);
	if (dt_matmul_ready(cpu) < 0)
		return -ENOMEM;
	threads = omp_get_max_threads();
	omp_set_num_threads(dev->nthreads);
	if (dt_thin_is(dev, &key))
		r = dt_thin_matmul(dev, &key, c, a, b, bias);
	else if ((accumulate || ta) && !(ta && dev->batch_invariant) && a.dtype == DT_BF16 && key.m > BLOCK)
		r = product_blocks(dev, &key, c, a, b, bias);
	else if (is_deep(&key))
		r = product_deep(dev, &key, c, a, b);
	else
		r = product(dev, &key, c, a, b, bias);
	omp_set_num_threads(threads);
	return r;
}

bool dt_cpu_matmul_rows_apart(struct dt_dev *dev, enum dt_dtype dtype, int64_t m, int64_t k, int64_t n,
			      bool tb, bool bias)
{
	struct dt_cpu *cpu = dev->impl;
	struct dt_matmul_key key = {.m = m,
				    .k = k,
				    .n = n,
				    .lda = k,
				    .nthreads = dev->nthreads,
				    .tb = tb,
				    .in = (uint8_t)dtype,
				    .out = (uint8_t)dtype,
				    .bias = bias};
	struct dt_matmul_entry *e;

	if (dev->batch_invariant || !m || !k || !n)
		return true;
	if (dt_matmul_ready(cpu) < 0 || dt_matmul_find(cpu, &key, &e) < 0)
		return false;
	if (e->widen) {
		key.in = key.out = DT_F32;
		if (dt_matmul_find(cpu, &key, &e) < 0)
			return false;
	}
	return e->invariant;
}
/* SPDX-License-Identifier: Apache-2.0 */
