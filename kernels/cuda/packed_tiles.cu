/*
 * quant.h's products with quantised weights for many rows of x, on tensor cores and with the same bits as for
 * one row: mma.sync on signed bytes gives a block's integer sums exactly, and each is added in f32 in the
 * order of k that the contract requires.
 *
 * Why not widen the weights to bf16: the contract quantises x to bytes, and a bf16 product would add up in
 * another order than decoding, so that a prompt's bits depended on how it was cut. The price is the scales: a
 * warp's 16 x 8 x 32 product leaves 4 sums per lane, each of which takes 3 f32 instructions (convert from
 * integer, scale by scale, add), 12 for 4096 multiplications; with the product itself and its operands about
 * 17. An SM issues 4 per clock: 940 multiplications per clock. On sm_90 mma.sync in bf16 does at most some
 * 1300 (two thirds of wgmma's 2048) before any weight is widened.
 *
 * A group of warps has 32 rows of w, two panels, whose words are the first operand in place: lane 4 g + t
 * loads four rows of one chunk of four elements in 16 bytes, rows 4 (g % 4) .. + 3 of panel g / 4. Within a
 * block of k any order of the elements gives the same integers, so slot t of the operand is chunk 2 t, slot t
 * + 4 chunk 2 t + 1 (chunks t and t + 4 where halves are two products).
 */
#include "kernels/cuda/mma.h"
#include "kernels/cuda/packed.h"

/*
 * A thread block has 32 GROUPS rows of w by 8 CUTS N rows of x, one warp per group and cut; DEEP blocks of k
 * at a time, in a pipeline of STAGES stages. RESIDENT: blocks that should fit an SM.
 */
template <int FORMAT, int GROUPS, int CUTS, int N, int DEEP, int STAGES, int RESIDENT> struct tile {
	static constexpr int format = FORMAT, groups = GROUPS, cuts = CUTS, n = N, deep = DEEP,
			     stages = STAGES, resident = RESIDENT;
	static constexpr int panels = 2 * GROUPS, rows = 32 * GROUPS, tokens = 8 * CUTS * N,
			     threads = 32 * GROUPS * CUTS;
	static constexpr int stride = 32 * DEEP + 32; /* of x: avoids bank conflicts between four rows */
	static constexpr bool halves = has_halves(FORMAT), joined = dt_panel_joined(FORMAT),
			      minimum = dt_panel_minimum(FORMAT);
};

/* Bytes of a panel in a stage, and of a whole stage. */
template <class T> DT_HOST_DEVICE static inline int share_bytes(const struct quant &a)
{
	return T::deep * (a.quants + a.scales) + a.supers;
}

template <class T> DT_HOST_DEVICE static inline int stage_bytes(const struct quant &a)
{
	return T::panels * share_bytes<T>(a) + T::tokens * (T::stride + T::deep * (int)sizeof(struct xblock));
}

/*
 * Index of the i-th 16 bytes of a panel, swizzled so that an eighth of a warp reads without bank conflicts.
 */
DT_DEVICE int swizzled(int i)
{
	return i ^ (i >> 3 & 3) << 1;
}

/* The rows of x of a thread block, all of one weight. */
struct strip {
	int64_t row, end;
	const void *w;
};

