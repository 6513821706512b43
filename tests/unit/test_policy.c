/* Objectives of policy gradients: against a plain loop, by finite differences, and packed samples. */
#include "plan/objective.h"
#include "rl/pack.h"
#include "rl/policy.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GROUPS = 5, MOST = 7, SIZE = 4 };
static const char *const names[] = {"grpo", "drgrpo", "dapo", "rloo", "reinforce", "cispo", "gspo"};
enum { NAMES = 7 };

static double draw(unsigned *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (double)(*seed >> 8) / (1 << 24);
}

/* Groups of 4 answers of 1 .. 7 tokens; one is flat, one lacks a reward. */
static void make(struct dt_group *g)
{
	unsigned seed = 7;

	for (int i = 0; i < GROUPS; i++) {
		g[i] = (struct dt_group){.index = i, .n = SIZE, .nprompt = 2 + i};
		g[i].prompt_ids = calloc((size_t)g[i].nprompt, sizeof(int32_t));
		for (int k = 0; k < g[i].nprompt; k++)
			g[i].prompt_ids[k] = 10 * i + k;
		g[i].answer = calloc(SIZE, sizeof(struct dt_answer));
		for (int k = 0; k < SIZE; k++) {
			struct dt_answer *a = &g[i].answer[k];

			a->n = 1 + (int)(draw(&seed) * MOST);
			a->ids = calloc((size_t)a->n, sizeof(*a->ids));
			a->logprob = calloc((size_t)a->n, sizeof(*a->logprob));
			for (int t = 0; t < a->n; t++) {
				a->ids[t] = 1000 * (i + 1) + 100 * k + t;
				a->logprob[t] = (float)(-0.1 - 2 * draw(&seed));
			}
			a->reward = i == 2 ? 1 : draw(&seed);
		}
	}
	g[3].answer[1].reward = (double)NAN;
}

static void release(struct dt_group *g)
{
	for (int i = 0; i < GROUPS; i++)
		dt_group_release(&g[i]);
}

/* log pi of token t of an answer: a function of place alone, at most 0.4 from the sampler's. */
static double logpi(const struct dt_answer *a, int i, int k, int t)
{
	return (double)a->logprob[t] + 0.4 * sin(13.0 * i + 5.0 * k + 3.0 * t);
}

/* Of the reference: at most 0.5 from the sampler's. */
static double logref(const struct dt_answer *a, int i, int k, int t)
{
	return (double)a->logprob[t] + 0.5 * cos(7.0 * i + 3.0 * k + 2.0 * t);
}

enum { BETA_PERCENT = 7 };
static const char *const estimators[] = {"none", "k1", "k2", "k3"};

/* Schulman's three estimators, written down apart from policy.c. */
static double estimate(const char *kl, double log_q)
{
	return !strcmp(kl, "k1")   ? -log_q
	       : !strcmp(kl, "k2") ? 0.5 * log_q * log_q
	       : !strcmp(kl, "k3") ? exp(log_q) - 1 - log_q
				   : 0;
}

