/*
 * Statistics and sums: a block has 32 V columns of one part of a group's rows, each of its 8 warps every 8th
 * row; parts are merged one after another, in a fixed order. The other kernels are elementwise.
 */
#include "kernels/cuda/groups.h"

#define WARPS 8

/* Merges the statistics of n rows with those of n2 more (Chan et al. 1979). */
DT_DEVICE void merge(float &mean, float &q, float n, float mean2, float q2, float n2)
{
	const float d = mean2 - mean, all = n + n2;

	if (n2 <= 0)
		return;
	mean += d * (n2 / all);
	q += q2 + d * d * (n * n2 / all);
}

/* Rows of a part of a group: [first, last). */
struct span {
	int64_t first, last;
};

DT_DEVICE struct span part_of(int64_t group, int64_t k, int64_t rows, int64_t each)
{
	const int64_t first = k * each, last = first + each < rows ? first + each : rows;

	return {group * rows + first, group * rows + last};
}

/* part [groups, parts, 2, c]: mean and sum of squared deviations, by Welford's update. */
template <int V>
__global__ void __launch_bounds__(32 * WARPS)
	stats_kernel(float *part, const void *x, int t, int64_t rows, int64_t each, int64_t c)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	const int64_t j = ((int64_t)blockIdx.x * 32 + lane) * V;
	const struct span p = part_of(blockIdx.z, blockIdx.y, rows, each);
	float *s = (float *)dt_shared(), mean[V], q[V], r[V], n = 0;

	for (int k = 0; k < V; k++)
		mean[k] = q[k] = 0;
	for (int64_t i = p.first + warp; i < p.last && j < c; i += WARPS) {
		const float share = 1.f / (n += 1);

		dt_ld<V>(r, x, t, i * c + j);
		for (int k = 0; k < V; k++) {
			const float d = r[k] - mean[k];

			mean[k] += d * share;
			q[k] += d * (r[k] - mean[k]);
		}
	}
	for (int k = 0; k < V; k++) {
		s[((warp * V + k) * 2) * 32 + lane] = mean[k];
		s[((warp * V + k) * 2 + 1) * 32 + lane] = q[k];
	}
	__syncthreads();
	for (int k = warp; k < V; k += WARPS) {
		float m = 0, d = 0, have = 0;

		for (int w = 0; w < WARPS; w++) {
			const int64_t more = (p.last - p.first - w + WARPS - 1) / WARPS;

			merge(m, d, have, s[((w * V + k) * 2) * 32 + lane],
			      s[((w * V + k) * 2 + 1) * 32 + lane], (float)(more > 0 ? more : 0));
			have += (float)(more > 0 ? more : 0);
		}
		if (j < c) {
			const int64_t at = ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * 2 * c + j + k;

			dt_st1(part, DT_F32, at, m);
			dt_st1(part, DT_F32, at + c, d);
		}
	}
}

__global__ void __launch_bounds__(128)
	stats_merge_kernel(float *mean, float *sqdev, const float *part, int64_t rows, int64_t each,
			   int64_t parts, int64_t groups, int64_t c)
{
	const int64_t i = (int64_t)blockIdx.x * 128 + threadIdx.x, g = i / c, j = i % c;
	float m = 0, q = 0;

	if (i >= groups * c)
		return;
	for (int64_t k = 0; k < parts; k++) {
		const struct span p = part_of(0, k, rows, each);

		merge(m, q, (float)p.first, dt_ld1(part, DT_F32, (g * parts + k) * 2 * c + j),
		      dt_ld1(part, DT_F32, ((g * parts + k) * 2 + 1) * c + j), (float)(p.last - p.first));
	}
	dt_st1(mean, DT_F32, i, m);
	dt_st1(sqdev, DT_F32, i, q);
}

static dim3 grid_of(int64_t c, int width, int64_t parts, int64_t groups)
{
	return dim3((unsigned)dt_ceil_div(c, width), (unsigned)parts, (unsigned)groups);
}

int dt_cuda_bn_stats(struct dt_dev *dev, struct dt_tensor mean, struct dt_tensor sqdev, struct dt_tensor x)
{
	const struct dt_cuda *d = dt_cuda_enter(dev);
	const int64_t c = dt_cols(x), groups = dt_numel(mean) / c, rows = dt_rows(x) / groups;
	const struct dt_row_groups p = dt_row_groups(rows);
	float *part = NULL;
	int rc = 0;

	if (!d)
		return -ENODEV;
	if (rows && !(part = (float *)dt_cuda_scratch(dev, (size_t)(groups * p.n * 2 * c) * sizeof *part)))
		return -ENOMEM;
	if (rows && dt_by_8(c, x.data))
		rc = DT_LAUNCH(d, stats_kernel<8>, grid_of(c, 256, p.n, groups), 32 * WARPS, 16384, part,
			       x.data, (int)x.dtype, rows, p.rows, c);
	else if (rows)
		rc = DT_LAUNCH(d, stats_kernel<1>, grid_of(c, 32, p.n, groups), 32 * WARPS, 2048, part,
			       x.data, (int)x.dtype, rows, p.rows, c);
	return rc < 0 ? rc
		      : DT_LAUNCH(d, stats_merge_kernel, (unsigned)dt_ceil_div(groups * c, 128), 128, 0,
				  (float *)mean.data, (float *)sqdev.data, part, rows, p.rows, rows ? p.n : 0,
				  groups, c);
}