/* Starts copying blocks [b0, b0 + deep) of k, of w and x, to a stage, as far as they exist. */
template <class T>
DT_DEVICE void fetch(const struct quant &a, const struct strip &is, uint8_t *to, int64_t b0)
{
	const int thread = (int)threadIdx.x, warp = thread / 32, lane = thread % 32;
	const int n = (int)dt_min64(T::deep, a.blocks - b0);
	const int q = T::deep * a.quants, s = q + T::deep * a.scales;
	const int64_t p0 = (int64_t)blockIdx.y * T::panels;
	uint8_t *x = to + T::panels * share_bytes<T>(a), *xs = x + T::tokens * T::stride;

	DT_UNROLL_BY(1)
	for (int p = warp; p < T::panels && (p0 + p) * DT_PANEL < a.rows; p += T::threads / 32) {
		const uint8_t *panel = (const uint8_t *)is.w + (p0 + p) * (int64_t)a.panel_bytes;
		uint8_t *room = to + p * share_bytes<T>(a);

		DT_UNROLL_BY(1)
		for (int u = lane; u < n * a.quants / 16; u += 32)
			dt_cp_async(room + swizzled(u) * 16, panel + b0 * a.quants + u * 16, 16);
		DT_UNROLL_BY(1)
		for (int u = lane; u < n * a.scales / 16; u += 32)
			dt_cp_async(room + q + u * 16, scales_of(a, panel, b0) + u * 16, 16);
		DT_UNROLL_BY(1)
		for (int u = lane; u < a.supers / 16; u += 32)
			dt_cp_async(room + s + u * 16, supers_of(a, panel, b0) + u * 16, 16);
	}
	DT_UNROLL_BY(1)
	for (int i = thread; i < T::tokens * 2 * T::deep; i += T::threads) {
		const int row = i / (2 * T::deep), u = i % (2 * T::deep);

		if (is.row + row < is.end && u < 2 * n)
			dt_cp_async(x + row * T::stride + u * 16,
				    a.q + ((is.row + row) * a.blocks + b0) * DT_QK + u * 16, 16);
	}
	DT_UNROLL_BY(1)
	for (int i = thread; i < T::tokens * T::deep; i += T::threads) {
		const int row = i / T::deep, b = i % T::deep;

		if (is.row + row < is.end && b < n)
			dt_cp_async_8(xs + (b * T::tokens + row) * 8,
				      a.x + (is.row + row) * a.blocks + b0 + b);
	}
}

DT_DEVICE struct four unit_at(const uint8_t *room, int i)
{
	return four_at(room + swizzled(i) * 16);
}

/* The words that hold chunks 2 v and 2 v + 1 of rows 4 quad .. + 3 of a block, which begins at unit `at`. */
template <int F> struct planes {
	static constexpr int bits = dt_panel_bits(F);
	struct four nibbles, pairs, singles;
};

template <int F> DT_DEVICE struct planes<F> planes_at(const uint8_t *room, int at, int v) {
	constexpr int bits = planes<F>::bits;
	struct planes<F> p = planes<F>();

	if (bits & 4)
		p.nibbles = unit_at(room, at + 4 * v);
	if (bits & 2)
		p.pairs = unit_at(room, at + 4 * ((bits & 4) + v / 2));
	if (bits & 1)
		p.singles = unit_at(room, at + 4 * (bits - 1));
	return p;
}

/*
 * Rows 4 quad .. + 3 of block b of a panel, as first operands of two products of 16 rows: a[h] has rows 2 h
 * and 2 h + 1 of the four, slots t and t + 4. Halves: slot t of the first half, then of the second.
 */
template <class T>
DT_DEVICE void operands(const struct quant &a, const uint8_t *room, int b, int quad, int t,
			uint32_t (&r)[2][4])
{
	constexpr int F = T::format;
	const int at = b * (a.quants / 16) + quad;
	uint32_t lo[4], hi[4];

	if (F == DT_FMT_Q8_0) {
		const struct four l = unit_at(room, at + 8 * t), h = unit_at(room, at + 8 * t + 4);

		DT_UNROLL
		for (int i = 0; i < 4; i++) {
			lo[i] = l.w[i] ^ 0x80808080u;
			hi[i] = h.w[i] ^ 0x80808080u;
		}
	} else if (T::halves) {
		const struct planes<F> l = planes_at<F>(room, at, t / 2),
				       h = planes_at<F>(room, at, 2 + t / 2);

		DT_UNROLL
		for (int i = 0; i < 4; i++) {
			uint32_t c[2];

			chunks_of<F>(l.nibbles.w[i], l.pairs.w[i], l.singles.w[i], a.offset, t / 2, c);
			lo[i] = t % 2 ? c[1] : c[0];
			chunks_of<F>(h.nibbles.w[i], h.pairs.w[i], h.singles.w[i], a.offset, 2 + t / 2, c);
			hi[i] = t % 2 ? c[1] : c[0];
		}
	} else {
		const struct planes<F> p = planes_at<F>(room, at, t);

		DT_UNROLL
		for (int i = 0; i < 4; i++) {
			uint32_t c[2];

			chunks_of<F>(p.nibbles.w[i], p.pairs.w[i], p.singles.w[i], a.offset, t, c);
			lo[i] = c[0];
			hi[i] = c[1];
		}
	}
	DT_UNROLL
	for (int h = 0; h < 2; h++) {
		r[h][0] = lo[2 * h];
		r[h][1] = lo[2 * h + 1];
		r[h][2] = hi[2 * h];
		r[h][3] = hi[2 * h + 1];
	}
}

