/* Sums in fixed point against exact ones, in any order; rounding at random against its odds. */
#include "group.h"

#include "kernels/shape.h"

static struct dt_tensor longs(int64_t n, int64_t value)
{
	struct dt_tensor t = tensor(DT_I64, 1, n);

	for (int64_t i = 0; i < n; i++)
		((int64_t *)t.data)[i] = value;
	return t;
}

/* Magnitudes from 2^-60 to 2^11. */
static struct dt_tensor wide_range(int64_t n, uint32_t stream)
{
	struct dt_tensor t = random_tensor(DT_F32, 1, n, stream, 1);

	for (int64_t i = 0; i < n; i++)
		put(t, i, ldexp(get(t, i), (int)(35.5 * rnd(stream + 1, i) - 24.5)));
	return t;
}

static void sums(int64_t n)
{
	struct dt_tensor there = longs(n, 3), back = longs(n, 3), y = tensor(DT_F32, 1, n), x[5];
	int64_t *want = malloc((size_t)n * 8 + 8);
	int out;

	for (int64_t i = 0; i < n; i++)
		want[i] = 3;
	for (int j = 0; j < 5; j++) {
		x[j] = wide_range(n, 10 + 2 * (uint32_t)j);
		for (int64_t i = 0; i < n; i++)
			want[i] += (int64_t)nearbyintl(ldexpl((long double)get(x[j], i), 50));
	}
	for (int j = 0; j < 5; j++) {
		assert_int_equal(dev->ops->fixed_add(dev, &out, there, x[j]), 0);
		assert_int_equal(out, 0);
		assert_int_equal(dev->ops->fixed_add(dev, &out, back, x[4 - j]), 0);
	}
	for (int64_t i = 0; i < n; i++) {
		assert_int_equal(((int64_t *)there.data)[i], want[i]);
		assert_int_equal(((int64_t *)back.data)[i], want[i]);
	}
	assert_int_equal(dev->ops->fixed_get(dev, y, there), 0);
	for (int64_t i = 0; i < n; i++)
		assert_true(get(y, i) == (double)(float)ldexp((double)want[i], -50));
	assert_int_equal(dev->ops->fixed_join(dev, there, back), 0);
	for (int64_t i = 0; i < n; i++)
		assert_int_equal(((int64_t *)there.data)[i], 2 * want[i]);
	for (int j = 0; j < 5; j++)
		free(x[j].data);
	free_all(there.data, back.data, y.data, want);
}

static void test_sums(void **state)
{
	sums(1);
	sums(255);
	sums(20001);
}

/* Each of them is found wherever it lies, adds nothing, and leaves the others. */
static void test_out_of_range(void **state)
{
	const double bad[] = {NAN, INFINITY, -INFINITY, 4096, -4096};
	const int64_t n = 9000, place[] = {0, 4500, 8999};
	int out;

	for (size_t b = 0; b < sizeof bad / sizeof *bad; b++)
		for (size_t p = 0; p < sizeof place / sizeof *place; p++) {
			struct dt_tensor sum = longs(n, 7), x = tensor(DT_F32, 1, n);

			for (int64_t i = 0; i < n; i++)
				put(x, i, 0x1p-50);
			put(x, place[p], bad[b]);
			out = 0;
			assert_int_equal(dev->ops->fixed_add(dev, &out, sum, x), 0);
			assert_int_equal(out, 1);
			for (int64_t i = 0; i < n; i++)
				assert_int_equal(((int64_t *)sum.data)[i], i == place[p] ? 7 : 8);
			put(x, place[p], copysign(0x1.fffffep11, -bad[b]));
			assert_int_equal(dev->ops->fixed_add(dev, &out, sum, x), 0);
			assert_int_equal(out, 0);
			free_all(sum.data, x.data);
		}
}

/* The bits: number first + i of the stream, whatever piece of it a call has. */
static void test_rounding(void **state)
{
	const struct dt_round all = {{{7, 9}, {6, 77}}, 5};
	const int64_t n = 5003;
	struct dt_tensor x = random_tensor(DT_F32, 1, n, 3, 3), y = tensor(DT_BF16, 1, n),
			 part = tensor(DT_BF16, 1, n);

	put(x, 0, NAN);
	put(x, 1, INFINITY);
	put(x, 2, -INFINITY);
	put(x, 3, 1.5); /* bf16 has it */
	put(x, 4, 0);
	assert_int_equal(dev->ops->round_random(dev, y, x, &all), 0);
	assert_true(isnan(get(y, 0)) && get(y, 1) == INFINITY && get(y, 2) == -INFINITY && get(y, 3) == 1.5);
	for (int64_t i = 5; i < n; i++) {
		const struct dt_philox b = dt_philox_block(&all.stream, (uint64_t)(5 + i) / 4);
		const float v = (float)get(x, i);
		uint32_t u;

		memcpy(&u, &v, 4);
		u += b.v[(5 + i) % 4] & 0xffff;
		assert_int_equal(((uint16_t *)y.data)[i], u >> 16);
	}
	for (int64_t at = 0, step; at < n; at += step) {
		const struct dt_round p = {all.stream, all.first + (uint64_t)at};

		step = dt_min64(at % 700 + 1, n - at);
		assert_int_equal(dev->ops->round_random(dev, dt_t1(dt_at(part, at), DT_BF16, step),
							dt_t1(dt_at(x, at), DT_F32, step), &p),
				 0);
	}
	check_same_bits("in parts", part, y);
	free_all(x.data, y.data, part.data);
}

/* On average nothing is lost: a quarter of the way up goes up a quarter of the time. */
static void test_odds(void **state)
{
	const struct dt_round p = {{{1, 2}, {3, 4}}, 0};
	const int64_t n = 40000;
	struct dt_tensor x = tensor(DT_F32, 1, n), y = tensor(DT_BF16, 1, n);
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		put(x, i, -1 - 0x1p-9);
	assert_int_equal(dev->ops->round_random(dev, y, x, &p), 0);
	for (int64_t i = 0; i < n; i++) {
		assert_true(get(y, i) == -1 || get(y, i) == -1 - 0x1p-7);
		sum += get(y, i) < -1;
	}
	assert_true(fabs(sum / (double)n - 0.25) < 5 * sqrt(0.25 * 0.75 / (double)n));
	free_all(x.data, y.data);
}

static void test_refused(void **state)
{
	const struct dt_round p = {{{1, 2}, {3, 4}}, 0};
	struct dt_tensor f = random_tensor(DT_F32, 1, 5, 1, 1), h = random_tensor(DT_BF16, 1, 5, 1, 1),
			 l = longs(5, 1), more = longs(6, 1);
	int out = 0;

	assert_int_equal(dev->ops->fixed_add(dev, &out, f, f), -EINVAL);
	assert_int_equal(dev->ops->fixed_add(dev, &out, l, h), -EINVAL);
	assert_int_equal(dev->ops->fixed_add(dev, &out, more, f), -EINVAL);
	assert_int_equal(dev->ops->fixed_join(dev, more, l), -EINVAL);
	assert_int_equal(dev->ops->fixed_get(dev, h, l), -EINVAL);
	assert_int_equal(dev->ops->round_random(dev, f, f, &p), -EINVAL);
	assert_int_equal(dev->ops->round_random(dev, h, h, &p), -EINVAL);
	free_all(f.data, h.data, l.data, more.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums), cmocka_unit_test(test_out_of_range),
					   cmocka_unit_test(test_rounding), cmocka_unit_test(test_odds),
					   cmocka_unit_test(test_refused)};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
