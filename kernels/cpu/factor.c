#include "kernels/cpu/cpu.h"

#include <math.h>

/* The elements [*at, end) of matrix row i that are among the n given; returns their number. */
static int64_t row_part(const struct dt_factor *f, int64_t n, int64_t i, int64_t *at)
{
	const int64_t lo = i * f->cols, hi = lo + f->cols, last = f->first + n;

	*at = lo > f->first ? lo : f->first;
	return (hi < last ? hi : last) - *at;
}

/* With the same rounding in both sums. */
DT_INLINE double square(float g, double scale)
{
	const double d = g * scale;

	return d * d + 1e-30;
}

static DT_SIMD double factor_row(const float *g, double scale, int64_t n)
{
	double sum = 0;

	for (int64_t j = 0; j < n; j++)
		sum += square(g[j], scale);
	return sum;
}

enum { ABREAST = 8, LINE = 16 };

/* ABREAST rows, each summed in the order of factor_row. Additions of one row wait for each other. */
static DT_SIMD void factor_rows(double *rows, const float *g, double scale, int64_t n)
{
	double sum[ABREAST] = {0};

	for (int64_t j = 0; j < n; j++)
		DT_FOR (ABREAST, int k = 0; k < ABREAST; k++)
			sum[k] += square(g[k * n + j], scale);
	for (int k = 0; k < ABREAST; k++)
		rows[k] += sum[k];
}

static DT_SIMD void factor_columns(double *cols, const float *g, double scale, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		cols[j] += square(g[j], scale);
}

/* Threads divide the rows, and then the columns: every sum has the order of one thread. */
int dt_cpu_factor_sums(struct dt_dev *dev, double *rows, double *cols, struct dt_tensor g,
		       const struct dt_factor *f)
{
	const int64_t n = dt_numel(g), from = f->first / f->cols, to = (f->first + n - 1) / f->cols;
	const int64_t wide = dt_ceil_div(dt_ceil_div(f->cols, dev->nthreads), LINE) * LINE;
	const double scale = (double)f->scale;
	const float *x = g.data;

#pragma omp parallel num_threads(dev->nthreads) if (n > DT_SERIAL)
	{
#pragma omp for nowait
		for (int64_t first = from; first <= to; first += ABREAST) {
			const int64_t last = dt_min64(to, first + ABREAST - 1);
			int64_t at, m;

			if (last - first == ABREAST - 1 && first * f->cols >= f->first &&
			    (last + 1) * f->cols <= f->first + n) {
				factor_rows(rows + first, x + (first * f->cols - f->first), scale, f->cols);
				continue;
			}
			for (int64_t i = first; i <= last; i++) {
				m = row_part(f, n, i, &at);
				rows[i] += factor_row(x + (at - f->first), scale, m);
			}
		}
#pragma omp for
		for (int64_t c = 0; c < f->cols; c += wide)
			for (int64_t i = from; i <= to; i++) {
				int64_t at, m = row_part(f, n, i, &at), lo = at % f->cols, hi = lo + m;

				if (lo < c)
					lo = c;
				hi = dt_min64(hi, c + wide);
				if (lo < hi)
					factor_columns(cols + lo, x + (i * f->cols + lo - f->first), scale,
						       hi - lo);
			}
	}
	return 0;
}

static DT_SIMD void factor_roots(double *root, const float *c, int64_t n)
{
	for (int64_t j = 0; j < n; j++)
		root[j] = sqrt((double)c[j]);
}

static DT_SIMD void turn(float *g, const double *root, double of_row, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		g[j] = (float)(g[j] * of_row / root[j]);
}

int dt_cpu_factor_direction(struct dt_dev *dev, struct dt_tensor g, struct dt_tensor r, struct dt_tensor c,
			    const struct dt_factor *f)
{
	const int64_t n = dt_numel(g), from = f->first / f->cols, to = (f->first + n - 1) / f->cols;
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	double *root = dt_cpu_scratch(dev, dt_factor_direction_scratch(&on, f->cols));

	if (!root)
		return -ENOMEM;
	factor_roots(root, c.data, f->cols);
#pragma omp parallel for num_threads(dev->nthreads) if (n > DT_SERIAL)
	for (int64_t i = from; i <= to; i++) {
		int64_t at, m = row_part(f, n, i, &at);

		turn((float *)g.data + (at - f->first), root + at % f->cols,
		     (double)f->scale * sqrt(f->sum / (double)((const float *)r.data)[i]), m);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
