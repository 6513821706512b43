/*
 * Keys of a GGUF file that change what a model computes, beside the sizes: rotary scaling, windows, caps.
 * They are read, or refused by name.
 */
#include "kernels/activation.h"
#include "kernels/rope.h"
#include "model/config.h"
#include "model/gguf.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A file under construction. keys, tensors: how many it has so far. */
static struct {
	unsigned char b[4096];
	size_t n;
	uint64_t keys, tensors;
	char arch[16];
} f;

static struct dt_config c;
static struct dt_err err;

static void put(const void *p, size_t n)
{
	assert_true(f.n + n <= sizeof(f.b));
	memcpy(f.b + f.n, p, n);
	f.n += n;
}

static void put_str(const char *s)
{
	uint64_t n = strlen(s);

	put(&n, 8);
	put(s, n);
}

static void put_key(const char *name, uint32_t type)
{
	char key[96];

	snprintf(key, sizeof(key), "%s.%s", f.arch, name);
	put_str(strncmp(name, "general.", 8) ? key : name);
	put(&type, 4);
	f.keys++;
}

static void put_int(const char *name, uint32_t v)
{
	put_key(name, DT_GGUF_U32);
	put(&v, 4);
}

static void put_real(const char *name, float v)
{
	put_key(name, DT_GGUF_F32);
	put(&v, 4);
}

static void put_text(const char *name, const char *v)
{
	put_key(name, DT_GGUF_STRING);
	put_str(v);
}

static void put_bool(const char *name, bool v)
{
	const unsigned char b = v;

	put_key(name, DT_GGUF_BOOL);
	put(&b, 1);
}

