/* Step times against those published, and collectives against closed forms. */
#include "plan/run_cost.h"
#include "plan/search.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* bf16, AdamW, 1f1b; the layout is the caller's to set. */
static struct dt_run run_of(const struct dt_config *c, int64_t microbatch, int64_t accumulation, int64_t seq)
{
	return (struct dt_run){.config = c,
			       .microbatch = microbatch,
			       .accumulation = accumulation,
			       .seq = seq,
			       .compute = DT_BF16,
			       .optim.kind = DT_OPTIM_ADAMW,
			       .pipeline = DT_PIPE_1F1B};
}

/* Korthikanti et al. 2022, tables 3 and 5: seconds an iteration on A100s, all of it recomputed and as they
 * do. */
static void megatron_step_times(void **state)
{
	static const struct {
		const char *model, *layout;
		int64_t microbatch, accumulation;
		double full, present, mfu;
	} cases[] = {
		{"megatron-22b", "tp8", 4, 1, 1.42, 1.10, 0.415},
		{"megatron-175b", "tp8.pp8.v3", 1, 64, 18.13, 13.75, 0.514},
		{"megatron-530b", "tp8.pp35.v3", 1, 280, 49.05, 37.83, 0.560},
		{"megatron-1t", "tp8.pp64", 1, 512, 94.42, 71.49, 0.563},
	};
	struct dt_cluster a100;
	double sum = 0;

	assert_int_equal(dt_cluster_device("a100", &a100, NULL), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dt_config c;
		struct dt_run s = run_of(&c, cases[i].microbatch, cases[i].accumulation, 2048);

		assert_int_equal(dt_config_find_preset(cases[i].model, &c), 0);
		assert_int_equal(dt_layout_parse(cases[i].layout, &s.layout, NULL), 0);
		for (int present = 0; present < 2; present++) {
			double published = present ? cases[i].present : cases[i].full, error;
			struct dt_step_time t;

			s.recompute.mode = present ? DT_RECOMPUTE_SELECTIVE : DT_RECOMPUTE_FULL;
			s.layout.seq_parallel = present;
			assert_int_equal(dt_step_time(&a100, &s, &dt_stack_megatron, &t, NULL), 0);
			error = t.step / published - 1;
			sum += fabs(error);
			print_message("%-14s %s: %.2f s, published %.2f (%+.1f%%), mfu %.3f bubble %.3f head "
				      "%.3f tp %.3f\n",
				      cases[i].model, present ? "selective" : "full     ", t.step, published,
				      100 * error, t.mfu, t.bubble, t.head / t.step, t.tp / t.step);
			if (fabs(error) > 0.10)
				fail_msg("%s: %.2f s, published %.2f", cases[i].model, t.step, published);
			if (present && fabs(t.mfu * t.step / published - cases[i].mfu) > 0.0025)
				fail_msg("%s: %.4f of the flops, published %.3f", cases[i].model,
					 t.mfu * t.step / published, cases[i].mfu);
		}
	}
	print_message("mean error %.1f%%\n", 100 * sum / 8);
}

/*
 * Grattafiori et al. 2024, table 4: Llama 3 405B on 8,192 H100s, tp8 pp16 dp64, 16 M tokens a step: 43% MFU.
 */
static void llama_405b(void **state)
{
	struct dt_config c;
	struct dt_cluster h100;
	struct dt_step_time t;
	struct dt_run s = run_of(&c, 1, 32, 8192);

	assert_int_equal(dt_cluster_device("H100", &h100, NULL), 0);
	assert_int_equal(dt_config_find_preset("llama-3.1-405b", &c), 0);
	assert_int_equal(dt_layout_parse("dp64.tp8.pp16.v4.s1", &s.layout, NULL), 0);
	assert_int_equal(dt_step_time(&h100, &s, &dt_stack_dt, &t, NULL), 0);
	if (fabs(t.mfu / 0.43 - 1) > 0.10)
		fail_msg("%.3f of the flops, published 0.43", t.mfu);
	print_message("405B: mfu %.3f, published 0.43\n", t.mfu);
}

/* A copy of the states of the rank before: its share's gradients, in f32, and another update. */
static void peer_copy(void **state)
{
	struct dt_config c;
	struct dt_cluster h100;
	struct dt_step_time without, with;
	struct dt_work w;
	struct dt_run s = run_of(&c, 1, 4, 2048);
	double message, none;

	s.watch.elastic = DT_RUN_ELASTIC_DP;

	assert_int_equal(dt_cluster_device("H100", &h100, NULL), 0);
	assert_int_equal(dt_config_find_preset("llama-2-7b", &c), 0);
	assert_int_equal(dt_layout_parse("dp4.z1", &s.layout, NULL), 0);
	assert_int_equal(dt_step_time(&h100, &s, &dt_stack_dt, &without, NULL), 0);
	s.watch.peer_copy = 1;
	assert_int_equal(dt_step_time(&h100, &s, &dt_stack_dt, &with, NULL), 0);
	assert_int_equal(dt_step_work(&s, &dt_stack_dt, &w, NULL), 0);
	message = dt_message_time(&h100, dt_stage_params(&w, &s.layout, 0, &none) / 4 * 4, 1);
	dt_work_release(&w);
	assert_true(message > 0);
	assert_true(fabs(with.step - without.step - message - without.optimizer) < 1e-9 * with.step);
}

