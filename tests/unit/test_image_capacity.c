/*
 * Servers that classify images, on paper: the queue against closed forms of constant and of random load, and
 * plans against what they must be.
 */
#include "capacity_check.h"
#include "serve/capacity/images.h"

#include "base/rng.h"
#include "plan/stepcost.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, MOST = 40000 };

static double pass_s[BATCH + 1], send_s[BATCH + 1];
static struct dt_sim_ask ask[MOST];
static struct dt_image_report r;

/* A pass takes a second, and a tenth an image; to others a twentieth an image. */
static void simulate(int ranks, int batch, bool data, int n)
{
	const struct dt_image_queue s = {
		.ranks = ranks, .batch = batch, .data = data, .pass_s = pass_s, .send_s = send_s};

	for (int i = 1; i <= BATCH; i++) {
		pass_s[i] = 1 + 0.1 * i;
		send_s[i] = 0.05 * i;
	}
	assert_int_equal(dt_image_simulate(&s, ask, n, &r, NULL), 0);
}

static void every(double seconds, int n)
{
	for (int i = 0; i < n; i++)
		ask[i] = (struct dt_sim_ask){.at_s = i * seconds};
}

/* Fewer than one rank answers: each is alone. All at once: full passes one after the other. */
static void constant_load(void **state)
{
	every(2, 100);
	simulate(1, BATCH, false, 100);
	near(r.p50, 1.1);
	near(r.p99, 1.1);
	assert_int_equal(r.passes, 100);
	near(r.busy_s, 110);
	simulate(2, BATCH, true, 100); /* nothing to cut of one image */
	near(r.p99, 1.1);
	every(0, 96);
	simulate(1, BATCH, false, 96);
	near(r.end_s, 12 * 1.8);
	assert_int_equal(r.passes, 12);
	simulate(3, BATCH, false, 96); /* 32 each, in four passes; the first rank needs no messages */
	near(r.end_s, 4 * (1.8 + 0.4));
	near(r.busy_s, 12 * 1.8);
	simulate(4, BATCH, true, 96); /* twelve batches of two images a rank, one after the other */
	near(r.end_s, 12 * (1.2 + 0.1));
	assert_int_equal(r.passes, 48);
}

/* Requests one second apart to two ranks of 1.1 and 1.15 s: who is idle takes them, and nobody waits. */
static void by_turns(void **state)
{
	every(1, 11);
	simulate(2, BATCH, false, 11);
	near(r.p50, 1.1);
	near(r.p99, 1.15);
	near(r.mean, (6 * 1.1 + 5 * 1.15) / 11);
}

/* Random arrivals at one rank of one image a pass: M/D/1, whose mean wait is rho s / (2 (1 - rho)). */
static void random_load(void **state)
{
	const double s = 1.1, rho = 0.7;
	const struct dt_rng g = dt_rng_make(1, DT_RNG_TEST, 0);
	double at = 0;

	for (int i = 0; i < MOST; i++) {
		at -= log(1 - dt_rng_uniform53(&g, (uint64_t)i)) * s / rho;
		ask[i] = (struct dt_sim_ask){.at_s = at};
	}
	simulate(1, 1, false, MOST);
	if (fabs(r.mean / (s + rho * s / (2 * (1 - rho))) - 1) > 0.04)
		fail_msg("%g s on average, not %g", r.mean, s + rho * s / (2 * (1 - rho)));
	near(r.busy_s, s * MOST);
}

enum { ASKS = 2000 };

/* Seconds of a pass over n images by its own program. */
static double pass_of(const struct dt_serve_query *q, int n)
{
	const struct dt_work_serving s = {.config = &q->config,
					  .compute = DT_BF16,
					  .tp = 1,
					  .rows = n,
					  .outputs = n,
					  .weight_bits = 16};
	const struct dt_device d = dt_device_for(q->cluster, 1, DT_BF16);
	struct dt_work w;
	double seconds = 0;

	assert_int_equal(dt_work_open_serving(&s, &w, NULL), 0);
	for (int k = 0; k < w.unit[w.layers + 1].first + w.unit[w.layers + 1].n; k++)
		seconds += dt_node_seconds(&d, &w.node[k].cost);
	dt_work_release(&w);
	return seconds;
}

static void plans(void **state)
{
	static struct dt_serve_query q = {.room = 76ull << 30,
					  .rate = 20000,
					  .ttft_s = 0.01,
					  .weights = DT_WF_BF16,
					  .ask = ask,
					  .nask = ASKS};
	struct dt_image_plan p[DT_IMAGE_PLANS];
	struct dt_cluster h100;
	int n, alone = 0, met = 0;

	assert_int_equal(dt_cluster_device("h100", &h100, NULL), 0);
	assert_int_equal(dt_config_find_preset("resnet-50", &q.config), 0);
	q.cluster = &h100;
	every(1 / q.rate, ASKS);
	n = dt_image_plans(&q, p, NULL);
	assert_true(n >= 8);
	for (int i = 0; i < n; i++) {
		assert_true(p[i].fits && p[i].sim.passes > 0);
		near(p[i].pass_s,
		     pass_of(&q, p[i].data ? (p[i].batch + p[i].ranks - 1) / p[i].ranks : p[i].batch));
		if (p[i].meets) {
			met++;
			assert_true(p[i].sim.p99 <= q.ttft_s && p[i].images_per_s >= q.rate * 0.9);
			if (i > 0)
				assert_true(p[i - 1].meets && p[i - 1].ranks <= p[i].ranks);
		}
		if (!p[i].data && p[i].batch == 1) { /* a rank alone does pass_s each: so many are needed */
			alone = p[i].ranks;
			assert_in_range(alone, (int)(q.rate * p[i].pass_s),
					2 * (int)(q.rate * p[i].pass_s) + 2);
		}
		assert_true(!p[i].data || p[i].ranks > 1); /* of one rank it is the same as requests */
	}
	assert_true(met > 2 && p[0].ranks < alone);
	q.devices = p[0].ranks - 1 > 0 ? p[0].ranks - 1 : 1;
	q.rate *= 50;
	every(1 / q.rate, ASKS);
	n = dt_image_plans(&q, p, NULL);
	assert_true(n > 0 && !p[0].meets);
	q.weights = DT_WF_Q8_0;
	assert_int_equal(dt_image_plans(&q, p, NULL), -ENOTSUP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(constant_load),
		cmocka_unit_test(by_turns),
		cmocka_unit_test(random_load),
		cmocka_unit_test(plans),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
