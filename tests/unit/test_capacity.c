/*
 * Servers on paper: the simulated scheduler against traces worked out by hand, and the clock against the
 * times of single phases.
 */
#include "capacity_check.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* A step takes a second, and a tenth for each of its tokens; over stages, what stage_s says of each. */
struct pace {
	double sum;
	int steps, rows, fail_at; /* fail_at: the step that cannot be said, 0: none */
	int stages;		  /* 0: one */
	double stage_s[DT_FLOW_STAGES];
};

static int step_s(void *arg, bool prefill, const struct dt_sched_item *items, int n, struct dt_flow *ret,
		  struct dt_err *err)
{
	struct pace *p = arg;
	double t = 1;

	for (int i = 0; i < n; i++) {
		t += 0.1 * items[i].n;
		p->rows += items[i].n;
	}
	p->sum += t;
	*ret = (struct dt_flow){.stages = p->stages ? p->stages : 1, .parts = 1, .part_s = {{t}}};
	for (int i = 0; i < p->stages; i++)
		ret->part_s[0][i] = p->stage_s[i];
	return ++p->steps == p->fail_at ? dt_err_set(err, -ENOMEM, "as planned") : 0;
}

static double move_s(void *arg, int n)
{
	return 0.01 * n;
}

/* Of the newest simulation. */
static struct pace pace;
static struct dt_sim_answer a[100];
static struct dt_sim_report r;

static struct dt_sim_params server_of(void)
{
	return (struct dt_sim_params){.servers = 1,
				      .max_seqs = 4,
				      .max_tokens = 8,
				      .nblocks = 64,
				      .block_size = 4,
				      .step_s = step_s,
				      .move_s = move_s,
				      .arg = &pace};
}

static void simulate(const struct dt_sim_params *p, const struct dt_sim_ask *ask, int n)
{
	pace = (struct pace){0};
	assert_int_equal(dt_simulate(p, ask, n, a, &r, NULL), 0);
}

static void by_hand(void **state)
{
	/*
	 * One prompt of 10 tokens at 0, one of 2 at 0.5, two tokens each; 8 tokens a step.
	 * 0.0 .. 1.8  8 of a
	 * 1.8 .. 3.2  2 of a, 2 of b: both have their first token
	 * 3.2 .. 4.4  one each: both have their second
	 */
	const struct dt_sim_ask ask[] = {{0, 10, 2}, {0.5, 2, 2}};
	const struct dt_sim_params p = server_of();

	simulate(&p, ask, 2);
	near(a[0].first_s, 3.2);
	near(a[1].first_s, 3.2);
	near(a[0].end_s, 4.4);
	near(a[1].end_s, 4.4);
	near(r.ttft_p50, 2.7);
	near(r.ttft_p99, 3.2);
	near(r.tpot_p99, 1.2);
	assert_int_equal(r.steps, 3);
	assert_int_equal(pace.rows, 10 + 2 + 2); /* the last token of each is not computed */
	assert_int_equal(r.output_tokens, 4);
	near(r.busy_s, pace.sum);
	near(r.end_s, pace.sum); /* it was never idle: the clock is the sum of its steps */
}

/* With limits a simulation stops once a percentile must exceed one, and else says the same as without. */
static void stops_at_a_limit(void **state)
{
	struct dt_sim_ask ask[100];
	struct dt_sim_params p = server_of();
	struct dt_sim_report whole;

	for (int i = 0; i < 100; i++)
		ask[i] = (struct dt_sim_ask){i * 0.5, 4, 40};
	ask[99].prompt = 1000; /* refused: 64 blocks of 4 tokens */
	simulate(&p, ask, 100);
	whole = r;
	assert_int_equal(whole.refused, 1);
	p.ttft_s = whole.ttft_p99;
	p.tpot_s = whole.tpot_p99;
	simulate(&p, ask, 100);
	assert_memory_equal(&r, &whole, sizeof(r));
	p.ttft_s = whole.ttft_p99 / 2;
	simulate(&p, ask, 100);
	assert_true(r.stopped && isinf(r.ttft_p99) && isinf(r.tpot_p99));
	assert_int_equal(r.refused, 1); /* though it stopped before the last arrival */
	assert_true(r.steps < whole.steps);
	p.ttft_s = 0;
	p.tpot_s = whole.tpot_p50 / 2;
	simulate(&p, ask, 100);
	assert_true(r.stopped && r.steps < whole.steps / 2);
}

