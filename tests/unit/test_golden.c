/*
 * The reader of golden files, and that the files hold what a transformer test needs: the loss recomputed here
 * from the logits, and the SGD trajectory from the gradients, in plain fp64.
 */
#include "golden.h"

#include "kernels/rope.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const models[] = {"gpt2",	"llama",   "qwen2",	 "qwen3",	  "mistral",
				     "llama31", "gemma3",  "mixtral",	 "qwen3moe",	  "olmo2",
				     "olmo3",	"smollm3", "phi3",	 "gemma2",	  "olmoe",
				     "glm4",	"glm4moe", "minimaxm2",	 "gptoss",	  "granite",
				     "neox",	"neoxseq", "phi4",	 "granitemoe",	  "granitemoeshared",
				     "cohere",	"cohere2", "starcoder2", "glm4mtp",	  "deepseek3mtp",
				     "bert",	"roberta", "mamba2",	 "granitehybrid", "granitehybridmoe",
				     "bamba"};

static void test_config(void **state)
{
	struct golden g;
	struct dt_config c;

	golden_open(&g, "qwen3");
	golden_config(&g, &c);
	golden_close(&g);

	assert_string_equal(c.family, "qwen3");
	assert_int_equal(c.vocab, 67);
	assert_int_equal(c.kv_heads, 2);
	assert_int_not_equal(c.heads * c.head_dim, c.hidden);
	assert_true(c.qk_norm && c.gated && !c.tied && !c.qkv_bias);
	assert_int_equal(c.norm, DT_NORM_RMS);
	assert_int_equal(c.pos, DT_POS_ROPE);
	assert_true(c.norm_eps == 1e-6 && c.rope_theta == 1e6);

	golden_open(&g, "llama31");
	golden_config(&g, &c);
	golden_close(&g);
	assert_int_equal(c.rope_scaling, DT_ROPE_SCALING_LLAMA3);
	assert_true(c.rope_factor == 8 && c.rope_high_freq == 4 && c.rope_original_seq == 16);
}

static void test_shapes(void **state)
{
	struct golden g;
	int64_t shape[4], n;
	float *w;

	golden_open(&g, "llama");
	assert_int_equal(golden_shape(&g, "param/layers.1.attn.k.weight", shape), 2);
	assert_int_equal(shape[0], 24);
	assert_int_equal(shape[1], 48);
	assert_int_equal(golden_shape(&g, "loss", shape), 0);
	w = golden_f32(&g, "grad/layers.1.mlp.gate.weight", &n);
	assert_int_equal(n, 88 * 48);
	free(w);
	assert_true(golden_has(&g, "param/head.weight"));
	assert_false(golden_has(&g, "param/pos.weight"));
	assert_false(golden_has(&g, "absent/pos.weight"));
	golden_close(&g);
}

/* The mean cross-entropy over the targets that count, from the stored logits. */
static void test_loss(void **state)
{
	for (size_t m = 0; m < sizeof(models) / sizeof(*models); m++) {
		struct golden g;
		struct dt_config c;
		int64_t n, nlogits, counted = 0;
		double loss = 0, want;

		golden_open(&g, models[m]);
		golden_config(&g, &c);
		int32_t *targets = golden_i32(&g, "targets", &n);
		double *logits = golden_f64(&g, "logits", &nlogits);
		want = golden_scalar(&g, "loss");
		golden_close(&g);
		assert_int_equal(nlogits, n * c.vocab);
		for (int64_t i = 0; i < n; i++) {
			const double *row = logits + i * c.vocab;
			double sum = 0;

			if (targets[i] == -1)
				continue;
			for (int64_t j = 0; j < c.vocab; j++)
				sum += exp(row[j]);
			loss += log(sum) - row[targets[i]];
			counted++;
		}
		assert_true(counted < n);
		loss /= (double)counted;
		if (!(fabs(loss - want) < 1e-6))
			fail_msg("%s: loss %.9g from the logits, %.9g in the file", models[m], loss, want);
		free(targets);
		free(logits);
	}
}