/* Bits of 1.5 2^23, added to an integer sum to convert it to float: exact, as sums are below 2^22 in
 * magnitude. */
#define BESIDE 0x4b400000

DT_DEVICE float float_of(int d)
{
	float f;

	memcpy(&f, &d, 4);
	return f - 12582912.f;
}

/* One block of k: sums[n][h][e] of row 2 h + e / 2 of the lane's four, and column e % 2 of its two of cut
 * n. */
template <class T>
DT_DEVICE void add_block(const struct quant &a, float (&sums)[T::n][2][4], const uint8_t *room,
			 const uint8_t *x, const uint8_t *xs, int b, int quad, int t)
{
	const uint8_t *s = room + T::deep * a.quants + b * a.scales;
	const uint8_t *u = room + T::deep * (a.quants + a.scales);
	uint32_t w[2][4];
	float f[4][2];

	operands<T>(a, room, b, quad, t, w);
	const struct scales stored = scales_at(T::format, s, u, quad);

	four_factors(T::format, stored, f);
	DT_UNROLL
	for (int n = 0; n < T::n; n++) {
		const uint8_t *q = x + n * 8 * T::stride + b * DT_QK;
		const struct four c = four_at(xs + (b * T::tokens + n * 8) * 8);
		struct xblock col[2];
		uint32_t k0, k1;

		memcpy(col, &c, sizeof col);
		if (T::halves) {
			k0 = word_at(q + 4 * t);
			k1 = word_at(q + 16 + 4 * t);
		} else {
			const uint2 k = two_at(q + 8 * t);

			k0 = k.x;
			k1 = k.y;
		}
		int x1[4], x2[4]; /* of joined halves, x's sums: products with ones */

		if (T::joined) {
			const uint32_t ones[2] = {0x01010101u, 0x01010101u};

			dt_mma_s8(x1, ones, k0, BESIDE);
			dt_mma_s8(x2, ones, k1, BESIDE);
		}
		DT_UNROLL
		for (int h = 0; h < 2; h++) {
			int d[4], d2[4];

			if (T::halves) {
				const uint32_t first[2] = {w[h][0], w[h][1]}, second[2] = {w[h][2], w[h][3]};

				dt_mma_s8(d, first, k0, BESIDE);
				dt_mma_s8(d2, second, k1, BESIDE);
			} else {
				dt_mma_s8(d, w[h], k0, k1, BESIDE);
			}
			DT_UNROLL
			for (int e = 0; e < 4; e++) {
				const float *fr = f[2 * h + e / 2];
				const struct xblock &xc = col[e % 2];
				float &v = sums[n][h][e];

				if (T::joined) {
					const int i = 2 * h + e / 2;

					v = fmaf(fr[0] * xc.scale,
						 joined(stored, i, false, float_of(d[e]), float_of(d2[e])),
						 v);
					v = fmaf(fr[1] * xc.scale,
						 joined(stored, i, true, float_of(x1[e]), float_of(x2[e])),
						 v);
					continue;
				}
				v = fmaf(fr[0] * xc.scale, float_of(d[e]), v);
				if (T::halves)
					v = fmaf(fr[1] * xc.scale, float_of(d2[e]), v);
				else if (T::minimum)
					v = fmaf(fr[1], xc.sum, v);
			}
		}
	}
}

template <class T>
DT_DEVICE void store(const struct quant &a, const float (&sums)[T::n][2][4], int64_t row, int64_t token,
		     int64_t end)
{
	DT_UNROLL
	for (int h = 0; h < 2; h++)
		DT_UNROLL
	for (int e = 0; e < 2; e++) {
		const int64_t r = row + 2 * h + e;
		float bias = 0;

		if (r >= a.rows)
			continue;
		if (a.bias)
			bias = dt_ld1(a.bias, a.tb, a.first + r);
		DT_UNROLL
		for (int i = 0; i < 2 * T::n; i++) {
			const int64_t to = token + i / 2 * 8 + i % 2;
			const float v = sums[i / 2][h][2 * e + i % 2];

			if (to < end)
				dt_st1(a.y, a.ty, to * a.ld + a.first + r, a.bias ? v + bias : v);
		}
	}
}