struct work {
	const void *x, *y, *dy, *gamma, *beta, *residual;
	void *to, *dresidual;
	const float *mean, *rstd, *sum, *dot;
	int t;
	bool relu;
	int64_t c, rows, n; /* rows per group; elements */
	float share;	    /* 1 / count; 0: statistics are constants */
};

static struct work work_of(const struct dt_bn *p)
{
	const int64_t c = dt_cols(p->x), groups = dt_numel(p->mean) / c;
	struct work a = {};

	a.x = p->x.data;
	a.y = p->y.data;
	a.gamma = p->gamma.data;
	a.mean = (const float *)p->mean.data;
	a.rstd = (const float *)p->rstd.data;
	a.t = (int)p->x.dtype;
	a.relu = p->relu;
	a.c = c;
	a.rows = dt_rows(p->x) / groups;
	a.n = dt_numel(p->x);
	return a;
}

template <int V> __global__ void __launch_bounds__(256) forward_kernel(struct work a)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x * V;

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V; i < a.n; i += step) {
		const int64_t row = i / a.c, j = i % a.c, s = row / a.rows * a.c + j;
		float x[V], mean[V], rstd[V], gamma[V], beta[V], res[V];

		dt_ld<V>(x, a.x, a.t, i);
		dt_ld<V>(mean, a.mean, DT_F32, s);
		dt_ld<V>(rstd, a.rstd, DT_F32, s);
		dt_ld<V>(gamma, a.gamma, a.t, j);
		dt_ld<V>(beta, a.beta, a.t, j);
		if (a.residual)
			dt_ld<V>(res, a.residual, a.t, i);
		for (int k = 0; k < V; k++) {
			x[k] = gamma[k] * rstd[k] * (x[k] - mean[k]) + beta[k] + (a.residual ? res[k] : 0);
			x[k] = a.relu && x[k] < 0 ? 0 : x[k];
		}
		dt_st<V>(a.to, a.t, i, x);
	}
}

int dt_cuda_bn_forward(struct dt_dev *dev, const struct dt_bn *p, struct dt_tensor residual,
		       struct dt_tensor beta)
{
	const struct dt_cuda *d = dt_cuda_enter(dev);
	struct work a = work_of(p);

	if (!d)
		return -ENODEV;
	a.to = p->y.data;
	a.residual = residual.data;
	a.beta = beta.data;
	if (dt_by_8(a.c, a.x, a.y, a.residual, a.gamma, a.beta, a.mean, a.rstd))
		return DT_LAUNCH(d, forward_kernel<8>, dt_blocks(d, a.n, 2048), 256, 0, a);
	return DT_LAUNCH(d, forward_kernel<1>, dt_blocks(d, a.n, 256), 256, 0, a);
}

/* dz: dy, or 0 where ReLU clipped. */
template <int V> DT_DEVICE void masked(float (&dz)[V], const struct work &a, int64_t i)
{
	float y[V];

	dt_ld<V>(dz, a.dy, a.t, i);
	if (!a.relu)
		return;
	dt_ld<V>(y, a.y, a.t, i);
	for (int k = 0; k < V; k++)
		dz[k] = y[k] > 0 ? dz[k] : 0;
}

