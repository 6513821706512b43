/*
 * cuBLASLt where it is there and rows may depend on one another; else products of our own: 64 by 64 of c a
 * block, read 64 (1 / 64 + 1 / 64) times less than the operands are used. Each row's sum runs over k in
 * order.
 */
#include "kernels/cuda/act.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/sorted.h"

#define TILE 64
#define DEEP 32 /* of k at a time */

struct product {
	void *c;
	const void *a, *b, *bias;
	int tc, tin;
	int64_t m, n, k;
	bool ta, tb, accumulate, fast_a, fast_b; /* fast: rows can be copied 16 bytes at a time */
	struct dt_sorted set;			 /* rows of a meet one of several b */
	/* matmul_act.h: forward c is u, and y = f(c); backward c is du, and u is read. Both NULL: neither */
	void *y;
	const void *u;
	int f;
};

/* The first row of this block's tile; of a set its b too, and m is where the rows end. -1: nothing to do. */
DT_DEVICE int64_t first_row(struct product &p)
{
	int64_t m0 = (int64_t)blockIdx.x * TILE;

	if (p.set.n && !dt_sorted_tile<TILE>(p.set, blockIdx.x, &m0, &p.m, &p.b))
		return -1;
	return m0;
}

/* ROWS by COLS of a matrix of 16-bit elements into shared memory; zeros outside of it. 128 threads. */
template <int ROWS, int COLS, bool SORTED = false>
DT_DEVICE void load(uint16_t *tile, const void *from, int64_t rows, int64_t cols, int64_t row, int64_t col,
		    bool fast, const struct dt_sorted *set = NULL)
{
	const uint16_t *src = (const uint16_t *)from;

	for (int i = (int)threadIdx.x; i < ROWS * COLS / 8; i += 128) {
		const int r = i / (COLS / 8), c = i % (COLS / 8) * 8;
		const bool in = row + r < rows;
		const int64_t at = (SORTED && in ? dt_sorted_row(*set, row + r) : row + r) * cols + col + c;
		uint16_t *to = tile + r * (COLS + 8) + c;

		if (fast) {
			const bool all = in && col + c < cols;

			dt_cp_async(to, all ? src + at : src, all ? 16 : 0);
			continue;
		}
		for (int k = 0; k < 8; k++) {
			const bool ok = in && col + c + k < cols;

			if (ok)
				dt_touch(src + at + k, 2);
			to[k] = ok ? src[at + k] : (uint16_t)0;
		}
	}
}

/* What is left of v in memory of type t. */
DT_DEVICE float rounded(float v, int t)
{
	return t == DT_F32    ? v
	       : t == DT_BF16 ? dt_bf16_to_f32(dt_f32_to_bf16(v))
			      : dt_f16_to_f32(dt_f32_to_f16(v));
}

DT_DEVICE void finish(const struct product &p, int64_t i, int64_t j, float v)
{
	const int64_t at = i * p.n + j;

	if (i >= p.m || j >= p.n)
		return;
	if (p.bias)
		v += dt_ld1(p.bias, p.tin, j);
	if (p.accumulate)
		v += dt_ld1(p.c, p.tc, at);
	if (p.u) {
		float slope;

		dt_act(dt_ld1(p.u, p.tin, at), p.f, &slope);
		v = rounded(v, p.tc) * slope;
	}
	dt_st1(p.c, p.tc, at, v);
	if (p.y) {
		float unused;

		dt_st1(p.y, p.tc, at, dt_act(rounded(v, p.tc), p.f, &unused));
	}
}

DT_DEVICE void load_both(const struct product &p, uint16_t *a, uint16_t *b, int64_t m0, int64_t n0, int64_t k)
{
	if (p.ta)
		load<DEEP, TILE>(a, p.a, p.k, p.m, k, m0, p.fast_a);
	else if (p.set.from)
		load<TILE, DEEP, true>(a, p.a, p.m, p.k, m0, k, p.fast_a, &p.set);
	else
		load<TILE, DEEP>(a, p.a, p.m, p.k, m0, k, p.fast_a);
	if (p.tb)
		load<TILE, DEEP>(b, p.b, p.n, p.k, n0, k, p.fast_b);
	else
		load<DEEP, TILE>(b, p.b, p.k, p.n, k, n0, p.fast_b);
	dt_cp_commit();
}

