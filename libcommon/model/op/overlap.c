/*
 * Overlaps computation with the exchange of experts' rows. Reorders the nodes of one unit in a list: an
 * exchange starts as soon as its operand is there, a later node waits for it, and between them go nodes that
 * neither depend on it nor it on them: the shared expert, and in backward also gradients of experts' weights.
 * Operands do not change, nor does the order in which a tensor's gradients are added, so results are
 * identical.
 *
 * If several exchanges could overlap the same nodes, each gets a share of the products: the first product of
 * a shared expert overlaps the dispatch, the last one the combine.
 */
#include "model/op/rule.h"

#include <stdlib.h>
#include <string.h>

/* Consecutive nodes of one unit in one list. */
struct span {
	const struct dt_step *s;
	int n;
	bool *leads; /* [n, n] row i, column j: node j depends on node i */
	bool *put;   /* [n] node has been placed */
	struct dt_step *to;
	int nto;
};

static bool leads(const struct span *x, int i, int j)
{
	return x->leads[i * x->n + j];
}

static bool is_exchange(const struct span *x, int i)
{
	return x->s[i].n.op == DT_OP_EXCHANGE;
}

static bool is_product(const struct span *x, int i)
{
	return x->s[i].n.param[0] >= 0;
}

/* Whether b reads a result of a, or adds to a gradient that a writes or adds to. */
static bool follows(const struct dt_node *a, const struct dt_node *b)
{
	for (int i = 0; i < DT_NODE_OUT; i++)
		for (int k = 0; k < DT_NODE_IN && a->out[i] >= 0; k++)
			if (b->in[k] == a->out[i])
				return true;
	if (!(dt_node_op_flags(a->op) & dt_node_op_flags(b->op) & DT_OPF_GRAD))
		return false;
	for (int i = 0; i < DT_NODE_PARAM; i++)
		for (int k = 0; k < DT_NODE_PARAM && a->param[i] >= 0; k++)
			if (b->param[k] == a->param[i])
				return true;
	return false;
}

static void find_leads(struct span *x)
{
	for (int j = 0; j < x->n; j++)
		for (int i = j - 1; i >= 0; i--) {
			bool *at = &x->leads[i * x->n + j];

			*at = follows(&x->s[i].n, &x->s[j].n);
			for (int k = i + 1; k < j && !*at; k++)
				*at = leads(x, i, k) && leads(x, k, j);
		}
}

/* Places a node after all nodes that it depends on; returns the number of products placed. */
static int put(struct span *x, int i)
{
	int products = 0;

	if (x->put[i])
		return 0;
	for (int k = 0; k < i; k++)
		if (leads(x, k, i) && !x->put[k]) {
			x->put[k] = true;
			x->to[x->nto++] = x->s[k];
			products += is_product(x, k);
		}
	x->put[i] = true;
	x->to[x->nto++] = x->s[i];
	return products + is_product(x, i);
}

/* Whether node i may go between exchange e and its wait: it must not depend on an exchange not yet placed. */
static bool may_stand(const struct span *x, int e, int i)
{
	if (x->put[i] || is_exchange(x, i) || leads(x, e, i) || leads(x, i, e))
		return false;
	for (int k = 0; k < i; k++)
		if (is_exchange(x, k) && !x->put[k] && leads(x, k, i))
			return false;
	return true;
}

/*
 * Number of products that may overlap e, divided by the number of exchanges from e on that they may overlap;
 * rounded up.
 */
static int share_of(const struct span *x, int e)
{
	int products = 0, exchanges = 0;
	bool *met = calloc((size_t)x->n, sizeof(*met));

	for (int k = e; met && k < x->n; k++) {
		exchanges += is_exchange(x, k);
		for (int i = 0; i < x->n && is_exchange(x, k); i++)
			met[i] |= !x->put[i] && !is_exchange(x, i) && !leads(x, k, i) && !leads(x, i, k);
	}
	for (int i = 0; met && i < x->n; i++)
		products += met[i] && is_product(x, i);
	free(met);
	return exchanges ? (products + exchanges - 1) / exchanges : 0; /* no memory: nothing overlaps */
}

/* Recomputed nodes go with the node that needs them. */
static void put_beside(struct span *x, int e)
{
	int share = share_of(x, e), first = x->nto, products = 0;
	struct dt_step *begins = &x->to[x->nto - 1], *wait;

	for (int i = 0; i < x->n && products < share; i++)
		if (!x->s[i].again && may_stand(x, e, i))
			products += put(x, i);
	if (x->nto == first)
		return;
	begins->n.attr.begins = true;
	wait = &x->to[x->nto++];
	*wait = *begins;
	wait->n = dt_node_blank(DT_OP_EXCHANGE_WAIT, begins->n.unit, begins->n.name);
	wait->n.attr = begins->n.attr;
	wait->n.in[0] = begins->n.in[0]; /* keeps it alive: it is being sent until then */
	wait->n.in[1] = begins->n.out[0];
}

static int order(struct span *x)
{
	int rc = -1;

	x->leads = calloc((size_t)x->n * (size_t)x->n, sizeof(*x->leads));
	x->put = calloc((size_t)x->n, sizeof(*x->put));
	if (x->leads && x->put) {
		rc = 0;
		find_leads(x);
		for (int i = 0; i < x->n; i++)
			if (is_exchange(x, i)) {
				put(x, i);
				put_beside(x, i);
			}
		for (int i = 0; i < x->n; i++)
			put(x, i);
	}
	free(x->leads);
	free(x->put);
	return rc;
}

static int exchanges_of(const struct dt_step *s, int n)
{
	int r = 0;

	for (int i = 0; i < n; i++)
		r += s[i].n.op == DT_OP_EXCHANGE;
	return r;
}

static int order_list(struct dt_lower *lo, enum dt_list l)
{
	const struct dt_step *s = lo->list[l];
	int n = lo->n[l], cap = n + exchanges_of(s, n), at = 0;
	struct dt_step *to = malloc((size_t)(cap + 1) * sizeof(*to));

	if (!to)
		return -1;
	for (int i = 0, end; i < n; i = end) {
		struct span x = {.s = s + i, .to = to + at};

		for (end = i + 1; end < n && s[end].n.unit == s[i].n.unit;)
			end++;
		x.n = end - i;
		if (!exchanges_of(x.s, x.n)) {
			memcpy(x.to, x.s, (size_t)x.n * sizeof(*x.to));
			x.nto = x.n;
		} else if (order(&x) < 0) {
			free(to);
			return -1;
		}
		at += x.nto;
	}
	free(lo->list[l]);
	lo->list[l] = to;
	lo->cap[l] = cap + 1;
	lo->n[l] = at;
	return 0;
}

void dt_lo_overlap(struct dt_lower *lo)
{
	for (int l = 0; l < DT_LIST_N && !lo->failed; l++)
		if (exchanges_of(lo->list[l], lo->n[l]))
			lo->failed = order_list(lo, l) < 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
