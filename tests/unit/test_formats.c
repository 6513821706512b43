/* Weight formats against the gguf Python package (golden-formats.h5); heads of GGUF and safetensors files. */
#include "golden.h"

#include "kernels/quant_formats.h"
#include "model/gguf.h"
#include "model/safetensors.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static uint8_t *bytes_of(const struct golden *g, const char *format, const char *what, int64_t *n)
{
	char name[64];
	int32_t *v;
	uint8_t *b;

	snprintf(name, sizeof(name), "%s/%s", format, what);
	v = golden_i32(g, name, n);
	b = malloc((size_t)*n);
	for (int64_t i = 0; i < *n; i++)
		b[i] = (uint8_t)v[i];
	free(v);
	return b;
}

static void dequantised_as_the_package_does(void **state)
{
	struct golden g;

	golden_open(&g, "formats");
	for (int f = DT_FMT_F16; f < DT_FMT_N; f++) {
		char name[64];
		int64_t nbytes, n;
		uint8_t *blocks = bytes_of(&g, dt_format_info(f)->name, "blocks", &nbytes);
		float *want, *got;

		snprintf(name, sizeof(name), "%s/values", dt_format_info(f)->name);
		want = golden_f32(&g, name, &n);
		assert_int_equal(dt_format_bytes(f, n), nbytes);
		got = malloc((size_t)n * 4);
		dt_dequantize(f, blocks, n, got);
		for (int64_t i = 0; i < n; i++)
			if (memcmp(&got[i], &want[i], 4))
				fail_msg("%s: element %lld is %.9g, not %.9g", dt_format_info(f)->name,
					 (long long)i, (double)got[i], (double)want[i]);
		free(blocks);
		free(want);
		free(got);
	}
	golden_close(&g);
}

static void quantised_as_the_package_does(void **state)
{
	struct golden g;
	int formats = 0;

	golden_open(&g, "formats");
	for (int f = DT_FMT_F16; f < DT_FMT_N; f++) {
		char name[64];
		int64_t nbytes, n;
		uint8_t *want, *got;
		float *x;

		if (dt_format_info(f)->block == 256 || f == DT_FMT_IQ4_NL) /* searched for */
			continue;
		formats++;
		want = bytes_of(&g, dt_format_info(f)->name, "quantised", &nbytes);
		snprintf(name, sizeof(name), "%s/input", dt_format_info(f)->name);
		x = golden_f32(&g, name, &n);
		assert_int_equal(dt_format_bytes(f, n), nbytes);
		got = malloc((size_t)nbytes);
		dt_quantize(f, x, n, got);
		for (int64_t i = 0; i < nbytes; i++)
			if (got[i] != want[i])
				fail_msg("%s: byte %lld is %d, not %d", dt_format_info(f)->name, (long long)i,
					 got[i], want[i]);
		free(want);
		free(got);
		free(x);
	}
	assert_int_equal(formats, 8);
	golden_close(&g);
}

/* Numbers as weights have them: normal, a few of them far out. */
static void draw(float *x, int n, uint32_t seed)
{
	for (int i = 0; i < n; i++) {
		float sum = -6;

		for (int k = 0; k < 12; k++) {
			seed = seed * 1664525u + 1013904223u;
			sum += (float)(seed >> 8) / (float)(1 << 24);
		}
		x[i] = 0.02f * sum * (i % 97 == 0 ? 4.0f : 1.0f);
	}
}

static double error_of(enum dt_format f, const float *x, int n)
{
	uint8_t *out = malloc(dt_format_bytes(f, n));
	float *y = malloc((size_t)n * 4);
	double sum = 0, all = 0;

	assert_true(out && y);
	dt_quantize(f, x, n, out);
	dt_dequantize(f, out, n, y);
	for (int i = 0; i < n; i++) {
		sum += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
		all += (double)x[i] * x[i];
	}
	free(out);
	free(y);
	return sqrt(sum / all);
}

/*
 * Blocks that are searched for: less error than the plain formats beside them, and than ggml's own search on
 * the same numbers (relative RMS by ggml_quantize_chunk of ggml 0.13.1; from q3_k on: 0.25.3; iq2:
 * all weights equally important).
 */
