/* Numbered parser states, and where each byte leads from them: an automaton that grows as texts need it. */
#include "grammar/matcher_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Above these, and above twice what was needed then, states are forgotten: some 8 MiB of a grammar. */
#define MAX_TOPS (1 << 18) /* stacks */
#define MAX_NEXT (1 << 20) /* entries of dt_parser.next */

/* Splits the bytes by every class of the grammar. */
static void group_bytes(struct dt_parser *p)
{
	const struct dt_grammar *g = p->g;

	memset(p->class_of, 0, sizeof(p->class_of));
	p->nclass = 1;
	for (int c = 0; c < g->nclass && p->nclass < 256; c++) {
		int16_t split[256]; /* the new number of a group's bytes inside class c; -1: not needed yet */
		bool has_other[256] = {false};

		for (int b = 0; b < 256; b++)
			has_other[p->class_of[b]] |= !(g->class[c].bit[b / 64] >> b % 64 & 1);
		memset(split, -1, sizeof(split));
		for (int b = 0; b < 256; b++) {
			const int group = p->class_of[b];

			if (!has_other[group] || !(g->class[c].bit[b / 64] >> b % 64 & 1))
				continue;
			if (split[group] < 0)
				split[group] = (int16_t)p->nclass++;
			p->class_of[b] = (uint8_t)split[group];
		}
	}
	for (int b = 255; b >= 0; b--)
		p->byte_of[p->class_of[b]] = (uint8_t)b;
}

static uint32_t stacks_hash(const int32_t *top, int n)
{
	uint64_t h = (uint64_t)n;

	for (int i = 0; i < n; i++)
		h = (h ^ (uint32_t)top[i]) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
	return (uint32_t)(h >> 16);
}

static void number_add(struct dt_parser *p, int32_t state)
{
	const struct dt_known_state *k = &p->known[state];
	uint32_t mask = 2 * (uint32_t)p->known_cap - 1, at = stacks_hash(p->tops + k->first, k->n) & mask;

	while (p->number[at] >= 0)
		at = (at + 1) & mask;
	p->number[at] = state;
}

static bool states_grow(struct dt_parser *p)
{
	const size_t cap = p->known_cap ? 2 * (size_t)p->known_cap : 64, row = (size_t)p->nclass;
	struct dt_known_state *known = realloc(p->known, cap * sizeof(*known));
	int32_t *next = NULL, *number = NULL;

	if (known)
		p->known = known;
	if (known && (next = realloc(p->next, cap * row * sizeof(*next))))
		p->next = next;
	if (next)
		number = malloc(2 * cap * sizeof(*number));
	if (!number) {
		p->failed = true;
		return false;
	}
	free(p->number);
	p->number = number;
	p->known_cap = (int)cap;
	memset(number, -1, 2 * cap * sizeof(*number));
	for (int i = 0; i < p->nknown; i++)
		number_add(p, i);
	return true;
}

static bool tops_grow(struct dt_parser *p, int n)
{
	const int cap = 2 * (p->ntops + n);
	int32_t *tops;

	if (p->ntops + n <= p->tops_cap)
		return true;
	tops = realloc(p->tops, (size_t)cap * sizeof(*tops));
	if (!tops) {
		p->failed = true;
		return false;
	}
	p->tops = tops;
	p->tops_cap = cap;
	return true;
}

int32_t dt_state_number(struct dt_parser *p, const struct dt_stacks *s)
{
	const size_t bytes = (size_t)s->n * sizeof(*s->top);
	uint32_t mask, at;

	if ((p->nknown == p->known_cap && !states_grow(p)) || !tops_grow(p, s->n))
		return -1;
	mask = 2 * (uint32_t)p->known_cap - 1;
	for (at = stacks_hash(s->top, s->n) & mask; p->number[at] >= 0; at = (at + 1) & mask) {
		const struct dt_known_state *k = &p->known[p->number[at]];

		if (k->n == s->n && !memcmp(p->tops + k->first, s->top, bytes))
			return p->number[at];
	}
	p->known[p->nknown] = (struct dt_known_state){p->ntops, s->n, -1};
	memcpy(p->tops + p->ntops, s->top, bytes);
	p->ntops += s->n;
	memset(p->next + (size_t)p->nknown * (size_t)p->nclass, 0, (size_t)p->nclass * sizeof(*p->next));
	p->number[at] = p->nknown;
	return p->nknown++;
}

void dt_state_stacks(const struct dt_parser *p, int32_t state, struct dt_stacks *ret)
{
	const struct dt_known_state *k = &p->known[state];

	ret->n = k->n;
	memcpy(ret->top, p->tops + k->first, (size_t)k->n * sizeof(*ret->top));
}

int32_t dt_state_find(struct dt_parser *p, int32_t state, unsigned char byte)
{
	const int class = p->class_of[byte];
	struct dt_stacks from, to;
	int32_t next = -1;

	dt_state_stacks(p, state, &from);
	if (dt_stacks_advance(p, &from, p->byte_of[class], &to))
		next = dt_state_number(p, &to);
	if (!p->failed)
		p->next[(size_t)state * (size_t)p->nclass + (size_t) class] = next < 0 ? 1 : next + 2;
	return next;
}

bool dt_states_many(const struct dt_parser *p)
{
	return (p->ntops > MAX_TOPS && p->ntops > p->tops_limit) ||
	       ((size_t)p->nknown * (size_t)p->nclass > MAX_NEXT && p->nknown > p->known_limit);
}

void dt_states_forget(struct dt_parser *p, int32_t *ids, int n)
{
	int keep[DT_MASKS_KEPT];
	const int nkeep = dt_masks_used_last(p, keep);
	struct dt_stacks *kept = malloc((size_t)(n + p->nmatchers + nkeep + 1) * sizeof(*kept));
	struct dt_matcher *m;
	int k = 0;

	if (!kept)
		return; /* forgetting only saves memory */
	for (; k < n; k++)
		dt_state_stacks(p, ids[k], &kept[k]);
	LIST_FOREACH(m, &p->matchers, link)
	dt_state_stacks(p, m->now, &kept[k++]);
	for (int i = 0; i < nkeep; i++)
		dt_state_stacks(p, p->mask[keep[i]].state, &kept[k++]);
	dt_state_stacks(p, p->start, &kept[k++]);
	dt_stacks_tidy(p, kept, k);
	dt_masks_forget(p);
	p->nknown = p->ntops = 0;
	memset(p->number, -1, 2 * (size_t)p->known_cap * sizeof(*p->number));
	/* No allocation, which could fail: all of them had room before. */
	for (k = 0; k < n; k++)
		ids[k] = dt_state_number(p, &kept[k]);
	LIST_FOREACH(m, &p->matchers, link)
	m->now = dt_state_number(p, &kept[k++]);
	for (int i = 0; i < nkeep; i++) {
		const int32_t state = dt_state_number(p, &kept[k++]);

		p->mask[keep[i]].state = state;
		p->known[state].mask = keep[i];
	}
	p->start = dt_state_number(p, &kept[k]);
	p->known_limit = 2 * p->nknown;
	p->tops_limit = 2 * p->ntops;
	free(kept);
}

int dt_states_open(struct dt_parser *p)
{
	struct dt_stacks first;

	group_bytes(p);
	dt_stacks_begin(p, &first);
	p->start = p->failed ? -1 : dt_state_number(p, &first);
	return p->start < 0 ? -ENOMEM : 0;
}

void dt_states_close(struct dt_parser *p)
{
	free(p->known);
	free(p->next);
	free(p->tops);
	free(p->number);
}
/* SPDX-License-Identifier: Apache-2.0 */
