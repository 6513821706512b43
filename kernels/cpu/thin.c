/*
 * Products with one dimension of at most DT_THIN, as in adapters and routers: the large operand is read or
 * written once, in its own type, and widened a block at a time in the cache. oneDNN needs an f32 copy of it
 * in memory on processors without 16-bit products.
 *
 * Measured against that on two cores of Zen 3, 1024 rows, rank 16: y += h b^T takes 0.62 to 0.85 of the time,
 * gradients of a and b 0.73 to 0.77; for ranks above 32, and h = x a^T with a whole matrix, oneDNN is faster.
 *
 * An element of c is one chain of multiply-adds over k in ascending order, whatever the number of threads.
 */
#include "kernels/cpu/thin.h"
#include "kernels/cpu/tile.h"

enum { ROWS = DT_THIN_ROWS, WIDE = DT_THIN_WIDE };

/* Operands and what all threads share; op(b) is [k, n]. */
struct thin {
	const struct dt_matmul_key *key;
	struct dt_tensor c, a, b, bias;
	int64_t c_at, a_at, b_at; /* the first column of each that takes part */
	const struct dt_tile *tile;
	float *small; /* the small operand in f32; its shape depends on the function */
	int64_t pad;  /* n padded */
};

/* Widens rows x cols of t from (row, col) on to f32 rows with stride ld, zeros up to `fill` columns. */
static DT_SIMD void thin_widen(float *to, int64_t ld, struct dt_tensor t, int64_t row, int64_t col,
			       int64_t rows, int64_t cols, int64_t fill)
{
	for (int64_t r = 0; r < rows; r++) {
		const void *from = dt_at(t, (row + r) * dt_cols(t) + col);
		const float *p = dt_load(to + r * ld, from, t.dtype, cols);

		if (p != to + r * ld)
			memcpy(to + r * ld, p, (size_t)cols * 4);
		for (int64_t j = cols; j < fill; j++)
			to[r * ld + j] = 0;
	}
}

/* The same, transposed: to[j * ld + r] = t[row + r, col + j], zeros for rows up to `fill`. */
static DT_SIMD void thin_turn(float *to, int64_t ld, struct dt_tensor t, int64_t row, int64_t col,
			      int64_t rows, int64_t cols, int64_t fill)
{
	float line[WIDE];

	for (int64_t r = 0; r < fill; r++)
		for (int64_t j = 0; j < cols; j += WIDE) {
			const int64_t n = dt_min64(WIDE, cols - j);
			const float *p = line;

			if (r < rows)
				p = dt_load(line, dt_at(t, (row + r) * dt_cols(t) + col + j), t.dtype, n);
			else
				memset(line, 0, sizeof(line));
			for (int64_t i = 0; i < n; i++)
				to[(j + i) * ld + r] = p[i];
		}
}

/* Loads the old values of c into the sums, if accumulating. Returns whether it did. */
static bool thin_old(const struct thin *p, float *s, int64_t ld, int64_t row, int64_t col, int64_t rows,
		     int64_t n)
{
	if (p->key->accumulate)
		thin_widen(s, ld, p->c, row, p->c_at + col, rows, n, dt_thin_padded(n));
	return p->key->accumulate;
}

/* Stores n columns of a row of c from `col` on: sums plus bias. */
static DT_SIMD void thin_store(const struct thin *p, float *s, int64_t row, int64_t col, int64_t n)
{
	void *at = dt_at(p->c, row * dt_cols(p->c) + p->c_at + col);

	if (p->bias.data) {
		float buf[WIDE];
		const float *add = dt_load(buf, dt_at(p->bias, col), p->bias.dtype, n);

		for (int64_t j = 0; j < n; j++)
			s[j] += add[j];
	}
	if (p->c.dtype == DT_F32)
		memcpy(at, s, (size_t)n * 4);
	else
		dt_store(at, p->c.dtype, s, n);
}

/* Small k: columns j .. j + n of all rows from `first` on; op(b)'s columns are in panel [k, WIDE]. */
static void up_rows(const struct thin *p, const float *panel, int64_t j, int64_t n, int64_t first,
		    int64_t last)
{
	const int64_t k = p->key->k;
	float a[ROWS * DT_THIN], s[ROWS * WIDE];

	for (int64_t i = first; i < last; i += ROWS) {
		const int64_t rows = dt_min64(ROWS, last - i);

		thin_widen(a, k, p->a, i, p->a_at, rows, k, k);
		p->tile->mul(s, WIDE, (const uint32_t *)a, k, 1, (const uint32_t *)panel, WIDE, rows,
			     dt_thin_padded(n), k, thin_old(p, s, WIDE, i, j, rows, n));
		for (int64_t r = 0; r < rows; r++)
			thin_store(p, s + r * WIDE, i + r, j, n);
	}
}