static void searched_blocks_are_near(void **state)
{
	enum { N = 256 * 64 };
	float *x = malloc(N * sizeof(*x));
	double q4, q5, q6;

	assert_non_null(x);
	draw(x, N, 1);
	q4 = error_of(DT_FMT_Q4_K, x, N);
	q5 = error_of(DT_FMT_Q5_K, x, N);
	q6 = error_of(DT_FMT_Q6_K, x, N);
	assert_true(q4 < 0.07637 && q4 < error_of(DT_FMT_Q4_1, x, N));
	assert_true(q5 < 0.03853 && q5 < error_of(DT_FMT_Q5_0, x, N));
	assert_true(q6 < 0.01968 && q6 < error_of(DT_FMT_Q5_0, x, N));
	assert_true(error_of(DT_FMT_Q3_K, x, N) < 0.16273);
	assert_true(error_of(DT_FMT_Q2_K, x, N) < 0.30693);
	assert_true(error_of(DT_FMT_IQ4_XS, x, N) < 0.08461);
	assert_true(error_of(DT_FMT_IQ3_S, x, N) < 0.17777);
	assert_true(error_of(DT_FMT_IQ3_XXS, x, N) < 0.23035);
	assert_true(error_of(DT_FMT_IQ2_S, x, N) < 0.27133);
	assert_true(error_of(DT_FMT_IQ2_XS, x, N) < 0.31531);
	assert_true(error_of(DT_FMT_IQ2_XXS, x, N) < 0.37426);
	assert_true(error_of(DT_FMT_IQ4_NL, x, N) < 0.95 * error_of(DT_FMT_Q4_0, x, N));
	free(x);
}

/* Every code and scale of OCP Microscaling 1.0's E2M1 and E8M0 (tables 5 and 7), the one that is NaN too. */
static void mxfp4_is_that_of_the_specification(void **state)
{
	static const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

	for (int e = 0; e < 256; e++) {
		uint8_t block[17] = {(uint8_t)e}, again[17];
		float y[32];

		for (int j = 0; j < 16; j++)
			block[1 + j] = (uint8_t)(j | (15 - j) << 4);
		dt_dequantize(DT_FMT_MXFP4, block, 32, y);
		for (int j = 0; j < 32; j++) {
			const int code = j < 16 ? j : 31 - j;
			const double want = ldexp(code & 8 ? -e2m1[code & 7] : e2m1[code], e - 127);

			assert_true(e == 255		   ? isnan(y[j])
				    : fabs(want) > FLT_MAX ? isinf(y[j])
							   : (double)fabsf(y[j]) == fabs(want));
			assert_true(e == 255 || code % 8 == 0 || (y[j] < 0) == (code > 7));
		}
		if (e > 252) /* where 6 times it is no number */
			continue;
		dt_quantize(DT_FMT_MXFP4, y, 32, again);
		assert_int_equal(again[0], e);
		for (int j = 0; j < 16; j++) /* -0 is written as 0 */
			assert_int_equal(again[1 + j], j == 8 ? 7 << 4 : j == 7 ? 7 : block[1 + j]);
	}
}

/* What a block says exactly is found again: every sub-block has the ends of its range. */
static void exact_blocks_are_found(void **state)
{
	float x[256], y[256];
	uint8_t out[210];

	for (int i = 0; i < 256; i++)
		x[i] = (float)(i % 16) * 0.5f - 2;
	dt_quantize(DT_FMT_Q4_K, x, 256, out);
	dt_dequantize(DT_FMT_Q4_K, out, 256, y);
	for (int i = 0; i < 256; i++)
		assert_true(fabsf(x[i] - y[i]) < 1e-2f);
	for (int i = 0; i < 256; i++)
		x[i] = (float)(i % 32) * 0.5f - 2;
	dt_quantize(DT_FMT_Q5_K, x, 256, out);
	dt_dequantize(DT_FMT_Q5_K, out, 256, y);
	for (int i = 0; i < 256; i++)
		assert_true(fabsf(x[i] - y[i]) < 2e-2f);
	for (int i = 0; i < 256; i++)
		x[i] = (float)(i % 16 * 4 - 32) * 0.125f;
	dt_quantize(DT_FMT_Q6_K, x, 256, out);
	dt_dequantize(DT_FMT_Q6_K, out, 256, y);
	for (int i = 0; i < 256; i++)
		assert_true(fabsf(x[i] - y[i]) < 1e-2f);
}

/* Blocks with NaN, infinite, tiny and huge elements are written without undefined conversions. */
static void odd_numbers_are_survived(void **state)
{
	static const float odd[] = {0, 1e-40f, 3e38f, -3e38f, 1e-8f, -1};
	float x[256], y[256];
	uint8_t out[256 / 32 * 34];

	for (size_t k = 0; k < sizeof(odd) / sizeof(odd[0]); k++)
		for (int f = 0; f < DT_FMT_N; f++) {
			if (dt_format_info(f)->block == 1)
				continue;
			for (int i = 0; i < 256; i++)
				x[i] = i % 3 ? odd[k] : 0;
			for (int bad = 0; bad < 2; bad++) {
				dt_quantize(f, x, 256, out);
				dt_dequantize(f, out, 256, y);
				x[3] = (float)NAN;
				x[4] = (float)INFINITY;
				x[5] = -1;
			}
		}
}

