/* The parameter table against published counts and closed forms; cuts; flops. */
#include "model/flops.h"
#include "model/params.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct dt_params table_of(const char *name, struct dt_config *c)
{
	struct dt_params t = {0};
	struct dt_err err = {0};

	assert_int_equal(dt_config_find_preset(name, c), 0);
	if (dt_model_params(c, &t, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
	return t;
}

static void published_counts(void **state)
{
	static const struct {
		const char *name;
		int64_t n;
	} known[] = {
		{"gpt2-124m", 124439808},	{"gpt2-355m", 354823168},
		{"gpt2-774m", 774030080},	{"gpt2-1558m", 1557611200},
		{"llama-2-7b", 6738415616},	{"llama-2-13b", 13015864320},
		{"llama-2-70b", 68976648192},	{"llama-3-8b", 8030261248},
		{"llama-3-70b", 70553706496},	{"mistral-7b", 7241732096},
		{"qwen2.5-0.5b", 494032768},	{"llama-3.1-8b", 8030261248},
		{"llama-3.1-70b", 70553706496}, {"llama-3.1-405b", 405853388800},
		{"qwen2.5-7b", 7615616512},	{"qwen3-0.6b", 596049920},
		{"qwen3-8b", 8190735360},	{"qwen3-30b-a3b", 30532122624},
		{"gemma-3-1b", 999885952},	{"mixtral-8x7b", 46702792704},
		{"deepseek-v3", 671026419200},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		struct dt_config c;
		struct dt_params t = table_of(known[i].name, &c);

		if (dt_params_total(&t) != known[i].n)
			fail_msg("%s: %lld, published %lld", known[i].name, (long long)dt_params_total(&t),
				 (long long)known[i].n);
		dt_params_release(&t);
	}
}

/* Closed forms of the same, for models with every combination of options. */
static void closed_forms(void **state)
{
	struct dt_config c;
	struct dt_params t;

	for (int bits = 0; bits < 128; bits++) {
		int64_t h, a, g, d, f, v, l, n;

		dt_config_find_preset("llama-tiny", &c);
		c.gated = bits & 1;
		c.tied = bits & 2;
		c.qkv_bias = bits & 4;
		c.out_bias = bits & 8;
		c.mlp_bias = bits & 16;
		c.qk_norm = bits & 32;
		c.norm = bits & 64 ? DT_NORM_LAYER : DT_NORM_RMS;
		c.head_dim = 24;
		h = c.hidden, a = c.heads, g = c.kv_heads, d = c.head_dim, f = c.ffn, v = c.vocab,
		l = c.layers;
		n = (c.tied ? 1 : 2) * v * h + (c.norm == DT_NORM_LAYER ? 2 : 1) * h * (2 * l + 1) +
		    l * (2 * h * d * (a + g) + (c.gated ? 3 : 2) * h * f +
			 (c.qkv_bias ? (a + 2 * g) * d : 0) + (c.out_bias ? h : 0) +
			 (c.mlp_bias ? (c.gated ? 2 : 1) * f + h : 0) + (c.qk_norm ? 2 * d : 0));
		assert_int_equal(dt_model_params(&c, &t, NULL), 0);
		assert_int_equal(dt_params_total(&t), n);
		dt_params_release(&t);
	}
}

static void names_order_and_init(void **state)
{
	static const char *const first[] = {
		"embed.weight",
		"pos.weight",
		"layers.0.attn_norm.weight",
		"layers.0.attn_norm.bias",
		"layers.0.attn.q.weight",
		"layers.0.attn.k.weight",
		"layers.0.attn.v.weight",
		"layers.0.attn.q.bias",
		"layers.0.attn.k.bias",
		"layers.0.attn.v.bias",
		"layers.0.attn.o.weight",
		"layers.0.attn.o.bias",
		"layers.0.mlp_norm.weight",
		"layers.0.mlp_norm.bias",
		"layers.0.mlp.up.weight",
		"layers.0.mlp.up.bias",
		"layers.0.mlp.down.weight",
		"layers.0.mlp.down.bias",
		"layers.1.attn_norm.weight",
	};
	struct dt_config c;
	struct dt_params t = table_of("gpt2-124m", &c);

	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
		assert_string_equal(t.p[i].name, first[i]);
	assert_string_equal(t.p[t.n - 1].name, "norm.bias");
	assert_int_equal(dt_params_find(&t, "head.weight"), -1);
	for (int i = 0; i < t.n; i++) {
		const struct dt_param *p = &t.p[i];

		assert_int_equal(dt_params_find(&t, p->name), i);
		assert_true(p->decay == (p->ndim == 2));
		if (p->role == DT_W_O || p->role == DT_W_DOWN)
			assert_float_equal(p->init_std, 0.02 / sqrt(24), 1e-12);
		else if (p->ndim == 2)
			assert_float_equal(p->init_std, 0.02, 1e-12);
		else
			assert_int_equal(p->init,
					 strstr(p->name, "norm.weight") ? DT_INIT_ONES : DT_INIT_ZEROS);
		if (p->fused)
			assert_int_equal(p->layer, t.p[i - 1].layer);
	}
	assert_true(t.p[dt_params_find(&t, "layers.3.attn.v.weight")].fused);
	assert_false(t.p[dt_params_find(&t, "layers.3.mlp.up.weight")].fused);
	dt_params_release(&t);
	t = table_of("llama-tiny", &c);
	assert_string_equal(t.p[t.n - 1].name, "head.weight");
	assert_int_equal(t.p[t.n - 1].layer, c.layers);
	assert_true(t.p[dt_params_find(&t, "layers.2.mlp.up.weight")].fused);
	dt_params_release(&t);
}

/* The boxes of all ranks cover each tensor exactly once; replicated ones are equal on the ranks that share */
static void cuts_cover(void **state)
{
	static const struct {
		const char *name;
		int tp;
	} cases[] = {{"gpt2-124m", 1},	{"gpt2-124m", 2},   {"gpt2-124m", 4},
		     {"gpt2-1558m", 5}, {"llama-tiny", 2},  {"llama-tiny", 4},
		     {"llama-3-8b", 8}, {"llama-3-8b", 32}, {"qwen2.5-0.5b", 14}};

	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		struct dt_config c;
		struct dt_params t = table_of(cases[k].name, &c);
		int tp = cases[k].tp;

		for (int i = 0; i < t.n; i++) {
			const struct dt_param *p = &t.p[i];
			int64_t sum = 0, next = 0, largest = 0, smallest = INT64_MAX;
			int copies = 1;

			if (p->cut == DT_CUT_NONE)
				copies = tp;
			else if (p->cut == DT_CUT_KV && c.kv_heads < tp)
				copies = tp / (int)c.kv_heads;
			for (int r = 0; r < tp; r++) {
				int64_t off[2], shape[2], n;

				dt_param_cut(p, tp, r, off, shape);
				n = shape[0] * shape[1];
				sum += n;
				largest = n > largest ? n : largest;
				smallest = n < smallest ? n : smallest;
				for (int d = 0; d < 2; d++)
					assert_true(off[d] >= 0 && shape[d] >= 0 &&
						    off[d] + shape[d] <= p->shape[d]);
				if (p->cut == DT_CUT_NONE)
					continue;
				assert_int_equal(shape[!p->cut_dim], p->shape[!p->cut_dim]);
				assert_int_equal(off[p->cut_dim], next);
				if (r % copies == copies - 1)
					next += shape[p->cut_dim];
			}
			assert_int_equal(sum, copies * dt_param_numel(p));
			if (p->cut != DT_CUT_NONE)
				assert_int_equal(next, p->shape[p->cut_dim]);
			/* Uneven only by one unit, and only where the size does not divide. */
			assert_true(largest - smallest <= p->cut_unit * p->shape[!p->cut_dim]);
		}
		dt_params_release(&t);
	}
}

/* Each rank's q heads read exactly the kv heads it holds. */
static void kv_heads_follow_q_heads(void **state)
{
	struct dt_config c;
	struct dt_params t = table_of("llama-3-8b", &c);
	const struct dt_param *q = &t.p[dt_params_find(&t, "layers.0.attn.q.weight")];
	const struct dt_param *k = &t.p[dt_params_find(&t, "layers.0.attn.k.weight")];
	int64_t group = c.heads / c.kv_heads;

	for (int tp = 1; tp <= 32; tp *= 2) {
		for (int r = 0; r < tp; r++) {
			int64_t qo[2], qs[2], ko[2], ks[2];

			dt_param_cut(q, tp, r, qo, qs);
			dt_param_cut(k, tp, r, ko, ks);
			assert_int_equal(qo[0] / c.head_dim / group, ko[0] / c.head_dim);
			assert_int_equal(((qo[0] + qs[0]) / c.head_dim - 1) / group,
					 (ko[0] + ks[0]) / c.head_dim - 1);
		}
	}
	dt_params_release(&t);
}

/*
 * Narayanan et al. 2021, section 3.2: 72 L h^2 (1 + s / 6h + V / 12hL) a token for a GPT, backward included.
 */
static void flops_of_gpt(void **state)
{
	static const char *const names[] = {"gpt2-124m", "gpt2-1558m"};

	for (size_t i = 0; i < 2; i++) {
		struct dt_config c;
		double h, l, v, s = 1024, want;

		dt_config_find_preset(names[i], &c);
		h = (double)c.hidden, l = (double)c.layers, v = (double)c.vocab;
		want = 72 * l * h * h * (1 + s / (6 * h) + v / (12 * h * l));
		assert_float_equal(dt_model_flops_per_token(&c, 1024, true) / want, 1, 1e-12);
		assert_float_equal(dt_model_flops_per_token(&c, 1024, false) / want, 1.0 / 3, 1e-12);
	}
}

/* For a Llama: 6 a weight that multiplies (all but embedding and norms), and 12 s a d L; windows bound s. */
static void flops_of_llama(void **state)
{
	struct dt_config c;
	struct dt_params t = table_of("mistral-7b", &c);
	double weights = 0;

	for (int i = 0; i < t.n; i++)
		if (t.p[i].ndim == 2 && t.p[i].role != DT_W_EMBED)
			weights += (double)dt_param_numel(&t.p[i]);
	assert_float_equal(dt_model_flops_per_token(&c, 2048, true) / (6 * weights + 12.0 * 2048 * 4096 * 32),
			   1, 1e-12);
	assert_true(dt_model_flops_per_token(&c, 4096, true) == dt_model_flops_per_token(&c, 32768, true));
	dt_params_release(&t);
}

static void impossible_is_refused(void **state)
{
	struct dt_config c;
	struct dt_params t;
	struct dt_err err = {0};

	dt_config_find_preset("llama-tiny", &c);
	c.heads = 0;
	assert_true(dt_model_params(&c, &t, &err) < 0);
	assert_non_null(strstr(err.msg, "heads"));
}

/* What a token meets: Mixtral 12.9 B of 46.7, Qwen3-30B-A3B 3.3 B, DeepSeek-V3 37 B, as their authors say. */
static void active_parameters(void **state)
{
	static const struct {
		const char *name;
		double n, half_digit;
	} known[] = {
		{"mixtral-8x7b", 12.9e9, 0.05e9},
		{"qwen3-30b-a3b", 3.3e9, 0.1e9},
		{"deepseek-v3", 37e9, 1e9},
		{"llama-2-7b", 6738415616, 0},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		struct dt_config c;
		struct dt_params t = table_of(known[i].name, &c);

		if (fabs((double)dt_params_active(&c, &t) - known[i].n) > known[i].half_digit)
			fail_msg("%s: %lld active, published %g", known[i].name,
				 (long long)dt_params_active(&c, &t), known[i].n);
		dt_params_release(&t);
	}
}

/* A model of which only the size is known has that size, and a Llama's proportions that tp and pp can cut. */
static void models_of_a_size(void **state)
{
	static const struct {
		double params;
		int64_t heads, layers;
	} known[] = {{7e9, 32, 32}, {13e9, 40, 40}, {3e9, 24, 24}, {405e9, 128, 128}};
	struct dt_config c;

	for (double n = 1e6; n < 2e13; n *= 3.7) {
		struct dt_params t;

		assert_int_equal(dt_config_of_size(n, &c, NULL), 0);
		assert_int_equal(dt_model_params(&c, &t, NULL), 0);
		if (fabs((double)dt_params_total(&t) / n - 1) > (n < 1e8 ? 0.05 : 0.002))
			fail_msg("%g parameters asked, %lld got", n, (long long)dt_params_total(&t));
		if (c.heads % 8 || (c.layers >= 16 && c.layers % 8))
			fail_msg("%g parameters: %lld heads, %lld layers", n, (long long)c.heads,
				 (long long)c.layers);
		if (2 * c.ffn < c.hidden || c.ffn > 6 * c.hidden)
			fail_msg("%g parameters: an MLP of %lld beside a width of %lld", n, (long long)c.ffn,
				 (long long)c.hidden);
		dt_params_release(&t);
	}
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		assert_int_equal(dt_config_of_size(known[i].params, &c, NULL), 0);
		assert_int_equal(c.heads, known[i].heads);
		assert_int_equal(c.layers, known[i].layers);
	}
	assert_true(dt_config_of_size(1, &c, NULL) < 0);
	assert_true(dt_config_of_size(NAN, &c, NULL) < 0);
}

