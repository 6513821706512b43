/*
 * Overlaps products with the messages of a residual stream that is cut over tensor-parallel ranks (s1). A
 * product on gathered rows starts with its own rank's rows and processes each other rank's as they arrive. A
 * product whose result is reduce-scattered computes other ranks' rows first and sends each as it is done; a
 * rank adds the received rows to its own at the end. Weight gradients, which need all rows, are moved after
 * the product that does not depend on them, to overlap what it sends.
 *
 * Rows of a product are independent, and received rows are added in the order of ranks, as with shared memory
 * (comm/reduce.h): results do not change.
 */
#include "model/op/cost.h"
#include "model/op/rule.h"

#include <stdlib.h>
#include <string.h>

/* Multiply-adds between two polls of messages, so many that polling costs nothing, and the fewest rows. */
#define SLICE_WORK 2e8
#define SLICE_ROWS 64

int64_t dt_stream_slice(double numel, int64_t part)
{
	const int64_t whole = ((int64_t)(SLICE_WORK / (numel + 1)) / SLICE_ROWS + 1) * SLICE_ROWS;

	return whole < part ? whole : part;
}

/* Consecutive nodes of one unit in one list, with room for waits. */
struct span {
	struct dt_step *s;
	int n;
};

static bool can_part(const struct dt_node *n)
{
	return n->op == DT_OP_LINEAR || n->op == DT_OP_LINEAR_ACT || n->op == DT_OP_DX ||
	       n->op == DT_OP_DX_ACT;
}

/* Computes only gradients of tensors: no node waits for it. */
static bool is_last(const struct dt_node *n)
{
	return n->op == DT_OP_DW || n->op == DT_OP_COLSUM;
}

static bool reads(const struct dt_node *n, int v)
{
	for (int i = 0; i < DT_NODE_IN; i++)
		if (n->in[i] == v)
			return true;
	return false;
}

/* The first node after i that reads v; -1: none. */
static int reader(const struct span *x, int i, int v)
{
	for (int k = i + 1; k < x->n; k++)
		if (reads(&x->s[k].n, v))
			return k;
	return -1;
}

static void move(struct span *x, int from, int to)
{
	const struct dt_step s = x->s[from];

	memmove(x->s + from, x->s + from + 1, (size_t)(to - from) * sizeof(s));
	x->s[to] = s;
}

/* Moves weight gradients that read product j's operand after j. */
static void product_first(struct span *x, int j)
{
	const int v = x->s[j].n.in[0];

	for (int k = j - 1; k >= 0; k--)
		if (is_last(&x->s[k].n) && x->s[k].n.in[0] == v)
			move(x, k, j--);
}

/* Whether a product between the two steps can hide a message. */
static bool has_product(const struct span *x, int first, int end)
{
	for (int k = first + 1; k < end; k++)
		if (can_part(&x->s[k].n))
			return true;
	return false;
}

static void put_wait(struct span *x, int at, const struct dt_step *begins)
{
	struct dt_step *w = &x->s[at];

	memmove(w + 1, w, (size_t)(x->n++ - at) * sizeof(*w));
	*w = *begins;
	w->n = dt_node_blank(DT_OP_ENTER_WAIT, begins->n.unit, begins->n.name);
	w->n.attr.begins = true;
	w->n.in[0] = begins->n.in[0]; /* keeps it alive: it is being sent until then */
	w->n.in[1] = begins->n.out[0];
}

static void gather(struct span *x, int i)
{
	struct dt_node *n = &x->s[i].n;
	const int k = reader(x, i, n->out[0]);

	if (k < 0)
		return;
	if (can_part(&x->s[k].n) && x->s[k].n.in[0] == n->out[0]) {
		n->attr.begins = x->s[k].n.attr.parts = true;
		x->s[k].n.in[DT_NODE_IN - 1] = n->in[0];
	} else if (is_last(&x->s[k].n) && has_product(x, i, k)) {
		n->attr.begins = true;
		put_wait(x, k, &x->s[i]);
	}
}

/* The product that computes what node j sends, if no other node reads it before; else -1. */
static int made_by(const struct span *x, int j)
{
	const int v = x->s[j].n.in[0];

	for (int k = j - 1; k >= 0; k--) {
		if (x->s[k].n.out[0] == v)
			return can_part(&x->s[k].n) && !x->s[k].n.attr.parts ? k : -1;
		if (reads(&x->s[k].n, v))
			return -1;
	}
	return -1;
}

static void scatter(struct dt_lower *lo, struct span *x, int j)
{
	const int k = made_by(x, j);
	const struct dt_value to = lo->p->value[x->s[j].n.out[0]];
	int came;

	if (k < 0)
		return;
	came = dt_lo_room(lo, "others' sums", x->s[j].n.unit, to.dtype, to.rows, to.mul * (lo->s->tp - 1),
			  to.cols);
	x->s[k].n.attr.sends = true;
	x->s[k].n.out[DT_NODE_OUT - 1] = x->s[j].n.in[1] = came;
}

static void order(struct dt_lower *lo, struct span *x)
{
	for (int j = 0; j < x->n; j++)
		if (x->s[j].n.op == DT_OP_DX || x->s[j].n.op == DT_OP_DX_ACT)
			product_first(x, j);
	for (int i = 0; i < x->n; i++)
		if (x->s[i].n.op == DT_OP_ENTER)
			gather(x, i);
	for (int j = 0; j < x->n; j++)
		if (x->s[j].n.op == DT_OP_LEAVE)
			scatter(lo, x, j);
}

static int count(const struct dt_step *s, int n)
{
	int r = 0;

	for (int i = 0; i < n; i++)
		r += s[i].n.op == DT_OP_ENTER;
	return r;
}

static void order_list(struct dt_lower *lo, enum dt_list l)
{
	const struct dt_step *s = lo->list[l];
	int n = lo->n[l], cap = n + count(s, n) + 1, at = 0;
	struct dt_step *to = malloc((size_t)cap * sizeof(*to));

	if (!to) {
		lo->failed = true;
		return;
	}
	for (int i = 0, end; i < n; i = end) {
		struct span x = {.s = to + at};

		for (end = i + 1; end < n && s[end].n.unit == s[i].n.unit;)
			end++;
		x.n = end - i;
		memcpy(x.s, s + i, (size_t)x.n * sizeof(*x.s));
		order(lo, &x);
		at += x.n;
	}
	free(lo->list[l]);
	lo->list[l] = to;
	lo->cap[l] = cap;
	lo->n[l] = at;
}

void dt_lo_stream(struct dt_lower *lo)
{
	for (int l = 0; l < DT_LIST_N && !lo->failed; l++)
		order_list(lo, l);
}
/* SPDX-License-Identifier: Apache-2.0 */
