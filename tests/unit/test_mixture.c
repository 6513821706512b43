/* Mixtures of data sets: exact shares, cursors, names and weights; blocks that are made ahead. */
#include "data/mixture.h"

#include "base/rng.h"
#include "base/tmpfile.h"
#include "data/ahead.h"
#include "data/tokenizer.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/dt-mixture-XXXXXX";

static int setup(void **state)
{
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
	return chdir("/") || dt_remove_tree(dir, NULL);
}

/*
 * Every prefix of three periods: each set within one sample of its share, its samples in order without a
 * gap.
 */
static void check_order(int parts, const double *weight)
{
	struct dt_mixture_order o;
	struct dt_err err = {0};
	int64_t given[DT_MIXTURE_PARTS] = {0}, end;
	double sum = 0;

	for (int i = 0; i < parts; i++)
		sum += weight[i];
	if (dt_mixture_order_init(&o, parts, weight, &err) < 0)
		fail_msg("%s", err.msg);
	end = o.period * 3 < 300000 ? o.period * 3 : 300000;
	for (int64_t n = 0; n < end; n++) {
		int part;
		int64_t own;

		dt_mixture_order_at(&o, n, &part, &own);
		if (own != given[part]++)
			fail_msg("sample %lld is %lld of set %d, not %lld", (long long)n, (long long)own,
				 part, (long long)given[part] - 1);
		for (int i = 0; i < parts; i++) {
			double want = (double)(n + 1) * weight[i] / sum;

			if (fabs((double)given[i] - want) >= 1 + 1e-6 * (double)n)
				fail_msg("of %lld samples set %d gave %lld, not %g", (long long)n + 1, i,
					 (long long)given[i], want);
		}
	}
	dt_mixture_order_release(&o);
}

static void shares(void **state)
{
	static const double some[][6] = {
		{1},	       {0.7, 0.3},	     {1, 1, 1},	 {5, 1},	  {0.5, 0.25, 0.25},
		{97, 1, 1, 1}, {0.333333, 0.666667}, {3, 0.001}, {8, 4, 2, 1, 1}, {1, 1e-5, 7, 2.5, 3, 3}};
	static const int parts[] = {1, 2, 3, 2, 3, 4, 2, 2, 5, 6};
	struct dt_rng r = dt_rng_make(1, DT_RNG_TEST, 7);
	struct dt_mixture_order o;
	struct dt_err err = {0};

	for (int i = 0; i < 10; i++)
		check_order(parts[i], some[i]);
	for (uint64_t i = 0; i < 40; i++) {
		double weight[9];
		int n = 2 + (int)dt_rng_below(&r, i * 20, 8);

		for (int k = 0; k < n; k++)
			weight[k] = 1 + (double)dt_rng_below(&r, i * 20 + 1 + (uint64_t)k, 500);
		check_order(n, weight);
	}
	assert_int_equal(dt_mixture_order_init(&o, 2, (double[]){1, 0}, &err), -EINVAL);
	assert_int_equal(dt_mixture_order_init(&o, 2, (double[]){1, -1}, &err), -EINVAL);
	assert_int_equal(dt_mixture_order_init(&o, 2, (double[]){1, NAN}, &err), -EINVAL);
	assert_int_equal(dt_mixture_order_init(&o, 2, (double[]){1, 1e-9}, &err), -EINVAL);
}

static void make(const char *path, const char *tokenizer, int tokens, int first)
{
	struct dt_tokenizer *t;
	struct dt_dataset_writer *w;
	struct dt_err err = {0};

	if (dt_tokenizer_from_text(tokenizer, strlen(tokenizer), &t, &err) < 0 ||
	    dt_dataset_create(path, t, 0, "a test", &w, &err) < 0)
		fail_msg("%s", err.msg);
	for (int32_t i = 0; i < tokens; i++) {
		int32_t id = (first + i) % 250;

		assert_int_equal(dt_dataset_append(w, &id, 1, &err), 0);
	}
	assert_int_equal(dt_dataset_finish(w, &err), 0);
	dt_tokenizer_close(t);
}

static struct dt_mixture *mix(const char *spec)
{
	struct dt_mixture *m;
	struct dt_err err = {0};

	if (dt_mixture_open(spec, 8, 3, true, &m, &err) < 0)
		fail_msg("%s", err.msg);
	return m;
}

