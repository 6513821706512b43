#include "grammar/automaton.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct dt_auto *dt_auto_new(int nstate, int nclass)
{
	struct dt_auto *a = calloc(1, sizeof(*a));
	size_t entries = (size_t)nstate * (size_t)nclass;

	if (!a)
		return NULL;
	a->nstate = nstate;
	a->nclass = nclass;
	a->first = calloc((size_t)nclass + 1, sizeof(*a->first));
	a->next = malloc((entries + 1) * sizeof(*a->next));
	a->accept = calloc((size_t)nstate + 1, sizeof(*a->accept));
	if (!a->first || !a->next || !a->accept) {
		dt_auto_free(a);
		return NULL;
	}
	memset(a->next, -1, entries * sizeof(*a->next));
	return a;
}

void dt_auto_free(struct dt_auto *a)
{
	if (!a)
		return;
	free(a->first);
	free(a->next);
	free(a->accept);
	free(a);
}

static int class_of(const struct dt_auto *a, uint32_t c)
{
	int lo = 0, hi = a->nclass - 1;

	while (lo < hi) {
		int mid = (lo + hi + 1) / 2;

		if (a->first[mid] <= c)
			lo = mid;
		else
			hi = mid - 1;
	}
	return lo;
}

/* ---- minimisation ---- */

/* live[s]: an accepting state can be reached from s. */
static int find_live(const struct dt_auto *a, bool *live)
{
	int32_t *from = calloc((size_t)a->nstate + 1, sizeof(*from)), *edge, *todo, n = 0;
	size_t edges = 0;

	for (size_t i = 0; i < (size_t)a->nstate * (size_t)a->nclass; i++)
		edges += a->next[i] >= 0;
	edge = malloc((edges + 1) * sizeof(*edge));
	todo = malloc(((size_t)a->nstate + 1) * sizeof(*todo));
	if (!from || !edge || !todo) {
		free(from);
		free(edge);
		free(todo);
		return -ENOMEM;
	}
	/* edge: predecessors of t, from[t - 1] to from[t] once filled backwards */
	for (size_t i = 0; i < (size_t)a->nstate * (size_t)a->nclass; i++)
		if (a->next[i] >= 0)
			from[a->next[i]]++;
	for (int s = 1; s <= a->nstate; s++)
		from[s] += from[s - 1];
	for (int s = 0; s < a->nstate; s++)
		for (int k = 0; k < a->nclass; k++) {
			int t = a->next[(size_t)s * (size_t)a->nclass + (size_t)k];

			if (t >= 0)
				edge[--from[t]] = s;
		}
	for (int s = 0; s < a->nstate; s++)
		if ((live[s] = a->accept[s]))
			todo[n++] = s;
	while (n > 0) {
		int t = todo[--n];

		for (int32_t e = from[t]; e < from[t + 1]; e++)
			if (!live[edge[e]]) {
				live[edge[e]] = true;
				todo[n++] = edge[e];
			}
	}
	free(from);
	free(edge);
	free(todo);
	return 0;
}

/*
 * One round of Moore's refinement: states stay in one block if they agree in accept and in their successors'
 * blocks.
 */
static int refine(const struct dt_auto *a, const int32_t *block, int32_t *fresh, int32_t *table,
		  uint32_t mask)
{
	size_t width = (size_t)a->nclass;
	int n = 0;

	memset(table, -1, ((size_t)mask + 1) * sizeof(*table));
	for (int s = 0; s < a->nstate; s++) {
		const int32_t *x = a->next + (size_t)s * width;
		uint64_t h = (uint64_t)block[s];
		uint32_t at;

		for (size_t k = 0; k < width; k++)
			h = (h ^ (uint64_t)(x[k] < 0 ? -1 : block[x[k]])) * 0x9e3779b97f4a7c15u + (h >> 29);
		for (at = (uint32_t)(h >> 32) & mask; table[at] >= 0; at = (at + 1) & mask) {
			const int32_t *y = a->next + (size_t)table[at] * width;
			size_t k = 0;

			if (block[table[at]] != block[s])
				continue;
			while (k < width && (x[k] < 0 ? -1 : block[x[k]]) == (y[k] < 0 ? -1 : block[y[k]]))
				k++;
			if (k == width)
				break;
		}
		if (table[at] < 0) {
			table[at] = s;
			fresh[s] = n++;
		} else {
			fresh[s] = fresh[table[at]];
		}
	}
	return n;
}

/* Keeps one state of each block; block[0] is 0, because it is seen first. */
static void merge(struct dt_auto *a, const int32_t *block, int n)
{
	size_t width = (size_t)a->nclass;
	int done = 0;

	for (int s = 0; s < a->nstate; s++) {
		if (block[s] != done) /* blocks are numbered in the order of their first states */
			continue;
		for (size_t k = 0; k < width; k++) {
			int32_t t = a->next[(size_t)s * width + k];

			a->next[(size_t)done * width + k] = t < 0 ? -1 : block[t];
		}
		a->accept[done++] = a->accept[s];
	}
	a->nstate = n;
}