/* Begins a file of this architecture: four layers of two heads of eight elements. */
static void begin(const char *arch)
{
	f.n = f.keys = f.tensors = 0;
	snprintf(f.arch, sizeof(f.arch), "%s", arch);
	put("GGUF\3\0\0\0", 8);
	put("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
	put_text("general.architecture", arch);
	put_int("embedding_length", 16);
	put_int("block_count", 4);
	put_int("feed_forward_length", 32);
	put_int("attention.head_count", 2);
	put_int("context_length", 64);
	put_real("attention.layer_norm_rms_epsilon", 1e-5f);
}

/* Ends the file with the embedding, and a tensor of four elements if it has a name. Reads it into c. */
static int finish(const char *tensor)
{
	const uint64_t embed[] = {16, 3}, more[] = {4}, at[] = {0, 192};
	const uint32_t two = 2, one = 1, f32 = 0;
	struct dt_gguf g;
	int rc;

	put_str("token_embd.weight");
	put(&two, 4);
	put(embed, sizeof(embed));
	put(&f32, 4);
	put(&at[0], 8);
	f.tensors = 1;
	if (tensor) {
		put_str(tensor);
		put(&one, 4);
		put(more, sizeof(more));
		put(&f32, 4);
		put(&at[1], 8);
		f.tensors = 2;
	}
	while (f.n % 32)
		put("", 1);
	for (int i = 0; i < 192 + 16; i++)
		put("", 1);
	memcpy(f.b + 8, &f.tensors, 8);
	memcpy(f.b + 16, &f.keys, 8);
	assert_int_equal(dt_gguf_parse(f.b, f.n, "small", &g, &err), 0);
	rc = dt_config_from_gguf(&g, &c, &err);
	dt_gguf_release(&g);
	return rc;
}

static void accepted(void)
{
	if (finish(NULL) < 0)
		fail_msg("%s", err.msg);
}

static void refused(const char *text)
{
	assert_int_equal(finish(NULL), -ENOTSUP);
	if (!strstr(err.msg, text))
		fail_msg("%s", err.msg);
}

static void a_factor_without_a_type_is_linear(void **state)
{
	(void)state;
	begin("llama");
	accepted();
	assert_int_equal(c.rope_scaling, DT_ROPE_SCALING_NONE);
	begin("llama");
	put_real("rope.scale_linear", 4);
	accepted();
	assert_int_equal(c.rope_scaling, DT_ROPE_SCALING_LINEAR);
	assert_true(c.rope_factor == 4);
	begin("llama");
	put_real("rope.scaling.factor", 2);
	accepted();
	assert_int_equal(c.rope_scaling, DT_ROPE_SCALING_LINEAR);
	assert_true(c.rope_factor == 2);
	begin("llama");
	put_real("rope.scale_linear", 1);
	accepted();
	assert_int_equal(c.rope_scaling, DT_ROPE_SCALING_NONE);
	begin("llama");
	put_text("rope.scaling.type", "none");
	put_real("rope.scaling.factor", 2);
	accepted();
	assert_int_equal(c.rope_scaling, DT_ROPE_SCALING_NONE);
	begin("llama");
	put_text("rope.scaling.type", "linear");
	assert_int_equal(finish(NULL), -EINVAL);
	assert_non_null(strstr(err.msg, "llama.rope.scaling.factor"));
}

static void two_scalings_at_once_are_refused(void **state)
{
	(void)state;
	begin("llama");
	put_real("rope.scaling.factor", 2);
	assert_int_equal(finish("rope_freqs.weight"), -ENOTSUP);
	assert_non_null(strstr(err.msg, "'rope_freqs.weight' together with rotary scaling 'linear'"));
}

static void begin_yarn(void)
{
	begin("qwen2");
	put_text("rope.scaling.type", "yarn");
	put_real("rope.scaling.factor", 4);
	put_int("rope.scaling.original_context_length", 32);
}

static void yarn_has_its_parameters(void **state)
{
	(void)state;
	begin_yarn();
	accepted();
	assert_true(c.rope_beta_fast == 32 && c.rope_beta_slow == 1 && c.rope_original_seq == 32);
	begin_yarn();
	put_real("rope.scaling.yarn_beta_fast", 16);
	put_real("rope.scaling.yarn_beta_slow", 2);
	put_real("rope.scaling.yarn_attn_factor", (float)dt_rope_yarn_mscale(4, 1));
	put_real("rope.scaling.yarn_ext_factor", 1);
	accepted();
	assert_true(c.rope_beta_fast == 16 && c.rope_beta_slow == 2);
	begin_yarn();
	put_real("rope.scaling.yarn_attn_factor", 1.5f);
	refused("'qwen2.rope.scaling.yarn_attn_factor' of 1.5");
	begin_yarn();
	put_real("rope.scaling.yarn_ext_factor", 0);
	refused("'qwen2.rope.scaling.yarn_ext_factor' of 0");
}

static void scales_that_are_not_computed_are_refused(void **state)
{
	(void)state;
	begin("phi3");
	put_real("rope.scaling.attn_factor", 1.19f);
	refused("'phi3.rope.scaling.attn_factor' of 1.19");
	begin("llama");
	put_real("rope.scaling.attn_factor", 1);
	accepted();
	begin("gemma3");
	put_real("final_logit_softcapping", 30);
	refused("'gemma3.final_logit_softcapping' of 30");
	begin("gemma2");
	put_real("final_logit_softcapping", 20);
	accepted();
	assert_true(c.logit_cap == 20);
	begin("llama");
	put_real("residual_scale", 0.22f);
	refused("'llama.residual_scale' of 0.22");
	begin("llama");
	put_real("logit_scale", 8);
	refused("'llama.logit_scale' of 8");
	begin("qwen3");
	put_real("attention.scale", 0.25f);
	refused("'qwen3.attention.scale' of 0.25");
	begin("gemma3");
	put_real("embedding_scale", 4); /* the root of 16 */
	accepted();
}

static void granite_has_factors(void **state)
{
	(void)state;
	begin("granite");
	put_real("logit_scale", 8);
	accepted();
	assert_true(c.logit_divisor == 8 && dt_embed_scale(&c) == 1 && !c.residual_factor && !c.score_factor);
	begin("granite");
	put_real("logit_scale", 8);
	put_real("embedding_scale", 12);
	put_real("residual_scale", 0.22f);
	put_real("attention.scale", 0.015625f);
	accepted();
	assert_true(c.embed_factor == 12 && c.residual_factor == 0.22 && dt_score_scale(&c) == 0.015625);
	begin("granite");
	assert_int_equal(finish(NULL), -EINVAL);
	assert_non_null(strstr(err.msg, "granite.logit_scale"));
	begin("granite");
	put_real("logit_scale", 0);
	refused("'granite.logit_scale' of 0");
}

/* Granite's files divide logits by this key, Cohere's multiply. */
static void cohere_multiplies_logits(void **state)
{
	(void)state;
	begin("command-r");
	put_real("attention.layer_norm_epsilon", 1e-5f);
	accepted();
	assert_true(c.logit_divisor == 0 && c.one_norm && c.norm_no_bias && !c.window);
	begin("command-r");
	put_real("attention.layer_norm_epsilon", 1e-5f);
	put_real("logit_scale", 0.25f);
	accepted();
	assert_true(c.logit_divisor == 4);
	begin("command-r");
	put_real("attention.layer_norm_epsilon", 1e-5f);
	put_real("logit_scale", -1);
	refused("'command-r.logit_scale' of -1");
	begin("cohere2");
	put_real("attention.layer_norm_epsilon", 1e-5f);
	put_int("attention.sliding_window", 8);
	put_real("logit_scale", 0.25f);
	accepted();
	assert_true(c.window == 8 && c.global_every == 4 && c.rope_skip_every == 4);
	begin("cohere2");
	put_real("attention.layer_norm_epsilon", 1e-5f);
	put_real("logit_scale", 0.25f);
	refused("without a window");
}

static void gptneox_says_what_is_parallel(void **state)
{
	(void)state;
	begin("gptneox");
	assert_int_equal(finish(NULL), -EINVAL);
	assert_non_null(strstr(err.msg, "gptneox.attention.layer_norm_epsilon"));
	begin("gptneox");
	put_real("attention.layer_norm_epsilon", 1e-5f);
	put_int("rope.dimension_count", 4);
	accepted();
	assert_true(!c.parallel_residual && c.act == DT_ACT_GELU_ERF && c.rope_dim == 4);
	begin("gptneox");
	put_real("attention.layer_norm_epsilon", 1e-5f);
	put_bool("use_parallel_residual", true);
	put_text("hidden_activation", "gelu_new");
	accepted();
	assert_true(c.parallel_residual && c.act == DT_ACT_GELU_TANH && c.rope_dim == 8);
	begin("gptneox");
	put_real("attention.layer_norm_epsilon", 1e-5f);
	put_text("hidden_activation", "mish");
	assert_int_equal(finish(NULL), -EINVAL);
	assert_non_null(strstr(err.msg, "activation 'mish'"));
}

static void windows_in_some_layers(void **state)
{
	(void)state;
	begin("gemma2");
	put_int("attention.sliding_window", 8);
	accepted();
	assert_int_equal(c.global_every, 2);
	begin("gemma2");
	put_int("attention.sliding_window", 8);
	put_int("attention.sliding_window_pattern", 3);
	accepted();
	assert_int_equal(c.global_every, 3);
	begin("olmo2");
	accepted();
	begin("olmo2"); /* OLMo 3, where every fourth layer has no window */
	put_int("attention.sliding_window", 8);
	accepted();
	assert_string_equal(c.family, "olmo3");
	assert_true(c.global_every == 4 && c.rope_local_theta == c.rope_theta);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_factor_without_a_type_is_linear),
		cmocka_unit_test(two_scalings_at_once_are_refused),
		cmocka_unit_test(yarn_has_its_parameters),
		cmocka_unit_test(scales_that_are_not_computed_are_refused),
		cmocka_unit_test(granite_has_factors),
		cmocka_unit_test(cohere_multiplies_logits),
		cmocka_unit_test(gptneox_says_what_is_parallel),
		cmocka_unit_test(windows_in_some_layers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
