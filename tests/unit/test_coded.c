/*
 * Quantised Hugging Face folders: what AutoGPTQ, AutoAWQ (tests/data/golden_coded.py), bitsandbytes
 * (golden_bnb.py) and transformers (golden_mxfp4.py) packed is read as the numbers that they make of it, in
 * blocks where these are the same, and damage is named.
 */
#include "base/json.h"
#include "ckpt/export.h"
#include "ckpt/source.h"
#include "tests/unit/golden.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/dt-coded-XXXXXX";

static const struct {
	const char *name;
	enum dt_format k, down; /* down has one group: no order of groups */
	double bound;		/* of the largest weight: the peers compute scale (q - z) in f16 */
} folders[] = {
	{"gptq4", DT_FMT_Q4_0, DT_FMT_Q4_0, 5e-4},     {"gptq4-asym", DT_FMT_Q4_1, DT_FMT_Q4_1, 1e-3},
	{"gptq4-row", DT_FMT_Q4_0, DT_FMT_Q4_0, 5e-4}, {"gptq4-act", DT_FMT_F16, DT_FMT_Q4_1, 1e-3},
	{"gptq8", DT_FMT_Q8_0, DT_FMT_Q8_0, 5e-4},     {"gptq3", DT_FMT_F16, DT_FMT_F16, 5e-4},
	{"gptq2", DT_FMT_F16, DT_FMT_F16, 5e-4},       {"awq", DT_FMT_Q4_1, DT_FMT_Q4_1, 1e-3},
	{"fp8", DT_FMT_BF16, DT_FMT_BF16, 4e-3},       {"nf4", DT_FMT_BF16, DT_FMT_BF16, 0},
	{"nf4-plain", DT_FMT_F16, DT_FMT_F16, 0},      {"fp4", DT_FMT_F32, DT_FMT_F32, 0},
};
#define FOLDERS (sizeof(folders) / sizeof(folders[0]))

/* The golden file of a folder. */
static const char *file_of(const char *name)
{
	return !strcmp(name, "mxfp4")				  ? "mxfp4"
	       : !strncmp(name, "nf4", 3) || !strcmp(name, "fp4") ? "bnb"
								  : "coded";
}

