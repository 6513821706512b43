/*
 * quant.h's products with quantised weights for few rows of x. They are memory bound: what counts is the
 * bytes in flight. A thread block has a panel of 16 rows and 64 blocks of k at a time; a thread has one of
 * these blocks for four of the rows: loads of 16 bytes, one per bit of an integer (8 for Q8_0), and
 * its scales, all issued before the first is used, and those of the next 64 blocks before this one's sums are
 * added up. So 256 threads keep 34 KiB of Q8_0 in flight, 17 of Q4_0, and two to three such thread blocks fit
 * an SM: Little's law asks for 4.8 TB/s * 0.8 us / 132 = 29 KiB per SM of an H200. Rows of 2048 are one such
 * piece: the whole product waits for memory once.
 *
 * One row of x is quantised here too, 8 elements per thread, which saves a launch per product of a step.
 *
 * The integer sums are exact in any order; 16 threads per row of x then add them up in order of k.
 */
#include "kernels/cuda/packed.h"

#define SLAB	64 /* blocks of k at a time */
#define THREADS (SLAB * 4)

/*
 * A thread's data for a block of k: vectors of four rows, their scales, and the same block of M rows of x.
 * One or two rows of x are unquantised: each of the four threads that share the block has a quarter of it.
 */
template <int F, int M> struct piece {
	static constexpr int vectors = dt_panel_bits(F);
	static constexpr bool raw = M <= 2;
	struct four w[vectors], x[M][2];
	struct scales s;
	struct xblock b[M];
};

/* Loads eight elements of a row of x without using them yet; zeros where there are none. */
DT_DEVICE void bring_raw(struct four (&x)[2], const struct quant &a, const char *row, int64_t b, int quad)
{
	const int size = a.tx == DT_F32 ? 4 : 2;
	const char *from = row + (b * DT_QK + quad * 8) * size;

	x[0] = x[1] = four{{0, 0, 0, 0}};
	if (b >= a.blocks)
		return;
	if (a.fast) {
		x[0] = four_at(from);
		if (size == 4)
			x[1] = four_at(from + 16);
		return;
	}
	DT_UNROLL
	for (int i = 0; i < 8; i++) {
		dt_touch(from + i * size, (size_t)size);
		if (size == 4)
			x[i / 4].w[i % 4] = ((const uint32_t *)from)[i];
		else
			x[0].w[i / 2] |= (uint32_t)((const uint16_t *)from)[i] << i % 2 * 16;
	}
}

/* Quantises x as round_kernel does, the whole block from the quarters of four lanes. */
DT_DEVICE void round_raw(struct four (&x)[2], struct xblock &b, int tx)
{
	float v[8], inverse;
	uint32_t max = 0, own[2] = {0, 0};
	int sum = 0;

	DT_UNROLL
	for (int i = 0; i < 8; i++) {
		const uint16_t h = (uint16_t)(x[0].w[i / 2] >> i % 2 * 16);

		if (tx == DT_F32)
			memcpy(&v[i], &x[i / 4].w[i % 4], 4);
		else
			v[i] = tx == DT_BF16 ? dt_bf16_to_f32(h) : dt_f16_wide(h);
		max = dt_magnitude(v[i]) > max ? dt_magnitude(v[i]) : max;
	}
	dt_int8_scale(dt_warp_largest(max, 4), &b.scale, &inverse);
	DT_UNROLL
	for (int i = 0; i < 8; i++) {
		const int q = inverse != 0 ? (int)rintf(v[i] * inverse) : 0;

		own[i / 4] |= (uint32_t)(uint8_t)q << i % 4 * 8;
		sum += q;
	}
	sum += __shfl_xor_sync(DT_ALL, sum, 1);
	sum += __shfl_xor_sync(DT_ALL, sum, 2);
	b.sum = b.scale * (float)sum;
	DT_UNROLL
	for (int i = 0; i < 8; i++)
		x[i / 4].w[i % 4] = __shfl_sync(DT_ALL, own[i % 2], (int)threadIdx.x % 32 / 4 * 4 + i / 2);
}

/* Loads block b of k of a panel. */
template <int F, int M>
DT_DEVICE void bring_w(struct piece<F, M> &p, const struct quant &a, const uint8_t *panel, int64_t b,
		       int quad)
{
	const bool in = b < a.blocks;

	DT_UNROLL
	for (int v = 0; v < piece<F, M>::vectors; v++)
		if (in)
			p.w[v] = four_of(dt_once(panel + b * a.quants + v * 64 + quad * 16));
	if (in)
		p.s = scales_at(F, scales_of(a, panel, b), supers_of(a, panel, b), quad);
}

/* Rows of x of a thread block: [row0, end), the first of which is at raw if M is small. */
struct few {
	int64_t row0, end;
	const char *raw;
};

