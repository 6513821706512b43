#include "grammar/matcher_priv.h"

#include <stdlib.h>
#include <string.h>

#define MAX_WORK (1 << 26) /* max expansions for a mask: up to 0.5 s, during which all requests wait */

void dt_parser_free(struct dt_parser *p)
{
	if (!p)
		return;
	dt_masks_close(p);
	dt_states_close(p);
	free(p->node);
	free(p->table);
	free(p);
}

size_t dt_parser_bytes(const struct dt_parser *p)
{
	const size_t nodes = (size_t)p->node_cap * (sizeof(*p->node) + 2 * sizeof(*p->table));
	const size_t states = (size_t)p->known_cap * (sizeof(*p->known) + 2 * sizeof(*p->number) +
						      (size_t)p->nclass * sizeof(*p->next));
	size_t masks = 0;

	for (int i = 0; i < DT_MASKS; i++)
		masks += p->mask[i].bits ? ((size_t)p->order->vocab + 31) / 32 * sizeof(uint32_t) : 0;
	return sizeof(*p) + nodes + states + (size_t)p->tops_cap * sizeof(*p->tops) + masks;
}

static struct dt_parser *parser_new(const struct dt_grammar *g)
{
	struct dt_parser *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->g = g;
	p->work = MAX_WORK;
	LIST_INIT(&p->matchers);
	dt_masks_forget(p);
	if (dt_states_open(p) < 0) {
		dt_parser_free(p);
		return NULL;
	}
	return p;
}

struct dt_matcher *dt_matcher_new(struct dt_grammar *g)
{
	struct dt_matcher *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	pthread_mutex_lock(&g->mu);
	if (!g->parser)
		g->parser = parser_new(g);
	if (g->parser) {
		m->g = dt_grammar_ref(g);
		m->now = g->parser->start;
		LIST_INSERT_HEAD(&g->parser->matchers, m, link);
		g->parser->nmatchers++;
	}
	pthread_mutex_unlock(&g->mu);
	if (m->g)
		return m;
	free(m);
	return NULL;
}

void dt_matcher_free(struct dt_matcher *m)
{
	if (!m)
		return;
	pthread_mutex_lock(&m->g->mu);
	LIST_REMOVE(m, link);
	m->g->parser->nmatchers--;
	pthread_mutex_unlock(&m->g->mu);
	dt_grammar_drop(m->g);
	free(m);
}

/* The parser, locked, to read bytes or find a mask. End with end_work. */
static struct dt_parser *begin_work(struct dt_matcher *m)
{
	struct dt_parser *p = m->g->parser;

	pthread_mutex_lock(&m->g->mu);
	if (dt_stacks_many(p) || dt_states_many(p))
		dt_states_forget(p, NULL, 0);
	p->work = MAX_WORK;
	p->failed = m->failed;
	return p;
}

static void end_work(struct dt_matcher *m)
{
	m->failed = m->g->parser->failed;
	pthread_mutex_unlock(&m->g->mu);
}

bool dt_matcher_push(struct dt_matcher *m, const char *s, size_t n)
{
	struct dt_parser *p = begin_work(m);
	int32_t at = m->failed ? -1 : m->now;

	for (size_t i = 0; i < n && at >= 0; i++) {
		at = dt_state_next(p, at, (unsigned char)s[i]);
		if (at >= 0 && dt_states_many(p)) /* a long text */
			dt_states_forget(p, &at, 1);
	}
	m->now = at < 0 ? m->now : at;
	end_work(m);
	return at >= 0;
}

static bool may_end(const struct dt_matcher *m, bool alone)
{
	const struct dt_parser *p = m->g->parser;
	const struct dt_known_state *k;
	bool end = false;

	pthread_mutex_lock(&m->g->mu);
	k = &p->known[m->now];
	for (int i = 0; i < k->n; i++)
		end |= p->tops[k->first + i] < 0 && (!alone || k->n == 1);
	pthread_mutex_unlock(&m->g->mu);
	return end;
}

bool dt_matcher_complete(const struct dt_matcher *m)
{
	return may_end(m, false);
}

bool dt_matcher_done(const struct dt_matcher *m)
{
	return may_end(m, true);
}

const uint32_t *dt_matcher_mask(struct dt_matcher *m, const struct dt_vocab_order *o)
{
	struct dt_parser *p = begin_work(m);
	const uint32_t *bits = m->failed ? NULL : dt_mask_of(p, m, o);

	end_work(m);
	return bits;
}
/* SPDX-License-Identifier: Apache-2.0 */
