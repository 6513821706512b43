/* Functions with which blocks and families build graphs. */
#include "model/graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Grows array *p, which has n elements, to hold one more of size bytes. False, with b->failed set, when out
 * of memory.
 */
static bool grow(struct dt_builder *b, void **p, int n, int *cap, size_t size)
{
	void *bigger;
	int more;

	if (b->failed || n < *cap)
		return !b->failed;
	more = *cap ? 2 * *cap : 128;
	bigger = realloc(*p, (size_t)more * size);
	if (!bigger) {
		b->failed = true;
		return false;
	}
	*p = bigger;
	*cap = more;
	return true;
}

void dt_unit(struct dt_builder *b, int layer)
{
	b->layer = layer;
	b->entered = false;
}

static struct dt_param plain(const struct dt_builder *b, enum dt_role role, int64_t rows, int64_t cols)
{
	return (struct dt_param){.role = role,
				 .layer = b->layer,
				 .ndim = cols ? 2 : 1,
				 .shape = {rows, cols ? cols : 1},
				 .init = cols ? DT_INIT_NORMAL : DT_INIT_ZEROS,
				 .init_std = cols ? b->c->init_std : 0,
				 .decay = cols != 0,
				 .cut = DT_CUT_NONE,
				 .cut_unit = 1};
}

int dt_tensor_add(struct dt_builder *b, enum dt_role role, const char *name, int64_t rows, int64_t cols)
{
	struct dt_params *t = &b->g->params;
	struct dt_param *p;

	if (!grow(b, (void **)&t->p, t->n, &b->params_cap, sizeof(*t->p)))
		return -1;
	p = &t->p[t->n];
	*p = plain(b, role, rows, cols);
	if (b->ahead)
		snprintf(p->name, sizeof(p->name), "mtp.%s", name);
	else
		dt_layer_name(p->name, sizeof(p->name), b->layer < b->c->layers ? b->layer : -1, name);
	return t->n++;
}

int dt_tensor_add_conv(struct dt_builder *b, const char *name, int64_t out, int64_t in, int64_t kernel)
{
	int i = dt_tensor_add(b, DT_W_CONV, name, out, in * kernel * kernel);

	if (i < 0)
		return i;
	b->g->params.p[i].kernel = kernel;
	b->g->params.p[i].init_std = sqrt(2 / (double)(out * kernel * kernel));
	return i;
}

int64_t dt_buffer_add(struct dt_builder *b, const char *name, int64_t n, enum dt_init init)
{
	struct dt_params *t = &b->g->buffers;
	int64_t before = dt_params_total(t);

	if (!grow(b, (void **)&t->p, t->n, &b->buffers_cap, sizeof(*t->p)))
		return 0;
	t->p[t->n] = plain(b, DT_W_BUFFER, n, 0);
	t->p[t->n].init = init;
	snprintf(t->p[t->n++].name, sizeof(t->p->name), "%s", name);
	return before;
}

struct dt_param *dt_tensor_at(struct dt_builder *b, int tensor)
{
	return b->failed ? NULL : &b->g->params.p[tensor];
}

void dt_tensor_cut(struct dt_builder *b, int tensor, enum dt_cut how, int dim, int64_t unit)
{
	struct dt_param *p = dt_tensor_at(b, tensor);

	if (!p)
		return;
	p->cut = how;
	p->cut_dim = dim;
	p->cut_unit = unit;
}

static int value_add(struct dt_builder *b, const char *name)
{
	struct dt_graph *g = b->g;

	if (!grow(b, (void **)&g->value_name, g->nvalue, &g->value_capacity, sizeof(*g->value_name)))
		return -1;
	g->value_name[g->nvalue] = name;
	return g->nvalue++;
}

struct dt_node *dt_node_add(struct dt_builder *b, enum dt_op op, const char *name, int outs,
			    const char *const *out_names)
{
	struct dt_graph *g = b->g;
	struct dt_node *n;

	if (!grow(b, (void **)&g->node, g->nnode, &g->capacity, sizeof(*g->node)))
		return NULL;
	n = &g->node[g->nnode++];
	*n = dt_node_blank(op, b->layer, name);
	n->ahead = b->ahead;
	for (int i = 0; i < outs; i++)
		if (out_names[i])
			n->out[i] = value_add(b, out_names[i]);
	return b->failed ? NULL : n;
}
/* SPDX-License-Identifier: Apache-2.0 */
