/* Attention by f64 loops over the whole matrix, shapes to test it with, and the device: three threads. */
#ifndef DT_TESTS_KERNELS_ATTENTION_REF_H
#define DT_TESTS_KERNELS_ATTENTION_REF_H

#define GROUP_THREADS 3
#include "group.h"
#include "kernels/attention.h"
#include "kernels/cpu/tile.h"

/* Whether a test of tiles of AMX, or of what stands in for them, has none here. */
static bool without_tiles(void)
{
	const bool none = getenv("DT_AMX") && !dt_tile_with_amx(DT_BF16)->begin;

	if (none)
		puts("no AVX512_BF16: attention here has no tiles of AMX");
	return none;
}

static inline int64_t width(const struct dt_attn *p)
{
	return (p->heads + 2 * p->kv_heads) * p->head_dim;
}

static inline bool sees(const struct dt_attn *p, int64_t i, int64_t j)
{
	return j <= i && (p->window <= 0 || i - j < p->window);
}

/* p_ij of row i of head h, and the log of its normaliser. */
static inline double ref_row(double *prob, const struct dt_attn *p, const double *x, int64_t b, int64_t h,
			     int64_t i)
{
	const int64_t d = p->head_dim, W = width(p), kv = h / (p->heads / p->kv_heads);
	double max = -INFINITY, sum = 0;

	for (int64_t j = 0; j < p->seq; j++) {
		double s = 0;

		for (int64_t c = 0; c < d; c++)
			s += x[(b * p->seq + i) * W + h * d + c] *
			     x[(b * p->seq + j) * W + (p->heads + kv) * d + c];
		s *= p->scale;
		if (p->softcap > 0)
			s = p->softcap * tanh(s / p->softcap);
		prob[j] = sees(p, i, j) ? s : -INFINITY;
		max = fmax(max, prob[j]);
	}
	for (int64_t j = 0; j < p->seq; j++)
		sum += prob[j] = exp(prob[j] - max);
	for (int64_t j = 0; j < p->seq; j++)
		prob[j] /= sum;
	return max + log(sum);
}

static inline void ref_forward(double *o, double *lse, const struct dt_attn *p, const double *x)
{
	const int64_t d = p->head_dim, W = width(p);
	double *prob = reals(p->seq);

	for (int64_t u = 0; u < p->batch * p->heads * p->seq; u++) {
		const int64_t b = u / p->heads / p->seq, h = u / p->seq % p->heads, i = u % p->seq;
		const int64_t v = (p->heads + p->kv_heads + h / (p->heads / p->kv_heads)) * d;

		lse[u] = ref_row(prob, p, x, b, h, i);
		for (int64_t c = 0; c < d; c++) {
			double s = 0;

			for (int64_t j = 0; j < p->seq; j++)
				s += prob[j] * x[(b * p->seq + j) * W + v + c];
			o[((b * p->seq + i) * p->heads + h) * d + c] = s;
		}
	}
	free(prob);
}

static const struct dt_attn shapes[] = {
	{2, 37, 4, 4, 16, 0, 0.25f},	{1, 64, 2, 1, 64, 0, 0.125f},	{1, 130, 6, 2, 24, 0, 0.2f},
	{2, 150, 2, 2, 64, 50, 0.125f}, {1, 70, 1, 1, 256, 0, 0.0625f}, {1, 1, 3, 3, 33, 0, 0.3f},
	{1, 200, 4, 2, 80, 7, 0.11f},	{1, 65, 2, 2, 127, 64, 0.1f},	{1, 70, 4, 2, 24, 0, 0.3f, 0.8f},
	{2, 66, 2, 1, 64, 20, 0.2f, 2},
};
#define SHAPES (int)(sizeof shapes / sizeof *shapes)

#endif
/* SPDX-License-Identifier: Apache-2.0 */
