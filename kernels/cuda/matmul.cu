/* Matrix products by cuBLASLt if available and rows may depend on each other; else our own (product.h). */
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

/* Copies rows of n 16-bit elements; the aligned side, `to` if `in` is set, else `from`, has 16-byte aligned
 * rows. */
__global__ void __launch_bounds__(256) rows_kernel(uint16_t *to, int64_t to_step, const uint16_t *from,
						   int64_t from_step, int64_t n, int64_t rows, bool in)
{
	const int64_t each = dt_ceil_div(n, 8), all = rows * each, step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
		const int64_t col = i % each * 8;
		const uint16_t *src = from + i / each * from_step + col;
		uint16_t *dst = to + i / each * to_step + col, v[8];
		const int here = (int)(n - col < 8 ? n - col : 8);
		uint4 u;

		if (in) {
			DT_UNROLL
			for (int k = 0; k < 8; k++) {
				if (k < here)
					dt_touch(src + k, 2);
				v[k] = k < here ? src[k] : (uint16_t)0;
			}
			memcpy(&u, v, 16);
			dt_touch(dst, 16);
			*(uint4 *)dst = u;
			continue;
		}
		dt_touch(src, 16);
		u = *(const uint4 *)src;
		memcpy(v, &u, 16);
		DT_UNROLL
		for (int k = 0; k < 8; k++)
			if (k < here) {
				dt_touch(dst + k, 2);
				dst[k] = v[k];
			}
	}
}

/* An operand, and its copy for the library if needed; ld: row stride. */
struct operand {
	char *data;
	enum dt_dtype type;
	int64_t rows, cols, ld, size; /* size: bytes per element */
	int64_t room;		      /* allocated rows; those past `rows` are zero */
	bool moved;
};

static struct operand operand_of(struct dt_tensor t)
{
	const int64_t rows = dt_rows(t), size = dt_dtype_size(t.dtype);

	return {(char *)t.data, t.dtype, rows, dt_cols(t), dt_stride(t), size, rows, false};
}

/* Whether its rows are aligned as the library needs; 4 bytes suffice for f32, which only results have. */
static bool in_place(const struct operand &o)
{
	return o.ld % 8 == 0 && (o.type == DT_F32 || dt_aligned(o.data));
}

/* The same with `room` rows whose stride is a multiple of 8 elements. */
static struct operand widened(struct operand o, int64_t room)
{
	o.moved = !in_place(o) || room != o.rows;
	o.room = room;
	if (o.moved)
		o.ld = (o.cols + 7) / 8 * 8;
	return o;
}

static size_t moved_bytes(const struct operand &o)
{
	return o.moved ? ((size_t)(o.ld * o.room * o.size) + 255) / 256 * 256 : 0;
}

/* Copies the rows of one into the other; f32 counts as two 16-bit elements. */
static int move_rows(const struct dt_cuda *c, const struct operand &to, const struct operand &from, bool in)
{
	const int64_t w = to.size / 2, n = to.cols * w;

	return DT_LAUNCH(c, rows_kernel, dt_blocks(c, to.rows * dt_ceil_div(n, 8), 256), 256, 0,
			 (uint16_t *)to.data, to.ld * w, (const uint16_t *)from.data, from.ld * w, n, to.rows,
			 in);
}

static int move_in(const struct dt_cuda *c, struct operand &o, const struct operand &from, char *to,
		   bool copy)
{
	const int64_t at = o.ld * o.rows * o.size, end = o.ld * o.room * o.size;
	int rc = 0;

	if (!o.moved)
		return 0;
	o.data = to;
	if (copy)
		rc = move_rows(c, o, from, true);
	return rc < 0 || at == end ? rc : dt_gpu_set(to + at, 0, (size_t)(end - at), c->stream);
}

static struct dt_tensor from_element(const struct operand &o, int64_t row, int64_t col)
{
	return dt_t2(o.data + (row * o.ld + col) * o.size, o.type, o.rows, o.cols);
}

struct sizes {
	int64_t m, n, k;
};

