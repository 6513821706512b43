/*
 * Layer norm and RMS norm share one kernel per direction: RMS omits the mean and the bias. Forward moves 2
 * times the bytes of x (4 with the residual), backward 4 (and 2 from L2 for the second pass over a row). A
 * block has one row at a time, or one head of a row.
 */
#ifndef DT_KERNELS_CUDA_NORM_H
#define DT_KERNELS_CUDA_NORM_H

#include "kernels/cuda/groups.h"
#include "kernels/cuda/raw.h"

#define DT_NORM_SHARED	 (96 << 10)		   /* larger rows and sums stay in global memory */
#define DT_NORM_WARPS(t) ((t) == DT_F32 ? 16 : 24) /* resident warps per SM, with rows in registers */

/* Location of the vectors to normalise: vector r is head r % heads of row r / heads of a matrix. */
struct dt_norm_place {
	int64_t heads, width, first; /* width: columns of the matrix; first: the first head's column */
};

DT_DEVICE int64_t dt_norm_element(const struct dt_norm_place &p, int64_t r, int64_t n)
{
	return p.heads == 1 ? r * p.width + p.first : r / p.heads * p.width + p.first + r % p.heads * n;
}

struct dt_norm_forward {
	void *y, *sum;
	float *mean, *rstd;
	const void *x, *delta, *w, *b;
	int t;
	int64_t rows, n;
	float eps;
	int tw;			 /* of w and b */
	struct dt_norm_place at; /* of x, delta, sum and y */
	bool plus_one;
	void *raw;	   /* [rows, n]: receives x, or NULL */
	bool keep;	   /* the row fits shared memory */
	const float *sums; /* sums of squares over the whole vectors, if these are shards; NULL: they are
			    * not */
	float over;	   /* with sums: elements of a whole vector */
};

/* Reads V normalisation inputs from element i on, after the first pass over them. */
template <int V>
DT_DEVICE void dt_norm_again(float (&r)[V], const struct dt_norm_forward &a, const float *row, int64_t i,
			     int64_t j)
{
	if (!a.keep) {
		dt_ld<V>(r, a.delta ? a.sum : a.x, a.t, dt_norm_element(a.at, i, a.n) + j);
		return;
	}
	for (int k = 0; k < V; k++)
		r[k] = row[j + k];
}

template <int V, bool RMS>
static __global__ void __launch_bounds__(256) dt_norm_forward_kernel(struct dt_norm_forward a)
{
	float *scratch = (float *)dt_shared(), *row = scratch + 32;
	const int64_t first = threadIdx.x * V, step = blockDim.x * V;

	for (int64_t i = blockIdx.x; i < a.rows; i += gridDim.x) {
		const int64_t at = dt_norm_element(a.at, i, a.n);
		float s = 0, mean = 0, rstd, r[V], u[V], y[V];

		for (int64_t j = first; j < a.n; j += step) {
			dt_ld<V>(r, a.x, a.t, at + j);
			if (a.raw)
				dt_st<V>(a.raw, a.t, i * a.n + j, r);
			if (a.delta) {
				dt_ld<V>(u, a.delta, a.t, at + j);
				for (int k = 0; k < V; k++)
					r[k] = dt_rounded(r[k] + u[k], a.t);
				dt_st<V>(a.sum, a.t, at + j, r);
			}
			for (int k = 0; k < V; k++) {
				if (a.keep)
					row[j + k] = r[k];
				s += RMS ? r[k] * r[k] : r[k];
			}
		}
		s = dt_block_sum(s, scratch);
		if (!RMS) {
			mean = s / (float)a.n;
			s = 0;
			for (int64_t j = first; j < a.n; j += step) {
				dt_norm_again<V>(r, a, row, i, j);
				for (int k = 0; k < V; k++)
					s += (r[k] - mean) * (r[k] - mean);
			}
			s = dt_block_sum(s, scratch);
		}
		rstd = 1.f / sqrtf((a.sums ? dt_at(a.sums, i) / a.over : s / (float)a.n) + a.eps);
		for (int64_t j = first; j < a.n; j += step) {
			dt_norm_again<V>(r, a, row, i, j);
			dt_ld<V>(u, a.w, a.tw, j);
			for (int k = 0; k < V; k++)
				y[k] = (r[k] - mean) * rstd * (a.plus_one ? u[k] + 1.f : u[k]);
			if (a.b) {
				dt_ld<V>(u, a.b, a.tw, j);
				for (int k = 0; k < V; k++)
					y[k] += u[k];
			}
			dt_st<V>(a.y, a.t, at + j, y);
		}
		if (threadIdx.x == 0 && a.mean)
			a.mean[i] = mean;
		if (threadIdx.x == 0 && a.rstd)
			a.rstd[i] = rstd;
	}
}