static void samples(void **state)
{
	struct dt_mixture *m, *alone[2];
	struct dt_mixture_part p;
	struct dt_dataset_info info;
	struct dt_err err = {0};
	int64_t at[2] = {0};

	make("a.h5", "byte", 500, 0);
	make("b,c:1.h5", "byte", 300, 100);
	make("c:2", "byte", 90, 7);
	alone[0] = mix("a.h5");
	alone[1] = mix("b,c:1.h5"); /* a file whose name has these letters */
	assert_int_equal(dt_mixture_parts(alone[1]), 1);
	assert_string_equal(dt_mixture_text(alone[0]), "");
	dt_mixture_close(alone[1]);
	alone[1] = mix("c:2");
	m = mix("a.h5:3,c:2:1");
	assert_int_equal(dt_mixture_parts(m), 2);
	dt_mixture_part(m, 0, &p);
	assert_true(p.share == 0.75 && p.samples == 62);
	dt_mixture_info(m, &info);
	assert_int_equal(info.tokens, 590);
	assert_true(dt_mixture_threads(m));
	for (int64_t n = 0; n < 400; n++) {
		int32_t x[9], want[9];
		int k = dt_mixture_cursor(m, n + 1, 1) > at[1];

		assert_int_equal(dt_mixture_get(m, n, x, &err), 0);
		assert_int_equal(dt_mixture_get(alone[k], at[k]++, want, &err), 0);
		assert_memory_equal(x, want, sizeof(x));
		assert_int_equal(dt_mixture_cursor(m, n + 1, 0), at[0]);
	}
	assert_int_equal(at[1], 100);
	assert_int_equal(dt_mixture_get(m, -1, (int32_t[9]){0}, &err), -EINVAL);
	assert_true(dt_mixture_has("a.h5:3,c:2:1", "c:2"));
	assert_true(dt_mixture_has("a.h5", "a.h5"));
	assert_false(dt_mixture_has("a.h5:3,c:2:1", "d"));
	dt_mixture_close(m);
	dt_mixture_close(alone[0]);
	dt_mixture_close(alone[1]);
}

static void refused(void **state)
{
	static const char *const bad[] = {"a.h5,",	  ",a.h5",	 "a.h5:0,b.h5",	  "a.h5:-1,b.h5",
					  "a.h5,none.h5", "a.h5:x,b.h5", "a.h5,other.h5", "none.h5"};
	static const int codes[] = {-EINVAL, -EINVAL, -EINVAL, -EINVAL, -ENOENT, -ENOENT, -EINVAL, -ENOENT};
	struct dt_mixture *m;
	struct dt_err err;

	make("a.h5", "byte", 100, 0);
	make("b.h5", "byte", 100, 0);
	make("other.h5",
	     "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":255},\"merges\":[]},"
	     "\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}",
	     100, 0);
	for (int i = 0; i < 8; i++) {
		int rc = dt_mixture_open(bad[i], 8, 3, true, &m, &err);

		if (rc != codes[i])
			fail_msg("'%s' is %d, not %d", bad[i], rc, codes[i]);
		rc = dt_mixture_check(bad[i], &err); /* looks at no file */
		if (rc != (i < 4 ? -EINVAL : 0))
			fail_msg("'%s' is checked as %d", bad[i], rc);
	}
}

/* Values that say who they are, made behind a gate. */
static atomic_int gate, made;

static int make_numbers(void *ctx, int worker, int64_t n, int at, int count, void *block, struct dt_err *err)
{
	int64_t *to = block;

	while (!atomic_load(&gate))
		usleep(100);
	for (int i = 0; i < count; i++)
		to[at + i] = n + i;
	atomic_fetch_add(&made, count);
	return n + count > 1000 ? dt_err_set(err, -ERANGE, "there is no sample %lld", (long long)n) : 0;
}

static void wait_for(int samples)
{
	for (int i = 0; atomic_load(&made) < samples; i++) {
		usleep(1000);
		assert_true(i < 60000);
	}
}

/*
 * What comes next is there before it is asked for, in the stride of a rank; failures are told in their
 * turn.
 */
static void ahead(void **state)
{
	struct dt_ahead_options o = {.make = make_numbers,
				     .count = 3,
				     .grain = 2,
				     .block_bytes = 24,
				     .every = 12,
				     .workers = 2,
				     .ahead = 4};
	struct dt_ahead_stats stats;
	struct dt_ahead *a;
	struct dt_err err = {0};
	const void *block;
	int before;

	atomic_store(&gate, 1);
	assert_int_equal(dt_ahead_open(&o, &a, &err), 0);
	assert_int_equal(dt_ahead_get(a, 6, &block, &err), 0);
	wait_for(15); /* 6, 18, 30, 42, 54 */
	atomic_store(&gate, 0);
	before = atomic_load(&made);
	assert_int_equal(before, 15);
	for (int64_t n = 18; n <= 54; n += 12) { /* the gate is shut: these were made */
		assert_int_equal(dt_ahead_get(a, n, &block, &err), 0);
		for (int i = 0; i < 3; i++)
			assert_int_equal(((const int64_t *)block)[i], n + i);
	}
	atomic_store(&gate, 1);
	for (int64_t n = 990; n < 997; n += 3) {
		assert_int_equal(dt_ahead_get(a, n, &block, &err), 0);
		assert_int_equal(((const int64_t *)block)[2], n + 2);
	}
	assert_int_equal(dt_ahead_get(a, 999, &block, &err), -ERANGE);
	assert_non_null(strstr(err.msg, "there is no sample"));
	assert_int_equal(dt_ahead_get(a, 4, &block, &err), 0);
	assert_int_equal(((const int64_t *)block)[0], 4);
	assert_int_equal(dt_ahead_get(a, -1, &block, &err), -EINVAL);
	dt_ahead_stats(a, &stats);
	assert_true(stats.samples >= 15 && stats.busy_s > 0);
	dt_ahead_close(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shares),
		cmocka_unit_test_setup_teardown(samples, setup, teardown),
		cmocka_unit_test_setup_teardown(refused, setup, teardown),
		cmocka_unit_test(ahead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
