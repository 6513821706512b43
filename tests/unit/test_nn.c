/*
 * Logits, loss and every parameter gradient of whole models against PyTorch (tests/data/golden_models.py), in
 * fp32 to 1e-4 relative, for every recomputation mode; that two microbatches accumulate to what one batch
 * gives; and that gradients through linears in 8 bits point where those in fp32 do.
 */
#include "base/arena.h"
#include "golden.h"
#include "nn/exec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
	struct golden g;
	struct dt_config c;
	struct dt_params table;
	struct dt_local local;
	struct dt_memory_plan plan;
	struct dt_run shape;
	struct dt_arena arena;
	struct dt_dev *dev;
	struct dt_exec x;
	struct dt_flight p;
	float *weights, *grads;
	float *final; /* what the head was given */
	int64_t batch, seq;
	int32_t *ids, *targets, *ids_ahead, *targets_ahead; /* ahead: NULL without such a module */
	int64_t counted;
	/* texts with labels: tokens and their types of each row, classes or scores */
	int32_t *lengths, *types;
	float *scores;
};

/* The texts' lengths, types, and classes or scores. */
static void read_labels(struct fixture *f)
{
	int64_t n;

	f->lengths = golden_i32(&f->g, "lengths", &n);
	f->types = golden_i32(&f->g, "types", &n);
	f->counted = f->batch;
	if (f->c.labels > 1)
		f->targets = golden_i32(&f->g, "labels", &n);
	else
		f->targets = calloc((size_t)f->batch, sizeof(*f->targets));
	if (f->c.labels == 1)
		f->scores = golden_f32(&f->g, "scores", &n);
}

/* Texts b .. of the batch as train/labelled.h writes them: backwards, behind padding. */
static void put_texts(struct fixture *f, int64_t b)
{
	const int64_t n = f->shape.microbatch, seq = f->seq;

	for (int64_t i = 0; i < n * seq; i++) {
		const int64_t text = b + i / seq, at = seq - 1 - i % seq, length = f->lengths[text];
		const bool pad = at >= length;

		f->p.ids[i] = pad ? 7 : f->ids[text * seq + at];
		f->p.first[i] = (int32_t)(seq - length);
		if (f->p.types)
			f->p.types[i] = pad ? 0 : f->types[text * seq + at];
	}
	memcpy(f->p.targets, f->targets + b, (size_t)n * sizeof(*f->targets));
	if (f->scores)
		memcpy(f->p.share, f->scores + b, (size_t)n * sizeof(*f->scores));
}

/* seq: of each sample only so many tokens; 0: all. */
static void shorten(struct fixture *f, int64_t seq)
{
	int64_t n = f->batch * f->seq;

	for (int64_t i = 0; seq && i < f->batch * seq; i++) {
		f->ids[i] = f->ids[i / seq * f->seq + i % seq];
		f->targets[i] = f->targets[i / seq * f->seq + i % seq];
	}
	if (seq) {
		n = f->batch * seq;
		f->seq = seq;
	}
	for (int64_t i = 0; i < n; i++)
		f->counted += f->targets[i] >= 0;
}

/* Addresses of units in a flat f32 buffer; trained: of those that are. */
static void **flat_units(const struct dt_local *l, float *flat, bool trained)
{
	void **ret = calloc((size_t)l->nunit, sizeof(*ret));

	for (int u = 0; ret && u < l->nunit; u++)
		ret[u] = flat + (trained ? l->unit[u].trained : l->unit[u].flat);
	return ret;
}

