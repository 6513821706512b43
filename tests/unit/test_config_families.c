/* What the classes of single families take for granted in config.json. */
#include "config_text.h"

#include "kernels/activation.h"
#include "kernels/rope.h"
#include "model/graph.h"
#include "model/params.h"
#include "model/same.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define DEEPSEEK                                                                                             \
	"\"hidden_size\":64,\"intermediate_size\":96,\"vocab_size\":300,\"num_hidden_layers\":5,"            \
	"\"num_attention_heads\":4,\"max_position_embeddings\":32,\"kv_lora_rank\":16,"                      \
	"\"n_routed_experts\":32,\"num_experts_per_tok\":4,\"moe_intermediate_size\":24"

static void deepseek_defaults(void **state)
{
	struct dt_config c;

	(void)state;
	accept("{\"model_type\":\"deepseek_v3\"," DEEPSEEK "}", &c);
	assert_true(c.q_rank == 1536 && c.shared_ffn == 24 && c.dense_layers == 3);
	assert_true(c.router_scale == 2.5 && !c.router_unscaled);
	assert_true(c.router_groups == 8 && c.router_groups_used == 4);
	accept("{\"model_type\":\"deepseek_v3\"," DEEPSEEK ",\"q_lora_rank\":null,\"n_group\":1,"
	       "\"topk_group\":1,\"n_shared_experts\":null}",
	       &c);
	assert_true(c.q_rank == 0 && c.shared_ffn == 0 && c.router_groups == 0);
	refuse("{\"model_type\":\"deepseek_v3\"," DEEPSEEK
	       ",\"qk_nope_head_dim\":17,\"qk_rope_head_dim\":15}",
	       "even head dimension, not 15");
	refuse("{\"model_type\":\"deepseek_v2\"," DEEPSEEK ",\"attention_bias\":true}", "'attention_bias'");
	accept("{\"model_type\":\"deepseek_v2\"," DEEPSEEK "}", &c);
	assert_true(c.q_rank == 1536 && c.shared_ffn == 48 && c.dense_layers == 0);
	assert_true(!(c.router_scale > 0 && c.router_scale != 1) && c.router_unscaled);
	assert_int_equal(c.router_groups, 0);
}

/* As in transformers: rms_norm_eps is not that of the latents' norms, which is 1e-6. */
static void deepseek_epsilons(void **state)
{
	struct dt_graph g;
	struct dt_config c;
	int latents = 0;

	(void)state;
	accept("{\"model_type\":\"deepseek_v3\"," DEEPSEEK ",\"rms_norm_eps\":0.001}", &c);
	assert_int_equal(dt_graph_build(&c, &g, NULL), 0);
	for (int i = 0; i < g.nnode; i++) {
		const bool latent = strstr(g.node[i].name, "q_a_norm") || strstr(g.node[i].name, "kv_a_norm");

		if (g.node[i].op == DT_OP_NORM && g.node[i].attr.eps != (latent ? 1e-6f : 1e-3f))
			fail_msg("%s: %g", g.node[i].name, (double)g.node[i].attr.eps);
		latents += g.node[i].op == DT_OP_NORM && latent;
	}
	assert_int_equal(latents, 2 * c.layers);
	dt_graph_release(&g);
}

#define SMOLLM3                                                                                              \
	"{\"model_type\":\"smollm3\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4"

#define GPT_OSS                                                                                              \
	"{\"model_type\":\"gpt_oss\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4"

