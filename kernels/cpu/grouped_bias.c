/* Biases of grouped products (grouped.h). */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

struct biased {
	struct dt_tensor y, b[2];
	const struct dt_grouped *g;
	int64_t n[2]; /* columns of each */
};

static bool ascends(const struct dt_grouped *g, int64_t rows)
{
	for (int64_t i = 0; i < g->n; i++)
		if (g->first[i] > g->first[i + 1])
			return false;
	return g->first[0] == 0 && g->first[g->n] <= rows;
}

/* The group of row r, which one has. */
static int64_t group_of(const struct dt_grouped *g, int64_t r)
{
	int64_t lo = 0, hi = g->n - 1;

	while (lo < hi) {
		const int64_t mid = (lo + hi + 1) / 2;

		if (g->first[mid] <= r)
			lo = mid;
		else
			hi = mid - 1;
	}
	return lo;
}

static DT_SIMD void add_row(void *y, enum dt_dtype t, const void *b, enum dt_dtype bt, int64_t n)
{
	float by[DT_CHUNK], bb[DT_CHUNK];

	for (int64_t c = 0; c < n; c += DT_CHUNK) {
		const int64_t w = dt_min64(DT_CHUNK, n - c);
		void *at = (char *)y + c * dt_dtype_size(t);
		const float *x = dt_load(by, at, t, w),
			    *add = dt_load(bb, (const char *)b + c * dt_dtype_size(bt), bt, w);
		float *to = dt_stage(by, at, t);

#pragma omp simd
		for (int64_t j = 0; j < w; j++)
			to[j] = x[j] + add[j];
		dt_store(at, t, to, w);
	}
}

static void some_rows(void *arg, int t, int64_t first, int64_t last)
{
	const struct biased *a = arg;

	for (int64_t r = first; r < last; r++) {
		const int64_t e = group_of(a->g, r) % a->g->experts;

		for (int i = 0; i < 2; i++)
			if (a->n[i])
				add_row(dt_at(a->y, r * dt_cols(a->y) + (i ? a->n[0] : 0)), a->y.dtype,
					dt_at(a->b[i], e * a->n[i]), a->b[i].dtype, a->n[i]);
	}
}

static struct biased biased_of(struct dt_tensor y, struct dt_tensor b, struct dt_tensor b2,
			       const struct dt_grouped *g)
{
	return (struct biased){
		y, {b, b2}, g, {dt_numel(b) / g->experts, b2.data ? dt_numel(b2) / g->experts : 0}};
}

int dt_cpu_grouped_bias(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor b, struct dt_tensor b2,
			const struct dt_grouped *g)
{
	struct biased a = biased_of(y, b, b2, g);

	if (!ascends(g, dt_rows(y)))
		return -EINVAL;
	dt_cpu_rows(dev, g->first[g->n], dt_cols(y), some_rows, &a);
	return 0;
}

enum { COLS = 256 };

/* db [n] += the columns at + 0 .. n - 1 of expert e's rows of dy, in order. */
static DT_SIMD void sum_columns(float *db, struct dt_tensor dy, const struct dt_grouped *g, int64_t e,
				int64_t at, int64_t n)
{
	double sum[COLS] = {0};
	float buf[COLS];

	for (int64_t k = e; k < g->n; k += g->experts)
		for (int64_t r = g->first[k]; r < g->first[k + 1]; r++) {
			const float *x = dt_load(buf, dt_at(dy, r * dt_cols(dy) + at), dy.dtype, n);

#pragma omp simd
			for (int64_t j = 0; j < n; j++)
				sum[j] += (double)x[j];
		}
	for (int64_t j = 0; j < n; j++)
		db[j] += (float)sum[j];
}

int dt_cpu_grouped_bias_backward(struct dt_dev *dev, struct dt_tensor db, struct dt_tensor db2,
				 struct dt_tensor dy, const struct dt_grouped *g)
{
	const struct biased a = biased_of(dy, db, db2, g);
	int64_t parts[2];

	if (!ascends(g, dt_rows(dy)))
		return -EINVAL;
	for (int i = 0; i < 2; i++)
		parts[i] = g->experts * dt_ceil_div(a.n[i], COLS);
#pragma omp parallel for num_threads(dev->nthreads) schedule(dynamic)
	for (int64_t p = 0; p < parts[0] + parts[1]; p++) {
		const int i = p >= parts[0];
		const int64_t q = i ? p - parts[0] : p, e = q % g->experts, c = q / g->experts * COLS;

		sum_columns((float *)a.b[i].data + e * a.n[i] + c, dy, g, e, (i ? a.n[0] : 0) + c,
			    dt_min64(COLS, a.n[i] - c));
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
