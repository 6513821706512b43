/*
 * Samplers in any order against a plain chain of distributions in fp64: each sampler takes the distribution
 * that the ones before it left. Draws are compared by a chi-square test.
 */
#include "base/rng.h"
#include "serve/engine/sampling.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define V    50
#define N    20000
#define RARE 1e-11 /* some of such tokens weigh nothing (kernels/sample.h) */

static float logits[V];

static int setup(void **state)
{
	struct dt_rng r = dt_rng_make(12, DT_RNG_TEST, 1);

	dt_rng_fill_normal(&r, 0, logits, V, 0, 1.5f);
	return 0;
}

struct cand {
	double logit, p;
	int id;
};

static int by_logit(const void *a, const void *b)
{
	const struct cand *x = a, *y = b;

	return x->logit < y->logit ? 1 : -1;
}

static void softmax(struct cand *c, int n)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += c[i].p = exp(c[i].logit - c[0].logit);
	for (int i = 0; i < n; i++)
		c[i].p /= sum;
}

/* Applies one sampler to c [n], sorted; returns the new n. XTC with probability 1. */
static int sample_step(const struct dt_sampling *s, int what, struct cand *c, int n)
{
	double sum = 0;
	int k = 0;

	softmax(c, n);
	switch (what) {
	case DT_SAMPLER_TEMPERATURE:
		for (int i = 0; i < n && s->temperature > 0; i++)
			c[i].logit /= s->temperature;
		return s->temperature > 0 ? n : 1;
	case DT_SAMPLER_MIN_P:
		while (k < n && c[k].p >= s->min_p * c[0].p)
			k++;
		return k;
	case DT_SAMPLER_TOP_K:
		return s->top_k < n ? s->top_k : n;
	case DT_SAMPLER_TOP_P:
		while (k < n && sum < s->top_p)
			sum += c[k++].p;
		return k;
	default:
		while (k < n && c[k].p >= s->xtc_threshold)
			k++;
		k = k > 1 ? k - 1 : 0;
		memmove(c, c + k, (size_t)(n - k) * sizeof(*c));
		return n - k;
	}
}

/* order: letters of llama.cpp: t m k p x */
static void set_order(struct dt_sampling *s, const char *order)
{
	s->norder = (int)strlen(order);
	for (int i = 0; order[i]; i++)
		s->order[i] = (uint8_t)(strchr("tmkpx", order[i]) - "tmkpx");
}

static int chain(const struct dt_sampling *s, struct cand *c)
{
	int n = V;

	for (int i = 0; i < V; i++)
		c[i] = (struct cand){logits[i], 0, i};
	qsort(c, V, sizeof(*c), by_logit);
	for (int i = 0; i < s->norder; i++)
		n = sample_step(s, s->order[i], c, n);
	softmax(c, n);
	while (c[n - 1].p < RARE)
		n--;
	return n;
}

/* The alternatives that a draw tells are the whole distribution. */
static void check_told(const struct dt_logprob *told, int32_t id, const struct cand *c, int n)
{
	for (int i = 0; i < V; i++)
		if (i >= n)
			assert_true(told[1 + i].id == -1 || exp((double)told[1 + i].logprob) < RARE);
		else if (told[1 + i].id != c[i].id || fabs(exp((double)told[1 + i].logprob) - c[i].p) > 1e-6)
			fail_msg("rank %d: id %d, probability %g; expected %d, %g", i, told[1 + i].id,
				 exp((double)told[1 + i].logprob), c[i].id, c[i].p);
	assert_int_equal(told[0].id, id);
	for (int i = 0; i < n; i++)
		if (c[i].id == id)
			assert_true(fabs(exp((double)told[0].logprob) - c[i].p) < 1e-6);
}

