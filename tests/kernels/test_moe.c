/*
 * Mixtures of experts against plain loops in f64: equal scores, experts without rows, one expert with all;
 * and products of sets of weights against those of each weight by itself, bit by bit.
 */
#include "check.h"

#include "kernels/quant.h"
#include "kernels/shape.h"

static struct dt_dev *dev, *cpu;

static int32_t *ints(int64_t n)
{
	int32_t *p = malloc((size_t)n * 4 + 4);

	assert_non_null(p);
	memset(p, 0x7f, (size_t)n * 4 + 4);
	return p;
}

/* How many experts go before e: those with a larger score, and equal ones before it. */
static int64_t rank_of(const double *s, int64_t experts, int64_t e)
{
	int64_t r = 0;

	for (int64_t i = 0; i < experts; i++)
		r += s[i] > s[e] || (s[i] == s[e] && i < e);
	return r;
}

static void route(int64_t rows, const struct dt_moe *p, double steps)
{
	struct dt_tensor score = random_tensor(DT_F32, rows, p->experts, 3, 4);
	struct dt_tensor weight = tensor(DT_F32, rows, p->used);
	int32_t *expert = ints(rows * p->used);
	double *s, *want = reals(rows * p->used);

	for (int64_t i = 0; steps > 0 && i < rows * p->experts; i++) /* few values: many are equal */
		put(score, i, rint(get(score, i) * steps) / steps);
	s = values(score);
	assert_int_equal(dev->ops->moe_route(dev, expert, weight.data, score, DT_NONE, p), 0);
	for (int64_t i = 0; i < rows; i++) {
		const double *row = s + i * p->experts;
		double sum = 0;

		for (int64_t e = 0; e < p->experts; e++) {
			const int64_t r = rank_of(row, p->experts, e);

			if (r < p->used && expert[i * p->used + r] != e)
				fail_msg("row %lld: choice %lld is %d, not %lld", (long long)i, (long long)r,
					 expert[i * p->used + r], (long long)e);
			if (r < p->used)
				want[i * p->used + r] = exp(row[e]);
			sum += p->unscaled || r < p->used ? exp(row[e]) : 0;
		}
		for (int64_t j = 0; j < p->used; j++)
			want[i * p->used + j] /= sum;
	}
	check_close("weight", weight, want, 0, 1e-6);
	free_all(score.data, weight.data, expert, s, want);
}

static void test_route(void **state)
{
	static const struct dt_moe p[] = {{1, 1, false},  {5, 2, false},   {8, 2, true},
					  {64, 64, true}, {128, 8, false}, {333, 7, true}};

	for (size_t i = 0; i < sizeof p / sizeof *p; i++)
		for (int64_t rows = 1; rows < 40; rows += 19) {
			route(rows, &p[i], 0);
			route(rows, &p[i], 1);
		}
}

/* The last, NaN; all NaN: any, but each once, and the weights say so. */
static void test_route_nan(void **state)
{
	const struct dt_moe p = {40, 3, false};
	struct dt_tensor score = random_tensor(DT_F32, 2, 40, 3, 4);
	struct dt_tensor weight = tensor(DT_F32, 2, 3);
	int32_t expert[6];

	for (int64_t i = 0; i < 80; i++)
		if (i != 17 && i != 35 && i != 36)
			put(score, i, NAN);
	put(score, 17, -1e30);
	put(score, 35, 5);
	put(score, 36, 5);
	assert_int_equal(dev->ops->moe_route(dev, expert, weight.data, score, DT_NONE, &p), 0);
	assert_int_equal(expert[0], 35);
	assert_int_equal(expert[1], 36);
	assert_int_equal(expert[2], 17);
	assert_true(get(weight, 0) == 0.5 && get(weight, 2) == 0);
	for (int i = 3; i < 6; i++)
		assert_true(expert[i] == i - 3 && isnan(get(weight, i)));
	free_all(score.data, weight.data);
}

