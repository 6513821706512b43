/*
 * Real weights against transformers (tests/data/golden_greedy.py says which, and from where): the 200 tokens
 * it takes greedily are those with our largest logits, and the logits agree, with weights dequantised to f32.
 * With weights, activations and caches of other types: how often the first token is the same, and how far
 * logits are off, in units of their spread.
 *
 * Files are looked for in $DT_TEST_MODELS, else $DT_TEST_DATA/models and $DT_TEST_DATA/stories260K.
 */
#include "ckpt/source.h"
#include "data/tokenizer.h"
#include "golden.h"
#include "nn/infer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { BLOCK = 16, BLOCKS = 20, CHUNK = 32, GREEDY = 200, COLUMNS = 64 };

struct kind {
	const char *what;
	int weights;
	enum dt_dtype dtype, cache;
	double agree, off; /* at least, at most */
};

struct model {
	const char *name;
	struct kind other[4]; /* what is measured besides f32 */
};

struct case_of {
	char file[64], prompt[128];
	int32_t *ids, *greedy, *columns; /* ids: the prompt and then greedy */
	int nprompt, n;
	float *logits;
	double *norm;
};

static void path_in(const char *name, const char *file, char *ret, size_t n)
{
	const char *models = getenv("DT_TEST_MODELS"), *data = getenv("DT_TEST_DATA");

	if (!data)
		data = GOLDEN_DIR "/../../../shared/data";
	if (!strcmp(name, "stories260k"))
		snprintf(ret, n, "%s/stories260K/%s", data, file);
	else if (models)
		snprintf(ret, n, "%s/%s", models, file);
	else
		snprintf(ret, n, "%s/models/%s", data, file);
}

/* llama2.c's files have their vocabulary beside them. */
static const char *tokenizer_of(const char *name, const char *path, char *buf, size_t n)
{
	if (strcmp(name, "stories260k"))
		return NULL;
	snprintf(buf, n, "%.*s/tok512.bin", (int)(strrchr(path, '/') - path), path);
	return buf;
}

static void read_case(struct golden *g, const char *name, struct case_of *c)
{
	char path[64];
	int64_t n, m;
	int32_t *prompt;

	golden_str(g, name, "file", c->file, sizeof(c->file));
	golden_str(g, name, "prompt", c->prompt, sizeof(c->prompt));
	snprintf(path, sizeof(path), "%s/ids", name);
	prompt = golden_i32(g, path, &n);
	snprintf(path, sizeof(path), "%s/greedy", name);
	c->greedy = golden_i32(g, path, &m);
	assert_int_equal(m, GREEDY);
	c->nprompt = (int)n;
	c->n = (int)(n + m - 1); /* nothing follows the last one */
	c->ids = malloc((size_t)(n + m) * sizeof(*c->ids));
	memcpy(c->ids, prompt, (size_t)n * sizeof(*prompt));
	memcpy(c->ids + n, c->greedy, (size_t)m * sizeof(*prompt));
	free(prompt);
	snprintf(path, sizeof(path), "%s/columns", name);
	c->columns = golden_i32(g, path, NULL);
	snprintf(path, sizeof(path), "%s/logits", name);
	c->logits = golden_f32(g, path, NULL);
	snprintf(path, sizeof(path), "%s/norm", name);
	c->norm = golden_f64(g, path, NULL);
}

static void free_case(struct case_of *c)
{
	free(c->ids);
	free(c->greedy);
	free(c->columns);
	free(c->logits);
	free(c->norm);
}

struct result {
	int same;	    /* first tokens */
	int first_other;    /* -1: none */
	double off, spread; /* root mean squares: of errors, and of the logits around their mean */
	double worst, norm; /* largest errors */
};

static void look_at(struct result *r, const struct case_of *c, int at, const float *logits, int64_t vocab)
{
	double max = 0, sum = 0, mean = 0;
	int64_t best = 0;

	for (int64_t i = 0; i < vocab; i++)
		if (logits[i] > logits[best])
			best = i;
	max = logits[best];
	for (int64_t i = 0; i < vocab; i++)
		sum += exp(logits[i] - max);
	r->norm = fmax(r->norm, fabs(max + log(sum) - c->norm[at]));
	r->same += best == c->greedy[at];
	if (best != c->greedy[at] && r->first_other < 0)
		r->first_other = at;
	for (int i = 0; i < COLUMNS; i++)
		mean += (double)c->logits[at * COLUMNS + i] / COLUMNS;
	for (int i = 0; i < COLUMNS; i++) {
		double want = c->logits[at * COLUMNS + i], e = logits[c->columns[i]] - want;

		r->off += e * e / (COLUMNS * GREEDY);
		r->spread += (want - mean) * (want - mean) / (COLUMNS * GREEDY);
		r->worst = fmax(r->worst, isfinite(e) ? fabs(e) : INFINITY);
	}
}

