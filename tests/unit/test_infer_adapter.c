/*
 * Adapters that peft made, served beside their base: peft's logits, those of the merged weights, and rows
 * that do not depend on what others of the batch have.
 */
#include "ckpt/adapter.h"
#include "infer_golden.h"
#include "nn/infer_adapter_priv.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define DIR GOLDEN_DIR "/lora/"

static struct dt_source *source(const char *adapter)
{
	struct dt_source *src, *merged = NULL;
	struct dt_adapter *a;
	struct dt_err err;

	if (dt_source_open(DIR "base", DT_SOURCE_AUTO, "none", &src, &err) < 0)
		fail_msg("%s", err.msg);
	if (!adapter)
		return src;
	if (dt_adapter_open(adapter, dt_source_config(src), dt_source_params(src), &a, &err) < 0 ||
	    dt_source_adapted(src, a, &merged, &err) < 0)
		fail_msg("%s", err.msg);
	return merged;
}

static struct dt_infer *model(struct dt_dev *dev, struct dt_source *src, enum dt_dtype dtype,
			      int64_t adapters)
{
	struct dt_infer_params p = {.dtype = dtype,
				    .cache = dtype,
				    .weights = -1,
				    .max_tokens = ROWS,
				    .max_seqs = ROWS,
				    .blocks = BLOCKS,
				    .block_size = BLOCK,
				    .adapters = adapters};
	struct dt_infer *m;
	struct dt_err err;

	dev->batch_invariant = true;
	if (dt_infer_open(&m, dev, src, &p, &err) < 0)
		fail_msg("%s", err.msg);
	return m;
}

static struct dt_infer_adapter *adapter(const struct dt_infer *m, const char *path)
{
	struct dt_infer_adapter *a;
	struct dt_err err;

	if (dt_infer_adapter_open(&a, m, path, NULL, &err) < 0)
		fail_msg("%s: %s", path, err.msg);
	return a;
}

struct texts {
	struct golden g;
	int32_t *ids;
	int64_t n, seq, vocab;
};

static struct texts open_texts(void)
{
	struct texts t;

	golden_open(&t.g, "lora");
	t.ids = golden_i32(&t.g, "ids", NULL);
	t.seq = golden_int(&t.g, "/", "seq");
	t.vocab = golden_int(&t.g, "/", "vocab");
	t.n = 2 * t.seq * t.vocab;
	return t;
}

static void close_texts(struct texts *t)
{
	golden_close(&t->g);
	free(t->ids);
}

/* Logits of both sequences, the first with adapter a, the second with b; computed in parts of `step`. */
static float *logits(struct dt_infer *m, const struct texts *t, const struct dt_infer_adapter *a,
		     const struct dt_infer_adapter *b, int step)
{
	const struct dt_infer_adapter *of[2] = {a, b};
	float *out = malloc((size_t)t->n * sizeof(*out));

	draws.adapter = a || b ? of : NULL;
	for (int at = 0; at < t->seq; at += step)
		pass(m, t->ids, (int)t->seq, at, at + step < t->seq ? at + step : (int)t->seq, out);
	draws.adapter = NULL;
	return out;
}

static void same_bits(const char *what, const float *a, const float *b, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (memcmp(&a[i], &b[i], sizeof(*a)))
			fail_msg("%s [%lld]: %.9g and %.9g", what, (long long)i, (double)a[i], (double)b[i]);
}

static void test_golden(void **state)
{
	static const char *const path[] = {DIR "adapter", DIR "rs", DIR "dora"}, *const want[] = {
											 "logits",
											 "rs_logits",
											 "dora_logits"};
	struct texts t = open_texts();
	struct dt_source *src = source(NULL);
	struct dt_dev *dev;

	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 2), 0);
	for (int i = 0; i < 3; i++) {
		struct dt_infer *m = model(dev, src, DT_F32, 8);
		struct dt_infer_adapter *a = adapter(m, path[i]);
		struct dt_source *into = source(path[i]);
		struct dt_infer *merged = model(dev, into, DT_F32, 0);
		float *theirs = golden_f32(&t.g, want[i], NULL), *got = logits(m, &t, a, a, 5),
		      *other = logits(merged, &t, NULL, NULL, 5);

		golden_assert_close(want[i], got, theirs, t.n, 1e-5, 1e-5);
		golden_assert_close("merged", got, other, t.n, 1e-5, 2e-6); /* 1.06e-6 with clang 14 */
		free(theirs);
		free(got);
		free(other);
		dt_infer_adapter_close(a);
		dt_infer_close(m);
		dt_infer_close(merged);
		dt_source_close(into);
	}
	dt_dev_close(dev);
	dt_source_close(src);
	close_texts(&t);
}

