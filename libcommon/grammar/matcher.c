#include "grammar/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STACKS 256	     /* max stacks of a state; each optional property that may come next is one */
#define MAX_NODES  (1 << 18) /* max nodes of a text: 4 MiB with their table */
#define MANY_NODES (1 << 15) /* above it unreachable nodes are dropped */
#define MAX_DEPTH  2048	     /* max nested rules entered without reading a byte */
#define MAX_WORK   (1 << 26) /* max expansions for a mask: up to 0.5 s, during which all requests wait */
#define MASKS	   8	     /* cached masks */

struct node {		     /* a stack: the element to read, and what follows its alternative */
	int32_t pos, parent; /* parent -1: bottom of the stack */
	uint32_t in;	     /* number of the last state to which it was added */
};

struct state {
	int n;
	int32_t top[MAX_STACKS]; /* nodes at a byte class; -1: the text may end */
};

struct mask {
	struct state key;
	uint32_t *bits;
	uint64_t used;
};

struct dt_matcher {
	struct dt_grammar *g;
	struct node *node;
	int nnode, node_cap;
	int32_t *table; /* hash table of nodes (open addressing), -1: free; twice node_cap */
	struct state now;
	struct state *depth; /* [longest + 1], used while a mask is computed */
	struct mask mask[MASKS];
	uint64_t clock;
	uint32_t state; /* number of the state being built */
	int64_t work;	/* steps left for the current mask or text */
	bool failed;	/* out of memory, or too many steps */
};

static uint32_t node_hash(struct node x)
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
	struct node *n = realloc(m->node, (size_t)cap * sizeof(*n));
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
	struct node x = {pos, parent, 0};
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

static void state_add(struct dt_matcher *m, struct state *s, int32_t top)
{
	if (top < 0) {
		for (int i = 0; i < s->n; i++)
			if (s->top[i] < 0)
				return;
	} else if (m->node[top].in == m->state) {
		return;
	} else {
		m->node[top].in = m->state;
	}
	if (s->n == MAX_STACKS)
		m->failed = true;
	else
		s->top[s->n++] = top;
}

/* Adds the stacks that begin with a byte class when the element at pos comes next, followed by parent. */
static void expand(struct dt_matcher *m, struct state *s, int32_t pos, int32_t parent, int depth)
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

/* Sets `to` to the state after one more byte; false: the byte is not allowed. */
static bool advance(struct dt_matcher *m, const struct state *from, unsigned char byte, struct state *to)
{
	to->n = 0;
	if (++m->state == 0) { /* on overflow, once in 2^32: no node may seem to be in the new state */
		for (int i = 0; i < m->nnode; i++)
			m->node[i].in = 0;
		m->state = 1;
	}
	for (int i = 0; i < from->n && !m->failed; i++) {
		struct node x;

		if (from->top[i] < 0)
			continue;
		x = m->node[from->top[i]];
		if (m->g->class[m->g->elem[x.pos].index].bit[byte / 64] >> byte % 64 & 1)
			expand(m, to, x.pos + 1, x.parent, 0);
	}
	return to->n > 0 && !m->failed;
}

/* Drops all nodes except those of the current stacks. A parent's index is below its child's. */
static void drop_nodes(struct dt_matcher *m)
{
	int32_t *to = malloc((size_t)m->nnode * sizeof(*to)); /* -1: dropped */
	int n = 0;

	if (!to)
		return; /* dropping nodes only saves memory */
	memset(to, -1, (size_t)m->nnode * sizeof(*to));
	for (int i = 0; i < m->now.n; i++)
		for (int32_t at = m->now.top[i]; at >= 0 && to[at] < 0; at = m->node[at].parent)
			to[at] = 0;
	for (int i = 0; i < m->nnode; i++) {
		struct node x = m->node[i];

		if (to[i] < 0)
			continue;
		x.parent = x.parent < 0 ? -1 : to[x.parent];
		m->node[n] = x;
		to[i] = n++;
	}
	for (int i = 0; i < m->now.n; i++)
		if (m->now.top[i] >= 0)
			m->now.top[i] = to[m->now.top[i]];
	m->nnode = n;
	memset(m->table, -1, 2 * (size_t)m->node_cap * sizeof(*m->table));
	for (int i = 0; i < n; i++)
		table_add(m, i);
	for (int i = 0; i < MASKS; i++) { /* their keys are node indices */
		free(m->mask[i].bits);
		m->mask[i] = (struct mask){0};
	}
	free(to);
}

/* Call before bytes are read or a mask is computed. */
static void begin_work(struct dt_matcher *m)
{
	if (m->nnode > MANY_NODES)
		drop_nodes(m);
	m->work = MAX_WORK;
}