static void setup(struct fixture *f, const char *name, int64_t microbatch, struct dt_keep mode, int64_t seq,
		  bool fp8)
{
	struct dt_layout one = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1};
	struct dt_coords at = {0};
	struct dt_err err = {0};
	void **weights, **grads;
	int64_t n;

	memset(f, 0, sizeof(*f));
	golden_open(&f->g, name);
	golden_config(&f->g, &f->c);
	f->batch = golden_int(&f->g, "/", "batch");
	f->seq = golden_int(&f->g, "/", "seq");
	f->ids = golden_i32(&f->g, "ids", &n);
	if (dt_config_has_labels(&f->c))
		read_labels(f);
	else
		f->targets = golden_i32(&f->g, "targets", &n);
	if (f->c.mtp_layers) {
		f->ids_ahead = golden_i32(&f->g, "ids_ahead", &n);
		f->targets_ahead = golden_i32(&f->g, "targets_ahead", &n);
	}
	if (!f->lengths)
		shorten(f, seq);
	f->shape = (struct dt_run){.config = &f->c,
				   .layout = one,
				   .microbatch = microbatch ? microbatch : f->batch,
				   .seq = f->seq,
				   .compute = DT_F32,
				   .optim.kind = DT_OPTIM_SGD,
				   .recompute = mode,
				   .fp8 = fp8,
				   .mtp_weight =
					   f->c.mtp_layers ? golden_real(&f->g, "/", "mtp_loss_weight") : 0,
				   .loss_chunk = 5};
	assert_int_equal(dt_model_params(&f->c, &f->table, &err), 0);
	assert_int_equal(dt_local_build(&f->table, &f->c, &one, at, &f->local, &err), 0);
	assert_int_equal(dt_memory_plan(&f->shape, at, &f->plan, &err), 0);
	assert_int_equal(dt_arena_init(&f->arena, f->plan.arena_bytes, &err), 0);
	memset(f->arena.base, 0xff,
	       f->arena.bytes); /* NaN everywhere: nothing may be read before it is written */
	assert_int_equal(dt_dev_open(&f->dev, DT_DEV_CPU, 0, 2), 0);
	f->weights = dt_plan_address(&f->plan, f->arena.base, DT_B_WEIGHTS, -1);
	f->grads = dt_plan_address(&f->plan, f->arena.base, DT_B_GRADS, -1);
	weights = flat_units(&f->local, f->weights, false);
	grads = flat_units(&f->local, f->grads, true);
	if (dt_exec_open(&f->x, &f->shape, at, &f->plan, f->arena.base, NULL, f->dev, weights,
			 (float *const *)grads, &err) < 0)
		fail_msg("%s", err.msg);
	free(weights);
	free(grads);
	assert_int_equal(dt_flight_open(&f->p, &f->x, 0, 0, &err), 0);
	for (int i = 0; i < f->local.n; i++) {
		char path[96];
		float *w;

		snprintf(path, sizeof(path), "param/%s", f->table.p[f->local.p[i].index].name);
		w = golden_f32(&f->g, path, &n);
		assert_int_equal(n, f->local.p[i].numel);
		memcpy(f->weights + f->local.p[i].flat, w, (size_t)n * sizeof(*w));
		free(w);
	}
}

static void teardown(struct fixture *f)
{
	dt_flight_close(&f->p, f->dev);
	dt_exec_close(&f->x);
	dt_dev_close(f->dev);
	dt_arena_release(&f->arena);
	dt_memory_plan_release(&f->plan);
	dt_local_release(&f->local);
	dt_params_release(&f->table);
	free(f->final);
	free(f->ids);
	free(f->targets);
	free(f->ids_ahead);
	free(f->targets_ahead);
	free(f->lengths);
	free(f->types);
	free(f->scores);
	golden_close(&f->g);
}

/* The node of the head. */
static const struct dt_node *head_of(const struct fixture *f)
{
	const struct dt_prog *p = &f->plan.stage.chunk[0];

	return &p->step[p->start[DT_LIST_LOSS]].n;
}

static void keep_final(struct fixture *f)
{
	size_t n = (size_t)(f->batch * f->seq * f->c.hidden) * sizeof(float);

	f->final = malloc(n);
	memcpy(f->final, dt_exec_value(&f->x, &f->p, head_of(f)->in[0]), n);
}

