/* Plans of servers: against their neighbours, against dt-serve's memory, and in closed forms. */
#include "capacity_check.h"

#include <malloc.h>
#include <stdlib.h>
#include <sys/prctl.h>

/* Any program's server over two stages holds the weights and the cache of one, each once. */
static void stages_hold_the_whole(void **state)
{
	struct dt_config m;
	uint64_t sum[2][2] = {0}; /* stages in all; weights, cache */

	assert_int_equal(dt_config_find_preset("llama-3-8b", &m), 0);
	for (int pp = 1; pp <= 2; pp++)
		for (int stage = 0; stage < pp; stage++) {
			struct dt_serve_shape s = {.config = &m,
						   .layout = {.dp = 1, .tp = 1, .pp = pp, .cp = 1, .ep = 1},
						   .stage = stage,
						   .weights = DT_WF_BF16,
						   .account = DT_ACCOUNT_GENERIC,
						   .compute = DT_BF16,
						   .max_seqs = 8,
						   .max_len = 4096,
						   .block = 16,
						   .max_tokens = 512};
			struct dt_estimate e;

			assert_int_equal(dt_estimate_serve(&s, &e, NULL), 0);
			for (int i = 0; i < e.n; i++)
				if (e.e[i].cat == DT_MEM_WEIGHTS || e.e[i].cat == DT_EST_CACHE)
					sum[pp - 1][e.e[i].cat == DT_EST_CACHE] += e.e[i].bytes;
			dt_estimate_release(&e);
		}
	assert_int_equal(sum[1][1], sum[0][1]);
	assert_int_equal(sum[0][1], 8ll * 4096 * 32 * 2 * 8 * 128 * 2);
	near((double)sum[1][0] / (double)sum[0][0], 1);
}

enum { ASKS = 300 };

static void one_replica_fewer_misses(void **state)
{
	struct dt_cluster h100;
	struct dt_sim_ask ask[ASKS];
	struct dt_serve_query q = {.cluster = &h100,
				   .room = 76ull << 30,
				   .rate = 60,
				   .prompt = 1000,
				   .output = 60,
				   .ttft_s = 0.25,
				   .tpot_s = 0.02,
				   .max_tokens = 1024,
				   .weights = DT_WF_BF16,
				   .ask = ask,
				   .nask = ASKS};
	struct dt_serve_plan p[DT_SERVE_PLANS], *best = p;
	int n;

	for (int i = 0; i < ASKS; i++) /* in groups of five */
		ask[i] = (struct dt_sim_ask){floor(i / 5.0) * 5 / q.rate, 1000, 60};
	assert_int_equal(dt_cluster_device("h100", &h100, NULL), 0);
	assert_int_equal(dt_config_find_preset("llama-3-8b", &q.config), 0);
	n = dt_serve_plans(&q, p, NULL);
	assert_true(n >= 3);
	assert_true(best->meets && best->sim.ttft_p99 <= q.ttft_s && best->sim.tpot_p99 <= q.tpot_s);
	assert_int_equal(best->sim.done, ASKS);
	assert_true(best->replicas > 1 && best->apart.prefill > 0 && best->apart.prefill < best->replicas);
	assert_int_equal(best->apart.sim.done, ASKS);
	for (int i = 1; i < n; i++) /* fewest devices first */
		assert_true(!p[i].meets ||
			    p[i].tp * p[i].pp * p[i].replicas >= best->tp * best->pp * best->replicas);
	q.devices = best->replicas * best->tp - 1;
	n = dt_serve_plans(&q, p, NULL);
	assert_true(n >= 3);
	assert_false(p[0].meets);
}

