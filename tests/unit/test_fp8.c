/*
 * Conversions of 8-bit floats: all 256 codes of both against their definition and against PyTorch
 * (tests/data/golden_fp8.py), every value, midpoint and their neighbours rounded as PyTorch rounds them, and
 * every f32 exponent against a search for the nearest; scales against their definition.
 */
#include "golden.h"
#include "kernels/fp8.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct kind {
	const char *name;
	enum dt_dtype t;
	int exp; /* bits of exponent */
	int last, nan;
	float most;
	float (*decode)(uint8_t);
	uint8_t (*encode)(float);
};

static const struct kind kinds[] = {
	{"e4m3", DT_E4M3, 4, 0x7e, 0x7f, 448, dt_e4m3_to_f32, dt_f32_to_e4m3},
	{"e5m2", DT_E5M2, 5, 0x7b, 0x7f, 57344, dt_e5m2_to_f32, dt_f32_to_e5m2},
};

/* From the definition; NaN where there is no number. */
static double meaning(const struct kind *k, int code)
{
	const int mant = 7 - k->exp, bias = (1 << (k->exp - 1)) - 1, mag = code & 0x7f, e = mag >> mant,
		  frac = mag & ((1 << mant) - 1);
	double v = e ? ldexp((1 << mant) + frac, e - bias - mant) : ldexp(frac, 1 - bias - mant);

	if (k->t == DT_E5M2 && mag == 0x7c)
		v = INFINITY;
	else if (mag > k->last)
		v = NAN;
	return code & 0x80 ? -v : v;
}

static void test_all_codes(void **state)
{
	for (int i = 0; i < 2; i++) {
		const struct kind *k = &kinds[i];
		struct golden g;
		int64_t n;
		float *values;
		char path[32];

		golden_open(&g, "fp8");
		snprintf(path, sizeof(path), "%s/values", k->name);
		values = golden_f32(&g, path, &n);
		assert_int_equal(n, 256);
		for (int c = 0; c < 256; c++) {
			float got = k->decode((uint8_t)c);
			double want = meaning(k, c);

			if (isnan(want)
				    ? !isnan(got) || !isnan(values[c])
				    : (double)got != want || got != values[c] || !signbit(got) != !(c & 0x80))
				fail_msg("%s code %02x: %g, by definition %g, PyTorch %g", k->name, c,
					 (double)got, want, (double)values[c]);
			if (!isnan(want) && !isinf(want))
				assert_int_equal(k->encode(got), c);
		}
		assert_int_equal(k->encode(NAN) & 0x7f, k->nan);
		assert_int_equal(k->encode(-INFINITY), k->last | 0x80);
		free(values);
		golden_close(&g);
	}
}

static void test_rounding(void **state)
{
	for (int i = 0; i < 2; i++) {
		const struct kind *k = &kinds[i];
		struct golden g;
		int64_t n, m;
		float *input;
		int32_t *codes;
		char path[32];

		golden_open(&g, "fp8");
		snprintf(path, sizeof(path), "%s/input", k->name);
		input = golden_f32(&g, path, &n);
		snprintf(path, sizeof(path), "%s/codes", k->name);
		codes = golden_i32(&g, path, &m);
		assert_int_equal(n, m);
		assert_true(n > 1000);
		for (int64_t j = 0; j < n; j++) {
			int got = k->encode(input[j]);

			if (got != codes[j])
				fail_msg("%s of %.9g: %02x, PyTorch %02x", k->name, (double)input[j], got,
					 codes[j]);
		}
		free(input);
		free(codes);
		golden_close(&g);
	}
}

/* 64 mantissas of every exponent, denormals included, both signs: no code is nearer, of two as near the even
 * one. */
static void test_nearest(void **state)
{
	for (int i = 0; i < 2; i++) {
		const struct kind *k = &kinds[i];

		for (uint32_t u = 0; u < 0x7f800000u; u += 0x20000u - 1) {
			uint32_t bits = u & 4 ? u | 0x80000000u : u;
			int got, best = 0;
			float f;

			memcpy(&f, &bits, 4);
			got = k->encode(f);
			if (fabsf(f) > k->most)
				best = k->last; /* and infinitely many are as far from it */
			for (int c = 1; c <= k->last && fabsf(f) <= k->most; c++) {
				double d = fabs(meaning(k, c) - fabs((double)f)),
				       b = fabs(meaning(k, best) - fabs((double)f));

				if (d < b || (d == b && c % 2 == 0))
					best = c;
			}
			if (got != (best | (signbit(f) ? 0x80 : 0)))
				fail_msg("%s of %.9g: %02x, nearest %02x", k->name, (double)f, got, best);
		}
	}
}

static void test_scales(void **state)
{
	for (int i = 0; i < 2; i++) {
		const struct kind *k = &kinds[i];

		for (uint32_t u = 0; u < 0x7f800000u; u += 0x80000u - 1) {
			float amax, s;
			int e;

			memcpy(&amax, &u, 4);
			s = dt_fp8_scale(u, k->t);
			assert_true(frexpf(s, &e) == 0.5f);
			if ((double)amax > (double)s * (double)k->most ||
			    (s > 0x1p-100f && (double)amax <= (double)s / 2 * (double)k->most))
				fail_msg("%s: scale %g for %g", k->name, (double)s, (double)amax);
		}
		assert_true(isnan(dt_fp8_scale(0x7f800000u, k->t)));
		assert_true(isnan(dt_fp8_scale(0x7fffffffu, k->t)));
	}
}

static void test_fits(void **state)
{
	assert_true(dt_fp8_fits(16, 32, 48));
	assert_false(dt_fp8_fits(24, 32, 48));
	assert_false(dt_fp8_fits(16, 40, 48));
	assert_false(dt_fp8_fits(16, 32, 8));
	assert_false(dt_fp8_fits(0, 16, 16));
	assert_int_equal(dt_dtype_parse("e4m3"), -1); /* not stored */
	assert_string_equal(dt_dtype_name(DT_E5M2), "e5m2");
	assert_int_equal(dt_dtype_size(DT_E4M3), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_codes), cmocka_unit_test(test_rounding),
		cmocka_unit_test(test_nearest),	  cmocka_unit_test(test_scales),
		cmocka_unit_test(test_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