/* Threads that sum a row if rows can be moved by eights: determines the order of the sum. */
static inline DT_HOST_DEVICE int dt_norm_threads(int64_t n)
{
	return n > 1024 ? 256 : 128;
}

template <bool RMS> static int dt_norm_forward_start(const struct dt_cuda *c, struct dt_norm_forward a)
{
	const unsigned grid = dt_blocks(c, a.rows, 1);
	size_t smem = (size_t)a.n * 4;

	a.keep = smem <= DT_NORM_SHARED;
	smem = 128 + (a.keep ? smem : 0);
	if (dt_by_8(a.n | a.at.width | a.at.first, a.y, a.sum, a.raw, a.x, a.delta, a.w, a.b))
		return DT_LAUNCH(c, (dt_norm_forward_kernel<8, RMS>), grid, dt_norm_threads(a.n), smem, a);
	return DT_LAUNCH(c, (dt_norm_forward_kernel<1, RMS>), grid, 256, smem, a);
}

struct dt_norm_backward {
	void *dx;
	float *dw, *db, *part; /* part [groups, 2, n] */
	const void *dy, *dresid, *x, *w;
	const float *mean, *rstd;
	int t;
	int64_t rows, each, n;
	int tw;			       /* of w */
	struct dt_norm_place at, x_at; /* of dx, dy and dresid; of x */
	bool plus_one;
	bool keep;	   /* the sums of a group fit shared memory */
	const float *sums; /* of g xh, as in forward */
	float over;
};

/* The V elements that backward reads: x, dy and the weight. */
template <int V>
DT_DEVICE void dt_norm_read(float (&x)[V], float (&dy)[V], float (&w)[V], const struct dt_norm_backward &a,
			    int64_t i, int64_t j)
{
	dt_ld<V>(x, a.x, a.t, dt_norm_element(a.x_at, i, a.n) + j);
	dt_ld<V>(dy, a.dy, a.t, dt_norm_element(a.at, i, a.n) + j);
	dt_ld<V>(w, a.w, a.tw, j);
	for (int k = 0; a.plus_one && k < V; k++)
		w[k] += 1.f;
}

/* One group of rows per block; each thread sums its own columns of dw and db. */
template <int V, bool RMS>
static __global__ void __launch_bounds__(256) dt_norm_backward_kernel(struct dt_norm_backward a)
{
	float *scratch = (float *)dt_shared(), *out = a.part + blockIdx.x * 2 * a.n;
	float *sum = a.keep ? scratch + 32 : out;
	const int64_t begin = threadIdx.x * V, step = blockDim.x * V, first = blockIdx.x * a.each;
	const int64_t last = first + a.each < a.rows ? first + a.each : a.rows;

	for (int64_t j = begin; j < a.n; j += step)
		for (int k = 0; k < V; k++)
			sum[j + k] = sum[a.n + j + k] = 0;
	for (int64_t i = first; i < last; i++) {
		const float mean = RMS ? 0.f : dt_at(a.mean, i), rstd = dt_at(a.rstd, i);
		float g = 0, gx = 0, x[V], dy[V], w[V], r[V];

		for (int64_t j = begin; j < a.n; j += step) {
			dt_norm_read<V>(x, dy, w, a, i, j);
			for (int k = 0; k < V; k++) {
				const float xh = (x[k] - mean) * rstd;

				g += dy[k] * w[k];
				gx += dy[k] * w[k] * xh;
				sum[j + k] += dy[k] * xh;
				if (!RMS)
					sum[a.n + j + k] += dy[k];
			}
		}
		g = RMS ? 0.f : dt_block_sum(g, scratch) / (float)a.n;
		gx = dt_block_sum(gx, scratch) / (float)a.n;
		if (a.sums)
			gx = dt_at(a.sums, i) / a.over;
		for (int64_t j = begin; j < a.n; j += step) {
			dt_norm_read<V>(x, dy, w, a, i, j);
			for (int k = 0; k < V; k++)
				r[k] = 0;
			if (a.dresid)
				dt_ld<V>(r, a.dresid, a.t, dt_norm_element(a.at, i, a.n) + j);
			for (int k = 0; k < V; k++)
				r[k] += rstd * (dy[k] * w[k] - g - (x[k] - mean) * rstd * gx);
			dt_st<V, V == 8>(a.dx, a.t, dt_norm_element(a.at, i, a.n) + j, r);
		}
	}
	for (int64_t j = begin; a.keep && j < a.n; j += step)
		for (int k = 0; k < V; k++) {
			out[j + k] = sum[j + k];
			out[a.n + j + k] = sum[a.n + j + k];
		}
}

