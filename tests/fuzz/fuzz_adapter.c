/*
 * Adapters against a small base: the first byte says whether the rest is adapter_config.json or
 * adapter_model.safetensors of PEFT's folder, whose other file is whole, or llama.cpp's GGUF.
 */
#include "ckpt/adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

static char dir[] = "/tmp/dt-fuzz-adapter-XXXXXX";
static struct dt_config config;
static struct dt_params params;

static const char plain[] = "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4}";
/* A and B of one linear: [2, 8] and [8, 2] of f32, all zeros. */
static const char head[] =
	"{\"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\":{\"dtype\":\"F32\","
	"\"shape\":[2,8],\"data_offsets\":[0,64]},"
	"\"base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight\":{\"dtype\":\"F32\","
	"\"shape\":[8,2],\"data_offsets\":[64,128]}}";

static void put(const char *name, const void *p, size_t n)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	if (!f || fwrite(p, 1, n, f) != n || fclose(f) == EOF)
		abort();
}

static void put_tensors(void)
{
	char file[8 + sizeof(head) + 128] = {(char)(sizeof(head) - 1), (char)((sizeof(head) - 1) >> 8)};

	memcpy(file + 8, head, sizeof(head) - 1);
	put("adapter_model.safetensors", file, 8 + sizeof(head) - 1 + 128);
}

static void clean(void)
{
	static const char *const name[] = {"adapter_config.json", "adapter_model.safetensors", "a.gguf", "."};
	char path[128];

	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, name[i]);
		remove(i < 3 ? path : dir);
	}
}

static void begin(void)
{
	const json_t *o =
		json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "model_type", "llama", "vocab_size", 16,
			  "hidden_size", 8, "intermediate_size", 8, "num_hidden_layers", 1,
			  "num_attention_heads", 2, "num_key_value_heads", 1, "max_position_embeddings", 8);
	char *text = json_dumps(o, 0), path[128];

	if (!mkdtemp(dir) || !text)
		abort();
	atexit(clean);
	put("adapter_config.json", text, strlen(text));
	snprintf(path, sizeof(path), "%s/adapter_config.json", dir);
	if (dt_config_load(path, &config, NULL) < 0 || dt_model_params(&config, &params, NULL) < 0)
		abort();
	json_decref((json_t *)o);
	free(text);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	struct dt_adapter *a;
	char path[128];

	if (!params.n)
		begin();
	if (n < 1)
		return 0;
	put("adapter_config.json", plain, sizeof(plain) - 1);
	put_tensors();
	snprintf(path, sizeof(path), "%s%s", dir, data[0] % 3 == 2 ? "/a.gguf" : "");
	put(data[0] % 3 == 0   ? "adapter_config.json"
	    : data[0] % 3 == 1 ? "adapter_model.safetensors"
			       : "a.gguf",
	    data + 1, n - 1);
	if (dt_adapter_open(path, &config, &params, &a, NULL) < 0)
		return 0;
	for (int i = 0; i < a->n; i++)
		if (a->part[i].rank < 1 || a->part[i].in != params.p[a->part[i].param].shape[1] ||
		    a->part[i].out != params.p[a->part[i].param].shape[0])
			abort();
	dt_adapter_close(a);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
