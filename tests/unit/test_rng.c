/*
 * kernels/philox.h against the known answers published with Random123 (kat_vectors, philox4x32 10), and what
 * base/rng.h makes of it: moments, independence of how a stream is cut, bijections.
 */
#include "base/rng.h"
#include "kernels/philox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void known_answers(void **state)
{
	static const struct {
		uint32_t ctr[4], key[2], want[4];
	} kat[] = {
		{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
		 {0xffffffff, 0xffffffff},
		 {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
		 {0xa4093822, 0x299f31d0},
		 {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	};

	for (int k = 0; k < 3; k++) {
		struct dt_philox ctr;

		memcpy(ctr.v, kat[k].ctr, sizeof(ctr.v));
		ctr = dt_philox4x32(ctr, kat[k].key[0], kat[k].key[1]);
		for (int i = 0; i < 4; i++)
			assert_int_equal(ctr.v[i], kat[k].want[i]);
	}
}

static void streams_differ(void **state)
{
	struct dt_rng a = dt_rng_make(1, DT_RNG_INIT, 0), b = dt_rng_make(1, DT_RNG_DROPOUT, 0),
		      c = dt_rng_make(1, DT_RNG_INIT, 1), d = dt_rng_make(1ull << 32 | 1, DT_RNG_INIT, 0);
	int same = 0;

	for (uint64_t i = 0; i < 1000; i++) {
		uint32_t x = dt_rng_u32(&a, i);

		assert_int_equal(x, dt_rng_u32(&a, i));
		same += (x == dt_rng_u32(&b, i)) + (x == dt_rng_u32(&c, i)) + (x == dt_rng_u32(&d, i));
	}
	assert_int_equal(same, 0);
}

static void uniform_moments(void **state)
{
	struct dt_rng r = dt_rng_make(42, DT_RNG_TEST, 7);
	double m1 = 0, m2 = 0, f1 = 0;
	int n = 200000, bucket[10] = {0};

	for (int i = 0; i < n; i++) {
		double u = dt_rng_uniform53(&r, (uint64_t)i);
		float f = dt_rng_uniform(&r, (uint64_t)i);

		assert_true(u >= 0 && u < 1 && f >= 0 && f < 1);
		m1 += u / n;
		m2 += u * u / n;
		f1 += f / (double)n;
		bucket[dt_rng_below(&r, (uint64_t)i, 10)]++;
	}
	/* five standard errors each */
	assert_true(fabs(m1 - 0.5) < 5 * sqrt(1.0 / 12 / n));
	assert_true(fabs(f1 - 0.5) < 5 * sqrt(1.0 / 12 / n));
	assert_true(fabs(m2 - 1.0 / 3) < 5 * sqrt(4.0 / 45 / n));
	for (int i = 0; i < 10; i++)
		assert_true(abs(bucket[i] - n / 10) < 5 * sqrt(n * 0.09));
}

static void normal_moments(void **state)
{
	struct dt_rng r = dt_rng_make(3, DT_RNG_INIT, dt_hash_str("layers.0.attn.qkv.weight"));
	double m[5] = {0}, lag = 0, last = 0;
	int n = 400000, tail = 0;

	for (int i = 0; i < n; i++) {
		double x = dt_rng_normal(&r, (uint64_t)i), p = 1;

		for (int k = 1; k <= 4; k++)
			m[k] += (p *= x) / n;
		lag += x * last / n;
		last = x;
		tail += fabs(x) > 3;
	}
	assert_true(fabs(m[1]) < 5 / sqrt(n));
	assert_true(fabs(m[2] - 1) < 5 * sqrt(2.0 / n));
	assert_true(fabs(m[3]) < 5 * sqrt(15.0 / n));
	assert_true(fabs(m[4] - 3) < 5 * sqrt(96.0 / n));
	assert_true(fabs(lag) < 5 / sqrt(n));
	assert_true(fabs(tail - 0.0026998 * n) < 5 * sqrt(0.0027 * n));
}

static void fill_does_not_depend_on_the_cut(void **state)
{
	struct dt_rng r = dt_rng_make(9, DT_RNG_INIT, 1);
	float whole[1001], part[1001];

	dt_rng_fill_normal(&r, 1000, whole, 1001, 0.5f, 2);
	for (int i = 0; i < 1001; i++)
		assert_true(whole[i] == 0.5f + 2 * dt_rng_normal(&r, 1000 + (uint64_t)i));
	for (uint64_t at = 0, n = 1; at < 1001; at += n, n = n % 7 + 1)
		dt_rng_fill_normal(&r, 1000 + at, part + at, at + n > 1001 ? 1001 - at : n, 0.5f, 2);
	assert_memory_equal(whole, part, sizeof(whole));
}

static void permutations_are_bijections(void **state)
{
	static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097};

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		for (uint32_t epoch = 0; epoch < 3; epoch++) {
			struct dt_rng r = dt_rng_make(5, DT_RNG_DATA, epoch);
			char seen[4097] = {0};

			for (uint64_t i = 0; i < sizes[s]; i++) {
				uint64_t j = dt_rng_permute(&r, i, sizes[s]);

				assert_true(j < sizes[s]);
				assert_int_equal(seen[j], 0);
				seen[j] = 1;
			}
		}
	}
}

static void permutations_shuffle(void **state)
{
	struct dt_rng a = dt_rng_make(5, DT_RNG_DATA, 0), b = dt_rng_make(5, DT_RNG_DATA, 1);
	int n = 10000, fixed = 0, same = 0;
	double r = 0;

	for (int i = 0; i < n; i++) {
		double j = (double)dt_rng_permute(&a, (uint64_t)i, (uint64_t)n);

		fixed += j == i;
		same += j == (double)dt_rng_permute(&b, (uint64_t)i, (uint64_t)n);
		r += (i - n / 2.0) * (j - n / 2.0);
	}
	r /= (double)n * n * n / 12; /* correlation of position and value: 0 +- 1/sqrt(n) */
	assert_true(fabs(r) < 5 / sqrt(n));
	assert_true(fixed < 12 && same < 12); /* each is Poisson(1) */
	for (uint64_t i = 0; i < 64; i++)     /* huge sets, in constant memory and time */
		assert_true(dt_rng_permute(&a, (1ull << 62) - 1 - i, 1ull << 62) < 1ull << 62);
}

static void hash_is_fnv1a(void **state)
{
	/* the published vectors of FNV-1a, 32 bits */
	assert_int_equal(dt_hash_str(""), 0x811c9dc5);
	assert_int_equal(dt_hash_str("a"), 0xe40c292c);
	assert_int_equal(dt_hash_str("foobar"), 0xbf9cf968);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_answers),
		cmocka_unit_test(streams_differ),
		cmocka_unit_test(uniform_moments),
		cmocka_unit_test(normal_moments),
		cmocka_unit_test(fill_does_not_depend_on_the_cut),
		cmocka_unit_test(permutations_are_bijections),
		cmocka_unit_test(permutations_shuffle),
		cmocka_unit_test(hash_is_fnv1a),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
