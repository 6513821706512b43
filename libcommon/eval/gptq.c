#include "eval/gptq.h"

#include "kernels/quant_grid.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PANEL 64  /* columns of a factor, or of its inverse, processed at a time */
#define CHUNK 128 /* columns whose errors are applied to the rest at once; a multiple or divisor of a block */
#define TILE  8	  /* rows that share a pass over the factor */

/* ---- the factor ---- */

static double dot(const double *a, const double *b, int64_t n)
{
	double sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* Replaces the lower triangle of a [k, k] by its Cholesky factor. False: a is not positive definite. */
static bool cholesky(double *a, int64_t k)
{
	for (int64_t p = 0; p < k; p += PANEL) {
		int64_t end = p + PANEL < k ? p + PANEL : k;

#pragma omp parallel for schedule(dynamic, 16)
		for (int64_t i = p; i < k; i++)
			for (int64_t j = p; j < end && j <= i; j++)
				a[i * k + j] -= dot(a + i * k, a + j * k, p);
		for (int64_t j = p; j < end; j++) {
			double d = a[j * k + j] - dot(a + j * k + p, a + j * k + p, j - p);

			if (!(d > 0))
				return false;
			a[j * k + j] = sqrt(d);
			for (int64_t i = j + 1; i < end; i++)
				a[i * k + j] = (a[i * k + j] - dot(a + i * k + p, a + j * k + p, j - p)) /
					       a[j * k + j];
		}
#pragma omp parallel for schedule(static)
		for (int64_t i = end; i < k; i++)
			for (int64_t j = p; j < end; j++)
				a[i * k + j] = (a[i * k + j] - dot(a + i * k + p, a + j * k + p, j - p)) /
					       a[j * k + j];
	}
	return true;
}

/* Columns [c, c + n) of the inverse of lower triangular l, reversed into u; x [k, PANEL] is scratch. */
static void invert_panel(const double *l, int64_t k, int64_t c, int64_t n, double *x, float *u)
{
	for (int64_t i = c; i < k; i++) {
		double *row = x + (i - c) * PANEL;

		for (int64_t j = 0; j < n; j++)
			row[j] = i == c + j;
		for (int64_t m = c; m < i; m++) {
			const double f = l[i * k + m], *other = x + (m - c) * PANEL;

#pragma omp simd
			for (int64_t j = 0; j < n; j++)
				row[j] -= f * other[j];
		}
		for (int64_t j = 0; j < n; j++) {
			row[j] /= l[i * k + i];
			u[(k - 1 - i) * k + k - 1 - c - j] = (float)row[j];
		}
	}
}

static int invert(const double *l, int64_t k, float *u)
{
	int failed = 0;

#pragma omp parallel
	{
		double *x = malloc((size_t)k * PANEL * sizeof(*x));

		if (!x)
#pragma omp atomic write
			failed = 1;
#pragma omp for schedule(dynamic, 1)
		for (int64_t c = 0; c < k; c += PANEL)
			if (x)
				invert_panel(l, k, c, c + PANEL < k ? PANEL : k - c, x, u);
		free(x);
	}
	return failed ? -ENOMEM : 0;
}

/*
 * Let J reverse the order of rows. J H J = L L^T, so H = R R^T with R = J L J upper triangular; then u = R^-1
 * = J L^-1 J, as H^-1 = R^-T R^-1.
 */
int dt_gptq_factor(const float *h, int64_t k, double damping, const int32_t *order, float *u,
		   struct dt_err *err)
{
	double *a = malloc((size_t)(k * k) * sizeof(*a)), mean = 0;
	int rc = a ? 0 : -ENOMEM;

	for (int64_t i = 0; i < k; i++)
		mean += (double)h[i * k + i] / (double)k;
	for (int64_t i = 0; i < k && rc == 0; i++) {
		int64_t r = order ? order[k - 1 - i] : k - 1 - i;

		for (int64_t j = 0; j <= i; j++)
			a[i * k + j] = (double)h[r * k + (order ? order[k - 1 - j] : k - 1 - j)];
		if (h[r * k + r] == 0)
			a[i * k + i] = mean > 0 ? mean : 1;
		a[i * k + i] += damping * mean;
	}
	memset(u, 0, (size_t)(k * k) * sizeof(*u));
	if (rc == 0 && !cholesky(a, k))
		rc = dt_err_set(err, -EDOM,
				"the Hessian of the inputs is singular: use more text or a larger --damping");
	else if (rc == 0)
		rc = invert(a, k, u);
	free(a);
	return rc == -ENOMEM ? dt_err_sys(err, rc, "cannot invert a matrix of %lld inputs", (long long)k)
			     : rc;
}

static int by_diagonal(const void *a, const void *b, void *arg)
{
	const float *d = arg;
	const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;

	if (d[i] != d[j])
		return d[i] < d[j] ? 1 : -1;
	return i < j ? -1 : i > j;
}

void dt_gptq_order(const float *h, int64_t k, int32_t *order)
{
	float *d = malloc((size_t)k * sizeof(*d));

	for (int64_t i = 0; i < k; i++) {
		order[i] = (int32_t)i;
		if (d)
			d[i] = h[i * k + i];
	}
	if (d)
		qsort_r(order, (size_t)k, sizeof(*order), by_diagonal, d);
	free(d);
}

/* ---- rows ---- */

struct tile {
	const struct dt_gptq *g;
	int rows;
	float *x;      /* [rows, k] in rounding order */
	float *e;      /* [rows, CHUNK] rounding error of a column, over u's diagonal */
	uint8_t *code; /* [rows, k] in column order */
	struct dt_grid *grid;
	char *dst; /* the first row's */
	size_t row_bytes;
};

/* Sets the scales of row r's block that contains column `at`, for its current values x. */
static void set_scales(struct tile *t, int r, int64_t at, const float *x)
{
	const struct dt_gptq *g = t->g;
	const struct dt_format_info *info = dt_format_info(g->format);
	int64_t b = at / info->block;
	char *block = t->dst + (size_t)r * t->row_bytes + (size_t)(b * info->bytes);

	dt_quantize_weighted(g->format, x, info->block, g->importance + b * info->block, block);
	dt_grid_of(g->format, block, &t->grid[r * (g->k / info->block) + b]);
}

/* Rounds column i of the order in all rows of the tile, and updates the columns up to `end`. */
static void round_column(struct tile *t, int64_t i, int64_t first, int64_t end)
{
	const struct dt_gptq *g = t->g;
	const int block = dt_format_info(g->format)->block;
	const int64_t at = g->order ? g->order[i] : i;
	const float *u = g->u + i * g->k;

	for (int r = 0; r < t->rows; r++) {
		float *x = t->x + r * g->k, e;
		const struct dt_grid *grid;
		int code;

		if (!g->order && i % block == 0)
			set_scales(t, r, i, x + i);
		grid = &t->grid[r * (g->k / block) + at / block];
		code = dt_grid_nearest(grid, (int)(at % block), x[i]);
		e = (x[i] - dt_grid_value(grid, (int)(at % block), code)) / u[i];
		t->code[r * g->k + at] = (uint8_t)code;
		t->e[r * CHUNK + i - first] = e;
#pragma omp simd
		for (int64_t j = i + 1; j < end; j++)
			x[j] -= e * u[j];
	}
}

static void round_tile(struct tile *t, const float *w)
{
	const struct dt_gptq *g = t->g;
	const struct dt_format_info *info = dt_format_info(g->format);

	for (int r = 0; r < t->rows; r++)
		for (int64_t i = 0; i < g->k; i++)
			t->x[r * g->k + i] = w[r * g->k + (g->order ? g->order[i] : i)];
	for (int r = 0; r < t->rows && g->order; r++)
		for (int64_t i = 0; i < g->k; i += info->block)
			set_scales(t, r, i, w + r * g->k + i);
	for (int64_t first = 0; first < g->k; first += CHUNK) {
		int64_t end = first + CHUNK < g->k ? first + CHUNK : g->k;

		for (int64_t i = first; i < end; i++)
			round_column(t, i, first, end);
		for (int64_t i = first; i < end; i++)
			for (int r = 0; r < t->rows; r++) {
				const float *u = g->u + i * g->k, e = t->e[r * CHUNK + i - first];
				float *x = t->x + r * g->k;

#pragma omp simd
				for (int64_t j = end; j < g->k; j++)
					x[j] -= e * u[j];
			}
	}
	for (int r = 0; r < t->rows; r++)
		for (int64_t b = 0; b < g->k / info->block; b++)
			dt_grid_put(g->format, t->code + r * g->k + b * info->block,
				    t->dst + (size_t)r * t->row_bytes + (size_t)(b * info->bytes));
}

int dt_gptq_round(const struct dt_gptq *g, const float *w, int64_t rows, void *dst, struct dt_err *err)
{
	const size_t row_bytes = dt_format_bytes(g->format, g->k), k = (size_t)g->k;
	int failed = 0;

#pragma omp parallel
	{
		struct tile t = {.g = g,
				 .x = malloc(TILE * k * sizeof(float)),
				 .e = malloc(TILE * CHUNK * sizeof(float)),
				 .code = malloc(TILE * k),
				 .grid = malloc(TILE * (k / (size_t)dt_format_info(g->format)->block + 1) *
						sizeof(struct dt_grid)),
				 .row_bytes = row_bytes};
		const bool there = t.x && t.e && t.code && t.grid;

		if (!there)
#pragma omp atomic write
			failed = 1;
#pragma omp for schedule(dynamic, 1)
		for (int64_t r = 0; r < rows; r += TILE) {
			t.rows = (int)(rows - r < TILE ? rows - r : TILE);
			t.dst = (char *)dst + (size_t)r * row_bytes;
			if (there)
				round_tile(&t, w + r * g->k);
		}
		free(t.x);
		free(t.e);
		free(t.code);
		free(t.grid);
	}
	return failed ? dt_err_sys(err, -ENOMEM, "cannot round %lld rows", (long long)rows) : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
