/* Grammars in GBNF, and a text behind a NUL: a mask and the matcher agree on its bytes. */
#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

static char bytes[256];

static const char *byte_of(const void *arg, int32_t id, size_t *ret_n)
{
	*ret_n = 1;
	return &bytes[id];
}

static int32_t find(const void *arg, const char *s, size_t n)
{
	return n == 3 ? (unsigned char)s[1] : -1; /* <a> is the byte a */
}

static bool fits(const void *arg, int32_t id)
{
	return id != 'z';
}

static const struct dt_grammar_tokens tokens = {256, find, fits, NULL};

static void walk(struct dt_grammar *g, const struct dt_vocab_order *o, const unsigned char *text, size_t n)
{
	struct dt_matcher *m = dt_matcher_new(g);

	for (size_t i = 0; m && i < n && i < 64; i++) {
		const uint32_t *mask = dt_matcher_mask(m, o);
		const bool fits = mask && mask[text[i] / 32] >> text[i] % 32 & 1;

		if (!mask) /* too ambiguous */
			break;
		if (dt_matcher_push_token(m, text[i], (const char *)text + i, 1) != fits)
			abort();
		if (!fits)
			break;
	}
	dt_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	const unsigned char *nul = memchr(data, 0, n);
	const size_t len = nul ? (size_t)(nul - data) : n;
	struct dt_grammar *g = NULL;
	struct dt_vocab_order o;

	for (int i = 0; i < 256; i++)
		bytes[i] = (char)i;
	if (dt_vocab_order_init(&o, 256, byte_of, NULL) < 0)
		abort();
	if (dt_grammar_gbnf((const char *)data, len, &tokens, &g, NULL) == 0) {
		walk(g, &o, nul ? nul + 1 : data, nul ? n - len - 1 : n);
		dt_grammar_drop(g);
	}
	dt_vocab_order_release(&o);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