static void replicas_share_experts(void **state)
{
	struct dt_cluster h100;
	struct dt_sim_ask ask[ASKS];
	struct dt_serve_query q = {.cluster = &h100,
				   .room = 76ull << 30,
				   .rate = 20,
				   .prompt = 1000,
				   .output = 60,
				   .ttft_s = 1,
				   .tpot_s = 0.05,
				   .max_tokens = 1024,
				   .weights = DT_WF_BF16,
				   .ask = ask,
				   .nask = ASKS};
	struct dt_serve_plan p[DT_SERVE_PLANS];
	int n, met = 0;

	for (int i = 0; i < ASKS; i++)
		ask[i] = (struct dt_sim_ask){i / q.rate, 1000, 60};
	assert_int_equal(dt_cluster_device("h100", &h100, NULL), 0);
	assert_int_equal(dt_config_find_preset("mixtral-8x7b", &q.config), 0);
	n = dt_serve_plans(&q, p, NULL);
	for (int i = 0; i < n; i++) {
		assert_int_equal(p[i].replicas % p[i].ep, 0);
		if (p[i].ep == 8 && p[i].tp == 1) { /* 93.4 GB do not fit, an eighth of the experts does */
			met++;
			assert_true(p[i].fits && p[i].meets);
		} else if (p[i].ep == 1 && p[i].tp == 1 && p[i].pp == 1) {
			met++;
			assert_false(p[i].fits);
		}
	}
	assert_int_equal(met, 2);
}

/* Memory of dt-serve for n sequences; whether they fit, and a step with a token of each keeps TPOT. */
static bool runs(const struct dt_serve_query *q, const struct dt_serve_plan *p, struct dt_serve_clock *c,
		 int64_t seqs, uint64_t *ret_bytes)
{
	struct dt_serve_shape s = {.config = &q->config,
				   .layout = {.dp = 1, .tp = p->tp, .pp = 1, .cp = 1, .ep = 1},
				   .weights = DT_WF_BF16,
				   .account = DT_ACCOUNT_DT,
				   .compute = DT_BF16,
				   .max_seqs = seqs,
				   .max_len = q->prompt + q->output,
				   .block = DT_SERVE_BLOCK,
				   .max_tokens = q->max_tokens};
	struct dt_serve_span span[2048];
	struct dt_estimate e;

	assert_int_equal(dt_estimate_serve(&s, &e, NULL), 0);
	*ret_bytes = e.peak_bytes;
	dt_estimate_release(&e);
	if (seqs > q->max_tokens || *ret_bytes > q->room)
		return false;
	for (int i = 0; i < seqs; i++)
		span[i] = (struct dt_serve_span){(int)(q->prompt + q->output / 2 - 1), 1};
	return pass(c, span, (int)seqs) <= q->tpot_s;
}

static bool enough(const struct dt_serve_query *q, const struct dt_serve_plan *p, struct dt_serve_clock *c,
		   int replicas)
{
	const struct dt_serve_servers s = {.n = replicas, .clock = c};
	struct dt_sim_report of;

	assert_int_equal(dt_serve_trial(q, p, &s, &of, NULL), 0);
	return dt_serve_meets(q, &of);
}

/*
 * One sequence more, or one replica fewer, is too many or too few: for long and short requests, limits of
 * memory, TPOT and tokens, sliding windows (which dt-serve caches whole), and nodes of six devices.
 */
