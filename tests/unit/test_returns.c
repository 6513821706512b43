/* Values: advantages and returns against sums written down apart, and the value head by differences. */
#include "kernels/device.h"
#include "nn/call.h"
#include "rl/policy.h"
#include "rl/returns.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 9 };
static const double reward[N] = {0, -0.3, 0, 0.7, 0, 0, -1.2, 0.1, 2};
static const float value[N] = {0.5f, -0.2f, 0.9f, 0.1f, 1.5f, -0.7f, 0.3f, 0.8f, -0.4f};

static double v_at(int t)
{
	return t < N ? (double)value[t] : 0;
}

/* The sum of the definition: over all k of (discount lambda)^k d_{t+k}. */
static void test_gae(void **state)
{
	const struct dt_returns p = {.discount = 0.97, .lambda = 0.9};
	double adv[N], ret[N];

	dt_gae(&p, N, reward, value, adv, ret);
	for (int t = 0; t < N; t++) {
		double want = 0;

		for (int k = t; k < N; k++)
			want += pow(p.discount * p.lambda, k - t) *
				(reward[k] + p.discount * v_at(k + 1) - v_at(k));
		assert_true(fabs(adv[t] - want) < 1e-12);
		assert_true(fabs(ret[t] - want - v_at(t)) < 1e-12);
	}
}

/*
 * The sum of Espeholt et al.'s definition (1): V_s + sum over t of
 * discount^(t - s) (c_s .. c_{t-1}) rho_t d_t.
 */
static void check_vtrace(const struct dt_returns *p, const double *ratio)
{
	double adv[N], ret[N];

	dt_vtrace(p, N, reward, value, ratio, adv, ret);
	for (int s = 0; s < N; s++) {
		double want = v_at(s), weight = 1;

		for (int t = s; t < N; t++) {
			want += weight * fmin(p->rho, ratio[t]) *
				(reward[t] + p->discount * v_at(t + 1) - v_at(t));
			weight *= p->discount * p->lambda * fmin(p->c, ratio[t]);
		}
		if (fabs(ret[s] - want) > 1e-12)
			fail_msg("step %d: %.15g, not %.15g", s, ret[s], want);
		want = reward[s] + p->discount * (s + 1 < N ? ret[s + 1] : 0) - v_at(s);
		assert_true(fabs(adv[s] - want) < 1e-12);
	}
}

static void test_vtrace(void **state)
{
	static const double stale[N] = {0.3, 1.7, 1, 0.9, 4, 0.01, 1.2, 0.5, 2.5};
	static const double fresh[N] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
	const struct dt_returns p = {0.95, 1, 1, 1}, wide = {0.9, 0.8, 2, 1.5};
	double ret[N], gae[N];

	check_vtrace(&p, stale);
	check_vtrace(&wide, stale);
	check_vtrace(&wide, fresh);
	/* mu = pi: the discounted rewards to the end, whatever the values; with lambda those of GAE */
	dt_vtrace(&p, N, reward, value, fresh, NULL, ret);
	for (int t = 0; t < N; t++) {
		double want = 0;

		for (int k = t; k < N; k++)
			want += pow(p.discount, k - t) * reward[k];
		assert_true(fabs(ret[t] - want) < 1e-12);
	}
	dt_vtrace(&wide, N, reward, value, fresh, NULL, ret);
	dt_gae(&wide, N, reward, value, NULL, gae);
	for (int t = 0; t < N; t++)
		assert_true(fabs(ret[t] - gae[t]) < 1e-12);
}

static void test_whiten(void **state)
{
	double x[5] = {3, -1, 4, 1, -5}, mean = 0, squares = 0, one[1] = {7};

	dt_policy_whiten(x, 5);
	for (int i = 0; i < 5; i++)
		mean += x[i], squares += x[i] * x[i];
	assert_true(fabs(mean) < 1e-12 && fabs(squares / 4 - 1) < 1e-6);
	dt_policy_whiten(one, 1); /* nothing to compare with */
	assert_true(one[0] == 0);
}

