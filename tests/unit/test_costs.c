/*
 * Costs of nodes: summed over a program they are PaLM's model flops; bytes and messages of one layer against
 * a count by hand; what is computed again costs flops and counts for nothing in MFU.
 */
#include "model/flops.h"
#include "plan/stage.h"
#include "plan/work.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct dt_run run_of(const char *model, struct dt_config *c, int64_t microbatch, int64_t seq)
{
	struct dt_err err = {0};

	if (dt_config_load(model, c, &err) < 0)
		fail_msg("%s: %s", model, err.msg);
	return (struct dt_run){.config = c,
			       .layout = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1},
			       .microbatch = microbatch,
			       .seq = seq,
			       .compute = DT_BF16};
}

static void build(const struct dt_run *r, struct dt_coords at, struct dt_stage *s)
{
	struct dt_err err = {0};

	if (dt_stage_build(r, at, s, &err) < 0)
		fail_msg("%s: %s", r->config->name, err.msg);
}

static struct dt_node_cost sum(const struct dt_run *r, struct dt_coords at)
{
	struct dt_node_cost all = {0};
	struct dt_stage s;

	build(r, at, &s);
	for (int k = 0; k < s.nchunk; k++) {
		struct dt_cost_site site = dt_stage_site(&s, r, k);

		for (int i = 0; i < s.chunk[k].nstep; i++) {
			struct dt_node_cost c = dt_step_cost(&site, &s.chunk[k].step[i]);

			all.flops += c.flops;
			all.model_flops += c.model_flops;
			all.read += c.read;
			all.written += c.written;
		}
	}
	dt_stage_release(&s);
	return all;
}

static void check(double got, double want, double tolerance, const char *what)
{
	if (!(fabs(got - want) <= tolerance * fabs(want)))
		fail_msg("%s: %.17g where %.17g was expected", what, got, want);
}

/* Weights of a layer that multiply a token, from the configuration alone. */
static double weights_of(const struct dt_config *c, int64_t layer)
{
	double h = (double)c->hidden, a = (double)c->heads, q = a * (double)c->head_dim;
	double kv = (double)(c->kv_heads * c->head_dim), nope = (double)(c->head_dim - c->rope_dim);
	double attn = 2 * h * q + 2 * h * kv, rank = (double)c->kv_rank, from = (double)c->q_rank;

	if (c->kv_rank)
		attn = (from > 0 ? from * (h + q) : h * q) + h * (rank + (double)c->rope_dim) +
		       rank * a * (nope + (double)c->v_dim) + a * (double)c->v_dim * h;
	return attn + (c->gated ? 3 : 2) * h * (double)dt_layer_width(c, layer) +
	       (dt_layer_has_experts(c, layer) ? h * (double)c->experts : 0);
}

/* The same of two products of attention over all pairs. */
static double attention_of(const struct dt_config *c, int64_t layer, int64_t seq)
{
	int64_t window = dt_layer_window(c, layer);
	double span = (double)(window > 0 && window < seq ? window : seq);

	return 2 * span * (double)(c->heads * (c->head_dim + dt_value_dim(c)));
}

/* 2 flops a matmul weight, 4 s h of attention a layer, three times for training (PaLM, appendix B). */
static void test_palm(void **state)
{
	static const char *const models[] = {"gpt2-124m",    "llama-2-7b",    "qwen3-8b",   "gemma-3-4b",
					     "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3"};
	/* by hand: 12 layers of 4 h h + 8 h h and the head; 32 of 4 h h + 3 h 11008 and the head */
	const double weights[] = {12 * 12.0 * 768 * 768 + 50257.0 * 768,
				  32 * (4 * 4096.0 * 4096 + 3 * 4096.0 * 11008) + 32000.0 * 4096};
	const double attention[] = {12 * 4 * 512.0 * 768, 32 * 4 * 512.0 * 4096};

	for (size_t k = 0; k < sizeof(models) / sizeof(*models); k++) {
		struct dt_config c;
		struct dt_run r = run_of(models[k], &c, 2, 512);
		double tokens = 2 * 512, want = 2 * (double)(c.hidden * c.vocab);
		struct dt_work w;

		for (int64_t i = 0; i < c.layers; i++)
			want += 2 * weights_of(&c, i) + attention_of(&c, i, 512);
		check(sum(&r, (struct dt_coords){0}).model_flops, 3 * tokens * want, 1e-12, models[k]);
		/* sums over a short model, as many times as there are layers like its own */
		check(dt_model_flops_per_token(&c, 512, false), want, 1e-12, models[k]);
		r.layout.tp = 2;
		assert_int_equal(dt_work_open(&r, &w, NULL), 0);
		check(w.model_flops, 3 * tokens * want, 1e-12, models[k]);
		dt_work_release(&w);
		r.layout.tp = 1;
		if (k < 2)
			check(sum(&r, (struct dt_coords){0}).model_flops,
			      3 * tokens * (2 * weights[k] + attention[k]), 1e-12, models[k]);
	}
}

