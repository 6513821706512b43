/* Memory numbers against those their authors published (sources in the comments). */
#include "plan/fit.h"
#include "plan/schedule.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GIB 1073741824.0

/* Equal to the digits that were published. */
static void near(double got, double published, double half_digit, const char *what)
{
	if (!(fabs(got - published) <= half_digit * (1 + 1e-9)))
		fail_msg("%s: %.6g, published %.6g", what, got, published);
}

/*
 * Korthikanti et al. 2022: sbh(34 + 5as/h) a layer on one device; table 2 with tensor parallelism;
 * equation 5. GPT-3 (h 12288, a 96, s 2048) has 5as/h = 80, so selective recomputation saves 70% (section 5).
 */
static void megatron_activations(void **state)
{
	double h = 12288, a = 96, s = 2048, sbh = s * h;

	near(5 * a * s / h, 80, 0, "5as/h of GPT-3");
	near(dt_megatron_activation_bytes(h, a, s, 1, 1, false, false, DT_RECOMPUTE_NONE) / sbh, 114, 1e-9,
	     "none");
	near(dt_megatron_activation_bytes(h, a, s, 1, 8, false, false, DT_RECOMPUTE_NONE) / sbh, 10 + 3 + 10,
	     1e-9, "none, t 8");
	near(dt_megatron_activation_bytes(h, a, s, 1, 8, true, false, DT_RECOMPUTE_NONE) / sbh, 114.0 / 8,
	     1e-9, "none, t 8, sequence parallel");
	near(dt_megatron_activation_bytes(h, a, s, 1, 8, true, false, DT_RECOMPUTE_SELECTIVE) / sbh, 34.0 / 8,
	     1e-9, "selective");
	near(1 - 34.0 / 114, 0.70, 0.005, "saved by selective");
	near(dt_megatron_activation_bytes(h, a, s, 1, 8, false, false, DT_RECOMPUTE_FULL) / sbh, 2, 1e-9,
	     "full");
	/* The same as the schedule table that the trainer would execute. */
	for (int pp = 1; pp <= 6; pp++) {
		for (int m = 1; m <= 12; m++) {
			struct dt_schedule t;

			assert_int_equal(dt_schedule_make(DT_PIPE_1F1B, pp, 1, m, &t, NULL), 0);
			for (int i = 0; i < pp; i++)
				assert_int_equal(dt_in_flight(pp, i, m), dt_schedule_in_flight(&t, i, 0));
			dt_schedule_release(&t);
		}
	}
	assert_int_equal(dt_in_flight(8, 0, 100), 8);
	assert_int_equal(dt_in_flight(8, 7, 100), 1);
	assert_int_equal(dt_in_flight(8, 0, 3), 3);
}

/* The formula for any model is the paper's for GPT with f = 4h, in every mode. */
static void megatron_of_any_model(void **state)
{
	static const char *const models[] = {"gpt3-175b", "megatron-22b", "megatron-530b", "gpt2-124m"};

	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		struct dt_config c;

		assert_int_equal(dt_config_find_preset(models[i], &c), 0);
		for (int bits = 0; bits < 24; bits++) {
			int tp = bits & 1 ? 4 : 1, sp = bits >> 1 & 1, flash = bits >> 2 & 1, mode = bits / 8;
			double h = (double)c.hidden, a = (double)c.heads;
			double paper = dt_megatron_activation_bytes(h, a, 2048, 2, tp, sp, flash, mode);
			double any = dt_megatron_layer_bytes(&c, 0, 2048, 2, tp, sp, flash, mode);

			assert_float_equal(any / paper, 1, 1e-12);
		}
	}
}

static struct dt_run shape_of(const struct dt_config *c, const char *layout)
{
	struct dt_run s = {.config = c,
			   .microbatch = 1,
			   .seq = 1024,
			   .compute = DT_BF16,
			   .optim.kind = DT_OPTIM_ADAMW,
			   .recompute = {DT_RECOMPUTE_NONE, 1}};

	if (s.seq > c->max_seq)
		s.seq = c->max_seq;
	assert_int_equal(dt_layout_parse(layout, &s.layout, NULL), 0);
	return s;
}

