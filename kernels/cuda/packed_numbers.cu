/*
 * quant.h's products with bf16 or f32 weights, row-major, for few rows of x: memory bound. A warp has a row
 * of w and up to 4 of x; a lane loads 128 bytes of w, eight loads of 16, before it uses the first, so 2048
 * rows are 62 KiB in flight on each of 132 SMs (Little's law: 4.8 TB/s * 0.8 us / 132 = 29 KiB), and 2048
 * columns of bf16 are one such piece. x comes from L1, which w bypasses: 16 bytes per row for 16 of w, with 4
 * rows 100 of the 128 bytes per clock that L1 delivers at full memory speed.
 *
 * The order of a row's sum does not depend on M: lanes in order of k, then over the lanes.
 *
 * Launches of a recorded step start early: the first piece of w is loaded while the previous launch still
 * runs. (Loading a second piece before the first is used costs more in registers than it gains: 1.08 ms per
 * token of a Llama of 1.1B on an H200, 1.05 without.)
 */
#include "kernels/cuda/packed.h"

#define WARPS 4
#define DEPTH 128 /* bytes of w per lane loaded at a time */

template <int T> DT_DEVICE float element(const uint4 &u, int i)
{
	const uint32_t w[4] = {u.x, u.y, u.z, u.w};
	float f;

	if (T == DT_BF16)
		return dt_bf16_to_f32((uint16_t)(w[i / 2] >> i % 2 * 16));
	memcpy(&f, &w[i], 4);
	return f;
}

struct w_piece {
	uint4 u[DEPTH / 16];
};

/* Loads a lane's part of a row of w from byte `at` on. */
DT_DEVICE void ask(struct w_piece &p, const char *w, int64_t at, int64_t bytes)
{
	DT_UNROLL
	for (int d = 0; d < DEPTH / 16; d++)
		if (at + d * 512 < bytes)
			p.u[d] = dt_once(w + at + d * 512);
}

/* sum[i] = this lane's share of w . x[i]; p: the first piece of w, already loading. */
template <int T, int M>
DT_DEVICE void products(float (&sum)[M], struct w_piece &p, const char *w, const char *(&x)[M], int64_t bytes)
{
	constexpr int each = T == DT_BF16 ? 8 : 4, depth = DEPTH / 16;
	const int64_t first = threadIdx.x % 32 * 16;

	DT_UNROLL
	for (int i = 0; i < M; i++)
		sum[i] = 0;
	for (int64_t at = first; at < bytes; at += depth * 512) {
		if (at != first)
			ask(p, w, at, bytes);
		DT_UNROLL
		for (int d = 0; d < depth; d++)
			DT_UNROLL
		for (int i = 0; i < M; i++) {
			if (at + d * 512 >= bytes)
				continue;
			const char *from = x[i] + at + d * 512;

			dt_touch(from, 16);
			const uint4 u = *(const uint4 *)from;

			DT_UNROLL
			for (int e = 0; e < each; e++)
				sum[i] = fmaf(element<T>(p.u[d], e), element<T>(u, e), sum[i]);
		}
	}
}

/* Address of the M rows of x from row0 on; with a fused norm, after computing them. */
template <int M>
DT_DEVICE void rows_of_x(const char *(&x)[M], const struct numbers &a, int64_t row0, int64_t end,
			 int64_t bytes)
{
	const char *made = NULL;

	if (a.front.y)
		made = dt_norm_front(a.front, dt_shared(), row0, dt_min64(row0 + M, end), blockIdx.x == 0);
	DT_UNROLL
	for (int i = 0; i < M; i++) {
		const int64_t row = dt_min64(row0 + i, end - 1);

		x[i] = made ? made + (row - row0) * bytes
			    : (const char *)a.x + dt_sorted_row(a.set, row) * bytes;
	}
}

