/* Compiled without contraction, as moe.h says. */
#include "kernels/cpu/cpu.h"

#include <math.h>

static float key(float s)
{
	return isnan(s) ? -INFINITY : s;
}

/* The experts of one row and their weights. */
static void choose(const struct dt_moe *p, const float *s, int32_t *expert, float *weight)
{
	float top[DT_MOE_MOST];
	double sum = 0;
	int64_t n = 0, at;

	/* Kept in order; of equal ones the later stays behind. */
	for (int32_t e = 0; e < p->experts; e++) {
		const float k = key(s[e]);

		if (n == p->used && !(k > top[n - 1]))
			continue;
		n += n < p->used;
		for (at = n - 1; at > 0 && k > top[at - 1]; at--) {
			top[at] = top[at - 1];
			expert[at] = expert[at - 1];
		}
		top[at] = k;
		expert[at] = e;
	}
	for (int64_t j = 0; j < p->used; j++) {
		weight[j] = expf(s[expert[j]] - s[expert[0]]);
		sum += (double)weight[j];
	}
	if (p->unscaled) {
		sum = 0;
		for (int64_t e = 0; e < p->experts; e++)
			sum += (double)expf(s[e] - s[expert[0]]);
	}
	for (int64_t j = 0; j < p->used; j++)
		weight[j] = (float)((double)weight[j] / sum);
}

int dt_cpu_moe_route(struct dt_dev *dev, int32_t *expert, float *weight, struct dt_tensor score,
		     const struct dt_moe *p)
{
	const int64_t rows = dt_rows(score);

#pragma omp parallel for num_threads(dev->nthreads) if (rows * p->experts * p->used > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++)
		choose(p, (const float *)score.data + i * p->experts, expert + i * p->used,
		       weight + i * p->used);
	return 0;
}

/* Counting sort. */
int dt_cpu_moe_sort(struct dt_dev *dev, int32_t *first, int32_t *at, int32_t *from, const int32_t *expert,
		    int64_t choices, int64_t experts)
{
	int32_t next[DT_MOE_MOST + 1] = {0};

	for (int64_t i = 0; i < choices; i++) {
		if (expert[i] < 0 || expert[i] >= experts)
			return -EINVAL;
		next[expert[i] + 1]++;
	}
	for (int64_t e = 0; e < experts; e++)
		next[e + 1] += next[e];
	memcpy(first, next, (size_t)(experts + 1) * sizeof *first);
	for (int64_t i = 0; i < choices; i++) {
		at[i] = next[expert[i]]++;
		from[at[i]] = (int32_t)i;
	}
	return 0;
}

/* sum += w x */
static DT_SIMD void add_weighted(float *restrict sum, float w, const float *restrict x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		sum[i] += w * x[i];
}

static DT_SIMD void round_part(struct dt_tensor y, int64_t at, const float *from, int64_t n)
{
	dt_store(dt_at(y, at), y.dtype, from, n);
}

/* Columns [c, c + n) of row i. */
static void sum_part(struct dt_tensor y, struct dt_tensor x, const int32_t *at, const float *weight,
		     int64_t used, int64_t i, int64_t c, int64_t n)
{
	const int64_t cols = dt_cols(y);
	float buf[DT_CHUNK], *sum = dt_stage(buf, dt_at(y, i * cols + c), y.dtype);

	memset(sum, 0, (size_t)n * sizeof *sum);
	for (int64_t j = i * used; j < (i + 1) * used; j++)
		add_weighted(sum, weight[j], (const float *)x.data + at[j] * cols + c, n);
	round_part(y, i * cols + c, sum, n);
}

int dt_cpu_moe_sum(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const int32_t *at,
		   const float *weight)
{
	const int64_t n = dt_cols(y), rows = dt_rows(y), choices = dt_rows(x);
	const int64_t used = rows ? choices / rows : 0;

	if (!dt_within(at, choices, choices))
		return -EINVAL;
#pragma omp parallel for num_threads(dev->nthreads) if (choices * n > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++)
		for (int64_t c = 0; c < n; c += DT_CHUNK)
			sum_part(y, x, at, weight, used, i, c, dt_min64(DT_CHUNK, n - c));
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