static uint64_t category(const struct dt_estimate *t, int cat)
{
	uint64_t n = 0;

	for (int i = 0; i < t->n; i++)
		if (t->e[i].cat == cat)
			n += t->e[i].bytes;
	return n;
}

/* The generic account's states are ZeRO's formula, for every stage. */
static void generic_states(void **state)
{
	static const char *const layouts[] = {"dp8", "dp8.z1", "dp8.z2", "dp8.z3"};
	struct dt_config c;

	dt_config_find_preset("llama-2-7b", &c);
	for (int z = 0; z < 4; z++) {
		struct dt_run s = shape_of(&c, layouts[z]);
		struct dt_estimate t;
		double gathered, got;

		assert_int_equal(
			dt_estimate_train(&s, (struct dt_coords){0}, DT_ACCOUNT_GENERIC, NULL, &t, NULL), 0);
		gathered = (double)category(&t, DT_MEM_COMM);
		got = (double)(category(&t, DT_MEM_WEIGHTS) + category(&t, DT_MEM_GRADS) +
			       category(&t, DT_MEM_MASTER) + category(&t, DT_MEM_OPTIM));
		assert_float_equal(got / dt_state_bytes(6738415616, (struct dt_scheme){2, 2, 12}, z, 8), 1,
				   1e-6);
		assert_true((gathered > 0) == (z == 3));
		dt_estimate_release(&t);
	}
}

/*
 * A widely used handbook's account of 7B, bf16 Adam without master weights: weights 14, gradients 14, moments
 * 28, activations 12 GB; forward 54, backward 68 and largest, step 56 GB.
 */
static void phases_of_a_step(void **state)
{
	double w = 14, g = 14, o = 28, act = 12;

	near(dt_state_bytes(7e9, (struct dt_scheme){2, 0, 4}, 0, 1) / 1e9 + act, 54, 1e-9, "forward");
	near(dt_state_bytes(7e9, (struct dt_scheme){2, 2, 4}, 0, 1) / 1e9 + act, 68, 1e-9, "backward");
	near(dt_state_bytes(7e9, (struct dt_scheme){2, 2, 4}, 0, 1) / 1e9, 56, 1e-9, "step");
	near(w + g + o, 56, 0, "step");
	/* Ours: gradients of the generic account do not count in forward, activations not in the step. */
	struct dt_config c;
	struct dt_estimate t;
	struct dt_run s;

	dt_config_find_preset("llama-2-7b", &c);
	s = shape_of(&c, "dp1");
	assert_int_equal(dt_estimate_train(&s, (struct dt_coords){0}, DT_ACCOUNT_GENERIC, NULL, &t, NULL), 0);
	assert_int_equal(t.peak, DT_PH_BACKWARD);
	assert_true(t.phase_bytes[DT_PH_BACKWARD] >=
		    t.phase_bytes[DT_PH_FORWARD] + category(&t, DT_MEM_GRADS));
	assert_true(t.phase_bytes[DT_PH_STEP] ==
		    category(&t, DT_MEM_WEIGHTS) + category(&t, DT_MEM_GRADS) + category(&t, DT_MEM_MASTER) +
			    category(&t, DT_MEM_OPTIM) + category(&t, DT_EST_ROUNDING));
	dt_estimate_release(&t);
}

/* The account dt is the memory plan, entry by entry. */
static void account_dt_is_the_plan(void **state)
{
	static const char *const layouts[] = {"dp1", "tp2", "pp2", "pp3.dp2.z1", "dp2.z2", "dp4.tp2.z3"};
	struct dt_config c;

	dt_config_find_preset("llama-tiny", &c);
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		struct dt_run s = shape_of(&c, layouts[i]);
		struct dt_memory_plan p;
		struct dt_estimate t;

		assert_int_equal(dt_memory_plan(&s, (struct dt_coords){0}, &p, NULL), 0);
		assert_int_equal(dt_estimate_train(&s, (struct dt_coords){0}, DT_ACCOUNT_DT, NULL, &t, NULL),
				 0);
		assert_int_equal(t.n, p.n);
		assert_int_equal(t.peak_bytes, p.arena_bytes);
		for (int k = 0; k < DT_PH_N; k++)
			assert_int_equal(t.phase_bytes[k], p.phase_bytes[k]);
		for (int k = 0; k < DT_MEM_CAT_N; k++)
			assert_int_equal(t.cat_bytes[k], p.cat_bytes[k]);
		for (int k = 0; k < t.n; k++)
			assert_true(t.e[k].exactness == DT_EXACT && t.e[k].bytes == p.buf[k].bytes);
		dt_estimate_release(&t);
		dt_memory_plan_release(&p);
	}
}

