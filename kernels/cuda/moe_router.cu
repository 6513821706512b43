/* The router of mixtures of experts, one row of scores per warp. Sorting and gathering: moe.cu. */
#include "kernels/cuda/kernel.h"

/* A candidate expert; e < 0: none. */
struct best {
	float s;
	int e;
};

DT_DEVICE bool before(struct best a, struct best b)
{
	return a.e >= 0 && (b.e < 0 || a.s > b.s || (a.s == b.s && a.e < b.e));
}

/* The best of the warp's candidates; ties go to the lower index. */
DT_DEVICE struct best best_of_warp(struct best b)
{
	for (int by = 16; by; by >>= 1) {
		const struct best o = {__shfl_xor_sync(DT_ALL, b.s, by), __shfl_xor_sync(DT_ALL, b.e, by)};

		b = before(o, b) ? o : b;
	}
	return b;
}

DT_DEVICE float sigmoid(float s)
{
	return 1.f / (1.f + expf(-s));
}

struct route {
	int32_t *expert;
	float *weight;
	const float *score, *bias;
	struct dt_moe p;
	int64_t rows;
};

/* An expert's value in the choice; s: the row's scores. NaN is below everything. */
DT_DEVICE float worth(const struct route &a, const float *s, int64_t e)
{
	const float x = dt_ld1(s, DT_F32, e), v = a.p.sigmoid ? sigmoid(x) : x;
	const float w = a.bias ? v + dt_ld1(a.bias, DT_F32, e) : v;

	return isnan(w) ? -INFINITY : w;
}

/* The warp's best expert not in `taken`: lane l has experts l, l + 32 ..., at most 64, one bit each. */
template <class F> DT_DEVICE int take_best(uint64_t &taken, int64_t n, F value)
{
	const int lane = (int)threadIdx.x % 32;
	struct best b = {0, -1};

	for (int i = lane; i < n; i += 32) {
		const struct best c = {taken >> i / 32 & 1 ? 0 : value(i), taken >> i / 32 & 1 ? -1 : i};

		b = before(c, b) ? c : b;
	}
	b = best_of_warp(b);
	if (b.e >= 0 && b.e % 32 == lane)
		taken |= (uint64_t)1 << b.e / 32;
	return b.e;
}

/* A group's value: its best expert, or the sum of its two best. */
DT_DEVICE float group_worth(const struct route &a, const float *s, int64_t g)
{
	const int64_t each = a.p.experts / a.p.groups, first = g * each;
	const int lane = (int)threadIdx.x % 32;
	struct best top = {0, -1}, next = {0, -1};

	for (int64_t i = lane; i < each; i += 32) {
		const struct best c = {worth(a, s, first + i), (int)i};

		next = before(c, top) ? top : before(c, next) ? c : next;
		top = before(c, top) ? c : top;
	}
	const struct best most = best_of_warp(top), second = best_of_warp(most.e == top.e ? next : top);

	return a.p.sigmoid && each > 1 ? most.s + second.s : most.s;
}

/* in[g]: whether group g takes part; of, in: this warp's shared memory. */
DT_DEVICE void choose_groups(const struct route &a, const float *s, float *of, int *in)
{
	const int lane = (int)threadIdx.x % 32;
	uint64_t taken = 0;

	for (int64_t g = 0; g < a.p.groups; g++) {
		const float w = group_worth(a, s, g);

		if (lane == 0) {
			of[g] = w;
			in[g] = 0;
		}
	}
	__syncwarp();
	for (int64_t n = 0; n < a.p.groups_used; n++) {
		const int g = take_best(taken, a.p.groups, [=](int i) { return of[i]; });

		if (lane == 0 && g >= 0)
			in[g] = 1;
	}
	__syncwarp();
}