static void idle_between(void **state)
{
	const struct dt_sim_ask ask[] = {{1, 4, 1}, {100, 4, 1}};
	const struct dt_sim_params p = server_of();

	simulate(&p, ask, 2);
	near(a[0].end_s, 1 + 1.4);
	near(a[1].end_s, 100 + 1.4);
	near(r.busy_s, 2.8);
	near(r.tpot_p99, 0); /* there is no second token */
}

static void two_servers(void **state)
{
	/* The third goes to the one that is empty again: the second, whose answer has one token. */
	const struct dt_sim_ask ask[] = {{0, 4, 9}, {0, 4, 1}, {1.5, 4, 1}, {1.6, 4, 1}, {99, 4, 1}};
	struct dt_sim_params p = server_of();

	p.servers = 2;
	simulate(&p, ask, 5);
	assert_int_equal(a[0].server, 0);
	assert_int_equal(a[1].server, 1);
	assert_int_equal(a[2].server, 1);
	assert_int_equal(a[3].server, 0); /* each has one unfinished, the first has had fewer */
	assert_int_equal(a[4].server, 0); /* both are idle and have had two */
	near(a[1].end_s, 1.4);
	near(a[2].end_s, 2.9);
}

static void apart(void **state)
{
	/*
	 * 10 tokens in blocks of 4. The prefill server: 8 tokens to 1.8, 2 to 3.0; they move in 0.02.
	 * Two whole blocks of the first nine tokens are adopted: the other server computes 2 tokens to
	 * 4.22, and one more. A short prompt stays where its answer is.
	 */
	const struct dt_sim_ask ask[] = {{0, 10, 2}, {20, 3, 1}};
	struct dt_sim_params p = server_of();

	p.prefill = 1;
	p.prefill_min = 4;
	simulate(&p, ask, 2);
	near(a[0].first_s, 3.02 + 1.2);
	near(a[0].end_s, 3.02 + 1.2 + 1.1);
	near(a[1].end_s, 20 + 1.3);
	assert_int_equal(r.moved, 1);
	assert_int_equal(pace.rows, 10 + 2 + 1 + 3);
	assert_int_equal(r.prefix_hits, 0); /* what has moved is none */
}

static void shared_blocks(void **state)
{
	static const int64_t x[] = {7, 8}, y[] = {7, 9};
	const struct dt_sim_ask ask[] = {{0, 16, 1, x, 2, 8}, {10, 16, 1, y, 2, 8}, {20, 16, 1, x, 2, 8}};
	struct dt_sim_params p = server_of();

	p.max_tokens = 16;
	simulate(&p, ask, 3);
	near(a[0].end_s, 2.6);
	near(a[1].end_s, 10 + 1.8); /* half is in the cache */
	near(a[2].end_s, 20 + 1.4); /* all but the last block, whose last token is computed in any case */
	assert_int_equal(r.prefix_hits, 8 + 12);
	assert_int_equal(r.prompt_tokens, 48);
}

static void refused_and_failed(void **state)
{
	const struct dt_sim_ask ask[] = {{0, 1000, 1}, {0, 10, 3}, {0, 10, 3}},
				late[] = {{1, 1, 1}, {0, 1, 1}};
	struct pace breaks = {.fail_at = 2};
	struct dt_sim_params p = server_of();
	struct dt_err err = {0};

	p.prefill = 1;
	simulate(&p, ask, 3);
	assert_int_equal(r.refused, 1);
	assert_int_equal(r.done, 2);
	assert_true(a[0].end_s < 0);
	p.arg = &breaks;
	assert_int_equal(dt_simulate(&p, ask, 3, a, &r, &err), -ENOMEM);
	assert_string_equal(err.msg, "as planned");
	assert_int_equal(dt_simulate(&p, late, 2, a, &r, NULL), -EINVAL);
	p.servers = 0;
	assert_int_equal(dt_simulate(&p, ask, 3, a, &r, NULL), -EINVAL);
}

/*
 * Over so many stages of these seconds, n requests of a one-token prompt and `out` tokens at a time;
 * until all have ended.
 */