/* Sizes as published, and what their classes take for granted. */
static void later_families(void **state)
{
	static const struct {
		const char *preset;
		int64_t params;
	} sizes[] = {{"phi-3-mini", 3821079552}, {"olmo-2-1b", 1484916736},   {"olmo-2-7b", 7298617344},
		     {"olmo-3-7b", 7298011136},	 {"olmo-3-32b", 32233522176}, {"smollm3-3b", 3075098624},
		     {"gemma-2-2b", 2614341888}, {"gemma-2-9b", 9241705984},  {"gemma-2-27b", 27227128320}};
	struct dt_config c;
	struct dt_params t;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		assert_int_equal(dt_config_find_preset(sizes[i].preset, &c), 0);
		assert_int_equal(dt_model_params(&c, &t, NULL), 0);
		assert_int_equal(dt_params_total(&t), sizes[i].params);
		dt_params_release(&t);
		assert_int_equal(dt_config_computable(&c, NULL), 0);
		assert_int_equal(dt_config_servable(&c, NULL), 0);
	}
	accept("{\"model_type\":\"gemma2\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":"
	       "4}",
	       &c);
	assert_true(c.score_cap == 50 && c.logit_cap == 30 && c.norm_plus_one && !c.qk_norm);
	assert_true(dt_layer_window(&c, 0) == 4096 && dt_layer_window(&c, 1) == 0);
	accept("{\"model_type\":\"gemma2\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":"
	       "4,"
	       "\"attn_logit_softcapping\":null,\"final_logit_softcapping\":12.5}",
	       &c);
	assert_true(c.score_cap == 0 && c.logit_cap == 12.5);
	accept("{\"model_type\":\"phi3\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,"
	       "\"num_attention_heads\":4,\"sliding_window\":31}",
	       &c);
	assert_true(c.window == 31 && c.kv_heads == 4 && c.vocab == 32064);
	refuse("{\"model_type\":\"phi3\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,"
	       "\"num_attention_heads\":4,\"rope_scaling\":{\"type\":\"longrope\",\"long_factor\":[1]}}",
	       "'short_factor' has 0 numbers, not one for each of 8 pairs");
	accept("{\"model_type\":\"phi3\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,"
	       "\"num_attention_heads\":4,\"partial_rotary_factor\":0.25,\"max_position_embeddings\":32768,"
	       "\"rope_scaling\":{\"type\":\"su\",\"long_factor\":[2,8],\"short_factor\":[1,1.5]}}",
	       &c);
	assert_true(c.rope_scaling == DT_ROPE_SCALING_LONGROPE && c.rope_dim == 4 &&
		    c.rope_original_seq == 4096);
	assert_true(c.rope_long[1] == 8 && c.rope_short[1] == 1.5f && c.rope_factor == 8);
	assert_true(fabs(c.rope_mscale - sqrt(1 + log(8) / log(4096))) < 1e-12);
	assert_int_equal(dt_config_positions(&c), 32768);
	accept("{\"model_type\":\"olmo2\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":"
	       "4,"
	       "\"num_attention_heads\":4}",
	       &c);
	assert_true(c.no_pre_norms && c.post_norms && c.qk_norm && c.qk_norm_whole && c.norm_eps == 1e-5);
	accept("{\"model_type\":\"olmo3\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":"
	       "8,"
	       "\"num_attention_heads\":4,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8,"
	       "\"original_max_position_embeddings\":8192}}",
	       &c);
	assert_true(c.no_pre_norms && c.qk_norm_whole && c.rope_scaling == DT_ROPE_SCALING_YARN);
	assert_true(c.rope_theta == 5e5 && c.rope_local_theta == 5e5);
	assert_true(dt_layer_window(&c, 2) == 4096 && dt_layer_window(&c, 3) == 0);
	refuse("{\"model_type\":\"olmo3\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":"
	       "4,"
	       "\"num_attention_heads\":4,\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}"
	       ","
	       "\"sliding_attention\":{\"rope_type\":\"linear\",\"factor\":2}}}",
	       "layers with a window");
	accept(GPT_OSS "}", &c);
	assert_true(c.attn_sinks && c.expert_bias && c.qkv_bias && c.out_bias && c.expert_ffn == 96);
	assert_true(c.window == 128 && c.global_every == 2 && c.rope_untruncated);
	refuse(GPT_OSS ",\"swiglu_limit\":5}", "only 1.702 and 7");
	accept(SMOLLM3 "}", &c);
	assert_true(c.heads == 16 && c.kv_heads == 4 && c.tied && c.rope_theta == 2e6);
	assert_true(dt_layer_rotates(&c, 2) && !dt_layer_rotates(&c, 3));
	accept(SMOLLM3 ",\"no_rope_layers\":[1,0,1,0]}", &c);
	assert_true(dt_layer_rotates(&c, 0) && !dt_layer_rotates(&c, 1) && !dt_layer_rotates(&c, 3));
	accept(SMOLLM3 ",\"no_rope_layers\":[1,1,1,1]}", &c);
	assert_true(dt_layer_rotates(&c, 3));
	refuse(SMOLLM3 ",\"no_rope_layers\":[1,0,1,1]}", "'no_rope_layers' has no period");
	refuse(SMOLLM3 ",\"no_rope_layers\":[1,0]}", "'no_rope_layers' does not list every layer");
	refuse(SMOLLM3 ",\"use_sliding_window\":true}", "'use_sliding_window' being true");
}

