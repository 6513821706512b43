#include "model/fold.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

float dt_fold_row(float *w, int64_t n, const struct dt_fold *f)
{
	const double scale = (double)f->gamma / sqrt((double)f->variance + (double)f->eps);

	for (int64_t i = 0; i < n; i++)
		w[i] = (float)((double)w[i] * scale);
	return (float)((double)f->beta - (double)f->mean * scale);
}

struct rewrite {
	struct dt_graph *g, to;
	int *maker, *readers; /* [value] the node that computes it, or -1; number of nodes that read it */
	int *norm;	      /* [node] the norm that is folded into this convolution, or -1 */
	int *moved;	      /* [tensor] its index in the new table; -1: folded away */
};

static int allocate(struct rewrite *r)
{
	const struct dt_graph *g = r->g;
	const size_t values = (size_t)g->nvalue + 1, nodes = (size_t)g->nnode + 1;

	r->to = *g;
	r->to.params.p = calloc((size_t)g->params.n + 1, sizeof(*r->to.params.p));
	r->to.buffers.p = calloc((size_t)g->buffers.n + 1, sizeof(*r->to.buffers.p));
	r->to.node = calloc(nodes, sizeof(*r->to.node));
	r->to.params.n = r->to.buffers.n = r->to.nnode = 0;
	r->to.capacity = g->nnode;
	r->maker = calloc(values, sizeof(int));
	r->readers = calloc(values, sizeof(int));
	r->norm = calloc(nodes, sizeof(int));
	r->moved = calloc((size_t)g->params.n + 1, sizeof(int));
	return r->to.params.p && r->to.buffers.p && r->to.node && r->maker && r->readers && r->norm &&
			       r->moved
		       ? 0
		       : -ENOMEM;
}

/* Finds the convolutions into which a batch norm can be folded. */
static void match(struct rewrite *r)
{
	const struct dt_graph *g = r->g;

	for (int v = 0; v < g->nvalue; v++)
		r->maker[v] = -1;
	for (int k = 0; k < g->nnode; k++) {
		r->norm[k] = -1;
		for (int i = 0; i < DT_NODE_OUT; i++)
			if (g->node[k].out[i] >= 0)
				r->maker[g->node[k].out[i]] = k;
		for (int i = 0; i < DT_NODE_IN; i++)
			if (g->node[k].in[i] >= 0)
				r->readers[g->node[k].in[i]]++;
	}
	for (int k = 0; k < g->nnode; k++) {
		const struct dt_node *n = &g->node[k];
		const int conv = n->op == DT_OP_BATCH_NORM ? r->maker[n->in[0]] : -1;

		if (conv >= 0 && g->node[conv].op == DT_OP_CONV && r->readers[n->in[0]] == 1 &&
		    n->in[1] != g->node[conv].in[0])
			r->norm[conv] = k;
	}
}

static void keep_tensors(struct rewrite *r)
{
	const struct dt_params *old = &r->g->params;

	for (int k = 0; k < r->g->nnode; k++)
		for (int i = 0; i < 2 && r->norm[k] >= 0; i++)
			r->moved[r->g->node[r->norm[k]].param[i]] = -1;
	for (int i = 0; i < old->n; i++)
		if (r->moved[i] >= 0) {
			r->moved[i] = r->to.params.n;
			r->to.params.p[r->to.params.n++] = old->p[i];
		}
}

/*
 * Copies a norm's buffers, found by attr.buffer: both, or if folded one shift. Returns their offset in
 * elements.
 */
static int64_t put_buffers(struct rewrite *r, const struct dt_node *norm, bool folded)
{
	const struct dt_params *old = &r->g->buffers;
	const int64_t at = dt_params_total(&r->to.buffers);
	int64_t from = 0;
	int i = 0;

	while (i < old->n && from < norm->attr.buffer)
		from += old->p[i++].shape[0];
	for (int k = 0; k < (folded ? 1 : 2); k++) {
		struct dt_param *p = &r->to.buffers.p[r->to.buffers.n++];

		*p = old->p[i + k];
		if (folded) {
			const char *name = old->p[i].name, *end = strrchr(name, '.');

			snprintf(p->name, sizeof(p->name), "%.*s" DT_FOLD_SHIFT, (int)(end - name), name);
		}
	}
	return at;
}

static void put_node(struct rewrite *r, const struct dt_node *old)
{
	struct dt_node *n = &r->to.node[r->to.nnode++];

	*n = *old;
	for (int i = 0; i < DT_NODE_PARAM; i++)
		n->param[i] = old->param[i] < 0 ? -1 : r->moved[old->param[i]];
	if (old->op == DT_OP_BATCH_NORM)
		n->attr.buffer = put_buffers(r, old, false);
}

/* Puts a folded convolution where its norm was. */
static void put_folded(struct rewrite *r, const struct dt_node *conv, const struct dt_node *norm)
{
	struct dt_node *n = &r->to.node[r->to.nnode++];

	*n = dt_node_blank(DT_OP_CONV_BIAS, conv->unit, conv->name);
	n->attr = conv->attr;
	n->attr.relu = norm->attr.relu;
	n->attr.eps = norm->attr.eps;
	n->entry = norm->entry;
	n->in[0] = norm->in[1];
	n->in[1] = conv->in[0];
	n->out[0] = norm->out[0];
	n->param[0] = r->moved[conv->param[0]];
	n->attr.buffer = put_buffers(r, norm, true);
}

int dt_graph_fold(struct dt_graph *g, struct dt_err *err)
{
	struct rewrite r = {.g = g};
	const int rc = allocate(&r);

	if (rc == 0) {
		match(&r);
		keep_tensors(&r);
	}
	for (int k = 0; k < g->nnode && rc == 0; k++) {
		const struct dt_node *n = &g->node[k];
		const int conv = n->op == DT_OP_BATCH_NORM ? r.maker[n->in[0]] : -1;

		if (conv >= 0 && r.norm[conv] == k)
			put_folded(&r, &g->node[conv], n);
		else if (r.norm[k] < 0)
			put_node(&r, n);
	}
	r.to.value_name = NULL;
	if (rc == 0) { /* value names keep their indices */
		r.to.value_name = g->value_name;
		g->value_name = NULL;
	}
	free(r.maker);
	free(r.readers);
	free(r.norm);
	free(r.moved);
	dt_graph_release(rc < 0 ? &r.to : g);
	if (rc == 0)
		*g = r.to;
	return rc < 0 ? dt_err_sys(err, rc, "cannot fold batch norms") : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