__global__ void __launch_bounds__(128, 8) route_kernel(struct route a)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	const int64_t i = (int64_t)blockIdx.x * 4 + warp, groups = a.p.groups > 1 ? a.p.groups : 0;
	const int64_t each = groups ? a.p.experts / groups : 0;
	const float *s = a.score + i * a.p.experts;
	const double scale = a.p.scale > 0 ? (double)a.p.scale : 1;
	float *of = (float *)dt_shared() + warp * 2 * groups, top = 0;
	int *in = (int *)(of + groups);
	uint64_t taken = 0;
	double sum = 0;

	if (i >= a.rows)
		return;
	if (groups) {
		choose_groups(a, s, of, in);
		for (int e = lane; e < a.p.experts; e += 32)
			taken |= (uint64_t)!in[e / each] << e / 32;
	}
	for (int64_t j = 0; j < a.p.used; j++) {
		const int e = take_best(taken, a.p.experts, [=](int k) { return worth(a, s, k); });

		top = j ? top : dt_ld1(s, DT_F32, e);
		if (lane == 0)
			a.expert[i * a.p.used + j] = e;
	}
	for (int e = lane; e < a.p.experts && (a.bias || groups); e += 32) {
		const float v = dt_ld1(s, DT_F32, e);

		top = v > top ? v : top;
	}
	if (a.bias || groups)
		top = dt_warp_max(top);
	__syncwarp(); /* the experts have been written */
	for (int64_t j = i * a.p.used; j < (i + 1) * a.p.used; j++) {
		const float v = dt_ld1(s, DT_F32, a.expert[j]);
		const float w = a.p.sigmoid ? sigmoid(v) : expf(v - top);

		sum += (double)w;
		if (lane == 0)
			dt_st1(a.weight, DT_F32, j, w);
	}
	if (a.p.sigmoid) {
		sum = a.p.unscaled ? 1 : sum + 1e-20;
	} else if (a.p.unscaled) {
		sum = 0;
		for (int e = lane; e < a.p.experts; e += 32)
			sum += (double)expf(dt_ld1(s, DT_F32, e) - top);
		sum = dt_warp_sum(sum);
	}
	__syncwarp();
	for (int64_t j = i * a.p.used + lane; j < (i + 1) * a.p.used; j += 32)
		dt_st1(a.weight, DT_F32, j, (float)((double)dt_ld1(a.weight, DT_F32, j) * scale / sum));
}

int dt_cuda_moe_route(struct dt_dev *dev, int32_t *expert, float *weight, struct dt_tensor score,
		      struct dt_tensor bias, const struct dt_moe *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct route a = {expert, weight,	       (const float *)score.data, (const float *)bias.data,
				*p,	dt_rows(score)};
	const size_t smem = p->groups > 1 ? (size_t)p->groups * 32 : 0;

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, route_kernel, (unsigned)dt_ceil_div(a.rows, 4), 128, smem, a);
}

struct back {
	float *dscore;
	const float *dweight, *score, *load;
	const int32_t *expert;
	double *sums; /* [rows, 2] sums of the losses; NULL: not needed */
	double balance, z;
	int64_t rows, load_rows;
	struct dt_moe p;
	int32_t *bad;
};

/* Backward of the choices' weights through the softmax, over used or all experts, or the sigmoid. */
DT_DEVICE void through_weights(const struct back &a, int64_t i, const double *prob, double *d)
{
	const int lane = (int)threadIdx.x % 32;
	const double scale = a.p.scale > 0 ? (double)a.p.scale : 1;
	double sum = 0, mean = 0;

	for (int64_t j = i * a.p.used; j < (i + 1) * a.p.used; j++) {
		sum += prob[a.expert[j]];
		mean += (double)dt_ld1(a.dweight, DT_F32, j) * prob[a.expert[j]];
	}
	if (a.p.unscaled)
		sum = 1; /* softmax over all experts: the sum is one */
	else if (a.p.sigmoid)
		sum += 1e-20;
	mean = a.p.sigmoid && a.p.unscaled ? 0 : mean / sum;
	for (int64_t j = i * a.p.used + lane; j < (i + 1) * a.p.used; j += 32) {
		const double s = prob[a.expert[j]], g = scale / sum * s, dw = dt_ld1(a.dweight, DT_F32, j);

		d[a.expert[j]] += a.p.sigmoid	 ? g * (dw - mean) * (1 - s)
				  : a.p.unscaled ? g * dw
						 : g * (dw - mean);
	}
	__syncwarp();
	for (int64_t e = lane; e < a.p.experts && a.p.unscaled && !a.p.sigmoid; e += 32)
		d[e] -= scale * prob[e] * mean;
}

/* Backward of balance sum_i load_i p_i of the row, p as in moe.h; returns sum_i load_i p_i. */
DT_DEVICE double through_balance(const struct back &a, const float *load, const double *prob, double *d)
{
	const int lane = (int)threadIdx.x % 32;
	double sum = 0, mean = 0;

	for (int64_t e = lane; e < a.p.experts; e += 32) {
		sum += prob[e];
		mean += (double)dt_ld1(load, DT_F32, e) * prob[e];
	}
	sum = a.p.sigmoid ? dt_warp_sum(sum) + 1e-20 : 1;
	mean = dt_warp_sum(mean) / sum;
	for (int64_t e = lane; e < a.p.experts; e += 32)
		d[e] += a.balance * prob[e] / sum * ((double)dt_ld1(load, DT_F32, e) - mean) *
			(a.p.sigmoid ? 1 - prob[e] : 1);
	return mean;
}