#define SIZES "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4"

/* GLM-4 and GLM-4.5: what their classes take for granted, and which part of a head is rotated. */
static void glm(void **state)
{
	struct dt_config c;

	accept("{\"model_type\":\"glm4\"," SIZES "}", &c);
	assert_true(c.heads == 32 && c.kv_heads == 2 && c.head_dim == 128 && dt_rope_dim(&c) == 64);
	assert_true(c.qkv_bias && !c.out_bias && c.post_norms && c.rope_pairing == DT_ROPE_ADJACENT);
	accept("{\"model_type\":\"glm4\"," SIZES ",\"partial_rotary_factor\":1}", &c);
	assert_int_equal(dt_rope_dim(&c), 128);
	accept("{\"model_type\":\"glm4\"," SIZES
	       ",\"rope_parameters\":{\"partial_rotary_factor\":0.25,\"rope_theta\":500}}",
	       &c);
	assert_true(dt_rope_dim(&c) == 32 && c.rope_theta == 500);
	refuse("{\"model_type\":\"glm4\"," SIZES ",\"partial_rotary_factor\":1.5}", "is 1.5");
	refuse("{\"model_type\":\"glm4\"," SIZES ",\"partial_rotary_factor\":0}", "is 0");
	refuse("{\"model_type\":\"glm4\"," SIZES ",\"head_dim\":12,\"partial_rotary_factor\":0.25}",
	       "even head dimension, not 3");
	accept("{\"model_type\":\"glm4_moe\"," SIZES ",\"head_dim\":16}", &c);
	assert_true(c.experts == 128 && c.experts_used == 8 && c.expert_ffn == 1408 && c.shared_ffn == 1408);
	assert_true(c.router_sigmoid && c.router_bias && !c.router_unscaled && !c.router_groups);
	assert_true(dt_rope_dim(&c) == 8 && c.dense_layers == 1 && !c.qk_norm && !c.qkv_bias);
	accept("{\"model_type\":\"glm4_moe\"," SIZES
	       ",\"head_dim\":16,\"n_shared_experts\":2,\"moe_intermediate_size\":24,\"n_group\":4,"
	       "\"topk_group\":2,\"norm_topk_prob\":false,\"use_qk_norm\":true}",
	       &c);
	assert_true(c.shared_ffn == 48 && c.router_groups == 4 && c.router_groups_used == 2);
	assert_true(c.router_unscaled && c.qk_norm);
}

static void minimax(void **state)
{
	struct dt_config c;

	accept("{\"model_type\":\"minimax_m2\"," SIZES ",\"rotary_dim\":64}", &c);
	assert_true(c.heads == 48 && c.head_dim == 128 && dt_rope_dim(&c) == 64 && c.rope_theta == 5e6);
	assert_true(c.experts == 256 && c.expert_ffn == 96 && !c.shared_ffn && c.qk_norm_whole);
	accept("{\"model_type\":\"minimax_m2\"," SIZES "}", &c);
	assert_int_equal(dt_rope_dim(&c), 128);
	refuse("{\"model_type\":\"minimax_m2\"," SIZES ",\"rotary_dim\":256}", "rotary_dim");
	refuse("{\"model_type\":\"minimax_m2\"," SIZES ",\"shared_intermediate_size\":8}",
	       "'shared_intermediate_size' of 8");
	refuse("{\"model_type\":\"minimax_m2\"," SIZES ",\"use_routing_bias\":false}", "'use_routing_bias'");
}