static void test_sgd(void **state)
{
	static const char *const groups[] = {"sgd", "sgd_wd"};

	for (int k = 0; k < 2; k++) {
		struct golden g;
		char name[32], kind[16];
		int64_t n, all;

		golden_open(&g, "optim");
		snprintf(name, sizeof(name), "%s/block", groups[k]);
		golden_str(&g, groups[k], "optimizer", kind, sizeof(kind));
		assert_string_equal(kind, "sgd");
		double wd = golden_real(&g, groups[k], "weight_decay");
		int64_t steps = golden_int(&g, "/", "steps");
		double *lr = golden_f64(&g, "lr", NULL), *p = golden_f64(&g, "init/block", &n);
		double *grad = golden_f64(&g, "grad/block", &all);
		float *want = golden_f32(&g, name, NULL), *got = malloc((size_t)n * sizeof(*got));

		golden_close(&g);
		assert_true(wd == (k ? 0.1 : 0.0));
		assert_int_equal(all, n * steps);
		for (int64_t s = 0; s < steps; s++) {
			for (int64_t i = 0; i < n; i++) {
				p[i] -= lr[s] * (grad[s * n + i] + wd * p[i]);
				got[i] = (float)p[i];
			}
			golden_assert_close(name, got, want + s * n, n, 0, 1e-7);
		}
		free(lr);
		free(p);
		free(grad);
		free(want);
		free(got);
	}
}

/* Greedy decoding goes on with the largest logit of the last position. */
static void test_stories(void **state)
{
	struct golden g;
	struct dt_config c;

	golden_open(&g, "stories260k");
	golden_config(&g, &c);
	assert_int_equal(c.rope_pairing, DT_ROPE_ADJACENT);
	assert_true(c.tied);
	int64_t prompts = golden_int(&g, "/", "prompts"), n, shape[4];
	assert_true(prompts >= 3);
	for (int64_t i = 0; i < prompts; i++) {
		char name[32];
		int32_t best = 0;

		snprintf(name, sizeof(name), "prompt/%d/ids", (int)i);
		int32_t *ids = golden_i32(&g, name, &n);
		snprintf(name, sizeof(name), "prompt/%d/logits", (int)i);
		assert_int_equal(golden_shape(&g, name, shape), 2);
		assert_int_equal(shape[0], n);
		assert_int_equal(shape[1], c.vocab);
		float *logits = golden_f32(&g, name, NULL), *last = logits + (n - 1) * c.vocab;
		snprintf(name, sizeof(name), "prompt/%d/greedy", (int)i);
		int32_t *greedy = golden_i32(&g, name, &n);
		for (int32_t j = 0; j < c.vocab; j++)
			if (last[j] > last[best])
				best = j;
		assert_int_equal(best, greedy[0]);
		assert_int_equal(ids[0], 1);
		free(ids);
		free(logits);
		free(greedy);
	}
	golden_close(&g);
}

/* The measure itself: scale, floor, and a NaN is never close. */
static void test_err(void **state)
{
	float want[3] = {1, -4, 2}, near[3] = {1, -4, 2.5F}, bad[3] = {1, NAN, 2}, zero[3] = {0};

	assert_true(golden_err(want, want, 3, 0) == 0);
	assert_true(golden_err(near, want, 3, 0) == 0.125);
	assert_true(golden_err(near, want, 3, 100) == 0.005);
	assert_true(isinf(golden_err(bad, want, 3, 0)));
	assert_true(isinf(golden_err(near, zero, 3, 0)));
	assert_true(golden_err(zero, zero, 3, 0) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_config), cmocka_unit_test(test_shapes), cmocka_unit_test(test_loss),
		cmocka_unit_test(test_sgd),    cmocka_unit_test(test_err),    cmocka_unit_test(test_stories),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
