/* Cleaning: each filter at its bound, planted near duplicates of known similarity, contamination. */
#include "data/clean.h"

#include "base/rng.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORDS 400

static struct dt_clean *cleaner(struct dt_clean_options o)
{
	struct dt_clean *c;
	struct dt_err err = {0};

	o.max_symbols = o.max_symbols > 0 ? o.max_symbols : 1;
	o.max_repeats = o.max_repeats > 0 ? o.max_repeats : 1;
	o.max_ngrams = o.max_ngrams > 0 ? o.max_ngrams : 1;
	if (dt_clean_open(&o, &c, &err) < 0)
		fail_msg("%s", err.msg);
	return c;
}

static enum dt_clean_reason take(struct dt_clean *c, const char *text, int64_t *like)
{
	enum dt_clean_reason r;
	int64_t own;

	assert_int_equal(dt_clean_take(c, text, strlen(text), &r, like ? like : &own, NULL), 0);
	return r;
}

static void filters(void **state)
{
	struct dt_clean *c = cleaner((struct dt_clean_options){.min_chars = 5, .max_chars = 8});
	struct dt_clean_counts n;

	assert_int_equal(take(c, "four", NULL), DT_CLEAN_SHORT);
	assert_int_equal(take(c, "fives", NULL), DT_CLEAN_KEPT);
	assert_int_equal(take(c, "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4", NULL),
			 DT_CLEAN_SHORT); /* 4 characters */
	assert_int_equal(take(c, "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4", NULL), DT_CLEAN_KEPT);
	assert_int_equal(take(c, "eight ch", NULL), DT_CLEAN_KEPT);
	assert_int_equal(take(c, "nine char", NULL), DT_CLEAN_LONG);
	dt_clean_counts(c, &n);
	assert_int_equal(n.documents[DT_CLEAN_KEPT], 3);
	assert_int_equal(n.bytes[DT_CLEAN_SHORT], 12);
	dt_clean_close(c);
	c = cleaner((struct dt_clean_options){.max_symbols = 0.25});
	assert_int_equal(take(c, "abc d e f #%", NULL), DT_CLEAN_KEPT); /* 2 of 8 */
	assert_int_equal(take(c, "abc d e f #%!", NULL), DT_CLEAN_SYMBOLS);
	dt_clean_close(c);
	c = cleaner((struct dt_clean_options){.max_repeats = 0.2});
	assert_int_equal(take(c, "one\ntwo\nthree\nfour\none\n", NULL), DT_CLEAN_KEPT); /* 4 of 23 bytes */
	assert_int_equal(take(c, "one\ntwo\none\ntwo\nfour\n", NULL), DT_CLEAN_REPEATS);
	assert_int_equal(take(c, "one\ntwo\n", NULL), DT_CLEAN_KEPT); /* lines are those of one document */
	dt_clean_close(c);
}

static void exact(void **state)
{
	struct dt_clean *c = cleaner((struct dt_clean_options){.exact = true});
	char text[32];
	int64_t like;

	for (int i = 0; i < 20000; i++) {
		snprintf(text, sizeof(text), "document %d", i);
		assert_int_equal(take(c, text, NULL), DT_CLEAN_KEPT);
	}
	for (int i = 0; i < 20000; i += 7) {
		snprintf(text, sizeof(text), "document %d", i);
		assert_int_equal(take(c, text, &like), DT_CLEAN_EXACT);
		assert_int_equal(like, i);
	}
	assert_int_equal(take(c, "Document 0", NULL), DT_CLEAN_KEPT);
	dt_clean_close(c);
}

/* Words of document d from a vocabulary of random numbers; with changed, so many of them are others. */
static void write_document(char *to, int d, const unsigned char *changed)
{
	struct dt_rng r = dt_rng_make(21, DT_RNG_TEST, (uint32_t)d);
	size_t at = 0;

	for (int i = 0; i < WORDS; i++)
		at += (size_t)sprintf(to + at, "%x ",
				      dt_rng_u32(&r, (uint64_t)i + (changed && changed[i] ? 100000u : 0u)));
}

/*
 * A run of 5 words changes with any of its words: k changed words far apart leave the similarity
 * (n - 5 k) / (n + 5 k) of n = WORDS - 4 runs, so that k = 8 or 9 is about 0.8.
 */
static double planted(int k, int documents)
{
	struct dt_clean *c = cleaner((struct dt_clean_options){.near = 0.8});
	char *text = malloc(WORDS * 10);
	int found = 0;

	for (int d = 0; d < documents; d++) {
		write_document(text, d, NULL);
		assert_int_equal(take(c, text, NULL), DT_CLEAN_KEPT);
	}
	for (int d = 0; d < documents; d++) {
		unsigned char changed[WORDS] = {0};
		int64_t like;

		for (int i = 0; i < k; i++)
			changed[10 + i * (WORDS - 20) / k] = 1;
		write_document(text, d, changed);
		if (take(c, text, &like) == DT_CLEAN_NEAR) {
			assert_int_equal(like, d);
			found++;
		}
	}
	free(text);
	dt_clean_close(c);
	return (double)found / documents;
}

static void near(void **state)
{
	double at_95 = planted(2, 600), at_80 = planted(8, 600), at_60 = planted(20, 600),
	       at_33 = planted(40, 600);

	print_message(
		"found of near duplicates: %.1f%% at 0.95, %.1f%% at 0.82, %.1f%% at 0.6, %.1f%% at 0.33\n",
		100 * at_95, 100 * at_80, 100 * at_60, 100 * at_33);
	assert_true(at_95 == 1);
	assert_true(at_80 >= 0.95);
	assert_true(at_60 < 0.05);
	assert_true(at_33 == 0);
}

static void excluded(void **state)
{
	struct dt_clean *c = cleaner((struct dt_clean_options){.exact = false});
	const char *test = "What is the tallest mountain of all on this earth as it stands today, please?";

	assert_int_equal(dt_clean_exclude(c, test, strlen(test), NULL), 0);
	assert_int_equal(
		take(c, "He asked: what is the TALLEST mountain of all on this earth as it stood", NULL),
		DT_CLEAN_KEPT); /* 12 words in a row */
	assert_int_equal(
		take(c, "He asked: what is the TALLEST mountain of all on this earth as it stands", NULL),
		DT_CLEAN_EXCLUDED);
	assert_int_equal(take(c, "", NULL), DT_CLEAN_KEPT);
	dt_clean_close(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(filters),
		cmocka_unit_test(exact),
		cmocka_unit_test(near),
		cmocka_unit_test(excluded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