/* Factors of 1, and of scores by the width of heads, are none. */
static void granite(void **state)
{
	struct dt_config c, back;
	struct dt_err err = {0};
	json_t *o;

	(void)state;
	accept("{\"model_type\":\"granite\"," SIZES "}", &c);
	assert_true(dt_score_scale(&c) == 1 && dt_embed_scale(&c) == 1 && dt_logit_scale(&c) == 1);
	assert_true(dt_stream_eps(&c) == c.norm_eps && !c.residual_factor);
	accept("{\"model_type\":\"granite\"," SIZES
	       ",\"embedding_multiplier\":12,\"attention_multiplier\":0.25,"
	       "\"residual_multiplier\":0.5,\"logits_scaling\":8,\"rms_norm_eps\":1e-5}",
	       &c);
	assert_true(dt_score_scale(&c) == 0.25 && dt_embed_scale(&c) == 24 && dt_logit_scale(&c) == 0.125);
	assert_true(dt_stream_eps(&c) == 4e-5);
	assert_int_equal(dt_config_to_hf(&c, "float32", &o, &err), 0);
	assert_int_equal(dt_config_from_hf(o, &back, &err), 0);
	assert_true(dt_config_same(&c, &back, NULL));
	json_decref(o);
	accept("{\"model_type\":\"granite\"," SIZES ",\"head_dim\":16,\"attention_multiplier\":0.25}", &c);
	assert_true(c.score_factor == 0 && dt_score_scale(&c) == 0.25);
	refuse("{\"model_type\":\"granite\"," SIZES ",\"residual_multiplier\":0}",
	       "'residual_multiplier' of 0 is not supported");
	refuse("{\"model_type\":\"granite\"," SIZES ",\"logits_scaling\":-1}", "'logits_scaling' of -1");
	refuse("{\"model_type\":\"granite\"," SIZES ",\"embedding_multiplier\":1e9}", "by 1e+09");
	dt_config_find_preset("gpt2-tiny", &c);
	c.residual_factor = 0.5;
	assert_int_equal(dt_config_check(&c, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "without RMSNorms"));
}

static void granite_mixtures(void **state)
{
	static const char *const type[] = {"granitemoe", "granitemoeshared"};
	struct dt_config c, back;
	struct dt_err err = {0};
	char text[512];
	json_t *o;

	(void)state;
	for (int shared = 0; shared < 2; shared++) {
		snprintf(text, sizeof(text),
			 "{\"model_type\":\"%s\"," SIZES ",\"num_local_experts\":6,\"num_experts_per_tok\":3,"
			 "\"residual_multiplier\":0.5,\"shared_intermediate_size\":24}",
			 type[shared]);
		accept(text, &c);
		assert_true(c.experts == 6 && c.experts_used == 3 && c.expert_ffn == c.ffn &&
			    !c.router_unscaled);
		assert_true(c.shared_ffn == (shared ? 24 : 0) && c.residual_factor == 0.5);
		assert_int_equal(dt_config_to_hf(&c, "float32", &o, &err), 0);
		assert_int_equal(dt_config_from_hf(o, &back, &err), 0);
		assert_true(dt_config_same(&c, &back, NULL));
		json_decref(o);
	}
	accept("{\"model_type\":\"granitemoe\"," SIZES "}", &c);
	assert_true(c.experts == 8 && c.experts_used == 2);
	refuse("{\"model_type\":\"granitemoe\"," SIZES ",\"num_local_experts\":0}", "num_local_experts");
}

#define FOUR_HEADS SIZES ",\"num_attention_heads\":4"

