/* Model descriptions: presets, Hugging Face files, our own form, and what is refused. */
#include "config_text.h"

#include "kernels/activation.h"
#include "kernels/rope.h"
#include "model/family.h"
#include "model/graph.h"
#include "model/names.h"
#include "model/params.h"
#include "model/same.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define LLAMA                                                                                                \
	"\"model_type\":\"llama\",\"vocab_size\":1000,\"hidden_size\":64,\"intermediate_size\":172,"         \
	"\"num_hidden_layers\":3,\"num_attention_heads\":4,\"max_position_embeddings\":128"
#define MISTRAL                                                                                              \
	"\"model_type\":\"mistral\",\"vocab_size\":1000,\"hidden_size\":64,\"intermediate_size\":172,"       \
	"\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,"                       \
	"\"max_position_embeddings\":128"
#define QWEN2                                                                                                \
	"\"model_type\":\"qwen2\",\"vocab_size\":1000,\"hidden_size\":64,\"intermediate_size\":172,"         \
	"\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,"                       \
	"\"max_position_embeddings\":128"

static void suggested(void)
{
	struct dt_config found;
	struct dt_err err = {0};

	assert_int_equal(dt_config_find_preset("Llama-2-7B", &found), 0); /* in any case */
	assert_string_equal(found.name, "llama-2-7b");
	assert_int_equal(dt_config_load("lama-3-8b", &found, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "; did you mean 'llama-3-8b'?"));
}

static void presets_are_possible_and_survive_json(void **state)
{
	int n = 0;

	for (const struct dt_config *c; (c = dt_config_preset(n)); n++) {
		struct dt_config back, found;
		struct dt_err err = {0};
		json_t *o = dt_config_to_json(c), *again;

		assert_int_equal(dt_config_check(c, &err), 0);
		assert_non_null(o);
		if (dt_config_from_json(o, &back, &err) < 0)
			fail_msg("%s: %s", c->name, err.msg);
		again = dt_config_to_json(&back);
		assert_true(json_equal(o, again));
		json_decref(again);
		json_decref(o);
		assert_int_equal(dt_config_find_preset(c->name, &found), 0);
		assert_memory_equal(&found, c, sizeof(found));
	}
	assert_true(n >= 15);
	assert_null(dt_config_preset(-1));
	suggested();
	assert_int_equal(dt_config_find_preset("gpt5", NULL), -ENOENT);
}

static void gpt2_defaults(void **state)
{
	struct dt_config c;

	accept("{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":2,\"n_head\":4,\"vocab_size\":257}", &c);
	assert_int_equal(c.ffn, 256);
	assert_int_equal(c.max_seq, 1024);
	assert_int_equal(c.eos, -1); /* 50256 is not in this vocabulary */
	assert_int_equal(c.act, DT_ACT_GELU_TANH);
	assert_true(c.tied && c.qkv_bias && c.out_bias && c.mlp_bias && !c.gated);
	assert_true(c.norm == DT_NORM_LAYER && c.pos == DT_POS_LEARNED && c.norm_eps == 1e-5);
	accept("{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":2,\"n_head\":4,\"vocab_size\":257,"
	       "\"n_inner\":100,\"n_positions\":96,\"activation_function\":\"gelu\",\"eos_token_id\":[7,8]}",
	       &c);
	assert_int_equal(c.ffn, 100);
	assert_int_equal(c.max_seq, 96);
	assert_int_equal(c.eos, 7);
	assert_int_equal(c.act, DT_ACT_GELU_ERF);
	/* transformers also writes its default ids into the file of a smaller vocabulary. */
	accept("{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":2,\"n_head\":4,\"vocab_size\":257,"
	       "\"bos_token_id\":50256,\"eos_token_id\":256}",
	       &c);
	assert_true(c.bos == -1 && c.eos == 256);
	refuse("{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":2,\"n_head\":4,\"vocab_size\":257,"
	       "\"eos_token_id\":300}",
	       "'eos_token_id' is 300, but 'vocab_size' is 257: give an id below it, or null for none");
}