/* The plan's own numbers, from the model's sizes alone: GPT-2 124M, one rank, bf16, AdamW, 4 x 1024 tokens */
static void plan_of_gpt2(void **state)
{
	struct dt_config c;
	struct dt_run s;
	struct dt_estimate t;
	uint64_t n = 124439808, tok = 4096, per_token;

	dt_config_find_preset("gpt2-124m", &c);
	s = shape_of(&c, "dp1");
	s.microbatch = 4;
	assert_int_equal(dt_estimate_train(&s, (struct dt_coords){0}, DT_ACCOUNT_DT, NULL, &t, NULL), 0);
	assert_int_equal(t.params, n);
	/* 768 and 3072 are multiples of 32: padding is only that of the embedding's 50257 x 768, none. */
	assert_int_equal(category(&t, DT_MEM_WEIGHTS), 2 * n);
	assert_int_equal(category(&t, DT_MEM_MASTER), 4 * n);
	assert_int_equal(category(&t, DT_MEM_GRADS), 4 * n);
	assert_int_equal(category(&t, DT_MEM_OPTIM), 8 * n);
	/* resid, norm1, attn, resid2, norm2: 768; qkv 2304; up, act 3072, 2 bytes; 12 + 4 f32 statistics */
	per_token = 2 * (5 * 768 + 2304 + 2 * 3072) + 4 * (12 + 4);
	assert_int_equal(category(&t, DT_MEM_ACTIVATIONS), tok * (12 * per_token + 2 * 2 * 768 + 2 * 4));
	dt_estimate_release(&t);
}

/*
 * Tensors of other programs are rounded up to 512 bytes: of GPT-2 tiny's (257 and 128 rows of 64, layers of
 * 64 and 256) only the embedding's 257 x 64 and the vectors are no multiple, in the types that they are kept
 * in.
 */
static void rounding_of_states(void **state)
{
	struct dt_config c;
	struct dt_run s;
	struct dt_estimate t;
	uint64_t want = 0;
	/* 257 x 64; final norm's two; a layer's norms, biases of q k v o and down, bias of up */
	const struct {
		uint64_t numel, times;
	} odd[] = {{257 * 64, 1}, {64, 2 + 2 * (4 + 5)}, {256, 2}};

	dt_config_find_preset("gpt2-tiny", &c);
	s = shape_of(&c, "dp1");
	for (size_t i = 0; i < 3; i++)
		for (int kind = 0; kind < 5; kind++) { /* weight, gradient, master, two moments */
			uint64_t bytes = odd[i].numel * (kind < 2 ? 2 : 4);

			want += odd[i].times * ((bytes + 511) / 512 * 512 - bytes);
		}
	assert_int_equal(dt_estimate_train(&s, (struct dt_coords){0}, DT_ACCOUNT_GENERIC, NULL, &t, NULL), 0);
	assert_int_equal(category(&t, DT_EST_ROUNDING), want);
	dt_estimate_release(&t);
	assert_int_equal(dt_estimate_train(&s, (struct dt_coords){0}, DT_ACCOUNT_DT, NULL, &t, NULL), 0);
	assert_int_equal(category(&t, DT_EST_ROUNDING), 0);
	dt_estimate_release(&t);
}

