/* matmul and colsum against f64 loops: odd sizes, all transpositions, bias, accumulation, invariance. */
#include "group.h"

#include "kernels/shape.h"

#include <dlfcn.h>

static double at(struct dt_tensor t, bool trans, int64_t i, int64_t j)
{
	return get(t, trans ? j * t.dim[1] + i : i * t.dim[1] + j);
}

static struct dt_tensor operand(enum dt_dtype t, bool trans, int64_t r, int64_t c, uint32_t stream)
{
	return trans ? random_tensor(t, c, r, stream, 1) : random_tensor(t, r, c, stream, 1);
}

struct shape {
	int64_t m, n, k;
};

static void one_product(struct shape s, int flags, enum dt_dtype in, enum dt_dtype out)
{
	const bool ta = flags & 1, tb = flags & 2, has_bias = flags & 4, acc = flags & 8;
	struct dt_tensor a = operand(in, ta, s.m, s.k, 1), b = operand(in, tb, s.k, s.n, 2);
	struct dt_tensor bias = random_tensor(in, 1, s.n, 3, 1);
	struct dt_tensor c = acc ? random_tensor(out, s.m, s.n, 4, 1) : tensor(out, s.m, s.n);
	double *want = reals(s.m * s.n);
	char what[128];

	for (int64_t i = 0; i < s.m; i++)
		for (int64_t j = 0; j < s.n; j++) {
			double v = (acc ? get(c, i * s.n + j) : 0) + (has_bias ? get(bias, j) : 0);

			for (int64_t k = 0; k < s.k; k++)
				v += at(a, ta, i, k) * at(b, tb, k, j);
			want[i * s.n + j] = v;
		}
	bias.ndim = 1;
	bias.dim[0] = s.n;

	int r = dev->ops->matmul(dev, c, a, ta, b, tb, has_bias ? bias : DT_NONE, acc);

	assert_int_equal(r, 0);
	snprintf(what, sizeof what, "%lldx%lldx%lld flags %d %s -> %s", (long long)s.m, (long long)s.n,
		 (long long)s.k, flags, dt_dtype_name(in), dt_dtype_name(out));
	check_close(what, c, want, 1e-6 * (double)(s.k + 1), 1e-6);
	free_all(a.data, b.data, bias.data, c.data, want);
}

static void test_products(void **state)
{
	static const struct shape shapes[] = {{1, 1, 1},    {1, 37, 19}, {3, 5, 7},  {17, 33, 65},
					      {64, 48, 80}, {5, 1, 130}, {2, 70, 1}, {33, 129, 31},
					      {0, 4, 3},    {4, 0, 3},	 {4, 3, 0},  {97, 101, 53},
					      {97, 101, 61}}; /* f32: the last is oneDNN's */

	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		for (int flags = 0; flags < 16; flags++) {
			one_product(shapes[i], flags, DT_F32, DT_F32);
			one_product(shapes[i], flags, DT_BF16, DT_BF16);
			one_product(shapes[i], flags, DT_BF16, DT_F32);
			one_product(shapes[i], flags, DT_F16, DT_F16);
			one_product(shapes[i], flags, DT_F16, DT_F32);
		}
}

/* A k that is taken in parts, and rows that are. */
static void test_deep(void **state)
{
	static const struct shape shapes[] = {{5, 19, 20001}, {513, 3, 16385}, {1100, 9, 33}};
	/* A card takes 32 of k at a time, and 64 rows. */
	static const struct shape small[] = {{5, 19, 2001}, {129, 3, 1025}, {321, 9, 33}};

	for (int i = 0; i < 3 * 4; i++)
		one_product(emulated(dev) ? small[i % 3] : shapes[i % 3], i / 3 % 2, DT_BF16,
			    i / 6 ? DT_F32 : DT_BF16);
}

