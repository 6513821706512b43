/*
 * Paged attention on tensor cores for 16-bit latent attention: keys of up to 576 elements whose last
 * elements, up to 512, are their values (DeepSeek-V2 and V3). A block of four warps has one part of the keys
 * (attention_paged.h) for 16 q heads of one row. 64 keys at a time are copied to shared memory once, for
 * scores and values: each warp computes the scores of 16 of them, then all warps compute the weights of all
 * 64, and each accumulates 128 columns of values. A row's bits depend on its keys alone. 96 KiB per block:
 * two blocks fit an SM of 227 KiB, and the copies of one overlap the products of the other.
 */
#include "kernels/cuda/attention_paged.h"

#include "kernels/cuda/mma.h"

#define ROWS   16
#define KEYS   64
#define WIDE   576 /* maximum columns of a key */
#define STRIDE (WIDE + 8)
#define WARPS  4
#define COLS   128 /* columns of values per warp */
#define SCORES (KEYS + 4)

/* Copies rows of n columns, one per warp; missing rows become zeros. */
template <class F> DT_DEVICE void bring(uint16_t *tile, int rows, int64_t n, const void *any, F row_at)
{
	for (int r = (int)threadIdx.x / 32; r < rows; r += WARPS) {
		const uint16_t *from = row_at(r);

		for (int c = (int)threadIdx.x % 32 * 8; c < (int)n; c += 256)
			dt_cp_async(tile + r * STRIDE + c, from ? from + c : (const uint16_t *)any,
				    from ? 16 : 0);
	}
	dt_cp_commit();
	dt_cp_wait<0>();
	__syncthreads();
}

/* Scores of 16 rows and the warp's 16 keys, as exponents of 2, into the block's shared scores. */
template <class T>
DT_DEVICE void score(float *to, const struct paged &a, const struct row &r, const uint16_t *q,
		     const uint16_t *k, int64_t key)
{
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	float s[2][4] = {};

	for (int c = 0; c < (int)a.d; c += 16) {
		uint32_t fa[4], fb[4];

		dt_fragment_a(fa, q, STRIDE, 0, c);
		dt_fragment_b(fb, k, STRIDE, warp * 16, c);
		dt_mma<T>(s[0], fa, fb[0], fb[1]);
		dt_mma<T>(s[1], fa, fb[2], fb[3]);
	}
	DT_UNROLL
	for (int i = 0; i < 8; i++) {
		const int row = lane / 4 + i % 4 / 2 * 8, at = warp * 16 + i / 4 * 8 + lane % 4 * 2 + i % 2;
		const float v = s[i / 4][i % 4] * a.scale;

		to[row * SCORES + at] = key + at < r.first || key + at > r.last
						? DT_NEGINF
						: (a.cap > 0 ? dt_softcap_fast(v, a.cap) : v) * DT_LOG2E;
	}
}

/* Turns the block's scores into weights s[n][e] of row lane / 4 + 8 (e / 2) and key
 * n * 8 + 2 (lane % 4) + e % 2. */
DT_DEVICE void weigh_row(float (&s)[8][4], float (&o)[COLS / 8][4], float &max, float &sum, const float *from,
			 int h)
{
	const int lane = (int)threadIdx.x % 32;
	float top = max;

	DT_UNROLL
	for (int i = 0; i < 16; i++) {
		float &v = s[i / 2][2 * h + i % 2];

		v = from[(lane / 4 + 8 * h) * SCORES + i / 2 * 8 + lane % 4 * 2 + i % 2];
		top = v > top ? v : top;
	}
	weigh_half(s, o, max, sum, top, h);
}

