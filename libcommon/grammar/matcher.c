#include "grammar/matcher_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORK (1 << 26) /* max expansions for a mask: up to 0.5 s, during which its grammar is locked */

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

static size_t bytes_of(const struct dt_parser *p)
{
	const size_t nodes = (size_t)p->node_cap * (sizeof(*p->node) + 2 * sizeof(*p->table));
	const size_t states = (size_t)p->known_cap * (sizeof(*p->known) + 2 * sizeof(*p->number) +
						      (size_t)p->nclass * sizeof(*p->next));
	size_t masks = 0;

	for (int i = 0; i < DT_MASKS; i++)
		masks += p->mask[i].bits ? p->mask_words * sizeof(uint32_t) : 0;
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

/* Sets what m's state tells about the end of the text. Call with the grammar locked. */
static void look_at_end(struct dt_matcher *m)
{
	const struct dt_parser *p = m->g->parser;
	const struct dt_known_state *k = &p->known[m->now];

	m->complete = false;
	for (int i = 0; i < k->n; i++)
		m->complete |= p->tops[k->first + i] < 0;
	m->done = m->complete && k->n == 1;
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
		atomic_store(&g->parser_bytes, bytes_of(g->parser));
		look_at_end(m);
	}
	pthread_mutex_unlock(&g->mu);
	if (m->g)
		return m;
	free(m);
	return NULL;
}

static void unlink_matcher(struct dt_matcher *m, struct dt_parser *p)
{
	LIST_REMOVE(m, link);
	p->nmatchers--;
}

void dt_matchers_sweep(struct dt_grammar *g, bool unlink)
{
	struct dt_matcher *m = atomic_exchange(&g->gone, NULL), *next;

	for (; m; m = next) {
		next = m->next_gone;
		if (unlink)
			unlink_matcher(m, g->parser);
		free(m);
	}
}

void dt_matcher_free(struct dt_matcher *m)
{
	struct dt_grammar *g;

	if (!m)
		return;
	g = m->g;
	if (pthread_mutex_trylock(&g->mu) == 0) {
		unlink_matcher(m, g->parser);
		pthread_mutex_unlock(&g->mu);
		free(m);
	} else { /* whoever locks it next frees m */
		m->next_gone = atomic_load(&g->gone);
		while (!atomic_compare_exchange_weak(&g->gone, &m->next_gone, m))
			continue;
	}
	dt_grammar_drop(g);
}

/* The parser, locked, to read bytes or find a mask. End with end_work. */
static struct dt_parser *begin_work(struct dt_matcher *m)
{
	struct dt_parser *p = m->g->parser;

	pthread_mutex_lock(&m->g->mu);
	dt_matchers_sweep(m->g, true);
	if (dt_stacks_many(p) || dt_states_many(p))
		dt_states_forget(p, NULL, 0);
	p->work = MAX_WORK;
	p->failed = m->failed;
	return p;
}

static void end_work(struct dt_matcher *m)
{
	m->failed = m->g->parser->failed;
	atomic_store(&m->g->parser_bytes, bytes_of(m->g->parser));
	pthread_mutex_unlock(&m->g->mu);
}

/* The state after token id, whose bytes lead to state `to` (-1: nowhere). */
static int32_t token_state(struct dt_parser *p, int32_t from, int32_t id, int32_t to)
{
	struct dt_stacks before, after = {0};

	dt_state_stacks(p, from, &before);
	if (to >= 0)
		dt_state_stacks(p, to, &after);
	return dt_stacks_token(p, &before, id, &after) ? dt_state_number(p, &after) : -1;
}

bool dt_matcher_push(struct dt_matcher *m, const char *s, size_t n)
{
	return dt_matcher_push_token(m, -1, s, n);
}

bool dt_matcher_push_token(struct dt_matcher *m, int32_t id, const char *s, size_t n)
{
	const bool token = m->g->tokens && id >= 0;
	struct dt_parser *p = begin_work(m);
	int32_t at = m->failed ? -1 : m->now;

	for (size_t i = 0; i < n && at >= 0; i++) {
		at = dt_state_next(p, at, (unsigned char)s[i]);
		if (at >= 0 && dt_states_many(p)) /* a long text */
			dt_states_forget(p, &at, 1);
	}
	if (token && !p->failed)
		at = token_state(p, m->now, id, n > 0 ? at : -1);
	m->now = at < 0 ? m->now : at;
	look_at_end(m);
	end_work(m);
	return at >= 0;
}

/* Call with the grammar locked. */
static void restart(struct dt_matcher *m)
{
	m->now = m->g->parser->start;
	m->failed = false;
	look_at_end(m);
}

void dt_matcher_restart(struct dt_matcher *m)
{
	pthread_mutex_lock(&m->g->mu);
	restart(m);
	pthread_mutex_unlock(&m->g->mu);
}

bool dt_matcher_complete(const struct dt_matcher *m)
{
	return m->complete;
}

bool dt_matcher_done(const struct dt_matcher *m)
{
	return m->done;
}

const uint32_t *dt_matcher_mask(struct dt_matcher *m, const struct dt_vocab_order *o)
{
	struct dt_parser *p = begin_work(m);
	const uint32_t *bits = m->failed ? NULL : dt_mask_of(p, m, o);

	end_work(m);
	return bits;
}

bool dt_matcher_copy_mask(struct dt_matcher *m, const struct dt_vocab_order *o, uint32_t *to)
{
	struct dt_parser *p = begin_work(m);
	const uint32_t *bits = m->failed ? NULL : dt_mask_of(p, m, o);

	if (bits)
		memcpy(to, bits, ((size_t)o->vocab + 31) / 32 * sizeof(*to));
	end_work(m);
	return bits;
}

int dt_matcher_push_now(struct dt_matcher *m, int32_t id, const char *s, size_t n)
{
	struct dt_parser *p = m->g->parser;
	int32_t at;
	int rc;

	if (m->failed)
		return 0;
	if (m->g->tokens && id >= 0) /* only where bytes lead is remembered */
		return -EAGAIN;
	if (pthread_mutex_trylock(&m->g->mu) != 0)
		return -EAGAIN;
	p->work = 0; /* only transitions that are remembered */
	p->failed = false;
	at = m->now;
	for (size_t i = 0; i < n && at >= 0; i++)
		at = dt_state_next(p, at, (unsigned char)s[i]);
	rc = p->failed ? -EAGAIN : at >= 0;
	m->now = at < 0 ? m->now : at;
	look_at_end(m);
	pthread_mutex_unlock(&m->g->mu);
	return rc;
}

int dt_matcher_restart_now(struct dt_matcher *m)
{
	if (pthread_mutex_trylock(&m->g->mu) != 0)
		return -EAGAIN;
	restart(m);
	pthread_mutex_unlock(&m->g->mu);
	return 0;
}

int dt_matcher_copy_mask_now(struct dt_matcher *m, const struct dt_vocab_order *o, uint32_t *to)
{
	const uint32_t *bits;

	if (m->failed)
		return -ENOMEM;
	if (pthread_mutex_trylock(&m->g->mu) != 0)
		return -EAGAIN;
	bits = dt_mask_known(m->g->parser, m, o);
	if (bits)
		memcpy(to, bits, ((size_t)o->vocab + 31) / 32 * sizeof(*to));
	pthread_mutex_unlock(&m->g->mu);
	return bits ? 0 : -EAGAIN;
}
/* SPDX-License-Identifier: Apache-2.0 */