template <class T> __global__ void __launch_bounds__(T::threads, T::resident) tile_kernel(struct quant a)
{
	const int warp = (int)threadIdx.x / 32, group = warp % T::groups, cut = warp / T::groups;
	const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4, quad = g % 4;
	const int bytes = stage_bytes<T>(a), own = (2 * group + g / 4) * share_bytes<T>(a);
	const int x = T::panels * share_bytes<T>(a) + (cut * 8 * T::n + g) * T::stride;
	const int xs = T::panels * share_bytes<T>(a) + T::tokens * T::stride + (cut * 8 * T::n + 2 * t) * 8;
	uint8_t *room = (uint8_t *)dt_shared();
	float sums[T::n][2][4];
	struct strip is;

	if (!tile_of<T::tokens>(a, blockIdx.x, &is.row, &is.end, &is.w))
		return;
	DT_UNROLL
	for (int i = 0; i < 8 * T::n; i++)
		sums[i / 8][i / 4 % 2][i % 4] = 0;
	for (int i = 0; i < T::stages - 1; i++) {
		if ((int64_t)i * T::deep < a.blocks)
			fetch<T>(a, is, room + i * bytes, (int64_t)i * T::deep);
		dt_cp_commit();
	}
	const int blocks = (int)a.blocks;
	int now = 0, free = T::stages - 1; /* stage indices */
	DT_UNROLL_BY(1)
	for (int b0 = 0; b0 < blocks; b0 += T::deep) {
		const int ahead = b0 + (T::stages - 1) * T::deep;
		const int n = blocks - b0 < T::deep ? blocks - b0 : T::deep;
		const uint8_t *stage = room + now * bytes;

		dt_cp_wait<T::stages - 2>();
		__syncthreads(); /* this stage has arrived; the previous one is no longer used */
		if (ahead < blocks)
			fetch<T>(a, is, room + free * bytes, ahead);
		dt_cp_commit();
		if (T::n == 1 && n == T::deep) { /* little work per block: several in parallel */
			DT_UNROLL
			for (int b = 0; b < T::deep; b++)
				add_block<T>(a, sums, stage + own, stage + x, stage + xs, b, quad, t);
		} else {
			DT_UNROLL_BY(1)
			for (int b = 0; b < n; b++)
				add_block<T>(a, sums, stage + own, stage + x, stage + xs, b, quad, t);
		}
		now = now + 1 == T::stages ? 0 : now + 1;
		free = free + 1 == T::stages ? 0 : free + 1;
	}
	dt_cp_wait<0>();
	store<T>(a, sums, ((int64_t)blockIdx.y * T::panels + 2 * group + g / 4) * DT_PANEL + 4 * quad,
		 is.row + cut * 8 * T::n + 2 * t, is.end);
}

template <class T> static int64_t blocks_of(const struct quant &a)
{
	return tiles_of<T::tokens>(a) * dt_ceil_div(a.rows, T::rows);
}

template <class T> static int tiles(const struct dt_cuda *c, const struct quant &a)
{
	const dim3 grid((unsigned)tiles_of<T::tokens>(a), (unsigned)dt_ceil_div(a.rows, T::rows));

	return DT_LAUNCH(c, tile_kernel<T>, grid, T::threads, (size_t)(T::stages * stage_bytes<T>(a)), a);
}

/*
 * The largest tile that still gives every SM one: memory traffic per multiplication falls with both sides.
 * The smallest is for decoding 16 to 64 streams, which is memory bound: 26 KiB of Q8_0 in flight per SM.
 */
template <int FORMAT> static int any_tiles(const struct dt_cuda *c, const struct quant &a)
{
	using large = tile<FORMAT, 4, 4, 4, 4, 2, 1>;
	using middle = tile<FORMAT, 2, 2, 4, 4, 3, 4>;
	using small = tile<FORMAT, 1, 4, 1, 8, 4, 2>;

	if (blocks_of<large>(a) >= c->info.sms)
		return tiles<large>(c, a);
	if (blocks_of<middle>(a) >= c->info.sms)
		return tiles<middle>(c, a);
	return tiles<small>(c, a);
}

int dt_quant_tiles(const struct dt_cuda *c, const struct quant &a)
{
	return in_format(a.format, [&](auto f) { return any_tiles<f.format>(c, a); });
}
/* SPDX-License-Identifier: Apache-2.0 */