/* The loss as the papers write it, over all tokens of all groups; bump is added to one token's log pi. */
static double plain_loss(const char *name, const char *kl, bool in_reward, struct dt_group *g, int bi, int bk,
			 int bt, double bump)
{
	const double beta = BETA_PERCENT / 100.0;
	double loss = 0, answers = 0, tokens = 0, all[GROUPS * SIZE], squares = 0;
	const bool dapo = !strcmp(name, "dapo");

	for (int i = 0; i < GROUPS; i++) {
		double mean = 0, std = 0, n = 0, reward[SIZE];

		for (int k = 0; k < SIZE; k++) {
			reward[k] = g[i].answer[k].reward;
			for (int t = 0; t < g[i].answer[k].n && in_reward; t++)
				reward[k] -= beta * estimate(kl, logref(&g[i].answer[k], i, k, t) -
									 (double)g[i].answer[k].logprob[t]);
		}
		for (int k = 0; k < SIZE; k++)
			if (!isnan(reward[k]))
				n++, mean += reward[k];
		mean /= n;
		for (int k = 0; k < SIZE; k++)
			if (!isnan(reward[k]))
				std += pow(reward[k] - mean, 2);
		std = sqrt(std / (n - 1));
		for (int k = 0; k < SIZE; k++) {
			const double r = reward[k];
			double others = 0;

			for (int o = 0; o < SIZE; o++)
				if (o != k && !isnan(reward[o]))
					others += reward[o] / (n - 1);
			all[i * SIZE + k] = !strcmp(name, "rloo") ? r - others
					    : !strcmp(name, "drgrpo") || !strcmp(name, "reinforce")
						    ? r - mean
						    : (r - mean) / (std + 1e-6);
			if (isnan(r) || (dapo && i == 2))
				all[i * SIZE + k] = (double)NAN;
			else
				answers++, tokens += g[i].answer[k].n, squares += pow(all[i * SIZE + k], 2);
		}
	}
	for (int i = 0; i < GROUPS; i++)
		for (int k = 0; k < SIZE; k++) {
			const struct dt_answer *a = &g[i].answer[k];
			double adv = all[i * SIZE + k], of_answer = 0, whole = 0;

			if (isnan(adv))
				continue;
			if (!strcmp(name, "reinforce"))
				adv /= sqrt(squares / answers) + 1e-6;
			for (int t = 0; t < a->n; t++)
				whole += (logpi(a, i, k, t) + (i == bi && k == bk && t == bt ? bump : 0) -
					  (double)a->logprob[t]) /
					 a->n;
			for (int t = 0; t < a->n; t++) {
				const double old = logpi(a, i, k, t),
					     lp = old + (i == bi && k == bk && t == bt ? bump : 0);
				const double r = exp(lp - (double)a->logprob[t]),
					     stopped = exp(old - (double)a->logprob[t]), s = exp(whole);

				if (!strcmp(name, "gspo"))
					of_answer -= fmin(s * adv, fmax(1 - 3e-4, fmin(1 + 4e-4, s)) * adv);
				else if (!strcmp(name, "rloo") || !strcmp(name, "reinforce"))
					of_answer -= fmin(stopped, 2) * adv * lp;
				else if (!strcmp(name, "cispo"))
					of_answer -= fmin(stopped, 5) * adv * lp;
				else
					of_answer -=
						fmin(r * adv, fmax(0.8, fmin(dapo ? 1.28 : 1.2, r)) * adv);
				if (!in_reward)
					of_answer += beta * estimate(kl, logref(a, i, k, t) - lp);
			}
			loss += of_answer / (!strcmp(name, "drgrpo")			      ? answers * MOST
					     : !strcmp(name, "rloo")			      ? answers
					     : !strcmp(name, "grpo") || !strcmp(name, "gspo") ? answers * a->n
											      : tokens);
		}
	return loss;
}

/* Loss and gradient of an objective, token by token, where the ratio is not at an edge of the clip. */
static void check_loss(const char *name, int kl, bool in_reward, struct dt_group *g)
{
	struct dt_policy p = *dt_policy_find(name);
	struct dt_lesson lesson[GROUPS * SIZE];
	struct dt_ratio_stats s = DT_RATIO_STATS;
	double loss = 0, penalty[GROUPS * SIZE] = {0}, want, kl_sampler = 0;
	float ref[MOST], lp[MOST], w[MOST];

	p.kl = (enum dt_kl)(kl - 1);
	p.beta = kl ? BETA_PERCENT / 100.0 : 0;
	p.in_reward = in_reward;
	for (int at = 0; at < GROUPS * SIZE && kl && in_reward; at++) {
		const struct dt_answer *a = &g[at / SIZE].answer[at % SIZE];

		for (int t = 0; t < a->n; t++)
			ref[t] = (float)logref(a, at / SIZE, at % SIZE, t);
		penalty[at] = dt_policy_penalty(&p, a->n, a->logprob, ref);
	}
	dt_policy_lessons(&p, g, GROUPS, MOST, penalty, lesson);
	for (int at = 0; at < GROUPS * SIZE; at++) {
		const int i = at / SIZE, k = at % SIZE;
		const struct dt_answer *a = &g[i].answer[k];

		for (int t = 0; t < a->n; t++) {
			lp[t] = (float)logpi(a, i, k, t);
			kl_sampler += estimate("k3", (double)lp[t] - (double)a->logprob[t]);
			ref[t] = (float)logref(a, i, k, t);
		}
		loss += dt_policy_loss(&p, &lesson[at], a->n, lp, a->logprob, kl ? ref : NULL, w, &s);
		for (int t = 0; t < a->n; t++) {
			const double h = 1e-6,
				     d = (plain_loss(name, estimators[kl], in_reward, g, i, k, t, h) -
					  plain_loss(name, estimators[kl], in_reward, g, i, k, t, -h)) /
					 (2 * h);

			if (fabs(d + (double)w[t]) > 1e-6 * (1 + fabs(d)))
				fail_msg("%s, %s: group %d answer %d token %d: weight %.9g, difference %.9g",
					 name, estimators[kl], i, k, t, (double)w[t], -d);
		}
	}
	want = plain_loss(name, estimators[kl], in_reward, g, -1, 0, 0, 0);
	if (fabs(loss - want) > 1e-6)
		fail_msg("%s, %s: loss %.9g, want %.9g", name, estimators[kl], loss, want);
	assert_true(s.low < 0.8 && s.high > 1.2 && s.kl > 0);
	assert_float_equal(s.kl, kl_sampler, 1e-9);
}

