/* Sets of stacks of elements that may follow, as nodes that share their tails. */
#include "grammar/matcher_priv.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NODES  (1 << 18) /* max nodes of a text: 4 MiB with their table */
#define MANY_NODES (1 << 15) /* above it unreachable nodes are dropped */
#define MAX_DEPTH  2048	     /* max nested rules entered without reading a byte */

static uint32_t node_hash(struct dt_stack_node x)
{
	uint64_t h = ((uint64_t)(uint32_t)x.pos << 32 | (uint32_t)x.parent) * 0x9e3779b97f4a7c15u;

	return (uint32_t)(h >> 32);
}

static void table_add(struct dt_matcher *m, int32_t i)
{
	uint32_t mask = 2 * (uint32_t)m->node_cap - 1, at = node_hash(m->node[i]) & mask;

	while (m->table[at] >= 0)
		at = (at + 1) & mask;
	m->table[at] = i;
}

static bool nodes_grow(struct dt_matcher *m)
{
	int cap = m->node_cap ? 2 * m->node_cap : 256;
	struct dt_stack_node *n = realloc(m->node, (size_t)cap * sizeof(*n));
	int32_t *t = malloc(2 * (size_t)cap * sizeof(*t));

	if (n)
		m->node = n;
	if (!n || !t || cap > MAX_NODES) {
		free(t);
		m->failed = true;
		return false;
	}
	free(m->table);
	m->table = t;
	m->node_cap = cap;
	memset(t, -1, 2 * (size_t)cap * sizeof(*t));
	for (int i = 0; i < m->nnode; i++)
		table_add(m, i);
	return true;
}

/* The unique node with this content; -1: failed. */
static int32_t node_of(struct dt_matcher *m, int32_t pos, int32_t parent)
{
	struct dt_stack_node x = {pos, parent, 0};
	uint32_t mask, at;

	if (m->nnode == m->node_cap && !nodes_grow(m))
		return -1;
	mask = 2 * (uint32_t)m->node_cap - 1;
	for (at = node_hash(x) & mask; m->table[at] >= 0; at = (at + 1) & mask)
		if (m->node[m->table[at]].pos == pos && m->node[m->table[at]].parent == parent)
			return m->table[at];
	m->node[m->nnode] = x;
	m->table[at] = m->nnode;
	return m->nnode++;
}

static void state_add(struct dt_matcher *m, struct dt_stacks *s, int32_t top)
{
	if (top < 0) {
		for (int i = 0; i < s->n; i++)
			if (s->top[i] < 0)
				return;
	} else if (m->node[top].in == m->building) {
		return;
	} else {
		m->node[top].in = m->building;
	}
	if (s->n == DT_MAX_STACKS)
		m->failed = true;
	else
		s->top[s->n++] = top;
}

/* Adds the stacks that begin with a byte class when the element at pos comes next, followed by parent. */
static void expand(struct dt_matcher *m, struct dt_stacks *s, int32_t pos, int32_t parent, int depth)
{
	const struct dt_elem *e = &m->g->elem[pos];
	const struct dt_rule *r;

	if (depth > MAX_DEPTH || --m->work < 0) {
		m->failed = true;
		return;
	}
	if (e->type == DT_ELEM_END) {
		if (parent < 0)
			state_add(m, s, -1);
		else
			expand(m, s, m->node[parent].pos, m->node[parent].parent, depth + 1);
		return;
	}
	if (e->type == DT_ELEM_CLASS) {
		state_add(m, s, node_of(m, pos, parent));
		return;
	}
	r = &m->g->rule[e->index];
	if (m->g->elem[pos + 1].type != DT_ELEM_END) /* otherwise a tail call: lists do not grow the stack */
		parent = node_of(m, pos + 1, parent);
	for (int i = 0; i < r->n && !m->failed; i++)
		expand(m, s, r->alt[i], parent, depth + 1);
}

bool dt_stacks_advance(struct dt_matcher *m, const struct dt_stacks *from, unsigned char byte,
		       struct dt_stacks *to)
{
	to->n = 0;
	if (++m->building == 0) { /* on overflow, once in 2^32: no node may seem to be in the new state */
		for (int i = 0; i < m->nnode; i++)
			m->node[i].in = 0;
		m->building = 1;
	}
	for (int i = 0; i < from->n && !m->failed; i++) {
		struct dt_stack_node x;

		if (from->top[i] < 0)
			continue;
		x = m->node[from->top[i]];
		if (m->g->class[m->g->elem[x.pos].index].bit[byte / 64] >> byte % 64 & 1)
			expand(m, to, x.pos + 1, x.parent, 0);
	}
	return to->n > 0 && !m->failed;
}

void dt_stacks_begin(struct dt_matcher *m, struct dt_stacks *ret)
{
	const struct dt_rule *root = &m->g->rule[m->g->root];

	ret->n = 0;
	m->building++;
	for (int i = 0; i < root->n; i++)
		expand(m, ret, root->alt[i], -1, 0);
}

bool dt_stacks_many(const struct dt_matcher *m)
{
	return m->nnode > MANY_NODES;
}

/* A parent's index is below its child's. */
void dt_stacks_tidy(struct dt_matcher *m, struct dt_stacks *keep)
{
	int32_t *to = malloc((size_t)m->nnode * sizeof(*to)); /* -1: dropped */
	int n = 0;

	if (!to)
		return; /* dropping nodes only saves memory */
	memset(to, -1, (size_t)m->nnode * sizeof(*to));
	for (int i = 0; i < keep->n; i++)
		for (int32_t at = keep->top[i]; at >= 0 && to[at] < 0; at = m->node[at].parent)
			to[at] = 0;
	for (int i = 0; i < m->nnode; i++) {
		struct dt_stack_node x = m->node[i];

		if (to[i] < 0)
			continue;
		x.parent = x.parent < 0 ? -1 : to[x.parent];
		m->node[n] = x;
		to[i] = n++;
	}
	for (int i = 0; i < keep->n; i++)
		if (keep->top[i] >= 0)
			keep->top[i] = to[keep->top[i]];
	m->nnode = n;
	memset(m->table, -1, 2 * (size_t)m->node_cap * sizeof(*m->table));
	for (int i = 0; i < n; i++)
		table_add(m, i);
	free(to);
}
/* SPDX-License-Identifier: Apache-2.0 */