static void cohere(void **state)
{
	static const char *const type[] = {"cohere", "cohere2"};
	struct dt_config c, back;
	struct dt_err err = {0};
	char text[512];
	json_t *o;

	(void)state;
	for (int windows = 0; windows < 2; windows++) {
		snprintf(text, sizeof(text),
			 "{\"model_type\":\"%s\"," FOUR_HEADS ",\"logit_scale\":0.25,\"layer_norm_eps\":1e-4,"
			 "\"use_qk_norm\":false,\"sliding_window\":7,\"sliding_window_pattern\":2}",
			 type[windows]);
		accept(text, &c);
		assert_true(c.parallel_residual && c.one_norm && c.norm_no_bias && c.norm == DT_NORM_LAYER);
		assert_true(c.norm_eps == 1e-4 && c.tied && c.gated && c.act == DT_ACT_SILU && !c.qkv_bias);
		assert_true(c.rope_pairing == DT_ROPE_ADJACENT && dt_logit_scale(&c) == 0.25);
		assert_true(c.rope_theta == (windows ? 10000 : 500000));
		assert_true(c.window == (windows ? 7 : 0) && c.global_every == (windows ? 2 : 0) &&
			    c.rope_skip_every == c.global_every);
		assert_int_equal(dt_config_to_hf(&c, "float32", &o, &err), 0);
		assert_int_equal(dt_config_from_hf(o, &back, &err), 0);
		assert_true(dt_config_same(&c, &back, NULL) && back.rope_pairing == DT_ROPE_ADJACENT);
		json_decref(o);
	}
	accept("{\"model_type\":\"cohere\"," FOUR_HEADS "}", &c);
	assert_true(dt_logit_scale(&c) == 0.0625 && c.norm_eps == 1e-5);
	accept("{\"model_type\":\"cohere2\"," FOUR_HEADS "}", &c);
	assert_true(c.window == 4096 && c.global_every == 4 && c.rope_skip_every == 4);
	refuse("{\"model_type\":\"cohere\"," FOUR_HEADS ",\"use_qk_norm\":true}", "'use_qk_norm' being true");
	refuse("{\"model_type\":\"cohere\"," FOUR_HEADS ",\"logit_scale\":0}", "'logit_scale' of 0");
	refuse("{\"model_type\":\"cohere2\"," FOUR_HEADS ",\"sliding_window\":null}",
	       "'sliding_window' of null");
	c.parallel_residual = false;
	assert_int_equal(dt_config_check(&c, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "do not read the same stream"));
}

static void starcoder2(void **state)
{
	struct dt_config c, back;
	struct dt_err err = {0};
	json_t *o;

	(void)state;
	accept("{\"model_type\":\"starcoder2\"}", &c);
	assert_true(c.hidden == 3072 && c.layers == 30 && c.heads == 24 && c.kv_heads == 2 && c.ffn == 12288);
	assert_true(c.norm == DT_NORM_LAYER && c.act == DT_ACT_GELU_TANH && !c.gated && c.tied && !c.window);
	assert_true(c.qkv_bias && c.out_bias && c.mlp_bias && c.vocab == 49152 && c.eos == -1);
	accept("{\"model_type\":\"starcoder2\"," FOUR_HEADS ",\"use_bias\":false,\"sliding_window\":7,"
	       "\"norm_epsilon\":1e-4,\"hidden_act\":\"gelu\",\"tie_word_embeddings\":false,"
	       "\"rope_theta\":500}",
	       &c);
	assert_true(!c.qkv_bias && !c.out_bias && !c.mlp_bias && c.window == 7 && c.norm_eps == 1e-4);
	assert_true(c.act == DT_ACT_GELU_ERF && !c.tied && c.rope_theta == 500 && c.head_dim == 16);
	assert_int_equal(dt_config_to_hf(&c, "float32", &o, &err), 0);
	assert_int_equal(dt_config_from_hf(o, &back, &err), 0);
	assert_true(dt_config_same(&c, &back, NULL));
	json_decref(o);
	refuse("{\"model_type\":\"starcoder2\",\"hidden_size\":50}", "not a multiple");
}

