/* A vocabulary in the order of its tokens' bytes. */
#include "grammar/grammar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int by_bytes(const void *a, const void *b)
{
	const struct dt_vocab_token *x = a, *y = b;
	int n = x->len < y->len ? x->len : y->len, c = memcmp(x->s, y->s, (size_t)n);

	return c ? c : x->len - y->len;
}

/* Sets own and rest from token, which is sorted. */
static int lay_out(struct dt_vocab_order *o)
{
	size_t bytes = 1, at = 0;

	for (int i = 0; i < o->n; i++)
		bytes += (size_t)o->token[i].len;
	o->own = malloc((size_t)o->n * sizeof(*o->own) + 1);
	o->rest = malloc(bytes);
	if (!o->own || !o->rest)
		return -ENOMEM;
	for (int i = 0; i < o->n; i++) {
		const struct dt_vocab_token *t = &o->token[i], *before = i ? t - 1 : t;
		int32_t shared = 0;

		while (i && shared < t->len && shared < before->len && t->s[shared] == before->s[shared])
			shared++;
		o->own[i] = (struct dt_vocab_own){t->id, shared, t->len - shared};
		memcpy(o->rest + at, t->s + shared, (size_t)(t->len - shared));
		at += (size_t)(t->len - shared);
	}
	return 0;
}

int dt_vocab_order_init(struct dt_vocab_order *o, int vocab, dt_token_bytes *bytes, const void *arg)
{
	int rc;

	*o = (struct dt_vocab_order){.vocab = vocab};
	o->token = malloc((size_t)vocab * sizeof(*o->token));
	if (!o->token)
		return -ENOMEM;
	for (int32_t id = 0; id < vocab; id++) {
		size_t n = 0;
		const char *s = bytes(arg, id, &n);

		if (!s || n == 0)
			continue;
		o->token[o->n++] = (struct dt_vocab_token){s, (int32_t)n, id};
		o->longest = (int)n > o->longest ? (int)n : o->longest;
	}
	qsort(o->token, (size_t)o->n, sizeof(*o->token), by_bytes);
	rc = lay_out(o);
	if (rc < 0)
		dt_vocab_order_release(o);
	return rc;
}

void dt_vocab_order_release(struct dt_vocab_order *o)
{
	free(o->token);
	free(o->own);
	free(o->rest);
	*o = (struct dt_vocab_order){0};
}
/* SPDX-License-Identifier: Apache-2.0 */