static void plans_are_tight(void **state)
{
	static const struct {
		const char *model;
		int node, prompt, output, max_tokens;
		double rate, tpot_s;
	} of[] = {{"llama-3-8b", 8, 16, 16, 2048, 1000, 0.05},
		  {"llama-3-8b", 8, 1000, 200, 2048, 30, 0.02},
		  {"gemma-3-27b", 2, 20000, 200, 1024, 0.5, 0.1},
		  {"gpt2-124m", 6, 200, 100, 512, 500, 0.05}};
	static struct dt_sim_ask ask[1000];
	static struct dt_serve_plan p[DT_SERVE_PLANS];
	int by_memory = 0, by_tpot = 0, by_tokens = 0, threes = 0;

	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		struct dt_cluster h100;
		struct dt_serve_query q = {.cluster = &h100,
					   .room = 76ull << 30,
					   .rate = of[i].rate,
					   .ttft_s = 8,
					   .tpot_s = of[i].tpot_s,
					   .prompt = of[i].prompt,
					   .output = of[i].output,
					   .max_tokens = of[i].max_tokens,
					   .weights = DT_WF_BF16,
					   .ask = ask,
					   .nask = 1000};
		int n;

		for (int k = 0; k < 1000; k++)
			ask[k] = (struct dt_sim_ask){k / q.rate, of[i].prompt, of[i].output};
		assert_int_equal(dt_cluster_device("h100", &h100, NULL), 0);
		assert_int_equal(
			dt_cluster_arrange(&h100, of[i].node, of[i].node, DT_TOPO_SINGLE, 0, 1, 16, NULL), 0);
		assert_int_equal(dt_config_find_preset(of[i].model, &q.config), 0);
		n = dt_serve_plans(&q, p, NULL);
		assert_true(n > 0 && p[0].meets);
		for (int k = 0; k < n; k++) {
			const struct dt_serve_site site = {&h100, &q.config, p[k].tp,	      1, 1, p[k].cp,
							   16,	  16,	     of[i].max_tokens};
			struct dt_serve_clock *c;
			uint64_t bytes;

			threes += p[k].tp % 3 == 0;
			if (!p[k].meets || p[k].pp > 1)
				continue;
			assert_int_equal(dt_serve_clock_open(&site, &c, NULL), 0);
			assert_true(runs(&q, &p[k], c, p[k].sequences, &bytes));
			assert_int_equal(bytes, p[k].peak_bytes);
			if (runs(&q, &p[k], c, p[k].sequences + 1, &bytes))
				fail_msg("%s tp%d: more than %lld sequences run", of[i].model, p[k].tp,
					 (long long)p[k].sequences);
			by_tokens += p[k].sequences == q.max_tokens;
			by_memory += bytes > q.room;
			by_tpot += p[k].sequences < q.max_tokens && bytes <= q.room;
			assert_true(enough(&q, &p[k], c, p[k].replicas));
			if (p[k].replicas > 1 && enough(&q, &p[k], c, p[k].replicas - 1))
				fail_msg("%s tp%d: fewer than %d replicas suffice", of[i].model, p[k].tp,
					 p[k].replicas);
			dt_serve_clock_close(c);
		}
	}
	assert_true(by_memory > 0 && by_tpot > 0 && by_tokens > 0);
	assert_int_equal(threes, 2); /* 12 heads over three devices, and over six */
}

/* Long prompts within a second: on two devices of a node cp meets what one device does not. */
static void long_prompts_are_shared(void **state)
{
	struct dt_cluster h100;
	struct dt_sim_ask ask[40];
	struct dt_serve_query q = {.cluster = &h100,
				   .room = 76ull << 30,
				   .rate = 0.2,
				   .prompt = 32000,
				   .output = 20,
				   .ttft_s = 1,
				   .tpot_s = 0.5,
				   .max_tokens = 4096,
				   .weights = DT_WF_BF16,
				   .ask = ask,
				   .nask = 40};
	struct dt_serve_plan p[DT_SERVE_PLANS];
	int n, cut = 0;

	for (int i = 0; i < 40; i++)
		ask[i] = (struct dt_sim_ask){i / q.rate, 32000, 20};
	assert_int_equal(dt_cluster_device("h100", &h100, NULL), 0);
	assert_int_equal(dt_config_find_preset("llama-3.1-8b", &q.config), 0);
	n = dt_serve_plans(&q, p, NULL);
	for (int i = 0; i < n; i++) {
		cut += p[i].cp > 1;
		if (p[i].tp == 1 && p[i].pp == 1)
			assert_int_equal(p[i].meets, p[i].cp > 1);
	}
	assert_true(cut >= 4);
	for (int i = 0; i < 40; i++)
		ask[i].prompt = 4000; /* fits a step */
	n = dt_serve_plans(&q, p, NULL);
	for (int i = 0; i < n; i++)
		assert_int_equal(p[i].cp, 1);
}

/*
 * Prompts that a server of their own computes over two ranks, one at a time: the first token comes after the
 * passes of their steps, the way of the last step's keys and values, and a step with the prompt's last tokens
 * where it is answered.
 */