int dt_auto_minimise(struct dt_auto *a, struct dt_auto_budget *work)
{
	size_t n = (size_t)a->nstate + 1, entries = (size_t)a->nstate * (size_t)a->nclass;
	bool *live = calloc(n, sizeof(*live));
	int32_t *block = malloc(n * sizeof(*block)), *fresh = malloc(n * sizeof(*fresh)), *table;
	uint32_t mask = 15;
	int blocks = 0, more, rc = -ENOMEM;

	while (mask < 2 * (uint32_t)n)
		mask = 2 * mask + 1;
	table = malloc(((size_t)mask + 1) * sizeof(*table));
	if (!live || !block || !fresh || !table || find_live(a, live) < 0)
		goto out;
	for (size_t i = 0; i < entries; i++)
		if (a->next[i] >= 0 && !live[a->next[i]])
			a->next[i] = -1;
	for (int s = 0; s < a->nstate; s++)
		block[s] = a->accept[s];
	for (;;) {
		work->steps -= (int64_t)entries;
		rc = -E2BIG;
		if (work->steps < 0)
			goto out;
		more = refine(a, block, fresh, table, mask);
		memcpy(block, fresh, (size_t)a->nstate * sizeof(*block));
		if (more == blocks)
			break;
		blocks = more;
	}
	more = a->nstate > 0 && live[0];
	if (more)
		merge(a, block, blocks);
	else
		a->nstate = 0;
	rc = 0;
out:
	free(live);
	free(block);
	free(fresh);
	free(table);
	return rc;
}

/* ---- simple automata ---- */

int dt_auto_length(int64_t min, int64_t max, struct dt_auto_budget *work, struct dt_auto **ret)
{
	int64_t n = (max < 0 ? min : max) + 1;
	struct dt_auto *a;

	work->steps -= n;
	if (n > DT_AUTO_STATES || work->steps < 0)
		return -E2BIG;
	a = dt_auto_new(max >= 0 && max < min ? 0 : (int)n, 1);
	if (!a)
		return -ENOMEM;
	for (int s = 0; s < a->nstate; s++) {
		a->next[s] = s + 1 < n ? s + 1 : max < 0 ? s : -1;
		a->accept[s] = s >= min;
	}
	*ret = a;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Adds a word to a prefix tree. */
static void add_word(struct dt_auto *a, const char *word, size_t len)
{
	int s = 0;

	for (size_t at = 0; at < len;) {
		uint32_t c;
		int32_t *t;

		at += dt_utf8_decode(word + at, len - at, &c);
		t = &a->next[s * a->nclass + class_of(a, c)];
		if (*t < 0)
			*t = a->nstate++;
		s = *t;
	}
	a->accept[s] = true;
}

int dt_auto_words(const char *const *word, int n, struct dt_auto_budget *work, struct dt_auto **ret)
{
	size_t bytes = 0, k = 0, classes = 0;
	struct dt_auto *a;
	uint32_t *edge;

	for (int i = 0; i < n; i++)
		bytes += strlen(word[i]);
	edge = malloc((2 * bytes + 1) * sizeof(*edge));
	if (!edge)
		return -ENOMEM;
	edge[k++] = 0;
	for (int i = 0; i < n; i++)
		for (size_t at = 0, len = strlen(word[i]); at < len;) {
			uint32_t c;

			at += dt_utf8_decode(word[i] + at, len - at, &c);
			edge[k++] = c;
			edge[k++] = c + 1;
		}
	qsort(edge, k, sizeof(*edge), by_value);
	for (size_t i = 0; i < k; i++)
		if (edge[i] <= DT_AUTO_LAST && (classes == 0 || edge[i] != edge[classes - 1]))
			edge[classes++] = edge[i];
	work->steps -= (int64_t)((bytes + 1) * classes);
	if (bytes + 1 > DT_AUTO_STATES || (bytes + 1) * classes > DT_AUTO_ENTRIES || work->steps < 0) {
		free(edge);
		return -E2BIG;
	}
	a = dt_auto_new((int)bytes + 1, (int)classes);
	if (a) {
		memcpy(a->first, edge, classes * sizeof(*edge));
		a->nstate = 1;
		for (int i = 0; i < n; i++)
			add_word(a, word[i], strlen(word[i]));
	}
	free(edge);
	*ret = a;
	return a ? 0 : -ENOMEM;
}

bool dt_auto_accepts(const struct dt_auto *a, const char *s)
{
	int state = a->nstate > 0 ? 0 : -1;

	for (size_t at = 0, n = strlen(s); at < n && state >= 0;) {
		uint32_t c;

		at += dt_utf8_decode(s + at, n - at, &c);
		state = a->next[state * a->nclass + class_of(a, c)];
	}
	return state >= 0 && a->accept[state];
}
/* SPDX-License-Identifier: Apache-2.0 */