/* More rows than are added to at a time. */
static void test_blocks(void **state)
{
	for (int flags = 8; flags < 16; flags++) {
		one_product((struct shape){1100, 9, 33}, flags, DT_BF16, DT_F32);
		one_product((struct shape){513, 20, 7}, flags, DT_BF16, DT_BF16);
	}
}

/* With b packed first (matmul_path.h) a row has the bits that it has among fewer, whose b is not. */
static void packed(int64_t m, int64_t n, int64_t k, bool tb, enum dt_dtype out)
{
	struct dt_tensor a = random_tensor(DT_BF16, m, k, 1, 1), b = operand(DT_BF16, tb, k, n, 2);
	struct dt_tensor c = tensor(out, m, n), parts = tensor(out, m, n);

	assert_int_equal(dev->ops->matmul(dev, c, a, false, b, tb, DT_NONE, false), 0);
	for (int64_t i = 0; i < m; i += 100) {
		const int64_t rows = dt_min64(100, m - i);

		assert_int_equal(dev->ops->matmul(dev, dt_t2(dt_at(parts, i * n), out, rows, n),
						  dt_t2(dt_at(a, i * k), DT_BF16, rows, k), false, b, tb,
						  DT_NONE, false),
				 0);
	}
	check_same_bits("with b packed", c, parts);
	free_all(a.data, b.data, c.data, parts.data);
}

static void test_packed(void **state)
{
	static const struct shape shapes[] = {{256, 64, 64}, {300, 130, 192}, {257, 192, 320}};

	for (int i = 0; i < 3; i++)
		for (int tb = 0; tb < 2; tb++) {
			one_product(shapes[i], 2 * tb, DT_BF16, DT_F32);
			one_product(shapes[i], 2 * tb + 4, DT_BF16, DT_BF16);
		}
	if (strcmp(dt_dev_isa(dev), "avx512_bf16") != 0)
		skip(); /* others have no order of sums to keep, or no packed b */
	for (int tb = 0; tb < 2; tb++) {
		packed(300, 192, 320, tb, DT_BF16);
		packed(600, 130, 1024, tb, DT_F32);
		packed(256, 1030, 3072, true, DT_BF16);
	}
}

/* One dimension small, and the others more than a block: what adapters' products are like. */
static void test_thin(void **state)
{
	static const struct shape shapes[] = {{37, 300, 16}, {300, 7, 53},  {531, 32, 16}, {32, 270, 40},
					      {16, 19, 261}, {3, 256, 100}, {20, 259, 32}};

	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		for (int flags = 0; flags < 16; flags++) {
			one_product(shapes[i], flags, DT_BF16, DT_BF16);
			one_product(shapes[i], flags, DT_BF16, DT_F32);
			one_product(shapes[i], flags, DT_F16, DT_F16);
		}
}

/* With rows of `step` more elements than they have columns, rounded up to a multiple of `to`. */
static struct dt_tensor apart(struct dt_tensor t, int64_t step, int64_t to, bool zeros)
{
	const int64_t ld = (t.dim[1] + step + to - 1) / to * to, size = dt_dtype_size(t.dtype);
	const struct dt_tensor s = strided_copy(t, ld);

	for (int64_t i = 0; i < t.dim[0] && zeros; i++)
		memset((char *)s.data + (i * ld + t.dim[1]) * size, 0, (size_t)((ld - t.dim[1]) * size));
	return s;
}