static void gpt_neox(void **state)
{
	struct dt_config c, back;
	struct dt_err err = {0};
	json_t *o;

	(void)state;
	accept("{\"model_type\":\"gpt_neox\"}", &c);
	assert_true(c.hidden == 6144 && c.layers == 44 && c.heads == 64 && c.head_dim == 96 &&
		    c.vocab == 50432);
	assert_true(c.rope_dim == 24 && c.parallel_residual && c.act == DT_ACT_GELU_ERF && !c.tied);
	assert_true(c.norm == DT_NORM_LAYER && c.qkv_bias && c.out_bias && c.mlp_bias && c.bos == 0 &&
		    c.eos == 2);
	accept("{\"model_type\":\"gpt_neox\",\"hidden_size\":48,\"num_attention_heads\":4,\"rotary_pct\":1,"
	       "\"rotary_emb_base\":500,\"use_parallel_residual\":false,\"hidden_act\":\"gelu_fast\","
	       "\"attention_bias\":false,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}",
	       &c);
	assert_true(c.rope_dim == 12 && c.rope_theta == 500 && !c.parallel_residual && !c.qkv_bias);
	assert_true(c.act == DT_ACT_GELU_TANH && !c.out_bias && c.mlp_bias && c.rope_factor == 2);
	assert_int_equal(dt_config_to_hf(&c, "float32", &o, &err), 0);
	assert_int_equal(dt_config_from_hf(o, &back, &err), 0);
	assert_true(dt_config_same(&c, &back, NULL));
	json_decref(o);
	/* as transformers 5 writes it */
	accept("{\"model_type\":\"gpt_neox\",\"hidden_size\":128,\"num_attention_heads\":4,"
	       "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":300,\"partial_rotary_factor\":"
	       "0.5}}",
	       &c);
	assert_true(c.rope_dim == 16 && c.rope_theta == 300);
	/* 0.4286 of 14 is 6.0004, 0.42857 of it 5.99998 */
	accept("{\"model_type\":\"gpt_neox\",\"hidden_size\":56,\"num_attention_heads\":4,\"rotary_pct\":0."
	       "4286}",
	       &c);
	assert_int_equal(c.rope_dim, 6);
	accept("{\"model_type\":\"gpt_neox\",\"hidden_size\":56,\"num_attention_heads\":4,\"rotary_pct\":0."
	       "42857}",
	       &c);
	assert_int_equal(c.rope_dim, 6);
	refuse("{\"model_type\":\"gpt_neox\",\"hidden_size\":50,\"num_attention_heads\":4}",
	       "not a multiple");
	refuse("{\"model_type\":\"gpt_neox\",\"rotary_pct\":0}", "'partial_rotary_factor' is 0");
}

/* transformers truncates the product of the part and the head's size. */
static void part_of_a_head(void **state)
{
	struct dt_config c;
	struct dt_err err = {0};

	(void)state;
	accept("{\"model_type\":\"gpt_neox\"}", &c);
	for (c.head_dim = 2; c.head_dim <= 256; c.head_dim += 2)
		for (c.rope_dim = 2; c.rope_dim <= c.head_dim; c.rope_dim += 2) {
			json_t *o;

			assert_int_equal(dt_config_to_hf(&c, "float32", &o, &err), 0);
			assert_int_equal((int64_t)((double)c.head_dim *
						   json_real_value(json_object_get(o, "rotary_pct"))),
					 c.rope_dim);
			json_decref(o);
		}
}

