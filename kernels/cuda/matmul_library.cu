/* Matrix products by cuBLASLt, over copies of operands whose rows it multiplies slowly. */
#include "kernels/cuda/kernel.h"

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
int dt_cuda_matmul_library(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, bool ta,
			   struct dt_tensor b, bool tb, struct dt_tensor bias, bool accumulate, int64_t m,
			   int64_t n, int64_t k)
{
	const struct dt_cuda *cu = (struct dt_cuda *)dev->impl;
	const struct operand o[] = {operand_of(c), operand_of(a), operand_of(b)};
	const struct dt_blas_rows ld = {o[0].ld, o[1].ld, o[2].ld};
	const bool fast = a.dtype == DT_F32 || (even(o[0]) && even(o[1]) && even(o[2]));
	const bool large = m * n * k >= (dt_gpu_emulated() ? 1 << 14 : 1 << 27);
	int rc = -ENOTSUP;

	if (accumulate && c.dtype != DT_F32)
		return -ENOTSUP;
	if (!fast && large && !bias.data)
		rc = in_parts(dev, o, ta, tb, accumulate, {m, n, k});
	if (rc == -ENOTSUP && (fast || (c.dtype == DT_F32 && even(o[1]) && even(o[2]))))
		rc = dt_blas_matmul(cu->blas, cu->stream, c, a, ta, b, tb, bias, accumulate, m, n, k, &ld);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
