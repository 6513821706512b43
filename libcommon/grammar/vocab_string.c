/*
 * The tokens of a vocabulary inside a JSON string, read by the grammar of a string. The characters of a token
 * are those that begin in it, before the closing quote.
 */
#include "grammar/matcher_priv.h"

#include <errno.h>
#include <stdlib.h>

struct reader {
	const struct dt_vocab_order *o;
	size_t words;
	struct dt_parser *p;
	int32_t inside; /* the state between two characters */
	struct dt_vocab_string *v;
	struct dt_vocab_order
		rest; /* the tokens that close the string, without their bytes up to the quote */
};

/* The characters of a token; -1: it does not fit. *ret_rest: its bytes after the quote; -1: it has none. */
static int read_token(struct reader *r, const struct dt_vocab_token *t, int32_t *ret_rest)
{
	const struct dt_parser *p = r->p;
	int32_t at = r->inside;
	int characters = 0;

	*ret_rest = -1;
	for (int32_t i = 0; i < t->len; i++) {
		const int32_t next = dt_state_next(r->p, at, (unsigned char)t->s[i]);

		if (next < 0)
			return -1;
		if (p->tops[p->known[next].first] < 0) { /* the text may end: this was the closing quote */
			*ret_rest = t->len - i - 1;
			return characters;
		}
		characters += at == r->inside;
		at = next;
	}
	return characters;
}

static void add_token(struct reader *r, const struct dt_vocab_token *t)
{
	const uint32_t bit = 1u << t->id % 32;
	struct dt_vocab_string *v = r->v;
	int32_t rest;
	const int n = read_token(r, t, &rest);

	if (n < 0)
		return;
	if (rest < 0)
		v->inside[t->id / 32] |= bit;
	else
		r->rest.token[r->rest.n++] = (struct dt_vocab_token){t->s + t->len - rest, rest, t->id};
	if (n < DT_SHORT)
		v->upto[r->words * (size_t)n + (size_t)(t->id / 32)] |= bit;
	else
		v->longer[v->nlonger++] = (struct dt_vocab_longer){t->id, (uint32_t)n};
}

static int by_characters(const void *a, const void *b)
{
	const struct dt_vocab_longer *x = a, *y = b;

	return (y->characters > x->characters) - (y->characters < x->characters);
}

static int read_tokens(struct reader *r)
{
	struct dt_vocab_string *v = r->v;
	struct dt_vocab_longer *less;

	r->p->work = INT64_MAX;
	for (int i = 0; i < r->o->n; i++)
		add_token(r, &r->o->token[i]);
	if (r->p->failed)
		return -ENOMEM;
	for (size_t i = r->words; i < DT_SHORT * r->words; i++)
		v->upto[i] |= v->upto[i - r->words];
	qsort(v->longer, (size_t)v->nlonger, sizeof(*v->longer), by_characters);
	less = realloc(v->longer, ((size_t)v->nlonger + 1) * sizeof(*less));
	v->longer = less ? less : v->longer;
	qsort(r->rest.token, (size_t)r->rest.n, sizeof(*r->rest.token), dt_vocab_by_bytes);
	return dt_vocab_level_init(&r->rest, &v->rest);
}

int dt_vocab_string_new(const struct dt_vocab_order *o, struct dt_vocab_string **ret)
{
	const size_t words = ((size_t)o->vocab + 31) / 32,
		     n = (size_t)o->n + 1; /* + 1: malloc(0) may be NULL */
	struct dt_vocab_string *v = calloc(1, sizeof(*v));
	struct dt_vocab_token *rest = malloc(n * sizeof(*rest));
	struct dt_grammar *g = dt_grammar_string();
	struct dt_matcher *m = g ? dt_matcher_new(g) : NULL;
	int rc = -ENOMEM;

	if (v) {
		v->inside = calloc(words + 1, sizeof(*v->inside));
		v->upto = calloc(DT_SHORT * words + 1, sizeof(*v->upto));
		v->longer = malloc(n * sizeof(*v->longer));
	}
	if (v && v->inside && v->upto && v->longer && rest && m && dt_matcher_push(m, "\"", 1)) {
		struct reader r = {o, words, g->parser, m->now, v, {.vocab = o->vocab, .token = rest}};

		rc = read_tokens(&r);
	}
	dt_matcher_free(m);
	dt_grammar_drop(g);
	free(rest);
	if (rc == 0)
		*ret = v;
	else
		dt_vocab_string_free(v);
	return rc;
}

void dt_vocab_string_free(struct dt_vocab_string *v)
{
	if (!v)
		return;
	dt_vocab_level_release(&v->rest);
	free(v->inside);
	free(v->upto);
	free(v->longer);
	free(v);
}
/* SPDX-License-Identifier: Apache-2.0 */
