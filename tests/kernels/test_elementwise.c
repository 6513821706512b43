/* Elementwise ops against f64, conversions against the meaning of the formats' bits. */
#include "group.h"

static const int64_t sizes[] = {0, 1, 15, 2047, 10001};

static void test_arithmetic(void **state)
{
	for (int v = 0; v < 5 * TYPES * TYPES; v++) {
		const int64_t n = sizes[v / TYPES / TYPES];
		const enum dt_dtype ty = compute_types[v % TYPES], tx = compute_types[v / TYPES % TYPES];
		struct dt_tensor a = random_tensor(ty, 1, n, 1, 1), b = random_tensor(ty, 1, n, 2, 1);
		struct dt_tensor x = random_tensor(tx, 1, n, 3, 1), y = tensor(ty, 1, n);
		double *sum = reals(n), *axpy = reals(n), *half = reals(n);

		for (int64_t i = 0; i < n; i++) {
			sum[i] = get(a, i) + get(b, i);
			axpy[i] = get(b, i) - 0.3f * get(x, i);
			half[i] = get(a, i) * 0.7f;
		}
		assert_int_equal(dev->ops->add(dev, y, a, b), 0);
		check_close("add", y, sum, 1e-7, 1e-7);
		assert_int_equal(dev->ops->axpy(dev, b, -0.3f, x), 0);
		check_close("axpy", b, axpy, 1e-7, 1e-7);
		assert_int_equal(dev->ops->scale(dev, a, 0.7f), 0);
		check_close("scale", a, half, 1e-7, 1e-7);
		assert_int_equal(dev->ops->fill(dev, y, 2.5f), 0);
		for (int64_t i = 0; i < n; i++)
			assert_true(get(y, i) == 2.5);
		free_all(a.data, b.data, x.data, y.data, sum, axpy, half);
	}
}

/* The value of a 16-bit float with e exponent bits, from its definition. */
static double decode(uint16_t h, int e)
{
	const int m = 15 - e, bias = (1 << (e - 1)) - 1, exp = h >> m & ((1 << e) - 1),
		  frac = h & ((1 << m) - 1);
	double v;

	if (exp == (1 << e) - 1)
		v = frac ? NAN : INFINITY;
	else
		v = exp ? ldexp(1 + ldexp(frac, -m), exp - bias) : ldexp(frac, 1 - bias - m);
	return h & 0x8000 ? -v : v;
}

/* All 65536 patterns of both formats, widened and narrowed again. */
static void test_all_bits(void **state)
{
	static const struct {
		enum dt_dtype t;
		int exp;
	} kinds[] = {{DT_BF16, 8}, {DT_F16, 5}};

	for (int k = 0; k < 2; k++) {
		struct dt_tensor h = tensor(kinds[k].t, 1, 65536), back = tensor(kinds[k].t, 1, 65536);
		struct dt_tensor f = tensor(DT_F32, 1, 65536);

		for (int i = 0; i < 65536; i++)
			((uint16_t *)h.data)[i] = (uint16_t)i;
		assert_int_equal(dev->ops->convert(dev, f, h), 0);
		assert_int_equal(dev->ops->convert(dev, back, f), 0);
		for (int i = 0; i < 65536; i++) {
			double want = decode((uint16_t)i, kinds[k].exp), got = get(f, i);

			if (isnan(want)) {
				assert_true(isnan(got) && isnan(get(back, i)));
				continue;
			}
			if (want != got || ((uint16_t *)back.data)[i] != i)
				fail_msg("%s %04x: got %g, want %g, back %04x", dt_dtype_name(kinds[k].t), i,
					 got, want, ((uint16_t *)back.data)[i]);
		}
		free_all(h.data, back.data, f.data);
	}
}