static void on_stages(int stages, const double *s, int n, int out)
{
	struct dt_sim_ask ask[5];
	struct dt_sim_params p = server_of();

	pace = (struct pace){.stages = stages};
	memcpy(pace.stage_s, s, (size_t)stages * sizeof(*s));
	for (int i = 0; i < n; i++)
		ask[i] = (struct dt_sim_ask){0, 1, out};
	p.stages = stages;
	p.nblocks = 1024;
	assert_int_equal(dt_simulate(&p, ask, n, a, &r, NULL), 0);
	assert_int_equal(r.done, n);
}

/*
 * Constant load: n sequences over as many stages, each in a step of its own. A sequence gets a token every
 * max(sum of stages, n x the slowest stage) seconds, whatever stage that is.
 */
static void steps_under_way(void **state)
{
	static const double s[][4] = {
		{1, 1, 1, 1}, {3, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 1, 5}, {0.5, 3, 0.25, 3}};

	for (size_t k = 0; k < sizeof(s) / sizeof(*s); k++)
		for (int stages = 1; stages <= 4; stages++)
			for (int n = 1; n <= stages; n++) {
				double sum = 0, most = 0;

				for (int i = 0; i < stages; i++) {
					sum += s[k][i];
					most = fmax(most, s[k][i]);
				}
				on_stages(stages, s[k], n, 201);
				if (fabs(r.tpot_p99 / fmax(sum, n * most) - 1) > 0.03)
					fail_msg("%d sequences over %d stages: %g s a token, not %g", n,
						 stages, r.tpot_p99, fmax(sum, n * most));
			}
}

/*
 * By hand: two requests at 0 over stages of 1 and 2 seconds. The one who plans computes the first stage:
 * 0 .. 1  a's first step; 1 .. 3 its second stage
 * 1 .. 2  b's; 3 .. 5 its second stage, which waits for a
 * 3       a's first token, 3 .. 4 its next step, 5 .. 7 the second stage
 */
static void stages_by_hand(void **state)
{
	static const double s[] = {1, 2};
	const struct dt_sim_ask ask[] = {{0, 1, 2}, {0.5, 1, 2}};
	struct dt_sim_params p = server_of();

	pace = (struct pace){.stages = 2, .stage_s = {1, 2}};
	p.stages = 2;
	assert_int_equal(dt_simulate(&p, ask, 2, a, &r, NULL), 0);
	near(a[0].first_s, 3);
	near(a[1].first_s, 5);
	near(a[0].end_s, 7);
	near(a[1].end_s, 9);
	near(r.busy_s, 4 * 1.5);
	on_stages(2, s, 4, 3); /* two in a step */
	assert_int_equal(r.steps, 6);
	p.stages = DT_FLOW_STAGES + 1;
	assert_int_equal(dt_simulate(&p, ask, 2, a, &r, NULL), -EINVAL);
}

/* A cache's blocks take no memory until they are used: 64 servers with 2^20 each would take 5 GB. */
static void large_caches(void **state)
{
	struct dt_sim_ask ask[100];
	struct dt_sim_params p = server_of();
	struct rusage use;
	int64_t steps;

	/* As dt-plan does; and a test runner's MALLOC_PERTURB_ would write to all memory. */
	mallopt(M_MMAP_THRESHOLD, 64 << 10);
	mallopt(M_PERTURB, 0);
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	for (int i = 0; i < 100; i++)
		ask[i] = (struct dt_sim_ask){0.1 * i, 20, 5};
	p.servers = 63;
	p.prefill = 1;
	p.prefill_min = 10;
	simulate(&p, ask, 100);
	steps = r.steps;
	p.nblocks = 1 << 20;
	simulate(&p, ask, 100);
	assert_int_equal(r.steps, steps);
	assert_int_equal(r.done, 100);
	getrusage(RUSAGE_SELF, &use);
	assert_in_range(use.ru_maxrss, 0, 2 << 20); /* KiB */
}

static void ranks(void **state)
{
	const double v[] = {1, 2, 3, 4};

	near(dt_sim_rank(v, 4, 0.5), 2);
	near(dt_sim_rank(v, 4, 0.99), 4);
	near(dt_sim_rank(v, 4, 0), 1);
	near(dt_sim_rank(v, 0, 0.5), 0);
}

/* ---- the clock ---- */