/* w and x are of type T, and every row of both is 16-byte aligned. */
template <int T, int M> __global__ void __launch_bounds__(WARPS * 32) vector_kernel(struct numbers a)
{
	const int lane = (int)threadIdx.x % 32;
	const int64_t bytes = a.k * (T == DT_BF16 ? 2 : 4);
	int64_t row0, end, block = blockIdx.x;
	const void *all;
	const char *x[M], *w;
	float sum[M], gate[M] = {}, to = 0;
	struct w_piece first;

	dt_let_next();
	if (a.set.n)
		dt_wait_before(); /* the set's tables are written in this step */
	if (!tile_of<M>(a, a.tile + blockIdx.y, &row0, &end, &all))
		return;
	struct beside p = part_of(a, all, WARPS, &block);
	const int64_t col = block * WARPS + threadIdx.x / 32;

	/* A warp past the last column only takes part in the norm. */
	w = (const char *)p.w + col * bytes;
	if (col < p.rows)
		ask(first, w, lane * 16, bytes);
	dt_wait_before();
	if (col < p.rows && lane < M && row0 + lane < end)
		to = residual_at(a, p, row0 + lane, col);
	rows_of_x<M>(x, a, row0, end, bytes);
	if (col >= p.rows)
		return;
	products<T, M>(sum, first, w, x, bytes);
	if (a.gate) {
		p = a.more[0];
		w = (const char *)p.w + col * bytes;
		ask(first, w, lane * 16, bytes);
		DT_UNROLL
		for (int i = 0; i < M; i++)
			gate[i] = dt_warp_sum(sum[i]);
		products<T, M>(sum, first, w, x, bytes);
	}
	DT_UNROLL
	for (int i = 0; i < M; i++) {
		const float s = dt_warp_sum(sum[i]);

		if (lane == i && row0 + i < end)
			finish(a, p, row0 + i, col, s, gate[i], to);
	}
}

/* Any types and any k, one element at a time; x is rounded to bf16 for bf16 weights. */
__global__ void __launch_bounds__(WARPS * 32) any_kernel(struct numbers a)
{
	const int lane = (int)threadIdx.x % 32;
	const int64_t col = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
	int64_t row, end;
	const void *w;
	float s = 0;

	if (col >= a.rows || !tile_of<1>(a, a.tile + blockIdx.y, &row, &end, &w))
		return;
	const int64_t from = dt_sorted_row(a.set, row);

	for (int64_t k = lane; k < a.k; k += 32) {
		float x = dt_ld1(a.x, a.tx, from * a.k + k);

		x = a.tw == DT_BF16 ? dt_bf16_to_f32(dt_narrow(x, DT_BF16)) : x;
		s = fmaf(dt_ld1(w, a.tw, col * a.k + k), x, s);
	}
	s = dt_warp_sum(s);
	if (lane != 0)
		return;
	if (a.bias)
		s += dt_ld1(a.bias, a.tb, a.first + col);
	dt_st1(a.y, a.ty, row * a.ld + a.first + col, s);
}

template <int T, int M> static int vectors(const struct dt_cuda *c, struct numbers a)
{
	const unsigned blocks = (unsigned)blocks_of(a, WARPS);

	return dt_in_pieces(tiles_of<M>(a), [&](int64_t first, unsigned n) {
		a.tile = first;
		return DT_LAUNCH_EARLY(c, true, (vector_kernel<T, M>), dim3(blocks, n), WARPS * 32,
				       dt_norm_front_bytes(a.front, M), a);
	});
}

static int singly(const struct dt_cuda *c, struct numbers a)
{
	const unsigned blocks = (unsigned)dt_ceil_div(a.rows, WARPS);

	return dt_in_pieces(tiles_of<1>(a), [&](int64_t first, unsigned n) {
		a.tile = first;
		return DT_LAUNCH(c, any_kernel, dim3(blocks, n), WARPS * 32, 0, a);
	});
}

template <int T> static int any_rows(const struct dt_cuda *c, const struct numbers &a)
{
	if (a.set.n)
		return alone(a.set) ? vectors<T, 1>(c, a) : vectors<T, 4>(c, a);
	return a.m == 1 ? vectors<T, 1>(c, a) : a.m == 2 ? vectors<T, 2>(c, a) : vectors<T, 4>(c, a);
}

int dt_number_rows(const struct dt_cuda *c, const struct numbers &a)
{
	if (dt_numbers_fast(a))
		return a.tw == DT_BF16 ? any_rows<DT_BF16>(c, a) : any_rows<DT_F32>(c, a);
	return singly(c, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