/* The mask skips all pairs but s (s + 1) / 2; backward of attention has five products for forward's two. */
static void test_causal(void **state)
{
	struct dt_config c;
	struct dt_run r = run_of("gpt2-124m", &c, 1, 512);
	double full = sum(&r, (struct dt_coords){0}).model_flops, attention = 3 * 512 * 12 * 4 * 512.0 * 768,
	       causal = 3.5 / 3 * attention * (512 * 513 / 2.0) / (512 * 512.0);

	check(sum(&r, (struct dt_coords){0}).flops, full - attention + causal, 1e-12, "causal");
	c.window = 100; /* 100 rows see 1 to 100 keys, 412 rows see 100 */
	causal = 3.5 / 3 * attention * (100 * 101 / 2.0 + 412 * 100) / (512 * 512.0);
	check(sum(&r, (struct dt_coords){0}).flops, full - attention + causal, 1e-12, "window");
	check(sum(&r, (struct dt_coords){0}).model_flops, full - attention + attention * 100 / 512, 1e-12,
	      "window, all pairs of it");
}

/* All ranks of a layout together do what one does. */
static void test_ranks(void **state)
{
	struct dt_config c;
	struct dt_run r = run_of("llama-2-7b", &c, 1, 256);
	double one = sum(&r, (struct dt_coords){0}).model_flops, all = 0;

	r.layout.tp = 4;
	r.layout.pp = 2;
	r.layout.seq_parallel = true;
	for (int p = 0; p < 2; p++)
		for (int t = 0; t < 4; t++)
			all += sum(&r, (struct dt_coords){.pp = p, .tp = t}).model_flops;
	check(all, one, 1e-12, "tp4.pp2.s1");
}

/* Full recomputation is one more forward of the layers without each one's last product; not so MFU's. */
static void test_again(void **state)
{
	struct dt_config c;
	struct dt_run r = run_of("gpt2-124m", &c, 1, 512);
	struct dt_node_cost kept = sum(&r, (struct dt_coords){0}), again;
	double forward = 512 * (2 * 12 * 12.0 * 768 * 768) + 12 * 4 * 768 * (512 * 513 / 2.0),
	       down = 512 * (2 * 12 * 4.0 * 768 * 768);

	r.recompute = (struct dt_keep){DT_RECOMPUTE_FULL, 1};
	again = sum(&r, (struct dt_coords){0});
	check(again.model_flops, kept.model_flops, 0, "model flops");
	check(again.flops, kept.flops + forward - down, 1e-12, "full recomputation");
	r.recompute = (struct dt_keep){DT_RECOMPUTE_SELECTIVE, 1};
	again = sum(&r, (struct dt_coords){0});
	check(again.flops, kept.flops, 0, "selective recomputation");
	assert_true(again.read + again.written > kept.read + kept.written);
}

struct want {
	enum dt_op op;
	const char *name;
	double read, written;
	enum dt_message message;
	double message_bytes;
};

