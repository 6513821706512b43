/*
 * Layer and root mean square normalisation are one kernel each way: RMS leaves out the mean and the bias.
 * Forward moves 2 sizes of x (4 with the residual), backward 4 (and 2 from the second cache for the second
 * pass over a row). A block has one row at a time, or one head of a row.
 */
#ifndef DT_KERNELS_CUDA_NORM_H
#define DT_KERNELS_CUDA_NORM_H

#include "kernels/cuda/groups.h"

#define DT_NORM_SHARED (96 << 10) /* rows and sums past this stay in global memory */

/* Where the vectors that are normalised are: vector r is head r % heads of row r / heads of a matrix. */
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
	void *raw;	   /* [rows, n]: x as it was, or NULL */
	bool keep;	   /* the row fits shared memory */
	const float *sums; /* of squares, of the vectors that these are parts of; NULL: these are whole */
	float over;	   /* with sums: elements of a whole vector */
};

/* Elements i of what is normalised, after its first pass. */
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

/* Threads that a row is added up by where rows can be moved by eights: the order of the sum. */
static inline DT_HOST_DEVICE int dt_norm_threads(int64_t n)
{
	return n > 1024 ? 256 : 128;
}

/*
 * RMS of all rows by one block of 128 or 256 threads, at the end of a kernel that made delta; scratch: 32
 * floats, shared. The bits of dt_norm_forward_kernel<8, true>, whose threads may be twice as many or half.
 */
DT_DEVICE void dt_norm_tail(const struct dt_norm_forward &a, float *scratch)
{
	const int threads = dt_norm_threads(a.n), lane = (int)threadIdx.x % 32;

	for (int64_t i = 0; i < a.rows; i++) {
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
	const float *sums; /* of g xh, as forward has them */
	float over;
};

/* V elements of what backward reads: x, dy and the weight. */
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

/* A block has a group of rows; each thread adds up its own columns of dw and db. */
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
			dt_st<V>(a.dx, a.t, dt_norm_element(a.at, i, a.n) + j, r);
		}
	}
	for (int64_t j = begin; a.keep && j < a.n; j += step)
		for (int k = 0; k < V; k++) {
			out[j + k] = sum[j + k];
			out[a.n + j + k] = sum[a.n + j + k];
		}
}

/* Over the block, of two numbers at once; s: 128 floats of which `turn`, which changes every time, has 64. */
DT_DEVICE void dt_norm_block_sums(float &a, float &b, float *s, int turn)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;

	s += turn * 64;
	a = dt_warp_sum(a);
	b = dt_warp_sum(b);
	if (lane == 0) {
		s[warp] = a;
		s[32 + warp] = b;
	}
	__syncthreads();
	a = dt_warp_sum(lane < warps ? s[lane] : 0.f);
	b = dt_warp_sum(lane < warps ? s[32 + lane] : 0.f);
}

/*
 * The same where a thread has eight columns and no more: they stay in registers, and the next row is on its
 * way while this one is added up.
 */
template <bool RMS>
static __global__ void __launch_bounds__(256) dt_norm_backward_row_kernel(struct dt_norm_backward a)
{
	float *scratch = (float *)dt_shared(), *out = a.part + blockIdx.x * 2 * a.n;
	const int64_t j = threadIdx.x * 8, first = blockIdx.x * a.each;
	const int64_t last = first + a.each < a.rows ? first + a.each : a.rows;
	const bool mine = j < a.n;
	float x[8] = {}, dy[8] = {}, w[8] = {}, dw[8] = {}, db[8] = {};

	if (mine && first < last)
		dt_norm_read<8>(x, dy, w, a, first, j);
	for (int64_t i = first; i < last; i++) {
		const float mean = RMS ? 0.f : dt_at(a.mean, i), rstd = dt_at(a.rstd, i);
		const int64_t at = dt_norm_element(a.at, i, a.n) + j;
		float xh[8], r[8] = {}, next[8] = {}, dnext[8] = {}, g = 0, gx = 0;

		if (mine && i + 1 < last) {
			dt_ld<8>(next, a.x, a.t, dt_norm_element(a.x_at, i + 1, a.n) + j);
			dt_ld<8>(dnext, a.dy, a.t, dt_norm_element(a.at, i + 1, a.n) + j);
		}
		if (mine && a.dresid)
			dt_ld<8>(r, a.dresid, a.t, at);
		DT_UNROLL
		for (int k = 0; k < 8; k++) {
			xh[k] = mine ? (x[k] - mean) * rstd : 0;
			g += dy[k] * w[k];
			gx += dy[k] * w[k] * xh[k];
			dw[k] += dy[k] * xh[k];
			db[k] += RMS ? 0.f : dy[k];
		}
		dt_norm_block_sums(g, gx, scratch, (int)((i - first) % 2));
		g = RMS ? 0.f : g / (float)a.n;
		gx /= (float)a.n;
		DT_UNROLL
		for (int k = 0; k < 8; k++) {
			r[k] += rstd * (dy[k] * w[k] - g - xh[k] * gx);
			x[k] = next[k];
			dy[k] = dnext[k];
		}
		if (mine)
			dt_st<8>(a.dx, a.t, at, r);
	}
	if (!mine)
		return;
	dt_st<8>(out, DT_F32, j, dw);
	dt_st<8>(out, DT_F32, a.n + j, db);
}

template <bool RMS>
static int dt_norm_backward_start(struct dt_dev *dev, const struct dt_cuda *c, struct dt_norm_backward a)
{
	const struct dt_row_groups g = dt_row_groups(a.rows, 1024); /* a block each, and several an SM */
	size_t smem = (size_t)a.n * 8;
	int rc;

	a.each = g.rows;
	a.part = (float *)dt_cuda_scratch(dev, (size_t)(g.n * 2 * a.n) * sizeof *a.part);
	if (!a.part)
		return -ENOMEM;
	a.keep = smem <= DT_NORM_SHARED;
	smem = 128 + (a.keep ? smem : 0);
	if (dt_by_8(a.n | a.at.width | a.at.first | a.x_at.width | a.x_at.first, a.dx, a.dy, a.dresid, a.x,
		    a.w)) {
		const unsigned threads = a.n > 1024 ? 256 : 128;

		rc = a.n <= threads * 8 && !a.sums
			     ? DT_LAUNCH(c, dt_norm_backward_row_kernel<RMS>, (unsigned)g.n, threads, 512, a)
			     : DT_LAUNCH(c, (dt_norm_backward_kernel<8, RMS>), (unsigned)g.n, threads, smem,
					 a);
	} else
		rc = DT_LAUNCH(c, (dt_norm_backward_kernel<1, RMS>), (unsigned)g.n, 256, smem, a);
	if (a.dw && rc == 0)
		rc = dt_groups_add(c, a.dw, a.part, 2 * a.n, g.n, a.n);
	if (a.db && rc == 0)
		rc = dt_groups_add(c, a.db, a.part + a.n, 2 * a.n, g.n, a.n);
	return rc;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
