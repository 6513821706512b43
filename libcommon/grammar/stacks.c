/* Sets of stacks of elements that may follow, as nodes that share their tails. */
#include "grammar/matcher_priv.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NODES  (1 << 20) /* max nodes: 20 MiB with their table */
#define MANY_NODES (1 << 17) /* above it, and above twice what was needed, unreachable nodes are dropped */
#define MAX_DEPTH  2048	     /* max nested rules entered without reading a byte */

static uint32_t node_hash(struct dt_stack_node x)
{
	uint64_t h = ((uint64_t)(uint32_t)x.pos << 32 | (uint32_t)x.parent) * 0x9e3779b97f4a7c15u;

	return (uint32_t)(h >> 32);
}

static void table_add(struct dt_parser *p, int32_t i)
{
	uint32_t mask = 2 * (uint32_t)p->node_cap - 1, at = node_hash(p->node[i]) & mask;

	while (p->table[at] >= 0)
		at = (at + 1) & mask;
	p->table[at] = i;
}

static bool nodes_grow(struct dt_parser *p)
{
	int cap = p->node_cap ? 2 * p->node_cap : 256;
	struct dt_stack_node *n = realloc(p->node, (size_t)cap * sizeof(*n));
	int32_t *t = malloc(2 * (size_t)cap * sizeof(*t));

	if (n)
		p->node = n;
	if (!n || !t || cap > MAX_NODES) {
		free(t);
		p->failed = true;
		return false;
	}
	free(p->table);
	p->table = t;
	p->node_cap = cap;
	memset(t, -1, 2 * (size_t)cap * sizeof(*t));
	for (int i = 0; i < p->nnode; i++)
		table_add(p, i);
	return true;
}

/* The unique node with this content; -1: failed. */
static int32_t node_of(struct dt_parser *p, int32_t pos, int32_t parent)
{
	struct dt_stack_node x = {pos, parent, 0};
	uint32_t mask, at;

	if (p->nnode == p->node_cap && !nodes_grow(p))
		return -1;
	mask = 2 * (uint32_t)p->node_cap - 1;
	for (at = node_hash(x) & mask; p->table[at] >= 0; at = (at + 1) & mask)
		if (p->node[p->table[at]].pos == pos && p->node[p->table[at]].parent == parent)
			return p->table[at];
	p->node[p->nnode] = x;
	p->table[at] = p->nnode;
	return p->nnode++;
}

static void state_add(struct dt_parser *p, struct dt_stacks *s, int32_t top)
{
	if (top < 0) {
		for (int i = 0; i < s->n; i++)
			if (s->top[i] < 0)
				return;
	} else if (p->node[top].in == p->building) {
		return;
	} else {
		p->node[top].in = p->building;
	}
	if (s->n == DT_MAX_STACKS)
		p->failed = true;
	else
		s->top[s->n++] = top;
}

/* Adds the stacks that begin with a byte class when the element at pos comes next, followed by parent. */
static void expand(struct dt_parser *p, struct dt_stacks *s, int32_t pos, int32_t parent, int depth)
{
	const struct dt_elem *e = &p->g->elem[pos];
	const struct dt_rule *r;

	if (depth > MAX_DEPTH || --p->work < 0) {
		p->failed = true;
		return;
	}
	if (e->type == DT_ELEM_END) {
		if (parent < 0)
			state_add(p, s, -1);
		else
			expand(p, s, p->node[parent].pos, p->node[parent].parent, depth + 1);
		return;
	}
	if (e->type == DT_ELEM_CLASS || e->type == DT_ELEM_TOKEN) {
		state_add(p, s, node_of(p, pos, parent));
		return;
	}
	r = &p->g->rule[e->index];
	if (p->g->elem[pos + 1].type != DT_ELEM_END) /* otherwise a tail call: lists do not grow the stack */
		parent = node_of(p, pos + 1, parent);
	for (int i = 0; i < r->n && !p->failed; i++)
		expand(p, s, r->alt[i], parent, depth + 1);
}