/* Row strides, a multiple of 8 or none; what is behind columns is never used, but zeros behind those of k. */
static void one_strided(struct shape s, int flags, enum dt_dtype in, enum dt_dtype out, int64_t to)
{
	const bool ta = flags & 1, tb = flags & 2, has_bias = flags & 4, acc = flags & 8;
	struct dt_tensor a = operand(in, ta, s.m, s.k, 1), b = operand(in, tb, s.k, s.n, 2);
	struct dt_tensor bias = random_tensor(in, 1, s.n, 3, 1), c = random_tensor(out, s.m, s.n, 4, 1), got;
	const struct dt_tensor pa = apart(a, to, to, !ta), pb = apart(b, 0, to, tb),
			       pc = apart(c, 1, to, false);
	double *want = reals(s.m * s.n);
	char what[128];

	for (int64_t i = 0; i < s.m * s.n; i++) {
		want[i] = (acc ? get(c, i) : 0) + (has_bias ? get(bias, i % s.n) : 0);
		for (int64_t k = 0; k < s.k; k++)
			want[i] += at(a, ta, i / s.n, k) * at(b, tb, k, i % s.n);
	}
	assert_int_equal(dev->ops->matmul(dev, pc, pa, ta, pb, tb, has_bias ? bias : DT_NONE, acc), 0);
	got = dense_copy(pc, 0xff);
	snprintf(what, sizeof what, "rows of %lld, %lldx%lldx%lld flags %d %s -> %s", (long long)to,
		 (long long)s.m, (long long)s.n, (long long)s.k, flags, dt_dtype_name(in),
		 dt_dtype_name(out));
	check_close(what, got, want, 1e-6 * (double)(s.k + 1), 1e-6);
	free_all(a.data, b.data, bias.data, c.data, want, pa.data, pb.data, pc.data, got.data);
}

static void test_strides(void **state)
{
	static const struct shape shapes[] = {
		{3, 5, 7}, {17, 33, 65}, {40, 48, 56}, {33, 129, 31}, {65, 8, 41}};
	struct dt_tensor t = random_tensor(DT_F32, 4, 9, 1, 1), w = random_tensor(DT_F32, 4, 9, 2, 1);
	const struct dt_tensor wide = dt_t2_ld(t.data, DT_F32, 4, 8, 9);

	/* Ops that do not take one refuse it; so do all where rows are dense. One of the columns is none. */
	assert_int_equal(dev->ops->add(dev, wide, dt_t2(w.data, DT_F32, 4, 8), dt_t2(w.data, DT_F32, 4, 8)),
			 -EINVAL);
	assert_int_equal(dev->ops->scale(dev, wide, 2), -EINVAL);
	assert_int_equal(dev->ops->scale(dev, dt_t2_ld(t.data, DT_F32, 4, 9, 9), 2), 0);
	assert_int_equal(
		dev->ops->matmul(dev, dt_t2_ld(t.data, DT_F32, 4, 4, 3), w, false, w, true, DT_NONE, false),
		-EINVAL);
	if (dt_dev_row_pad(dev) == 1)
		assert_int_equal(dev->ops->matmul(dev, dt_t2_ld(t.data, DT_F32, 4, 4, 8), w, false, w, true,
						  DT_NONE, false),
				 -EINVAL);
	free_all(t.data, w.data);
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes && dt_dev_row_pad(dev) > 1; i++)
		for (int flags = 0; flags < 16; flags++)
			for (int64_t to = 8; to > 0; to -= 5) {
				one_strided(shapes[i], flags, DT_F32, DT_F32, to);
				one_strided(shapes[i], flags, DT_BF16, DT_BF16, to);
				one_strided(shapes[i], flags, DT_BF16, DT_F32, to);
				one_strided(shapes[i], flags, DT_F16, DT_F16, to);
				one_strided(shapes[i], flags, DT_F16, DT_F32, to);
			}
}

/*
 * The three products of an odd vocabulary's logits reach the library in the form in which it is fast, from
 * rows with a stride of 8 and from dense ones. tests/kernels/fake_cublaslt.c counts.
 */