static void llama_family(void **state)
{
	struct dt_config c;

	accept("{" LLAMA "}", &c);
	assert_int_equal(c.kv_heads, 4);
	assert_int_equal(c.head_dim, 16);
	assert_true(c.rope_theta == 10000 && c.norm_eps == 1e-6 && !c.tied && !c.qkv_bias && c.gated);
	assert_int_equal(c.rope_pairing, DT_ROPE_HALF);
	assert_true(c.bos == 1 && c.eos == 2 && c.init_std == 0.02);

	accept("{" LLAMA ",\"attention_bias\":true,\"mlp_bias\":true,\"head_dim\":32}", &c);
	assert_true(c.qkv_bias && c.out_bias && c.mlp_bias && c.head_dim == 32);

	accept("{" LLAMA ",\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"linear\",\"factor\":4}}",
	       &c);
	assert_true(c.rope_scaling == DT_ROPE_SCALING_LINEAR && c.rope_factor == 4 && c.rope_theta == 5e5);

	accept("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
	       "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}",
	       &c);
	assert_true(c.rope_scaling == DT_ROPE_SCALING_LLAMA3 && c.rope_factor == 8 && c.rope_low_freq == 1 &&
		    c.rope_high_freq == 4 && c.rope_original_seq == 8192);

	accept("{" QWEN2 "}", &c);
	assert_true(c.qkv_bias && !c.out_bias && c.window == 0);
	accept("{" QWEN2 ",\"use_sliding_window\":true,\"max_window_layers\":0}", &c);
	assert_int_equal(c.window, 4096); /* the class's default */
	accept("{" QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":64}", &c);
	assert_int_equal(c.window, 0); /* it begins at layer 28 */
	refuse("{" QWEN2 ",\"use_sliding_window\":true,\"max_window_layers\":2}", "only some of the layers");
	accept("{" QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":64,\"max_window_layers\":0}", &c);
	assert_int_equal(c.window, 64);
	accept("{" QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":64,\"max_window_layers\":3}", &c);
	assert_int_equal(c.window, 0);

	accept("{" MISTRAL "}", &c);
	assert_int_equal(c.window, 4096); /* the architecture's default */
	accept("{" MISTRAL ",\"sliding_window\":null}", &c);
	assert_int_equal(c.window, 0);
	accept("{\"model_type\":\"qwen3\",\"vocab_size\":1000,\"hidden_size\":64,\"intermediate_size\":172,"
	       "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
	       "\"max_position_embeddings\":128}",
	       &c);
	assert_true(c.qk_norm && c.head_dim == 128 && !c.qkv_bias);
}