/* GPT-2's second layer on tp2.s1, forward: 128 rows, of the residual stream 64; 2 bytes an element. */
static void test_bytes(void **state)
{
	const double T = 128, S = 64, h = 768, e = 2;
	const struct want want[] = {
		/* x, delta, weight, bias; h, sum, mean and 1 / standard deviation */
		{DT_OP_NORM, "attn_norm", (2 * S * h + 2 * h) * e, 2 * S * h * e + 2 * S * 4, 0, 0},
		{DT_OP_ENTER, "qkv", S * h * e, T * h * e, DT_MSG_GATHER, T * h * e},
		{DT_OP_LINEAR, "qkv", (T * h + 1152 * h + 1152) * e, T * 1152 * e, 0, 0},
		{DT_OP_ATTENTION, "attention", T * 1152 * e, T * 384 * e + T * 6 * 4, 0, 0},
		{DT_OP_LINEAR, "o", (T * 384 + 384 * h + h) * e, T * h * e, 0, 0},
		{DT_OP_LEAVE, "o", T * h * e, S * h * e, DT_MSG_REDUCE_SCATTER, T * h * e},
		{DT_OP_NORM, "mlp_norm", (2 * S * h + 2 * h) * e, 2 * S * h * e + 2 * S * 4, 0, 0},
		{DT_OP_ENTER, "up", S * h * e, T * h * e, DT_MSG_GATHER, T * h * e},
		{DT_OP_LINEAR_ACT, "up", (T * h + 1536 * h + 1536) * e, 2 * T * 1536 * e, 0, 0},
		{DT_OP_LINEAR, "down", (T * 1536 + 1536 * h + h) * e, T * h * e, 0, 0},
		{DT_OP_LEAVE, "down", T * h * e, S * h * e, DT_MSG_REDUCE_SCATTER, T * h * e},
	};
	struct dt_config c;
	struct dt_run r = run_of("gpt2-124m", &c, 1, 128);
	struct dt_cost_site site;
	struct dt_stage s;
	size_t k = 0;

	r.layout.tp = 2;
	r.layout.seq_parallel = true;
	build(&r, (struct dt_coords){0}, &s);
	site = dt_stage_site(&s, &r, 0);
	for (int i = 0; i < s.chunk[0].start[DT_LIST_LOSS]; i++) {
		const struct dt_step *step = &s.chunk[0].step[i];
		struct dt_node_cost got = dt_step_cost(&site, step);

		if (step->n.unit != 1)
			continue;
		assert_true(k < sizeof(want) / sizeof(*want));
		assert_int_equal(step->n.op, want[k].op);
		assert_string_equal(step->n.name, want[k].name);
		check(got.read, want[k].read, 0, "bytes read");
		check(got.written, want[k].written, 0, "bytes written");
		assert_int_equal(got.message, want[k].message);
		check(got.message_bytes, want[k].message_bytes, 0, "bytes of the message");
		k++;
	}
	assert_int_equal(k, sizeof(want) / sizeof(*want));
	dt_stage_release(&s);
}

/* Backward of one linear, and the loss over two chunks of rows. */
static void test_backward_bytes(void **state)
{
	const double T = 128, h = 768, e = 2, V = 50257;
	struct dt_config c;
	struct dt_run r = run_of("gpt2-124m", &c, 1, 128);
	struct dt_cost_site site;
	struct dt_stage s;
	int seen = 0;

	r.loss_chunk = 64;
	build(&r, (struct dt_coords){0}, &s);
	site = dt_stage_site(&s, &r, 0);
	for (int i = s.chunk[0].start[DT_LIST_LOSS]; i < s.chunk[0].nstep; i++) {
		const struct dt_step *step = &s.chunk[0].step[i];
		struct dt_node_cost got = dt_step_cost(&site, step);

		if (step->n.op == DT_OP_LOSS) {
			check(got.read,
			      2 * T * h * e + 2 * 2 * V * h * e + 2 * T * V * 4 + 2 * T * V * e + V * h * 4,
			      0, "loss, bytes read");
			check(got.written, T * V * (4 + e) + 2 * V * h * 4 + T * h * e, 0,
			      "loss, bytes written");
			seen |= 1;
		}
		if (step->n.unit != 1 || strcmp(step->n.name, "o") != 0)
			continue;
		if (step->n.op == DT_OP_DW) {
			check(got.read, 2 * T * h * e, 0, "dw, bytes read");
			check(got.written, h * h * 4, 0, "dw, bytes written");
			seen |= 2;
		}
		if (step->n.op == DT_OP_DX) {
			check(got.read, (T * h + h * h) * e, 0, "dx, bytes read");
			check(got.written, T * h * e, 0, "dx, bytes written");
			seen |= 4;
		}
		if (step->n.op == DT_OP_COLSUM) {
			check(got.read, T * h * e + h * 4, 0, "colsum, bytes read");
			seen |= 8;
		}
	}
	assert_int_equal(seen, 15);
	dt_stage_release(&s);
}