static void test_library_is_fast(void **state)
{
	const struct shape s = {64, 257, 40}, dx = {64, 40, 257}, dw = {257, 40, 64};
	void *lib = getenv("DT_TEST_CUBLASLT") ? dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD) : NULL;
	const int *slow = lib ? dlsym(lib, "dt_fake_blas_slow") : NULL;
	const int *calls = lib ? dlsym(lib, "dt_fake_blas_calls") : NULL;
	int before[2];

	if (!slow || !calls)
		skip();
	before[0] = *slow;
	before[1] = *calls;
	one_strided(s, 2, DT_BF16, DT_F32, 8);
	one_strided(dx, 0, DT_BF16, DT_BF16, 8);
	one_strided(dw, 9, DT_BF16, DT_F32, 8);
	one_product(s, 2, DT_BF16, DT_F32);
	one_product(s, 2, DT_BF16, DT_BF16);
	one_product(dx, 0, DT_BF16, DT_BF16);
	one_product(dw, 9, DT_BF16, DT_F32);
	if (*slow != before[0] || *calls < before[1] + 7)
		fail_msg("%d of %d products are slow ones", *slow - before[0], *calls - before[1]);
	dlclose(lib);
}

/* A product with columns of y and h against an f64 loop; what is not meant stays as it is. */
static void one_of_columns(int of, enum dt_dtype t, enum dt_dtype tb, bool accumulate, int64_t rank)
{
	enum { ROWS = 50, N = 270, AT = 33, FROM = 3 };
	struct dt_tensor y = random_tensor(t, ROWS, AT + N + 5, 1, 1),
			 h = random_tensor(t, ROWS, FROM + rank + 2, 2, 1),
			 b = random_tensor(tb, N, rank, 3, 1);
	struct dt_tensor out = of == DT_COLUMNS_Y ? y : of == DT_COLUMNS_H ? h : b;
	const struct dt_columns_product p = {of, y, h, b, AT, FROM, accumulate};
	double *want = values(out);
	const int64_t wy = dt_cols(y), wh = dt_cols(h);
	int rc;

	for (int64_t i = 0; of != DT_COLUMNS_Y && i < (of == DT_COLUMNS_H ? ROWS : N); i++)
		for (int64_t r = 0; r < rank; r++)
			if (of == DT_COLUMNS_H)
				want[i * wh + FROM + r] = 0;
			else
				want[i * rank + r] *= accumulate;
	for (int64_t i = 0; i < ROWS; i++)
		for (int64_t j = 0; j < N; j++)
			for (int64_t r = 0; r < rank; r++) {
				const double v = get(y, i * wy + AT + j), u = get(h, i * wh + FROM + r),
					     w = get(b, j * rank + r);

				if (of == DT_COLUMNS_Y)
					want[i * wy + AT + j] += u * w;
				else if (of == DT_COLUMNS_H)
					want[i * wh + FROM + r] += v * w;
				else
					want[j * rank + r] += v * u;
			}
	rc = dt_dev_columns_matmul(dev, &p);
	if (rc == -ENOTSUP)
		assert_true(emulated(dev) || strcmp(dt_dev_isa(dev), "avx2"));
	else {
		assert_int_equal(rc, 0);
		check_close("a product with columns", out, want, 1e-4, 1e-6);
	}
	free_all(y.data, h.data, b.data, want);
}

static void test_columns(void **state)
{
	for (int i = 0; i < 3 * 2; i++) {
		const enum dt_dtype t = i % 2 ? DT_F16 : DT_BF16;

		one_of_columns(DT_COLUMNS_Y, t, t, true, 1 + i * 6);
		one_of_columns(DT_COLUMNS_H, t, t, false, 1 + i * 6);
		one_of_columns(DT_COLUMNS_B, t, DT_F32, i / 2 % 2, 1 + i * 6);
		one_of_columns(DT_COLUMNS_B, t, t, i / 2 % 2, 2 + i * 6);
	}
}

