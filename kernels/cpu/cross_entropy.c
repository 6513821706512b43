#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

#include <math.h>

#define LANES 64

/* OpenMP's own max reduction starts from the least finite number on some compilers, not from -Inf. */
DT_INLINE float chunk_max(const float *p, int64_t n, float m)
{
	const int64_t even = n / LANES * LANES;
	float lane[LANES];

	for (int k = 0; k < LANES; k++)
		lane[k] = m;
	for (int64_t j = 0; j < even; j += LANES)
#pragma omp simd
		for (int k = 0; k < LANES; k++)
			lane[k] = p[j + k] > lane[k] ? p[j + k] : lane[k];
	for (int k = 0; k < LANES; k++)
		m = lane[k] > m ? lane[k] : m;
	for (int64_t j = even; j < n; j++)
		m = p[j] > m ? p[j] : m;
	return m;
}

static DT_SIMD void stats_row(float *rowmax, float *sumexp, struct dt_tensor l, int64_t row)
{
	const int64_t n = dt_cols(l);
	float buf[DT_CHUNK], max = -INFINITY, sum = 0;

	for (int64_t c = 0; c < n; c += DT_CHUNK) {
		const int64_t w = dt_min64(DT_CHUNK, n - c);
		const float *p = dt_load(buf, dt_at(l, row * n + c), l.dtype, w);
		float m = max, part = 0;

		m = chunk_max(p, w, m);
		if (m > max) {
			sum = sum ? sum * dt_expf(max - m) : 0;
			max = m;
		}
		/* All of -Inf so far: each adds nothing, where -Inf - -Inf would be NaN. */
		const float base = max == -INFINITY ? 0 : max;

#pragma omp simd reduction(+ : part)
		for (int64_t j = 0; j < w; j++)
			part += dt_expf_bounded(p[j] - base);
		sum += part;
	}
	rowmax[row] = max;
	sumexp[row] = sum;
}

int dt_cpu_ce_stats(struct dt_dev *dev, float *rowmax, float *sumexp, float *target_logit,
		    struct dt_tensor logits, const int32_t *targets, int64_t vocab_first)
{
	const int64_t rows = dt_rows(logits), n = dt_cols(logits);

#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++) {
		const int64_t t = targets[i] - vocab_first;
		float one;

		stats_row(rowmax, sumexp, logits, i);
		target_logit[i] = 0;
		if (targets[i] >= 0 && t >= 0 && t < n)
			target_logit[i] = *dt_load(&one, dt_at(logits, i * n + t), logits.dtype, 1);
	}
	return 0;
}

static DT_SIMD void grad_row(struct dt_tensor d, struct dt_tensor l, float rowmax, float sumexp,
			     int64_t target, float scale, int64_t row)
{
	const int64_t n = dt_cols(l);
	const float k = scale / sumexp;
	float buf[DT_CHUNK];

	for (int64_t c = 0; c < n; c += DT_CHUNK) {
		const int64_t w = dt_min64(DT_CHUNK, n - c);
		const float *p = dt_load(buf, dt_at(l, row * n + c), l.dtype, w);
		float *out = dt_stage(buf, dt_at(d, row * n + c), d.dtype);

#pragma omp simd
		for (int64_t j = 0; j < w; j++)
			out[j] = k * dt_expf(p[j] - rowmax);
		if (target >= c && target < c + w)
			out[target - c] -= scale;
		dt_store(dt_at(d, row * n + c), d.dtype, out, w);
	}
}

int dt_cpu_ce_grad(struct dt_dev *dev, struct dt_tensor dlogits, struct dt_tensor logits, const float *rowmax,
		   const float *sumexp, const int32_t *targets, const float *weight, float scale,
		   int64_t vocab_first)
{
	const int64_t rows = dt_rows(logits), n = dt_cols(logits);

#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++) {
		if (targets[i] < 0)
			memset(dt_at(dlogits, i * n), 0, (size_t)(n * dt_dtype_size(dlogits.dtype)));
		else
			grad_row(dlogits, logits, rowmax[i], sumexp[i], targets[i] - vocab_first,
				 weight ? scale * weight[i] : scale, i);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
