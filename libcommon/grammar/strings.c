/*
 * Masks inside JSON strings. Whether a token fits there depends only on how many characters the string may
 * still have and, if the token contains the closing quote, on what may come after that. So everything else is
 * known for the vocabulary (vocab_string.c), and a grammar reads only what tokens have after the quote.
 */
#include "grammar/matcher_priv.h"

#include <string.h>

static bool is_quote(const struct dt_grammar *g, struct dt_elem e)
{
	static const struct dt_class quote = {{1ull << '"'}};

	return e.type == DT_ELEM_CLASS && !memcmp(&g->class[e.index], &quote, sizeof(quote));
}

/*
 * A state between two characters has the stacks of a rule of characters: those of its first alternative, a
 * character and then the same with one character less, and, unless its number is exact, those of its second
 * alternative, which is empty. Below a rule of at most n characters is the closing quote; below a rule of
 * exactly n, a rule of at most so many, and then the quote. That the stacks are exactly these is compared.
 */
bool dt_state_in_string(struct dt_parser *p, int32_t state, struct dt_in_string *ret)
{
	const struct dt_elem *elem = p->g->elem;
	const struct dt_known_state *k = &p->known[state];
	const int32_t *top = p->tops + k->first;
	const int32_t below = k->n > 0 && top[0] >= 0 ? p->node[top[0]].parent : -1;
	struct dt_stack_node at;
	struct dt_stacks s;
	uint32_t left, more;
	bool exact, good;

	if (below < 0 || !elem[p->node[below].pos].left || p->node[below].parent < 0)
		return false;
	at = p->node[below]; /* after a character: the rest of the rule's first alternative */
	left = elem[at.pos].left;
	exact = elem[at.pos].exact;
	dt_stacks_at(p, at.pos - 1, exact ? -1 : at.pos + 1, at.parent, &s);
	if (p->failed || s.n != k->n || memcmp(s.top, top, (size_t)s.n * sizeof(*top)))
		return false;
	ret->least = exact ? left : 0;
	ret->most = left;
	at = p->node[at.parent];
	if (exact) {
		more = elem[at.pos++].left;
		ret->most = more == DT_GR_ANY ? more : left + more - 1;
	}
	if (!is_quote(p->g, elem[at.pos]))
		return false;
	dt_stacks_at(p, at.pos + 1, -1, at.parent, &ret->after);
	good = !p->failed && ret->after.n > 0;
	p->failed = false; /* no error if that is too much: perhaps no token leads there */
	return good;
}

/* The mask of the tokens with at most n characters, n < DT_SHORT. */
static const uint32_t *upto(const struct dt_vocab_string *v, size_t words, uint32_t n)
{
	return v->upto + words * n;
}

static void clear(uint32_t *bits, int32_t id)
{
	bits[id / 32] &= ~(1u << id % 32);
}

void dt_string_mask(const struct dt_vocab_string *v, size_t words, const struct dt_in_string *s,
		    uint32_t *bits)
{
	const uint32_t *m;

	if (s->least > 0) {
		m = upto(v, words, (s->least < DT_SHORT ? s->least : DT_SHORT) - 1);
		for (size_t i = 0; i < words; i++)
			bits[i] &= ~m[i];
		for (int i = v->nlonger - 1; i >= 0 && v->longer[i].characters < s->least; i--)
			clear(bits, v->longer[i].id);
	}
	for (size_t i = 0; i < words; i++)
		bits[i] |= v->inside[i];
	if (s->most < DT_SHORT) {
		m = upto(v, words, s->most);
		for (size_t i = 0; i < words; i++)
			bits[i] &= m[i];
	}
	for (int i = 0; i < v->nlonger && v->longer[i].characters > s->most; i++)
		clear(bits, v->longer[i].id);
}
/* SPDX-License-Identifier: Apache-2.0 */