/* f32 and wide ranks have products of whole matrices only; columns past the end are refused. */
static void test_columns_refused(void **state)
{
	struct dt_tensor y = random_tensor(DT_F32, 40, 300, 1, 1), h = random_tensor(DT_F32, 40, 16, 2, 1),
			 b = random_tensor(DT_F32, 300, 16, 3, 1), n = random_tensor(DT_BF16, 300, 16, 3, 1);

	assert_int_equal(dt_dev_columns_matmul(dev, &(struct dt_columns_product){DT_COLUMNS_Y, y, h, b}),
			 -ENOTSUP);
	assert_int_equal(dt_dev_columns_matmul(dev, &(struct dt_columns_product){DT_COLUMNS_Y, y, h, b, 1}),
			 -EINVAL);
	assert_int_equal(
		dt_dev_columns_matmul(dev, &(struct dt_columns_product){DT_COLUMNS_H, y, h, b, 0, 1}),
		-EINVAL);
	assert_int_equal(dt_dev_columns_matmul(dev, &(struct dt_columns_product){DT_COLUMNS_Y, y, h, n}),
			 -EINVAL);
	free_all(y.data, h.data, b.data, n.data);
}

static void test_refused(void **state)
{
	struct dt_tensor a = random_tensor(DT_F32, 3, 4, 1, 1), b = random_tensor(DT_F32, 4, 5, 2, 1);
	struct dt_tensor h = random_tensor(DT_BF16, 4, 5, 2, 1), c = tensor(DT_F32, 3, 5),
			 n = tensor(DT_BF16, 3, 5);

	assert_int_equal(dev->ops->matmul(dev, c, a, false, b, true, DT_NONE, false), -EINVAL);
	assert_int_equal(dev->ops->matmul(dev, c, a, false, h, false, DT_NONE, false), -EINVAL);
	assert_int_equal(dev->ops->matmul(dev, n, a, false, b, false, DT_NONE, false), -EINVAL);
	assert_int_equal(dev->ops->matmul(dev, b, a, false, b, false, DT_NONE, false), -EINVAL);
	free_all(a.data, b.data, h.data, c.data, n.data);
}

/* Row i of m rows has the bits it has alone, and they are right. */
static void invariant(struct dt_dev *d, enum dt_dtype type, int64_t n, int64_t k, bool tb)
{
	const int64_t max = emulated(d) ? 70 : 200, size = dt_dtype_size(type);
	struct dt_tensor a = random_tensor(type, max, k, 1, 1), b = operand(type, tb, k, n, 2);
	struct dt_tensor bias = random_tensor(type, 1, n, 3, 1), all = tensor(type, max, n);
	double *want = reals(max * n);

	for (int64_t i = 0; i < max; i++) {
		struct dt_tensor x = dt_t2((char *)a.data + i * k * size, type, 1, k);
		struct dt_tensor y = dt_t2((char *)all.data + i * n * size, type, 1, n);

		assert_int_equal(d->ops->matmul(d, y, x, false, b, tb, bias, false), 0);
	}
	for (int64_t i = 0; i < max * n; i++) {
		const int64_t j = i % n;

		for (int64_t e = 0; e < k; e++)
			want[i] += get(a, i / n * k + e) * get(b, tb ? j * k + e : e * n + j);
		want[i] += get(bias, j);
	}
	check_close("row alone", all, want, type == DT_F32 ? 2e-4 : 1e-2, type == DT_F32 ? 1e-5 : 1e-2);
	free(want);
	for (int64_t m = 1; m <= max; m += m < 18 ? 1 : m < 60 ? 7 : m < 66 ? 1 : 67) {
		const int64_t first = (m * 7) % (max - m + 1);
		struct dt_tensor x = dt_t2((char *)a.data + first * k * size, type, m, k);
		struct dt_tensor alone = dt_t2((char *)all.data + first * n * size, type, m, n);
		struct dt_tensor c = tensor(type, m, n);

		assert_int_equal(d->ops->matmul(d, c, x, false, b, tb, bias, false), 0);
		check_same_bits("row in a batch", c, alone);
		free(c.data);
	}
	free_all(a.data, b.data, bias.data, all.data);
}