/* The prompt and the golden tokens behind it, whatever ours would be. */
static struct result run(struct dt_source *src, const struct case_of *c, const struct kind *k)
{
	struct dt_infer_params p = {.dtype = k->dtype,
				    .cache = k->cache,
				    .weights = k->weights,
				    .max_tokens = CHUNK,
				    .max_seqs = CHUNK,
				    .max_len = BLOCK * BLOCKS,
				    .blocks = BLOCKS,
				    .block_size = BLOCK};
	struct result r = {.first_other = -1};
	int32_t table[BLOCKS];
	struct dt_infer *m;
	struct dt_dev *dev;
	struct dt_err err;
	float *logits;
	int64_t vocab;

	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 2), 0);
	dev->batch_invariant = true;
	if (dt_infer_open(&m, dev, src, &p, &err) < 0)
		fail_msg("%s: %s", c->file, err.msg);
	vocab = dt_infer_config(m)->vocab;
	logits = malloc((size_t)(CHUNK * vocab) * sizeof(*logits));
	for (int i = 0; i < BLOCKS; i++)
		table[i] = (7 * i + 3) % BLOCKS;
	for (int at = 0; at < c->n; at += CHUNK) {
		int n = at + CHUNK < c->n ? CHUNK : c->n - at;
		int32_t pos[CHUNK], want[CHUNK], q_start[2] = {0, n}, kv_len = at + n;
		int64_t slot[CHUNK];
		struct dt_infer_batch b = {.nseq = 1,
					   .ntokens = n,
					   .ids = c->ids + at,
					   .pos = pos,
					   .slot = slot,
					   .q_start = q_start,
					   .kv_len = &kv_len,
					   .block_table = table,
					   .max_blocks = BLOCKS,
					   .want = want};

		for (int i = 0; i < n; i++) {
			pos[i] = at + i;
			slot[i] = (int64_t)table[(at + i) / BLOCK] * BLOCK + (at + i) % BLOCK;
			if (at + i >= c->nprompt - 1)
				want[b.nwant++] = i;
		}
		if (dt_infer_forward(m, &b, logits, &err) < 0)
			fail_msg("%s: %s", c->file, err.msg);
		for (int i = 0; i < b.nwant; i++)
			look_at(&r, c, at + want[i] - c->nprompt + 1, logits + i * vocab, vocab);
	}
	free(logits);
	dt_infer_close(m);
	dt_dev_close(dev);
	return r;
}

static void check_tokens(struct dt_source *src, const struct case_of *c)
{
	struct dt_tokenizer *tok;
	int32_t *ids;
	struct dt_err err;
	size_t n = 0;
	int bos; /* who starts a text adds it, where the tokenizer has one */
	const char *text = dt_source_tokenizer(src, &n);

	assert_non_null(text);
	if (dt_tokenizer_from_text(text, n, &tok, &err) < 0)
		fail_msg("%s: %s", c->file, err.msg);
	if (dt_tokenizer_encode(tok, c->prompt, strlen(c->prompt), false, &ids, &n, &err) < 0)
		fail_msg("%s: %s", c->file, err.msg);
	bos = dt_tokenizer_bos(tok) >= 0;
	if (bos)
		assert_int_equal(c->ids[0], dt_tokenizer_bos(tok));
	assert_int_equal(n + (size_t)bos, c->nprompt);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(ids[i], c->ids[i + (size_t)bos]);
	free(ids);
	dt_tokenizer_close(tok);
}

static void check_model(const struct model *m)
{
	static const struct kind f32 = {"f32", DT_FMT_F32, DT_F32, DT_F32, 1, 1e-3};
	struct case_of c = {0};
	struct dt_source *src;
	struct golden g;
	struct result r;
	struct dt_err err;
	char path[512], tok[512];

	golden_open(&g, "greedy");
	read_case(&g, m->name, &c);
	golden_close(&g);
	path_in(m->name, c.file, path, sizeof(path));
	if (access(path, R_OK) < 0) {
		print_message("skipped: no %s (DT_TEST_MODELS, DT_TEST_DATA)\n", path);
		free_case(&c);
		skip();
	}
	if (dt_source_open(path, DT_SOURCE_AUTO, tokenizer_of(m->name, path, tok, sizeof(tok)), &src, &err) <
	    0)
		fail_msg("%s", err.msg);
	check_tokens(src, &c);
	for (const struct kind *k = &f32; k; k = k == &f32 ? m->other : k[1].what ? k + 1 : NULL) {
		r = run(src, &c, k);
		print_message(
			"%s, %s: %d of %d first tokens the same, logits off by %.2g of their spread (at most "
			"%.3g, norm %.2g)\n",
			m->name, k->what, r.same, GREEDY, sqrt(r.off / r.spread), r.worst, r.norm);
		if (k == &f32 && r.first_other >= 0)
			fail_msg("%s: token %d of the greedy text is another", m->name, r.first_other);
		assert_true(r.same >= k->agree * GREEDY);
		assert_true(sqrt(r.off / r.spread) <= k->off);
	}
	dt_source_close(src);
	free_case(&c);
}

static void test_smollm2(void **state)
{
	static const struct model m = {"smollm2",
				       {{"q4_1 as stored", -1, DT_F32, DT_F32, 0.95, 0.07},
					{"bf16", DT_FMT_BF16, DT_BF16, DT_BF16, 0.97, 0.05},
					{"f32, cache int8", DT_FMT_F32, DT_F32, DT_I8, 0.96, 0.08}}};

	check_model(&m);
}

static void test_gemma3(void **state)
{
	static const struct model m = {"gemma3",
				       {{"q4_k_m as stored", -1, DT_F32, DT_F32, 0.97, 0.06},
					{"bf16", DT_FMT_BF16, DT_BF16, DT_BF16, 0.97, 0.05},
					{"f32, cache int8", DT_FMT_F32, DT_F32, DT_I8, 0.96, 0.08}}};

	check_model(&m);
}

static void test_stories(void **state)
{
	static const struct model m = {"stories260k",
				       {{"bf16", DT_FMT_BF16, DT_BF16, DT_BF16, 0.97, 0.05},
					{"f32, cache int8", DT_FMT_F32, DT_F32, DT_I8, 0.96, 0.08}}};

	check_model(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stories),
		cmocka_unit_test(test_smollm2),
		cmocka_unit_test(test_gemma3),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