/* A step that only decodes, and a prompt alone, are what the times of these phases say. */
static void clock_of_phases(void **state)
{
	static const char *const models[] = {"llama-3-8b", "mixtral-8x7b", "gemma-3-4b"};
	struct dt_cluster h100;

	assert_int_equal(dt_cluster_device("h100", &h100, NULL), 0);
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
		for (int tp = 1; tp <= 4; tp *= 4) {
			struct dt_config m;
			struct dt_serve_site s = {&h100, &m, tp, 1, 1, 1, 16, 16, 2048};
			struct dt_serve_span decode[24], prompt = {0, 1536};
			struct dt_serve_clock *c;
			double want;

			assert_int_equal(dt_config_find_preset(models[i], &m), 0);
			assert_int_equal(dt_serve_clock_open(&s, &c, NULL), 0);
			for (int k = 0; k < 24; k++)
				decode[k] = (struct dt_serve_span){2999, 1};
			assert_int_equal(dt_decode_time(&h100, &m, tp, 24, 3000, 16, 16, &want, NULL), 0);
			near(pass(c, decode, 24), want);
			assert_int_equal(dt_prefill_time(&h100, &m, tp, 1536, 16, &want, NULL), 0);
			if (fabs(pass(c, &prompt, 1) / want - 1) > 0.01)
				fail_msg("%s: a prompt takes %g s, not %g", models[i], pass(c, &prompt, 1),
					 want);
			dt_serve_clock_close(c);
		}
}

static void clock_of_mixtures(void **state)
{
	struct dt_cluster h100;
	struct dt_config m;
	struct dt_serve_site s = {&h100, &m, 1, 1, 1, 1, 16, 16, 1024};
	struct dt_serve_span one[] = {{500, 1}, {0, 1000}}, late = {7000, 1000}, few[] = {{500, 1}, {0, 100}};
	struct dt_serve_clock *c, *c2;
	struct dt_flow t;
	struct dt_err err = {0};
	double decode, prompt, both;

	assert_int_equal(dt_cluster_device("h100", &h100, NULL), 0);
	assert_int_equal(dt_config_find_preset("llama-3-8b", &m), 0);
	assert_int_equal(dt_serve_clock_open(&s, &c, NULL), 0);
	decode = pass(c, one, 1);
	prompt = pass(c, one + 1, 1);
	both = pass(c, one, 2);
	assert_true(both > prompt && both < prompt + decode); /* the weights are read once */
	assert_true(pass(c, &late, 1) > prompt);	      /* it sees more keys */
	assert_true(dt_serve_clock_pass(c, &(struct dt_serve_span){0, 1025}, 1, &t, &err) < 0);
	assert_non_null(strstr(err.msg, "1025 rows"));
	s.pp = 2;
	assert_int_equal(dt_serve_clock_open(&s, &c2, NULL), 0);
	near(pass(c2, few, 2), pass(c, few, 2) + dt_message_time(&h100, 101.0 * 4096 * 2, 1));
	assert_int_equal(dt_serve_clock_pass(c2, few, 2, &t, NULL), 0);
	near(t.part_s[0][0] + t.part_s[0][1], pass(c, few, 2)); /* each layer once, in one part */
	assert_int_equal(t.parts, 1);
	if (fabs(t.part_s[0][1] - t.part_s[0][0]) > pass(c, few, 2) / 32) /* the head stands for layers */
		fail_msg("the first stage takes %g s, the last %g", t.part_s[0][0], t.part_s[0][1]);
	assert_true(dt_serve_clock_move(c, 2000) > dt_serve_clock_move(c, 1000));
	dt_serve_clock_close(c);
	dt_serve_clock_close(c2);
}

/* On processors 1001 rows go in eight parts: the last stage begins behind an eighth of the first's work. */
static void clock_of_parts(void **state)
{
	struct dt_cluster cpu;
	struct dt_config m;
	struct dt_serve_site s = {&cpu, &m, 1, 1, 1, 1, 16, 16, 1024};
	struct dt_serve_span one[] = {{500, 1}, {0, 1000}};
	struct dt_serve_clock *c;
	struct dt_flow t;
	double sum = 0;

	assert_int_equal(dt_cluster_device("cpu", &cpu, NULL), 0);
	assert_int_equal(dt_cluster_arrange(&cpu, 2, 2, DT_TOPO_SINGLE, 0, 1, 16, NULL), 0);
	assert_int_equal(dt_config_find_preset("llama-3-8b", &m), 0);
	s.pp = 2;
	assert_int_equal(dt_serve_clock_open(&s, &c, NULL), 0);
	assert_int_equal(dt_serve_clock_pass(c, one, 2, &t, NULL), 0);
	assert_int_equal(t.parts, 8);
	for (int i = 0; i < t.parts; i++)
		sum += t.part_s[i][0] + t.part_s[i][1];
	if (fabs(dt_flow_alone(&t) / (dt_flow_slowest(&t) + sum / 16) - 1) > 0.02)
		fail_msg("%g s over two stages, not a part of 16 of %g behind %g", dt_flow_alone(&t), sum,
			 dt_flow_slowest(&t));
	dt_serve_clock_close(c);
}