static void test_losses(void **state)
{
	struct dt_group g[GROUPS];

	make(g);
	for (int o = 0; o < NAMES; o++)
		for (int kl = 0; kl < 4; kl++)
			for (int in_reward = 0; in_reward < (kl ? 2 : 1); in_reward++) {
				assert_non_null(dt_policy_find(names[o]));
				check_loss(names[o], kl, in_reward, g);
			}
	release(g);
}

/* log softmax of z at x. */
static double log_softmax(const double *z, int x)
{
	double sum = 0;

	for (int v = 0; v < 5; v++)
		sum += exp(z[v]);
	return z[x] - log(sum);
}

/* KL(softmax a || softmax b). */
static double exact_kl(const double *a, const double *b)
{
	double kl = 0;

	for (int x = 0; x < 5; x++)
		kl += exp(log_softmax(a, x)) * (log_softmax(a, x) - log_softmax(b, x));
	return kl;
}

/*
 * Over all tokens of a vocabulary of 5, each as often as the policy draws it: k1 and k3 have the mean
 * KL(pi || ref); the gradient of k2 alone is that of KL(pi || ref), that of k1 is 0 and that of k3 is that of
 * KL(ref || pi).
 */
static void test_estimators(void **state)
{
	const double z[5] = {0.3, -1.1, 0.8, 0.1, -0.4}, ref[5] = {-0.2, 0.4, 0.5, -0.9, 0.7};

	for (int kind = DT_KL_K1; kind <= DT_KL_K3; kind++) {
		double mean = 0, slope;

		for (int x = 0; x < 5; x++)
			mean += exp(log_softmax(z, x)) *
				dt_kl((enum dt_kl)kind, log_softmax(z, x), log_softmax(ref, x), &slope);
		if (kind != DT_KL_K2 && fabs(mean - exact_kl(z, ref)) > 1e-12)
			fail_msg("k%d: mean %.12g, not %.12g", kind + 1, mean, exact_kl(z, ref));
		for (int j = 0; j < 5; j++) {
			double up[5], down[5], got = 0, want = 0;
			const double h = 1e-5;

			memcpy(up, z, sizeof(up));
			memcpy(down, z, sizeof(down));
			up[j] += h;
			down[j] -= h;
			if (kind == DT_KL_K2)
				want = (exact_kl(up, ref) - exact_kl(down, ref)) / (2 * h);
			if (kind == DT_KL_K3)
				want = (exact_kl(ref, up) - exact_kl(ref, down)) / (2 * h);
			for (int x = 0; x < 5; x++) {
				dt_kl((enum dt_kl)kind, log_softmax(z, x), log_softmax(ref, x), &slope);
				got += exp(log_softmax(z, x)) * slope * ((x == j) - exp(log_softmax(z, j)));
			}
			if (fabs(got - want) > 1e-9)
				fail_msg("k%d: gradient %.12g, not %.12g", kind + 1, got, want);
		}
	}
}

/* Far apart nothing is infinite, and what is cut off has no gradient. */
static void test_far(void **state)
{
	double slope;

	for (int kind = DT_KL_K1; kind <= DT_KL_K3; kind++)
		for (int sign = -1; sign <= 1; sign += 2) {
			const double k =
				dt_kl((enum dt_kl)kind, -500.0 * (1 + sign), -500.0 * (1 - sign), &slope);

			assert_true(isfinite(k) && fabs(k) <= 200);
			assert_float_equal(slope, 0, 0);
		}
	assert_float_equal(dt_kl(DT_KL_K3, -8, -1, &slope), 10, 0);
	assert_float_equal(slope, 0, 0);
}

