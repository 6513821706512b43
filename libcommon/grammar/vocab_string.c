/*
 * What the tokens of a vocabulary are inside a JSON string, read by the grammar of a string. The characters of
 * a token are those that begin in it, before the closing quote.
 */
#include "grammar/matcher_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A token inside a string. */
struct reading {
	int characters; /* -1: it does not fit */
	int32_t rest;	/* its bytes up to the closing quote, and with it; -1: it does not close the string */
};

static struct reading read_token(struct dt_parser *p, int32_t inside, const struct dt_vocab_token *t)
{
	struct reading r = {0, -1};
	int32_t at = inside;

	for (int32_t i = 0; i < t->len; i++) {
		const int32_t next = dt_state_next(p, at, (unsigned char)t->s[i]);

		if (next < 0)
			return (struct reading){-1, -1};
		if (p->tops[p->known[next].first] < 0) { /* the string may end: it has */
			r.rest = i + 1;
			return r;
		}
		r.characters += at == inside;
		at = next;
	}
	return r;
}

static void add_token(struct dt_vocab_string *v, size_t words, const struct dt_vocab_token *t,
		      struct reading r, struct dt_vocab_order *rest)
{
	const uint32_t bit = 1u << t->id % 32;

	if (r.characters < 0)
		return;
	if (r.rest < 0)
		v->inside[t->id / 32] |= bit;
	else
		rest->token[rest->n++] = (struct dt_vocab_token){t->s + r.rest, t->len - r.rest, t->id};
	if (r.characters < DT_SHORT)
		v->upto[words * (size_t)r.characters + (size_t)(t->id / 32)] |= bit;
	else
		v->longer[v->nlonger++] = (struct dt_vocab_longer){t->id, r.characters};
}

/* Reads the tokens of o; rest: scratch for the same number of them. */
static int read_tokens(struct dt_vocab_string *v, struct dt_matcher *m, const struct dt_vocab_order *o,
		       struct dt_vocab_order *rest)
{
	const size_t words = ((size_t)o->vocab + 31) / 32;
	struct dt_parser *p = m->g->parser;
	struct dt_vocab_longer *fit;

	p->work = INT64_MAX;
	for (int i = 0; i < o->n; i++)
		add_token(v, words, &o->token[i], read_token(p, m->now, &o->token[i]), rest);
	for (size_t i = words; i < DT_SHORT * words; i++)
		v->upto[i] |= v->upto[i - words];
	fit = realloc(v->longer, ((size_t)v->nlonger + 1) * sizeof(*fit));
	v->longer = fit ? fit : v->longer;
	qsort(rest->token, (size_t)rest->n, sizeof(*rest->token), dt_vocab_by_bytes);
	return p->failed ? -ENOMEM : dt_vocab_level_init(rest, &v->rest);
}

int dt_vocab_string_new(const struct dt_vocab_order *o, struct dt_vocab_string **ret)
{
	const size_t words = ((size_t)o->vocab + 31) / 32 + 1, n = (size_t)o->n + 1;
	struct dt_vocab_order rest = {.vocab = o->vocab, .token = malloc(n * sizeof(*rest.token))};
	struct dt_vocab_string *v = calloc(1, sizeof(*v));
	struct dt_grammar *g = dt_grammar_string();
	struct dt_matcher *m = g ? dt_matcher_new(g) : NULL;
	int rc = -ENOMEM;

	if (v) {
		v->inside = calloc(words, sizeof(*v->inside));
		v->upto = calloc(DT_SHORT * words, sizeof(*v->upto));
		v->longer = malloc(n * sizeof(*v->longer));
	}
	if (v && m && rest.token && v->inside && v->upto && v->longer && dt_matcher_push(m, "\"", 1))
		rc = read_tokens(v, m, o, &rest);
	dt_matcher_free(m);
	dt_grammar_drop(g);
	free(rest.token);
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