/* Between neighbours, to nearest; exactly between, to even; past the largest, to infinity. */
static void test_rounding(void **state)
{
	static const struct {
		enum dt_dtype t;
		int exp;
	} kinds[] = {{DT_BF16, 8}, {DT_F16, 5}};

	for (int k = 0; k < 2; k++) {
		const int e = kinds[k].exp, top = ((1 << e) - 1) << (15 - e);
		float in[3];
		uint16_t out[3];

		for (int i = 0; i < top; i += emulated(dev) ? 61 : 1) {
			const double lo = decode((uint16_t)i, e);
			const double hi = i + 1 < top ? decode((uint16_t)(i + 1), e)
						      : 2 * lo - decode((uint16_t)(i - 1), e);

			in[1] = (float)((lo + hi) / 2);
			in[0] = nextafterf(in[1], 0);
			in[2] = nextafterf(in[1], INFINITY);
			if (in[1] != (lo + hi) / 2)
				continue; /* bf16 denormals: the middle is no f32 */
			assert_int_equal(
				dev->ops->convert(dev, dt_t1(out, kinds[k].t, 3), dt_t1(in, DT_F32, 3)), 0);
			if (out[0] != i || out[1] != (i & 1 ? i + 1 : i) || out[2] != i + 1)
				fail_msg("%s %04x: %04x %04x %04x", dt_dtype_name(kinds[k].t), i, out[0],
					 out[1], out[2]);
		}
	}
}

static void test_sumsq(void **state)
{
	struct dt_dev *one = open_device(1), *five = open_device(5);

	for (int v = 0; v < 5 * TYPES; v++) {
		const int64_t n = sizes[v / TYPES] * 7;
		struct dt_tensor x = random_tensor(compute_types[v % TYPES], 1, n, 1, 3);
		double want = 0, a = -1, b = -1;

		for (int64_t i = 0; i < n; i++)
			want += get(x, i) * get(x, i);
		assert_int_equal(one->ops->sumsq(one, &a, x), 0);
		assert_int_equal(five->ops->sumsq(five, &b, x), 0);
		assert_true(a == b);
		if (fabs(a - want) > 1e-12 * want)
			fail_msg("got %.17g, want %.17g", a, want);
		if (n) {
			put(x, n - 1, NAN);
			assert_int_equal(five->ops->sumsq(five, &b, x), 0);
			assert_true(isnan(b));
			put(x, n - 1, -INFINITY);
			assert_int_equal(five->ops->sumsq(five, &b, x), 0);
			assert_true(isinf(b));
		}
		free(x.data);
	}
	dt_dev_close(one);
	dt_dev_close(five);
}

/* Every span as if it were alone: empty ones, of one element, of several chunks, beginning anywhere. */
static void test_spans(void **state)
{
	static const int64_t span[] = {0,    0,	   0,	  8192,	 8192,	8193,  8193,
				       8193, 8200, 50000, 50000, 70001, 70001, 70001};
	enum { N = sizeof span / sizeof *span / 2 };
	struct dt_dev *three = open_device(3);

	for (int v = 0; v < TYPES; v++) {
		struct dt_tensor x = random_tensor(compute_types[v], 1, 70001, 1, 3);
		double got[N], want;

		assert_int_equal(three->ops->sumsq_spans(three, got, x, N, span), 0);
		for (int i = 0; i < N; i++) {
			struct dt_tensor part = x;

			part.data = (char *)x.data + span[2 * i] * dt_dtype_size(x.dtype);
			part.dim[part.ndim - 1] = span[2 * i + 1] - span[2 * i];
			assert_int_equal(three->ops->sumsq(three, &want, part), 0);
			assert_true(got[i] == want);
			want = 0;
			for (int64_t k = span[2 * i]; k < span[2 * i + 1]; k++)
				want += get(x, k) * get(x, k);
			assert_true(fabs(got[i] - want) <= 1e-12 * want);
		}
		assert_int_equal(three->ops->sumsq_spans(three, got, x, 0, span), 0);
		assert_int_equal(three->ops->sumsq_spans(three, got, x, 1, (int64_t[]){0, 70002}), -EINVAL);
		assert_int_equal(three->ops->sumsq_spans(three, got, x, 1, (int64_t[]){5, 4}), -EINVAL);
		free(x.data);
	}
	dt_dev_close(three);
}

