/*
 * Sampling against an independent computation of the distribution: sort everything in fp64, apply the
 * definitions from the papers, and compare draws with a chi-square test.
 */
#include "base/rng.h"
#include "serve/engine/sampling.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define V 50

static float logits[V];

static int setup(void **state)
{
	struct dt_rng r = dt_rng_make(11, DT_RNG_TEST, 1);

	dt_rng_fill_normal(&r, 0, logits, V, 0, 1.5f);
	logits[17] = logits[3]; /* a tie */
	return 0;
}

struct ranked {
	double p;
	int id;
};

static int by_rank(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->p != y->p)
		return x->p < y->p ? 1 : -1;
	return x->id - y->id;
}

/* What DRY takes from id, by comparing every earlier place token by token. */
static double dry(const struct dt_sampling *s, int id, const int32_t *prompt, int nprompt, const int32_t *out,
		  int nout)
{
	int32_t all[64];
	int n = 0, longest = -1;

	if (s->dry_multiplier == 0)
		return 0;
	for (int i = 0; i < nprompt; i++)
		all[n++] = prompt[i];
	for (int i = 0; i < nout; i++)
		all[n++] = out[i];
	const int from = s->dry_last < 0 || s->dry_last > n ? 0 : n - s->dry_last;

	for (int end = from; end + 1 < n; end++) { /* the match would end here, and id come next */
		int length = 0;

		while (end - length >= from && all[end - length] == all[n - 1 - length] &&
		       !(s->dry_break &&
			 (s->dry_break[all[end - length] / 32] >> all[end - length] % 32 & 1)))
			length++;
		if (all[end + 1] == id && length > longest)
			longest = length;
	}
	if (longest < 1 || longest < s->dry_allowed ||
	    (s->dry_break && (s->dry_break[id / 32] >> id % 32 & 1)))
		return 0;
	return s->dry_multiplier * pow(s->dry_base, longest - s->dry_allowed);
}

/* How many of the ranked stay by mirostat. */
static int mirostat(const struct dt_sampling *s, const struct ranked *r, double z, double mu)
{
	double tb = 0, tt = 0, hat, k;
	int n = 0;

	if (s->mirostat == 2) {
		while (n < V && r[n].p > 0 && -log2(r[n].p / z) <= mu)
			n++;
		return n > 0 ? n : 1;
	}
	for (int i = 0; i < 99 && i + 1 < V; i++) {
		double t = log((i + 2.0) / (i + 1.0));

		tb += t * log(r[i].p / r[i + 1].p);
		tt += t * t;
	}
	hat = tb / tt;
	k = pow((hat - 1) * pow(2, mu) / (1 - pow(V, 1 - hat)), 1 / hat);
	return k < 1 ? 1 : k > V ? V : (int)k;
}

/* With probability xtc_probability all but the least of those at or above the threshold go. */
static void xtc(const struct dt_sampling *s, const struct ranked *r, double *prob)
{
	double gone = 0;
	int n = 0;

	while (n < V && prob[r[n].id] >= s->xtc_threshold && prob[r[n].id] > 0)
		n++;
	if (n < 2 || s->xtc_probability == 0)
		return;
	for (int i = 0; i < n - 1; i++)
		gone += prob[r[i].id];
	for (int i = 0; i < V; i++) {
		double p = prob[r[i].id];

		prob[r[i].id] =
			(1 - s->xtc_probability) * p + (i < n - 1 ? 0 : s->xtc_probability * p / (1 - gone));
	}
}

/* The definition, by sorting: prob[V] of each id. */
static void reference(const struct dt_sampling *s, const float *in, const int32_t *prompt, int nprompt,
		      const int32_t *out, int nout, double *prob)
{
	struct ranked r[V];
	double z = 0, sum = 0, best = 0;
	int keep = V;

	for (int i = 0; i < V; i++) {
		double x = in[i];
		int c = 0, in_prompt = 0;

		for (int k = 0; k < s->nbias; k++)
			if (s->bias[k].id == i)
				x += s->bias[k].bias;
		x -= dry(s, i, prompt, nprompt, out, nout);
		for (int k = 0; k < nout; k++)
			c += out[k] == i;
		for (int k = 0; k < nprompt; k++)
			in_prompt |= prompt[k] == i;
		if (c > 0 || in_prompt)
			x = x > 0 ? x / s->repetition_penalty : x * s->repetition_penalty;
		x -= c * s->frequency_penalty + (c > 0 ? s->presence_penalty : 0);
		for (int k = 0; k < s->nban; k++)
			if (s->ban[k] == i)
				x = -INFINITY;
		r[i] = (struct ranked){exp(x / s->temperature), i};
		z += r[i].p;
	}
	qsort(r, V, sizeof(*r), by_rank);
	best = r[0].p;
	if (s->mirostat)
		keep = mirostat(s, r, z, nout == 0 ? 2 * s->tau : *s->mu);
	for (int i = 0; i < V && !s->mirostat; i++)
		if (r[i].p < s->min_p * best)
			r[i].p = 0;
	if (s->top_k > 0)
		keep = s->top_k < V ? s->top_k : V;
	z = 0;
	for (int i = 0; i < keep; i++)
		z += r[i].p;
	memset(prob, 0, V * sizeof(*prob));
	for (int i = 0; i < keep; i++) {
		prob[r[i].id] = r[i].p;
		sum += r[i].p;
		if (sum >= s->top_p * z)
			break;
	}
	for (int i = 0; i < V; i++)
		prob[i] /= sum;
	xtc(s, r, prob);
}