static void unknown_or_impossible_is_refused_by_name(void **state)
{
	refuse("{}", "model_type");
	refuse("[]", "not a JSON object");
	refuse("{\"model_type\":7}", "'model_type' is not a string");
	refuse("{\"model_type\":\"xyz\"}", "architecture 'xyz' is not supported; known: gpt2, llama");
	refuse("{\"model_type\":\"llama\"}", "'vocab_size' is missing");
	refuse("{" LLAMA ",\"head_dim\":\"16\"}", "'head_dim' is not a whole number");
	refuse("{" LLAMA ",\"head_dim\":-16}", "'head_dim' is out of range");
	refuse("{" LLAMA ",\"head_dim\":15}", "even head dimension");
	refuse("{\"model_type\":\"mixtral\",\"vocab_size\":300,\"hidden_size\":1048576,"
	       "\"intermediate_size\":4194304,\"num_hidden_layers\":4096,\"num_attention_heads\":64,"
	       "\"num_key_value_heads\":64,\"num_local_experts\":4096,\"num_experts_per_tok\":2}",
	       "parameters (at most 1e+17)");
	refuse("{" LLAMA ",\"head_dim\":100000}", "head dimension is 100000");
	refuse("{" LLAMA ",\"num_key_value_heads\":3}", "4 heads cannot share 3 kv heads");
	refuse("{" LLAMA ",\"num_key_value_heads\":8}", "number of kv heads is 8");
	refuse("{" LLAMA ",\"rms_norm_eps\":0}", "epsilon");
	refuse("{" LLAMA ",\"rms_norm_eps\":true}", "'rms_norm_eps' is not a number");
	refuse("{" LLAMA ",\"rope_theta\":-1}", "rope_theta");
	refuse("{" LLAMA ",\"hidden_act\":\"mish\"}", "activation 'mish'");
	refuse("{" LLAMA ",\"tie_word_embeddings\":\"no\"}", "'tie_word_embeddings' is not true or false");
	refuse("{" LLAMA ",\"rope_scaling\":7}", "'rope_scaling' is not an object");
	refuse("{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"beta_fast\":1}}",
	       "YaRN's betas");
	refuse("{" LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\"}}", "'factor'");
	refuse("{" LLAMA ",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":4}}", "'low_freq_factor'");
	refuse("{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0.5}}", "scaling factor");
	refuse("{" LLAMA ",\"partial_rotary_factor\":0.5}", "rotating 0.5");
	refuse("{" LLAMA ",\"eos_token_id\":1000}", "'eos_token_id' is 1000");
	refuse("{" LLAMA ",\"eos_token_id\":\"</s>\"}", "'eos_token_id'");
	refuse("{" QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":64,\"max_window_layers\":1}",
	       "some of the layers");
	refuse("{\"model_type\":\"gpt2\",\"n_embd\":65,\"n_layer\":2,\"n_head\":4,\"vocab_size\":257}",
	       "'n_embd' (65)");
	refuse("{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":0,\"n_head\":4,\"vocab_size\":257}",
	       "'n_layer' is out of range");
	refuse("{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":99999,\"n_head\":4,\"vocab_size\":257}",
	       "number of layers is 99999");
	refuse("{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":2,\"n_head\":4,\"vocab_size\":1e3}",
	       "'vocab_size' is not a whole number");
	refuse("{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":2,\"n_head\":4,\"vocab_size\":257,"
	       "\"scale_attn_by_inverse_layer_idx\":true}",
	       "scale_attn_by_inverse_layer_idx");
}