/* He et al. 2015 in torchvision's form: parameters and GMACs as model zoos list them. */
static void residual_networks(void **state)
{
	static const struct {
		const char *name;
		int64_t params;
		double gmacs;
	} known[] = {
		{"resnet-18", 11689512, 1.814},	      {"resnet-34", 21797672, 3.664},
		{"resnet-50", 25557032, 4.089},	      {"resnet-101", 44549160, 7.802},
		{"resnet-18-cifar", 11173962, 0.555}, {"resnet-34-cifar", 21282122, 1.159},
		{"resnet-50-cifar", 23520842, 1.298}, {"mlp:784-512-10", 407050, 0.000406528},
		{"vit-b-32", 88224232, 4.409},
	};
	struct dt_params t;
	struct dt_config c;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		double gmacs;

		assert_int_equal(dt_config_load(known[i].name, &c, NULL), 0);
		assert_int_equal(dt_model_params(&c, &t, NULL), 0);
		assert_int_equal(dt_params_total(&t), known[i].params);
		dt_params_release(&t);
		gmacs = dt_model_flops_per_token(&c, 1, false) / 2e9;
		if (fabs(gmacs / known[i].gmacs - 1) > 0.002)
			fail_msg("%s: %g GMACs, not %g", known[i].name, gmacs, known[i].gmacs);
	}
	dt_config_find_preset("resnet-18-cifar", &c);
	c.channels = 1;
	assert_int_equal(dt_model_params(&c, &t, NULL), 0);
	assert_int_equal(dt_params_total(&t), 11172810);
	dt_params_release(&t);
	assert_true(dt_config_load("resnet-19", &c, NULL) < 0);
	assert_true(dt_config_load("mlp:784", &c, NULL) < 0);
	assert_true(dt_config_load("mlp:", &c, NULL) < 0);
	assert_true(dt_config_load("mlp:784-0-10", &c, NULL) < 0);
	assert_true(dt_config_load("mlp:784--10", &c, NULL) < 0);
	assert_true(dt_config_load("mlp:785-20-10", &c, NULL) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(residual_networks),
		cmocka_unit_test(active_parameters),
		cmocka_unit_test(models_of_a_size),
		cmocka_unit_test(published_counts),
		cmocka_unit_test(closed_forms),
		cmocka_unit_test(names_order_and_init),
		cmocka_unit_test(cuts_cover),
		cmocka_unit_test(kv_heads_follow_q_heads),
		cmocka_unit_test(flops_of_gpt),
		cmocka_unit_test(flops_of_llama),
		cmocka_unit_test(impossible_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