/* Modules that were trained whole: peft's logits, merged and beside a base; what is packed is the same. */
static void test_saved(void **state)
{
	struct texts t = open_texts();
	struct dt_source *src = source(NULL), *into = source(DIR "saved");
	struct dt_infer_adapter *a;
	struct dt_infer *m, *merged;
	float *theirs, *got, *other;
	struct dt_dev *dev;

	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 2), 0);
	merged = model(dev, into, DT_F32, 0);
	m = model(dev, src, DT_F32, 8);
	a = adapter(m, DIR "saved");
	theirs = golden_f32(&t.g, "saved_logits", NULL);
	other = logits(merged, &t, NULL, NULL, 5);
	golden_assert_close("saved_logits", other, theirs, t.n, 1e-5, 1e-5);
	got = logits(m, &t, a, a, 5);
	golden_assert_close("saved_logits", got, theirs, t.n, 1e-5, 1e-5);
	golden_assert_close("merged", got, other, t.n, 1e-5, 1e-6);
	free(theirs);
	free(got);
	free(other);
	dt_infer_adapter_close(a);
	dt_infer_close(m);
	dt_infer_close(merged);
	dt_dev_close(dev);
	dt_source_close(into);
	dt_source_close(src);
	close_texts(&t);
}

/* While m computes rows of an adapter, x.w has its tensors: another one that is read then gets the base's. */
static void test_read_meanwhile(void **state)
{
	static const char *const path[] = {DIR "saved", DIR "dora"};
	struct texts t = open_texts();
	struct dt_source *src = source(NULL);
	struct dt_dev *dev;

	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 2), 0);
	for (int i = 0; i < 2; i++) {
		struct dt_infer *m = model(dev, src, DT_F32, 8);
		struct dt_tensor *base = m->x.w,
				 *none = calloc((size_t)m->plan.stage.local.n + 1, sizeof(*none));
		struct dt_infer_adapter *a = adapter(m, path[i]), *b;
		float *want, *got;

		m->x.w = none;
		b = adapter(m, path[i]);
		m->x.w = base;
		want = logits(m, &t, a, a, 5);
		got = logits(m, &t, b, b, 5);
		same_bits(path[i], got, want, t.n);
		free(want);
		free(got);
		free(none);
		dt_infer_adapter_close(a);
		dt_infer_adapter_close(b);
		dt_infer_close(m);
	}
	dt_dev_close(dev);
	dt_source_close(src);
	close_texts(&t);
}

/* The adapter as a rank takes it that was sent it, its rows measured in so many parts of each lane. */
static struct dt_infer_adapter *sent(struct dt_infer *m, struct dt_source *src, const char *path, int parts)
{
	struct dt_infer_piece piece;
	struct dt_infer_adapter *r;
	struct dt_adapter *a;
	struct dt_err err;
	int lanes;

	if (dt_adapter_open(path, dt_source_config(src), dt_source_params(src), &a, &err) < 0 ||
	    dt_infer_adapter_cut(m, a, &m->plan.stage.local, &piece, &err) < 0 ||
	    dt_infer_adapter_take(&r, m, piece.p, piece.n, &err) < 0)
		fail_msg("%s: %s", path, err.msg);
	lanes = a->n;
	dt_adapter_close(a);
	for (int i = 0; i < lanes * parts; i++)
		if (dt_infer_adapter_measure(r, m, i, parts, &err) < 0)
			fail_msg("%s: %s", path, err.msg);
	return r;
}

/* Of however many portions lengths are the same, and those that peft measures. */
static void test_portions(void **state)
{
	struct texts t = open_texts();
	struct dt_source *src = source(NULL);
	float *theirs = golden_f32(&t.g, "dora_logits", NULL), *first = NULL;
	struct dt_infer *m;
	struct dt_dev *dev;

	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 2), 0);
	m = model(dev, src, DT_F32, 8);
	for (int parts = 1; parts < 6; parts += 2) {
		struct dt_infer_adapter *a = sent(m, src, DIR "dora", parts);
		float *got = logits(m, &t, a, a, 5);

		golden_assert_close("dora_logits", got, theirs, t.n, 1e-5, 1e-5);
		if (first)
			same_bits("in parts", got, first, t.n);
		free(first);
		first = got;
		dt_infer_adapter_close(a);
	}
	free(first);
	free(theirs);
	dt_infer_close(m);
	dt_dev_close(dev);
	dt_source_close(src);
	close_texts(&t);
}

/* What came as a piece and cannot be one is refused, wherever it was cut or changed. */
static void test_broken_pieces(void **state)
{
	struct dt_source *src = source(NULL);
	struct dt_infer_piece piece;
	struct dt_infer_adapter *r;
	struct dt_adapter *a;
	struct dt_infer *m;
	struct dt_dev *dev;
	struct dt_err err;

	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 1), 0);
	m = model(dev, src, DT_F32, 8);
	assert_int_equal(dt_adapter_open(DIR "saved", dt_source_config(src), dt_source_params(src), &a, &err),
			 0);
	assert_int_equal(dt_infer_adapter_cut(m, a, &m->plan.stage.local, &piece, &err), 0);
	for (size_t n = 0; n < piece.n; n += 1 + n / 3) {
		char *part = malloc(n + 1);

		memcpy(part, piece.p, n);
		assert_int_equal(dt_infer_adapter_take(&r, m, part, n, &err), -EPROTO);
	}
	for (size_t at = 0; at < 5 * sizeof(int64_t); at += sizeof(int64_t)) { /* the head */
		char *part = malloc(piece.n);

		memcpy(part, piece.p, piece.n);
		part[at] ^= 1;
		assert_int_equal(dt_infer_adapter_take(&r, m, part, piece.n, &err), -EPROTO);
	}
	free(piece.p);
	dt_adapter_close(a);
	dt_infer_close(m);
	dt_dev_close(dev);
	dt_source_close(src);
}