static void own_form_is_strict(void **state)
{
	static const char *const keys[] = {"name",  "vocab",   "norm",	   "norm_eps", "rope_pairing",
					   "gated", "qk_norm", "init_std", "act"};
	struct dt_config c, back;
	struct dt_err err = {0};
	json_t *o;

	assert_int_equal(dt_config_find_preset("llama-tiny", &c), 0);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		o = dt_config_to_json(&c);
		json_object_del(o, keys[i]);
		assert_int_equal(dt_config_from_json(o, &back, &err), -EINVAL);
		assert_non_null(strstr(err.msg, keys[i]));
		json_object_set_new(o, keys[i], json_array());
		assert_int_equal(dt_config_from_json(o, &back, &err), -EINVAL);
		assert_non_null(strstr(err.msg, keys[i]));
		json_decref(o);
	}
	o = dt_config_to_json(&c);
	json_object_set_new(o, "widgets", json_integer(8));
	assert_int_equal(dt_config_from_json(o, &back, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "unknown key 'widgets'"));
	json_object_del(o, "widgets");
	json_object_set_new(o, "act", json_string("silu|relu"));
	assert_int_equal(dt_config_from_json(o, &back, &err), -EINVAL);
	json_object_set_new(o, "act", json_string(""));
	assert_int_equal(dt_config_from_json(o, &back, &err), -EINVAL);
	json_object_set_new(o, "act", json_string("silu"));
	json_object_set_new(o, "heads", json_integer(0));
	assert_int_equal(dt_config_from_json(o, &back, &err), -EINVAL);
	json_decref(o);
	/* what contradicts the family */
	o = dt_config_to_json(&c);
	json_object_set_new(o, "family", json_string("resnet"));
	assert_int_equal(dt_config_from_json(o, &back, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "family 'resnet' needs an image_size"));
	json_object_set_new(o, "family", json_string("deepseek_v2"));
	for (size_t i = 0; i < 3; i++)
		json_object_set_new(o, ((const char *const[]){"kv_rank", "rope_dim", "v_dim"})[i],
				    json_integer(8));
	assert_int_equal(dt_config_from_json(o, &back, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "latent attention"));
	json_object_set_new(o, "kv_heads", json_integer(c.heads));
	assert_int_equal(dt_config_from_json(o, &back, &err), 0);
	json_decref(o);
	o = NULL;
	/* its config.json has no form for it, and so it is refused when read back */
	assert_int_equal(dt_config_to_hf(&back, "float32", &o, &err), 0);
	assert_true(dt_config_from_hf(o, &back, &err) < 0);
	json_decref(o);
	assert_int_equal(dt_config_from_json(NULL, &back, &err), -EINVAL);
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void loads_from_files_folders_and_checkpoints(void **state)
{
	char dir[] = "/tmp/test_config.XXXXXX", path[64];
	struct dt_config c, tiny;
	struct dt_err err = {0};
	json_t *o;
	char *text;

	assert_non_null(mkdtemp(dir));
	assert_int_equal(chdir(dir), 0);
	assert_int_equal(dt_config_load(dir, &c, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "neither a config.json nor a checkpoint"));

	mkdir("hf", 0777);
	write_file("hf/config.json", "{" LLAMA "}");
	assert_int_equal(dt_config_load("hf", &c, &err), 0);
	assert_string_equal(c.name, "hf");
	assert_int_equal(dt_config_load("hf/", &c, &err), 0);
	assert_string_equal(c.name, "hf");
	assert_int_equal(dt_config_load("hf/config.json", &c, &err), 0);
	assert_string_equal(c.name, "hf");
	assert_int_equal(c.layers, 3);

	/* A checkpoint root without `latest`: the newest complete step; then with it. */
	assert_int_equal(dt_config_find_preset("gpt2-tiny", &tiny), 0);
	o = json_pack("{s:i, s:o}", "format", 1, "model", dt_config_to_json(&tiny));
	text = json_dumps(o, 0);
	mkdir("run", 0777);
	mkdir("run/step-00000002", 0777);
	mkdir("run/step-00000010", 0777);
	mkdir("run/step-00000011.tmp", 0777);
	mkdir("run/step-00000012", 0777);
	write_file("run/step-00000002/manifest.json", "{}");
	write_file("run/step-00000011.tmp/manifest.json", "{}");
	write_file("run/step-00000010/manifest.json", text);
	if (dt_config_load("run", &c, &err) < 0)
		fail_msg("%s", err.msg);
	assert_memory_equal(&c, &tiny, sizeof(c));
	assert_int_equal(symlink("step-00000002", "run/latest"), 0);
	assert_int_equal(dt_config_load("run", &c, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "run/latest/manifest.json"));
	assert_int_equal(dt_config_load("run/step-00000010", &c, &err), 0);
	write_file("own.json", text);
	assert_int_equal(dt_config_load("own.json", &c, &err), 0);
	free(text);
	json_decref(o);

	write_file("x.gguf", "GGUF....");
	assert_int_equal(dt_config_load("x.gguf", &c, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "GGUF"));
	write_file("bad.json", "{\"model_type\": \"gpt2\",}");
	assert_int_equal(dt_config_load("bad.json", &c, &err), -EINVAL);
	write_file("twice.json", "{\"model_type\": \"gpt2\", \"model_type\": \"llama\"}");
	assert_int_equal(dt_config_load("twice.json", &c, &err), -EINVAL);
	assert_int_equal(dt_config_load("./missing", &c, &err), -ENOENT);
	assert_int_equal(dt_config_load("gpt9", &c, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "no preset, file or folder is called 'gpt9'"));
	assert_int_equal(dt_config_load("", &c, &err), -ENOENT);
	assert_int_equal(chdir("/"), 0);
	snprintf(path, sizeof(path), "rm -rf '%s'", dir);
	assert_int_equal(system(path), 0);
}