/* Draws n times at different indices and compares counts with prob. */
static void check_draws(struct dt_sampling s, const int32_t *prompt, int nprompt, const int32_t *out,
			int nout)
{
	enum { N = 20000 };
	struct dt_serve_sampler sampler;
	int count[V] = {0}, cells = 0;
	double prob[V], chi2 = 0;

	reference(&s, logits, prompt, nprompt, out, nout, prob);
	assert_int_equal(dt_serve_sampler_init(&sampler, V), 0);
	for (int i = 0; i < N; i++) {
		float x[V];
		int32_t id;

		memcpy(x, logits, sizeof(x));
		s.stream = (uint32_t)i; /* an independent request each time */
		id = dt_sample(&sampler, &s, x, prompt, (size_t)nprompt, out, (size_t)nout);
		assert_in_range(id, 0, V - 1);
		if (prob[id] == 0)
			fail_msg("id %d was drawn and has probability 0", id);
		count[id]++;
	}
	for (int i = 0; i < V; i++) {
		if (prob[i] * N < 5)
			continue;
		chi2 += (count[i] - prob[i] * N) * (count[i] - prob[i] * N) / (prob[i] * N);
		cells++;
	}
	/* mean cells - 1, deviation sqrt(2 (cells - 1)): five deviations. The draws are fixed by the seed. */
	if (cells > 1 && chi2 > cells - 1 + 5 * sqrt(2.0 * (cells - 1)))
		fail_msg("chi-square %g over %d cells", chi2, cells);
	for (int i = 0; i < V; i++)
		assert_int_equal(sampler.edit_of[i], 0);
	dt_serve_sampler_release(&sampler);
}

static void test_plain(void **state)
{
	struct dt_sampling s = DT_SAMPLING_DEFAULT;

	s.seed = 5;
	check_draws(s, NULL, 0, NULL, 0);
	s.temperature = 0.5;
	check_draws(s, NULL, 0, NULL, 0);
}

static void test_truncation(void **state)
{
	struct dt_sampling s = DT_SAMPLING_DEFAULT;

	s.seed = 6;
	s.top_k = 7;
	check_draws(s, NULL, 0, NULL, 0);
	s.top_p = 0.6;
	check_draws(s, NULL, 0, NULL, 0);
	s.top_k = 0;
	check_draws(s, NULL, 0, NULL, 0);
	s.top_p = 1;
	s.min_p = 0.2;
	check_draws(s, NULL, 0, NULL, 0);
	s.top_p = 0.5;
	s.top_k = 20;
	s.temperature = 2;
	check_draws(s, NULL, 0, NULL, 0);
	s.top_k = V + 5;
	check_draws(s, NULL, 0, NULL, 0);
}

static void test_penalties(void **state)
{
	static const int32_t prompt[] = {1, 2, 3, 3, 4}, out[] = {2, 2, 9, 30};
	static const struct dt_bias bias[] = {{5, 2.5f}, {9, -1}};
	static const int32_t ban[] = {5, 17};
	struct dt_sampling s = DT_SAMPLING_DEFAULT;

	s.seed = 7;
	s.repetition_penalty = 1.7;
	check_draws(s, prompt, 5, out, 4);
	s.presence_penalty = 0.9;
	s.frequency_penalty = 0.4;
	s.bias = bias;
	s.nbias = 2;
	check_draws(s, prompt, 5, out, 4);
	s.ban = ban;
	s.nban = 2;
	s.top_p = 0.9;
	check_draws(s, prompt, 5, out, 4);
}

