/*
 * --recompute auto: what is given up first against every subset of what could be, weighed apart from the
 * library by a roofline of our own; a plan that was asked to fit does, with no more given up than it takes.
 */
#include "plan/again.h"

#include "plan/cluster.h"
#include "plan/memory.h"
#include "plan/work.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct dt_run run_of(const char *model, struct dt_config *c, const char *layout)
{
	struct dt_run r = {.config = c,
			   .microbatch = 1,
			   .seq = 512,
			   .accumulation = 1,
			   .compute = DT_BF16,
			   .optim.kind = DT_OPTIM_ADAMW,
			   .pipeline = DT_PIPE_1F1B};

	assert_int_equal(dt_config_find_preset(model, c), 0);
	assert_int_equal(dt_layout_parse(layout, &r.layout, NULL), 0);
	return r;
}

/* Bytes kept by, and seconds again of, a layer in the middle; 1 TFLOP/s and 1 GB/s of memory, no links. */
static void weigh(const struct dt_run *r, int ranks, double *bytes, double *seconds)
{
	struct dt_run of = *r;
	struct dt_work w;

	of.recompute.fit = 1;
	of.recompute.layers = 1;
	of.recompute.steps = ranks;
	assert_int_equal(dt_work_open_rank(&of, &w, NULL), 0);
	*bytes = w.unit[w.layers].kept;
	*seconds = 0;
	for (int i = w.unit[w.layers].first; i < w.unit[w.layers].first + w.unit[w.layers].n; i++)
		if (w.node[i].again)
			*seconds += fmax(w.node[i].cost.flops / 1e12,
					 (w.node[i].cost.read + w.node[i].cost.written) / 1e11);
	dt_work_release(&w);
}

static void machine(struct dt_cluster *c)
{
	assert_int_equal(dt_cluster_device("H100", c, NULL), 0);
	c->device.peak_flops = 1e12;
	c->device.mem_bw = 1e11;
	c->device.matmul_eff = c->device.mem_eff = c->device.attention_eff = 1;
	c->device.op_s = 0;
}

/* Each way of giving up so much is at most a tenth slower than the fastest that frees as much or more. */
static void order_is_near_the_best(void **state)
{
	static const char *const models[] = {"gpt2-124m", "llama-2-7b", "qwen3-8b"};

	for (size_t m = 0; m < sizeof(models) / sizeof(*models); m++) {
		struct dt_config c;
		struct dt_run r = run_of(models[m], &c, "dp1"), any;
		struct dt_cluster h;
		int ranks, groups = 0, of[DT_KEEP_VALUES];
		double none, s, *bytes, *seconds, worst = 0;

		machine(&h);
		r.recompute.fit = 1;
		assert_int_equal(dt_again_order(&r, &h, &ranks, NULL), 0);
		assert_true(ranks > 3);
		weigh(&r, 0, &none, &s);
		assert_true(s == 0);
		for (int i = 0; i < r.recompute.nvalue; i++) { /* what was chosen together stays together */
			assert_true(r.recompute.value[i].rank >= 0 && r.recompute.value[i].rank < ranks);
			of[i] = r.recompute.value[i].rank;
			groups = of[i] >= groups ? of[i] + 1 : groups;
		}
		assert_int_equal(groups, ranks);
		bytes = calloc((size_t)1 << groups, sizeof(*bytes));
		seconds = calloc((size_t)1 << groups, sizeof(*seconds));
		any = r;
		for (int set = 0; set < 1 << groups; set++) {
			for (int i = 0; i < any.recompute.nvalue; i++)
				any.recompute.value[i].rank = set >> of[i] & 1 ? 0 : INT_MAX;
			weigh(&any, 1, &bytes[set], &seconds[set]);
		}
		for (int k = 1; k <= ranks; k++) {
			int chosen = (1 << k) - 1;
			double best = INFINITY;

			for (int set = 1; set < 1 << groups; set++)
				if (bytes[set] <= bytes[chosen] && seconds[set] < best)
					best = seconds[set];
			worst = fmax(worst, seconds[chosen] / best);
			assert_true(bytes[chosen] < (k > 1 ? bytes[chosen >> 1] : none) || k == ranks);
		}
		print_message("%s: %d ranks, at most %.3f of the best\n", models[m], ranks, worst);
		if (worst > 1.1)
			fail_msg("%s: %.3f times as slow as the best choice", models[m], worst);
		free(bytes);
		free(seconds);
	}
}

/* The first to go is cheap: no product is computed again as long as there is anything else. */
static void passes_go_first(void **state)
{
	struct dt_config c;
	struct dt_run r = run_of("llama-2-7b", &c, "tp2.s1");
	int ranks, first_product = INT_MAX;
	struct dt_cluster h;

	assert_int_equal(dt_again_machine(&r, &h, NULL), 0);
	r.recompute.fit = 1;
	assert_int_equal(dt_again_order(&r, &h, &ranks, NULL), 0);
	for (int i = 0; i < r.recompute.nvalue; i++)
		if (r.recompute.value[i].op == DT_OP_LINEAR && r.recompute.value[i].rank < first_product)
			first_product = r.recompute.value[i].rank;
	for (int i = 0; i < r.recompute.nvalue; i++)
		if (r.recompute.value[i].op == DT_OP_GATED)
			assert_true(r.recompute.value[i].rank < first_product);
}

/* A plan fits into what it was asked to, uses nearly all of it, and less room never computes less again. */
static void plans_fit(void **state)
{
	struct dt_config c;
	struct dt_run r = run_of("llama-2-7b", &c, "tp4.s1");
	struct dt_memory_plan p;
	uint64_t none, full;
	int before = -1;

	assert_int_equal(dt_memory_plan(&r, (struct dt_coords){0}, &p, NULL), 0);
	none = p.arena_bytes;
	dt_memory_plan_release(&p);
	r.recompute.mode = DT_RECOMPUTE_FULL;
	assert_int_equal(dt_memory_plan(&r, (struct dt_coords){0}, &p, NULL), 0);
	full = p.arena_bytes;
	dt_memory_plan_release(&p);
	r.recompute.mode = DT_RECOMPUTE_NONE;
	for (int percent = 0; percent <= 100; percent += 10) {
		r.recompute.fit = none - (none - full) * (uint64_t)percent / 100;
		assert_int_equal(dt_memory_plan(&r, (struct dt_coords){0}, &p, NULL), 0);
		assert_true(p.arena_bytes <= r.recompute.fit);
		assert_true(r.recompute.fit - p.arena_bytes < (none - full) / 20);
		assert_true(p.recompute.steps >= before);
		assert_true((percent == 0) == (p.recompute.steps == 0));
		before = p.recompute.steps;
		dt_memory_plan_release(&p);
	}
	r.recompute.fit = full - (none - full);
	assert_int_equal(dt_memory_plan(&r, (struct dt_coords){0}, &p, NULL), -ENOSPC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(order_is_near_the_best),
					   cmocka_unit_test(passes_go_first), cmocka_unit_test(plans_fit)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
