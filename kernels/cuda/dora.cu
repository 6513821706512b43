/* dora.h: the norms read a once per four rows of w; backward reads dy and u once. */
#include "kernels/cuda/groups.h"

#define ROWS 4 /* rows of w per block */

struct norms {
	float *r;
	const void *w, *a, *b;
	int tw, ta, tb;
	int64_t out, in, rank;
	float s;
};

template <int V> DT_DEVICE double squares(const float (&x)[V])
{
	float s = 0;

	for (int v = 0; v < V; v++)
		s += x[v] * x[v];
	return (double)s;
}

template <int V> __global__ void __launch_bounds__(256) norms_kernel(struct norms p)
{
	const int64_t first = (int64_t)blockIdx.x * ROWS, rows = dt_min64(ROWS, p.out - first);
	double *scratch = (double *)dt_shared(), plain[ROWS] = {}, whole[ROWS] = {};
	float *by = (float *)(scratch + 32); /* [ROWS, rank] */

	for (int64_t i = threadIdx.x; i < ROWS * p.rank; i += 256)
		by[i] = p.s *
			dt_ld1(p.b, p.tb, dt_min64(first + i / p.rank, p.out - 1) * p.rank + i % p.rank);
	__syncthreads();
	for (int64_t j = threadIdx.x * V; j < p.in; j += 256 * V) {
		float t[ROWS][V], a[V];

		DT_UNROLL
		for (int r = 0; r < ROWS; r++) {
			dt_ld<V>(t[r], p.w, p.tw, (first + dt_min64(r, rows - 1)) * p.in + j);
			plain[r] += squares(t[r]);
		}
		for (int64_t k = 0; k < p.rank; k++) {
			dt_ld<V>(a, p.a, p.ta, k * p.in + j);
			DT_UNROLL
			for (int r = 0; r < ROWS; r++)
				DT_UNROLL
			for (int v = 0; v < V; v++)
				t[r][v] += by[r * p.rank + k] * a[v];
		}
		DT_UNROLL
		for (int r = 0; r < ROWS; r++)
			whole[r] += squares(t[r]);
	}
	DT_UNROLL
	for (int r = 0; r < ROWS; r++) {
		const double a = dt_block_sum(plain[r], scratch), b = dt_block_sum(whole[r], scratch);

		if (threadIdx.x == 0 && r < rows) {
			dt_st1(p.r, DT_F32, first + r, (float)a);
			dt_st1(p.r, DT_F32, p.out + first + r, (float)b);
		}
	}
}

int dt_cuda_dora_norms(struct dt_dev *dev, struct dt_tensor r, struct dt_tensor w, struct dt_tensor a,
		       struct dt_tensor b, float s)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct norms p = {(float *)r.data, w.data,     a.data,	 b.data,     w.dtype, a.dtype,
				b.dtype,	 dt_rows(w), dt_cols(w), dt_rows(a), s};
	const unsigned blocks = (unsigned)dt_ceil_div(p.out, ROWS);
	const size_t room = 32 * sizeof(double) + (size_t)(ROWS * p.rank) * sizeof(float);

	if (!c)
		return -ENODEV;
	return dt_by_8(p.in, w.data, a.data) ? DT_LAUNCH(c, norms_kernel<8>, blocks, 256, room, p)
					     : DT_LAUNCH(c, norms_kernel<1>, blocks, 256, room, p);
}

__global__ void __launch_bounds__(256) ratio_kernel(float *r, const void *m, int t, int64_t n)
{
	const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;

	if (i >= n)
		return;
	const float norm = sqrtf(dt_ld1(r, DT_F32, n + i)),
		    magnitude = sqrtf(dt_ld1(r, DT_F32, i)) + dt_ld1(m, t, i);

	dt_st1(r, DT_F32, i, norm > 0 ? magnitude / norm : 1);
	dt_st1(r, DT_F32, n + i, norm > 0 ? 1 / norm : 0);
}