/* Advantages of tokens in the loss of an answer, and the loss of values by differences. */
static void test_token_loss(void **state)
{
	const double adv[3] = {0.5, -1, 2}, ret[3] = {1, 0.2, -0.3};
	const float logp[3] = {-1, -0.5f, -2}, mu[3] = {-1.1f, -0.5f, -1.4f}, v[3] = {0.4f, 0.1f, 0.9f};
	const struct dt_lesson l = {0, 0.25, adv};
	struct dt_ratio_stats s = DT_RATIO_STATS;
	float w[3], slope[3];
	double square = 0, want = 0, value_want = 0;

	for (int t = 0; t < 3; t++) {
		const double r = exp((double)logp[t] - (double)mu[t]);

		want -= 0.25 * fmin(r * adv[t], fmax(0.8, fmin(1.2, r)) * adv[t]);
		value_want += 0.25 * 0.7 * pow((double)v[t] - ret[t], 2) / 2;
	}
	assert_true(fabs(dt_policy_loss(dt_policy_find("ppo"), &l, 3, logp, mu, NULL, w, &s) - want) < 1e-12);
	assert_true(fabs(dt_policy_value_loss(&l, 0.7, 3, v, ret, slope, &square) - value_want) < 1e-12);
	for (int t = 0; t < 3; t++)
		assert_true(fabs((double)slope[t] - 0.25 * 0.7 * ((double)v[t] - ret[t])) < 1e-7);
}

enum { ROWS = 5, COLS = 37 };

/* sum over rows of dvalue_r value_r, in fp64 of the same numbers. */
static double values_sum(const float *in, const float *w, const float *dvalue)
{
	double sum = 0;

	for (int r = 0; r < ROWS; r++)
		for (int i = 0; i < COLS; i++)
			sum += (double)dvalue[r] * (double)in[r * COLS + i] * (double)w[i];
	return sum;
}

static void test_head(void **state)
{
	float in[ROWS * COLS], w[COLS], din[ROWS * COLS], dw[COLS], got[ROWS];
	float dvalue[ROWS] = {0.3f, 0, -1.5f, 0.01f, 2};
	struct dt_dev *dev;
	struct dt_exec x = {.loss_scale = 4, .objective = {.value = got, .dvalue = dvalue}};
	const struct dt_tensor ti = dt_t2(in, DT_F32, ROWS, COLS), tw = dt_t1(w, DT_F32, COLS);

	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 2), 0);
	x.dev = dev;
	for (int i = 0; i < ROWS * COLS; i++) {
		in[i] = (float)sin(1.7 * i);
		din[i] = (float)cos(0.3 * i);
	}
	for (int i = 0; i < COLS; i++) {
		w[i] = (float)cos(2.1 * i);
		dw[i] = 1;
	}
	assert_int_equal(dt_call_values(&x, ti, tw, NULL), 0);
	for (int r = 0; r < ROWS; r++) {
		const float only[ROWS] = {r == 0, r == 1, r == 2, r == 3, r == 4};

		assert_true(fabs((double)got[r] - values_sum(in, w, only)) < 1e-5);
	}
	for (int again = 0; again < 2;
	     again++) /* overwritten by the first microbatch, added to by the next */
		assert_int_equal(dt_call_values_back(&x, ti, tw, dt_t2(din, DT_F32, ROWS, COLS),
						     dt_t1(dw, DT_F32, COLS), again, NULL),
				 0);
	for (int i = 0; i < COLS; i++) {
		const float kept = w[i];
		double up, down;

		w[i] = kept + 0.5f;
		up = values_sum(in, w, dvalue);
		w[i] = kept - 0.5f;
		down = values_sum(in, w, dvalue);
		w[i] = kept;
		assert_true(fabs((double)dw[i] - 2 * 4 * (up - down)) < 1e-4);
	}
	for (int i = 0; i < ROWS * COLS; i++) {
		const double want = cos(0.3 * i) + 2 * 4 * (double)dvalue[i / COLS] * (double)w[i % COLS];

		assert_true(fabs((double)din[i] - want) < 1e-4);
	}
	dt_dev_close(dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gae),    cmocka_unit_test(test_vtrace),
		cmocka_unit_test(test_whiten), cmocka_unit_test(test_token_loss),
		cmocka_unit_test(test_head),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