static void mamba2(void **state)
{
	struct dt_config c, back;
	struct dt_err err = {0};
	json_t *o;

	(void)state;
	accept("{\"model_type\":\"mamba2\"}", &c);
	assert_true(c.vocab == 32768 && c.hidden == 4096 && c.layers == 64 && c.ssm_heads == 128 &&
		    c.ssm_head_dim == 64 && c.ssm_groups == 8 && c.ssm_state == 128 && c.ssm_kernel == 4);
	assert_true(c.norm_eps == 1e-5 && c.pos == DT_POS_NONE && !c.tied && c.ffn == 0 && c.bos == 0 &&
		    c.eos == 2 && !dt_config_attends(&c) && dt_layer_is_ssm(&c, 63));
	accept("{\"model_type\":\"mamba2\",\"hidden_size\":48,\"num_heads\":9,\"head_dim\":16,\"expand\":3,"
	       "\"n_groups\":3,\"state_size\":20,\"conv_kernel\":2,\"num_hidden_layers\":2,"
	       "\"tie_word_embeddings\":true,\"time_step_limit\":[0.0,1e308]}",
	       &c);
	assert_true(c.ssm_groups == 3 && c.ssm_kernel == 2 && c.tied);
	assert_int_equal(dt_config_to_hf(&c, "float32", &o, &err), 0);
	assert_int_equal(json_integer_value(json_object_get(o, "expand")), 3);
	assert_int_equal(dt_config_from_hf(o, &back, &err), 0);
	assert_true(dt_config_same(&c, &back, NULL));
	json_decref(o);
	refuse("{\"model_type\":\"mamba2\",\"expand\":3}", "'hidden_size' 4096 times 'expand' 3 is not");
	refuse("{\"model_type\":\"mamba2\",\"use_bias\":true}", "'use_bias' being true");
	refuse("{\"model_type\":\"mamba2\",\"use_conv_bias\":false}", "'use_conv_bias' being false");
	refuse("{\"model_type\":\"mamba2\",\"hidden_act\":\"gelu\"}", "other than silu");
	refuse("{\"model_type\":\"mamba2\",\"n_groups\":3}", "128 heads of Mamba-2 cannot share 3 groups");
	refuse("{\"model_type\":\"mamba2\",\"conv_kernel\":17}", "width of Mamba-2's convolution is 17");
	refuse("{\"model_type\":\"mamba2\",\"time_step_limit\":[0.001,1e308]}", "'time_step_limit'");
	refuse("{\"model_type\":\"mamba2\",\"time_step_limit\":[0,0.1]}", "'time_step_limit'");
	refuse("{\"model_type\":\"mamba2\",\"time_step_limit\":3}", "not a list of two numbers");
	c.pos = DT_POS_ROPE;
	assert_int_equal(dt_config_check(&c, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "Mamba-2 with positions, but no attention"));
}

#define HYBRID                                                                                               \
	"\"hidden_size\":64,\"intermediate_size\":40,\"num_attention_heads\":4,\"num_hidden_layers\":3,"     \
	"\"vocab_size\":99,\"mamba_n_heads\":16"

/* Written and read back, in config.json's form and in our own, it says the same. */
static void there_and_back(const struct dt_config *c)
{
	struct dt_config back;
	struct dt_err err = {0};
	json_t *o;

	assert_int_equal(dt_config_to_hf(c, "float32", &o, &err), 0);
	assert_int_equal(dt_config_from_hf(o, &back, &err), 0);
	assert_true(dt_config_same(c, &back, NULL));
	json_decref(o);
	o = dt_config_to_json(c);
	assert_int_equal(dt_config_from_json(o, &back, &err), 0);
	assert_true(dt_config_same(c, &back, NULL));
	assert_memory_equal(c->attn_layers, back.attn_layers, sizeof(back.attn_layers));
	json_decref(o);
}