/* Where policy and sampler agree ratios are 1, nothing is clipped, and centred advantages cancel. */
static void test_on_policy(void **state)
{
	struct dt_group g[GROUPS];
	struct dt_lesson lesson[GROUPS * SIZE];

	make(g);
	for (int o = 0; o < NAMES; o++) {
		const struct dt_policy *p = dt_policy_find(names[o]);
		struct dt_ratio_stats s = DT_RATIO_STATS;
		double loss = 0;

		dt_policy_lessons(p, g, GROUPS, MOST, NULL, lesson);
		for (int i = 0; i < GROUPS * SIZE; i++) {
			const struct dt_answer *a = &g[i / SIZE].answer[i % SIZE];
			float w[MOST];

			loss += dt_policy_loss(p, &lesson[i], a->n, a->logprob, a->logprob, NULL, w, &s);
		}
		assert_float_equal(s.low, 1, 0);
		assert_float_equal(s.high, 1, 0);
		assert_float_equal(s.kl, 0, 0);
		assert_float_equal(s.clipped, 0, 0);
		if (p->over == DT_PER_ANSWER && fabs(loss) > 1e-12)
			fail_msg("%s: the first loss is %g", names[o], loss);
	}
	release(g);
}

/* Every answer lies once, whole, in a row of its own tokens; what lacks a reward does not. */
static void test_pack(void **state)
{
	struct dt_group g[GROUPS];
	struct dt_pack p;
	struct dt_err err = {0};

	make(g);
	for (int64_t seq = 12; seq < 80; seq += 9) {
		int64_t seen = 0, targets = 0;

		assert_int_equal(dt_pack_make(&p, g, GROUPS, seq, &err), 0);
		assert_int_equal(p.n, GROUPS * SIZE - 1);
		for (int64_t i = 0; i < p.n; i++) {
			const struct dt_placed *d = &p.placed[i];
			const struct dt_group *q = &g[d->group];
			const struct dt_answer *a = &q->answer[d->answer];
			const int64_t first = d->row * seq + d->at - (q->nprompt - 1);

			assert_int_equal(d->number, d->group * SIZE + d->answer);
			for (int t = 0; t < q->nprompt + a->n - 1; t++) {
				assert_int_equal(p.ids[first + t],
						 t < q->nprompt ? q->prompt_ids[t] : a->ids[t - q->nprompt]);
				assert_int_equal(p.targets[first + t],
						 t < q->nprompt - 1 ? -1 : a->ids[t - q->nprompt + 1]);
				assert_int_equal(p.first[first + t], first - d->row * seq);
			}
			seen += a->n;
		}
		for (int64_t i = 0; i < p.rows * seq; i++)
			targets += p.targets[i] >= 0;
		assert_int_equal(seen, p.tokens);
		assert_int_equal(targets, p.tokens);
		assert_int_equal(p.row[p.rows], p.n);
		dt_pack_release(&p);
	}
	assert_int_equal(dt_pack_make(&p, g, GROUPS, 5, &err), -E2BIG);
	release(g);
}

/* The table of options and that of formulas say the same of an objective. */
static void test_tables(void **state)
{
	(void)state;
	for (int k = 0; k < DT_OBJECTIVE_N; k++) {
		const struct dt_objective_rule *o = dt_objective_rule(k);
		const struct dt_policy *p = dt_policy_find(o->name);

		assert_int_equal(o->rewards, p != NULL);
		if (!p)
			continue;
		assert_int_equal(o->values, dt_policy_has_values(p));
		assert_int_equal(o->group, dt_policy_has_values(p) ? 1 : 2);
		assert_int_equal(o->clips, p->ratio != DT_RATIO_CAP);
		assert_int_equal(o->caps, p->ratio == DT_RATIO_CAP);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_losses), cmocka_unit_test(test_estimators),
		cmocka_unit_test(test_far),    cmocka_unit_test(test_on_policy),
		cmocka_unit_test(test_pack),   cmocka_unit_test(test_tables),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