static void begin_building(struct dt_parser *p)
{
	if (++p->building)
		return;
	for (int i = 0; i < p->nnode;
	     i++) /* on overflow, once in 2^32: no node may seem to be in the new state */
		p->node[i].in = 0;
	p->building = 1;
}

bool dt_stacks_advance(struct dt_parser *p, const struct dt_stacks *from, unsigned char byte,
		       struct dt_stacks *to)
{
	to->n = 0;
	begin_building(p);
	for (int i = 0; i < from->n && !p->failed; i++) {
		struct dt_stack_node x;

		if (from->top[i] < 0)
			continue;
		x = p->node[from->top[i]];
		if (p->g->elem[x.pos].type != DT_ELEM_CLASS)
			continue;
		if (p->g->class[p->g->elem[x.pos].index].bit[byte / 64] >> byte % 64 & 1)
			expand(p, to, x.pos + 1, x.parent, 0);
	}
	return to->n > 0 && !p->failed;
}

bool dt_stacks_token(struct dt_parser *p, const struct dt_stacks *from, int32_t id, struct dt_stacks *to)
{
	begin_building(p);
	for (int i = 0; i < to->n; i++)
		if (to->top[i] >= 0)
			p->node[to->top[i]].in = p->building;
	for (int i = 0; i < from->n && !p->failed; i++) {
		const struct dt_stack_node x =
			from->top[i] < 0 ? (struct dt_stack_node){0} : p->node[from->top[i]];

		if (from->top[i] >= 0 && dt_gr_is_token(p->g, p->g->elem[x.pos], id))
			expand(p, to, x.pos + 1, x.parent, 0);
	}
	return to->n > 0 && !p->failed;
}

void dt_stacks_begin(struct dt_parser *p, struct dt_stacks *ret)
{
	const struct dt_rule *root = &p->g->rule[p->g->root];

	ret->n = 0;
	p->building++;
	for (int i = 0; i < root->n; i++)
		expand(p, ret, root->alt[i], -1, 0);
}

void dt_stacks_at(struct dt_parser *p, int32_t pos, int32_t other, int32_t parent, struct dt_stacks *ret)
{
	ret->n = 0;
	begin_building(p);
	expand(p, ret, pos, parent, 0);
	if (other >= 0)
		expand(p, ret, other, parent, 0);
}

bool dt_stacks_many(const struct dt_parser *p)
{
	return p->nnode > MANY_NODES && p->nnode > p->node_limit;
}

/* Drops the nodes that are not marked in to [nnode], and sets the others' new numbers there. */
static void nodes_drop(struct dt_parser *p, int32_t *to)
{
	int n = 0;

	for (int i = 0; i < p->nnode; i++) {
		struct dt_stack_node x = p->node[i];

		if (to[i] < 0)
			continue;
		x.parent = x.parent < 0 ? -1 : to[x.parent]; /* a parent's index is below its child's */
		p->node[n] = x;
		to[i] = n++;
	}
	p->nnode = n;
	p->node_limit = 2 * n;
	memset(p->table, -1, 2 * (size_t)p->node_cap * sizeof(*p->table));
	for (int i = 0; i < n; i++)
		table_add(p, i);
}

void dt_stacks_tidy(struct dt_parser *p, struct dt_stacks *keep, int n)
{
	int32_t *to = malloc((size_t)p->nnode * sizeof(*to)); /* -1: to be dropped */

	if (!to)
		return; /* dropping nodes only saves memory */
	memset(to, -1, (size_t)p->nnode * sizeof(*to));
	for (int k = 0; k < n; k++)
		for (int i = 0; i < keep[k].n; i++)
			for (int32_t at = keep[k].top[i]; at >= 0 && to[at] < 0; at = p->node[at].parent)
				to[at] = 0;
	nodes_drop(p, to);
	for (int k = 0; k < n; k++)
		for (int i = 0; i < keep[k].n; i++)
			if (keep[k].top[i] >= 0)
				keep[k].top[i] = to[keep[k].top[i]];
	free(to);
}
/* SPDX-License-Identifier: Apache-2.0 */
