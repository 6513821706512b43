/* Importers: boxes of a source, rotary order, damaged files, Hugging Face folders. */
#include "base/json.h"
#include "ckpt/source.h"
#include "ckpt/source_internal.h"
#include "kernels/activation.h"
#include "kernels/rope.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/dt-source-XXXXXX";

static void write_file(const char *name, const void *data, size_t n)
{
	FILE *f;

	assert_int_equal(chdir(dir), 0);
	f = fopen(name, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

/* ---- a llama2.c file, every element of which says where it lies ---- */

enum { DIM = 8, FFN = 12, LAYERS = 2, HEADS = 2, KV = 1, VOCAB = 300, SEQ = 6 };
#define LAYER	(2 * DIM + DIM * DIM * 2 + DIM / HEADS * KV * DIM * 2 + 3 * DIM * FFN)
#define NFLOATS (VOCAB * DIM + LAYERS * LAYER + DIM + SEQ * DIM / HEADS)

static size_t llama2c(uint8_t **ret)
{
	int32_t head[7] = {DIM, FFN, LAYERS, HEADS, KV, VOCAB, SEQ};
	size_t n = sizeof(head) + NFLOATS * 4;
	uint8_t *p = malloc(n);

	memcpy(p, head, sizeof(head));
	for (int i = 0; i < NFLOATS; i++) {
		float x = (float)i;

		memcpy(p + sizeof(head) + 4 * i, &x, 4);
	}
	*ret = p;
	return n;
}

static struct dt_source *open_source(const char *path)
{
	struct dt_source *s;
	struct dt_err err = {0};

	if (dt_source_open(path, DT_SOURCE_AUTO, NULL, &s, &err) < 0)
		fail_msg("%s", err.msg);
	return s;
}

static void boxes_of_a_source(void **state)
{
	int64_t all[2] = {0, 0}, off[2] = {3, 2}, shape[2] = {4, 5};
	float whole[FFN * DIM], box[20];
	struct dt_err err = {0};
	struct dt_source *s;
	uint16_t half[20];
	uint8_t *p;
	size_t n = llama2c(&p);
	int i, base = VOCAB * DIM + LAYERS * (2 * DIM + 2 * DIM * DIM + 2 * DIM / HEADS * KV * DIM);

	write_file("m.bin", p, n);
	s = open_source("m.bin");
	assert_int_equal(dt_source_kind(s), DT_SOURCE_LLAMA2C);
	assert_int_equal(dt_source_config(s)->kv_heads, KV);
	assert_true(dt_source_config(s)->tied);
	i = dt_params_find(dt_source_params(s), "layers.1.mlp.gate.weight");
	assert_int_equal(dt_source_format(s, i), DT_FMT_F32);
	assert_int_equal(dt_source_read(s, i, all, dt_source_params(s)->p[i].shape, DT_F32, whole, &err), 0);
	for (int k = 0; k < FFN * DIM; k++)
		assert_true(whole[k] == (float)(base + FFN * DIM + k));
	assert_memory_equal(dt_source_raw(s, i, 0, FFN), whole, sizeof(whole));
	assert_int_equal(dt_source_read(s, i, off, shape, DT_F32, box, &err), 0);
	assert_int_equal(dt_source_read(s, i, off, shape, DT_BF16, half, &err), 0);
	for (int r = 0; r < 4; r++)
		for (int c = 0; c < 5; c++) {
			assert_true(box[5 * r + c] == whole[(r + 3) * DIM + c + 2]);
			assert_int_equal(half[5 * r + c], dt_f32_to_bf16(box[5 * r + c]));
		}
	off[1] = 4;
	assert_int_equal(dt_source_read(s, i, off, shape, DT_F32, box, &err), -EINVAL);
	dt_source_close(s);
	free(p);
}

/* Bytes of files that are mapped and in memory. */
static int64_t mapped_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long size, resident, shared = 0;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%ld %ld %ld", &size, &resident, &shared), 3);
	fclose(f);
	return shared * sysconf(_SC_PAGESIZE);
}

/* A file of 128 MiB, read by rows: at no time are many of its pages in memory. */
static void pages_of_a_file_are_given_back(void **state)
{
	enum { WIDE = 128, LONG = 1 << 18, ROWS = 1 << 12 };
	int32_t head[7] = {WIDE, WIDE, 1, 1, 1, LONG, 8};
	int64_t floats = (int64_t)LONG * WIDE + 2 * WIDE + 7 * WIDE * WIDE + WIDE + 8 * WIDE, before,
		most = 0;
	int64_t off[2] = {0, 0}, shape[2] = {ROWS, WIDE};
	float *rows = malloc(sizeof(float) * ROWS * WIDE);
	struct dt_source *s;
	int i;

	write_file("wide.bin", head, sizeof(head));
	assert_int_equal(truncate("wide.bin", (off_t)(sizeof(head) + (size_t)floats * 4)), 0);
	s = open_source("wide.bin");
	i = dt_params_find(dt_source_params(s), "embed.weight");
	before = mapped_bytes();
	for (off[0] = 0; off[0] < LONG; off[0] += ROWS) {
		assert_int_equal(dt_source_read(s, i, off, shape, DT_F32, rows, NULL), 0);
		most = mapped_bytes() > most ? mapped_bytes() : most;
	}
	if (most - before > 64 << 20)
		fail_msg("%lld bytes of the file are in memory", (long long)(most - before));
	dt_source_close(s);
	free(rows);
}

static void shortened_and_lengthened_files_are_refused(void **state)
{
	struct dt_source *s;
	uint8_t *p;
	size_t n = llama2c(&p);

	for (size_t k = 1; k < n; k += k < 40 ? 1 : 97) {
		write_file("short.bin", p, k);
		assert_true(dt_source_open("short.bin", DT_SOURCE_AUTO, NULL, &s, NULL) < 0);
		assert_true(dt_source_open("short.bin", DT_SOURCE_LLAMA2C, NULL, &s, NULL) < 0);
		assert_true(dt_source_open("short.bin", DT_SOURCE_LLMC, NULL, &s, NULL) < 0);
	}
	p = realloc(p, n + 1);
	p[n] = 0;
	write_file("long.bin", p, n + 1);
	assert_true(dt_source_open("long.bin", DT_SOURCE_AUTO, NULL, &s, NULL) < 0);
	/* any head with the same body */
	for (size_t i = 0; i < 28; i++)
		for (int bit = 0; bit < 8; bit++) {
			uint8_t *copy = malloc(n);

			memcpy(copy, p, n);
			copy[i] ^= (uint8_t)(1 << bit);
			write_file("head.bin", copy, n);
			if (dt_source_open("head.bin", DT_SOURCE_LLAMA2C, NULL, &s, NULL) == 0)
				dt_source_close(s);
			free(copy);
		}
	free(p);
}

static void rotary_orders_are_inverse(void **state)
{
	/* a head of 6: half keeps pairs (0,3) (1,4) (2,5); adjacent puts them side by side */
	static const int64_t adjacent[12] = {0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11};

	for (int64_t r = 0; r < 12; r++) {
		int64_t a = dt_rope_row(r, 6, DT_ROPE_HALF, DT_ROPE_ADJACENT);

		assert_int_equal(a, adjacent[r]);
		assert_int_equal(dt_rope_row(r, 6, DT_ROPE_HALF, DT_ROPE_HALF), r);
		assert_int_equal(dt_rope_row(a, 6, DT_ROPE_ADJACENT, DT_ROPE_HALF), r);
	}
}

/* ---- a GPT-2 folder: transposed weights, q, k and v in one, masks to skip ---- */

#define GPT2_KEYS                                                                                            \
	"\"model_type\":\"gpt2\",\"n_embd\":4,\"n_layer\":1,\"n_head\":2,\"vocab_size\":3,\"n_positions\":"  \
	"5,\"bos_token_id\":0,\"eos_token_id\":0"
#define GPT2 "{" GPT2_KEYS "}"

struct entry {
	const char *name;
	int rows, cols;
};

/* Elements count up through the file, except that lm_head.weight repeats wte.weight. */
static size_t safetensors(const struct entry *e, int n, int skip, uint8_t *out)
{
	char head[8192];
	size_t k = 1, at = 0, body, embed = 0, tied = 0;
	uint64_t len;

	head[0] = '{';
	for (int i = 0; i < n; i++) {
		size_t bytes = 4u * (size_t)e[i].rows * (size_t)(e[i].cols ? e[i].cols : 1);

		if (i == skip)
			continue;
		k += (size_t)snprintf(
			head + k, sizeof(head) - k,
			e[i].cols
				? "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]}"
				: "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%d%.0d],\"data_offsets\":[%zu,%zu]"
				  "}",
			k > 1 ? "," : "", e[i].name, e[i].rows, e[i].cols, at, at + bytes);
		if (strstr(e[i].name, "wte.weight"))
			embed = at;
		if (!strcmp(e[i].name, "lm_head.weight"))
			tied = at;
		at += bytes;
	}
	k += (size_t)snprintf(head + k, sizeof(head) - k, "}");
	len = k;
	memcpy(out, &len, 8);
	memcpy(out + 8, head, k);
	body = 8 + k;
	for (size_t i = 0; i < at / 4; i++) {
		float x = (float)i;

		memcpy(out + body + 4 * i, &x, 4);
	}
	if (embed && tied)
		memcpy(out + body + tied, out + body + embed, 4 * 3 * 4);
	return body + at;
}

static const struct entry gpt2[] = {
	{"transformer.h.0.attn.c_attn.weight", 4, 12},
	{"transformer.h.0.attn.c_attn.bias", 12, 0},
	{"transformer.wte.weight", 3, 4},
	{"transformer.wpe.weight", 5, 4},
	{"transformer.h.0.ln_1.weight", 4, 0},
	{"transformer.h.0.ln_1.bias", 4, 0},
	{"transformer.h.0.attn.c_proj.weight", 4, 4},
	{"transformer.h.0.attn.c_proj.bias", 4, 0},
	{"transformer.h.0.ln_2.weight", 4, 0},
	{"transformer.h.0.ln_2.bias", 4, 0},
	{"transformer.h.0.mlp.c_fc.weight", 4, 16},
	{"transformer.h.0.mlp.c_fc.bias", 16, 0},
	{"transformer.h.0.mlp.c_proj.weight", 16, 4},
	{"transformer.h.0.mlp.c_proj.bias", 4, 0},
	{"transformer.ln_f.weight", 4, 0},
	{"transformer.ln_f.bias", 4, 0},
	{"lm_head.weight", 3, 4},
	{"transformer.h.0.attn.bias", 4, 0},
};
#define NGPT2 ((int)(sizeof(gpt2) / sizeof(gpt2[0])))

static void hugging_face_folders(void **state)
{
	static const char tok[] =
		"{\"chat_template\":[{\"name\":\"tool\",\"template\":\"t\"},{\"name\":\"default\","
		"\"template\":\"d\"}]}";
	int64_t off[2] = {1, 1}, shape[2] = {3, 2}, voff[1] = {1}, vshape[1] = {2};
	struct dt_err err = {0};
	uint8_t file[16384];
	struct dt_source *s;
	float x[6];
	size_t n = safetensors(gpt2, NGPT2, -1, file);
	int i;

	assert_int_equal(chdir(dir), 0);
	mkdir("hf", 0777);
	write_file("hf/config.json", GPT2, strlen(GPT2));
	write_file("hf/model.safetensors", file, n);
	write_file("hf/tokenizer_config.json", tok, strlen(tok));
	s = open_source("hf");
	assert_int_equal(dt_source_kind(s), DT_SOURCE_SAFETENSORS);
	assert_string_equal(dt_source_chat_template(s), "d");
	/* k is columns 4 to 7 of a [4, 12] tensor: ours [r, c] is its [c, 4 + r] */
	i = dt_params_find(dt_source_params(s), "layers.0.attn.k.weight");
	assert_null(dt_source_raw(s, i, 0, 4));
	assert_int_equal(dt_source_read(s, i, off, shape, DT_F32, x, &err), 0);
	for (int r = 0; r < 3; r++)
		for (int c = 0; c < 2; c++)
			assert_true(x[2 * r + c] == (float)(12 * (c + 1) + 4 + r + 1));
	i = dt_params_find(dt_source_params(s), "layers.0.attn.v.bias");
	assert_int_equal(dt_source_read(s, i, voff, vshape, DT_F32, x, &err), 0);
	assert_true(x[0] == 48 + 8 + 1 && x[1] == 48 + 8 + 2);
	dt_source_close(s);
	/* without any one tensor that is a parameter it is refused; masks and a tied head are not missed */
	for (int k = 0; k < NGPT2; k++) {
		int rc;

		write_file("hf/model.safetensors", file, safetensors(gpt2, NGPT2, k, file));
		rc = dt_source_open("hf", DT_SOURCE_AUTO, NULL, &s, &err);
		if (k < NGPT2 - 2) {
			assert_int_equal(rc, -ENOENT);
			assert_non_null(strstr(err.msg, strchr(gpt2[k].name, '.') + 1));
		} else {
			assert_int_equal(rc, 0);
			dt_source_close(s);
		}
	}
}

/* A head of its own is kept if the configuration says so; otherwise it may only repeat the embedding. */
static void heads_of_files(void **state)
{
	static const char untied[] = "{" GPT2_KEYS ",\"tie_word_embeddings\":false}";
	const int64_t off[2] = {0, 0}, shape[2] = {3, 4};
	struct dt_err err = {0};
	struct dt_source *s;
	uint8_t file[16384];
	size_t n = safetensors(gpt2, NGPT2, -1, file), at = n - 4 * (4 + 1); /* its last element */
	const float other = 7.5f;
	float x[12];
	int i;

	(void)state;
	mkdir("head", 0777);
	memcpy(file + at, &other, 4);
	write_file("head/config.json", GPT2, strlen(GPT2));
	write_file("head/model.safetensors", file, n);
	assert_int_equal(dt_source_open("head", DT_SOURCE_AUTO, NULL, &s, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "'lm_head.weight' differs from the embedding"));
	write_file("head/config.json", untied, strlen(untied));
	s = open_source("head");
	i = dt_params_find(dt_source_params(s), "head.weight");
	assert_true(i >= 0);
	assert_int_equal(dt_source_read(s, i, off, shape, DT_F32, x, &err), 0);
	assert_true(x[0] == 60 && x[11] == other);
	dt_source_close(s);
}

static void indexes_must_tell_the_truth(void **state)
{
	static const struct {
		const char *index, *why;
	} bad[] = {
		{"{}", "weight_map"},
		{"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "no file of the folder"},
		{"{\"weight_map\":{\"a\":3}}", "no file of the folder"},
		{"{\"weight_map\":{\"a\":\"none.safetensors\"}}", "none.safetensors"},
		{"{\"weight_map\":{\"a\":\"one.safetensors\"}}", "does not list"},
	};
	struct dt_err err = {0};
	struct dt_source *s;
	uint8_t file[16384];

	mkdir("split", 0777);
	write_file("split/config.json", GPT2, strlen(GPT2));
	write_file("split/one.safetensors", file, safetensors(gpt2, NGPT2, -1, file));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		write_file("split/model.safetensors.index.json", bad[i].index, strlen(bad[i].index));
		assert_true(dt_source_open("split", DT_SOURCE_AUTO, NULL, &s, &err) < 0);
		if (!strstr(err.msg, bad[i].why))
			fail_msg("'%s' is not in: %s", bad[i].why, err.msg);
	}
}

/* ---- llama2.c's tokenizer: merges follow from scores ---- */

static void scores_become_merges(void **state)
{
	struct dt_source *s;
	struct dt_err err = {0};
	uint8_t *m, tok[8192];
	size_t n = 4, size;
	const char *text;
	json_t *o;

	memset(tok, 0, 4);
	for (int i = 0; i < 264; i++) {
		static const char *const last[] = {"a", "b", " ", "ab", " ab"};
		char piece[16];
		float score = i < 259 ? 0 : i == 262 ? -2.0f : i == 263 ? -1.0f : -9.0f;
		int32_t len;

		snprintf(piece, sizeof(piece), i < 3 ? "x" : "<0x%02X>", i - 3);
		if (i >= 259)
			strcpy(piece, last[i - 259]);
		len = (int32_t)strlen(piece);
		memcpy(tok + n, &score, 4);
		memcpy(tok + n + 4, &len, 4);
		memcpy(tok + n + 8, piece, (size_t)len);
		n += 8 + (size_t)len;
	}
	size = llama2c(&m);
	write_file("m.bin", m, size);
	write_file("t.bin", tok, n);
	if (dt_source_open("m.bin", DT_SOURCE_AUTO, "t.bin", &s, &err) < 0)
		fail_msg("%s", err.msg);
	text = dt_source_tokenizer(s, &n);
	assert_int_equal(dt_json_parse(text, n, "t", &o, &err), 0);
	text = json_dumps(json_object_get(json_object_get(o, "model"), "merges"),
			  JSON_COMPACT | JSON_ENSURE_ASCII);
	/* " ab" scores best; of its two splits the one with the longer left part comes first, but "_a" is no
	 * piece */
	assert_string_equal(text, "[\"\\u2581 ab\",\"a b\"]");
	free((char *)text);
	json_decref(o);
	dt_source_close(s);
	write_file("t.bin", tok, 1000);
	assert_int_equal(dt_source_open("m.bin", DT_SOURCE_AUTO, "t.bin", &s, &err), -EBADMSG);
	free(m);
}

/*
 * Positions of an image transformer, 4 x 4 patches of -5 .. 5 as below, at other sizes, in one box and in
 * rows: torch.nn.functional.interpolate(x, size=(n, n), mode='bicubic', align_corners=False) in fp64.
 */
static void positions_are_interpolated(void **state)
{
	static const float want6[] = {-6.21135947f,  -1.07888455f,  2.27533436f,  -2.36213992f,	 0.992078993f,
				      6.12455392f,   -1.5719401f,   -1.53417969f, -0.684570312f, 0.983398438f,
				      2.45605469f,   3.09895833f,   0.975565844f, -1.47337963f,	 -1.78889237f,
				      3.18619658f,   1.80150463f,   -1.68589651f, -4.23598251f,	 -0.30787037f,
				      2.63864642f,   0.229240344f,  -3.0931713f,  -5.25384597f,	 -1.68847656f,
				      -0.247070313f, 1.41894531f,   1.85514323f,  -0.424804688f, -2.81597222f,
				      2.9509428f,    -0.702365451f, -1.65302292f, 4.64036378f,	 4.26660156f,
				      1.17361111f},
			   want3[] = {-3.26271407f, 0.0451750579f, 3.55243565f, -1.31076389f, 1.36230469f,
				      -2.78313079f, 0.641186289f,  1.60282841f, 0.716961645f};
	static const struct {
		int64_t side, n;
		const float *want;
	} to[] = {{24, 36, want6}, {12, 9, want3}};
	struct dt_config c = {.family = "vit",
			      .hidden = 1,
			      .ffn = 1,
			      .heads = 1,
			      .kv_heads = 1,
			      .head_dim = 1,
			      .layers = 1,
			      .vocab = 2,
			      .norm_eps = 1e-6,
			      .act = DT_ACT_GELU_ERF,
			      .image_size = 16,
			      .patch = 4,
			      .channels = 1,
			      .max_seq = 1,
			      .out_bias = true,
			      .mlp_bias = true,
			      .bos = -1,
			      .eos = -1};
	float pos[17], zero[32] = {0}, got[37];
	const void *data[32];
	struct dt_params t;
	struct dt_err err = {0};

	assert_int_equal(dt_model_params(&c, &t, &err), 0);
	assert_true(t.n <= 32);
	for (int i = 0; i < 17; i++)
		pos[i] = i ? (float)((i - 1) * 7 % 11 - 5) : 9;
	for (int i = 0; i < t.n; i++)
		data[i] = t.p[i].role == DT_W_POS ? pos : zero;
	for (int k = 0; k < 2; k++) {
		const int64_t all[2] = {to[k].n + 1, 1}, off[2] = {0}, at[2] = {to[k].n, 0}, one[2] = {1, 1};
		struct dt_source *s;
		const int p = dt_params_find(&t, "pos.weight");

		assert_int_equal(dt_source_memory(&c, data, DT_F32, &s, &err), 0);
		assert_int_equal(dt_source_at_size(&s, 18, &err), -EINVAL); /* not whole patches */
		assert_int_equal(dt_source_at_size(&s, 0, &err), 0);
		assert_int_equal(dt_source_config(s)->image_size, 16);
		if (dt_source_at_size(&s, to[k].side, &err) < 0)
			fail_msg("%s", err.msg);
		assert_int_equal(dt_source_config(s)->image_size, to[k].side);
		assert_int_equal(dt_source_read(s, p, off, all, DT_F32, got, &err), 0);
		assert_true(got[0] == 9);
		for (int64_t i = 0; i < to[k].n; i++)
			assert_true(fabsf(got[1 + i] - to[k].want[i]) < 2e-6f);
		assert_int_equal(dt_source_read(s, p, at, one, DT_F32, zero, &err), 0);
		assert_true(zero[0] == got[to[k].n]);
		dt_source_close(s);
	}
	dt_params_release(&t);
}

static int setup(void **state)
{
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	return chdir("/") || system(cmd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(boxes_of_a_source),
		cmocka_unit_test(pages_of_a_file_are_given_back),
		cmocka_unit_test(shortened_and_lengthened_files_are_refused),
		cmocka_unit_test(rotary_orders_are_inverse),
		cmocka_unit_test(hugging_face_folders),
		cmocka_unit_test(heads_of_files),
		cmocka_unit_test(indexes_must_tell_the_truth),
		cmocka_unit_test(scores_become_merges),
		cmocka_unit_test(positions_are_interpolated),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
