/* A vocabulary in the order of its tokens' bytes. */
#include "grammar/priv.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

int dt_vocab_by_bytes(const void *a, const void *b)
{
	const struct dt_vocab_token *x = a, *y = b;
	int n = x->len < y->len ? x->len : y->len, c = memcmp(x->s, y->s, (size_t)n);

	return c ? c : x->len - y->len;
}

static const int least_of[DT_VOCAB_LEVELS] = {1, 4, 6, 8, 10, 12, 16, 24};

static int level_alloc(const struct dt_vocab_order *o, struct dt_vocab_level *l)
{
	size_t bytes = 1;

	for (int i = 0; i < o->n; i++)
		if (o->token[i].len >= l->least) {
			bytes += (size_t)o->token[i].len;
			l->n++;
		}
	l->own = malloc(((size_t)l->n + 1) * sizeof(*l->own));
	l->rest = malloc(bytes);
	l->shorter = calloc(((size_t)o->vocab + 31) / 32, sizeof(*l->shorter));
	return l->own && l->rest && l->shorter ? 0 : -ENOMEM;
}

/* Sets `over`, from the last token to the first: each step skips tokens that share at least as many bytes. */
static void set_over(struct dt_vocab_level *l)
{
	for (int i = l->n - 1; i >= 0; i--) {
		int j = i + 1;

		while (j < l->n && l->own[j].shared >= l->own[i].shared)
			j = l->own[j].over;
		l->own[i].over = j;
	}
}

int dt_vocab_level_init(const struct dt_vocab_order *o, struct dt_vocab_level *l)
{
	const struct dt_vocab_token *before = NULL;
	struct dt_vocab_own *own;
	int32_t at = 0;

	if (level_alloc(o, l) < 0)
		return -ENOMEM;
	own = l->own;
	for (const struct dt_vocab_token *t = o->token; t < o->token + o->n; t++) {
		int32_t shared = 0;

		if (t->len < l->least) {
			l->shorter[t->id / 32] |= 1u << t->id % 32;
			continue;
		}
		while (before && shared < t->len && shared < before->len && t->s[shared] == before->s[shared])
			shared++;
		*own++ = (struct dt_vocab_own){t->id, shared, at, 0};
		memcpy(l->rest + at, t->s + shared, (size_t)(t->len - shared));
		at += t->len - shared;
		before = t;
	}
	*own = (struct dt_vocab_own){-1, 0, at, l->n};
	set_over(l);
	return 0;
}

void dt_vocab_level_release(struct dt_vocab_level *l)
{
	free(l->own);
	free(l->rest);
	free(l->shorter);
}

int dt_vocab_order_init(struct dt_vocab_order *o, int vocab, dt_token_bytes *bytes, const void *arg)
{
	static atomic_uint_fast64_t made;
	int rc = 0;

	*o = (struct dt_vocab_order){.vocab = vocab, .serial = atomic_fetch_add(&made, 1)};
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
	qsort(o->token, (size_t)o->n, sizeof(*o->token), dt_vocab_by_bytes);
	for (int i = 0; i < DT_VOCAB_LEVELS && rc == 0; i++) {
		o->level[i].least = least_of[i];
		rc = dt_vocab_level_init(o, &o->level[i]);
	}
	if (rc == 0)
		rc = dt_vocab_string_new(o, &o->string);
	if (rc < 0)
		dt_vocab_order_release(o);
	return rc;
}

void dt_vocab_order_release(struct dt_vocab_order *o)
{
	free(o->token);
	for (int i = 0; i < DT_VOCAB_LEVELS; i++)
		dt_vocab_level_release(&o->level[i]);
	dt_vocab_string_free(o->string);
	*o = (struct dt_vocab_order){0};
}
/* SPDX-License-Identifier: Apache-2.0 */