static void test_batch_invariant(void **state)
{
	static const int64_t nk[][2] = {{96, 768}, {131, 257}, {64, 3072}, {40, 1000}};
	static const int threads[] = {1, 2, 6};

	for (int i = 0; i < 4 * TYPES * 3; i++) {
		if (emulated(dev) && (threads[i / 4 / TYPES] > 1 || nk[i % 4][1] > 300))
			continue; /* threads mean nothing, and time does */
		if (threads[i / 4 / TYPES] > 2 && strncmp(dt_dev_isa(dev), "avx512", 6))
			break; /* our own product has no order to choose: two threads will do */
		struct dt_dev *d = open_device(threads[i / 4 / TYPES]);

		d->batch_invariant = true;
		invariant(d, compute_types[i / 4 % TYPES], nk[i % 4][0], nk[i % 4][1], true);
		if (i % 4 != 2 && i / 4 / TYPES < 2)
			invariant(d, compute_types[i / 4 % TYPES], nk[i % 4][0], nk[i % 4][1], false);
		dt_dev_close(d);
	}
}

/* With a transposed too: row i of c has the bits that it has when a has that column alone. */
static void test_batch_invariant_transposed(void **state)
{
	const int64_t max = emulated(dev) ? 70 : 600, n = 33, k = 131;
	struct dt_dev *d = open_device(2);

	d->batch_invariant = true;
	for (int v = 0; v < TYPES; v++) {
		const enum dt_dtype type = compute_types[v];
		struct dt_tensor a = random_tensor(type, k, max, 1, 1), b = random_tensor(type, n, k, 2, 1);
		struct dt_tensor c = tensor(DT_F32, max, n), row = tensor(DT_F32, 1, n),
				 x = tensor(type, k, 1);
		double *want = reals(max * n);

		for (int64_t i = 0; i < max * n * k; i++)
			want[i / k] += get(a, i % k * max + i / k / n) * get(b, i / k % n * k + i % k);
		assert_int_equal(d->ops->matmul(d, c, a, true, b, true, DT_NONE, false), 0);
		check_close("transposed product", c, want, 2e-5, 1e-5);
		for (int64_t i = 0; i < max; i += i % 7 + 1) {
			for (int64_t j = 0; j < k; j++)
				put(x, j, get(a, j * max + i));
			assert_int_equal(d->ops->matmul(d, row, x, true, b, true, DT_NONE, false), 0);
			check_same_bits("row of a transposed product", row,
					dt_t2((float *)c.data + i * n, DT_F32, 1, n));
		}
		free_all(a.data, b.data, c.data, row.data, x.data, want);
	}
	dt_dev_close(d);
}

static void test_threads(void **state)
{
	static const struct shape full[] = {{65, 130, 770}, {200, 64, 1536}, {768, 96, 512}};
	static const struct shape small[] = {{65, 130, 77}, {130, 64, 96}, {33, 96, 257}};
	const struct shape *shapes = emulated(dev) ? small : full;
	struct dt_dev *one = open_device(1), *many = open_device(16);

	if (!on_device() && strncmp(dt_dev_isa(dev), "avx512", 6)) {
		dt_dev_close(one);
		dt_dev_close(many);
		print_message("skipped: without AVX-512 the order of accumulation may depend on threads\n");
		skip();
	}
	for (size_t s = 0; s < sizeof full / sizeof *full; s++)
		for (int v = 0; v < 8; v++) {
			const enum dt_dtype type = compute_types[v & 1];
			const bool ta = v & 2, acc = v & 4;

			if (type == DT_BF16 && !strncmp(dt_dev_isa(dev), "avx512_amx", 10))
				continue; /* oneDNN's threads share k there (kernels/matmul.h) */
			struct dt_tensor a = operand(type, ta, shapes[s].m, shapes[s].k, 1);
			struct dt_tensor b = operand(type, false, shapes[s].k, shapes[s].n, 2);
			struct dt_tensor c = random_tensor(DT_F32, shapes[s].m, shapes[s].n, 3, 1),
					 d = copy_of(c), e = copy_of(c);

			assert_int_equal(dev->ops->matmul(dev, c, a, ta, b, false, DT_NONE, acc), 0);
			assert_int_equal(one->ops->matmul(one, d, a, ta, b, false, DT_NONE, acc), 0);
			check_same_bits("one and two threads", c, d);
			assert_int_equal(many->ops->matmul(many, e, a, ta, b, false, DT_NONE, acc), 0);
			check_same_bits("one and sixteen threads", e, d);
			free_all(a.data, b.data, c.data, d.data, e.data);
		}
	dt_dev_close(one);
	dt_dev_close(many);
}

