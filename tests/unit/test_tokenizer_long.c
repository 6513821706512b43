/* Long texts of one kind of character: they are encoded like others, in linear time. */
#include "data/tok_priv.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int count_words(void *ctx, const char *s, size_t n, struct dt_err *err)
{
	size_t *words = ctx;

	(*words)++;
	return 0;
}

/* \s*[\r\n]+ steps back over all the blanks: more steps than PCRE2 allows by default. */
static void many_blanks_are_one_word(void **state)
{
	size_t n = 12000000, words = 0;
	char *text = malloc(n);
	struct dt_tokenizer *t;
	struct dt_err err = {0};
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/tokenizer/llama3.json", GOLDEN_DIR);
	if (dt_tokenizer_open(path, &t, &err) < 0)
		fail_msg("%s", err.msg);

	memset(text, ' ', n);
	if (dt_tok_words(t, text, n, count_words, &words, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(words, 1);
	dt_tokenizer_close(t);
	free(text);
}

/*
 * Marks of two classes in turns, 1,000,000 of them, all on one letter: a sort that swaps neighbours needs
 * hours. U+0316 (class 220) comes before U+0301 (230), and "e" with U+0301 is U+00E9 in NFC.
 */
static void many_marks_are_put_in_order(void **state)
{
	static const enum dt_normal forms[] = {DT_NORMAL_NFC, DT_NORMAL_NFD, DT_NORMAL_NFKC, DT_NORMAL_NFKD};
	size_t half = 500000, len = 1 + 4 * half;
	char *text = malloc(len), *want = malloc(len), *got;

	text[0] = want[0] = 'e';
	for (size_t i = 0; i < half; i++) {
		memcpy(text + 1 + 4 * i, "\xcc\x81\xcc\x96", 4);
		memcpy(want + 1 + 2 * i, "\xcc\x96", 2);
		memcpy(want + 1 + 2 * (half + i), "\xcc\x81", 2);
	}
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		bool composed = forms[i] == DT_NORMAL_NFC || forms[i] == DT_NORMAL_NFKC;
		size_t n;

		assert_int_equal(dt_tok_normalize(forms[i], text, len, &got, &n, NULL), 0);
		if (composed) {
			assert_int_equal(n, len - 1);
			assert_memory_equal(got, "\xc3\xa9", 2);
			assert_memory_equal(got + 2, want + 1, n - 2);
		} else {
			assert_int_equal(n, len);
			assert_memory_equal(got, want, n);
		}
		free(got);
	}
	free(want);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_blanks_are_one_word),
		cmocka_unit_test(many_marks_are_put_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