static void write_file(const char *name, const void *data, size_t n)
{
	FILE *f = fopen(name, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

struct folder {
	char config[2048];
	uint8_t *file;
	int64_t n;
};

static void load(const char *name, struct folder *f)
{
	struct golden g;
	char path[64];
	int32_t *bytes;

	golden_open(&g, file_of(name));
	golden_str(&g, name, "config", f->config, sizeof(f->config));
	snprintf(path, sizeof(path), "%s/file", name);
	bytes = golden_i32(&g, path, &f->n);
	golden_close(&g);
	f->file = malloc((size_t)f->n);
	assert_non_null(f->file);
	for (int64_t i = 0; i < f->n; i++)
		f->file[i] = (uint8_t)bytes[i];
	free(bytes);
}

/* The folder, from what f holds now. */
static int open_folder(const struct folder *f, struct dt_source **ret, struct dt_err *err)
{
	assert_int_equal(chdir(dir), 0);
	write_file("config.json", f->config, strlen(f->config));
	write_file("model.safetensors", f->file, (size_t)f->n);
	return dt_source_open(dir, DT_SOURCE_AUTO, NULL, ret, err);
}

static void check_matrix(const struct golden *g, struct dt_source *s, size_t k, enum dt_format format,
			 const char *ours, const char *theirs)
{
	int64_t off[2] = {0, 0}, part[2], n;
	const struct dt_param *p;
	float *want, *got, *box;
	struct dt_err err;
	char path[64];
	int i = dt_params_find(dt_source_params(s), ours);

	assert_true(i >= 0);
	p = &dt_source_params(s)->p[i];
	assert_int_equal(dt_source_format(s, i), format);
	snprintf(path, sizeof(path), "%s/dense/%s", folders[k].name, theirs);
	want = golden_f32(g, path, &n);
	assert_int_equal(n, p->shape[0] * p->shape[1]);
	got = malloc((size_t)n * 4);
	box = malloc((size_t)n * 4);
	assert_true(got && box);
	assert_int_equal(dt_source_read(s, i, off, p->shape, DT_F32, got, &err), 0);
	golden_assert_close(path, got, want, n, 0, folders[k].bound);
	/* the rows as they lie, and a box that begins in the middle of a block */
	dt_dequantize(format, dt_source_raw(s, i, 3, 5), 5 * p->shape[1], box);
	assert_memory_equal(box, got + 3 * p->shape[1], (size_t)(5 * p->shape[1]) * 4);
	off[0] = 2;
	off[1] = 7;
	part[0] = p->shape[0] - 2;
	part[1] = p->shape[1] - 9;
	assert_int_equal(dt_source_read(s, i, off, part, DT_F32, box, &err), 0);
	for (int64_t r = 0; r < part[0]; r++)
		assert_memory_equal(box + r * part[1], got + (r + 2) * p->shape[1] + 7, (size_t)part[1] * 4);
	free(want);
	free(got);
	free(box);
}

static void read_as_the_peers_do(void **state)
{
	struct golden g;

	for (size_t k = 0; k < FOLDERS; k++) {
		struct dt_err err = {0};
		struct dt_source *s;
		struct folder f;

		load(folders[k].name, &f);
		golden_open(&g, file_of(folders[k].name));
		if (open_folder(&f, &s, &err) < 0)
			fail_msg("%s: %s", folders[k].name, err.msg);
		check_matrix(&g, s, k, folders[k].k, "layers.0.attn.k.weight", "k_proj");
		check_matrix(&g, s, k, folders[k].down, "layers.0.mlp.down.weight", "down_proj");
		dt_source_close(s);
		free(f.file);
		golden_close(&g);
	}
}

/* The same length keeps every offset of the file. */
static void change(char *text, size_t n, const char *from, const char *to)
{
	char *at = memmem(text, n, from, strlen(from));

	assert_int_equal(strlen(from), strlen(to));
	assert_non_null(at);
	memcpy(at, to, strlen(to));
}

/* GPTQ's second version stores z itself: the same file then says that every z is one less. */
static void versions(void **state)
{
	struct dt_err err = {0};
	struct dt_source *s;
	struct folder f;
	int64_t off[2] = {0, 0}, shape[2] = {1, 64};
	float x[2][64];
	int i;

	load("gptq4", &f);
	for (int v = 0; v < 2; v++) {
		char *at = strstr(f.config, "\"quant_method\"");
		char rest[2048];

		if (v) {
			snprintf(rest, sizeof(rest), "\"checkpoint_format\": \"gptq_v2\", %s", at);
			snprintf(at, sizeof(f.config) - (size_t)(at - f.config), "%s", rest);
		}
		if (open_folder(&f, &s, &err) < 0)
			fail_msg("%s", err.msg);
		i = dt_params_find(dt_source_params(s), "layers.0.attn.k.weight");
		assert_int_equal(dt_source_format(s, i), v ? DT_FMT_Q4_1 : DT_FMT_Q4_0);
		assert_int_equal(dt_source_read(s, i, off, shape, DT_F32, x[v], &err), 0);
		dt_source_close(s);
	}
	for (int c = 1; c < 32; c++) /* one scale: all are larger by it */
		assert_true(fabsf((x[1][c] - x[0][c]) - (x[1][0] - x[0][0])) <
			    1e-3f * fabsf(x[1][0] - x[0][0]) + 1e-6f);
	assert_true(x[1][0] > x[0][0]);
	free(f.file);
}

static void refused(const char *name, const char *from, const char *to, bool in_file, const char *why)
{
	struct dt_err err = {0};
	struct dt_source *s;
	struct folder f;

	load(name, &f);
	change(in_file ? (char *)f.file : f.config, in_file ? (size_t)f.n : strlen(f.config), from, to);
	assert_true(open_folder(&f, &s, &err) < 0);
	if (!strstr(err.msg, why))
		fail_msg("'%s' instead of '%s'", err.msg, why);
	free(f.file);
}

static void damage_is_named(void **state)
{
	refused("gptq4", "\"gptq\"", "\"exl2\"", false, "is quantised with exl2, which is not supported");
	refused("gptq4", "\"bits\": 4", "\"bits\": 3", false, "sizes that do not fit together");
	refused("gptq4", "\"bits\": 4", "\"bits\": 9", false, "bits");
	refused("gptq4", "\"group_size\": 32", "\"group_size\": 16", false, "sizes that do not fit together");
	refused("gptq4", "\"group_size\"", "\"group_sise\"", false, "group_size");
	refused("gptq4", "k_proj.scales", "k_proj.scaled", true, "no scales");
	refused("gptq4", "k_proj.qzeros", "k_proj.qzeroz", true, "no qzeros");
	refused("awq", "\"gemm\"", "\"gemv\"", false, "\"gemv\"");
	refused("awq", "\"bits\": 4", "\"bits\": 8", false, "with 8");
	refused("fp8", "k_proj.weight_scale_inv", "k_proj.weight_scale_out", true, "no scale");
	refused("fp8", "[32, 32]", "[16, 32]", false, "scales that do not fit the blocks");
	refused("fp8", "[32, 32]", "[-1, 32]", false, "is not two positive sizes");
	refused("nf4", "\"load_in_8bit\": false", "\"load_in_8bit\": true ", false, "only 4-bit");
	refused("nf4", "k_proj.weight.quant_state", "k_proj.weight.quant_stale", true, "no quant_state");
	refused("nf4", "k_proj.weight.absmax", "k_proj.weight.absmix", true,
		"scales that do not fit the blocks");
	refused("nf4", "k_proj.weight.nested_absmax", "k_proj.weight.nested_absmix", true,
		"nested scales that do");
	refused("nf4", "\"shape\": [320, 64]", "\"shape\": [320, 65]", true,
		"sizes that do not fit together");
	refused("nf4", "\"dtype\": \"bfloat16\"", "\"dtype\": \"bfloat17\"", true, "an unsupported dtype");
	refused("nf4", "\"blocksize\": 64", "\"blocksize\": 32", true, "scales that do not fit the blocks");
	refused("nf4", "\"blocksize\": 64", "\"blocksize\": -4", true, "blocksize");
	refused("nf4", "{\"quant_type\"", "[\"quant_type\"", true, "not JSON");
}

/* One parameter of a source as f32. It is stored as MXFP4. */
static float *expert_matrix(struct dt_source *s, const char *part, int64_t *ret_n)
{
	const int64_t off[2] = {0, 0};
	struct dt_err err;
	char name[64];
	float *x;
	int i;

	snprintf(name, sizeof(name), "layers.0.mlp.experts.%s.weight", part);
	i = dt_params_find(dt_source_params(s), name);
	assert_true(i >= 0);
	assert_int_equal(dt_source_format(s, i), DT_FMT_MXFP4);
	*ret_n = dt_param_numel(&dt_source_params(s)->p[i]);
	x = malloc((size_t)*ret_n * sizeof(*x));
	assert_non_null(x);
	assert_int_equal(dt_source_read(s, i, off, dt_source_params(s)->p[i].shape, DT_F32, x, &err), 0);
	return x;
}

/* Experts in MXFP4 with gate and up in turns: read as transformers does, and written to GGUF as they are. */
static void experts_in_mxfp4(void **state)
{
	static const char *const part[] = {"gate", "up", "down"};
	const struct dt_export x = {.to = DT_SOURCE_GGUF, .format = -1};
	struct dt_source *s, *back;
	struct dt_err err = {0};
	struct folder f;
	struct golden g;

	load("mxfp4", &f);
	if (open_folder(&f, &s, &err) < 0 || dt_export(s, "mxfp4.gguf", &x, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(dt_source_open("mxfp4.gguf", DT_SOURCE_AUTO, NULL, &back, &err), 0);
	golden_open(&g, "mxfp4");
	for (int i = 0; i < 3; i++) {
		int64_t n, m, k;
		char path[64];
		float *a = expert_matrix(s, part[i], &n), *b = expert_matrix(back, part[i], &m), *want;

		snprintf(path, sizeof(path), "mxfp4/dense/%s", part[i]);
		want = golden_f32(&g, path, &k);
		assert_int_equal(n, m);
		assert_int_equal(n, k);
		golden_assert_close(path, a, want, n, 0, 0);
		golden_assert_close("in GGUF", b, want, n, 0, 0);
		free(a);
		free(b);
		free(want);
	}
	golden_close(&g);
	dt_source_close(back);
	dt_source_close(s);
	unlink("mxfp4.gguf");
	free(f.file);
	refused("mxfp4", "down_proj_scales", "down_proj_scaled", true, "no scales");
	refused("mxfp4", "[3,64,2]", "[3,2,64]", true, "wrong type or shape");
	refused("mxfp4", "\"mxfp4\"", "\"mxfp5\"", false, "is quantised with mxfp5, which is not supported");
}

/* An index of a group outside the groups is met before anything is read by it. */
static void groups_outside(void **state)
{
	struct dt_err err = {0};
	struct dt_source *s;
	struct folder f;
	json_t *head, *t;
	uint64_t n;
	int64_t at;
	int32_t group = 2;

	load("gptq4-act", &f);
	memcpy(&n, f.file, 8);
	head = json_loadb((const char *)f.file + 8, n, 0, NULL);
	t = json_object_get(head, "model.layers.0.self_attn.k_proj.g_idx");
	at = json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 0));
	memcpy(f.file + 8 + n + at, &group, 4);
	json_decref(head);
	assert_true(open_folder(&f, &s, &err) < 0);
	assert_non_null(strstr(err.msg, "a g_idx outside the groups"));
	free(f.file);
}

static int make_dir(void **state)
{
	return mkdtemp(dir) ? 0 : -1;
}

/* A tensor may have as many sizes as the format allows; all of them are compared and said. */
static void eight_sizes(void **state)
{
	static const char head[] = "{\"model.embed_tokens.weight\": {\"dtype\": \"F32\", "
				   "\"shape\": [16, 8, 1, 1, 1, 1, 1, 1], \"data_offsets\": [0, 512]}}";
	static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 8, "
				     "\"intermediate_size\": 16, \"num_hidden_layers\": 1, "
				     "\"num_attention_heads\": 2, \"num_key_value_heads\": 2, "
				     "\"vocab_size\": 16, \"max_position_embeddings\": 32, "
				     "\"rms_norm_eps\": 1e-05, \"tie_word_embeddings\": true, "
				     "\"hidden_act\": \"silu\"}";
	uint8_t file[8 + sizeof(head) - 1 + 512] = {sizeof(head) - 1};
	struct folder f = {.file = file, .n = sizeof(file)};
	struct dt_err err = {0};
	struct dt_source *s;

	memcpy(file + 8, head, sizeof(head) - 1);
	strcpy(f.config, config);
	assert_int_equal(open_folder(&f, &s, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "is [16, 8, 1, 1, 1, 1, 1, 1], not [16, 8] as the model says"));
}

static int remove_dir(void **state)
{
	unlink("config.json");
	unlink("model.safetensors");
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(read_as_the_peers_do), cmocka_unit_test(versions),
		cmocka_unit_test(damage_is_named),	cmocka_unit_test(groups_outside),
		cmocka_unit_test(eight_sizes),		cmocka_unit_test(experts_in_mxfp4),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
/* SPDX-License-Identifier: Apache-2.0 */
