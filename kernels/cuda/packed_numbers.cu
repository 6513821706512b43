/*
 * quant.h's products with weights kept as bf16 or f32, row by row, for few rows of x: they wait for memory. A
 * warp has a row of w, or a half or a quarter of one that is longer than 4 KiB, and up to 4 rows of x; a lane
 * asks for up to 128 bytes of w, eight loads of 16, before anything else: w depends on no kernel before. So
 * 24 warps keep up to 96 KiB in flight on an SM (Little's law: 4.8 TB/s * 0.8 us / 132 = 29 KiB), and most
 * products wait for memory once. Meanwhile one row of x comes to shared memory, and is normalised there where
 * a norm is in front of the product (step.h); more rows come from the first cache, which w passes by. Gate
 * and up are two warps'.
 *
 * How a row is added up depends on k alone: lanes in the order of k, then over the lanes, then over the warps
 * that share it.
 */
#include "kernels/cuda/packed.h"

#define WARPS	  8
#define DEPTH	  8		/* loads of 16 bytes, of 512 a warp */
#define PIECE	  (DEPTH * 512) /* bytes of w that a warp asks for at a time */
#define MOST	  4		/* warps that share a row */
#define ROOM	  (24 << 10)	/* of a row of x in shared memory */
#define ROOM_NORM (64 << 10)	/* and with the scales of its norm in f32 */

/* Where x is: in global memory, copied to shared memory, or normalised there. */
enum { FAR, NEAR, NORMED };

template <int T> DT_DEVICE float element(const uint4 &u, int i)
{
	const uint32_t w[4] = {u.x, u.y, u.z, u.w};
	float f;

	if (T == DT_BF16)
		return dt_bf16_to_f32((uint16_t)(w[i / 2] >> i % 2 * 16));
	memcpy(&f, &w[i], 4);
	return f;
}

/* 16 bytes that are read once. In order: the compiler may not move it behind a barrier to where it is used. */
DT_DEVICE uint4 ask(const char *p)
{
#ifdef __CUDA_ARCH__
	uint4 u;

	asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
		     : "=r"(u.x), "=r"(u.y), "=r"(u.z), "=r"(u.w)
		     : "l"(p));
	return u;
#else
	return dt_once(p);
#endif
}

/* Bytes at, at + 512 ... of w before end; zeros behind it. */
DT_DEVICE void bring(uint4 (&piece)[DEPTH], const char *w, int at, int end)
{
	DT_UNROLL
	for (int d = 0; d < DEPTH; d++) {
		piece[d] = uint4{0, 0, 0, 0};
		if (at + d * 512 < end)
			piece[d] = ask(w + at + d * 512);
	}
}

/* sum[i] += w . x[i], this lane's share of a piece. */
template <int T, int M>
DT_DEVICE void products(float (&sum)[M], const uint4 (&piece)[DEPTH], const char *const (&x)[M], int at,
			int end)
{
	constexpr int each = T == DT_BF16 ? 8 : 4;

	DT_UNROLL
	for (int d = 0; d < DEPTH; d++)
		DT_UNROLL
	for (int i = 0; i < M; i++) {
		const char *from = x[i] + at + d * 512;
		uint4 u = {0, 0, 0, 0};

		if (at + d * 512 < end) {
			dt_touch(from, 16);
			u = *(const uint4 *)from;
		}
		DT_UNROLL
		for (int e = 0; e < each; e++)
			sum[i] = fmaf(element<T>(piece[d], e), element<T>(u, e), sum[i]);
	}
}

/* A row of x in shared memory. */
DT_DEVICE void copy_row(char *to, const char *from, int bytes)
{
	for (int at = (int)threadIdx.x * 16; at < bytes; at += WARPS * 32 * 16) {
		dt_touch(from + at, 16);
		*(uint4 *)(to + at) = *(const uint4 *)(from + at);
	}
}

/*
 * The same, its root mean square norm: the bits of norm.h's dt_norm_forward_kernel<8, true>. Scales are asked
 * for together with x. Block 0 also leaves the norm where its op would. scratch: 32 floats.
 */
template <int T>
DT_DEVICE void norm_row(char *to, float *scale, float *scratch, const void *x, const struct head &h, int n)
{
	const int threads = dt_norm_threads(n), lane = (int)threadIdx.x % 32;
	const int first = (int)threadIdx.x < threads ? (int)threadIdx.x * 8 : n;
	float s = 0, r[8], u[8], rstd;

	for (int j = first; j < n; j += threads * 8) {
		dt_ld<8>(r, x, T, j);
		dt_ld<8>(u, h.g, h.tg, j);
		DT_UNROLL
		for (int k = 0; k < 8; k++) {
			scale[j + k] = h.plus_one ? u[k] + 1.f : u[k];
			s += r[k] * r[k];
		}
		dt_st<8>(to, T, j, r);
	}
	s = dt_warp_sum(s);
	if (lane == 0)
		scratch[threadIdx.x / 32] = s;
	__syncthreads();
	s = dt_warp_sum(lane < threads / 32 ? scratch[lane] : 0.f);
	rstd = 1.f / sqrtf(s / (float)n + h.eps);
	for (int j = first; j < n; j += threads * 8) {
		dt_ld<8>(r, to, T, j);
		DT_UNROLL
		for (int k = 0; k < 8; k++)
			r[k] = r[k] * rstd * scale[j + k];
		dt_st<8>(to, T, j, r);
		if (blockIdx.x == 0)
			dt_st<8>(h.y, T, j, r);
	}
}