/* Attention's products forward of one rank. */
static double rank_attention(const struct dt_run *r, int cp_rank)
{
	struct dt_stage s;
	struct dt_cost_site site;
	double flops = 0;

	build(r, (struct dt_coords){.cp = cp_rank}, &s);
	site = dt_stage_site(&s, r, 0);
	for (int i = 0; i < s.chunk[0].start[DT_LIST_LOSS]; i++) {
		struct dt_node_cost c = dt_step_cost(&site, &s.chunk[0].step[i]);

		flops += c.kind == DT_COST_ATTENTION ? c.flops : 0;
	}
	dt_stage_release(&s);
	return flops;
}

/* Each of a rank's tokens, where the zigzag has it, sees itself and what is before it, or its window. */
static void test_context(void **state)
{
	const int64_t seq = 96, windows[] = {0, 1, 13, 40, 95};
	const enum dt_cp_comm how[] = {DT_CP_GATHER, DT_CP_RING};

	for (int t = 0; t < 2 * 5; t++) {
		struct dt_config c;
		struct dt_run r = run_of("llama-tiny", &c, 2, seq);
		double all = 0, most = 0;

		c.window = windows[t % 5];
		r.layout.cp = 4;
		r.cp_comm = how[t / 5];
		for (int k = 0; k < 4; k++) {
			double pairs = 0, got = rank_attention(&r, k);

			for (int64_t i = 0; i < seq / 4; i++) {
				int64_t sees = dt_zigzag(seq, 4, k, i) + 1;

				pairs += (double)(c.window && c.window < sees ? c.window : sees);
			}
			check(got, 2.0 * 2 * 2 * (double)(c.layers * c.heads * c.head_dim) * pairs, 1e-12,
			      "attention of a rank");
			all += got;
			most = fmax(most, got);
		}
		if (!c.window && most > 1.1 * all / 4) /* the first rows of a window see less of it */
			fail_msg("the busiest rank does %.3f of an even share", 4 * most / all);
		r.layout.cp = 1;
		check(all, rank_attention(&r, 0), 1e-12, "attention of all ranks");
	}
}

/* Stages are cut by forward flops: those of a head do not depend on whether it is trained. */
static void test_frozen_head(void **state)
{
	struct dt_config c;
	double layers, ends, frozen;

	for (int image = 0; image < 2; image++) {
		const int64_t tokens = image ? 1 : 512;

		run_of(image ? "resnet-18" : "llama-tiny", &c, 2, tokens);
		assert_int_equal(dt_forward_flops(&c, tokens, &layers, &ends, NULL), 0);
		snprintf(c.freeze, sizeof(c.freeze), "%s", image ? "fc.weight" : "head.weight");
		assert_int_equal(dt_forward_flops(&c, tokens, &layers, &frozen, NULL), 0);
		check(frozen, ends, 1e-12, c.name);
	}
}

/* Of the end of a classifier, training computes three products, two if it is frozen; serving computes one. */
static void test_classes(void **state)
{
	struct dt_config c;
	struct dt_run r = run_of("resnet-18", &c, 4, 1);
	const struct dt_work_serving s = {
		.config = &c, .compute = DT_BF16, .tp = 1, .rows = 4, .outputs = 4, .weight_bits = 16};
	const double one = 2 * 4.0 * 512 * 1000, times[] = {3, 2, 1};
	struct dt_work w;

	for (int i = 0; i < 3; i++) {
		const struct dt_work_unit *u;
		bool products = true;
		double got = 0;

		snprintf(c.freeze, sizeof(c.freeze), "%s", i == 1 ? "fc.weight" : "");
		assert_int_equal(i < 2 ? dt_work_open(&r, &w, NULL) : dt_work_open_serving(&s, &w, NULL), 0);
		u = dt_work_unit(&w, c.layers);
		for (int k = u->first; k < u->first + u->n; k++)
			got += w.node[k].cost.flops;
		check(got, times[i] * one, 1e-12, "the end of a classifier");
		for (int k = 0; k < u->first; k++) /* convolutions are products */
			products &= w.node[k].cost.flops <= 0 || w.node[k].cost.kind == DT_COST_PRODUCT;
		assert_true(products);
		dt_work_release(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_palm),	cmocka_unit_test(test_causal),
		cmocka_unit_test(test_ranks),	cmocka_unit_test(test_again),
		cmocka_unit_test(test_bytes),	cmocka_unit_test(test_backward_bytes),
		cmocka_unit_test(test_context), cmocka_unit_test(test_frozen_head),
		cmocka_unit_test(test_classes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