/* Every prefix of a file, and every byte of it changed, is read or refused, never crashes. */
static void mangled_files_do_no_harm(void **state)
{
	static const char text[] = "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
				   "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
				   "\"original_max_position_embeddings\":8192},\"eos_token_id\":[1,2]}";
	static const char odd[] = "\"0-9[{}],\\\001\377n";
	struct dt_config c;
	struct dt_params t;
	char copy[sizeof(text)];
	int accepted = 0;

	for (size_t n = 0; n < sizeof(text) - 1; n++) {
		memcpy(copy, text, n);
		copy[n] = '\0';
		assert_true(from_text(copy, &c, NULL) < 0);
	}
	for (size_t i = 0; i < sizeof(text) - 1; i++) {
		for (const char *o = odd; *o; o++) {
			memcpy(copy, text, sizeof(text));
			copy[i] = *o;
			if (from_text(copy, &c, NULL) < 0)
				continue;
			accepted++;
			assert_int_equal(dt_model_params(&c, &t, NULL), 0);
			assert_true(dt_params_total(&t) > 0);
			dt_params_release(&t);
		}
	}
	assert_true(accepted > 10);
}

static const char *data_folder(void)
{
	static const char *const places[] = {"../shared/data", "../../shared/data"};
	const char *env = getenv("DT_TEST_DATA");

	if (env)
		return env;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (access(places[i], R_OK) == 0)
			return places[i];
	return NULL;
}

static void published_files(void **state)
{
	static const struct {
		const char *file;
		int64_t params;
	} files[] = {
		{"meta-llama__Llama-3.1-8B", 8030261248},
		{"meta-llama__Llama-3.1-70B", 70553706496},
		{"Qwen__Qwen2.5-7B", 7615616512},
		{"Qwen__Qwen3-8B", 8190735360},
		{"Qwen__Qwen3-30B-A3B-Instruct-2507", 30532122624},
		{"deepseek-ai__DeepSeek-V3", 671026419200},
		{"mistralai__Mixtral-8x7B-v0.1", 46702792704},
	};
	const char *root = data_folder();
	char path[512];

	if (!root) {
		print_message("skipped: no DT_TEST_DATA with configs/\n");
		skip();
	}
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct dt_config c;
		struct dt_params t;
		struct dt_err err = {0};
		int rc;

		snprintf(path, sizeof(path), "%s/configs/%s.json", root, files[i].file);
		if (access(path, R_OK) < 0)
			continue;
		rc = dt_config_load(path, &c, &err);
		if (rc < 0)
			fail_msg("%s", err.msg);
		assert_int_equal(dt_model_params(&c, &t, &err), 0);
		assert_int_equal(dt_params_total(&t), files[i].params);
		dt_params_release(&t);
		assert_true(!!c.rope_scaling == !strncmp(files[i].file, "meta", 4));
	}
}

/*
 * A module for a further token: of DeepSeek-V3 11.6 billion parameters besides embedding and head, under the
 * names of its files behind the last layer.
 */
static void mtp_module(void **state)
{
	const int64_t h = 7168,
		      attention = 1536 * h + 1536 + 1536 * 128 * 192 + 576 * h + 512 + 512 * 128 * 256 +
				  128 * 128 * h,
		      experts = 256 * h + 256 + 257 * 3 * 2048 * h;
	struct dt_params with, without;
	struct dt_place_in_file at;
	struct dt_err err = {0};
	struct dt_config c;

	assert_int_equal(dt_config_find_preset("deepseek-v3", &c), 0);
	assert_int_equal(dt_model_params(&c, &without, &err), 0);
	c.mtp_layers = 1;
	assert_int_equal(dt_model_params(&c, &with, &err), 0);
	assert_int_equal(dt_params_total(&with) - dt_params_total(&without),
			 5 * h + 2 * h * h + attention + experts);
	for (int i = 0; i < with.n; i++)
		if (!strcmp(with.p[i].name, "mtp.proj.weight")) {
			assert_true(dt_names_place(DT_NAMES_HF, &c, &with.p[i], 0, &at));
			assert_string_equal(at.name, "layers.61.eh_proj.weight");
			assert_true(dt_names_place(DT_NAMES_GGUF, &c, &with.p[i], 0, &at));
			assert_string_equal(at.name, "blk.61.nextn.eh_proj.weight");
		}
	assert_int_not_equal(dt_params_find(&with, "mtp.mlp.experts.gate.weight"), -1);
	dt_params_release(&with);
	dt_params_release(&without);
	assert_int_equal(dt_config_find_preset("llama-3-8b", &c), 0);
	c.mtp_layers = 1;
	assert_int_equal(dt_model_params(&c, &with, &err), -ENOTSUP);
	assert_non_null(strstr(err.msg, "has no modules for further tokens"));
}

