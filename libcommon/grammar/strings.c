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
 * The stacks of such a state are those of a rule of characters: of its first alternative, a character and the
 * rule with one character less, and, unless their number is exact, of its second one, which is empty. Below
 * them comes the closing quote or, if their number is exact, a rule of more characters and then the quote.
 */
bool dt_in_string(struct dt_parser *p, int32_t state, struct dt_in_string *ret)
{
	const struct dt_elem *elem = p->g->elem;
	const struct dt_known_state *k = &p->known[state];
	const int32_t top = p->tops[k->first], down = k->n > 0 && top >= 0 ? p->node[top].parent : -1;
	const struct dt_stack_node x = down < 0 ? (struct dt_stack_node){0} : p->node[down];
	const struct dt_elem e = elem[x.pos];
	struct dt_stack_node end;
	struct dt_stacks s;

	if (down < 0 || !e.left || x.parent < 0)
		return false;
	dt_stacks_at(p, x.pos - 1, e.exact ? -1 : x.pos + 1, x.parent, &s);
	if (p->failed || s.n != k->n || memcmp(s.top, p->tops + k->first, (size_t)s.n * sizeof(*s.top)))
		return false;
	*ret = (struct dt_in_string){e.exact ? e.left : 0, e.left, -1};
	end = p->node[x.parent];
	if (e.exact) {
		const uint32_t more = elem[end.pos++].left;

		if (!more)
			return false;
		ret->most = more == DT_GR_ANY ? more : e.left + more - 1;
	}
	if (!is_quote(p->g, elem[end.pos]))
		return false;
	dt_stacks_at(p, end.pos + 1, -1, end.parent, &s);
	if (!p->failed && s.n > 0)
		ret->after = dt_state_number(p, &s);
	return ret->after >= 0;
}

/* Removes the tokens with fewer characters than n, or (fewer false) with more. */
static void remove_tokens(const struct dt_vocab_string *v, size_t words, uint32_t n, bool fewer,
			  uint32_t *bits)
{
	const uint32_t most = fewer ? n - 1 : n; /* of the tokens that are removed, or of those that stay */
	const uint32_t *upto = v->upto + words * (most < DT_SHORT ? most : DT_SHORT - 1);
	const uint32_t flip = fewer ? UINT32_MAX : 0;

	if (fewer || most < DT_SHORT)
		for (size_t i = 0; i < words; i++)
			bits[i] &= upto[i] ^ flip;
	for (int i = 0; i < v->nlonger; i++) {
		const struct dt_vocab_longer t = v->longer[i];

		if (fewer ? t.characters < (int)n : t.characters > (int)n)
			bits[t.id / 32] &= ~(1u << t.id % 32);
	}
}

void dt_string_mask(const struct dt_vocab_string *v, size_t words, const struct dt_in_string *s,
		    uint32_t *bits)
{
	if (s->least > 0)
		remove_tokens(v, words, s->least, true, bits);
	for (size_t i = 0; i < words; i++)
		bits[i] |= v->inside[i];
	if (s->most < DT_GR_ANY)
		remove_tokens(v, words, s->most, false, bits);
}
/* SPDX-License-Identifier: Apache-2.0 */
