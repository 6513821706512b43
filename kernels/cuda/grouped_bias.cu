/* Biases of grouped products: reads and writes y once; backward reads dy once. */
#include "kernels/cuda/sorted.h"

#define THREADS 256

struct biased {
	void *y, *b[2];
	int ty, tb;
	int64_t n[2], cols, experts; /* columns of each bias, and of y */
	struct dt_sorted set;
};

/* A block has a row. */
__global__ void __launch_bounds__(THREADS) bias_kernel(struct biased a)
{
	int64_t row, end;

	dt_sorted_look(a.set);
	const int g = dt_sorted_find<1>(a.set, blockIdx.x, &row, &end);

	if (g < 0)
		return;
	const int64_t e = g % a.experts;

	for (int64_t j = threadIdx.x; j < a.cols; j += THREADS) {
		const bool second = j >= a.n[0];
		const float b = second ? dt_ld1(a.b[1], a.tb, e * a.n[1] + j - a.n[0])
				       : dt_ld1(a.b[0], a.tb, e * a.n[0] + j);

		dt_st1(a.y, a.ty, row * a.cols + j, dt_ld1(a.y, a.ty, row * a.cols + j) + b);
	}
}

/* A block has 32 columns of an expert: each of its 8 warps every 8th row of a group. */
__global__ void __launch_bounds__(THREADS) bias_back_kernel(struct biased a)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	const int64_t j = (int64_t)blockIdx.x * 32 + lane, e = blockIdx.y;
	float *s = (float *)dt_shared(), sum = 0;

	dt_sorted_look(a.set);
	for (int64_t g = e; g < a.set.n; g += a.experts) {
		dt_touch(a.set.first + g, 4);
		dt_touch(a.set.first + g + 1, 4);
		const int64_t from = a.set.first[g] < 0 ? 0 : a.set.first[g],
			      last = dt_min64(a.set.first[g + 1], a.set.rows);

		for (int64_t r = from + warp; r < last && j < a.cols; r += 8)
			sum += dt_ld1(a.y, a.ty, r * a.cols + j);
	}
	s[warp * 32 + lane] = sum;
	__syncthreads();
	if (warp || j >= a.cols)
		return;
	float all = 0;

	for (int w = 0; w < 8; w++)
		all += s[w * 32 + lane];
	const bool second = j >= a.n[0];
	void *to = a.b[second];
	const int64_t at = second ? e * a.n[1] + j - a.n[0] : e * a.n[0] + j;

	dt_st1(to, DT_F32, at, dt_ld1(to, DT_F32, at) + all);
}

static struct biased biased_of(const struct dt_cuda *c, struct dt_tensor y, struct dt_tensor b,
			       struct dt_tensor b2, const struct dt_grouped *g)
{
	struct biased a = {};

	a.y = y.data;
	a.b[0] = b.data;
	a.b[1] = b2.data;
	a.ty = y.dtype;
	a.tb = b.dtype;
	a.n[0] = dt_numel(b) / g->experts;
	a.n[1] = b2.data ? dt_numel(b2) / g->experts : 0;
	a.cols = dt_cols(y);
	a.experts = g->experts;
	a.set.first = g->first;
	a.set.n = (int)g->n;
	a.set.rows = dt_rows(y);
	a.set.bad = c->bad;
	return a;
}

int dt_cuda_grouped_bias(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor b, struct dt_tensor b2,
			 const struct dt_grouped *g)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, bias_kernel, (unsigned)dt_rows(y), THREADS, 0, biased_of(c, y, b, b2, g));
}

int dt_cuda_grouped_bias_backward(struct dt_dev *dev, struct dt_tensor db, struct dt_tensor db2,
				  struct dt_tensor dy, const struct dt_grouped *g)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, bias_back_kernel,
			 dim3((unsigned)dt_ceil_div(dt_cols(dy), 32), (unsigned)g->experts), THREADS,
			 THREADS * 4, biased_of(c, dy, db, db2, g));
}
/* SPDX-License-Identifier: Apache-2.0 */