static void test_dry(void **state)
{
	static const int32_t prompt[] = {1, 2, 3, 4, 9, 1, 2, 3, 5, 8, 2, 3, 4, 20}, out[] = {7, 1, 2, 3};
	uint32_t breaks[2] = {0};
	struct dt_sampling s = DT_SAMPLING_DEFAULT;

	s.seed = 8;
	s.dry_multiplier = 0.8;
	assert_true(fabs(dry(&s, 4, prompt, 14, out, 4) - 0.8 * 1.75) < 1e-12); /* 1 2 3 stood before 4 */
	check_draws(s, prompt, 14, out, 4);
	s.dry_allowed = 1;
	s.dry_base = 1.2;
	check_draws(s, prompt, 14, out, 4);
	s.dry_last = 9;
	check_draws(s, prompt, 14, out, 4);
	s.dry_last = -1;
	breaks[0] = 1u << 2 | 1u << 5; /* the match is 3 alone, and 5 may come */
	s.dry_break = breaks;
	check_draws(s, prompt, 14, out, 4);
	s.repetition_penalty = 1.3;
	s.dry_multiplier = 100;
	s.dry_base = 100;
	s.dry_break = NULL;
	check_draws(s, prompt, 14, out, 4);
}

/* Long repetitions cost as much time as others, and what they cost has a bound. */
static void test_dry_long(void **state)
{
	enum { N = 200000 };
	struct dt_sampling s = DT_SAMPLING_DEFAULT;
	int32_t *same = calloc(N, sizeof(*same));
	struct dt_serve_sampler sampler;
	float x[V];

	dt_serve_sampler_init(&sampler, V);
	s.temperature = 0;
	s.dry_multiplier = 1;
	memcpy(x, logits, sizeof(x));
	x[0] = 100;
	assert_int_not_equal(dt_sample(&sampler, &s, x, same, N, NULL, 0), 0);
	assert_true(isfinite(x[0]));
	dt_serve_sampler_release(&sampler);
	free(same);
}

static void test_xtc(void **state)
{
	struct dt_sampling s = DT_SAMPLING_DEFAULT;

	s.seed = 9;
	s.xtc_probability = 1;
	s.xtc_threshold = 0.05;
	check_draws(s, NULL, 0, NULL, 0);
	s.xtc_probability = 0.4;
	check_draws(s, NULL, 0, NULL, 0);
	s.top_k = 9;
	s.top_p = 0.8;
	s.min_p = 0.05;
	s.xtc_threshold = 0.1;
	check_draws(s, NULL, 0, NULL, 0);
	s.xtc_threshold = 0.5; /* no two have that */
	check_draws(s, NULL, 0, NULL, 0);
}

/* A text's draws, mu held to its definition after each. */
static void test_mirostat(void **state)
{
	for (int version = 1; version <= 2; version++) {
		struct dt_sampling s = DT_SAMPLING_DEFAULT;
		double mu = -1, want = 0, bits = 0;
		struct dt_serve_sampler sampler;
		int32_t out[400];

		s.seed = 10;
		s.mirostat = version;
		s.from = version == 2 ? 7 : 0; /* begins anew: what the earlier draws left is not known */
		s.tau = 2.5;
		s.mu = &mu;
		check_draws(s, NULL, 0, NULL, 0);
		dt_serve_sampler_init(&sampler, V);
		for (int i = 0; i < 400; i++) {
			double prob[V];
			float x[V];

			want = i == 0 ? 2 * s.tau : want;
			mu = i == 0 ? -1 : mu;
			reference(&s, logits, NULL, 0, out, i, prob);
			memcpy(x, logits, sizeof(x));
			out[i] = dt_sample(&sampler, &s, x, NULL, 0, out, (size_t)i);
			assert_true(prob[out[i]] > 0);
			want -= s.eta * (-log2(prob[out[i]]) - s.tau);
			if (fabs(mu - want) > 1e-6)
				fail_msg("mirostat %d, token %d: mu is %.9g, not %.9g", version, i, mu, want);
			bits += -log2(prob[out[i]]);
		}
		assert_true(fabs(bits / 400 - s.tau) < 0.25); /* what it is for */
		dt_serve_sampler_release(&sampler);
	}
}

