/*
 * What a teacher gives a data set, through its file to the loss: against PyTorch
 * (tests/data/golden_distill.py); fewer columns than the file has; files that are refused.
 */
#include "data/teacher.h"
#include "golden.h"

#include "base/tmpfile.h"
#include "kernels/ops.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/dt-teacher-XXXXXX";
static struct dt_dev *dev;

static int setup(void **state)
{
	return mkdtemp(dir) && chdir(dir) == 0 ? dt_dev_open(&dev, DT_DEV_CPU, 0, 1) : -1;
}

static int teardown(void **state)
{
	dt_dev_close(dev);
	return chdir("/") || dt_remove_tree(dir, NULL);
}

static struct dt_teacher *kept(const struct dt_teacher_info *i, const int32_t *columns, const float *logprobs,
			       const float *rest)
{
	struct dt_teacher_writer *w;
	struct dt_teacher *t = NULL;
	struct dt_err err = {0};

	if (dt_teacher_create("t.h5", i, &w, &err) < 0 ||
	    dt_teacher_append(w, i->tokens, columns, logprobs, rest, &err) < 0 ||
	    dt_teacher_finish(w, &err) < 0 || dt_teacher_open("t.h5", &t, &err) < 0)
		fail_msg("%s", err.msg);
	return t;
}

static struct dt_teacher_info info_of(int64_t rows, int64_t k, int64_t vocab, double temperature)
{
	return (struct dt_teacher_info){.tokens = rows,
					.k = k,
					.seq = rows,
					.vocab = (int32_t)vocab,
					.data_tokens = rows + 1,
					.temperature = temperature,
					.tokenizer_hash = "0123",
					.teacher = "golden"};
}

