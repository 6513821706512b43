/*
 * Losses of answers: their values as the papers write them, their derivatives against differences, and both
 * as TRL's trainers have them (tests/data/golden_preferences.py).
 */
#include "plan/objective.h"

#include <jansson.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

/* Written down apart from plan/objective.c. */
static double published(int kind, const struct dt_pair *p, double beta, double gamma)
{
	double c = p->chosen, r = p->rejected, mc = c / (double)p->nchosen, mr = r / (double)p->nrejected;
	double odds = log(exp(mc) / (1 - exp(mc))) - log(exp(mr) / (1 - exp(mr)));

	switch (kind) {
	case DT_OBJECTIVE_DPO:
		return -log(sigmoid(beta * (c - r)));
	case DT_OBJECTIVE_IPO:
		return pow(mc - mr - 1 / (2 * beta), 2);
	case DT_OBJECTIVE_HINGE:
		return fmax(0, 1 - beta * (c - r));
	case DT_OBJECTIVE_SIMPO:
		return -log(sigmoid(beta * (mc - mr) - gamma));
	case DT_OBJECTIVE_ORPO:
		return -mc - beta * log(sigmoid(odds));
	}
	fail_msg("objective %d has no published form here", kind);
	return 0;
}

static double loss_of(int kind, struct dt_pair p, double beta, double gamma)
{
	return dt_objective_rule(kind)->pair(&p, beta, gamma).loss;
}

static void test_pairs(void **state)
{
	static const struct dt_pair pairs[] = {{-3, -7, 2, 9},
					       {-20.5, -4, 13, 3},
					       {-0.02, -60, 1, 40},
					       {-1e-3, -2e-3, 5, 5},
					       {-9, -9, 4, 4}};
	static const double constants[][2] = {{0.1, 0.5}, {2, 1}, {0.01, 0}};
	const double h = 1e-6;

	for (int kind = 0; kind < DT_OBJECTIVE_N; kind++) {
		const struct dt_objective_rule *rule = dt_objective_rule(kind);

		for (size_t i = 0; i < 5 && rule->pair; i++)
			for (size_t k = 0; k < 3; k++) {
				double beta = constants[k][0], gamma = constants[k][1];
				struct dt_pair p = pairs[i], up = p, down = p, right = p, left = p;
				struct dt_pair_loss l = rule->pair(&p, beta, gamma);
				double want = published(kind, &p, beta, gamma), dc, dr;

				up.chosen += h;
				down.chosen -= h;
				right.rejected += h;
				left.rejected -= h;
				dc = (loss_of(kind, up, beta, gamma) - loss_of(kind, down, beta, gamma)) /
				     (2 * h);
				dr = (loss_of(kind, right, beta, gamma) - loss_of(kind, left, beta, gamma)) /
				     (2 * h);
				if (fabs(l.loss - want) > 1e-9 * (1 + fabs(want)))
					fail_msg("%s: %.12g, not %.12g", rule->name, l.loss, want);
				if (fabs(l.dchosen - dc) > 1e-4 * (1 + fabs(dc)) ||
				    fabs(l.drejected - dr) > 1e-4 * (1 + fabs(dr)))
					fail_msg("%s, pair %zu: slopes %g %g, not %g %g", rule->name, i,
						 l.dchosen, l.drejected, dc, dr);
			}
	}
}

/* One answer: the formula as it is published, and its slope against differences. */
static void test_alone(void **state)
{
	static const double at[][2] = {{-3, 0}, {4, 1.5}, {0, 0}, {-20, 7}, {0.5, 12}};
	const double h = 1e-6;

	for (int kind = 0; kind < DT_OBJECTIVE_N; kind++)
		for (int i = 0; i < 10 && dt_objective_rule(kind)->alone; i++) {
			const struct dt_objective_rule *r = dt_objective_rule(kind);
			double a = at[i / 2][0], z = at[i / 2][1], beta = 0.3, w = i % 3 ? 1 : 2.5, want,
			       slope;
			bool good = i % 2;
			struct dt_answer_loss l = r->alone(a, good, beta, z, w);

			assert_int_equal(kind, DT_OBJECTIVE_KTO);
			want = w * (1 - sigmoid(good ? beta * (a - z) : beta * (z - a)));
			slope = (r->alone(a + h, good, beta, z, w).loss -
				 r->alone(a - h, good, beta, z, w).loss) /
				(2 * h);
			if (fabs(l.loss - want) > 1e-12 || fabs(l.slope - slope) > 1e-8)
				fail_msg("%s(%g, %d, %g): %.12g, slope %g, not %.12g, %g", r->name, a, good,
					 z, l.loss, l.slope, want, slope);
			l = r->alone(good ? -1e6 : 1e6, good, beta, z, w);
			assert_true(l.loss == w && l.slope == 0);
		}
}