/* What the account dt answers must depend on every axis it was asked about; else it must refuse. */
static void every_axis_counts(void **state)
{
	static const char *const cases[][2] = {
		{"dp2.z1", "dp2"}, {"dp2.z2", "dp2.z1"}, {"dp2.z3", "dp2.z2"},
		{"cp2", "dp1"},	   {"tp2.s1", "tp2"},	 {"tp2", "dp1"},
	};
	struct dt_config c;

	dt_config_find_preset("llama-2-7b", &c);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dt_run s = shape_of(&c, cases[i][0]), base = shape_of(&c, cases[i][1]);
		struct dt_estimate with, without;

		for (int account = DT_ACCOUNT_DT; account <= DT_ACCOUNT_MEGATRON; account++) {
			struct dt_err err = {0};
			int rc = dt_estimate_train(&s, (struct dt_coords){0}, account, NULL, &with, &err);

			if (account == DT_ACCOUNT_DT && rc < 0) {
				assert_int_equal(rc, -ENOTSUP);
				assert_non_null(strstr(err.msg, "cannot be trained by this version"));
				continue;
			}
			assert_int_equal(rc, 0);
			assert_int_equal(dt_estimate_train(&base, (struct dt_coords){0}, account, NULL,
							   &without, NULL),
					 0);
			assert_true(with.peak_bytes < without.peak_bytes);
			dt_estimate_release(&with);
			dt_estimate_release(&without);
		}
	}
}

/* Serving Llama-2 70B in bf16, 32 sequences of 2048: 140 GB of weights, 20-40 GB of cache (handbook). */
static void serving_70b(void **state)
{
	struct dt_config c;
	struct dt_serve_shape s = {.config = &c,
				   .weights = DT_WF_BF16,
				   .account = DT_ACCOUNT_GENERIC,
				   .compute = DT_BF16,
				   .max_seqs = 32,
				   .max_len = 2048,
				   .block = 16,
				   .max_tokens = 2048};
	struct dt_estimate t, half;

	dt_config_find_preset("llama-2-70b", &c);
	dt_layout_parse("dp1", &s.layout, NULL);
	assert_int_equal(dt_estimate_serve(&s, &t, NULL), 0);
	near((double)t.cat_bytes[DT_MEM_WEIGHTS] / 1e9, 140, 3, "weights");
	assert_int_equal(t.cat_bytes[DT_MEM_WEIGHTS], 2 * 68976648192);
	/* Our own server keeps the 161 norms of 8192 in f32; all its matrices are whole panels and large
	 * pages. */
	s.account = DT_ACCOUNT_DT;
	assert_int_equal(dt_estimate_serve(&s, &half, NULL), 0);
	assert_int_equal(half.cat_bytes[DT_MEM_WEIGHTS], 2 * (68976648192 + 161 * 8192));
	assert_int_equal(half.cat_bytes[DT_EST_CACHE], t.cat_bytes[DT_EST_CACHE]);
	dt_estimate_release(&half);
	s.account = DT_ACCOUNT_GENERIC;
	near((double)t.cat_bytes[DT_EST_CACHE] / 1e9, 30, 10, "cache");
	assert_int_equal(t.cat_bytes[DT_EST_CACHE], (uint64_t)32 * 2048 * 2 * 80 * 8 * 128 * 2);
	dt_layout_parse("tp8", &s.layout, NULL);
	assert_int_equal(dt_estimate_serve(&s, &half, NULL), 0);
	assert_int_equal(half.cat_bytes[DT_EST_CACHE] * 8, t.cat_bytes[DT_EST_CACHE]);
	dt_estimate_release(&half);
	/* Lengths are rounded up to whole blocks. */
	s.max_len = 2049;
	assert_int_equal(dt_estimate_serve(&s, &half, NULL), 0);
	assert_int_equal(half.cat_bytes[DT_EST_CACHE] * 8, t.cat_bytes[DT_EST_CACHE] / 2048 * 2064);
	dt_estimate_release(&half);
	/* Two stages hold between them what one server does; the last has the logits. */
	s.max_len = 2048;
	dt_layout_parse("pp2", &s.layout, NULL);
	uint64_t weights = 0, cache = 0;

	for (s.stage = 0; s.stage < 2; s.stage++) {
		assert_int_equal(dt_estimate_serve(&s, &half, NULL), 0);
		weights += half.cat_bytes[DT_MEM_WEIGHTS];
		cache += half.cat_bytes[DT_EST_CACHE];
		assert_true((half.cat_bytes[DT_MEM_LOGITS] > 0) == (s.stage == 1));
		dt_estimate_release(&half);
	}
	assert_int_equal(weights, t.cat_bytes[DT_MEM_WEIGHTS]);
	assert_int_equal(cache, t.cat_bytes[DT_EST_CACHE]);
	dt_estimate_release(&t);
	s.stage = 0;
	dt_layout_parse("cp2", &s.layout, NULL);
	assert_int_equal(dt_estimate_serve(&s, &t, NULL), -ENOTSUP);
}