static void golden_case(const struct golden *g, const char *name)
{
	char path[64];
	int64_t n, k = golden_int(g, name, "k"), vocab = golden_int(g, name, "vocab"), rows;
	double temperature = golden_real(g, name, "temperature");
#define GET(type, what) (snprintf(path, sizeof(path), "%s/" what, name), golden_##type(g, path, &n))
	int32_t *columns = GET(i32, "columns"), *targets = GET(i32, "targets");
	float *logprobs = GET(f32, "logprobs"), *rest = GET(f32, "rest"), *logits = GET(f32, "logits");
	float *want = GET(f32, "grad");
	double *ce = GET(f64, "ce"), *kl = GET(f64, "kl");
#undef GET
	struct dt_teacher_info i = info_of(rows = n, k, vocab, temperature);
	struct dt_teacher *t = kept(&i, columns, logprobs, rest);
	int32_t *column = malloc((size_t)(rows * k) * sizeof(*column));
	float *prob = malloc((size_t)(rows * (k + 1)) * sizeof(*prob)), s[6][8];
	struct dt_tensor l = dt_t2(logits, DT_F32, rows, vocab);
	struct dt_distill p = {k,
			       (float)dt_teacher_info(t)->temperature,
			       (float)golden_real(g, name, "weight"),
			       column,
			       prob,
			       0};
	struct dt_err err = {0};

	if (dt_teacher_read(t, 0, rows, k, column, prob, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(dev->ops->ce_stats(dev, s[0], s[1], s[2], l, targets, 0), 0);
	assert_int_equal(dev->ops->distill_stats(dev, s[3], s[4], s[5], l, s[0], targets, &p), 0);
	for (int64_t r = 0; r < rows; r++) {
		const float *q = prob + r * (k + 1);
		double got = log((double)s[3][r] + (double)s[4][r]) - (double)s[5][r];

		if (targets[r] < 0)
			continue;
		for (int64_t c = 0; c <= k; c++)
			got += q[c] > 0 ? (double)q[c] * log((double)q[c]) : 0;
		got -= q[k] > 0 ? (double)q[k] * log((double)s[4][r]) : 0;
		if (fabs(got - kl[r]) > 2e-6 * (1 + kl[r]))
			fail_msg("%s row %lld: KL %.9g, PyTorch %.9g", name, (long long)r, got, kl[r]);
		got = log((double)s[1][r]) + (double)s[0][r] - (double)s[2][r];
		assert_true(fabs(got - ce[r]) < 2e-6 * (1 + ce[r]));
	}
	assert_int_equal(dev->ops->distill_grad(dev, l, l, s[0], s[1], s[3], s[4], targets, 1, &p), 0);
	golden_assert_close(name, logits, want, rows * vocab, 0, 2e-6);
	dt_teacher_close(t);
	free(columns);
	free(targets);
	free(logprobs);
	free(rest);
	free(logits);
	free(want);
	free(ce);
	free(kl);
	free(column);
	free(prob);
}

static void test_golden(void **state)
{
	struct golden g;

	golden_open(&g, "distill");
	for (int i = 0; i < 4; i++) {
		char name[16];

		snprintf(name, sizeof(name), "case%d", i);
		golden_case(&g, name);
	}
	golden_close(&g);
}

static const int32_t columns[6] = {9, 2, 7, 0, 65536, 3};
static const float probs[6] = {0.5f, 0.25f, 0.125f, 0.4f, 0.3f, 0.1f}, others[2] = {0.125f, 0.2f};

static struct dt_teacher *small(int64_t vocab, const int32_t *c, float first)
{
	struct dt_teacher_info i = info_of(2, 3, vocab, 1);
	float logprob[6], rest[2] = {logf(others[0]), logf(others[1])};

	for (int k = 0; k < 6; k++)
		logprob[k] = k ? logf(probs[k]) : first;
	return kept(&i, c, logprob, rest);
}

/* Columns come in their order, and what is left out of the file's is among the others. */
static void test_fewer(void **state)
{
	static const int32_t want_column[4] = {2, 9, 0, 65536};
	static const float want[6] = {0.25f, 0.5f, 0.25f, 0.4f, 0.3f, 0.3f};
	struct dt_teacher *t = small(70000, columns, logf(0.5f));
	struct dt_err err = {0};
	int32_t column[4];
	float prob[6];

	assert_int_equal(dt_teacher_read(t, 0, 2, 2, column, prob, &err), 0);
	assert_memory_equal(column, want_column, sizeof(column));
	for (int i = 0; i < 6; i++)
		assert_true(fabsf(prob[i] - want[i]) < 1e-6f);
	assert_int_equal(dt_teacher_read(t, 1, 2, 2, column, prob, &err), -EBADMSG);
	dt_teacher_close(t);
}

/* A column past the vocabulary, the same one twice, and what sums to nothing like 1. */
static void test_broken(void **state)
{
	static const int32_t past[6] = {9, 2, 7, 0, 10, 3}, twice[6] = {9, 2, 9, 0, 1, 3},
			     fine[6] = {9, 2, 7, 0, 1, 3};
	const int32_t *of[4] = {past, twice, fine, fine};
	const float first[4] = {logf(0.5f), logf(0.5f), 3, NAN};
	int32_t column[6];
	float prob[8];

	for (int i = 0; i < 4; i++) {
		struct dt_teacher *t = small(10, of[i], first[i]);
		struct dt_err err = {0};

		assert_int_equal(dt_teacher_read(t, 0, 2, 3, column, prob, &err), -EBADMSG);
		assert_non_null(strstr(err.msg, "not a distribution"));
		dt_teacher_close(t);
	}
}

/* Cut off at every 97th byte, a file is refused or its values are. */
static void test_truncated(void **state)
{
	struct dt_teacher *t = small(10, (const int32_t[6]){9, 2, 7, 0, 1, 3}, logf(0.5f));
	struct dt_err err = {0};
	char *bytes;
	size_t n;
	FILE *f;

	dt_teacher_close(t);
	f = fopen("t.h5", "rb");
	assert_non_null(f);
	fseek(f, 0, SEEK_END);
	n = (size_t)ftell(f);
	rewind(f);
	bytes = malloc(n);
	assert_int_equal(fread(bytes, 1, n, f), n);
	fclose(f);
	for (size_t cut = 0; cut < n; cut += 97) {
		f = fopen("cut.h5", "wb");
		assert_int_equal(fwrite(bytes, 1, cut, f), cut);
		fclose(f);
		assert_true(dt_teacher_open("cut.h5", &t, &err) < 0);
		assert_true(err.msg[0] != '\0');
	}
	free(bytes);
	assert_int_equal(dt_teacher_open("not-there.h5", &t, &err), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_fewer),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_truncated),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
