#include "kernels/cpu/cpu.h"

#include <math.h>

/* The elements [*at, end) of matrix row i that are among the n given; returns their number. */
static int64_t row_part(const struct dt_factor *f, int64_t n, int64_t i, int64_t *at)
{
	const int64_t lo = i * f->cols, hi = lo + f->cols, last = f->first + n;

	*at = lo > f->first ? lo : f->first;
	return (hi < last ? hi : last) - *at;
}

static DT_SIMD double row_sum(const float *g, double *cols, double scale, int64_t n)
{
	double sum = 0;

	for (int64_t j = 0; j < n; j++) {
		const double d = g[j] * scale, sq = d * d + 1e-30;

		cols[j] += sq;
		sum += sq;
	}
	return sum;
}

int dt_cpu_factor_sums(struct dt_dev *dev, double *rows, double *cols, struct dt_tensor g,
		       const struct dt_factor *f)
{
	const int64_t n = dt_numel(g), from = f->first / f->cols, to = (f->first + n - 1) / f->cols;

	for (int64_t i = from; i <= to; i++) {
		int64_t at, m = row_part(f, n, i, &at);

		rows[i] += row_sum((const float *)g.data + (at - f->first), cols + at % f->cols,
				   (double)f->scale, m);
	}
	return 0;
}

static DT_SIMD void turn(float *g, const float *c, double of_row, int64_t n)
{
	for (int64_t j = 0; j < n; j++)
		g[j] = (float)(g[j] * of_row / sqrt((double)c[j]));
}

int dt_cpu_factor_direction(struct dt_dev *dev, struct dt_tensor g, struct dt_tensor r, struct dt_tensor c,
			    const struct dt_factor *f)
{
	const int64_t n = dt_numel(g), from = f->first / f->cols, to = (f->first + n - 1) / f->cols;

#pragma omp parallel for num_threads(dev->nthreads) if (n > DT_SERIAL)
	for (int64_t i = from; i <= to; i++) {
		int64_t at, m = row_part(f, n, i, &at);

		turn((float *)g.data + (at - f->first), (const float *)c.data + at % f->cols,
		     (double)f->scale * sqrt(f->sum / (double)((const float *)r.data)[i]), m);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