/* Log-probabilities far apart, and a certain answer: the loss and its slopes stay finite. */
static void test_extremes(void **state)
{
	static const struct dt_pair pairs[] = {
		{-1e6, -1, 10, 1}, {-1, -1e6, 1, 10}, {0, -5, 3, 3}, {0, 0, 1, 1}};

	for (int kind = 0; kind < DT_OBJECTIVE_N; kind++)
		for (size_t i = 0; i < 4 && dt_objective_rule(kind)->pair; i++) {
			struct dt_pair_loss l = dt_objective_rule(kind)->pair(&pairs[i], 0.1, 0.5);

			assert_true(isfinite(l.loss) && isfinite(l.dchosen) && isfinite(l.drejected));
		}
	assert_true(fabs(loss_of(DT_OBJECTIVE_DPO, (struct dt_pair){0, 0, 1, 1}, 0.1, 0) - log(2)) < 1e-15);
}

static double real(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_number(v))
		fail_msg("the golden file has no number '%s'", key);
	return json_number_value(v);
}

static void check(const char *name, const char *what, double got, double want)
{
	if (fabs(got - want) > 1e-6 * (1 + fabs(want))) /* orpo's are computed in f32 */
		fail_msg("%s: %s %.12g, not %.12g", name, what, got, want);
}

static void golden_pair(const struct dt_objective_rule *r, const json_t *o, double beta, double gamma)
{
	const json_t *reference = json_object_get(o, "reference");
	struct dt_pair p = {real(o, "chosen"), real(o, "rejected"), (int64_t)real(o, "nchosen"),
			    (int64_t)real(o, "nrejected")};
	struct dt_pair_loss l;

	if (r->reference) {
		p.chosen -= json_number_value(json_array_get(reference, 0));
		p.rejected -= json_number_value(json_array_get(reference, 1));
	}
	l = r->pair(&p, beta, gamma);
	check(r->name, "loss", l.loss, real(o, "loss"));
	check(r->name, "slope of the chosen", l.dchosen, real(o, "dchosen"));
	check(r->name, "slope of the rejected", l.drejected, real(o, "drejected"));
}

/* The loss is the mean over the answers of one sample. */
static void golden_alone(const struct dt_objective_rule *r, const json_t *o)
{
	const json_t *answers = json_object_get(o, "answers"), *mismatched = json_object_get(o, "mismatched"),
		     *v;
	const double n = (double)json_array_size(answers);
	double z = 0, loss = 0;
	size_t i;

	json_array_foreach(mismatched, i, v) z += json_number_value(v) / (double)json_array_size(mismatched);
	z = z > 0 ? z : 0;
	check(r->name, "kl", z, real(o, "kl"));
	json_array_foreach(answers, i, v)
	{
		const bool good = json_is_true(json_object_get(v, "good"));
		const struct dt_answer_loss l = r->alone(real(v, "logprob") - real(v, "reference"), good,
							 real(o, "beta"), z, real(o, good ? "good" : "bad"));

		loss += l.loss / n;
		check(r->name, "slope", l.slope / n, real(v, "slope"));
	}
	check(r->name, "loss", loss, real(o, "loss"));
}

static void test_golden(void **state)
{
	json_t *all = json_load_file(GOLDEN_DIR "/golden-preferences.json", 0, NULL), *v, *pair;
	int seen = 0;
	size_t i, k;

	assert_non_null(all);
	for (int kind = 0; kind < DT_OBJECTIVE_N; kind++) {
		const struct dt_objective_rule *r = dt_objective_rule(kind);
		const json_t *cases = json_object_get(all, r->name);

		if (!dt_objective_compares(r))
			continue;
		assert_true(json_array_size(cases) > 0);
		json_array_foreach(cases, i, v)
		{
			if (r->alone)
				golden_alone(r, v);
			json_array_foreach(json_object_get(v, "pairs"), k, pair)
				golden_pair(r, pair, real(v, "beta"), real(v, "gamma"));
			seen++;
		}
	}
	assert_int_equal(seen, 13);
	json_decref(all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_extremes),
		cmocka_unit_test(test_golden),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