/* More spans than a launch takes: of no element, of one, of several blocks, aligned and not; others stay. */
static void test_fill_spans(void **state)
{
	enum { N = 301, ROOM = 60000 };
	int64_t span[2 * N], end = 0;

	for (int i = 0; i < N; i++) {
		const int64_t n = i % 10 == 3	? 0
				  : i % 10 == 5 ? 1
				  : i == 44	? 10003
				  : i == 280	? 2048
						: i * 97 % 260;

		span[2 * i] = i % 4 ? end + i % 3 : (end + 7) / 8 * 8;
		end = span[2 * i + 1] = span[2 * i] + n;
	}
	assert_in_range(end, ROOM / 2, ROOM);
	for (int v = 0; v < TYPES; v++) {
		struct dt_tensor x = random_tensor(compute_types[v], 1, ROOM, 1, 3), want = copy_of(x);

		for (int i = 0; i < N; i++)
			for (int64_t k = span[2 * i]; k < span[2 * i + 1]; k++)
				put(want, k, -1.7);
		assert_int_equal(dev->ops->fill_spans(dev, x, N, span, -1.7f), 0);
		check_same_bits("filled", x, want);
		assert_int_equal(dev->ops->fill_spans(dev, x, 0, span, 3), 0);
		assert_int_equal(dev->ops->fill_spans(dev, x, 1, (int64_t[]){5, 5}, 3), 0);
		assert_int_equal(dev->ops->fill_spans(dev, x, -1, span, 3), -EINVAL);
		assert_int_equal(dev->ops->fill_spans(dev, x, 2, (int64_t[]){0, 1, 0, ROOM + 1}, 3), -EINVAL);
		assert_int_equal(dev->ops->fill_spans(dev, x, 2, (int64_t[]){0, 1, 5, 4}, 3), -EINVAL);
		assert_int_equal(dev->ops->fill_spans(dev, x, 1, (int64_t[]){-1, 4}, 3), -EINVAL);
		check_same_bits("refused", x, want);
		free_all(x.data, want.data);
	}
}

/* cap tanh(x / cap) from far below cap to far above it, and its slope by differences of f64. */
static void test_softcap(void **state)
{
	static const float caps[] = {50, 0.5f};

	for (int v = 0; v < 5 * TYPES * TYPES * 2; v++) {
		const int64_t n = sizes[v / 2 / TYPES / TYPES];
		const float cap = caps[v % 2];
		const enum dt_dtype tx = compute_types[v / 2 % TYPES],
				    ty = compute_types[v / 2 / TYPES % TYPES];
		struct dt_tensor x = random_tensor(tx, 1, n, 1, 3 * (double)cap), y = tensor(ty, 1, n);
		struct dt_tensor dy = random_tensor(tx, 1, n, 2, 1), dx = tensor(tx, 1, n),
				 exact = tensor(DT_F32, 1, n);
		double *want = reals(n), *slope = reals(n);

		for (int64_t i = 0; i < n; i++) {
			const double h = 1e-5 * (double)cap, at = get(x, i);

			if (i % 3 == 0)
				put(x, i, get(x, i) / 1000);
			want[i] = (double)cap * tanh(get(x, i) / (double)cap);
			put(exact, i, (double)cap * tanh(at / (double)cap));
			slope[i] = get(dy, i) * (double)cap *
				   (tanh((at + h) / (double)cap) - tanh((at - h) / (double)cap)) / (2 * h);
		}
		assert_int_equal(dev->ops->softcap(dev, y, x, cap), 0);
		check_close("softcap", y, want, 0, 1e-6);
		assert_int_equal(dev->ops->softcap_backward(dev, dx, dy, exact, cap), 0);
		check_close("slope", dx, slope, 2e-6, 1e-5);
		assert_int_equal(dev->ops->softcap_backward(dev, dy, dy, exact, cap), 0);
		check_same_bits("slope in place", dx, dy);
		if (tx == ty) {
			assert_int_equal(dev->ops->softcap(dev, x, x, cap), 0);
			check_same_bits("softcap in place", x, y);
		}
		free_all(x.data, y.data, dy.data, dx.data, exact.data, want, slope);
	}
}