/* The largest microbatch and sequence by bisection against trying them all. */
static void the_edge_is_where_it_is(void **state)
{
	struct dt_config c;
	struct dt_fit_query q = {.account = DT_ACCOUNT_DT,
				 .precision = DT_WF_BF16,
				 .run = {.config = &c,
					 .compute = DT_BF16,
					 .optim.kind = DT_OPTIM_ADAMW,
					 .microbatch = 1,
					 .seq = 64}};

	dt_config_find_preset("llama-tiny", &c);
	dt_layout_parse("dp1", &q.run.layout, NULL);
	for (uint64_t room = 3000000; room < 60000000; room = room * 5 / 4) {
		int64_t by_trying = 0, max = 50;
		int rc;

		for (q.run.microbatch = 1; q.run.microbatch <= max; q.run.microbatch++) {
			struct dt_fit f;

			assert_int_equal(dt_fit_estimate(&q, &f, NULL), 0);
			if (dt_fit_worst(&f)->peak_bytes <= room)
				by_trying = q.run.microbatch;
			dt_fit_release(&f);
		}
		rc = dt_fit_largest(&q, &q.run.microbatch, max, room, NULL);
		assert_int_equal(rc, by_trying > 0);
		assert_int_equal(q.run.microbatch, by_trying ? by_trying : 1);
	}
}

/* Of a pipeline only the fullest stage has entries, and they are those of its own estimate. */
static void entries_of_the_fullest_stage(void **state)
{
	struct dt_config c;
	const struct dt_fit_query base = {.account = DT_ACCOUNT_DT,
					  .precision = DT_WF_BF16,
					  .run = {.config = &c,
						  .compute = DT_BF16,
						  .optim.kind = DT_OPTIM_ADAMW,
						  .microbatch = 1,
						  .accumulation = 8,
						  .seq = 64}};
	struct dt_fit_query q = base;
	int worst[2];

	dt_config_find_preset("gpt2-124m", &c);
	dt_layout_parse("pp4", &q.run.layout, NULL);
	for (int k = 0; k < 2; k++) { /* the first stage keeps most, or the last has the logits */
		struct dt_estimate alone;
		struct dt_fit f;

		q.run.microbatch = k ? 1 : 64;
		q.run.accumulation = k ? 1 : 8;
		assert_int_equal(dt_fit_estimate(&q, &f, NULL), 0);
		worst[k] = f.worst;
		for (int i = 0; i < f.n; i++)
			assert_true(i == f.worst ? f.stage[i].est.n > 0 : f.stage[i].est.n == 0);
		assert_int_equal(dt_estimate_train(&q.run, (struct dt_coords){.pp = f.worst}, q.account, NULL,
						   &alone, NULL),
				 0);
		assert_int_equal(alone.n, dt_fit_worst(&f)->n);
		for (int i = 0; i < alone.n; i++)
			assert_string_equal(alone.e[i].name, dt_fit_worst(&f)->e[i].name);
		dt_estimate_release(&alone);
		dt_fit_release(&f);
	}
	assert_int_not_equal(worst[0], worst[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(megatron_activations),
		cmocka_unit_test(megatron_of_any_model),
		cmocka_unit_test(generic_states),
		cmocka_unit_test(phases_of_a_step),
		cmocka_unit_test(account_dt_is_the_plan),
		cmocka_unit_test(plan_of_gpt2),
		cmocka_unit_test(rounding_of_states),
		cmocka_unit_test(every_axis_counts),
		cmocka_unit_test(serving_70b),
		cmocka_unit_test(the_edge_is_where_it_is),
		cmocka_unit_test(entries_of_the_fullest_stage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
