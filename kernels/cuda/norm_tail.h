/* A norm of rows that the kernel which ends with it has made: by the last of its blocks (packed.h). */
#ifndef DT_KERNELS_CUDA_NORM_TAIL_H
#define DT_KERNELS_CUDA_NORM_TAIL_H

#include "kernels/cuda/norm.h"

/*
 * Row i of dt_norm_tail, of up to 2048 columns: at most two eights a thread, which stay in registers. The
 * step waits for this block alone, so all that it reads is asked for at once.
 */
template <int T> DT_DEVICE void dt_norm_tail_row(const struct dt_norm_forward &a, float *scratch, int64_t i)
{
	const int threads = dt_norm_threads(a.n), tid = (int)threadIdx.x, lane = tid % 32;
	dt_raw<T> x[2] = {}, delta[2] = {}, w[2] = {};
	float r[2][8], s, rstd;
	bool mine[2];

	DT_UNROLL
	for (int e = 0; e < 2; e++) {
		const int t = tid + e * (int)blockDim.x;

		mine[e] = t < threads && t * 8 < a.n;
		if (!mine[e])
			continue;
		dt_ask<T>(x[e], a.x, i * a.n + t * 8);
		dt_ask<T>(delta[e], a.delta, i * a.n + t * 8);
		if (a.tw == T)
			dt_ask<T>(w[e], a.w, t * 8);
	}
	DT_UNROLL
	for (int e = 0; e < 2; e++) {
		const int t = tid + e * (int)blockDim.x;

		s = 0;
		DT_UNROLL
		for (int k = 0; k < 8; k++) {
			r[e][k] = dt_rounded(dt_look<T>(x[e], k) + dt_look<T>(delta[e], k), T);
			s += r[e][k] * r[e][k];
		}
		if (mine[e])
			dt_st<8>(a.sum, T, i * a.n + t * 8, r[e]);
		s = dt_warp_sum(s);
		if (lane == 0 && t < threads)
			scratch[t / 32] = s;
	}
	__syncthreads();
	s = dt_warp_sum(lane < threads / 32 ? scratch[lane] : 0.f);
	rstd = 1.f / sqrtf(s / (float)a.n + a.eps);
	DT_UNROLL
	for (int e = 0; e < 2; e++) {
		const int t = tid + e * (int)blockDim.x;
		float u[8], y[8];

		if (!mine[e])
			continue;
		if (a.tw != T)
			dt_ld<8>(u, a.w, a.tw, t * 8);
		DT_UNROLL
		for (int k = 0; k < 8; k++) {
			u[k] = a.tw == T ? dt_look<T>(w[e], k) : u[k];
			y[k] = r[e][k] * rstd * (a.plus_one ? u[k] + 1.f : u[k]);
		}
		dt_st<8>(a.y, T, i * a.n + t * 8, y);
	}
	__syncthreads();
}

/* The same of any row. */
DT_DEVICE void dt_norm_tail_any(const struct dt_norm_forward &a, float *scratch, int64_t i)
{
	const int threads = dt_norm_threads(a.n), lane = (int)threadIdx.x % 32;
	float r[8], u[8], y[8], s, rstd;

	for (int t = (int)threadIdx.x; t < threads; t += (int)blockDim.x) {
		s = 0;
		for (int64_t j = (int64_t)t * 8; j < a.n; j += (int64_t)threads * 8) {
			dt_ld<8>(r, a.x, a.t, i * a.n + j);
			dt_ld<8>(u, a.delta, a.t, i * a.n + j);
			for (int k = 0; k < 8; k++) {
				r[k] = dt_rounded(r[k] + u[k], a.t);
				s += r[k] * r[k];
			}
			dt_st<8>(a.sum, a.t, i * a.n + j, r);
		}
		s = dt_warp_sum(s);
		if (lane == 0)
			scratch[t / 32] = s;
	}
	__syncthreads();
	s = dt_warp_sum(lane < threads / 32 ? scratch[lane] : 0.f);
	rstd = 1.f / sqrtf(s / (float)a.n + a.eps);
	for (int t = (int)threadIdx.x; t < threads; t += (int)blockDim.x)
		for (int64_t j = (int64_t)t * 8; j < a.n; j += (int64_t)threads * 8) {
			dt_ld<8>(r, a.sum, a.t, i * a.n + j);
			dt_ld<8>(u, a.w, a.tw, j);
			for (int k = 0; k < 8; k++)
				y[k] = r[k] * rstd * (a.plus_one ? u[k] + 1.f : u[k]);
			dt_st<8>(a.y, a.t, i * a.n + j, y);
		}
	__syncthreads();
}

/*
 * RMS of all rows by one block of 128 or 256 threads, at the end of a kernel that made delta; scratch: 32
 * floats, shared. The bits of dt_norm_forward_kernel<8, true>, whose threads may be twice as many or half.
 */
DT_DEVICE void dt_norm_tail(const struct dt_norm_forward &a, float *scratch)
{
	for (int64_t i = 0; i < a.rows; i++) {
		if (a.n <= 2048 && a.t == DT_BF16)
			dt_norm_tail_row<DT_BF16>(a, scratch, i);
		else if (a.n <= 2048 && a.t == DT_F16)
			dt_norm_tail_row<DT_F16>(a, scratch, i);
		else
			dt_norm_tail_any(a, scratch, i);
	}
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