/* which: how the choices lie. 0: all over; 1: all at one expert; 2: only the first and the last. */
static void sort(int64_t n, int64_t experts, int which)
{
	int32_t *expert = ints(n), *at = ints(n), *from = ints(n), *first = ints(experts + 1);
	int64_t to = 0;

	for (int64_t i = 0; i < n; i++)
		expert[i] =
			(int32_t)(which == 1   ? experts / 2
				  : which == 2 ? (i % 3 ? 0 : experts - 1)
					       : (int64_t)((rnd(9, i) + 1) / 2 * (double)experts) % experts);
	assert_int_equal(dev->ops->moe_sort(dev, first, at, from, expert, n, experts), 0);
	for (int64_t e = 0; e < experts; e++) {
		assert_int_equal(first[e], to);
		for (int64_t i = 0; i < n; i++)
			if (expert[i] == e) {
				assert_int_equal(at[i], to);
				assert_int_equal(from[to++], i);
			}
	}
	assert_int_equal(first[experts], n);
	if (n > 3) {
		expert[3] = (int32_t)experts;
		assert_int_equal(dev->ops->moe_sort(dev, first, at, from, expert, n, experts), -EINVAL);
		expert[3] = -1;
		assert_int_equal(dev->ops->moe_sort(dev, first, at, from, expert, n, experts), -EINVAL);
	}
	free_all(expert, at, from, first);
}

static void test_sort(void **state)
{
	for (int which = 0; which < 3; which++) {
		sort(0, 3, which);
		sort(1, 1, which);
		sort(7, 5, which);
		sort(256, 8, which);
		sort(777, 128, which);
	}
}

static void sum(int64_t rows, int64_t used, int64_t n, enum dt_dtype type)
{
	const int64_t choices = rows * used;
	struct dt_tensor out = random_tensor(DT_F32, choices, n, 2, 1), y = tensor(type, rows, n);
	struct dt_tensor weight = random_tensor(DT_F32, rows, used, 3, 1), want = tensor(type, rows, n);
	int32_t *at = ints(choices);

	for (int64_t i = 0; i < choices; i++) /* 7 has no divisor in common with any number of them below */
		at[i] = (int32_t)((i * 7 + 3) % choices);
	assert_int_equal(dev->ops->moe_sum(dev, y, out, at, weight.data, DT_NONE, used), 0);
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < n; j++) {
			float s = 0;

			for (int64_t k = i * used; k < (i + 1) * used; k++) {
				volatile float term = (float)get(weight, k) * (float)get(out, at[k] * n + j);

				s += term;
			}
			put(want, i * n + j, (double)s);
		}
	check_same_bits("sum", y, want);
	for (int bad = -1; bad <= choices; bad += (int)choices + 1) {
		at[choices / 2] = bad;
		assert_int_equal(dev->ops->moe_sum(dev, y, out, at, weight.data, DT_NONE, used), -EINVAL);
	}
	assert_int_equal(
		dev->ops->moe_sum(dev, y, dt_t2(out.data, DT_I8, choices, n), at, weight.data, DT_NONE, used),
		-EINVAL);
	free_all(out.data, y.data, weight.data, want.data, at);
}

static void test_sum(void **state)
{
	for (int t = 0; t < TYPES; t++) {
		sum(1, 1, 1, compute_types[t]);
		sum(9, 2, 33, compute_types[t]);
		sum(4, 8, 1032, compute_types[t]);
		sum(50, 4, 64, compute_types[t]);
	}
}

enum { EXPERTS = 6 };

struct set {
	struct dt_packed *w[EXPERTS];
	struct dt_packed_set *s;
};

/* Two parts, of f and of g. */
static void set_open(struct set *s, struct dt_dev *d, enum dt_format f, enum dt_format g, int64_t rows,
		     int64_t k)
{
	for (int e = 0; e < EXPERTS; e++) {
		struct dt_tensor v = random_tensor(DT_F32, 2 * rows, k, 20 + (uint32_t)e, 1);

		assert_int_equal(dt_packed_open(&s->w[e], d, k), 0);
		assert_int_equal(dt_packed_append(s->w[e], d, f, DT_FMT_F32, v.data, rows), 0);
		assert_int_equal(
			dt_packed_append(s->w[e], d, g, DT_FMT_F32, (float *)v.data + rows * k, rows), 0);
		free(v.data);
	}
	assert_int_equal(dt_packed_set_open(&s->s, d, s->w, EXPERTS), 0);
}