static void granite_hybrid(void **state)
{
	struct dt_config c;

	(void)state;
	accept("{\"model_type\":\"granitemoehybrid\"," HYBRID
	       ",\"layer_types\":[\"mamba\",\"attention\",\"linear_attention\"]}",
	       &c);
	assert_true(c.experts == 8 && c.experts_used == 2 && c.expert_ffn == 40 && c.shared_ffn == 1024);
	assert_true(c.ssm_heads == 16 && c.ssm_head_dim == 8 && c.ssm_groups == 1 && c.ssm_state == 256 &&
		    c.ssm_kernel == 4 && c.pos == DT_POS_NONE);
	assert_true(dt_layer_is_ssm(&c, 0) && !dt_layer_is_ssm(&c, 1) && dt_layer_is_ssm(&c, 2) &&
		    dt_config_attends(&c) && dt_config_ssm_layers(&c, 0, 3) == 2);
	there_and_back(&c);
	accept("{\"model_type\":\"granitemoehybrid\"," HYBRID
	       ",\"num_local_experts\":0,\"num_experts_per_tok\":0,"
	       "\"shared_intermediate_size\":48,\"position_embedding_type\":\"nope\",\"mamba_d_head\":8,"
	       "\"layer_types\":[\"full_attention\",\"mamba\",\"mamba\"],\"residual_multiplier\":0.25}",
	       &c);
	assert_true(!c.experts && !c.shared_ffn && c.ffn == 48 && c.pos == DT_POS_NONE &&
		    c.residual_factor == 0.25 && !dt_layer_is_ssm(&c, 0));
	there_and_back(&c);
	/* the models with attention alone */
	accept("{\"model_type\":\"granitemoehybrid\"," HYBRID ",\"num_local_experts\":0,"
	       "\"position_embedding_type\":\"rope\",\"rope_theta\":1e7,"
	       "\"layer_types\":[\"attention\",\"attention\",\"attention\"]}",
	       &c);
	assert_true(!c.ssm_heads && c.pos == DT_POS_ROPE && c.rope_theta == 1e7 && c.ffn == 1024);
	there_and_back(&c);
	refuse("{\"model_type\":\"granitemoehybrid\"," HYBRID ",\"layer_types\":[\"mamba\",\"mamba\"]}",
	       "does not list every layer");
	refuse("{\"model_type\":\"granitemoehybrid\"," HYBRID
	       ",\"layer_types\":[\"mamba\",\"mlp\",\"mamba\"]}",
	       "'layer_types' of 'mlp' for layer 1");
	refuse("{\"model_type\":\"granitemoehybrid\"," HYBRID ",\"mamba_d_head\":9}",
	       "'hidden_size' 64 times 'mamba_expand' 2 is not 'mamba_n_heads' 16 times 'mamba_d_head' 9");
	refuse("{\"model_type\":\"granitemoehybrid\"," HYBRID ",\"mamba_proj_bias\":true}",
	       "'mamba_proj_bias'");
	refuse("{\"model_type\":\"granitemoehybrid\"," HYBRID ",\"mamba_conv_bias\":false}",
	       "'mamba_conv_bias'");
}

static void bamba(void **state)
{
	struct dt_config c;
	struct dt_err err = {0};

	(void)state;
	accept("{\"model_type\":\"bamba\"," HYBRID ",\"num_key_value_heads\":2,\"attn_layer_indices\":[2],"
	       "\"mlp_bias\":true,\"mamba_d_head\":\"auto\"}",
	       &c);
	assert_true(c.pos == DT_POS_ROPE && c.rope_dim == 8 && c.mlp_bias && c.max_seq == 262144 &&
		    c.ssm_state == 256 && dt_layer_is_ssm(&c, 1) && !dt_layer_is_ssm(&c, 2));
	there_and_back(&c);
	accept("{\"model_type\":\"bamba\"," HYBRID ",\"num_key_value_heads\":2}", &c);
	assert_true(c.pos == DT_POS_NONE && !dt_config_attends(&c));
	there_and_back(&c);
	refuse("{\"model_type\":\"bamba\"," HYBRID ",\"num_key_value_heads\":2,\"attn_layer_indices\":[3]}",
	       "no number of a layer below 3");
	refuse("{\"model_type\":\"bamba\"," HYBRID ",\"num_key_value_heads\":2,\"attn_layer_indices\":3}",
	       "not a list");
	c.attn_layers[7] = 1;
	assert_int_equal(dt_config_check(&c, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "layer 448 is listed as one with attention, but there are fewer"));
	c.ssm_heads = 0;
	assert_int_equal(dt_config_check(&c, &err), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(deepseek_defaults),
		cmocka_unit_test(deepseek_epsilons),
		cmocka_unit_test(later_families),
		cmocka_unit_test(glm),
		cmocka_unit_test(granite),
		cmocka_unit_test(minimax),
		cmocka_unit_test(gpt_neox),
		cmocka_unit_test(starcoder2),
		cmocka_unit_test(cohere),
		cmocka_unit_test(part_of_a_head),
		cmocka_unit_test(granite_mixtures),
		cmocka_unit_test(mamba2),
		cmocka_unit_test(granite_hybrid),
		cmocka_unit_test(bamba),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
