/* JSON schemas: what is compiled writes JSON, whatever tokens are drawn, and takes its end as such. */
#include "grammar/grammar.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

#define TOKENS 80 /* drawn a text */

static const char *byte_of(const void *bytes, int32_t id, size_t *ret_n)
{
	*ret_n = 1;
	return (const char *)bytes + id;
}

/* A text drawn as the input says; checked where it may end. */
static void walk(struct dt_grammar *g, const struct dt_vocab_order *order, const unsigned char *data,
		 size_t n)
{
	struct dt_matcher *m = dt_matcher_new(g);
	char text[TOKENS];
	size_t len = 0;

	while (m && len < TOKENS) {
		const uint32_t *mask = dt_matcher_mask(m, order);
		int want = data[len % n] + (int)len, id = -1;

		for (int i = 0; mask && i < 256 && id < 0; i++)
			if (mask[(want + i) % 256 / 32] >> (want + i) % 32 & 1)
				id = (want + i) % 256;
		if (id < 0)
			break;
		text[len++] = (char)id;
		if (!dt_matcher_push(m, &text[len - 1], 1))
			abort(); /* the mask allowed it */
		if (dt_matcher_complete(m)) {
			json_t *v = json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);

			/* a number beyond a double is the reader's limit, not the text's */
			if (!v && text[0] != '-' && (text[0] < '0' || text[0] > '9') && text[0] != '[' &&
			    text[0] != '{')
				abort();
			json_decref(v);
		}
		if (dt_matcher_done(m))
			break;
	}
	dt_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	static struct dt_vocab_order order;
	static unsigned char bytes[256];
	struct dt_grammar *g;
	json_t *o;

	if (!order.token) {
		for (int i = 0; i < 256; i++)
			bytes[i] = (unsigned char)i;
		if (dt_vocab_order_init(&order, 256, byte_of, bytes) < 0)
			abort();
	}
	o = n ? json_loadb((const char *)data, n, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES,
			   NULL)
	      : NULL;
	if (o && dt_grammar_schema(o, &g, NULL) == 0) {
		walk(g, &order, data, n);
		dt_grammar_drop(g);
	}
	json_decref(o);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