/* part [groups, parts, 2, c]: sums of dz and of dz xh. */
template <int V>
__global__ void __launch_bounds__(32 * WARPS) sums_kernel(float *part, struct work a, int64_t each)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	const int64_t j = ((int64_t)blockIdx.x * 32 + lane) * V;
	const struct span p = part_of(blockIdx.z, blockIdx.y, a.rows, each);
	float *s = (float *)dt_shared(), sum[V], dot[V], mean[V], rstd[V], dz[V], x[V];

	for (int k = 0; k < V; k++)
		sum[k] = dot[k] = 0;
	if (j < a.c) {
		dt_ld<V>(mean, a.mean, DT_F32, blockIdx.z * a.c + j);
		dt_ld<V>(rstd, a.rstd, DT_F32, blockIdx.z * a.c + j);
	}
	for (int64_t i = p.first + warp; i < p.last && j < a.c; i += WARPS) {
		masked<V>(dz, a, i * a.c + j);
		dt_ld<V>(x, a.x, a.t, i * a.c + j);
		for (int k = 0; k < V; k++) {
			sum[k] += dz[k];
			dot[k] += dz[k] * ((x[k] - mean[k]) * rstd[k]);
		}
	}
	for (int k = 0; k < V; k++) {
		s[((warp * V + k) * 2) * 32 + lane] = sum[k];
		s[((warp * V + k) * 2 + 1) * 32 + lane] = dot[k];
	}
	__syncthreads();
	for (int k = warp; k < 2 * V; k += WARPS) {
		float all = 0;

		for (int w = 0; w < WARPS; w++)
			all += s[(w * V * 2 + k) * 32 + lane];
		if (j < a.c)
			dt_st1(part, DT_F32,
			       (((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * 2 + k % 2) * a.c + j + k / 2,
			       all);
	}
}

__global__ void __launch_bounds__(128)
	sums_merge_kernel(float *sum, float *dot, const float *part, int64_t parts, int64_t groups, int64_t c)
{
	const int64_t i = (int64_t)blockIdx.x * 128 + threadIdx.x, g = i / c, j = i % c;
	float s = 0, d = 0;

	if (i >= groups * c)
		return;
	for (int64_t k = 0; k < parts; k++) {
		s += dt_ld1(part, DT_F32, (g * parts + k) * 2 * c + j);
		d += dt_ld1(part, DT_F32, ((g * parts + k) * 2 + 1) * c + j);
	}
	dt_st1(sum, DT_F32, i, s);
	dt_st1(dot, DT_F32, i, d);
}

int dt_cuda_bn_sums(struct dt_dev *dev, struct dt_tensor sum, struct dt_tensor dot, struct dt_tensor dy,
		    const struct dt_bn *p)
{
	const struct dt_cuda *d = dt_cuda_enter(dev);
	const int64_t c = dt_cols(p->x), groups = dt_numel(p->mean) / c;
	struct work a = work_of(p);
	const struct dt_row_groups g = dt_row_groups(a.rows);
	float *part = NULL;
	int rc = 0;

	if (!d)
		return -ENODEV;
	a.dy = dy.data;
	if (a.rows && !(part = (float *)dt_cuda_scratch(dev, (size_t)(groups * g.n * 2 * c) * sizeof *part)))
		return -ENOMEM;
	if (a.rows && dt_by_8(c, a.x, a.dy, a.relu ? a.y : NULL, a.mean, a.rstd))
		rc = DT_LAUNCH(d, sums_kernel<8>, grid_of(c, 256, g.n, groups), 32 * WARPS, 16384, part, a,
			       g.rows);
	else if (a.rows)
		rc = DT_LAUNCH(d, sums_kernel<1>, grid_of(c, 32, g.n, groups), 32 * WARPS, 2048, part, a,
			       g.rows);
	return rc < 0 ? rc
		      : DT_LAUNCH(d, sums_merge_kernel, (unsigned)dt_ceil_div(groups * c, 128), 128, 0,
				  (float *)sum.data, (float *)dot.data, part, a.rows ? g.n : 0, groups, c);
}

template <int V> __global__ void __launch_bounds__(256) backward_kernel(struct work a)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x * V;

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V; i < a.n; i += step) {
		const int64_t row = i / a.c, j = i % a.c, s = row / a.rows * a.c + j;
		float dz[V], x[V], mean[V], rstd[V], gamma[V], sum[V], dot[V];

		masked<V>(dz, a, i);
		dt_ld<V>(rstd, a.rstd, DT_F32, s);
		dt_ld<V>(gamma, a.gamma, a.t, j);
		if (a.dresidual)
			dt_st<V>(a.dresidual, a.t, i, dz);
		if (a.share > 0) {
			dt_ld<V>(x, a.x, a.t, i);
			dt_ld<V>(mean, a.mean, DT_F32, s);
			dt_ld<V>(sum, a.sum, DT_F32, s);
			dt_ld<V>(dot, a.dot, DT_F32, s);
			for (int k = 0; k < V; k++)
				dz[k] -= (sum[k] + (x[k] - mean[k]) * rstd[k] * dot[k]) * a.share;
		}
		for (int k = 0; k < V; k++)
			dz[k] *= gamma[k] * rstd[k];
		dt_st<V>(a.to, a.t, i, dz);
	}
}

int dt_cuda_bn_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dresidual,
			struct dt_tensor dy, struct dt_tensor sum, struct dt_tensor dot, double count,
			const struct dt_bn *p)
{
	const struct dt_cuda *d = dt_cuda_enter(dev);
	struct work a = work_of(p);

	if (!d)
		return -ENODEV;
	a.to = dx.data;
	a.dresidual = dresidual.data;
	a.dy = dy.data;
	a.sum = (const float *)sum.data;
	a.dot = (const float *)dot.data;
	a.share = count > 0 ? (float)(1 / count) : 0;
	if (dt_by_8(a.c, a.x, a.to, a.dy, a.relu ? a.y : NULL, a.dresidual, a.gamma, a.mean, a.rstd, a.sum,
		    a.dot))
		return DT_LAUNCH(d, backward_kernel<8>, dt_blocks(d, a.n, 2048), 256, 0, a);
	return DT_LAUNCH(d, backward_kernel<1>, dt_blocks(d, a.n, 256), 256, 0, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
