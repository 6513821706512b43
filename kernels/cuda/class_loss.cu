/* One row per warp, read once each for the maximum, the sums and the gradient. */
#include "kernels/cuda/kernel.h"

#define ROWS 8 /* rows per block */

struct class_work {
	float *loss;
	int32_t *above, *bad;
	void *d; /* NULL: no gradient */
	int td;
	const float *l, *share;
	const int32_t *targets, *others;
	int64_t rows, k;
	float smoothing, scale;
	int loss_kind; /* enum dt_class_loss */
};

DT_DEVICE void ignored(const struct class_work &a, int64_t row, int lane)
{
	for (int64_t j = lane; a.d && j < a.k; j += 32)
		dt_st1(a.d, a.td, row * a.k + j, 0);
	if (lane == 0) {
		dt_touch(a.loss + row, 4);
		dt_touch(a.above + row, 4);
		a.loss[row] = 0;
		a.above[row] = -1;
	}
}

/* A single logit against a score. */
DT_DEVICE void scored(const struct class_work &a, int64_t row, int lane)
{
	const float l = dt_ld1(a.l, DT_F32, row), s = a.share[row], e = expf(-fabsf(l));
	const bool mse = a.loss_kind == DT_CLASS_LOSS_MSE;
	const float loss = mse ? (l - s) * (l - s) : (l > 0 ? l : 0) - s * l + log1pf(e);

	if (lane)
		return;
	if (a.targets[row] >= a.k) {
		*a.bad = 1;
		return;
	}
	dt_touch(a.loss + row, 4);
	dt_touch(a.above + row, 4);
	a.loss[row] = loss;
	a.above[row] = loss != loss || (!mse && (l > 0) != (s > 0.5f));
	if (a.d)
		dt_st1(a.d, a.td, row, a.scale * (mse ? 2 * (l - s) : (l < 0 ? e : 1) / (1 + e) - s));
}

__global__ void __launch_bounds__(32 * ROWS) class_loss_kernel(struct class_work a)
{
	const int lane = (int)threadIdx.x % 32;
	const int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x / 32;

	if (row >= a.rows)
		return;
	const float *l = a.l + row * a.k;
	const int64_t target = a.targets[row];

	if (target < 0) {
		ignored(a, row, lane);
		return;
	}
	if (a.loss_kind != DT_CLASS_LOSS_CE) {
		scored(a, row, lane);
		return;
	}
	const float share = a.share ? a.share[row] : 1, e = a.smoothing;
	const int64_t other = share < 1 ? a.others[row] : 0;

	if (target >= a.k || other < 0 || other >= a.k) {
		*a.bad = 1;
		return;
	}
	const float of_target = dt_ld1(l, DT_F32, target), of_other = dt_ld1(l, DT_F32, other);
	float max = -INFINITY, sum = 0, mean = 0;
	int above = 0;

	for (int64_t j = lane; j < a.k; j += 32) {
		const float v = dt_ld1(l, DT_F32, j);

		max = v > max ? v : max;
		above += v > of_target || (v == of_target && j < target) || v != v;
	}
	max = dt_warp_max(max);
	for (int64_t j = lane; j < a.k; j += 32) {
		const float v = dt_ld1(l, DT_F32, j) - max;

		sum += expf(v);
		mean += v;
	}
	sum = dt_warp_sum(sum);
	mean = dt_warp_sum(mean) / (float)a.k;
	above = dt_warp_sum(above);
	if (lane == 0) {
		const float hit =
			share * (of_target - max) + (share < 1 ? (1 - share) * (of_other - max) : 0);

		dt_touch(a.loss + row, 4);
		dt_touch(a.above + row, 4);
		a.loss[row] = logf(sum) - (1 - e) * hit - e * mean;
		a.above[row] = of_target != of_target ? (int32_t)a.k : above;
	}
	for (int64_t j = lane; a.d && j < a.k; j += 32) {
		float g = expf(dt_ld1(l, DT_F32, j) - max) / sum - e / (float)a.k;

		g -= j == target ? (1 - e) * share : 0;
		g -= share < 1 && j == other ? (1 - e) * (1 - share) : 0;
		dt_st1(a.d, a.td, row * a.k + j, a.scale * g);
	}
}

int dt_cuda_class_loss(struct dt_dev *dev, float *loss, int32_t *above, struct dt_tensor dlogits,
		       struct dt_tensor logits, const struct dt_classes *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(logits), k = dt_cols(logits);
	struct class_work a = {};

	if (!c)
		return -ENODEV;
	a.loss = loss;
	a.above = above;
	a.bad = c->bad;
	a.d = dlogits.data;
	a.td = (int)dlogits.dtype;
	a.l = (const float *)logits.data;
	a.share = p->share;
	a.targets = p->targets;
	a.others = p->others;
	a.rows = rows;
	a.k = k;
	a.smoothing = p->smoothing;
	a.loss_kind = p->loss;
	a.scale = p->scale;
	return DT_LAUNCH(c, class_loss_kernel, (unsigned)dt_ceil_div(rows, ROWS), 32 * ROWS, 0, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