/* Columns copied and added, beside which nothing changes. */
static void test_columns(void **state)
{
	static const int64_t shape[][6] = {
		{1, 1, 0, 1, 0, 1}, {7, 5, 2, 9, 4, 3}, {40, 3000, 17, 2500, 1, 2400}};

	for (int v = 0; v < 3 * TYPES * TYPES * 2; v++) {
		const int64_t *s = shape[v / 2 / TYPES / TYPES], rows = s[0], at = s[2], from = s[4],
			      n = s[5];
		struct dt_tensor y = random_tensor(compute_types[v / 2 % TYPES], rows, s[1], 1, 1);
		struct dt_tensor x = random_tensor(compute_types[v / 2 / TYPES % TYPES], rows, s[3], 2, 1);
		double *want = reals(rows * s[1]);

		for (int64_t i = 0; i < rows * s[1]; i++) {
			const int64_t col = i % s[1] - at;
			const bool in = col >= 0 && col < n;

			want[i] = (!in || v % 2 ? get(y, i) : 0) +
				  (in ? get(x, i / s[1] * s[3] + from + col) : 0);
		}
		assert_int_equal(dev->ops->columns(dev, y, at, x, from, n, v % 2), 0);
		check_close("columns", y, want, 1e-7, 1e-7);
		assert_int_equal(dev->ops->columns(dev, y, at + 1, x, from, s[1] - at, false), -EINVAL);
		free_all(x.data, y.data, want);
	}
}

static void test_refused(void **state)
{
	float f[4] = {0};
	const struct dt_tensor a = dt_t1(f, DT_F32, 4), b = dt_t1(f, DT_F32, 3), i = dt_t1(f, DT_I32, 4);
	double d;

	assert_int_equal(dev->ops->add(dev, a, a, b), -EINVAL);
	assert_int_equal(dev->ops->axpy(dev, a, 1, b), -EINVAL);
	assert_int_equal(dev->ops->convert(dev, a, i), -EINVAL);
	assert_int_equal(dev->ops->fill(dev, i, 1), -EINVAL);
	assert_int_equal(dev->ops->softcap(dev, a, b, 1), -EINVAL);
	assert_int_equal(dev->ops->softcap(dev, a, a, 0), -EINVAL);
	assert_int_equal(dev->ops->softcap(dev, a, a, NAN), -EINVAL);
	assert_int_equal(dev->ops->softcap_backward(dev, a, b, a, 1), -EINVAL);
	assert_int_equal(dev->ops->sumsq(dev, &d, i), -EINVAL);
}

/* Against the formula, in both types and added; then parts of rows and columns that other ranks have. */
static void test_dropout(void **state)
{
	const int64_t rows = 14, cols = 301, wide = 900;
	int32_t pos[14];
	struct dt_dropout p = {.stream = {{3, 0}, {2, 99}},
			       .below = 0x40000000u,
			       .scale = 4 / 3.f,
			       .sample = 5000000000LL,
			       .seq = 7,
			       .positions = 11,
			       .pos = pos,
			       .cols = wide,
			       .col = 37};
	struct dt_tensor x = random_tensor(DT_F32, rows, cols, 1, 1),
			 y = random_tensor(DT_F32, rows, cols, 2, 1),
			 part = random_tensor(DT_F32, 3, 100, 3, 1),
			 b = random_tensor(DT_BF16, rows, cols, 4, 1),
			 cut = random_tensor(DT_F32, 3, 100, 5, 1);
	double *want = values(y), kept = 0;

	for (int64_t i = 0; i < rows; i++)
		pos[i] = (int32_t)(i % 7 + (i % 7 > 3 ? 4 : 0));
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < cols; j++) {
			const uint64_t at =
				(uint64_t)((5000000000LL + i / 7) * 11 + pos[i]) * (uint64_t)wide + 37 +
				(uint64_t)j;
			const bool keep = dt_philox_block(&p.stream, at / 4).v[at % 4] >= p.below;

			want[i * cols + j] += keep ? get(x, i * cols + j) / 0.75 : 0;
			kept += keep;
		}
	assert_true(fabs(kept / (double)(rows * cols) - 0.75) < 0.03);
	assert_int_equal(dev->ops->dropout(dev, y, x, &p, true), 0);
	check_close("dropout, added", y, want, 1e-6, 1e-6);
	assert_int_equal(dev->ops->dropout(dev, y, x, &p, false), 0);
	assert_int_equal(dev->ops->dropout(dev, b, x, &p, false), 0);
	for (int64_t i = 0; i < rows * cols; i++)
		assert_float_equal(get(b, i), get(y, i), 0.005 * fabs(get(y, i)));
	for (int64_t i = 0; i < 300; i++)
		put(cut, i, get(x, (i / 100 + 6) * cols + i % 100 + 50));
	p.row = 6;
	p.col += 50;
	assert_int_equal(dev->ops->dropout(dev, part, cut, &p, false), 0);
	for (int64_t i = 0; i < 300; i++)
		assert_true(get(part, i) == get(y, (i / 100 + 6) * cols + i % 100 + 50));
	p.col = wide - 99;
	assert_int_equal(dev->ops->dropout(dev, part, cut, &p, false), -EINVAL);
	free(want);
	free_all(x.data, y.data, part.data, b.data, cut.data);
}