/* Sums two numbers over a warp with the shuffles of one: lane 0 gets a's sum and lane 16 b's. */
DT_DEVICE float dt_norm_two_sums(float a, float b)
{
	const bool low = threadIdx.x % 32 < 16;
	float v = (low ? a : b) + __shfl_xor_sync(DT_ALL, low ? b : a, 16);

	for (int by = 8; by; by >>= 1)
		v += __shfl_xor_sync(DT_ALL, v, by);
	return v;
}

/* dt_norm_element for fewer than 2^31 vectors: a 64-bit division would take the registers of a row. */
DT_DEVICE int64_t dt_norm_near(const struct dt_norm_place &p, uint32_t r, int64_t n)
{
	const uint32_t heads = (uint32_t)p.heads, row = heads == 1 ? r : r / heads;

	return row * p.width + p.first + (r - row * heads) * n;
}

/* The data a thread reads of a row. */
template <int T> struct dt_norm_row {
	dt_raw<T> x, dy;
	float mean, rstd;
};

template <int T, bool RMS>
DT_DEVICE void dt_norm_ask_row(dt_norm_row<T> &to, const struct dt_norm_backward &a, uint32_t i, uint32_t j)
{
	dt_ask<T>(to.x, a.x, dt_norm_near(a.x_at, i, a.n) + j);
	dt_ask<T>(to.dy, a.dy, dt_norm_near(a.at, i, a.n) + j);
	to.mean = RMS ? 0.f : dt_at(a.mean, i);
	to.rstd = dt_at(a.rstd, i);
}

/*
 * The same if each thread has at most eight columns: they stay in registers, and the next row is loaded
 * before this one is summed. The kernel is memory bound, so a row is kept unconverted (a conversion would
 * wait for the load) and a block has only the warps that a row needs. scratch: two buffers of two sums per
 * warp.
 */
