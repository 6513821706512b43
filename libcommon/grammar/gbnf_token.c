/* References to tokens in GBNF: <[id]> and <text>, and with ! before them any other token. */
#include "grammar/gbnf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The id in <[id]>, where text is [n] what the angle brackets and all contain; -1: it is none. */
static int32_t number_of(const char *text, size_t n)
{
	int64_t id = 0;

	if (n < 5 || text[1] != '[' || text[n - 2] != ']')
		return -1;
	for (size_t i = 2; i < n - 2 && id <= INT32_MAX; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -1;
		id = 10 * id + (text[i] - '0');
	}
	return id <= INT32_MAX ? (int32_t)id : -1;
}

int dt_gbnf_read_token(struct dt_gbnf *x)
{
	const struct dt_grammar_tokens *t = x->tokens;
	const char *from = x->at, *text = from + (*from == '!'), *close;
	const int shown = 60;
	int32_t id;
	size_t n;

	if (text == x->end || *text != '<')
		return dt_gbnf_fail(x, from, -EINVAL, "'!' is not followed by a token (<...>)") - 1;
	close = memchr(text, '>', (size_t)(x->end - text));
	if (!close)
		return dt_gbnf_fail(x, from, -EINVAL, "the token has no closing bracket (>)") - 1;
	if (!t)
		return dt_gbnf_fail(x, from, -ENOTSUP, "references to tokens (<...>) are not supported") - 1;
	n = (size_t)(close + 1 - text);
	id = text[1] == '[' ? number_of(text, n) : t->find(t->arg, text, n);
	if (id < 0 || id >= t->vocab)
		return dt_gbnf_fail(x, from, -EINVAL, "'%.*s' is not one token of this model",
				    (int)(n < (size_t)shown ? n : (size_t)shown), text) -
		       1;
	if (!t->fits(t->arg, id))
		return dt_gbnf_fail(x, from, -EINVAL, "token %d ends an answer or has no text", id) - 1;
	x->has_tokens = true;
	x->at = close + 1;
	return 2 * id + (text != from);
}

bool dt_gbnf_set_tokens(struct dt_gbnf *x, struct dt_grammar *g)
{
	const struct dt_grammar_tokens *t = x->tokens;

	if (!x->has_tokens)
		return true;
	g->tokens = calloc(((size_t)t->vocab + 31) / 32, sizeof(*g->tokens));
	g->no_memory |= !g->tokens;
	g->ntokens = g->tokens ? t->vocab : 0;
	for (int32_t id = 0; id < g->ntokens; id++)
		if (t->fits(t->arg, id))
			g->tokens[id / 32] |= 1u << id % 32;
	return g->tokens;
}
/* SPDX-License-Identifier: Apache-2.0 */