/* prob: the softmax of the row's scores, or their sigmoids; d: 2 z lse softmax. Returns lse. */
DT_DEVICE double through_lse(const struct back &a, const float *s, double *prob, double *d)
{
	const int lane = (int)threadIdx.x % 32;
	float top = -INFINITY;
	double sum = 0;

	for (int64_t e = lane; e < a.p.experts; e += 32) {
		const float v = dt_ld1(s, DT_F32, e);

		top = v > top ? v : top;
	}
	top = dt_warp_max(top);
	for (int64_t e = lane; e < a.p.experts; e += 32) {
		prob[e] = exp((double)dt_ld1(s, DT_F32, e) - (double)top);
		sum += prob[e];
	}
	sum = dt_warp_sum(sum);
	const double lse = (double)top + log(sum);

	for (int64_t e = lane; e < a.p.experts; e += 32) {
		prob[e] /= sum;
		d[e] = 2 * a.z * lse * prob[e];
		if (a.p.sigmoid)
			prob[e] = 1 / (1 + exp(-(double)dt_ld1(s, DT_F32, e)));
	}
	__syncwarp();
	return lse;
}

/* One row per warp of the block; a row with an invalid expert is left alone. */
__global__ void __launch_bounds__(128) route_back_kernel(struct back a)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	const int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + warp, n = a.p.experts;
	double *prob = (double *)dt_shared() + warp * 2 * n, *d = prob + n, lse, mean = 0;
	bool out = false;

	if (i >= a.rows)
		return;
	for (int64_t j = i * a.p.used + lane; j < (i + 1) * a.p.used; j += 32) {
		dt_touch(a.expert + j, 4);
		out |= a.expert[j] < 0 || a.expert[j] >= n;
	}
	if (__ballot_sync(DT_ALL, out)) {
		*a.bad = 1;
		return;
	}
	lse = through_lse(a, a.score + i * n, prob, d);
	through_weights(a, i, prob, d);
	__syncwarp();
	if (a.load)
		mean = through_balance(a, a.load + i / a.load_rows * n, prob, d);
	for (int64_t e = lane; e < n; e += 32)
		dt_st1(a.dscore, DT_F32, i * n + e, (float)d[e]);
	if (lane == 0 && a.sums) {
		a.sums[2 * i] = mean;
		a.sums[2 * i + 1] = lse * lse;
	}
}

/* One block: both sums over rows, in a fixed order. */
__global__ void __launch_bounds__(256) loss_kernel(double *ret, const double *sums, int64_t rows)
{
	for (int k = 0; k < 2; k++) {
		double sum = 0;

		for (int64_t i = threadIdx.x; i < rows; i += 256)
			sum += sums[2 * i + k];
		sum = dt_block_sum(sum, (double *)dt_shared());
		if (threadIdx.x == 0)
			ret[k] += sum;
	}
}

int dt_cuda_moe_route_backward(struct dt_dev *dev, struct dt_tensor dscore, const float *dweight,
			       const int32_t *expert, struct dt_tensor score, const struct dt_moe *p,
			       const struct dt_moe_loss *l)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(score), warps = p->experts <= 256 ? 4 : 1;
	struct back a = {(float *)dscore.data,
			 dweight,
			 (const float *)score.data,
			 l->load,
			 expert,
			 NULL,
			 (double)l->balance,
			 (double)l->z,
			 rows,
			 l->load_rows,
			 *p,
			 NULL};
	int rc;

	if (!c)
		return -ENODEV;
	a.bad = c->bad;
	if (l->ret && !(a.sums = (double *)dt_cuda_scratch(dev, (size_t)(2 * rows) * sizeof *a.sums)))
		return -ENOMEM;
	rc = DT_LAUNCH(c, route_back_kernel, (unsigned)dt_ceil_div(rows, warps), (unsigned)warps * 32,
		       (size_t)(warps * p->experts) * 2 * sizeof(double), a);
	return rc < 0 || !l->ret ? rc : DT_LAUNCH(c, loss_kernel, 1, 256, 64, l->ret, a.sums, rows);
}
/* SPDX-License-Identifier: Apache-2.0 */