/* Families that are not trained, or only estimated: read, described, and refused where something would run
 * them.
 */
static void not_trained(void **state)
{
	struct dt_config c;
	struct dt_err err = {0};

	accept("{" LLAMA ",\"num_local_experts\":4,\"num_experts_per_tok\":2}", &c);
	assert_int_equal(c.experts, 0); /* not what a llama has */
	assert_int_equal(dt_config_computable(&c, &err), 0);
	dt_config_find_preset("mixtral-8x7b", &c);
	assert_int_equal(dt_config_computable(&c, &err), 0);
	assert_int_equal(dt_config_servable(&c, &err), 0);
	dt_config_find_preset("deepseek-v3", &c);
	assert_int_equal(dt_config_computable(&c, &err), 0);
	assert_int_equal(dt_config_servable(&c, &err), 0);
	c.rope_dim = c.head_dim;
	assert_int_equal(dt_config_servable(&c, &err), -ENOTSUP);
	assert_non_null(strstr(err.msg, "rotated whole"));
	assert_false(dt_layer_has_experts(&c, 2));
	assert_true(dt_layer_has_experts(&c, 3));
	assert_int_equal(dt_layer_width(&c, 2), 18432);
	assert_int_equal(dt_layer_width(&c, 3), 9 * 2048);
	/* gemma-3-4b's own file: what is left out is its class's default. */
	accept("{\"model_type\":\"gemma3\",\"text_config\":{\"hidden_size\":2560,\"intermediate_size\":10240,"
	       "\"model_type\":\"gemma3_text\",\"num_hidden_layers\":34,\"sliding_window\":1024,"
	       "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"}}}",
	       &c);
	assert_int_equal(c.heads, 8);
	assert_int_equal(c.kv_heads, 4);
	assert_int_equal(c.head_dim, 256);
	assert_int_equal(c.vocab, 262208);
	assert_true(c.norm_plus_one && c.embed_scaled && c.post_norms);
	assert_true(c.rope_theta == 1e6 && c.rope_local_theta == 1e4 && c.rope_factor == 8);
	assert_int_equal(c.score_dim, 0);
	assert_int_equal(c.bos, 2);
	assert_int_equal(dt_layer_window(&c, 4), 1024);
	assert_int_equal(dt_layer_window(&c, 5), 0);
	assert_int_equal(dt_config_computable(&c, &err), 0);
	assert_int_equal(dt_config_servable(&c, &err), 0);
	assert_true(fabs(dt_rope_frequency(&c, 3) - pow(1e6, -6.0 / 256) / 8) < 1e-9);
	assert_true(fabs(dt_rope_local_frequency(&c, 3) - pow(1e4, -6.0 / 256)) < 1e-9);
	assert_true(fabs(dt_score_scale(&c) - 1.0 / 16) < 1e-9);
	/* The newer form: rotary parameters of each kind of layer; another scale of the scores. */
	accept("{\"model_type\":\"gemma3_text\",\"hidden_size\":64,\"intermediate_size\":96,\"vocab_size\":"
	       "300,"
	       "\"num_hidden_layers\":2,\"query_pre_attn_scalar\":168,\"rope_parameters\":{\"full_"
	       "attention\":"
	       "{\"rope_type\":\"linear\",\"factor\":4,\"rope_theta\":50000},\"sliding_attention\":"
	       "{\"rope_type\":\"default\",\"rope_theta\":300}}}",
	       &c);
	assert_true(c.rope_theta == 50000 && c.rope_local_theta == 300 && c.rope_factor == 4);
	assert_int_equal(c.score_dim, 168);
	for (int i = 0; i < 2; i++)
		refuse(i ? "{\"model_type\":\"gemma3_text\",\"hidden_size\":64,\"intermediate_size\":96,"
			   "\"num_hidden_layers\":2,\"attn_logit_softcapping\":50,\"final_logit_"
			   "softcapping\":0}"
			 : "{\"model_type\":\"gemma3_text\",\"hidden_size\":64,\"intermediate_size\":96,"
			   "\"num_hidden_layers\":2,\"attn_logit_softcapping\":null,\"final_logit_"
			   "softcapping\":30}",
		       "soft capping");
	/* Mixtral's class has a base and an epsilon of its own. */
	accept("{\"model_type\":\"mixtral\",\"hidden_size\":64,\"intermediate_size\":96,\"vocab_size\":300,"
	       "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2}",
	       &c);
	assert_true(c.rope_theta == 1e6 && c.norm_eps == 1e-5);
	assert_int_equal(c.window, 0);
	/* Qwen3's experts have the softmax's weights unless the file says that they add up to 1. */
	for (int i = 0; i < 2; i++) {
		accept(i ? "{\"model_type\":\"qwen3_moe\",\"hidden_size\":64,\"intermediate_size\":96,"
			   "\"vocab_size\":300,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
			   "\"num_key_value_heads\":2,\"max_position_embeddings\":32,\"num_experts\":8,"
			   "\"num_experts_per_tok\":2,\"moe_intermediate_size\":24,\"norm_topk_prob\":true}"
			 : "{\"model_type\":\"qwen3_moe\",\"hidden_size\":64,\"intermediate_size\":96,"
			   "\"vocab_size\":300,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
			   "\"num_key_value_heads\":2,\"max_position_embeddings\":32,\"num_experts\":8,"
			   "\"num_experts_per_tok\":2,\"moe_intermediate_size\":24}",
		       &c);
		assert_int_equal(c.router_unscaled, !i);
		assert_int_equal(c.expert_ffn, 24);
	}
	/* As transformers 5 writes it. */
	accept("{\"model_type\":\"qwen3_moe\",\"hidden_size\":64,\"intermediate_size\":96,\"vocab_size\":300,"
	       "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
	       "\"max_position_embeddings\":32,\"num_local_experts\":6,\"num_experts_per_tok\":2,"
	       "\"moe_intermediate_size\":24,\"norm_topk_prob\":true}",
	       &c);
	assert_int_equal(c.experts, 6);
	assert_int_equal(c.head_dim, 16); /* no default, unlike Qwen3 without experts */
	accept("{\"model_type\":\"qwen3_moe\",\"hidden_size\":64,\"intermediate_size\":96,\"vocab_size\":300,"
	       "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
	       "\"max_position_embeddings\":32,\"num_local_experts\":6,\"num_experts_per_tok\":2,"
	       "\"moe_intermediate_size\":24,\"use_sliding_window\":true,\"sliding_window\":8,"
	       "\"max_window_layers\":2}",
	       &c);
	assert_int_equal(c.window, 8); /* of all layers */
}