/* Loads block b of k of M of them. */
template <int F, int M>
DT_DEVICE void bring_x(struct piece<F, M> &p, const struct quant &a, const struct few &x, int64_t b, int quad)
{
	const bool in = b < a.blocks;

	DT_UNROLL
	for (int i = 0; i < M; i++) {
		const int64_t row = dt_min64(x.row0 + i, x.end - 1);
		const int8_t *q = a.q + (row * a.blocks + b) * DT_QK;

		if (piece<F, M>::raw) {
			bring_raw(p.x[i], a,
				  x.raw + (row - x.row0) * a.blocks * DT_QK * (a.tx == DT_F32 ? 4 : 2), b,
				  quad);
		} else if (in) {
			p.x[i][0] = four_at(q);
			p.x[i][1] = four_at(q + 16);
			p.b[i] = xblock_at(a.x + row * a.blocks + b);
		}
	}
}

/* Chunks 2 v and 2 v + 1 of row r as signed bytes; of Q8_0 chunk v. */
template <int F, int M>
DT_DEVICE void chunks(const struct piece<F, M> &p, int offset, int v, int r, uint32_t (&c)[2])
{
	constexpr int bits = dt_panel_bits(F);

	if (bits == 8)
		c[0] = p.w[v].w[r] ^ 0x80808080u;
	else
		chunks_of<F>(bits & 4 ? p.w[v % bits].w[r] : 0, bits & 2 ? p.w[(bits & 4) + v / 2].w[r] : 0,
			     p.w[bits - 1].w[r], offset, v, c);
}

/* Integer sums of the four rows with row i of x; [1]: of the second half, where halves have factors. */
template <int F, int M>
DT_DEVICE void integers(const struct piece<F, M> &p, int offset, int i, int (&sum)[4][2])
{
	constexpr int each = dt_panel_bits(F) == 8 ? 1 : 2;

	DT_UNROLL
	for (int r = 0; r < 4; r++) {
		sum[r][0] = sum[r][1] = 0;
		DT_UNROLL
		for (int v = 0; v < 8 / each; v++) {
			int &s = sum[r][has_halves(F) ? v / 2 : 0];
			uint32_t c[2];

			chunks<F, M>(p, offset, v, r, c);
			DT_UNROLL
			for (int e = 0; e < each; e++)
				s = dot4(c[e], p.x[i][(each * v + e) / 4].w[(each * v + e) % 4], s);
		}
	}
}

/* Integer sums of the halves of row i of x. */
template <int F, int M> DT_DEVICE void sums_of_x(const struct piece<F, M> &p, int i, int (&sum)[2])
{
	DT_UNROLL
	for (int h = 0; h < 2; h++) {
		sum[h] = 0;
		DT_UNROLL
		for (int c = 0; c < 4; c++)
			sum[h] = dot4(0x01010101u, p.x[i][h].w[c], sum[h]);
	}
}

/* Factors of one fma each, in the contract's order. */
struct alignas(8) pair {
	float a, b;
};

template <int F, int M>
DT_DEVICE void terms_of(const struct piece<F, M> &p, int offset, struct pair *to, int quad)
{
	constexpr int terms = two_terms(F) ? 2 : 1;
	float f[4][2];

	four_factors(F, p.s, f);
	DT_UNROLL
	for (int i = 0; i < M; i++) {
		struct pair *one = to + i * DT_PANEL + 4 * quad, *two = one + (terms - 1) * M * DT_PANEL;
		int sum[4][2], whole[2];

		integers<F, M>(p, offset, i, sum);
		if (dt_panel_joined(F))
			sums_of_x<F, M>(p, i, whole);
		DT_UNROLL
		for (int r = 0; r < 4; r++) {
			if (dt_panel_joined(F)) {
				one[r] = pair{f[r][0] * p.b[i].scale,
					      joined(p.s, r, false, (float)sum[r][0], (float)sum[r][1])};
				two[r] = pair{f[r][1] * p.b[i].scale,
					      joined(p.s, r, true, (float)whole[0], (float)whole[1])};
				continue;
			}
			one[r] = pair{f[r][0] * p.b[i].scale, (float)sum[r][0]};
			if (dt_panel_halves(F))
				two[r] = pair{f[r][1] * p.b[i].scale, (float)sum[r][1]};
			else if (terms == 2)
				two[r] = pair{f[r][1], p.b[i].sum};
		}
	}
}

/* Two buffers of terms per row, so that a slab is summed while the next one is multiplied. */
template <int F, int M> constexpr int slab_pairs = SLAB *(two_terms(F) ? 2 : 1) * M *DT_PANEL;
template <int M> constexpr int slabs = M == 1 ? 2 : 1;
template <int F, int M> constexpr size_t terms_bytes = slabs<M> *slab_pairs<F, M> * sizeof(struct pair);

/*
 * Thread i < DT_PANEL M returns the sum of row i % DT_PANEL of a panel with row i / DT_PANEL of x. x()
 * returns the address of these rows; it is called after the weights have begun to load.
 */