/* The same of the last rows of each sequence, which are all that is wanted. */
static void last_rows(struct dt_infer *m, const struct texts *t, const struct dt_infer_adapter *const of[2],
		      const float *const alone[2])
{
	const int64_t half = t->n / 2;
	float *got;

	lasts[0] = 0;
	lasts[1] = 2;
	got = logits(m, t, of[0], of[1], (int)t->seq);
	same_bits("last of the second", got + t->n - 2 * t->vocab, alone[1] + t->n - 2 * t->vocab,
		  2 * t->vocab);
	free(got);
	lasts[0] = 1;
	got = logits(m, t, of[0], of[1], (int)t->seq);
	same_bits("last of the first", got + half - t->vocab, alone[0] + half - t->vocab, t->vocab);
	same_bits("last of both", got + t->n - 2 * t->vocab, alone[1] + t->n - 2 * t->vocab, 2 * t->vocab);
	free(got);
	lasts[0] = lasts[1] = ROWS;
}

/* Of every pair of none and four adapters, at once and in parts: each sequence as if it were alone. */
static void test_rows(void **state)
{
	struct texts t = open_texts();
	struct dt_source *src = source(NULL);
	const int64_t half = t.n / 2;
	struct dt_dev *dev;

	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 2), 0);
	for (int type = 0; type < 2; type++) {
		struct dt_infer *m = model(dev, src, type ? DT_BF16 : DT_F32, 4),
				*plain = model(dev, src, type ? DT_BF16 : DT_F32, 0);
		struct dt_infer_adapter *one = adapter(m, DIR "adapter"), *two = adapter(m, DIR "rs"),
					*three = adapter(m, DIR "dora"), *four = adapter(m, DIR "saved");
		const struct dt_infer_adapter *of[] = {NULL, one, two, three, four};
		float *alone[5], *base = logits(plain, &t, NULL, NULL, (int)t.seq);

		for (int i = 0; i < 5; i++)
			alone[i] = logits(m, &t, of[i], of[i], (int)t.seq);
		same_bits("the base alone", alone[0], base, t.n);
		assert_memory_not_equal(alone[0], alone[1], (size_t)t.n * sizeof(float));
		assert_memory_not_equal(alone[1], alone[2], (size_t)t.n * sizeof(float));
		assert_memory_not_equal(alone[2], alone[3], (size_t)t.n * sizeof(float));
		assert_memory_not_equal(alone[3], alone[4], (size_t)t.n * sizeof(float));
		for (int i = 0; i < 25; i++)
			for (int step = 3; step <= t.seq; step += (int)t.seq - 3) {
				float *got = logits(m, &t, of[i / 5], of[i % 5], step);

				same_bits("first", got, alone[i / 5], half);
				same_bits("second", got + half, alone[i % 5] + half, half);
				free(got);
			}
		for (int i = 0; i < 25; i++)
			last_rows(m, &t, (const struct dt_infer_adapter *[]){of[i / 5], of[i % 5]},
				  (const float *[]){alone[i / 5], alone[i % 5]});
		for (int i = 0; i < 5; i++)
			free(alone[i]);
		free(base);
		dt_infer_adapter_close(one);
		dt_infer_adapter_close(two);
		dt_infer_adapter_close(three);
		dt_infer_adapter_close(four);
		dt_infer_close(m);
		dt_infer_close(plain);
	}
	dt_dev_close(dev);
	dt_source_close(src);
	close_texts(&t);
}

static void test_refused(void **state)
{
	struct dt_source *src = source(NULL);
	struct dt_infer_adapter *a;
	struct dt_infer *m;
	struct dt_dev *dev;
	struct dt_err err;

	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 1), 0);
	m = model(dev, src, DT_F32, 3);
	assert_int_equal(dt_infer_adapter_open(&a, m, DIR "rs", NULL, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "rank 4 is above"));
	assert_int_equal(dt_infer_adapter_open(&a, m, DIR "base", NULL, &err),
			 -ENOENT); /* it is no adapter */
	assert_int_equal(dt_infer_adapter_open(&a, m, DIR "none", NULL, &err), -ENOENT);
	a = adapter(m, DIR "adapter");
	/* 2 layers of q, k, v, o, gate, up, down: rank (in + out) of 4 bytes */
	assert_int_equal(dt_infer_adapter_bytes(a), 2 * 3 * 4 * (2 * 96 + 2 * 72 + 3 * 136));
	dt_infer_adapter_close(a);
	dt_infer_close(m);
	dt_dev_close(dev);
	dt_source_close(src);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),	       cmocka_unit_test(test_saved),
		cmocka_unit_test(test_read_meanwhile), cmocka_unit_test(test_portions),
		cmocka_unit_test(test_broken_pieces),  cmocka_unit_test(test_rows),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
