/* Losses of pairs: their values as the papers write them, their derivatives against differences. */
#include "plan/objective.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_extremes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
