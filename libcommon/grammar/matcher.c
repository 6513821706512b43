#include "grammar/matcher_priv.h"

#include <stdlib.h>
#include <string.h>

#define MAX_WORK (1 << 26) /* max expansions for a mask: up to 0.5 s, during which all requests wait */

/* Call before bytes are read or a mask is computed. */
static void begin_work(struct dt_matcher *m)
{
	const bool nodes = dt_stacks_many(m);

	if (nodes || dt_states_many(m))
		dt_states_forget(m, &m->now, 1, nodes);
	m->work = MAX_WORK;
}

struct dt_matcher *dt_matcher_new(struct dt_grammar *g)
{
	struct dt_matcher *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->g = dt_grammar_ref(g);
	m->work = MAX_WORK;
	for (int i = 0; i < DT_MASKS; i++)
		m->mask[i].state = -1;
	if (dt_states_open(m) < 0) {
		dt_matcher_free(m);
		return NULL;
	}
	return m;
}

void dt_matcher_free(struct dt_matcher *m)
{
	if (!m)
		return;
	for (int i = 0; i < DT_MASKS; i++)
		free(m->mask[i].bits);
	dt_states_close(m);
	dt_grammar_drop(m->g);
	free(m->node);
	free(m->table);
	free(m->depth);
	free(m);
}

bool dt_matcher_push(struct dt_matcher *m, const char *s, size_t n)
{
	int32_t at;

	begin_work(m);
	at = m->now;
	for (size_t i = 0; i < n; i++) {
		at = dt_state_next(m, at, (unsigned char)s[i]);
		if (at < 0)
			return false;
		if (dt_states_many(m)) { /* a long text: only its last state and the first are needed */
			int32_t ids[] = {m->now, at};

			dt_states_forget(m, ids, 2, false);
			m->now = ids[0];
			at = ids[1];
		}
	}
	m->now = at;
	return true;
}

static bool may_end(const struct dt_matcher *m, bool alone)
{
	const struct dt_known_state *k = &m->known[m->now];

	for (int i = 0; i < k->n; i++)
		if (m->tops[k->first + i] < 0)
			return !alone || k->n == 1;
	return false;
}

bool dt_matcher_complete(const struct dt_matcher *m)
{
	return may_end(m, false);
}

bool dt_matcher_done(const struct dt_matcher *m)
{
	return may_end(m, true);
}

/*
 * Visits tokens in the order of their bytes. Of each only those bytes are read that it does not share with
 * the one before, and where a byte is not allowed, all tokens that share it are skipped.
 */
static void fill(struct dt_matcher *m, const struct dt_vocab_order *o, uint32_t *bits)
{
	const uint8_t *rest = o->rest; /* of token i */
	int good = 0; /* bytes of the last visited token that fit: depth[0 .. good] is valid */

	m->depth[0] = m->now;
	for (int i = 0; i < o->n && !m->failed; rest += o->own[i++].rest) {
		const struct dt_vocab_own *t = &o->own[i];
		int k = 0;

		if (t->shared > good)
			continue;
		if (dt_states_many(m)) {
			dt_states_forget(m, m->depth, t->shared + 1, false);
			m->now = m->depth[0];
		}
		good = t->shared;
		for (; k < t->rest; k++, good++) {
			const int32_t next = dt_state_next(m, m->depth[good], rest[k]);

			if (next < 0)
				break;
			m->depth[good + 1] = next;
		}
		if (k == t->rest)
			bits[t->id / 32] |= 1u << t->id % 32;
	}
}

const uint32_t *dt_matcher_mask(struct dt_matcher *m, const struct dt_vocab_order *o)
{
	size_t words = ((size_t)o->vocab + 31) / 32;
	struct dt_mask *old = &m->mask[0];

	begin_work(m);
	for (int i = 0; i < DT_MASKS; i++) {
		struct dt_mask *k = &m->mask[i];

		if (k->state == m->now) {
			k->used = ++m->clock;
			return k->bits;
		}
		if (k->used < old->used)
			old = k;
	}
	if (!m->depth)
		m->depth = malloc(((size_t)o->longest + 1) * sizeof(*m->depth));
	if (!old->bits)
		old->bits = malloc(words * sizeof(*old->bits));
	if (!m->depth || !old->bits)
		return NULL;
	memset(old->bits, 0, words * sizeof(*old->bits));
	old->state = -1;
	fill(m, o, old->bits);
	if (m->failed)
		return NULL;
	old->state = m->now;
	old->used = ++m->clock;
	return old->bits;
}
/* SPDX-License-Identifier: Apache-2.0 */