template <int F, int M, class X> DT_DEVICE float panel_sum(const struct quant &a, const uint8_t *panel, X x)
{
	constexpr int step = slab_pairs<F, M> / SLAB;
	const int quad = (int)threadIdx.x % 4, own = (int)threadIdx.x / 4;
	struct pair *terms = (struct pair *)dt_shared();
	piece<F, M> p = piece<F, M>();
	float s = 0;

	bring_w<F, M>(p, a, panel, own, quad);
	const struct few rows = x();

	bring_x<F, M>(p, a, rows, own, quad);
	for (int64_t b0 = 0; b0 < a.blocks; b0 += SLAB) {
		const int n = (int)dt_min64(SLAB, a.blocks - b0);
		struct pair *now = terms + b0 / SLAB % slabs<M> * slab_pairs<F, M>;

		if (piece<F, M>::raw) {
			DT_UNROLL
			for (int i = 0; i < M; i++)
				round_raw(p.x[i], p.b[i], a.tx);
		}
		if (own < n)
			terms_of<F, M>(p, a.offset, now + own * step, quad);
		bring_w<F, M>(p, a, panel, b0 + SLAB + own, quad);
		bring_x<F, M>(p, a, rows, b0 + SLAB + own, quad);
		__syncthreads();
		if ((int)threadIdx.x < DT_PANEL * M) {
			DT_UNROLL_BY(8)
			for (int j = 0; j < n; j++) {
				const struct pair *t = now + j * step + threadIdx.x;

				s = fmaf(t[0].a, t[0].b, s);
				if (two_terms(F))
					s = fmaf(t[M * DT_PANEL].a, t[M * DT_PANEL].b, s);
			}
		}
		if (slabs<M> == 1)
			__syncthreads();
	}
	return s;
}

template <int F, int M>
__global__ void __launch_bounds__(THREADS, M == 1 && !has_halves(F) ? 3 : 2) rows_kernel(struct quant a)
{
	int64_t row0, end, block = blockIdx.x;
	const void *w;
	float s = 0, gate = 0, to = 0;

	dt_let_next();
	if (a.set.n)
		dt_wait_before(); /* the set's tables are written in this step */
	if (!tile_of<M>(a, a.tile + blockIdx.y, &row0, &end, &w))
		return;
	struct beside p = part_of(a, w, DT_PANEL, &block);
	const int64_t col = block * DT_PANEL + threadIdx.x % DT_PANEL, row = row0 + threadIdx.x / DT_PANEL;
	const bool mine = (int)threadIdx.x < DT_PANEL * M && col < p.rows && row < end;
	struct few few = {row0, end, NULL};
	const auto x = [&]() {
		if (few.raw)
			return few; /* the second part of a gate */
		dt_wait_before();
		if (mine)
			to = residual_at(a, p, row, col);
		/* In a set, M is 1 if x is raw. */
		few.raw = a.front.y ? dt_norm_front(a.front, dt_shared() + terms_bytes<F, M>, row0,
						    dt_min64(row0 + M, end), blockIdx.x == 0)
				    : (const char *)a.raw + dt_sorted_row(a.set, row0) * a.blocks * DT_QK *
								    (a.tx == DT_F32 ? 4 : 2);
		return few;
	};

	/* One body for both parts of a gate, to limit registers. */
	DT_UNROLL_BY(1)
	for (int turn = 0; turn < (a.gate ? 2 : 1); turn++) {
		if (turn) {
			__syncthreads(); /* the previous terms have been added up */
			p = a.more[0];
			gate = s;
		}
		s = panel_sum<F, M>(a, (const uint8_t *)p.w + block * (int64_t)a.panel_bytes, x);
	}
	if (mine)
		finish(a, p, row, col, s, gate, to);
}

template <int F, int M> static int rows(const struct dt_cuda *c, struct quant a)
{
	const unsigned blocks = (unsigned)blocks_of(a, DT_PANEL);

	return dt_in_pieces(tiles_of<M>(a), [&](int64_t first, unsigned n) {
		a.tile = first;
		return DT_LAUNCH_EARLY(c, true, (rows_kernel<F, M>), dim3(blocks, n), THREADS,
				       (terms_bytes<F, M> + dt_norm_front_bytes(a.front, M)), a);
	});
}

template <int F> static int any_rows(const struct dt_cuda *c, const struct quant &a)
{
	return dt_quant_wants_x(a.m, a.set) ? rows<F, 4>(c, a)
	       : a.m == 1 || a.set.n	    ? rows<F, 1>(c, a)
					    : rows<F, 2>(c, a);
}

int dt_quant_rows(const struct dt_cuda *c, const struct quant &a)
{
	return in_format(a.format, [&](auto f) { return any_rows<f.format>(c, a); });
}
/* SPDX-License-Identifier: Apache-2.0 */
