#include "kernels/gram.h"

#include "kernels/cpu/cpu.h"

#define SIDE 16 /* of the tiles that are mirrored or transposed: a line of f32 */
_Static_assert(DT_GRAM_ROWS % SIDE == 0, "a block has whole tiles, but for the last");

struct gram {
	struct dt_tensor c, b;
	const float *product; /* rows first .. first + rows of a a^T, up to their end: [rows, wide] */
	int64_t first, rows, wide;
	float alpha, beta, diagonal;
};

/* n elements of row i of c, from column j on, out of the product: into v [SIDE]. */
DT_INLINE void gram_row(float *v, const struct gram *g, int64_t i, int64_t j, int64_t n)
{
	const float *p = g->product + (i - g->first) * g->wide + j;
	float buf[SIDE];

	for (int64_t t = 0; t < n; t++)
		v[t] = g->alpha * p[t];
	if (g->b.data) {
		const float *b = dt_load(buf, dt_at(g->b, i * dt_cols(g->b) + j), g->b.dtype, n);

		for (int64_t t = 0; t < n; t++)
			v[t] += g->beta * b[t];
	}
	if (i >= j && i < j + n)
		v[i - j] += g->diagonal;
}

/* Writes n elements of row i of c, from column j on. */
DT_INLINE void put_row(struct dt_tensor c, int64_t i, int64_t j, const float *v, int64_t n)
{
	void *at = dt_at(c, i * dt_cols(c) + j);

	if (c.dtype == DT_F32)
		memcpy(at, v, (size_t)n * sizeof(*v));
	else
		dt_store(at, c.dtype, v, n);
}

DT_INLINE void gram_part(const struct gram *g, int64_t i, int64_t j, int64_t rows, int64_t cols)
{
	float v[SIDE][SIDE], turned[SIDE][SIDE];

	for (int64_t r = 0; r < rows; r++)
		gram_row(v[r], g, i + r, j, cols);
	if (i == j)
		for (int64_t r = 0; r < rows; r++)
			for (int64_t s = r + 1; s < cols; s++)
				v[r][s] = v[s][r];
	for (int64_t r = 0; r < rows; r++)
		put_row(g->c, i + r, j, v[r], cols);
	if (i == j)
		return;
	for (int64_t s = 0; s < cols; s++)
		for (int64_t r = 0; r < rows; r++)
			turned[s][r] = v[r][s];
	for (int64_t s = 0; s < cols; s++)
		put_row(g->c, j + s, i, turned[s], rows);
}

/* Tile [i .., j ..], at or below the diagonal, and its mirror image. */
static DT_SIMD void gram_tile(const struct gram *g, int64_t i, int64_t j)
{
	const int64_t rows = dt_min64(SIDE, g->first + g->rows - i), cols = dt_min64(SIDE, g->wide - j);

	if (rows == SIDE && cols == SIDE) /* loops of constant length */
		gram_part(g, i, j, SIDE, SIDE);
	else
		gram_part(g, i, j, rows, cols);
}

static void gram_block(struct dt_dev *dev, const struct gram *g)
{
#pragma omp parallel for schedule(static, 1) num_threads(dev->nthreads) if (g->rows * g->wide > DT_SERIAL)
	for (int64_t j = 0; j < g->wide; j += SIDE)
		for (int64_t i = j > g->first ? j : g->first; i < g->first + g->rows; i += SIDE)
			gram_tile(g, i, j);
}

/*
 * Whether the product alone is c, and symmetric: one block computes all of it in any case, and no element's
 * sum depends on its place.
 */
static bool is_product(struct dt_dev *dev, const struct gram *g, int64_t m, int64_t k)
{
	return m <= DT_GRAM_ROWS && g->alpha == 1 && !g->b.data && g->diagonal == 0 &&
	       dt_cpu_matmul_rows_apart(dev, g->c.dtype, m, k, m, true, false);
}

int dt_cpu_gram(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, float alpha, struct dt_tensor b,
		float beta, float diagonal)
{
	const int64_t m = dt_rows(a), k = dt_cols(a);
	float *product = dt_cpu_scratch(dev, dt_gram_bytes(m));
	struct gram g = {c, b, product, 0, 0, 0, alpha, beta, diagonal};
	int rc = product ? 0 : -ENOMEM;

	if (rc == 0 && is_product(dev, &g, m, k))
		return dt_cpu_matmul(dev, c, a, false, a, true, DT_NONE, false);
	for (; g.first < m && rc == 0; g.first += g.rows) {
		g.rows = dt_min64(DT_GRAM_ROWS, m - g.first);
		g.wide = g.first + g.rows;
		rc = dt_cpu_matmul(dev, dt_t2(product, DT_F32, g.rows, g.wide),
				   dt_t2(dt_at(a, g.first * k), a.dtype, g.rows, k), false,
				   dt_t2(a.data, a.dtype, g.wide, k), true, DT_NONE, false);
		if (rc == 0)
			gram_block(dev, &g);
	}
	return rc;
}

DT_INLINE void transpose_part(struct dt_tensor y, struct dt_tensor x, int64_t i, int64_t j, int64_t rows,
			      int64_t cols)
{
	float buf[SIDE], turned[SIDE][SIDE];

	for (int64_t r = 0; r < rows; r++) {
		const float *v = dt_load(buf, dt_at(x, (i + r) * dt_cols(x) + j), x.dtype, cols);

		for (int64_t s = 0; s < cols; s++)
			turned[s][r] = v[s];
	}
	for (int64_t s = 0; s < cols; s++)
		put_row(y, j + s, i, turned[s], rows);
}

static DT_SIMD void transpose_tile(struct dt_tensor y, struct dt_tensor x, int64_t i, int64_t j)
{
	const int64_t rows = dt_min64(SIDE, dt_rows(x) - i), cols = dt_min64(SIDE, dt_cols(x) - j);

	if (rows == SIDE && cols == SIDE)
		transpose_part(y, x, i, j, SIDE, SIDE);
	else
		transpose_part(y, x, i, j, rows, cols);
}

int dt_cpu_transpose(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x)
{
	const int64_t m = dt_rows(x), n = dt_cols(x);

#pragma omp parallel for num_threads(dev->nthreads) if (m * n > DT_SERIAL)
	for (int64_t j = 0; j < n; j += SIDE)
		for (int64_t i = 0; i < m; i += SIDE)
			transpose_tile(y, x, i, j);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
