/* Numbered parser states, and where each byte leads from them: an automaton that grows as texts need it. */
#include "grammar/matcher_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of all known states; above it they are forgotten: some 6 MiB of a text. */
#define MAX_TOPS (1 << 18) /* stacks */
#define MAX_NEXT (1 << 20) /* entries of dt_matcher.next */

/* Splits the bytes by every class of the grammar. */
static void group_bytes(struct dt_matcher *m)
{
	const struct dt_grammar *g = m->g;

	memset(m->class_of, 0, sizeof(m->class_of));
	m->nclass = 1;
	for (int c = 0; c < g->nclass && m->nclass < 256; c++) {
		int16_t split[256]; /* the new number of a group's bytes inside class c; -1: not needed yet */
		bool has_other[256] = {false};

		for (int b = 0; b < 256; b++)
			has_other[m->class_of[b]] |= !(g->class[c].bit[b / 64] >> b % 64 & 1);
		memset(split, -1, sizeof(split));
		for (int b = 0; b < 256; b++) {
			const int group = m->class_of[b];

			if (!has_other[group] || !(g->class[c].bit[b / 64] >> b % 64 & 1))
				continue;
			if (split[group] < 0)
				split[group] = (int16_t)m->nclass++;
			m->class_of[b] = (uint8_t)split[group];
		}
	}
	for (int b = 255; b >= 0; b--)
		m->byte_of[m->class_of[b]] = (uint8_t)b;
}

static uint32_t stacks_hash(const int32_t *top, int n)
{
	uint64_t h = (uint64_t)n;

	for (int i = 0; i < n; i++)
		h = (h ^ (uint32_t)top[i]) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
	return (uint32_t)(h >> 16);
}

static void number_add(struct dt_matcher *m, int32_t state)
{
	const struct dt_known_state *k = &m->known[state];
	uint32_t mask = 2 * (uint32_t)m->known_cap - 1, at = stacks_hash(m->tops + k->first, k->n) & mask;

	while (m->number[at] >= 0)
		at = (at + 1) & mask;
	m->number[at] = state;
}

static bool states_grow(struct dt_matcher *m)
{
	const size_t cap = m->known_cap ? 2 * (size_t)m->known_cap : 64, row = (size_t)m->nclass;
	struct dt_known_state *known = realloc(m->known, cap * sizeof(*known));
	int32_t *next = NULL, *number = NULL;

	if (known)
		m->known = known;
	if (known && (next = realloc(m->next, cap * row * sizeof(*next))))
		m->next = next;
	if (next)
		number = malloc(2 * cap * sizeof(*number));
	if (!number) {
		m->failed = true;
		return false;
	}
	free(m->number);
	m->number = number;
	m->known_cap = (int)cap;
	memset(number, -1, 2 * cap * sizeof(*number));
	for (int i = 0; i < m->nknown; i++)
		number_add(m, i);
	return true;
}

static bool tops_grow(struct dt_matcher *m, int n)
{
	const int cap = 2 * (m->ntops + n);
	int32_t *tops;

	if (m->ntops + n <= m->tops_cap)
		return true;
	tops = realloc(m->tops, (size_t)cap * sizeof(*tops));
	if (!tops) {
		m->failed = true;
		return false;
	}
	m->tops = tops;
	m->tops_cap = cap;
	return true;
}

int32_t dt_state_number(struct dt_matcher *m, const struct dt_stacks *s)
{
	const size_t bytes = (size_t)s->n * sizeof(*s->top);
	uint32_t mask, at;

	if ((m->nknown == m->known_cap && !states_grow(m)) || !tops_grow(m, s->n))
		return -1;
	mask = 2 * (uint32_t)m->known_cap - 1;
	for (at = stacks_hash(s->top, s->n) & mask; m->number[at] >= 0; at = (at + 1) & mask) {
		const struct dt_known_state *k = &m->known[m->number[at]];

		if (k->n == s->n && !memcmp(m->tops + k->first, s->top, bytes))
			return m->number[at];
	}
	m->known[m->nknown] = (struct dt_known_state){m->ntops, s->n};
	memcpy(m->tops + m->ntops, s->top, bytes);
	m->ntops += s->n;
	memset(m->next + (size_t)m->nknown * (size_t)m->nclass, 0, (size_t)m->nclass * sizeof(*m->next));
	m->number[at] = m->nknown;
	return m->nknown++;
}

void dt_state_stacks(const struct dt_matcher *m, int32_t state, struct dt_stacks *ret)
{
	const struct dt_known_state *k = &m->known[state];

	ret->n = k->n;
	memcpy(ret->top, m->tops + k->first, (size_t)k->n * sizeof(*ret->top));
}

int32_t dt_state_find(struct dt_matcher *m, int32_t state, unsigned char byte)
{
	const int class = m->class_of[byte];
	struct dt_stacks from, to;
	int32_t next = -1;

	dt_state_stacks(m, state, &from);
	if (dt_stacks_advance(m, &from, m->byte_of[class], &to))
		next = dt_state_number(m, &to);
	if (!m->failed)
		m->next[(size_t)state * (size_t)m->nclass + (size_t) class] = next < 0 ? 1 : next + 2;
	return next;
}

bool dt_states_many(const struct dt_matcher *m)
{
	return m->ntops > MAX_TOPS || (size_t)m->nknown * (size_t)m->nclass > MAX_NEXT;
}

void dt_states_forget(struct dt_matcher *m, int32_t *ids, int n, bool tidy)
{
	struct dt_stacks *kept = malloc((size_t)n * sizeof(*kept));

	if (!kept)
		return; /* forgetting only saves memory */
	for (int i = 0; i < n; i++)
		dt_state_stacks(m, ids[i], &kept[i]);
	if (tidy)
		dt_stacks_tidy(m, kept);
	m->nknown = m->ntops = 0;
	memset(m->number, -1, 2 * (size_t)m->known_cap * sizeof(*m->number));
	for (int i = 0; i < n; i++)
		ids[i] = dt_state_number(m, &kept[i]);
	for (int i = 0; i < DT_MASKS; i++)
		m->mask[i].state = -1;
	free(kept);
}

int dt_states_open(struct dt_matcher *m)
{
	struct dt_stacks first;

	group_bytes(m);
	dt_stacks_begin(m, &first);
	m->now = m->failed ? -1 : dt_state_number(m, &first);
	return m->now < 0 ? -ENOMEM : 0;
}

void dt_states_close(struct dt_matcher *m)
{
	free(m->known);
	free(m->next);
	free(m->tops);
	free(m->number);
}
/* SPDX-License-Identifier: Apache-2.0 */