/* Rows of 17 columns, padded to 24, as those of logits are. */
static void test_colsum_padded(void **state)
{
	const int64_t m = 65, n = 17, ld = 24;

	if (dt_dev_row_pad(dev) == 1)
		skip();
	for (int t = 0; t < TYPES; t++) {
		struct dt_tensor all = random_tensor(compute_types[t], m, ld, 1, 1), x = all;
		struct dt_tensor out = random_tensor(DT_F32, 1, n, 2, 1);
		double *want = values(out);

		x.dim[1] = n;
		x.ld = ld;
		for (int64_t i = 0; i < m * n; i++)
			want[i % n] += get(all, i / n * ld + i % n);
		assert_int_equal(dev->ops->colsum(dev, out, x), 0);
		check_close("colsum of padded rows", out, want, 1e-6 * (double)(m + 1), 1e-6);
		free_all(all.data, out.data, want);
	}
}

static void test_colsum(void **state)
{
	static const int64_t rows[] = {0, 1, 3, 65, 300}, cols[] = {1, 17, 515, 2500};

	for (int v = 0; v < 5 * 4 * TYPES; v++) {
		const int64_t m = rows[v % 5], n = cols[v / 5 % 4];
		if (emulated(dev) && m * n > 1 << 18 && v >= 20)
			continue; /* a card's kernel takes types as values */
		struct dt_tensor x = random_tensor(compute_types[v / 20], m, n, 1, 1);
		struct dt_tensor out = random_tensor(DT_F32, 1, n, 2, 1), again = copy_of(out);
		double *want = values(out);
		struct dt_dev *one = open_device(1);

		for (int64_t i = 0; i < m * n; i++)
			want[i % n] += get(x, i);
		assert_int_equal(dev->ops->colsum(dev, out, x), 0);
		check_close("colsum", out, want, 1e-6 * (double)(m + 1), 1e-6);
		assert_int_equal(one->ops->colsum(one, again, x), 0);
		check_same_bits("colsum over threads", out, again);
		dt_dev_close(one);
		free_all(x.data, out.data, again.data, want);
	}
}

/* A shape seen before needs no more memory. */
static void test_scratch_settles(void **state)
{
	struct dt_tensor a = random_tensor(DT_BF16, 128, 256, 1, 1),
			 b = random_tensor(DT_BF16, 256, 192, 2, 1);
	struct dt_tensor c = tensor(DT_F32, 128, 192);
	size_t n;

	assert_int_equal(dev->ops->matmul(dev, c, a, false, b, false, DT_NONE, false), 0);
	n = dt_dev_scratch_bytes(dev);
	for (int i = 0; i < 10; i++)
		assert_int_equal(dev->ops->matmul(dev, c, a, false, b, false, DT_NONE, false), 0);
	assert_int_equal(dt_dev_scratch_bytes(dev), n);
	free_all(a.data, b.data, c.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_products),
		cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_deep),
		cmocka_unit_test(test_packed),
		cmocka_unit_test(test_thin),
		cmocka_unit_test(test_strides),
		cmocka_unit_test(test_library_is_fast),
		cmocka_unit_test(test_columns),
		cmocka_unit_test(test_columns_refused),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_batch_invariant),
		cmocka_unit_test(test_batch_invariant_transposed),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_colsum),
		cmocka_unit_test(test_colsum_padded),
		cmocka_unit_test(test_scratch_settles),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