/* Every family can be asked for by name, has a graph, and names of its own for what it has. */
static void families(void **state)
{
	const struct dt_family *f;

	for (int i = 0; (f = dt_family_at(i)); i++) {
		assert_ptr_equal(dt_family_find(f->type), f);
		assert_true(f->build && (f->images || f->beside_text ||
					 (f->from_hf && f->hf[0] && (f->gguf[0] || !f->arch))));
		assert_int_equal(!f->class, !f->to_hf);
	}
	for (int i = 0; dt_config_preset(i); i++)
		assert_non_null(dt_family_find(dt_config_preset(i)->family));
}

/* Classifiers of images as timm describes them. */
static void timm_files(void **state)
{
	static const struct {
		const char *text, *why;
	} refused[] = {
		{"{\"architecture\":\"resnet50d\"}", "resnet50d"},
		{"{\"architecture\":\"resnet18\",\"num_classes\":0}", "num_classes"},
		{"{\"architecture\":\"resnet18\",\"pretrained_cfg\":{\"input_size\":[3,224,192]}}", "192"},
		{"{\"architecture\":\"resnet18\",\"pretrained_cfg\":{\"input_size\":[5,64,64]}}",
		 "5 channels"},
		{"{\"model_type\":\"resnet\"}", "not supported"}};
	static const char *const presets[] = {"resnet-18", "resnet-34", "resnet-50", "resnet-101"};
	struct dt_config c, back;
	struct dt_err err = {0};
	json_t *o;

	for (size_t i = 0; i < 4; i++) {
		dt_config_find_preset(presets[i], &c);
		c.channels = 1;
		c.vocab = 7;
		assert_int_equal(dt_config_to_hf(&c, "float32", &o, &err), 0);
		assert_int_equal(json_integer_value(json_object_get(o, "num_classes")), 7);
		assert_int_equal(dt_config_from_hf(o, &back, &err), 0);
		assert_true(dt_config_same(&c, &back, NULL));
		json_decref(o);
	}
	dt_config_find_preset("resnet-9", &c); /* timm has none */
	assert_int_equal(dt_config_to_hf(&c, "float32", &o, &err), 0);
	assert_int_equal(dt_config_from_any(o, "x", &back, &err), 0);
	assert_true(dt_config_same(&c, &back, NULL));
	json_decref(o);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		o = json_loads(refused[i].text, 0, NULL);
		assert_true(dt_config_from_hf(o, &back, &err) < 0);
		assert_non_null(strstr(err.msg, refused[i].why));
		json_decref(o);
	}
}