static void check_order(struct dt_sampling s, const char *order)
{
	struct dt_logprob told[1 + V];
	struct dt_serve_sampler sampler;
	int count[V] = {0}, n;
	struct cand c[V];
	double chi2 = 0;

	set_order(&s, order);
	n = chain(&s, c);
	s.drawn = told;
	s.ndrawn = V;
	assert_int_equal(dt_serve_sampler_init(&sampler, V), 0);
	for (int i = 0; i < N; i++) {
		float x[V];
		int32_t id;

		memcpy(x, logits, sizeof(x));
		s.stream = (uint32_t)i;
		id = dt_sample(&sampler, &s, x, NULL, 0, NULL, 0);
		assert_in_range(id, 0, V - 1);
		check_told(told, id, c, n);
		count[id]++;
	}
	for (int i = 0; i < n; i++) {
		if (c[i].p * N >= 5)
			chi2 += (count[c[i].id] - c[i].p * N) * (count[c[i].id] - c[i].p * N) / (c[i].p * N);
		count[c[i].id] = 0;
	}
	for (int i = 0; i < V; i++)
		if (count[i])
			fail_msg("%s: id %d was drawn and has probability 0", order, i);
	if (n > 1 && chi2 > n - 1 + 5 * sqrt(2.0 * (n - 1)))
		fail_msg("%s: chi-square %g over %d cells", order, chi2, n);
	dt_serve_sampler_release(&sampler);
}

static void test_orders(void **state)
{
	static const char *const order[] = {"tmkpx", "kpmxt", "pk",  "kp", "tp",  "pt", "mt",  "tm",
					    "xt",    "tx",    "xmt", "",   "tkt", "pp", "xpt", "pmkxttm"};
	struct dt_sampling s = DT_SAMPLING_DEFAULT;

	s.seed = 3;
	s.xtc_probability = 1;
	s.xtc_threshold = 0.07;
	s.top_k = 9;
	s.top_p = 0.8;
	s.min_p = 0.09;
	for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++) {
		s.temperature = 1.7;
		check_order(s, order[i]);
		s.temperature = 0.3;
		check_order(s, order[i]);
		s.temperature = 0;
		check_order(s, order[i]);
	}
}

/* A temperature that flattens reaches tokens that weigh nothing before it; one that sharpens is exact. */
static void test_extremes(void **state)
{
	struct dt_sampling s = DT_SAMPLING_DEFAULT;

	for (int i = 0; i < V; i++)
		logits[i] *= 20;
	s.seed = 4;
	s.top_k = 40;
	s.temperature = 50;
	check_order(s, "kt");
	s.temperature = 0.01;
	s.xtc_probability = 1;
	s.xtc_threshold = 1e-9;
	check_order(s, "xt");
}

enum { LARGE = 5000 };

/* The n best of x in order of rank are what a draw tells, and no others. */
static void check_ranks(const struct dt_sampling *s, const float *x, int n)
{
	static float copy[LARGE];
	struct dt_serve_sampler sampler;

	memcpy(copy, x, sizeof(copy));
	assert_int_equal(dt_serve_sampler_init(&sampler, LARGE), 0);
	assert_in_range(dt_sample(&sampler, s, copy, NULL, 0, NULL, 0), 0, LARGE - 1);
	for (int i = 1; i <= n; i++) {
		const int32_t id = s->drawn[i].id;
		int before = 0;

		assert_in_range(id, 0, LARGE - 1);
		for (int k = 0; k < LARGE; k++)
			before += x[k] > x[id] || (x[k] == x[id] && k < id);
		assert_int_equal(before, i - 1);
	}
	assert_int_equal(s->drawn[n + 1].id, -1);
	dt_serve_sampler_release(&sampler);
}

/* Ranks of a large vocabulary with many equal logits, both zeros and tokens that are banned. */
static void test_ranks(void **state)
{
	static struct dt_logprob told[2 + LARGE];
	static float x[LARGE];
	const struct dt_rng r = dt_rng_make(5, DT_RNG_TEST, 2);
	struct dt_sampling s = DT_SAMPLING_DEFAULT;
	int n = 0;

	for (int i = 0; i < LARGE; i++) {
		const int u = (int)dt_rng_below(&r, (uint64_t)i, 40);

		x[i] = u == 0 ? -INFINITY : u == 1 ? -0.f : u == 2 ? 0.f : (float)(u - 20) * 0.25f;
		n += u > 0;
	}
	s.drawn = told;
	s.ndrawn = LARGE;
	check_ranks(&s, x, n);
	for (s.top_k = 1; s.top_k < n; s.top_k *= 3) {
		set_order(&s, "mk");
		check_ranks(&s, x, s.top_k);
		set_order(&s, "pktm"); /* top_p is 1 */
		check_ranks(&s, x, s.top_k);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_orders),
		cmocka_unit_test(test_extremes),
		cmocka_unit_test(test_ranks),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