int dt_cuda_dora_ratio(struct dt_dev *dev, struct dt_tensor r, struct dt_tensor m)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t n = dt_numel(m);

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, ratio_kernel, (unsigned)dt_ceil_div(n, 256), 256, 0, (float *)r.data,
			 (const void *)m.data, (int)m.dtype, n);
}

/* Columns at .. at + n of a matrix, with their per-column factors. */
struct part {
	void *x; /* y, or dx */
	const void *u, *bias;
	const float *g;
	int tx, tu, tb;
	int64_t rows, wide, at, n;
};

DT_DEVICE float bias_at(const struct part &p, int64_t j)
{
	return p.bias ? dt_ld1(p.bias, p.tb, j) : 0;
}

__global__ void __launch_bounds__(256) scale_kernel(struct part p)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.rows * p.n; i += step) {
		const int64_t j = i % p.n, to = i / p.n * p.wide + p.at + j;
		const float y = dt_ld1(p.x, p.tx, to);

		dt_st1(p.x, p.tx, to, y + (dt_ld1(p.g, DT_F32, j) - 1) * (y - bias_at(p, j)));
	}
}

int dt_cuda_dora_scale(struct dt_dev *dev, struct dt_tensor y, int64_t at, struct dt_tensor g,
		       struct dt_tensor bias)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct part p = {y.data,	   y.data,  bias.data,	(const float *)g.data,
			       y.dtype,	   y.dtype, bias.dtype, dt_rows(y),
			       dt_cols(y), at,	    dt_numel(g)};

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, scale_kernel, dt_blocks(c, p.rows * p.n, 256), 256, 0, p);
}

/* Like colsum.cu: a block has 32 columns of one group of rows, each of its 8 warps every 8th row. */
__global__ void __launch_bounds__(256) backward_kernel(float *part, struct part p, int64_t each)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	const int64_t j = (int64_t)blockIdx.x * 32 + lane, first = blockIdx.y * each;
	const int64_t last = dt_min64(first + each, p.rows);
	const bool own = j < p.n;
	const float g = own ? dt_ld1(p.g, DT_F32, j) : 0, inverse = own ? dt_ld1(p.g, DT_F32, p.n + j) : 0,
		    bias = own ? bias_at(p, j) : 0;
	float *s = (float *)dt_shared(), sum = 0;

	for (int64_t i = first + warp; i < last && own; i += 8) {
		const int64_t at = i * p.wide + p.at + j;
		const float dy = dt_ld1(p.x, p.tx, at);

		sum += dy * (dt_ld1(p.u, p.tu, at) - bias) * inverse;
		dt_st1(p.x, p.tx, at, dy * g);
	}
	s[warp * 32 + lane] = sum;
	__syncthreads();
	if (warp || !own || !part)
		return;
	sum = 0;
	for (int w = 0; w < 8; w++)
		sum += s[w * 32 + lane];
	dt_st1(part, DT_F32, blockIdx.y * p.n + j, sum);
}

int dt_cuda_dora_backward(struct dt_dev *dev, struct dt_tensor dx, int64_t at, struct dt_tensor dm,
			  struct dt_tensor u, struct dt_tensor r, struct dt_tensor bias)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t n = dt_numel(r) / 2;
	const struct part p = {dx.data,	    u.data,  bias.data,	 (const float *)r.data,
			       dx.dtype,    u.dtype, bias.dtype, dt_rows(dx),
			       dt_cols(dx), at,	     n};
	const struct dt_row_groups g = dt_row_groups(p.rows);
	const dim3 grid((unsigned)dt_ceil_div(n, 32), (unsigned)g.n);
	float *part = NULL;
	int rc;

	if (!c)
		return -ENODEV;
	if (dm.data && !(part = (float *)dt_cuda_scratch(dev, (size_t)(g.n * n) * sizeof *part)))
		return -ENOMEM;
	rc = DT_LAUNCH(c, backward_kernel, grid, 256, 1024, part, p, g.rows);
	return rc < 0 || !part ? rc : dt_groups_add(c, (float *)dm.data, part, n, g.n, n);
}
/* SPDX-License-Identifier: Apache-2.0 */