struct dt_matcher *dt_matcher_new(struct dt_grammar *g)
{
	struct dt_matcher *m = calloc(1, sizeof(*m));
	const struct dt_rule *root;

	if (!m)
		return NULL;
	m->g = dt_grammar_ref(g);
	m->work = MAX_WORK;
	m->state = 1;
	root = &g->rule[g->root];
	for (int i = 0; i < root->n; i++)
		expand(m, &m->now, root->alt[i], -1, 0);
	if (m->failed) {
		dt_matcher_free(m);
		return NULL;
	}
	return m;
}

void dt_matcher_free(struct dt_matcher *m)
{
	if (!m)
		return;
	for (int i = 0; i < MASKS; i++)
		free(m->mask[i].bits);
	dt_grammar_drop(m->g);
	free(m->node);
	free(m->table);
	free(m->depth);
	free(m);
}

bool dt_matcher_push(struct dt_matcher *m, const char *s, size_t n)
{
	struct state a, b;

	begin_work(m);
	a = m->now;
	for (size_t i = 0; i < n; i++) {
		if (!advance(m, &a, (unsigned char)s[i], &b))
			return false;
		a = b;
	}
	m->now = a;
	return true;
}

bool dt_matcher_complete(const struct dt_matcher *m)
{
	for (int i = 0; i < m->now.n; i++)
		if (m->now.top[i] < 0)
			return true;
	return false;
}

bool dt_matcher_done(const struct dt_matcher *m)
{
	return m->now.n == 1 && m->now.top[0] < 0;
}

/* ---- masks ---- */

static int by_bytes(const void *a, const void *b)
{
	const struct dt_vocab_token *x = a, *y = b;
	int n = x->len < y->len ? x->len : y->len, c = memcmp(x->s, y->s, (size_t)n);

	return c ? c : x->len - y->len;
}

int dt_vocab_order_init(struct dt_vocab_order *o, int vocab, dt_token_bytes *bytes, const void *arg)
{
	*o = (struct dt_vocab_order){.vocab = vocab};
	o->token = malloc((size_t)vocab * sizeof(*o->token));
	if (!o->token)
		return -ENOMEM;
	for (int32_t id = 0; id < vocab; id++) {
		size_t n = 0;
		const char *s = bytes(arg, id, &n);

		if (!s || n == 0)
			continue;
		o->token[o->n++] = (struct dt_vocab_token){s, (int32_t)n, id};
		o->longest = (int)n > o->longest ? (int)n : o->longest;
	}
	qsort(o->token, (size_t)o->n, sizeof(*o->token), by_bytes);
	return 0;
}

void dt_vocab_order_release(struct dt_vocab_order *o)
{
	free(o->token);
	o->token = NULL;
}

/*
 * Visits tokens in the order of their bytes: the common prefix of neighbours is read only once, and when a
 * prefix does not fit, all tokens with it are skipped.
 */
static void fill(struct dt_matcher *m, const struct dt_vocab_order *o, uint32_t *bits)
{
	const char *before = "";
	int good = 0; /* matching bytes of the previous token: m->depth[0 .. good] are their states */

	m->depth[0] = m->now;
	for (int i = 0; i < o->n && !m->failed; i++) {
		const struct dt_vocab_token *t = &o->token[i];
		int k = 0;

		while (k < good && k < t->len && t->s[k] == before[k])
			k++;
		before = t->s;
		good = k;
		while (good < t->len &&
		       advance(m, &m->depth[good], (unsigned char)t->s[good], &m->depth[good + 1]))
			good++;
		if (good == t->len) {
			bits[t->id / 32] |= 1u << t->id % 32;
			continue;
		}
		while (i + 1 < o->n && o->token[i + 1].len > good &&
		       !memcmp(o->token[i + 1].s, t->s, (size_t)good + 1))
			i++;
	}
}

const uint32_t *dt_matcher_mask(struct dt_matcher *m, const struct dt_vocab_order *o)
{
	size_t words = ((size_t)o->vocab + 31) / 32;
	struct mask *old = &m->mask[0];

	for (int i = 0; i < MASKS; i++) {
		struct mask *k = &m->mask[i];

		if (k->bits && k->key.n == m->now.n &&
		    !memcmp(k->key.top, m->now.top, (size_t)m->now.n * sizeof(*m->now.top))) {
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
	m->work = MAX_WORK;
	old->key = m->now;
	old->used = ++m->clock;
	fill(m, o, old->bits);
	if (!m->failed)
		return old->bits;
	old->key.n = -1; /* invalid entry */
	return NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
