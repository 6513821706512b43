/* Product of automata: its states are pairs of states, numbered in order of discovery. */
#include "grammar/automaton.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct pairs { /* numbered pairs of states; second -1: b has rejected */
	int32_t (*pair)[2];
	int n, cap;
	int32_t *table; /* hash table, twice cap */
};

static int pair_number(struct pairs *p, int32_t x, int32_t y)
{
	uint32_t mask, at;

	if (p->n == p->cap) {
		int cap = p->cap ? 2 * p->cap : 64;
		void *pair = realloc(p->pair, (size_t)cap * sizeof(*p->pair)),
		     *t = realloc(p->table, 2 * (size_t)cap * sizeof(*p->table));
		int n = p->n;

		p->pair = pair ? pair : p->pair;
		p->table = t ? t : p->table;
		if (!pair || !t)
			return -ENOMEM;
		p->cap = cap;
		p->n = 0;
		memset(p->table, -1, 2 * (size_t)cap * sizeof(*p->table));
		for (int i = 0; i < n; i++)
			pair_number(p, p->pair[i][0], p->pair[i][1]);
	}
	mask = 2 * (uint32_t)p->cap - 1;
	at = (uint32_t)((((uint64_t)(uint32_t)x << 32 | (uint32_t)y) * 0x9e3779b97f4a7c15u) >> 32) & mask;
	for (; p->table[at] >= 0; at = (at + 1) & mask)
		if (p->pair[p->table[at]][0] == x && p->pair[p->table[at]][1] == y)
			return p->table[at];
	p->pair[p->n][0] = x;
	p->pair[p->n][1] = y;
	p->table[at] = p->n;
	return p->n++;
}

/*
 * The common refinement of the classes of a and b; ret has room for all; which[k]: the classes of a and b
 * that contain class k.
 */
static int common_classes(const struct dt_auto *a, const struct dt_auto *b, uint32_t *first,
			  int32_t (*which)[2])
{
	int i = 0, j = 0, n = 0;

	while (i < a->nclass || j < b->nclass) {
		uint32_t x = i < a->nclass ? a->first[i] : UINT32_MAX,
			 y = j < b->nclass ? b->first[j] : UINT32_MAX;

		first[n] = x < y ? x : y;
		i += x <= y;
		j += y <= x;
		which[n][0] = i - 1;
		which[n++][1] = j - 1;
	}
	return n;
}

static int explore(const struct dt_auto *a, const struct dt_auto *b, bool minus, struct dt_auto_budget *work,
		   struct pairs *p, const int32_t (*which)[2], int nclass, int32_t **ret_next)
{
	int32_t *next = NULL;
	size_t cap = 0;

	if (pair_number(p, 0, b->nstate ? 0 : -1) < 0)
		return -ENOMEM;
	for (int s = 0; s < p->n; s++) {
		int32_t x = p->pair[s][0], y = p->pair[s][1];

		work->steps -= nclass;
		if (work->steps < 0 || p->n > DT_AUTO_STATES ||
		    (size_t)p->n * (size_t)nclass > DT_AUTO_ENTRIES) {
			free(next);
			return -E2BIG;
		}
		if (((size_t)s + 1) * (size_t)nclass > cap) {
			int32_t *q;

			cap = cap ? 2 * cap : 64 * (size_t)nclass;
			q = realloc(next, cap * sizeof(*next));
			if (!q) {
				free(next);
				return -ENOMEM;
			}
			next = q;
		}
		for (int k = 0; k < nclass; k++) {
			int32_t u = a->next[x * a->nclass + which[k][0]],
				v = y < 0 ? -1 : b->next[y * b->nclass + which[k][1]];
			int t = u < 0 || (v < 0 && !minus) ? -1 : pair_number(p, u, v);

			if (t == -ENOMEM) {
				free(next);
				return t;
			}
			next[(size_t)s * (size_t)nclass + (size_t)k] = t;
		}
	}
	*ret_next = next;
	return 0;
}

int dt_auto_product(const struct dt_auto *a, const struct dt_auto *b, bool minus, struct dt_auto_budget *work,
		    struct dt_auto **ret)
{
	size_t most = (size_t)a->nclass + (size_t)b->nclass;
	struct dt_auto *c = dt_auto_new(0, (int)most);
	int32_t(*which)[2] = malloc(most * sizeof(*which)), *next = NULL;
	struct pairs p = {0};
	int rc = c && which ? 0 : -ENOMEM;

	if (!rc) {
		c->nclass = common_classes(a, b, c->first, which);
		if (a->nstate > 0 && (b->nstate > 0 || minus))
			rc = explore(a, b, minus, work, &p, (const int32_t(*)[2])which, c->nclass, &next);
	}
	if (!rc && next) {
		bool *accept = calloc((size_t)p.n, sizeof(*accept));

		free(c->next);
		free(c->accept);
		c->next = next;
		c->accept = accept;
		c->nstate = accept ? p.n : 0;
		for (int s = 0; accept && s < p.n; s++)
			accept[s] = a->accept[p.pair[s][0]] &&
				    (p.pair[s][1] >= 0 && b->accept[p.pair[s][1]]) != minus;
		rc = accept ? dt_auto_minimise(c, work) : -ENOMEM;
	}
	free(which);
	free(p.pair);
	free(p.table);
	if (rc < 0) {
		dt_auto_free(c);
		return rc;
	}
	*ret = c;
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