static void set_close(struct set *s)
{
	dt_packed_set_close(s->s);
	for (int e = 0; e < EXPERTS; e++)
		dt_packed_close(s->w[e]);
}

static int set_matmul(struct dt_tensor y, struct dt_tensor x, const struct set *s, const struct dt_meet *p)
{
	return dev->ops->packed_set_matmul(dev, y, x, s->s, p);
}

static int64_t common(int64_t a, int64_t b)
{
	return b ? common(b, a % b) : a;
}

/*
 * The products of a set on the device against the processor's with each weight; used: each row of x so many
 * times, anywhere. numbers: not bit by bit.
 */
static void products(const struct set *there, const struct set *here, const int32_t *first, int64_t used,
		     enum dt_dtype in, enum dt_dtype out, bool numbers)
{
	const int64_t m = first[EXPERTS], n = dt_packed_rows(here->w[0]), k = dt_packed_k(here->w[0]);
	struct dt_tensor x = random_tensor(in, m / (used ? used : 1), k, 5, 2), sorted = tensor(in, m, k);
	struct dt_tensor got = tensor(out, m, n), want = tensor(out, m, n);
	int32_t *at = ints(m), *from = ints(m);
	const struct dt_meet meet = {first, used ? at : NULL, used ? from : NULL, used};
	int64_t step = 5;
	double *wide;

	while (m && common(m, step) > 1)
		step++;
	for (int64_t i = 0; i < m; i++) {
		const size_t row = (size_t)(k * dt_dtype_size(in));

		at[i] = used ? (int32_t)((i * step + 1) % m) : (int32_t)i;
		from[at[i]] = (int32_t)i;
		memcpy(dt_at(sorted, at[i] * k), dt_at(x, i / (used ? used : 1) * k), row);
	}
	assert_int_equal(set_matmul(got, x, there, &meet), 0);
	for (int e = 0; e < EXPERTS; e++)
		assert_int_equal(cpu->ops->packed_matmul(
					 cpu,
					 dt_t2(dt_at(want, first[e] * n), out, first[e + 1] - first[e], n),
					 dt_t2(dt_at(sorted, first[e] * k), in, first[e + 1] - first[e], k),
					 here->w[e], DT_NONE),
				 0);
	wide = values(want);
	if (numbers)
		check_close("numbers", got, wide, 4e-5 * (double)k / 256, out == DT_F32 ? 1e-5 : 1e-2);
	else
		check_same_bits("blocks", got, want);
	if (used && m) {
		at[m / 2] = (int32_t)m;
		from[m / 2] = -1;
		assert_int_equal(set_matmul(got, x, there, &meet), -EINVAL);
	}
	free_all(x.data, sorted.data, got.data, want.data, at, from, wide);
}

static void test_sets(void **state)
{
	/* few rows; many; none in the middle; all at one, at the last; more than tiles of 16 and 64 hold */
	static const int32_t first[][EXPERTS + 1] = {{0, 0, 1, 1, 2, 2, 3}, {0, 5, 6, 6, 6, 30, 41},
						     {0, 0, 0, 0, 0, 0, 9}, {0, 13, 13, 13, 13, 13, 13},
						     {0, 1, 2, 3, 4, 5, 6}, {0, 67, 67, 70, 70, 200, 201},
						     {0, 0, 0, 0, 0, 0, 0}};
	static const struct {
		enum dt_format f, g;
		enum dt_dtype in, out;
		int64_t rows, k;
	} v[] = {{DT_FMT_Q8_0, DT_FMT_Q8_0, DT_F32, DT_F32, 24, 96},
		 {DT_FMT_Q4_0, DT_FMT_Q8_0, DT_BF16, DT_F32, 16, 64},
		 {DT_FMT_BF16, DT_FMT_BF16, DT_BF16, DT_BF16, 17, 72},
		 {DT_FMT_BF16, DT_FMT_BF16, DT_F32, DT_F32, 9, 45},
		 {DT_FMT_F32, DT_FMT_F32, DT_F32, DT_F32, 20, 40},
		 {DT_FMT_Q8_0, DT_FMT_F32, DT_F32, DT_BF16, 5, 32}};

	for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
		const bool numbers = dt_format_info(v[i].g)->dtype >= 0;
		struct set there, here;

		set_open(&there, dev, v[i].f, v[i].g, v[i].rows, v[i].k);
		set_open(&here, cpu, v[i].f, v[i].g, v[i].rows, v[i].k);
		for (size_t j = 0; j < sizeof first / sizeof *first; j++)
			for (int b = 0; b < (on_device() && numbers ? 2 : 1); b++) {
				dev->batch_invariant = b != 0;
				for (int64_t used = 0; used < 4; used += 3)
					if (!used || first[j][EXPERTS] % used == 0)
						products(&there, &here, first[j], used, v[i].in, v[i].out,
							 on_device() && numbers);
			}
		dev->batch_invariant = false;
		set_close(&there);
		set_close(&here);
	}
}