/* Stores a warp's columns of a row (the head at `at`); the first warp also stores the sum. */
template <class T>
DT_DEVICE void leave(const struct paged &a, const float (&o)[COLS / 8][4], int h, float max, float sum,
		     int64_t at, int cols)
{
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	const int64_t to = at * a.parts + blockIdx.x;

	DT_UNROLL
	for (int i = 0; i < COLS / 4; i++) {
		const int c = i / 2 * 8 + lane % 4 * 2 + i % 2;
		const float v = o[i / 2][2 * h + i % 2];

		if (c >= cols)
			continue;
		if (a.parts == 1)
			dt_st1(a.o, (int)T::type, at * a.dv + warp * COLS + c, v / sum);
		else
			dt_st1(a.part, DT_F32, to * a.dv + warp * COLS + c, v);
	}
	if (a.parts > 1 && warp == 0 && lane % 4 == 0) {
		dt_st1(a.max, DT_F32, to, max);
		dt_st1(a.sum, DT_F32, to, sum);
	}
}

template <class T> __global__ void __launch_bounds__(WARPS * 32) latent_tile_kernel(struct paged a)
{
	uint16_t *q = (uint16_t *)dt_shared(), *k = q + ROWS * STRIDE;
	float *scores = (float *)(k + KEYS * STRIDE);
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	const int group = (int)(a.heads / a.kv_heads), chunks = (group + ROWS - 1) / ROWS;
	const int64_t at = blockIdx.y, kv = blockIdx.z / chunks, base = (int64_t)blockIdx.x * PART;
	const int head = (int)blockIdx.z % chunks * ROWS, n = group - head < ROWS ? group - head : ROWS;
	const int64_t first = kv * group + head;
	const struct row r = row_of(a, find_seq(a, (int32_t)(a.first + at)), (int32_t)(a.first + at));
	const int cols = (int)a.dv - warp * COLS < COLS ? (int)a.dv - warp * COLS : COLS;
	float o[COLS / 8][4], max[2] = {DT_NEGINF, DT_NEGINF}, sum[2] = {0, 0};

	if (base > r.last || base + PART <= r.first)
		return;
	dt_zero(o);
	bring(q, ROWS, a.d, a.q,
	      [&](int i) { return i < n ? (const uint16_t *)a.q + at * a.width + (first + i) * a.d : NULL; });
	for (int64_t j = base; j < base + PART && j <= r.last; j += KEYS) {
		float s[8][4];

		if (j + KEYS <= r.first)
			continue;
		bring(k, KEYS, a.d, a.k, [&](int i) {
			const bool there = j + i >= r.first && j + i <= r.last;

			return there ? (const uint16_t *)a.k +
					       (cache_row(a, r.seq, j + i) * a.kv_heads + kv) * a.d
				     : NULL;
		});
		score<T>(scores, a, r, q, k, j);
		__syncthreads();
		for (int h = 0; h < 2; h++)
			weigh_row(s, o, max[h], sum[h], scores, h);
		dt_attn_gather<T, COLS, STRIDE>(o, s, k + a.v_at + warp * COLS, cols);
		__syncthreads(); /* before the next keys are copied */
	}
	DT_UNROLL
	for (int h = 0; h < 2; h++) {
		float all = sum[h] + __shfl_xor_sync(DT_ALL, sum[h], 1);

		all += __shfl_xor_sync(DT_ALL, all, 2);
		if (lane / 4 + 8 * h < n)
			leave<T>(a, o, h, max[h], all, at * a.heads + first + lane / 4 + 8 * h, cols);
	}
}

bool dt_latents_in_tiles(const struct paged *a)
{
	return a->tq != DT_F32 && a->tk == a->tq && a->dv < a->d && a->d <= WIDE && a->dv <= WARPS * COLS &&
	       a->d % 16 == 0 && a->dv % 16 == 0 && a->width % 8 == 0 && dt_by_8(a->d, a->q, a->k);
}

int dt_latent_tiles(const struct dt_cuda *c, struct paged a)
{
	const size_t smem = (size_t)(ROWS + KEYS) * STRIDE * 2 + (size_t)ROWS * SCORES * 4;
	const dim3 grid((unsigned)a.parts, (unsigned)a.rows,
			(unsigned)(a.kv_heads * dt_ceil_div(a.heads / a.kv_heads, ROWS)));

	return DT_LAUNCH(
		c, (a.tq == DT_BF16 ? latent_tile_kernel<struct dt_bf16> : latent_tile_kernel<struct dt_f16>),
		grid, WARPS * 32, smem, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