static void names_and_numbers(void **state)
{
	for (int f = 0; f < DT_FMT_N; f++) {
		assert_int_equal(dt_format_parse(dt_format_info(f)->name), f);
		assert_int_equal(dt_format_of_gguf((uint32_t)dt_format_info(f)->gguf), f);
	}
	assert_int_equal(dt_format_parse("q3_k_m"), -1);
	assert_int_equal(dt_format_of_gguf(15), -1);
	assert_int_equal(dt_format_of_dtype(DT_BF16), DT_FMT_BF16);
	assert_int_equal(dt_format_of_dtype(DT_I8), -1);
}

/* ---- heads ---- */

struct buf {
	unsigned char b[4096];
	size_t n;
};

static void put(struct buf *b, const void *p, size_t n)
{
	assert_true(b->n + n <= sizeof(b->b));
	memcpy(b->b + b->n, p, n);
	b->n += n;
}

static void put32(struct buf *b, uint32_t v)
{
	put(b, &v, 4);
}

static void put64(struct buf *b, uint64_t v)
{
	put(b, &v, 8);
}

static void put_str(struct buf *b, const char *s)
{
	put64(b, strlen(s));
	put(b, s, strlen(s));
}

static void put_int(struct buf *b, const char *key, uint32_t v)
{
	put_str(b, key);
	put32(b, DT_GGUF_U32);
	put32(b, v);
}

static void put_tensor(struct buf *b, const char *name, uint64_t cols, uint64_t rows, uint32_t type,
		       uint64_t at)
{
	put_str(b, name);
	put32(b, rows ? 2 : 1);
	put64(b, cols);
	if (rows)
		put64(b, rows);
	put32(b, type);
	put64(b, at);
}

static void small_gguf(struct buf *b)
{
	float eps = 1e-5f;

	b->n = 0;
	put(b, "GGUF", 4);
	put32(b, 3);
	put64(b, 2);
	put64(b, 10);
	put_str(b, "general.architecture");
	put32(b, DT_GGUF_STRING);
	put_str(b, "llama");
	put_str(b, "general.name");
	put32(b, DT_GGUF_STRING);
	put_str(b, "My model \xff\n1");
	put_int(b, "llama.embedding_length", 32);
	put_int(b, "llama.block_count", 1);
	put_int(b, "llama.feed_forward_length", 64);
	put_int(b, "llama.attention.head_count", 4);
	put_int(b, "llama.context_length", 128);
	put_str(b, "llama.attention.layer_norm_rms_epsilon");
	put32(b, DT_GGUF_F32);
	put(b, &eps, 4);
	put_str(b, "llama.attention.head_count_kv");
	put32(b, DT_GGUF_ARRAY);
	put32(b, DT_GGUF_I16);
	put64(b, 2);
	put(b, "\2\0\2\0", 4);
	put_str(b, "tokenizer.ggml.tokens");
	put32(b, DT_GGUF_ARRAY);
	put32(b, DT_GGUF_STRING);
	put64(b, 3);
	put_str(b, "a");
	put_str(b, "");
	put_str(b, "bc");
	put_tensor(b, "token_embd.weight", 32, 3, 2, 0);
	put_tensor(b, "x", 8, 0, 0, 64);
	while (b->n % 32)
		put(b, "", 1);
	for (int i = 0; i < 96; i++)
		put(b, "", 1);
}

