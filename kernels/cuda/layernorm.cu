#include "kernels/cuda/norm.h"

enum { ROWS = 4 }; /* rows per block, one per warp */

/* First column of a lane's p-th group of eight. */
DT_DEVICE int column(int p)
{
	return (p * 32 + (int)threadIdx.x % 32) * 8;
}

/* Loads the row at `at`, adds delta and stores sum; groups past its end are 0. Returns this lane's sum. */
template <int T, int R>
DT_DEVICE float take_row(float (&r)[R][8], const struct dt_norm_forward &a, int64_t at)
{
	dt_raw<T> x[R] = {}, delta[R] = {};
	float all = 0;

	DT_UNROLL
	for (int p = 0; p < R; p++) {
		if (column(p) < a.n)
			dt_ask<T>(x[p], a.x, at + column(p));
		if (column(p) < a.n && a.delta)
			dt_ask<T>(delta[p], a.delta, at + column(p));
	}
	DT_UNROLL
	for (int p = 0; p < R; p++) {
		DT_UNROLL
		for (int k = 0; k < 8; k++) {
			r[p][k] = dt_look<T>(x[p], k);
			if (a.delta)
				r[p][k] = dt_rounded(r[p][k] + dt_look<T>(delta[p], k), T);
			all += r[p][k];
		}
		if (column(p) < a.n && a.delta)
			dt_st<8>(a.sum, T, at + column(p), r[p]);
	}
	return all;
}

template <int T, int R>
DT_DEVICE void give_row(const float (&r)[R][8], const struct dt_norm_forward &a, int64_t at, float mean,
			float rstd)
{
	DT_UNROLL
	for (int p = 0; p < R; p++) {
		float w[8], b[8] = {}, y[8];

		if (column(p) >= a.n)
			break;
		dt_ld<8>(w, a.w, a.tw, column(p));
		if (a.b)
			dt_ld<8>(b, a.b, a.tw, column(p));
		DT_UNROLL
		for (int k = 0; k < 8; k++)
			y[k] = (r[p][k] - mean) * rstd * w[k] + b[k];
		dt_st<8>(a.y, T, at + column(p), y);
	}
}

/*
 * One row per warp, at most R groups of eight per lane. The row stays in registers, all loads are issued
 * before the first is used, and the two sums need no barrier: the kernel is memory bound.
 */
template <int T, int R>
static __global__ void __launch_bounds__(ROWS * 32) layernorm_row_kernel(struct dt_norm_forward a)
{
	int64_t i = (int64_t)blockIdx.x * ROWS + threadIdx.x / 32;

	for (; i < a.rows; i += (int64_t)gridDim.x * ROWS) {
		float r[R][8], s = 0, rstd;
		const float mean = dt_warp_sum(take_row<T, R>(r, a, i * a.n)) / (float)a.n;

		DT_UNROLL
		for (int p = 0; p < R; p++) {
			DT_UNROLL
			for (int k = 0; k < 8; k++)
				s += column(p) < a.n ? (r[p][k] - mean) * (r[p][k] - mean) : 0.f;
		}
		rstd = 1.f / sqrtf(dt_warp_sum(s) / (float)a.n + a.eps);
		give_row<T, R>(r, a, i * a.n, mean, rstd);
		if (threadIdx.x % 32 == 0 && a.mean)
			a.mean[i] = mean;
		if (threadIdx.x % 32 == 0 && a.rstd)
			a.rstd[i] = rstd;
	}
}

template <int T> static int start_rows(const struct dt_cuda *c, const struct dt_norm_forward &a)
{
	const unsigned grid = dt_blocks(c, a.rows, ROWS);

	if (a.n <= 1024)
		return DT_LAUNCH(c, (layernorm_row_kernel<T, 4>), grid, ROWS * 32, 0, a);
	return DT_LAUNCH(c, (layernorm_row_kernel<T, 8>), grid, ROWS * 32, 0, a);
}

static int start(const struct dt_cuda *c, const struct dt_norm_forward &a)
{
	if (a.n > 2048 || !dt_by_8(a.n, a.y, a.sum, a.x, a.delta, a.w, a.b))
		return dt_norm_forward_start<false>(c, a);
	return a.t == DT_F32	? start_rows<DT_F32>(c, a)
	       : a.t == DT_BF16 ? start_rows<DT_BF16>(c, a)
				: start_rows<DT_F16>(c, a);
}

int dt_cuda_layernorm_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor mean,
			      struct dt_tensor rstd, struct dt_tensor sum, struct dt_tensor x,
			      struct dt_tensor delta, struct dt_tensor w, struct dt_tensor b, float eps)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(x), n = dt_cols(x);

	if (!c)
		return -ENODEV;
	return start(c, {y.data,
			 sum.data,
			 (float *)mean.data,
			 (float *)rstd.data,
			 x.data,
			 delta.data,
			 w.data,
			 b.data,
			 x.dtype,
			 rows,
			 n,
			 eps,
			 w.dtype,
			 {1, n, 0},
			 false,
			 NULL,
			 false});
}

int dt_cuda_layernorm_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw,
			       struct dt_tensor db, struct dt_tensor dy, struct dt_tensor dresid,
			       struct dt_tensor x, struct dt_tensor mean, struct dt_tensor rstd,
			       struct dt_tensor w)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(x), n = dt_cols(x);

	if (!c)
		return -ENODEV;
	return dt_norm_backward_start<false>(dev, c,
					     {dx.data,
					      (float *)dw.data,
					      (float *)db.data,
					      NULL,
					      dy.data,
					      dresid.data,
					      x.data,
					      w.data,
					      (const float *)mean.data,
					      (const float *)rstd.data,
					      x.dtype,
					      rows,
					      0,
					      n,
					      w.dtype,
					      {1, n, 0},
					      {1, n, 0},
					      false,
					      false});
}
/* SPDX-License-Identifier: Apache-2.0 */