static void names_of_images(void **state)
{
	static const struct {
		const char *file, *ours;
	} names[] = {{"layer2.0.downsample.0.weight", "layer2.0.downsample.0.weight"},
		     {"layer2.0.shortcut.1.bias", "layer2.0.downsample.1.bias"},
		     {"module.layer1.1.bn1.running_var", "layer1.1.bn1.running_var"},
		     {"module.linear.weight", "fc.weight"},
		     {"fc.bias", "fc.bias"}};
	char buf[DT_NAMES_MAX];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_string_equal(dt_names_of_images(names[i].file, buf), names[i].ours);
}

/* A checkpoint of a family that this program does not have. */
/* A message says what a file cannot hold. */
static void differences_are_named(void **state)
{
	static const struct {
		size_t at;
		const char *what;
	} real[] = {{offsetof(struct dt_config, score_cap), "the scale or cap of its scores"},
		    {offsetof(struct dt_config, logit_cap), "the scale or cap of its logits"},
		    {offsetof(struct dt_config, embed_factor), "the scale of its embeddings"},
		    {offsetof(struct dt_config, residual_factor), "the scale of its residuals"},
		    {offsetof(struct dt_config, router_scale), "its router"},
		    {offsetof(struct dt_config, rope_theta), "its rotary positions"},
		    {offsetof(struct dt_config, norm_eps), "its sizes or norms"}};
	struct dt_config c, other;
	const char *what;

	(void)state;
	assert_int_equal(dt_config_find_preset("mixtral-8x7b", &c), 0);
	for (size_t i = 0; i < sizeof(real) / sizeof(*real); i++) {
		const double v = 7;

		other = c;
		memcpy((char *)&other + real[i].at, &v, sizeof(v));
		assert_false(dt_config_same(&c, &other, &what));
		assert_string_equal(what, real[i].what);
	}
	other = c;
	other.global_every = 2;
	assert_false(dt_config_same(&c, &other, &what));
	assert_string_equal(what, "a sliding window");
}

static void unknown_family(void **state)
{
	struct dt_config c;
	struct dt_params t;
	struct dt_err err = {0};

	dt_config_find_preset("llama-tiny", &c);
	snprintf(c.family, sizeof(c.family), "abacus");
	assert_int_equal(dt_model_params(&c, &t, &err), -ENOTSUP);
	assert_non_null(strstr(err.msg, "family 'abacus'"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(differences_are_named),
		cmocka_unit_test(presets_are_possible_and_survive_json),
		cmocka_unit_test(gpt2_defaults),
		cmocka_unit_test(llama_family),
		cmocka_unit_test(unknown_or_impossible_is_refused_by_name),
		cmocka_unit_test(own_form_is_strict),
		cmocka_unit_test(mangled_files_do_no_harm),
		cmocka_unit_test(mtp_module),
		cmocka_unit_test(not_trained),
		cmocka_unit_test(families),
		cmocka_unit_test(unknown_family),
		cmocka_unit_test(timm_files),
		cmocka_unit_test(names_of_images),
		cmocka_unit_test(published_files),
		cmocka_unit_test(loads_from_files_folders_and_checkpoints),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
