/* A vocabulary of random words, for the tests of masks. */
#ifndef DT_TESTS_MASKS_WORDS_H
#define DT_TESTS_MASKS_WORDS_H

#include "base/rng.h"
#include "grammar/matcher_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 9000, LONGEST = 30 };

static char words[VOCAB][LONGEST + 1];

static const char *word_of(const void *arg, int32_t id, size_t *ret_n)
{
	*ret_n = strlen(words[id]);
	return words[id];
}

/* Words of 1 to LONGEST bytes: letters, and now and then what has a meaning in JSON. */
static void make_words(struct dt_vocab_order *o)
{
	static const char *const other[] = {"\"", "\\", "\\n", ",", ":", "{", "}", " ", "\xc3\xa9", "0"};
	const struct dt_rng rng = dt_rng_make(7, DT_RNG_TEST, 0);
	uint64_t k = 0;

	for (int i = 0; i < VOCAB; i++) {
		const size_t n = i < 128 ? 1 : 1 + dt_rng_below(&rng, k++, LONGEST);
		size_t at = 0;

		if (i < 128)
			words[i][at++] = (char)(i ? i : 1);
		while (at < n) {
			const char *s = other[dt_rng_below(&rng, k++, 10)];

			if (dt_rng_below(&rng, k++, 12) > 0)
				words[i][at++] = (char)('a' + dt_rng_below(&rng, k++, 3));
			else if (at + strlen(s) <= n)
				at = (size_t)(stpcpy(words[i] + at, s) - words[i]);
		}
	}
	assert_int_equal(dt_vocab_order_init(o, VOCAB, word_of, NULL), 0);
}

static struct dt_grammar *grammar_of(const char *text)
{
	json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
	struct dt_grammar *g = NULL;
	struct dt_err err;

	assert_non_null(v);
	if (dt_grammar_schema(v, &g, &err) < 0)
		fail_msg("%s: %s", text, err.msg);
	json_decref(v);
	return g;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
