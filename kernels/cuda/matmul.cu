/*
 * Matrix products by cuBLASLt (matmul_library.cu) if available and rows may depend on each other; else our
 * own (product.h).
 */
#include "kernels/cuda/act.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/sorted.h"

#define TILE DT_PRODUCT_TILE

struct product {
	void *c;
	const void *a, *b, *bias;
	int tc, tin;
	int64_t m, n, k, ldc, lda, ldb;		 /* row strides */
	bool ta, tb, accumulate, fast_a, fast_b; /* fast: rows can be copied in 16-byte pieces */
	struct dt_sorted set;			 /* each row of a uses one of several b */
	/* matmul_act.h, dense: forward c is u, y = f(c); backward c is du, u is read. Both NULL: no
	 * activation */
	void *y;
	const void *u;
	int f;
};

/* First row of this block's tile. For a set it also selects b, and sets m to the end of its rows. -1: no
 * tile. */
DT_DEVICE int64_t first_row(struct product &p)
{
	int64_t m0 = (int64_t)blockIdx.x * TILE;

	if (p.set.n && !dt_sorted_tile<TILE>(p.set, blockIdx.x, &m0, &p.m, &p.b))
		return -1;
	return m0;
}

/* v as read back from memory of type t. */
DT_DEVICE float rounded(float v, int t)
{
	return t == DT_F32    ? v
	       : t == DT_BF16 ? dt_bf16_to_f32(dt_f32_to_bf16(v))
			      : dt_f16_to_f32(dt_f32_to_f16(v));
}

DT_DEVICE void finish(const struct product &p, int64_t i, int64_t j, float v)
{
	const int64_t at = i * p.ldc + j;

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

/* ROWS by COLS of a matrix. */
template <int ROWS, int COLS>
DT_DEVICE void load(uint16_t *tile, const void *from, int64_t rows, int64_t cols, int64_t ld, int64_t row,
		    int64_t col, bool fast)
{
	dt_product_load<ROWS, COLS>(tile, from, rows, cols, row, col, fast,
				    [=](int64_t i) { return i * ld; });
}

DT_DEVICE void load_both(const struct product &p, uint16_t *a, uint16_t *b, int64_t m0, int64_t n0, int64_t k)
{
	const int deep = DT_PRODUCT_DEEP;

	if (p.ta)
		load<deep, TILE>(a, p.a, p.k, p.m, p.lda, k, m0, p.fast_a);
	else if (p.set.from)
		dt_product_load<TILE, deep>(a, p.a, p.m, p.k, m0, k, p.fast_a,
					    [&](int64_t i) { return dt_sorted_row(p.set, i) * p.lda; });
	else
		load<TILE, deep>(a, p.a, p.m, p.k, p.lda, m0, k, p.fast_a);
	if (p.tb)
		load<TILE, deep>(b, p.b, p.n, p.k, p.ldb, n0, k, p.fast_b);
	else
		load<deep, TILE>(b, p.b, p.k, p.n, p.ldb, k, n0, p.fast_b);
}

template <class T> __global__ void __launch_bounds__(128) mma_kernel(struct product p)
{
	const int64_t m0 = first_row(p), n0 = (int64_t)blockIdx.y * TILE;
	float d[2][4][4];

	if (m0 < 0)
		return;
	DT_UNROLL
	for (int i = 0; i < 32; i++)
		d[i / 16][i / 4 % 4][i % 4] = 0;
	dt_product_add<T>(d, p.ta, p.tb, p.k,
			  [&](uint16_t *a, uint16_t *b, int64_t k) { load_both(p, a, b, m0, n0, k); });
	dt_product_each(d, [&](int i, int j, float v) { finish(p, m0 + i, n0 + j, v); });
}

__global__ void __launch_bounds__(256) f32_kernel(struct product p)
{
	const int64_t m0 = first_row(p), n0 = (int64_t)blockIdx.y * TILE;
	float d[4][4];

	if (m0 < 0)
		return;
	dt_zero(d);
	dt_product_add(
		d, !p.ta, p.tb, p.k,
		[&](int i, int64_t k) {
			const int64_t row = m0 + i;

			return row >= p.m ? 0.f
			       : p.ta	  ? dt_ld1(p.a, DT_F32, k * p.lda + row)
					  : dt_ld1(p.a, DT_F32, dt_sorted_row(p.set, row) * p.lda + k);
		},
		[&](int j, int64_t k) {
			const int64_t col = n0 + j;

			return col >= p.n ? 0.f
					  : dt_ld1(p.b, DT_F32, p.tb ? col * p.ldb + k : k * p.ldb + col);
		});
	dt_product_each(d, [&](int i, int j, float v) { finish(p, m0 + i, n0 + j, v); });
}

static int own(const struct dt_cuda *c, const struct product &p)
{
	const int64_t tiles = p.set.n ? dt_sorted_tiles<TILE>(p.set) : dt_ceil_div(p.m, TILE);
	const dim3 grid((unsigned)tiles, (unsigned)dt_ceil_div(p.n, TILE));

	if (p.tin == DT_F32)
		return DT_LAUNCH(c, f32_kernel, grid, 256, DT_PRODUCT_ROOM_F32, p);
	if (p.tin == DT_BF16)
		return DT_LAUNCH(c, mma_kernel<struct dt_bf16>, grid, 128, DT_PRODUCT_ROOM, p);
	return DT_LAUNCH(c, mma_kernel<struct dt_f16>, grid, 128, DT_PRODUCT_ROOM, p);
}

/* Arguments as in matmul; p has the rest. */
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
			rc = dt_cuda_matmul_library(dev, c, a, ta, b, tb, bias, accumulate, m, n, k);
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
			dt_stride(c),
			dt_stride(a),
			dt_stride(b),
			ta,
			tb,
			accumulate,
			dt_by_8(dt_cols(a) | dt_stride(a), a.data),
			dt_by_8(dt_cols(b) | dt_stride(b), b.data),
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

	return own(cu, {c.data,	    a.data, NULL, NULL, c.dtype, a.dtype, set.rows, n,
			k,	    n,	    k,	  k,	false,	 true,	  false,    dt_by_8(k, a.data),
			dt_by_8(k), set,    NULL, NULL, 0});
}
/* SPDX-License-Identifier: Apache-2.0 */