/* Forward, loss and backward over the batch in microbatches; returns the mean loss. */
static double run(struct fixture *f)
{
	size_t n = (size_t)(f->shape.microbatch * f->seq) * sizeof(int32_t);
	struct dt_err err = {0};

	f->x.loss_sum = f->x.ahead_sum = 0;
	f->x.loss_backward = true;
	f->x.loss_scale = 1.0f / (float)f->counted;
	assert_int_equal(dt_exec_zero_grads(&f->x, 0, f->local.nunit, &err), 0);
	for (int64_t b = 0; b < f->batch; b += f->shape.microbatch) {
		if (f->lengths) {
			put_texts(f, b);
		} else {
			memcpy(f->p.ids, f->ids + b * f->seq, n);
			memcpy(f->p.targets, f->targets + b * f->seq, n);
		}
		if (f->ids_ahead) {
			memcpy(f->p.ids_ahead, f->ids_ahead + b * f->seq, n);
			memcpy(f->p.targets_ahead, f->targets_ahead + b * f->seq, n);
		}
		f->x.accumulate = f->x.accumulate_head = b > 0;
		for (int l = 0; l < DT_LIST_N; l++) {
			if (dt_exec_run(&f->x, &f->p, l, NULL, &err) < 0)
				fail_msg("%s", err.msg);
			if (l == DT_LIST_FORWARD && f->shape.microbatch == f->batch && !f->lengths)
				keep_final(f); /* backward reuses its memory */
		}
	}
	return f->x.loss_sum / (double)f->counted;
}

static void check_logits(struct fixture *f, const char *name)
{
	int64_t n, v = f->c.vocab, rows = f->shape.microbatch * f->seq;
	float *want = golden_f32(&f->g, "logits", &n), *got = malloc((size_t)n * sizeof(*got));
	const int with = head_of(f)->param[2];
	const struct dt_tensor bias = with < 0 ? DT_NONE : f->x.w[with];

	assert_int_equal(n, rows * v);
	assert_int_equal(f->dev->ops->matmul(f->dev, dt_t2(got, DT_F32, rows, v),
					     dt_t2(f->final, DT_F32, rows, f->c.hidden), false,
					     f->x.w[head_of(f)->param[0]], true, bias, false),
			 0);
	assert_int_equal(
		f->dev->ops->scale(f->dev, dt_t2(got, DT_F32, rows, v), (float)dt_logit_scale(&f->c)), 0);
	if (f->c.logit_cap > 0)
		assert_int_equal(f->dev->ops->softcap(f->dev, dt_t2(got, DT_F32, rows, v),
						      dt_t2(got, DT_F32, rows, v), (float)f->c.logit_cap),
				 0);
	golden_assert_close(name, got, want, n, 1e-3, 1e-4);
	free(got);
	free(want);
}

/* Where the gradient of a parameter is. */
static const float *trained_at(const struct fixture *f, const struct dt_local_param *lp)
{
	const struct dt_local_unit *u = &f->local.unit[lp->unit];

	return f->grads + u->trained + (lp->flat - u->flat);
}

static void check_grads(struct fixture *f, const char *name)
{
	for (int i = 0; i < f->local.n; i++) {
		const struct dt_local_param *lp = &f->local.p[i];
		char path[96], what[160];
		float *want;
		int64_t n;

		if (f->table.p[lp->index].frozen)
			continue;
		snprintf(path, sizeof(path), "grad/%s", f->table.p[lp->index].name);
		snprintf(what, sizeof(what), "%s %s", name, path);
		want = golden_f32(&f->g, path, &n);
		golden_assert_close(what, trained_at(f, lp), want, n, 1e-3, 1e-4);
		free(want);
	}
}

static void compare(const char *name, int64_t microbatch, struct dt_keep mode)
{
	struct fixture f;
	double loss, want;

	setup(&f, name, microbatch, mode, 0, false);
	loss = run(&f);
	want = golden_scalar(&f.g, "loss");
	if (!(fabs(loss - want) < 1e-5 * fabs(want)))
		fail_msg("%s: loss %.9g, PyTorch %.9g", name, loss, want);
	if (f.c.mtp_layers) {
		loss = f.x.ahead_sum / (double)f.counted;
		want = golden_scalar(&f.g, "mtp_loss");
		if (!(fabs(loss - want) < 1e-5 * fabs(want)))
			fail_msg("%s: loss of the module %.9g, PyTorch %.9g", name, loss, want);
	}
	if (f.shape.microbatch == f.batch && !f.lengths)
		check_logits(&f, name);
	check_grads(&f, name);
	teardown(&f);
}

static void all_modes(const char *name)
{
	compare(name, 0, (struct dt_keep){DT_RECOMPUTE_NONE, 1});
	compare(name, 0, (struct dt_keep){DT_RECOMPUTE_SELECTIVE, 1});
	compare(name, 0, (struct dt_keep){DT_RECOMPUTE_FULL, 1});
	compare(name, 0, (struct dt_keep){DT_RECOMPUTE_FULL, 2});
	compare(name, 1, (struct dt_keep){DT_RECOMPUTE_NONE, 1});
}