static void test_greedy(void **state)
{
	struct dt_sampling s = DT_SAMPLING_DEFAULT;
	struct dt_serve_sampler sampler;
	float x[V] = {0};

	s.temperature = 0;
	dt_serve_sampler_init(&sampler, V);
	assert_int_equal(dt_sample(&sampler, &s, x, NULL, 0, NULL, 0), 0); /* all tie: the lowest id */
	x[40] = x[20] = 3;
	assert_int_equal(dt_sample(&sampler, &s, x, NULL, 0, NULL, 0), 20);
	s.temperature = 1e-9; /* nearly greedy must not overflow */
	x[20] = 2.9f;
	assert_int_equal(dt_sample(&sampler, &s, x, NULL, 0, NULL, 0), 40);
	s.temperature = 1;
	x[3] = NAN;
	assert_int_equal(dt_sample(&sampler, &s, x, NULL, 0, NULL, 0), -EDOM);
	for (int i = 0; i < V; i++)
		x[i] = -INFINITY;
	assert_int_equal(dt_sample(&sampler, &s, x, NULL, 0, NULL, 0), -EDOM);
	dt_serve_sampler_release(&sampler);
}

static void test_reproducible(void **state)
{
	struct dt_sampling s = DT_SAMPLING_DEFAULT;
	struct dt_serve_sampler a, b;
	int differ = 0;

	dt_serve_sampler_init(&a, V);
	dt_serve_sampler_init(&b, V);
	for (int i = 0; i < 50; i++) {
		int32_t out[50] = {0}, one, two;
		float x[V];

		s.seed = 1;
		memcpy(x, logits, sizeof(x));
		one = dt_sample(&a, &s, x, NULL, 0, out, (size_t)i);
		memcpy(x, logits, sizeof(x));
		two = dt_sample(&b, &s, x, NULL, 0, out, (size_t)i);
		assert_int_equal(one, two);
		s.seed = 2;
		memcpy(x, logits, sizeof(x));
		differ += dt_sample(&b, &s, x, NULL, 0, out, (size_t)i) != one;
	}
	assert_true(differ > 10);
	dt_serve_sampler_release(&a);
	dt_serve_sampler_release(&b);
}

static void test_logprobs(void **state)
{
	struct dt_logprob chosen, top[6];
	struct ranked r[V];
	double z = 0;

	for (int i = 0; i < V; i++) {
		r[i] = (struct ranked){exp(logits[i]), i};
		z += r[i].p;
	}
	qsort(r, V, sizeof(*r), by_rank);
	chosen = dt_logprobs_of(logits, V, 17, dt_logprobs_top(logits, V, 6, top));
	assert_int_equal(chosen.id, 17);
	assert_true(fabs(chosen.logprob - log(exp(logits[17]) / z)) < 1e-5);
	assert_true(chosen.rank > 1 && chosen.rank <= V); /* ties have the first rank */
	assert_true(r[chosen.rank - 1].p == exp(logits[17]) && r[chosen.rank - 2].p > exp(logits[17]));
	for (int i = 0; i < 6; i++) {
		assert_int_equal(top[i].id, r[i].id);
		assert_true(fabs(top[i].logprob - log(r[i].p / z)) < 1e-5);
	}
}

/* The best of a large vocabulary, with many equal ones: those of a loop over all, the first of equal ones. */
static void test_best_of_many(void **state)
{
	enum { MANY = 10007, N = 20 };
	float *x = malloc(MANY * sizeof(*x));
	struct dt_rng rng = dt_rng_make(5, DT_RNG_TEST, 2);
	struct dt_logprob top[N], want[N];
	double sum;

	dt_rng_fill_normal(&rng, 0, x, MANY, 0, 3);
	for (int i = 0; i < MANY; i++)
		x[i] = roundf(8 * x[i]) / 8;
	sum = dt_logprobs_top(x, MANY, N, top);
	for (int k = 0; k < N; k++) {
		int best = -1, rank = 1;

		for (int i = 0; i < MANY; i++) {
			bool taken = false;

			for (int t = 0; t < k; t++)
				taken |= want[t].id == i;
			if (!taken && (best < 0 || x[i] > x[best]))
				best = i;
		}
		for (int i = 0; i < MANY; i++)
			rank += x[i] > x[best];
		want[k] = (struct dt_logprob){best, (float)(x[best] - sum), 0};
		assert_int_equal(top[k].id, best);
		assert_true(top[k].logprob == want[k].logprob);
		assert_int_equal(dt_logprobs_of(x, MANY, best, sum).rank, rank);
		assert_true(dt_logprobs_of(x, MANY, best, sum).logprob == want[k].logprob);
	}
	free(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),	     cmocka_unit_test(test_truncation),
		cmocka_unit_test(test_penalties),    cmocka_unit_test(test_dry),
		cmocka_unit_test(test_dry_long),     cmocka_unit_test(test_xtc),
		cmocka_unit_test(test_mirostat),     cmocka_unit_test(test_greedy),
		cmocka_unit_test(test_reproducible), cmocka_unit_test(test_logprobs),
		cmocka_unit_test(test_best_of_many),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