/* Rings on one level, and two levels by hand: inner links first, wider ones with the share that is left. */
static void collectives(void **state)
{
	struct dt_cluster c = {.gpus = 64,
			       .gpus_a_node = 8,
			       .nlevel = 2,
			       .level = {{8, 1e-6, 100e9}, {1 << 30, 10e-6, 10e9}}};
	double n = 1e9, inner = 7 * (1e-6 + n / 8 / 100e9), outer = 3 * (10e-6 + n / 8 / 4 / 10e9);

	assert_float_equal(dt_collective_time(&c, DT_COLL_ALL_REDUCE, n, 8, 1), 2 * inner, 1e-12);
	assert_float_equal(dt_collective_time(&c, DT_COLL_ALL_GATHER, n, 8, 1), inner, 1e-12);
	assert_float_equal(dt_collective_time(&c, DT_COLL_REDUCE_SCATTER, n, 4, 8),
			   3 * (10e-6 + n / 4 / 10e9), 1e-12);
	assert_float_equal(dt_collective_time(&c, DT_COLL_ALL_REDUCE, n, 32, 1), 2 * (inner + outer), 1e-12);
	assert_true(dt_collective_time(&c, DT_COLL_ALL_REDUCE, n, 1, 1) == 0);
	assert_float_equal(dt_message_time(&c, n, 1), 1e-6 + 0.01, 1e-12);
	assert_float_equal(dt_message_time(&c, n, 8), 10e-6 + 0.1, 1e-12);
}

/* Equal stages without messages: the quick guess is the table, and the bubble (p - 1) / (v m + p - 1). */
static void quick_is_the_table(void **state)
{
	struct dt_config c;
	struct dt_cluster cl;

	dt_cluster_device("H100", &cl, NULL);
	cl.level[0].latency_s = cl.level[1].latency_s = 0;
	cl.level[0].bandwidth = cl.level[1].bandwidth = 1e18;
	dt_config_find_preset("llama-2-7b", &c);
	c.vocab = 8; /* a head that costs nothing */
	for (int m = 4; m <= 32; m *= 2) {
		struct dt_run s = run_of(&c, 1, m, 2048);
		struct dt_step_time a, b;
		struct dt_work w;

		dt_layout_parse("pp4", &s.layout, NULL);
		assert_int_equal(dt_step_time(&cl, &s, &dt_stack_dt, &a, NULL), 0);
		assert_int_equal(dt_step_work(&s, &dt_stack_dt, &w, NULL), 0);
		assert_int_equal(dt_step_time_of(&cl, &s, &dt_stack_dt, &w, false, &b, NULL), 0);
		dt_work_release(&w);
		assert_true(fabs(a.step / b.step - 1) < 0.02);
		assert_true(fabs(a.bubble - 3.0 / (m + 3)) < 0.01);
	}
}

/* Young 1974: sqrt(2 save mtbf) where failures are rare; no other interval loses less, rare or not. */
static void checkpoint_interval(void **state)
{
	for (double mtbf = 1e3; mtbf < 1e7; mtbf *= 7) {
		double save = 20, t = dt_checkpoint_interval(save, mtbf),
		       lost = dt_checkpoint_lost(save, mtbf, 0, t);

		assert_true(lost > 0 && lost < 1);
		if (mtbf > 1e5)
			assert_true(fabs(t / sqrt(2 * save * mtbf) - 1) < 0.02);
		for (double f = 0.5; f < 2; f *= 1.1) {
			double other = dt_checkpoint_lost(save, mtbf, 0, f * t);

			assert_true(other > lost - 0.002);
		}
	}
	for (double f = 0.5; f < 2; f *= 1.05) /* failures an hour apart, ten minutes to save */
		assert_true(dt_checkpoint_lost(600, 3600, 0, f * dt_checkpoint_interval(600, 3600)) >
			    dt_checkpoint_lost(600, 3600, 0, dt_checkpoint_interval(600, 3600)) - 1e-5);
}

/* Seconds to the next failure. */
static double draw(uint64_t *seed, double mtbf)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return -mtbf * log(((double)(*seed >> 11) + 0.5) / 9007199254740992.0);
}