/* Cosine of the angle between gradients, and got's length in want's. */
static double cosine(const struct fixture *f, const struct fixture *plain, double *ratio)
{
	double gw = 0, gg = 0, ww = 0;

	for (int k = 0; k < f->local.n; k++) {
		const float *got = f->grads + f->local.p[k].flat, *want = plain->grads + f->local.p[k].flat;

		for (int64_t i = 0; i < f->local.p[k].numel; i++) {
			gw += (double)got[i] * (double)want[i];
			gg += (double)got[i] * (double)got[i];
			ww += (double)want[i] * (double)want[i];
		}
	}
	*ratio = sqrt(gg / ww);
	return gw / sqrt(gg * ww);
}

/* used: how many of the four linears of a layer divide by 16. */
static void in_8_bits(const char *name, int used)
{
	static const struct dt_keep modes[] = {
		{DT_RECOMPUTE_NONE, 1}, {DT_RECOMPUTE_SELECTIVE, 1}, {DT_RECOMPUTE_FULL, 1}};
	struct fixture plain, f;
	double loss, want, c, length;
	float *first = NULL;

	setup(&plain, name, 0, modes[0], 16, false);
	want = run(&plain);
	for (int i = 0; i < 3; i++) {
		char names[64];
		int n = 0;

		setup(&f, name, 0, modes[i], 16, true);
		dt_stage_8_bits(&f.plan.stage, true, names, &n);
		assert_int_equal(n, used);
		loss = run(&f);
		if (!(fabs(loss - want) < 0.02 * want) || loss == want)
			fail_msg("%s: loss %.9g in 8 bits, %.9g in fp32", name, loss, want);
		c = cosine(&f, &plain, &length);
		print_message("%s: loss %.5f beside %.5f, gradients' cosine %.5f, length %.4f\n", name, loss,
			      want, c, length);
		assert_true(c > 0.97 && fabs(length - 1) < 0.1);
		/* what is computed again is the same to the bit */
		if (first)
			assert_memory_equal(f.grads, first, (size_t)f.local.numel * sizeof(*first));
		else
			first = memcpy(malloc((size_t)f.local.numel * sizeof(*first)), f.grads,
				       (size_t)f.local.numel * sizeof(*first));
		teardown(&f);
	}
	free(first);
	teardown(&plain);
}

static void test_fp8(void **state)
{
	in_8_bits("gpt2", 2); /* ffn is 88 wide */
	in_8_bits("llama", 3);
	in_8_bits("qwen3", 3);
	in_8_bits("gemma3", 3);
}