/* Computes rows m0 .. m0 + s.m and columns n0 .. n0 + s.n of c. */
static int part(struct dt_cuda *cu, const struct operand (&o)[3], bool ta, bool tb, bool accumulate,
		int64_t m0, int64_t n0, struct sizes s)
{
	const struct dt_blas_rows ld = {o[0].ld, o[1].ld, o[2].ld};

	if (!s.m || !s.n)
		return 0;
	return dt_blas_matmul(cu->blas, cu->stream, from_element(o[0], m0, n0),
			      from_element(o[1], ta ? 0 : m0, ta ? m0 : 0), ta,
			      from_element(o[2], tb ? n0 : 0, tb ? 0 : n0), tb, DT_NONE, accumulate, s.m, s.n,
			      s.k, &ld);
}

/*
 * The library multiplies 16-bit matrices at a ninth of its rate if a row stride, n or k is not a multiple of
 * 8, or m if a is transposed (GPT-2's 50257 logits: 3339 us instead of 491 for 4096 rows on an H200). So rows
 * are copied to 16-byte aligned ones if needed, k is padded with zeros where it runs along rows, and the
 * remainders of m and n are separate products.
 */
static int in_parts(struct dt_dev *dev, const struct operand (&from)[3], bool ta, bool tb, bool accumulate,
		    struct sizes s)
{
	struct dt_cuda *cu = (struct dt_cuda *)dev->impl;
	const int64_t k = !ta || tb ? (s.k + 7) / 8 * 8 : s.k, m = ta ? s.m / 8 * 8 : s.m, n = s.n / 8 * 8;
	struct operand o[] = {widened(from[0], s.m), widened(from[1], ta ? k : s.m),
			      widened(from[2], tb ? s.n : k)};
	char *room =
		(char *)dt_cuda_padded(dev, moved_bytes(o[0]) + moved_bytes(o[1]) + moved_bytes(o[2]) + 1);
	int rc = room ? 0 : -ENOTSUP;

	for (int i = 0; i < 3 && rc == 0; i++) {
		const size_t bytes = moved_bytes(o[i]);

		rc = move_in(cu, o[i], from[i], room, i > 0 || accumulate);
		room += bytes;
	}
	if (rc == 0)
		rc = part(cu, o, ta, tb, accumulate, 0, 0, {m, n, k});
	if (rc < 0)
		return rc;
	rc = part(cu, o, ta, tb, accumulate, 0, n, {m, s.n - n, k});
	if (rc == 0)
		rc = part(cu, o, ta, tb, accumulate, m, 0, {s.m - m, s.n, k});
	if (rc == -ENOTSUP)
		return -EIO; /* a part has been accumulated already: the fallback kernel would add it again */
	return rc < 0 || !o[0].moved ? rc : move_rows(cu, from[0], o[0], false);
}

static bool even(const struct operand &o)
{
	return o.cols % 8 == 0 && in_place(o);
}

/*
 * The library rounds twice when it accumulates into 16-bit results, and when it adds a bias where rows are
 * not aligned. These cases, and small unaligned products, use our own kernel. (Seen on an H100, CUDA 13.0.)
 * f32 results are not affected.
 */
static int by_library(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, bool ta, struct dt_tensor b,
		      bool tb, struct dt_tensor bias, bool accumulate, struct sizes s)
{
	const struct dt_cuda *cu = (struct dt_cuda *)dev->impl;
	const struct operand o[] = {operand_of(c), operand_of(a), operand_of(b)};
	const struct dt_blas_rows ld = {o[0].ld, o[1].ld, o[2].ld};
	const bool fast = a.dtype == DT_F32 || (even(o[0]) && even(o[1]) && even(o[2]));
	const bool large = s.m * s.n * s.k >= (dt_gpu_emulated() ? 1 << 14 : 1 << 27);
	int rc = -ENOTSUP;

	if (accumulate && c.dtype != DT_F32)
		return -ENOTSUP;
	if (!fast && large && !bias.data)
		rc = in_parts(dev, o, ta, tb, accumulate, s);
	if (rc == -ENOTSUP && (fast || (c.dtype == DT_F32 && even(o[1]) && even(o[2]))))
		rc = dt_blas_matmul(cu->blas, cu->stream, c, a, ta, b, tb, bias, accumulate, s.m, s.n, s.k,
				    &ld);
	return rc;
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
			rc = by_library(dev, c, a, ta, b, tb, bias, accumulate, {m, n, k});
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
