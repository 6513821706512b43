/*
 * A norm fused in front of the product that reads its rows (packed.h). Every block of the product computes it
 * redundantly while its weights are loaded, which saves a launch and a grid-wide barrier.
 */
#ifndef DT_KERNELS_CUDA_NORM_FRONT_H
#define DT_KERNELS_CUDA_NORM_FRONT_H

#include "kernels/cuda/norm.h"

/*
 * Row i, of up to 2048 columns, to element `at` of to: at most two groups of eight per thread, in registers.
 * Issues all loads at once.
 */
template <int T>
DT_DEVICE void dt_norm_front_row(const struct dt_late_norm &a, float *scratch, void *to, int64_t at,
				 int64_t i, bool keep)
{
	const int threads = dt_norm_threads(a.n), tid = (int)threadIdx.x, lane = tid % 32;
	dt_raw<T> x[2] = {}, w[2] = {};
	bool mine[2];
	float s, rstd;

	DT_UNROLL
	for (int e = 0; e < 2; e++) {
		const int t = tid + e * (int)blockDim.x;

		mine[e] = t < threads && t * 8 < a.n;
		if (!mine[e])
			continue;
		dt_ask<T>(x[e], a.x, i * a.n + t * 8);
		if (a.tw == T)
			dt_ask<T>(w[e], a.w, t * 8);
	}
	DT_UNROLL
	for (int e = 0; e < 2; e++) {
		const int t = tid + e * (int)blockDim.x;

		s = 0;
		DT_UNROLL
		for (int k = 0; k < 8; k++)
			s += dt_look<T>(x[e], k) * dt_look<T>(x[e], k);
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
			y[k] = dt_look<T>(x[e], k) * rstd * (a.plus_one ? u[k] + 1.f : u[k]);
		}
		dt_st<8>(to, T, at + t * 8, y);
		if (keep)
			dt_st<8>(a.y, T, i * a.n + t * 8, y);
	}
}

/* The same for any row. */
DT_DEVICE void dt_norm_front_any(const struct dt_late_norm &a, float *scratch, void *to, int64_t at,
				 int64_t i, bool keep)
{
	const int threads = dt_norm_threads(a.n), lane = (int)threadIdx.x % 32;
	float r[8], u[8], y[8], s, rstd;

	for (int t = (int)threadIdx.x; t < threads; t += (int)blockDim.x) {
		s = 0;
		for (int64_t j = (int64_t)t * 8; j < a.n; j += (int64_t)threads * 8) {
			dt_ld<8>(r, a.x, a.t, i * a.n + j);
			for (int k = 0; k < 8; k++)
				s += r[k] * r[k];
		}
		s = dt_warp_sum(s);
		if (lane == 0)
			scratch[t / 32] = s;
	}
	__syncthreads();
	s = dt_warp_sum(lane < threads / 32 ? scratch[lane] : 0.f);
	rstd = 1.f / sqrtf(s / (float)a.n + a.eps);
	for (int64_t j = (int64_t)threadIdx.x * 8; j < a.n; j += (int64_t)blockDim.x * 8) {
		dt_ld<8>(r, a.x, a.t, i * a.n + j);
		dt_ld<8>(u, a.w, a.tw, j);
		for (int k = 0; k < 8; k++)
			y[k] = r[k] * rstd * (a.plus_one ? u[k] + 1.f : u[k]);
		dt_st<8>(to, a.t, at + j, y);
		if (keep)
			dt_st<8>(a.y, a.t, i * a.n + j, y);
	}
}

/* Bytes of shared memory: 32 floats, followed by this many normalised rows. */
static inline size_t dt_norm_front_bytes(const struct dt_late_norm &a, int64_t rows)
{
	return a.y ? 128 + (size_t)(rows * a.n * dt_dtype_size((enum dt_dtype)a.t)) : 0;
}

/*
 * Normalises rows [first, end) by all threads of a block of 128 or 256; room: dt_norm_front_bytes, aligned to
 * 16. Returns their address to all threads. keep: also stores them in y, in one block. The bits are those of
 * dt_norm_forward_kernel<8, true>, which may have twice or half the threads.
 */
DT_DEVICE const char *dt_norm_front(const struct dt_late_norm &a, char *room, int64_t first, int64_t end,
				    bool keep)
{
	float *scratch = (float *)room;
	char *to = room + 128;

	for (int64_t i = first; i < end; i++) {
		const int64_t at = (i - first) * a.n;

		if (a.n <= 2048 && a.t == DT_BF16)
			dt_norm_front_row<DT_BF16>(a, scratch, to, at, i, keep);
		else if (a.n <= 2048 && a.t == DT_F16)
			dt_norm_front_row<DT_F16>(a, scratch, to, at, i, keep);
		else
			dt_norm_front_any(a, scratch, to, at, i, keep);
		__syncthreads(); /* scratch has been read, the row is complete */
	}
	return to;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
