#include "data/trie.h"

#include <errno.h>
#include <stdlib.h>

/* The words that begin with a node's string, whose length is depth. */
struct range {
	uint32_t lo, hi, depth;
};

struct build {
	struct dt_trie *t;
	struct range *range; /* one a node */
	uint32_t cap;
};

static int by_bytes(const void *a, const void *b)
{
	const struct dt_trie_word *x = a, *y = b;
	int c = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);

	if (c == 0)
		c = (x->n > y->n) - (x->n < y->n);
	return c ? c : (x->id > y->id) - (x->id < y->id);
}

static int add_node(struct build *b, uint8_t label, struct range r)
{
	struct dt_trie *t = b->t;

	if (t->n == b->cap) {
		uint32_t cap = b->cap ? 2 * b->cap : 1024;
		void *p;

		if (cap > UINT32_MAX / 4 || !(p = realloc(b->range, cap * sizeof(*b->range))))
			return -ENOMEM;
		b->range = p;
		if (!(p = realloc(t->label, cap)))
			return -ENOMEM;
		t->label = p;
		if (!(p = realloc(t->first, (cap + 1) * sizeof(*t->first))))
			return -ENOMEM;
		t->first = p;
		if (!(p = realloc(t->id, cap * sizeof(*t->id))))
			return -ENOMEM;
		t->id = p;
		b->cap = cap;
	}
	t->label[t->n] = label;
	t->id[t->n] = -1;
	b->range[t->n++] = r;
	return 0;
}

/* Adds the children of a node: one for each byte that follows its string. */
static int add_children(struct build *b, uint32_t node, const struct dt_trie_word *w)
{
	struct range r = b->range[node];
	int rc = 0;

	for (; r.lo < r.hi && w[r.lo].n == r.depth; r.lo++)
		b->t->id[node] = w[r.lo].id;
	while (r.lo < r.hi && rc == 0) {
		uint8_t byte = (uint8_t)w[r.lo].s[r.depth];
		struct range child = {r.lo, r.lo, r.depth + 1};

		while (child.hi < r.hi && (uint8_t)w[child.hi].s[r.depth] == byte)
			child.hi++;
		rc = add_node(b, byte, child);
		r.lo = child.hi;
	}
	return rc;
}

int dt_trie_build(struct dt_trie *t, struct dt_trie_word *w, size_t n)
{
	struct build b = {.t = t};
	int rc;

	memset(t, 0, sizeof(*t));
	if (n)
		qsort(w, n, sizeof(*w), by_bytes);
	rc = n < UINT32_MAX ? add_node(&b, 0, (struct range){0, (uint32_t)n, 0}) : -ENOMEM;
	for (uint32_t i = 0; rc == 0 && i < t->n; i++) {
		t->first[i] = t->n;
		rc = add_children(&b, i, w);
		t->first[i + 1] = t->n;
	}
	free(b.range);
	if (rc < 0)
		dt_trie_release(t);
	return rc;
}

void dt_trie_release(struct dt_trie *t)
{
	free(t->label);
	free(t->first);
	free(t->id);
	memset(t, 0, sizeof(*t));
}
/* SPDX-License-Identifier: Apache-2.0 */