/* Decoding reads experts: of those a rank keeps half, and more of that half are met by the rows of both. */
static void clock_of_shared_experts(void **state)
{
	struct dt_cluster h100;
	struct dt_config m;
	struct dt_serve_site s = {&h100, &m, 1, 1, 1, 1, 16, 16, 64};
	struct dt_serve_span span[32];
	double alone, shared[2];
	struct dt_serve_clock *c;

	assert_int_equal(dt_cluster_device("h100", &h100, NULL), 0);
	assert_int_equal(dt_config_find_preset("mixtral-8x7b", &m), 0);
	for (int i = 0; i < 32; i++)
		span[i] = (struct dt_serve_span){500, 1};
	assert_int_equal(dt_serve_clock_open(&s, &c, NULL), 0);
	alone = pass(c, span, 32); /* all experts are met */
	dt_serve_clock_close(c);
	for (int k = 0; k < 2; k++) {
		s.ep = 4 << k;
		assert_int_equal(dt_serve_clock_open(&s, &c, NULL), 0);
		shared[k] = pass(c, span, 32);
		dt_serve_clock_close(c);
	}
	/* 45.1 of 46.7 billion parameters are experts'; two messages a layer are left */
	assert_true(shared[0] > alone * 0.25 && shared[0] < alone * 0.45);
	assert_true(shared[1] > alone * 0.125 && shared[1] < shared[0]);
}

/*
 * Rows shared by the ranks of cp: of a long prompt, whose products are bound by arithmetic, each has half
 * the products and up to three quarters of the pairs of attention, and one message a layer is left: the
 * closed form.
 */
static void clock_of_shared_rows(void **state)
{
	struct dt_cluster h100;
	struct dt_config m;
	struct dt_serve_site s = {&h100, &m, 1, 1, 1, 1, 16, 16, 16384};
	struct dt_serve_span prompt = {0, 16384}, second = {8192, 8192}, one = {5000, 1};
	struct dt_serve_clock *c, *c2;
	double gather;

	assert_int_equal(dt_cluster_device("h100", &h100, NULL), 0);
	assert_int_equal(dt_config_find_preset("llama-3-8b", &m), 0);
	assert_int_equal(dt_serve_clock_open(&s, &c, NULL), 0);
	s.cp = 2;
	assert_int_equal(dt_serve_clock_open(&s, &c2, NULL), 0);
	gather = 32 * dt_collective_time(&h100, DT_COLL_ALL_GATHER, 16384.0 * 2 * 8 * 128 * 2, 2, 1);
	if (fabs(pass(c2, &prompt, 1) / (pass(c, &second, 1) + gather) - 1) > 0.02)
		fail_msg("a prompt over two ranks takes %g s, its second half %g and messages %g",
			 pass(c2, &prompt, 1), pass(c, &second, 1), gather);
	assert_true(pass(c2, &prompt, 1) > 0.5 * pass(c, &prompt, 1));
	assert_true(pass(c2, &one, 1) >= pass(c, &one, 1)); /* the first rank alone computes it */
	dt_serve_clock_close(c);
	dt_serve_clock_close(c2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_hand),
		cmocka_unit_test(stops_at_a_limit),
		cmocka_unit_test(idle_between),
		cmocka_unit_test(two_servers),
		cmocka_unit_test(apart),
		cmocka_unit_test(shared_blocks),
		cmocka_unit_test(refused_and_failed),
		cmocka_unit_test(steps_under_way),
		cmocka_unit_test(stages_by_hand),
		cmocka_unit_test(large_caches),
		cmocka_unit_test(ranks),
		cmocka_unit_test(clock_of_phases),
		cmocka_unit_test(clock_of_mixtures),
		cmocka_unit_test(clock_of_parts),
		cmocka_unit_test(clock_of_shared_experts),
		cmocka_unit_test(clock_of_shared_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