#define MODEL(name)                                                                                          \
	static void test_##name(void **state)                                                                \
	{                                                                                                    \
		all_modes(#name);                                                                            \
	}
MODEL(gpt2)
MODEL(llama)
MODEL(llama31)
MODEL(mistral)
MODEL(qwen2)
MODEL(qwen3)
MODEL(gemma3)
MODEL(olmo2)
MODEL(olmo3)
MODEL(smollm3)
MODEL(glm4)
MODEL(glm4moe)
MODEL(minimaxm2)
MODEL(gptoss)
MODEL(granite)
MODEL(granitemoe)
MODEL(granitemoeshared)
MODEL(cohere)
MODEL(cohere2)
MODEL(starcoder2)
MODEL(bert)
MODEL(roberta)
MODEL(bertclasses)
MODEL(robertascores)
MODEL(bertscores)
MODEL(mamba2)
MODEL(granitehybrid)
MODEL(granitehybridmoe)
MODEL(bamba)
MODEL(neox)
MODEL(neoxseq)
MODEL(phi3)
MODEL(phi4)
MODEL(gemma2)
MODEL(mixtral)
MODEL(qwen3moe)
MODEL(olmoe)
MODEL(deepseek2)
MODEL(deepseek3)
MODEL(glm4mtp)
MODEL(deepseek3mtp)
MODEL(lora)
MODEL(dora)
MODEL(saved)

/* Adds by times the gradients to sum; returns the largest of them. */
static double add_grads(const struct fixture *f, float by, float *sum)
{
	double most = 0;

	for (int k = 0; k < f->local.n; k++)
		for (int64_t i = f->local.p[k].flat; i < f->local.p[k].flat + f->local.p[k].numel; i++) {
			assert_false(isnan(f->grads[i]));
			sum[i] += by * f->grads[i];
			most = fmax(most, fabs((double)f->grads[i]));
		}
	return most;
}

/* Rows without a target: losses and gradients of parts of the targets add up to those of all of them. */
static void in_parts_of_targets(const char *name, int64_t microbatch)
{
	struct fixture f;
	double whole, most, sum = 0, part = 0;
	float *left;
	int32_t *all;

	setup(&f, name, microbatch, (struct dt_keep){DT_RECOMPUTE_NONE, 1}, 0, false);
	const int64_t n = f.batch * f.seq;

	whole = run(&f);
	all = memcpy(malloc((size_t)n * sizeof(*all)), f.targets, (size_t)n * sizeof(*all));
	left = calloc((size_t)f.local.numel, sizeof(*left));
	most = add_grads(&f, 1, left);
	for (int k = 0; k < 4; k++) { /* two, then every third of the rest, then those left, then none */
		for (int64_t i = 0; i < n; i++) {
			const int of = i == 3 || i == n - 1 ? 0 : i % 3 == 0 ? 1 : 2;

			f.targets[i] = of == k ? all[i] : -1;
		}
		sum += run(&f);
		part = add_grads(&f, -1, left);
	}
	assert_true(part == 0 && f.x.pick.rows > 0);
	if (!(fabs(sum - whole) < 1e-6 * whole))
		fail_msg("%s: loss %.9g in parts, %.9g at once", name, sum, whole);
	for (int64_t i = 0; i < f.local.numel; i++)
		if (!(fabs((double)left[i]) < 1e-6 * most))
			fail_msg("%s: gradients in parts differ by %g", name, (double)left[i]);
	free(left);
	free(all);
	teardown(&f);
}

static void test_without_targets(void **state)
{
	in_parts_of_targets("gpt2", 0);
	in_parts_of_targets("llama", 1);
	in_parts_of_targets("gemma2", 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gpt2),
		cmocka_unit_test(test_llama),
		cmocka_unit_test(test_llama31),
		cmocka_unit_test(test_mistral),
		cmocka_unit_test(test_qwen2),
		cmocka_unit_test(test_qwen3),
		cmocka_unit_test(test_gemma3),
		cmocka_unit_test(test_olmo2),
		cmocka_unit_test(test_olmo3),
		cmocka_unit_test(test_smollm3),
		cmocka_unit_test(test_glm4),
		cmocka_unit_test(test_glm4moe),
		cmocka_unit_test(test_minimaxm2),
		cmocka_unit_test(test_gptoss),
		cmocka_unit_test(test_granite),
		cmocka_unit_test(test_granitemoe),
		cmocka_unit_test(test_granitemoeshared),
		cmocka_unit_test(test_cohere),
		cmocka_unit_test(test_cohere2),
		cmocka_unit_test(test_starcoder2),
		cmocka_unit_test(test_bert),
		cmocka_unit_test(test_roberta),
		cmocka_unit_test(test_bertclasses),
		cmocka_unit_test(test_robertascores),
		cmocka_unit_test(test_bertscores),
		cmocka_unit_test(test_mamba2),
		cmocka_unit_test(test_granitehybrid),
		cmocka_unit_test(test_granitehybridmoe),
		cmocka_unit_test(test_bamba),
		cmocka_unit_test(test_neox),
		cmocka_unit_test(test_neoxseq),
		cmocka_unit_test(test_phi3),
		cmocka_unit_test(test_phi4),
		cmocka_unit_test(test_gemma2),
		cmocka_unit_test(test_mixtral),
		cmocka_unit_test(test_qwen3moe),
		cmocka_unit_test(test_olmoe),
		cmocka_unit_test(test_lora),
		cmocka_unit_test(test_deepseek2),
		cmocka_unit_test(test_deepseek3),
		cmocka_unit_test(test_glm4mtp),
		cmocka_unit_test(test_deepseek3mtp),
		cmocka_unit_test(test_dora),
		cmocka_unit_test(test_fp8),
		cmocka_unit_test(test_saved),
		cmocka_unit_test(test_without_targets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