/* Failures drawn one by one: a stretch of work and its checkpoint is begun anew until nothing fails in it. */
static void lost_time_is_that_of_a_simulation(void **state)
{
	static const double cases[][4] = {{20, 1000, 0, 180}, {60, 900, 120, 300}, {5, 5000, 600, 900}};
	const int stretches = 40000;
	uint64_t seed = 1;

	for (int k = 0; k < 3; k++) {
		const double save = cases[k][0], mtbf = cases[k][1], restart = cases[k][2],
			     every = cases[k][3];
		double clock = 0, next = draw(&seed, mtbf), lost, want;

		for (int i = 0; i < stretches; i++) {
			double done = clock + every + save;

			while (next < done) { /* restarts fail too */
				done = next + restart + every + save;
				next += draw(&seed, mtbf);
			}
			clock = done;
		}
		lost = 1 - every * stretches / clock;
		want = dt_checkpoint_lost(save, mtbf, restart, every);
		if (fabs(lost - want) > 0.01)
			fail_msg("case %d: %g in a simulation, %g said", k, lost, want);
	}
}

static void money_and_energy(void **state)
{
	const struct dt_run_cost_query q = {.seconds = 7200,
					    .devices = 8,
					    .price = 2.5,
					    .power_w = 700,
					    .mtbf_s = 3600,
					    .save_s = 30,
					    .restart_s = 60,
					    .every_s = 600};
	struct dt_run_cost_query sure = q;
	struct dt_run_cost c = dt_run_cost_of(&q), s;

	sure.mtbf_s = 0;
	s = dt_run_cost_of(&sure);
	assert_true(fabs(s.device_hours - 16) < 1e-12 && fabs(s.money - 40) < 1e-12);
	assert_true(fabs(s.energy_kwh - 11.2) < 1e-12 && s.lost == 0 && s.every_s == 0);
	assert_true(c.every_s == 600 && fabs(c.seconds * (1 - c.lost) - 7200) < 1e-9);
	assert_true(fabs(c.money / s.money - c.seconds / 7200) < 1e-12);
}

/* No plan that was chosen is beaten by one that fits and was not: against judging every one. */
static void search_finds_the_best(void **state)
{
	struct dt_cluster cl;
	struct dt_config model;
	struct dt_plan_query q = {.cluster = &cl,
				  .stack = &dt_stack_dt,
				  .fit.run = {.config = &model, .global_batch = 64},
				  .recompute = -1,
				  .room = 76ull << 30,
				  .dt_train = true};
	struct dt_plan p;
	double best = 1e300;

	dt_cluster_device("H100", &cl, NULL);
	dt_cluster_arrange(&cl, 8, 0, DT_TOPO_SINGLE, 0, 1, 0, NULL);
	dt_config_find_preset("llama-2-7b", &model);
	q.fit.run.seq = 4096;
	q.fit.run.compute = DT_BF16;
	q.fit.run.optim.kind = DT_OPTIM_ADAMW;
	q.fit.run.pipeline = DT_PIPE_1F1B;
	q.fit.account = DT_ACCOUNT_DT;
	assert_int_equal(dt_plan_search(&q, 5, &p, NULL), 0);
	assert_true(p.n == 5);
	for (int pp = 1; pp <= 8; pp *= 2)
		for (int tp = 1; tp * pp <= 8; tp *= 2)
			for (int z = 0; z <= 3; z++)
				for (int r = 0; r < 3; r++)
					for (int mb = 1; mb <= 8; mb *= 2) {
						struct dt_candidate c = {.layout = {.dp = 8 / tp / pp,
										    .tp = tp,
										    .pp = pp,
										    .cp = 1,
										    .ep = 1,
										    .zero = z,
										    .chunks = 1},
									 .microbatch = mb,
									 .recompute = r};

						if ((z && c.layout.dp == 1) || (z >= 2 && pp > 1) ||
						    64 % (mb * c.layout.dp))
							continue;
						if (dt_plan_judge(&q, &c, NULL) == 0 && c.fits &&
						    c.t.step < best)
							best = c.t.step;
					}
	assert_true(p.best[0].t.step <= best * (1 + 1e-12));
	for (int i = 1; i < p.n; i++)
		assert_true(p.best[i].fits && p.best[i].t.step >= p.best[i - 1].t.step);
	dt_plan_release(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(megatron_step_times),
		cmocka_unit_test(llama_405b),
		cmocka_unit_test(peer_copy),
		cmocka_unit_test(collectives),
		cmocka_unit_test(quick_is_the_table),
		cmocka_unit_test(checkpoint_interval),
		cmocka_unit_test(lost_time_is_that_of_a_simulation),
		cmocka_unit_test(money_and_energy),
		cmocka_unit_test(search_finds_the_best),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