/* Threads split rows. */
static void up(const struct thin *p, int64_t thread, int64_t of)
{
	const int64_t blocks = dt_ceil_div(p->key->m, ROWS), first = blocks * thread / of * ROWS,
		      last = dt_min64(p->key->m, blocks * (thread + 1) / of * ROWS), k = p->key->k;
	float panel[DT_THIN * WIDE];

	for (int64_t j = 0; j < p->key->n && first < last; j += WIDE) {
		const int64_t n = dt_min64(WIDE, p->key->n - j);

		if (p->key->tb)
			thin_turn(panel, WIDE, p->b, j, p->b_at, n, k, dt_thin_padded(n));
		else
			thin_widen(panel, WIDE, p->b, 0, p->b_at + j, k, n, dt_thin_padded(n));
		up_rows(p, panel, j, n, first, last);
	}
}

/* Small n: small is op(b) [k, pad]. Computes block i of c's rows. */
static void down(const struct thin *p, int64_t i)
{
	const int64_t row = i * ROWS, rows = dt_min64(ROWS, p->key->m - row);
	float a[ROWS * WIDE], s[ROWS * DT_THIN];

	for (int64_t k = 0; k < p->key->k; k += WIDE) {
		const int64_t n = dt_min64(WIDE, p->key->k - k);

		thin_widen(a, WIDE, p->a, row, p->a_at + k, rows, n, n);
		p->tile->mul(s, p->pad, (const uint32_t *)a, WIDE, 1, (const uint32_t *)p->small + k * p->pad,
			     p->pad, rows, p->pad, n,
			     k > 0 || thin_old(p, s, p->pad, row, 0, rows, p->key->n));
	}
	for (int64_t r = 0; r < rows; r++)
		thin_store(p, s + r * p->pad, row + r, 0, p->key->n);
}

/* c = a^T b, small n: small is b [k, pad]. Computes rows of c from `row` on. */
static void tall(const struct thin *p, int64_t row, int64_t rows)
{
	float a[ROWS * WIDE], s[WIDE * DT_THIN];

	for (int64_t k = 0; k < p->key->k; k += ROWS) {
		const int64_t n = dt_min64(ROWS, p->key->k - k);

		thin_widen(a, WIDE, p->a, k, p->a_at + row, n, rows, rows);
		p->tile->mul(s, p->pad, (const uint32_t *)a, 1, WIDE, (const uint32_t *)p->small + k * p->pad,
			     p->pad, rows, p->pad, n,
			     k > 0 || thin_old(p, s, p->pad, row, 0, rows, p->key->n));
	}
	for (int64_t r = 0; r < rows; r++)
		thin_store(p, s + r * p->pad, row + r, 0, p->key->n);
}

/* c = a^T b, small m: small is a [k, m]. Computes columns of c from `col` on. */
static void flat(const struct thin *p, int64_t col, int64_t cols)
{
	const int64_t m = p->key->m;
	float b[ROWS * WIDE], s[DT_THIN * WIDE];

	for (int64_t k = 0; k < p->key->k; k += ROWS) {
		const int64_t n = dt_min64(ROWS, p->key->k - k);

		thin_widen(b, WIDE, p->b, k, p->b_at + col, n, cols, dt_thin_padded(cols));
		p->tile->mul(s, WIDE, (const uint32_t *)p->small + k * m, 1, m, (const uint32_t *)b, WIDE, m,
			     dt_thin_padded(cols), n, k > 0 || thin_old(p, s, WIDE, 0, col, m, cols));
	}
	for (int64_t r = 0; r < m; r++)
		thin_store(p, s + r * WIDE, r, col, cols);
}

/* Whether operands are 16-bit and this processor would widen them. Batch-invariant products have another
 * path. */
static bool is_widened(struct dt_dev *dev, const struct dt_matmul_key *key)
{
	struct dt_matmul_entry *e;

	return key->in != DT_F32 && !dev->batch_invariant && dt_matmul_find(dev->impl, key, &e) == 0 &&
	       e->widen;
}

bool dt_thin_is(struct dt_dev *dev, const struct dt_matmul_key *key)
{
	return dt_thin_pays(key) && is_widened(dev, key);
}