/* Range and moments; rows in another number and by other threads: a token's noise is its own, rounded. */
static void test_noise(void **state)
{
	enum { ROWS = 150, N = 301 };
	static float width[ROWS];
	static int64_t token[ROWS];
	const struct dt_noise p = {{{7, 0}, {2, 9}}, width, token};
	struct dt_tensor y = random_tensor(DT_F32, ROWS, N, 1, 0),
			 narrow = random_tensor(DT_BF16, ROWS, N, 1, 0),
			 old = random_tensor(DT_BF16, ROWS, N, 2, 1), sum = copy_of(old),
			 one = random_tensor(DT_F32, 1, N, 1, 0);
	double mean = 0, squares = 0, n = (double)ROWS * N;

	for (int i = 0; i < ROWS; i++) {
		width[i] = 0.25f;
		token[i] = 1000000007LL + 13 * (int64_t)i;
	}
	assert_int_equal(dev->ops->noise(dev, y, &p), 0);
	assert_int_equal(dev->ops->noise(dev, narrow, &p), 0);
	assert_int_equal(dev->ops->noise(dev, sum, &p), 0);
	for (int64_t i = 0; i < ROWS * N; i++) {
		const uint64_t at = (uint64_t)token[i / N] * N + (uint64_t)(i % N);
		const uint32_t u = dt_philox_block(&p.stream, at / 4).v[at % 4] >> 8;
		const float want = 0.25f * (2 * ((float)u / 16777216) - 1);

		assert_true(get(y, i) == want && fabs(want) <= 0.25);
		assert_true(get(narrow, i) == dt_bf16_to_f32(dt_f32_to_bf16(want)));
		assert_true(get(sum, i) ==
			    dt_bf16_to_f32(dt_f32_to_bf16((float)(get(old, i) + get(narrow, i)))));
		mean += get(y, i) / n;
		squares += get(y, i) * get(y, i) / n;
	}
	assert_true(fabs(mean) < 0.01 && fabs(squares / (0.25 * 0.25 / 3) - 1) < 0.03);
	for (int64_t i = ROWS - 1; i >= 0; i -= 7) {
		memset(one.data, 0, bytes_of(one));
		assert_int_equal(
			dev->ops->noise(dev, one, &(struct dt_noise){p.stream, &width[i], &token[i]}), 0);
		for (int64_t j = 0; j < N; j++)
			assert_true(get(one, j) == get(y, i * N + j));
	}
	token[3] = -1;
	assert_int_equal(dev->ops->noise(dev, y, &p), -EINVAL);
	free_all(y.data, narrow.data, old.data, sum.data, one.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_all_bits),
		cmocka_unit_test(test_rounding),   cmocka_unit_test(test_sumsq),
		cmocka_unit_test(test_spans),	   cmocka_unit_test(test_fill_spans),
		cmocka_unit_test(test_softcap),	   cmocka_unit_test(test_refused),
		cmocka_unit_test(test_columns),	   cmocka_unit_test(test_dropout),
		cmocka_unit_test(test_noise),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