/* Four warps, each 32 by 32 of the block's 64 by 64; the next piece of k is on its way meanwhile. */
template <class T> __global__ void __launch_bounds__(128) mma_kernel(struct product p)
{
	const int piece = TILE * (DEEP + 8); /* at least DEEP * (TILE + 8) */
	uint16_t *a = (uint16_t *)dt_shared(), *b = a + 2 * piece;
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	const int mw = warp / 2 * 32, nw = warp % 2 * 32;
	const int64_t m0 = first_row(p), n0 = (int64_t)blockIdx.y * TILE;
	float d[2][4][4];

	if (m0 < 0)
		return;
	DT_UNROLL
	for (int i = 0; i < 32; i++)
		d[i / 16][i / 4 % 4][i % 4] = 0;
	if (p.k)
		load_both(p, a, b, m0, n0, 0);
	for (int64_t k = 0; k < p.k; k += DEEP) {
		const int now = (int)(k / DEEP % 2) * piece, next = piece - now;

		if (k + DEEP < p.k) {
			load_both(p, a + next, b + next, m0, n0, k + DEEP);
			dt_cp_wait<1>();
		} else {
			dt_cp_wait<0>();
		}
		__syncthreads();
		DT_UNROLL
		for (int kk = 0; kk < DEEP; kk += 16) {
			uint32_t fa[2][4], fb[2][4];

			DT_UNROLL
			for (int i = 0; i < 2; i++) {
				if (p.ta)
					dt_fragment_a_trans(fa[i], a + now, TILE + 8, mw + 16 * i, kk);
				else
					dt_fragment_a(fa[i], a + now, DEEP + 8, mw + 16 * i, kk);
				if (p.tb)
					dt_fragment_b(fb[i], b + now, DEEP + 8, nw + 16 * i, kk);
				else
					dt_fragment_b_trans(fb[i], b + now, TILE + 8, nw + 16 * i, kk);
			}
			DT_UNROLL
			for (int i = 0; i < 2; i++)
				DT_UNROLL
			for (int j = 0; j < 4; j++)
				dt_mma<T>(d[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
		}
		__syncthreads(); /* this piece's room is written next */
	}
	DT_UNROLL
	for (int i = 0; i < 2; i++)
		DT_UNROLL
	for (int j = 0; j < 4; j++)
		DT_UNROLL
	for (int e = 0; e < 4; e++)
		finish(p, m0 + mw + 16 * i + lane / 4 + e / 2 * 8, n0 + nw + 8 * j + lane % 4 * 2 + e % 2,
		       d[i][j][e]);
}

#define FDEEP 16

/* One element of op(a) or op(b) for the f32 kernel; zeros outside. */
DT_DEVICE float pick(const void *m, bool trans, int64_t i, int64_t k, int64_t outer, int64_t depth)
{
	if (i >= outer || k >= depth)
		return 0;
	return dt_ld1(m, DT_F32, trans ? k * outer + i : i * depth + k);
}

/* f32: 256 threads, 4 by 4 each. */
__global__ void __launch_bounds__(256) f32_kernel(struct product p)
{
	float(*a)[TILE + 4] = (float(*)[TILE + 4]) dt_shared(), (*b)[TILE + 4] = a + FDEEP;
	const int ti = (int)threadIdx.x / 16 * 4, tj = (int)threadIdx.x % 16 * 4;
	const int64_t m0 = first_row(p), n0 = (int64_t)blockIdx.y * TILE;
	float d[4][4];

	if (m0 < 0)
		return;
	for (int i = 0; i < 16; i++)
		d[i / 4][i % 4] = 0;
	for (int64_t k0 = 0; k0 < p.k; k0 += FDEEP) {
		for (int u = (int)threadIdx.x; u < TILE * FDEEP; u += 256) {
			/* Neighbouring threads read neighbouring elements, whichever way the matrix lies. */
			const int ai = p.ta ? u % TILE : u / FDEEP, ak = p.ta ? u / TILE : u % FDEEP;
			const int bj = p.tb ? u / FDEEP : u % TILE, bk = p.tb ? u % FDEEP : u / TILE;

			const int64_t i = m0 + ai, row = i < p.m ? dt_sorted_row(p.set, i) : i;

			a[ak][ai] = i < p.m ? pick(p.a, p.ta, row, k0 + ak, p.ta ? p.m : row + 1, p.k) : 0;
			b[bk][bj] = pick(p.b, !p.tb, n0 + bj, k0 + bk, p.n, p.k);
		}
		__syncthreads();
		for (int k = 0; k < FDEEP; k++)
			DT_UNROLL
		for (int i = 0; i < 4; i++)
			DT_UNROLL
		for (int j = 0; j < 4; j++)
			d[i][j] += a[k][ti + i] * b[k][tj + j];
		__syncthreads();
	}
	DT_UNROLL
	for (int i = 0; i < 4; i++)
		DT_UNROLL
	for (int j = 0; j < 4; j++)
		finish(p, m0 + ti + i, n0 + tj + j, d[i][j]);
}

static int own(const struct dt_cuda *c, const struct product &p)
{
	const int64_t tiles = p.set.n ? dt_sorted_tiles<TILE>(p.set) : dt_ceil_div(p.m, TILE);
	const dim3 grid((unsigned)tiles, (unsigned)dt_ceil_div(p.n, TILE));

	if (p.tin == DT_F32)
		return DT_LAUNCH(c, f32_kernel, grid, 256, 2 * FDEEP * (TILE + 4) * 4, p);
	if (p.tin == DT_BF16)
		return DT_LAUNCH(c, mma_kernel<struct dt_bf16>, grid, 128, 4 * TILE * (DEEP + 8) * 2, p);
	return DT_LAUNCH(c, mma_kernel<struct dt_f16>, grid, 128, 4 * TILE * (DEEP + 8) * 2, p);
}

/* Shapes and types are matmul's; p has what else there is. */
static int multiply(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, bool ta, struct dt_tensor b,
		    bool tb, struct dt_tensor bias, bool accumulate, struct dt_tensor y, struct dt_tensor u,
		    enum dt_act_fn f)
{
	struct dt_cuda *cu = dt_cuda_enter(dev);
	const int64_t m = dt_rows(c), n = dt_cols(c), k = ta ? dt_rows(a) : dt_cols(a);
	const bool act = y.data || u.data;
	int rc = -ENOTSUP;

	if (!cu)
		return -ENODEV;
	if (cu->blas && !dev->batch_invariant && k) {
		if (act && f == DT_ACT_GELU_TANH)
			rc = dt_blas_matmul_gelu(cu->blas, cu->stream, c, y, a, b, tb, bias, u, m, n, k);
		if (rc == -ENOTSUP)
			rc = dt_blas_matmul(cu->blas, cu->stream, c, a, ta, b, tb, bias, accumulate, m, n, k);
		else
			return rc;
		if (rc == 0 && y.data)
			return dt_cuda_act_forward(dev, y, c, f);
		if (rc == 0 && u.data)
			return dt_cuda_act_backward(dev, c, c, u, f);
		if (rc != -ENOTSUP)
			return rc;
	}
	return own(cu, {c.data,
			a.data,
			b.data,
			bias.data,
			c.dtype,
			a.dtype,
			m,
			n,
			k,
			ta,
			tb,
			accumulate,
			dt_by_8(ta ? m : k, a.data),
			dt_by_8(tb ? k : n, b.data),
			{},
			y.data,
			u.data,
			(int)f});
}

int dt_cuda_matmul(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, bool ta, struct dt_tensor b,
		   bool tb, struct dt_tensor bias, bool accumulate)
{
	return multiply(dev, c, a, ta, b, tb, bias, accumulate, DT_NONE, DT_NONE, DT_ACT_RELU);
}

int dt_cuda_matmul_act(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor u, struct dt_tensor x,
		       struct dt_tensor w, struct dt_tensor bias, enum dt_act_fn f)
{
	return multiply(dev, u, x, false, w, true, bias, false, y, DT_NONE, f);
}

int dt_cuda_matmul_act_backward(struct dt_dev *dev, struct dt_tensor du, struct dt_tensor dy,
				struct dt_tensor w, struct dt_tensor u, enum dt_act_fn f)
{
	return multiply(dev, du, dy, false, w, false, DT_NONE, false, DT_NONE, u, f);
}

int dt_cuda_matmul_sorted(const struct dt_cuda *cu, struct dt_tensor c, struct dt_tensor a, int64_t n,
			  const struct dt_sorted &set)
{
	const int64_t k = dt_cols(a);

	return own(cu, {c.data, a.data, NULL, NULL, c.dtype, a.dtype, set.rows, n, k, false, true, false,
			dt_by_8(k, a.data), dt_by_8(k), set, NULL, NULL, 0});
}
/* SPDX-License-Identifier: Apache-2.0 */