/* Fills rows i .. i + ROWS along k of the small operand. */
static void fill(const struct thin *p, enum dt_thin_shape shape, int64_t i)
{
	const int64_t k = i * ROWS, n = dt_min64(ROWS, p->key->k - k);

	if (shape == DT_THIN_FLAT)
		thin_widen(p->small + k * p->key->m, p->key->m, p->a, k, p->a_at, n, p->key->m, p->key->m);
	else if (p->key->tb)
		thin_turn(p->small + k * p->pad, p->pad, p->b, 0, p->b_at + k, p->key->n, n, p->pad);
	else
		thin_widen(p->small + k * p->pad, p->pad, p->b, k, p->b_at, n, p->key->n, p->pad);
}

/* Computes all of it with all threads. */
static int multiply(struct dt_dev *dev, struct thin *p, enum dt_thin_shape shape)
{
	const struct dt_matmul_key *key = p->key;
	/* Equal numbers of blocks per thread, each a whole number of vectors wide. */
	const int64_t large = shape == DT_THIN_TALL ? key->m : key->n,
		      parts = dt_ceil_div(dt_ceil_div(large, WIDE), dev->nthreads) * dev->nthreads,
		      wide = dt_thin_padded(dt_ceil_div(large, parts));
	const size_t small = dt_thin_bytes(key);

	p->small = small ? dt_cpu_scratch_of(dev, DT_SCRATCH_WIDE, small) : NULL;
	if (small && !p->small)
		return -ENOMEM;
	p->tile = dt_tile(DT_F32);
	p->pad = dt_thin_padded(key->n);
#pragma omp parallel num_threads(dev->nthreads)
	{
		if (shape == DT_THIN_UP)
			up(p, omp_get_thread_num(), omp_get_num_threads());
		else {
#pragma omp for schedule(static)
			for (int64_t i = 0; i < dt_ceil_div(key->k, ROWS); i++)
				fill(p, shape, i);
		}
		if (shape == DT_THIN_DOWN) {
#pragma omp for schedule(static) nowait
			for (int64_t i = 0; i < dt_ceil_div(key->m, ROWS); i++)
				down(p, i);
		} else if (shape != DT_THIN_UP) {
#pragma omp for schedule(static) nowait
			for (int64_t i = 0; i < large; i += wide) {
				if (shape == DT_THIN_TALL)
					tall(p, i, dt_min64(wide, large - i));
				else
					flat(p, i, dt_min64(wide, large - i));
			}
		}
	}
	return 0;
}

int dt_thin_matmul(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
		   struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias)
{
	struct thin p = {.key = key, .c = c, .a = a, .b = b, .bias = bias};

	return multiply(dev, &p, dt_thin_shape_of(key));
}

int dt_cpu_columns_matmul(struct dt_dev *dev, const struct dt_columns_product *p)
{
	const int64_t rows = dt_rows(p->y), n = dt_rows(p->b), rank = dt_cols(p->b);
	struct dt_matmul_key key = {.m = rows, .n = n, .k = rank, .lda = rank, .nthreads = dev->nthreads};
	struct thin t = {.key = &key, .c = p->y, .c_at = p->at, .a = p->h, .a_at = p->from, .b = p->b};

	key.in = (uint8_t)p->y.dtype;
	key.out = key.in;
	if (p->of == DT_COLUMNS_Y) {
		key.tb = key.accumulate = true;
	} else if (p->of == DT_COLUMNS_H) {
		key.n = rank;
		key.k = key.lda = n;
		t = (struct thin){
			.key = &key, .c = p->h, .c_at = p->from, .a = p->y, .a_at = p->at, .b = p->b};
	} else {
		key = (struct dt_matmul_key){.m = n,
					     .n = rank,
					     .k = rows,
					     .lda = n,
					     .nthreads = dev->nthreads,
					     .ta = true,
					     .in = (uint8_t)p->y.dtype,
					     .out = (uint8_t)p->b.dtype,
					     .accumulate = p->accumulate};
		t = (struct thin){
			.key = &key, .c = p->b, .a = p->y, .a_at = p->at, .b = p->h, .b_at = p->from};
	}
	if (dt_thin_shape_of(&key) == DT_THIN_NONE || dt_matmul_ready(dev->impl) < 0 ||
	    !is_widened(dev, &key))
		return -ENOTSUP;
	return multiply(dev, &t, dt_thin_shape_of(&key));
}
/* SPDX-License-Identifier: Apache-2.0 */