/* Warps that share a row of w: as many as leave each one piece. */
static inline DT_HOST_DEVICE int shared_by(int64_t bytes)
{
	return bytes <= PIECE ? 1 : bytes <= 2 * PIECE ? 2 : MOST;
}

/* Rows of w that a block has. */
static inline DT_HOST_DEVICE int rows_of(const struct numbers &a, int size)
{
	return WARPS / shared_by(a.k * size) / (a.gate ? 2 : 1);
}

/* w and x are of type T, and both aligned to 16 bytes in every row. */
template <int T, int M, int WHERE>
__global__ void __launch_bounds__(WARPS * 32, M == 1 ? 3 : 2) vector_kernel(struct numbers a)
{
	constexpr int size = T == DT_BF16 ? 2 : 4;
	float *scratch = (float *)dt_shared(), *sums = scratch + 32; /* [WARPS][M] */
	char *near = (char *)(sums + WARPS * 4);
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, bytes = (int)a.k * size;
	const int by = shared_by(bytes), gates = a.gate ? 2 : 1, each = rows_of(a, size);
	const int share = (bytes + 512 * by - 1) / (512 * by) * 512, from = warp % by * share;
	const int done = (int)threadIdx.x / M, row = (int)threadIdx.x % M; /* what this thread finishes */
	int64_t row0, end, block = blockIdx.x;
	uint4 piece[DEPTH];
	const void *all;
	const char *x[M];
	float sum[M], with = 0;

	if (!tile_of<M>(a, blockIdx.y, &row0, &end, &all))
		return;
	struct beside p = part_of(a, all, each, &block);
	const int64_t col = block * each + warp / by / gates, out = block * each + done;
	const char *w = (const char *)(warp / by % gates ? a.more[0].w : p.w) + col * bytes;
	const int to = col < p.rows ? from + share < bytes ? from + share : bytes : 0;
	const bool finishes = done < each && out < p.rows && row0 + row < end;

	bring(piece, w, from + lane * 16, to);
	if (a.sum && finishes)
		with = dt_ld1(a.with, a.ty, (row0 + row) * a.ld + p.first + out);
	DT_UNROLL
	for (int i = 0; i < M; i++) {
		x[i] = (const char *)a.x + dt_sorted_row(a.set, dt_min64(row0 + i, end - 1)) * bytes;
		sum[i] = 0;
	}
	if (WHERE == NEAR)
		copy_row(near, x[0], bytes);
	if (WHERE == NORMED)
		norm_row<T>(near, (float *)(near + bytes), scratch, x[0], a.head, (int)a.k);
	if (WHERE != FAR) {
		__syncthreads();
		x[0] = near;
	}
	for (int at = from; at < to; at += PIECE) {
		if (at > from)
			bring(piece, w, at + lane * 16, to);
		products<T, M>(sum, piece, x, at + lane * 16, to);
	}
	DT_UNROLL
	for (int i = 0; i < M; i++) {
		const float s = dt_warp_sum(sum[i]);

		if (lane == i)
			sums[warp * M + i] = s;
	}
	__syncthreads();
	if (finishes) {
		const float *of = sums + done * gates * by * M + row;
		float s[2] = {0, 0};

		for (int g = 0; g < gates; g++)
			for (int i = 0; i < by; i++)
				s[g] = i ? s[g] + of[(g * by + i) * M] : of[g * by * M];
		if (a.gate)
			p = a.more[0];
		const float y = finish(a, p, row0 + row, out, s[a.gate ? 1 : 0], s[0]);

		if (a.sum)
			dt_st1(a.sum, a.ty, (row0 + row) * a.ld + p.first + out, with + y);
	}
	after_all(a.tail, scratch);
}

/* Any types and any k, an element at a time; x is rounded to bf16 for weights of bf16. */
__global__ void __launch_bounds__(WARPS * 32) any_kernel(struct numbers a)
{
	const int lane = (int)threadIdx.x % 32;
	const int64_t col = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
	int64_t row, end;
	const void *w;
	float s = 0;

	if (col >= a.rows || !tile_of<1>(a, blockIdx.y, &row, &end, &w))
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

template <int T, int M> static int vectors(const struct dt_cuda *c, const struct numbers &a)
{
	const int64_t size = T == DT_BF16 ? 2 : 4, bytes = a.k * size;
	const dim3 grid((unsigned)blocks_of(a, rows_of(a, (int)size)), (unsigned)tiles_of<M>(a));
	const size_t own = 128 + WARPS * 4 * 4;

	if constexpr (M == 1) {
		if (a.head.g)
			return DT_LAUNCH(c, (vector_kernel<T, 1, NORMED>), grid, WARPS * 32,
					 own + (size_t)(bytes + a.k * 4), a);
		if (bytes <= ROOM)
			return DT_LAUNCH(c, (vector_kernel<T, 1, NEAR>), grid, WARPS * 32,
					 own + (size_t)bytes, a);
	}
	return DT_LAUNCH(c, (vector_kernel<T, M, FAR>), grid, WARPS * 32, own, a);
}

bool dt_numbers_norm(const struct numbers &a)
{
	return a.m == 1 && !a.set.n && a.k * (dt_dtype_size((enum dt_dtype)a.tw) + 4) <= ROOM_NORM;
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
	return DT_LAUNCH(c, any_kernel, dim3((unsigned)dt_ceil_div(a.rows, WARPS), (unsigned)tiles_of<1>(a)),
			 WARPS * 32, 0, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