static void gguf_head_is_read(void **state)
{
	struct dt_gguf g;
	struct dt_config c;
	struct dt_err err = {0};
	struct buf b;
	const struct dt_gguf_kv *kv;
	const unsigned char *at;
	const char *s;
	size_t n;

	small_gguf(&b);
	if (dt_gguf_parse(b.b, b.n, "small", &g, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(g.ntensor, 2);
	assert_int_equal(g.tensor[0].shape[0], 3);
	assert_int_equal(g.tensor[0].shape[1], 32);
	assert_int_equal(g.tensor[0].format, DT_FMT_Q4_0);
	assert_int_equal(g.tensor[0].bytes, 54);
	assert_int_equal(g.tensor[1].at, g.data_at + 64);
	kv = dt_gguf_find(&g, "tokenizer.ggml.tokens");
	assert_non_null(kv);
	assert_int_equal(kv->n, 3);
	at = kv->data;
	for (int i = 0; i < 3; i++)
		dt_gguf_next_string(&at, &s, &n);
	assert_memory_equal(s, "bc", 2);
	if (dt_config_from_gguf(&g, &c, &err) < 0)
		fail_msg("%s", err.msg);
	assert_string_equal(c.name, "My-model-1");
	assert_string_equal(c.family, "llama");
	assert_true(c.vocab == 3 && c.kv_heads == 2 && c.head_dim == 8 && c.tied && !c.qkv_bias);
	assert_int_equal(c.rope_pairing, 1);
	assert_true(c.norm_eps == 1e-5);
	dt_gguf_release(&g);
}

/* Every prefix is refused; every byte changed is refused or read, never followed out of the file. */
static void damaged_gguf_heads_do_no_harm(void **state)
{
	struct dt_gguf g;
	struct dt_config c;
	struct buf b;
	int refused = 0;

	small_gguf(&b);
	for (size_t n = 0; n < b.n - 64; n++) {
		unsigned char *copy = malloc(n + 1);

		memcpy(copy, b.b, n);
		assert_true(dt_gguf_parse(copy, n, "short", &g, NULL) < 0);
		free(copy);
	}
	for (size_t i = 0; i < b.n; i++)
		for (int bit = 0; bit < 8; bit++) {
			unsigned char *copy = malloc(b.n);

			memcpy(copy, b.b, b.n);
			copy[i] ^= (unsigned char)(1 << bit);
			if (dt_gguf_parse(copy, b.n, "flipped", &g, NULL) < 0) {
				refused++;
			} else {
				dt_config_from_gguf(&g, &c, NULL);
				dt_gguf_release(&g);
			}
			free(copy);
		}
	assert_true(refused > 500);
}

static int parse_st(const char *head, size_t data, struct dt_safetensors *s, struct dt_err *err)
{
	size_t n = strlen(head);
	char *file = calloc(1, 8 + n + data);
	uint64_t len = n;
	int rc;

	memcpy(file, &len, 8);
	memcpy(file + 8, head, n);
	rc = dt_safetensors_parse(file, 8 + n + data, "test", s, err);
	free(file);
	return rc;
}

static void safetensors_heads(void **state)
{
	static const struct {
		const char *head, *why;
		size_t data;
	} bad[] = {
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
		 "past the end of the file", 7},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "after the last", 9},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", "takes 12 bytes", 8},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", "something other", 8},
		{"{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", "unknown type", 8},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}",
		 "past the end of the file", 8},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,8]}}",
		 "something other", 8},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\","
		 "\"shape\":[4],"
		 "\"data_offsets\":[2,6]}}",
		 "overlaps", 6},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\","
		 "\"shape\":[4],"
		 "\"data_offsets\":[5,9]}}",
		 "gap", 9},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"U8\","
		 "\"shape\":[4],"
		 "\"data_offsets\":[4,8]}}",
		 "duplicate", 8},
		{"[]", "not a JSON object", 0},
	};
	struct dt_safetensors s;
	struct dt_err err = {0};

	if (parse_st("{\"__metadata__\":{\"format\":\"pt\"},\"w\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_"
		     "offsets\":[4,"
		     "16]},\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},\"e\":{\"dtype\":"
		     "\"F32\",\"shape\":[0],"
		     "\"data_offsets\":[4,4]}}",
		     12 + 4, &s, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(s.n, 3);
	assert_string_equal(s.t[0].name, "s");
	assert_int_equal(s.t[0].ndim, 0);
	assert_string_equal(s.t[2].name, "w");
	assert_int_equal(s.t[2].format, DT_FMT_BF16);
	dt_safetensors_release(&s);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int rc = parse_st(bad[i].head, bad[i].data, &s, &err);

		if (rc >= 0 || !strstr(err.msg, bad[i].why))
			fail_msg("%zu: %d, '%s' is not in: %s", i, rc, bad[i].why, err.msg);
	}
	assert_int_equal(dt_safetensors_parse("\1\2\3", 3, "x", &s, &err), -EBADMSG);
	assert_string_equal(dt_safetensors_dtype(DT_FMT_F16), "F16");
	assert_null(dt_safetensors_dtype(DT_FMT_Q8_0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dequantised_as_the_package_does),
		cmocka_unit_test(quantised_as_the_package_does),
		cmocka_unit_test(searched_blocks_are_near),
		cmocka_unit_test(mxfp4_is_that_of_the_specification),
		cmocka_unit_test(exact_blocks_are_found),
		cmocka_unit_test(odd_numbers_are_survived),
		cmocka_unit_test(names_and_numbers),
		cmocka_unit_test(gguf_head_is_read),
		cmocka_unit_test(damaged_gguf_heads_do_no_harm),
		cmocka_unit_test(safetensors_heads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