template <int T, bool RMS>
static __global__ void __launch_bounds__(256, T == DT_F32 ? 2 : 3)
	dt_norm_backward_row_kernel(struct dt_norm_backward a)
{
	float *scratch = (float *)dt_shared(), *out = a.part + blockIdx.x * 2 * a.n;
	const uint32_t j = threadIdx.x * 8, first = (uint32_t)(blockIdx.x * a.each);
	const uint32_t last = (uint32_t)(first + a.each < a.rows ? first + a.each : a.rows);
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
	const bool mine = j < a.n;
	float w[8] = {}, dw[8] = {}, db[8] = {};
	dt_norm_row<T> now = {}, next = {};

	if (mine)
		dt_ld<8>(w, a.w, a.tw, j);
	for (int k = 0; a.plus_one && k < 8; k++)
		w[k] += 1.f;
	if (mine && first < last)
		dt_norm_ask_row<T, RMS>(now, a, first, j);
	for (uint32_t i = first; i < last; i++) {
		float *s = scratch + (i - first) % 2 * 16;
		float g = 0, gx = 0, xh[8], wdy[8];
		dt_raw<T> r0 = {};

		if (mine && a.dresid)
			dt_ask<T>(r0, a.dresid, dt_norm_near(a.at, i, a.n) + j);
		if (mine && i + 1 < last)
			dt_norm_ask_row<T, RMS>(next, a, i + 1, j);
		DT_UNROLL
		for (int k = 0; k < 8; k++) {
			const float dy = dt_look<T>(now.dy, k);

			xh[k] = (dt_look<T>(now.x, k) - now.mean) * now.rstd;
			wdy[k] = dy * w[k];
			g += wdy[k];
			gx += wdy[k] * xh[k];
			dw[k] += dy * xh[k];
			db[k] += RMS ? 0.f : dy;
		}
		gx = RMS ? dt_warp_sum(gx) : dt_norm_two_sums(g, gx);
		if (lane % 16 == 0)
			s[lane / 16 * 8 + warp] = gx;
		__syncthreads();
		g = gx = 0;
		for (int k = 0; k < warps; k++) {
			g += RMS ? 0.f : s[k];
			gx += s[8 + k];
		}
		g /= (float)a.n;
		gx /= (float)a.n;
		if (mine) {
			float r[8];

			DT_UNROLL
			for (int k = 0; k < 8; k++)
				r[k] = dt_look<T>(r0, k) + now.rstd * (wdy[k] - g - xh[k] * gx);
			dt_st<8>(a.dx, T, dt_norm_near(a.at, i, a.n) + j, r);
		}
		now = next;
	}
	if (!mine)
		return;
	dt_st<8>(out, DT_F32, j, dw);
	dt_st<8>(out, DT_F32, a.n + j, db);
}

template <bool RMS>
static int dt_norm_backward_row_start(const struct dt_cuda *c, const struct dt_norm_backward &a,
				      int64_t groups, unsigned threads)
{
	if (a.t == DT_F32)
		return DT_LAUNCH(c, (dt_norm_backward_row_kernel<DT_F32, RMS>), (unsigned)groups, threads,
				 128, a);
	if (a.t == DT_BF16)
		return DT_LAUNCH(c, (dt_norm_backward_row_kernel<DT_BF16, RMS>), (unsigned)groups, threads,
				 128, a);
	return DT_LAUNCH(c, (dt_norm_backward_row_kernel<DT_F16, RMS>), (unsigned)groups, threads, 128, a);
}

template <bool RMS>
static int dt_norm_backward_start(struct dt_dev *dev, const struct dt_cuda *c, struct dt_norm_backward a)
{
	const bool by_8 = dt_by_8(a.n | a.at.width | a.at.first | a.x_at.width | a.x_at.first, a.dx, a.dy,
				  a.dresid, a.x, a.w);
	const bool whole = by_8 && a.n <= 2048 && a.rows <= INT32_MAX && !a.sums; /* rows in registers */
	const int64_t warps = dt_ceil_div(a.n, 256);
	/* One group per block: several blocks per SM; for rows in registers as many as are resident at
	 * once. */
	const struct dt_row_groups g =
		dt_row_groups(a.rows, whole ? c->info.sms * (DT_NORM_WARPS(a.t) / warps) : 1024);
	size_t smem = (size_t)a.n * 8;
	int rc;

	a.each = g.rows;
	a.part = (float *)dt_cuda_scratch(dev, (size_t)(g.n * 2 * a.n) * sizeof *a.part);
	if (!a.part)
		return -ENOMEM;
	a.keep = smem <= DT_NORM_SHARED;
	smem = 128 + (a.keep ? smem : 0);
	if (whole)
		rc = dt_norm_backward_row_start<RMS>(c, a, g.n, (unsigned)warps * 32);
	else if (by_8)
		rc = DT_LAUNCH(c, (dt_norm_backward_kernel<8, RMS>), (unsigned)g.n, dt_norm_threads(a.n),
			       smem, a);
	else
		rc = DT_LAUNCH(c, (dt_norm_backward_kernel<1, RMS>), (unsigned)g.n, 256, smem, a);
	if (a.dw && rc == 0)
		rc = dt_groups_add(c, a.dw, a.part, 2 * a.n, g.n, a.n);
	if (a.db && rc == 0)
		rc = dt_groups_add(c, a.db, a.part + a.n, 2 * a.n, g.n, a.n);
	return rc;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