static void prompts_apart_are_shared(void **state)
{
	enum { PROMPT = 10000, STEP = 4096 };
	struct dt_cluster h100;
	struct dt_sim_ask ask[40];
	struct dt_serve_query q = {.cluster = &h100,
				   .room = 76ull << 30,
				   .rate = 0.2,
				   .prompt = PROMPT,
				   .output = 20,
				   .max_tokens = STEP,
				   .ask = ask,
				   .nask = 40};
	struct dt_serve_plan p = {.tp = 1, .pp = 1, .cp = 1, .ep = 1, .sequences = 8, .blocks = 1 << 16};
	struct dt_serve_site s = {&h100, &q.config, 1, 1, 1, 1, 16, 16, STEP};
	struct dt_serve_span last = {PROMPT - 16, 16};
	struct dt_serve_servers servers = {.n = 1, .prefill = 1};
	struct dt_sim_report of[2], *one = of;
	double by_hand = 0;

	for (int i = 0; i < 40; i++)
		ask[i] = (struct dt_sim_ask){i / q.rate, PROMPT, 20};
	assert_int_equal(dt_cluster_device("h100", &h100, NULL), 0);
	assert_int_equal(dt_config_find_preset("llama-3-8b", &q.config), 0);
	assert_int_equal(dt_serve_clock_open(&s, &servers.clock, NULL), 0);
	for (s.cp = 1; s.cp <= 2; s.cp++, one++) {
		assert_int_equal(dt_serve_clock_open(&s, &servers.prompts, NULL), 0);
		assert_int_equal(dt_serve_trial(&q, &p, &servers, one, NULL), 0);
		assert_int_equal(one->moved, 40);
		by_hand = 0;
		for (struct dt_serve_span at = {0, STEP}; at.first < PROMPT; at.first += STEP) {
			at.n = PROMPT - at.first < STEP ? PROMPT - at.first : STEP;
			by_hand += pass(servers.prompts, &at, 1);
		}
		by_hand += dt_serve_clock_move(servers.clock, PROMPT % STEP) + pass(servers.clock, &last, 1);
		if (fabs(one->ttft_p50 / by_hand - 1) > 0.01)
			fail_msg("over %d ranks %g s until the first token, by hand %g", s.cp, one->ttft_p50,
				 by_hand);
		dt_serve_clock_close(servers.prompts);
	}
	assert_true(of[1].ttft_p50 < 0.65 * of[0].ttft_p50);
	near(of[1].tpot_p50, of[0].tpot_p50); /* who decodes shares no rows */
	dt_serve_clock_close(servers.clock);
}

/* On the devices of replicas that share rows, servers for prompts that do beside one that need not. */
static void apart_shares_rows_of_prompts(void **state)
{
	struct dt_cluster h100;
	struct dt_sim_ask ask[60];
	struct dt_serve_query q = {.cluster = &h100,
				   .room = 76ull << 30,
				   .rate = 2.2,
				   .prompt = 32000,
				   .output = 100,
				   .ttft_s = 0.6,
				   .tpot_s = 0.0125,
				   .max_tokens = 4096,
				   .weights = DT_WF_BF16,
				   .ask = ask,
				   .nask = 60};
	struct dt_serve_plan p[DT_SERVE_PLANS], *best = p;

	for (int i = 0; i < 60; i++)
		ask[i] = (struct dt_sim_ask){i / q.rate, 32000, 100};
	assert_int_equal(dt_cluster_device("h100", &h100, NULL), 0);
	assert_int_equal(dt_config_find_preset("llama-3.1-8b", &q.config), 0);
	assert_true(dt_serve_plans(&q, p, NULL) > 0);
	assert_true(best->meets && best->apart.prefill > 0 && best->apart.decode > 0);
	assert_int_equal(best->apart.prefill * best->apart.cp + best->apart.decode,
			 best->replicas * best->cp);
	assert_true(best->apart.cp > 1 &&
		    best->apart.meets); /* whose ranks alone take longer than the limit */
	assert_int_equal(best->apart.sim.moved, 60);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stages_hold_the_whole),	cmocka_unit_test(one_replica_fewer_misses),
		cmocka_unit_test(replicas_share_experts),	cmocka_unit_test(plans_are_tight),
		cmocka_unit_test(long_prompts_are_shared),	cmocka_unit_test(prompts_apart_are_shared),
		cmocka_unit_test(apart_shares_rows_of_prompts),
	};

	/* As dt-plan does; and a test runner's MALLOC_PERTURB_ would write to all memory. */
	mallopt(M_MMAP_THRESHOLD, 64 << 10);
	mallopt(M_PERTURB, 0);
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
