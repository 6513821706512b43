/*
 * No op of a step of inference uses OpenMP, whose threads and the team's would be in each other's way
 * (kernels/cpu/team.h): such a step takes a third longer, or several times as long, with the same results.
 */
#include "infer_golden.h"
#include "openmp_count.h"

#include "kernels/packed.h"
#include "nn/infer_priv.h"

#define SIZES                                                                                                \
	"\"vocab_size\": 1024, \"hidden_size\": 512, \"num_attention_heads\": 8, \"num_hidden_layers\": 2, " \
	"\"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000, "                  \
	"\"num_key_value_heads\": 8, \"intermediate_size\": 768"

static const struct {
	const char *name, *config;
} models[] = {
	{"llama", "{\"model_type\": \"llama\", " SIZES "}"},
	{"qwen3", "{\"model_type\": \"qwen3\", \"head_dim\": 64, " SIZES "}"},
	{"gemma2", "{\"model_type\": \"gemma2\", \"head_dim\": 64, \"sliding_window\": 32, "
		   "\"query_pre_attn_scalar\": 64, \"attn_logit_softcapping\": 50.0, "
		   "\"final_logit_softcapping\": 30.0, " SIZES "}"},
	{"gpt2", "{\"model_type\": \"gpt2\", \"vocab_size\": 1024, \"n_embd\": 512, \"n_head\": 8, "
		 "\"n_layer\": 2, \"n_positions\": 256}"},
	{"qwen3_moe", "{\"model_type\": \"qwen3_moe\", \"head_dim\": 64, \"moe_intermediate_size\": 256, "
		      "\"num_experts\": 8, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true, " SIZES "}"},
	{"deepseek_v3", "{\"model_type\": \"deepseek_v3\", \"kv_lora_rank\": 64, \"qk_nope_head_dim\": 32, "
			"\"qk_rope_head_dim\": 16, \"v_head_dim\": 32, \"moe_intermediate_size\": 256, "
			"\"n_routed_experts\": 8, \"n_shared_experts\": 1, \"num_experts_per_tok\": 2, "
			"\"first_k_dense_replace\": 1, " SIZES "}"},
};

/* A model of zeros, all of whose parameters are in the same memory. */
struct zeros {
	struct dt_source *src;
	const void **data;
	float *of;
};

static struct zeros zeros_of(const char *text)
{
	struct zeros z;
	struct dt_params table;
	struct dt_config c;
	struct dt_err err;
	json_t *o = json_loads(text, 0, NULL);
	int64_t most = 0;

	assert_non_null(o);
	if (dt_config_from_hf(o, &c, &err) < 0 || dt_model_params(&c, &table, &err) < 0)
		fail_msg("%s", err.msg);
	z.data = calloc((size_t)table.n, sizeof(*z.data));
	for (int i = 0; i < table.n; i++)
		most = dt_param_numel(&table.p[i]) > most ? dt_param_numel(&table.p[i]) : most;
	z.of = calloc((size_t)most, sizeof(*z.of));
	for (int i = 0; i < table.n; i++)
		z.data[i] = z.of;
	if (dt_source_memory(&c, z.data, DT_F32, &z.src, &err) < 0)
		fail_msg("%s", err.msg);
	dt_params_release(&table);
	json_decref(o);
	return z;
}

static void steps_of(const char *name, struct dt_source *src, int weights, enum dt_dtype cache)
{
	const struct dt_infer_params p = {.dtype = DT_BF16,
					  .cache = cache,
					  .weights = weights,
					  .max_tokens = ROWS,
					  .max_seqs = ROWS,
					  .blocks = BLOCKS,
					  .block_size = BLOCK};
	static const int rows[] = {1, 2, ROWS / 2};
	int32_t ids[ROWS] = {0};
	float *out;
	struct dt_infer *m;
	struct dt_dev *dev;
	struct dt_err err;

	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 2), 0);
	dev->batch_invariant = true;
	if (dt_infer_open(&m, dev, src, &p, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
	out = malloc((size_t)(ROWS * dt_infer_config(m)->vocab) * sizeof(*out));
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const long before = regions;

		pass(m, ids, ROWS / 2, 0, rows[i], out);
		if (regions != before)
			fail_msg("%s: %ld regions of OpenMP in a step of 2 sequences of %d tokens", name,
				 regions - before, rows[i]);
	}
	free(out);
	dt_infer_close(m);
	dt_dev_close(dev);
}

/* Each matrix names the one that is used next: query, output, gate, down of both layers, head, and again. */
static void test_order(void **state)
{
	static const int64_t rows[] = {1536, 512, 1536, 512, 1536, 512, 1536, 512, 1024};
	const struct dt_infer_params p = {.dtype = DT_BF16,
					  .cache = DT_BF16,
					  .weights = DT_FMT_Q8_0,
					  .max_tokens = ROWS,
					  .max_seqs = ROWS,
					  .blocks = BLOCKS,
					  .block_size = BLOCK};
	struct zeros z = zeros_of(models[0].config);
	const struct dt_packed *w = NULL;
	struct dt_infer *m;
	struct dt_dev *dev;
	struct dt_err err;

	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 2), 0);
	if (dt_infer_open(&m, dev, z.src, &p, &err) < 0)
		fail_msg("%s", err.msg);
	for (int s = 0; s < m->plan.stage.chunk[0].nstep && !w; s++)
		if (m->plan.stage.chunk[0].step[s].n.op == DT_OP_LINEAR)
			w = dt_infer_packed_at(m, m->plan.stage.chunk[0].step[s].n.param[0]);
	for (int i = 0; i < 2 * 9; i++, w = w->then) {
		assert_non_null(w);
		assert_int_equal(dt_packed_rows(w), rows[i % 9]);
		assert_int_equal(dt_packed_k(w), i % 9 == 3 || i % 9 == 7 ? 768 : 512);
	}
	dt_infer_close(m);
	dt_dev_close(dev);
	dt_source_close(z.src);
	free(z.data);
	free(z.of);
}

static void test_steps(void **state)
{
	if (!regions_count)
		skip();
	for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
		struct zeros z = zeros_of(models[i].config);

		steps_of(models[i].name, z.src, DT_FMT_Q8_0, DT_BF16);
		steps_of(models[i].name, z.src, DT_FMT_BF16, DT_BF16);
		steps_of(models[i].name, z.src, DT_FMT_Q4_K, DT_I8);
		dt_source_close(z.src);
		free(z.data);
		free(z.of);
	}
	assert_true(regions > 0); /* of loading: these are counted at all */
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_steps)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