static void test_refused(void **state)
{
	static const int32_t past[] = {0, 1, 2, 3, 4, 5, 7}, back[] = {0, 3, 2, 3, 4, 5, 6},
			     late[] = {1, 1, 2, 3, 4, 5, 6};
	const struct dt_moe none = {4, 5, false}, many = {DT_MOE_MOST + 1, 2, false};
	struct dt_tensor x = random_tensor(DT_F32, 6, 32, 5, 2), y = tensor(DT_F32, 6, 10), was = copy_of(y);
	struct dt_packed *two[2], *mixed[2];
	struct dt_packed_set *got;
	struct set s;
	int32_t expert[64];
	float weight[64];

	assert_int_equal(dev->ops->moe_route(dev, expert, weight, x, DT_NONE, &none), -EINVAL);
	assert_int_equal(
		dev->ops->moe_route(dev, expert, weight, dt_t2(x.data, DT_F32, 6, 4), DT_NONE, &none),
		-EINVAL);
	assert_int_equal(dev->ops->moe_route(dev, expert, weight, dt_t2(x.data, DT_F32, 0, many.experts),
					     DT_NONE, &many),
			 -EINVAL);
	set_open(&s, dev, DT_FMT_F32, DT_FMT_F32, 5, 32);
	assert_int_equal(set_matmul(dt_t2(y.data, DT_F32, 6, 9), x, &s, &(struct dt_meet){.first = past}),
			 -EINVAL);
	if (!on_device()) { /* a card leaves alone what is beyond */
		assert_int_equal(set_matmul(y, x, &s, &(struct dt_meet){.first = past}), -EINVAL);
		assert_int_equal(set_matmul(y, x, &s, &(struct dt_meet){.first = back}), -EINVAL);
		assert_int_equal(set_matmul(y, x, &s, &(struct dt_meet){.first = late}), -EINVAL);
		check_same_bits("y", y, was);
	} else {
		assert_int_equal(set_matmul(y, x, &s, &(struct dt_meet){.first = past}), 0);
	}
	two[0] = s.w[0];
	assert_int_equal(dt_packed_open(&two[1], dev, 32), 0);
	assert_int_equal(dt_packed_set_open(&got, dev, two, 2), -EINVAL);
	assert_int_equal(dt_packed_append(two[1], dev, DT_FMT_F32, DT_FMT_F32, x.data, 5), 0);
	assert_int_equal(dt_packed_set_open(&got, dev, two, 2), -EINVAL);
	assert_int_equal(dt_packed_append(two[1], dev, DT_FMT_BF16, DT_FMT_BF16, x.data, 5), 0);
	mixed[0] = two[1];
	mixed[1] = two[0];
	assert_int_equal(dt_packed_set_open(&got, dev, mixed, 2), -EINVAL);
	assert_int_equal(dt_packed_set_open(&got, dev, two, 0), -EINVAL);
	assert_int_equal(dt_packed_set_open(&got, dev, two, 1), 0);
	dt_packed_set_close(got);
	dt_packed_close(two[1]);
	set_close(&s);
	free_all(x.data, y.data, was.data);
}

static int setup(void **state)
{
	dev = open_device(2);
	return dt_dev_open(&cpu, DT_DEV_CPU, 0, 1);
}

static int teardown(void **state)
{
	dt_dev_close(dev);
	dt_dev_close(cpu);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_route), cmocka_unit_test(test_route_nan),
		cmocka_unit_test(test_sort),  cmocka_unit_test(test_sum),
		cmocka_unit_test(test_sets),  cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
