#include "model/lora.h"

#include "kernels/unpack.h"
#include "model/freeze.h"
#include "model/match.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double dt_lora_scale(const struct dt_lora *l)
{
	return l->kind == DT_LORA_RS ? l->alpha / sqrt((double)l->rank) : l->alpha / (double)l->rank;
}

/* Compiles the targets into a regular expression, which must match a whole name. */
static int compile(const struct dt_lora *l, regex_t *ret, struct dt_err *err)
{
	const char *text = !strcmp(l->targets, "all")	      ? ".*"
			   : !strcmp(l->targets, "attention") ? ".*\\.attn\\..*"
			   : !strcmp(l->targets, "qv")	      ? ".*\\.attn\\.[qv]"
							      : l->targets;

	return dt_match_open(ret, "adapters:", text, err);
}

/* -EINVAL for sizes or an expression that mean nothing; all is well where rank is 0. */
static int check(const struct dt_lora *l, struct dt_err *err)
{
	regex_t re;
	int rc;

	if (!l->rank)
		return 0;
	if (l->rank < 0 || l->rank > DT_LORA_RANK_MAX)
		return dt_err_set(err, -EINVAL, "adapters: rank %lld is out of range (1 to %d)",
				  (long long)l->rank, DT_LORA_RANK_MAX);
	if (!(l->dropout >= 0) || l->dropout >= 1)
		return dt_err_set(err, -EINVAL, "adapters: dropout %g is out of range (0 to below 1)",
				  l->dropout);
	if (!(l->alpha > 0) || !isfinite(l->alpha))
		return dt_err_set(err, -EINVAL, "adapters: alpha must be above 0");
	rc = compile(l, &re, err);
	if (rc == 0)
		regfree(&re);
	if (rc == 0 && l->modules_to_save[0]) {
		rc = dt_match_open(&re, "--lora-modules-to-save", l->modules_to_save, err);
		if (rc == 0)
			regfree(&re);
	}
	return rc;
}

/* The old graph and the new one, whose tensors are in order of units. */
struct rewrite {
	const struct dt_config *c;
	struct dt_graph *g;
	struct dt_graph to;
	int *moved;	/* [old tensor] its index in the new table */
	int *a, *b, *m; /* [old tensor] new indices of its adapter's a, b and magnitude; -1: none */
	regex_t meant;
	int matched;
};

/* Matches the name of a tensor's module, without ".weight" or ".bias". */
static bool matches(const regex_t *re, const struct dt_param *p)
{
	char name[sizeof(p->name)];
	const char *dot = strrchr(p->name, '.');

	if (!dot)
		return false;
	snprintf(name, sizeof(name), "%.*s", (int)(dot - p->name), p->name);
	return dt_match(re, name);
}

/* Adapts only frozen matrices: modules that are trained in full get no adapter. */
static bool is_target(const struct rewrite *r, const struct dt_param *p)
{
	return p->ndim == 2 && p->frozen && matches(&r->meant, p);
}

/* Freezes all tensors of the old graph except modules_to_save, which are trained in full. */
static int freeze(struct rewrite *r, struct dt_err *err)
{
	const char *text = r->c->lora.modules_to_save;
	int rc, saved = 0;
	regex_t re;

	for (int i = 0; i < r->g->params.n; i++)
		r->g->params.p[i].frozen = true;
	if (!text[0])
		return 0;
	if ((rc = dt_match_open(&re, "--lora-modules-to-save", text, err)) < 0)
		return rc;
	for (int i = 0; i < r->g->params.n; i++)
		if (matches(&re, &r->g->params.p[i])) {
			r->g->params.p[i].frozen = false;
			saved++;
		}
	regfree(&re);
	if (saved)
		return dt_graph_check_joined(r->g, "--lora-modules-to-save", err);
	dt_err_set(err, -EINVAL, "--lora-modules-to-save: '%s' matches no module of '%s'", text, r->c->name);
	dt_err_hint(err, "module names are embed, head, norm, layers.N.attn_norm and so on");
	return -EINVAL;
}

/* Adds an adapter's tensor for w, named after w; a magnitude (role DT_W_LORA_M) is a vector. */
static int add_tensor(struct rewrite *r, const struct dt_param *w, enum dt_role role, bool fused)
{
	struct dt_param *p = &r->to.params.p[r->to.params.n];
	const bool a = role == DT_W_LORA_A, m = role == DT_W_LORA_M;
	const int whole = a ? 0 : 1; /* the dimension that is not w's */
	int n = (int)(strlen(w->name) - strlen(".weight"));

	*p = *w;
	snprintf(p->name, sizeof(p->name), "%.*s.lora_%c", n, w->name, a ? 'a' : m ? 'm' : 'b');
	p->role = role;
	p->ndim = m ? 1 : 2;
	p->decay = m ? false : p->decay;
	p->shape[whole] = m ? 1 : r->c->lora.rank;
	p->init = a ? DT_INIT_UNIFORM : DT_INIT_ZEROS;
	p->init_std = a ? 1 / sqrt((double)w->shape[1]) : 0;
	p->fused = fused;
	p->frozen = false;
	p->blocks = 0;
	if (w->cut_dim == whole || w->cut == DT_CUT_NONE) {
		p->partial = w->cut != DT_CUT_NONE;
		p->cut = DT_CUT_NONE;
		p->cut_dim = 0;
		p->cut_unit = 1;
	}
	return r->to.params.n++;
}

/* Adds the adapter tensors of a linear: all a, then all b, then all magnitudes. */
static void add_pair(struct rewrite *r, const struct dt_node *n)
{
	static const enum dt_role role[] = {DT_W_LORA_A, DT_W_LORA_B, DT_W_LORA_M};
	int *const to[] = {r->a, r->b, r->m};

	for (int side = 0; side < (r->c->lora.dora ? 3 : 2); side++) {
		bool behind = false;

		for (int i = 0; i < 3; i++) {
			const struct dt_param *w = n->param[i] < 0 ? NULL : &r->g->params.p[n->param[i]];

			if (!w || !is_target(r, w))
				continue;
			to[side][n->param[i]] = add_tensor(r, w, role[side], !side && behind);
			behind = true;
			r->matched += side == 1;
		}
	}
}

/* Marks frozen linears of layers to be stored in blocks, if their rows are a whole number of blocks. */
static void pack_base(struct rewrite *r)
{
	enum dt_block_kind kind = (enum dt_block_kind)r->c->lora.base;

	for (int k = 0; k < r->g->nnode; k++) {
		const struct dt_node *n = &r->g->node[k];

		for (int i = 0; i < 3 && n->op == DT_OP_LINEAR; i++)
			if (n->param[i] >= 0 && r->g->params.p[n->param[i]].frozen && n->unit >= 0 &&
			    n->unit < r->g->layers &&
			    r->g->params.p[n->param[i]].shape[1] % dt_blocks_size(kind) == 0)
				r->g->params.p[n->param[i]].blocks = (int)kind;
	}
}

/* Copies the old tensors, and adds each unit's adapters after the unit. */
static void add_tensors(struct rewrite *r)
{
	const struct dt_params *old = &r->g->params;

	for (int i = 0; i < old->n; i++) {
		int unit = old->p[i].layer;

		r->moved[i] = r->to.params.n;
		r->to.params.p[r->to.params.n++] = old->p[i];
		if (i + 1 < old->n && old->p[i + 1].layer == unit)
			continue;
		for (int k = 0; k < r->g->nnode; k++)
			if (r->g->node[k].unit == unit && r->g->node[k].op == DT_OP_LINEAR)
				add_pair(r, &r->g->node[k]);
	}
}

static int new_value(struct rewrite *r, const char *name)
{
	r->to.value_name[r->to.nvalue] = name;
	return r->to.nvalue++;
}

/*
 * Adds dropout on the adapter's input and returns its output. It enters tensor-parallel regions as the linear
 * does.
 */
static int add_dropout(struct rewrite *r, const struct dt_node *linear)
{
	struct dt_node n = dt_node_blank(DT_OP_DROPOUT, linear->unit, linear->name);

	if (r->c->lora.dropout <= 0)
		return linear->in[0];
	n.in[0] = linear->in[0];
	n.param[3] = linear->param[0];
	n.out[0] = new_value(r, "dropped");
	n.attr.drop = (float)r->c->lora.dropout;
	r->to.node[r->to.nnode++] = n;
	return n.out[0];
}

/*
 * DoRA: adds, after the adapter, the row factors of each adapted tensor and a node that multiplies by them.
 */
static void add_magnitudes(struct rewrite *r, const struct dt_node *old, struct dt_node *up)
{
	struct dt_node scale = dt_node_blank(DT_OP_LORA_SCALE, up->unit, up->name);

	scale.out[0] = up->out[0];
	scale.in[0] = up->out[0] = new_value(r, "tuned");
	r->to.node[r->to.nnode++] = *up;
	for (int i = 0; i < 3; i++) {
		struct dt_node n = dt_node_blank(DT_OP_LORA_NORM, up->unit, up->name);
		const int w = old->param[i];

		if (w < 0)
			continue;
		scale.param[3 + i] = r->moved[w];
		scale.param[6 + i] = old->param[3 + i] < 0 ? -1 : r->moved[old->param[3 + i]];
		if (r->m[w] < 0)
			continue;
		n.param[0] = r->moved[w];
		n.param[1] = r->a[w];
		n.param[2] = r->b[w];
		scale.param[i] = n.param[3] = r->m[w];
		n.attr.scale = up->attr.scale;
		n.out[0] = scale.in[1 + i] = new_value(r, "magnitude");
		r->to.node[r->to.nnode++] = n;
	}
	r->to.node[r->to.nnode++] = scale;
}

/* Adds h = s x a^T before the linear and y += h b^T after it. */
static void add_nodes(struct rewrite *r, const struct dt_node *old)
{
	struct dt_node n = *old, down = dt_node_blank(DT_OP_LORA_DOWN, n.unit, n.name),
		       up = dt_node_blank(DT_OP_LORA_UP, n.unit, n.name);
	bool any = false;

	for (int i = 0; i < DT_NODE_PARAM; i++)
		n.param[i] = old->param[i] < 0 ? -1 : r->moved[old->param[i]];
	for (int i = 0, k = 0; i < 3 && old->op == DT_OP_LINEAR; i++) {
		int w = old->param[i];

		if (w < 0)
			continue;
		up.param[3 + i] = n.param[i];
		if (r->a[w] < 0)
			continue;
		down.param[k++] = r->a[w];
		up.param[i] = r->b[w];
		any = true;
	}
	if (!any) {
		r->to.node[r->to.nnode++] = n;
		return;
	}
	down.in[0] = add_dropout(r, &n);
	down.param[3] = n.param[0]; /* enters the tensor-parallel region as the linear does */
	down.out[0] = up.in[1] = new_value(r, "lora");
	down.attr.scale = up.attr.scale = (float)dt_lora_scale(&r->c->lora);
	up.out[0] = n.out[0];
	up.in[0] = n.out[0] = new_value(r, "base");
	r->to.node[r->to.nnode++] = down;
	r->to.node[r->to.nnode++] = n;
	if (r->c->lora.dora)
		add_magnitudes(r, old, &up);
	else
		r->to.node[r->to.nnode++] = up;
}

static int allocate(struct rewrite *r)
{
	const struct dt_graph *g = r->g;
	size_t tensors = (size_t)g->params.n, nodes = (size_t)g->nnode;

	r->to = (struct dt_graph){.layers = g->layers, .nvalue = g->nvalue};
	r->to.params.p = calloc(4 * tensors + 1, sizeof(*r->to.params.p));
	r->to.node = calloc(8 * nodes + 1, sizeof(*r->to.node));
	r->to.value_name = calloc((size_t)g->nvalue + 7 * nodes + 1, sizeof(*r->to.value_name));
	r->moved = calloc(4 * tensors + 1, sizeof(*r->moved));
	if (!r->to.params.p || !r->to.node || !r->to.value_name || !r->moved)
		return -ENOMEM;
	r->a = r->moved + tensors;
	r->b = r->a + tensors;
	r->m = r->b + tensors;
	for (size_t i = 0; i < tensors; i++)
		r->a[i] = r->b[i] = r->m[i] = -1;
	memcpy(r->to.value_name, g->value_name, (size_t)g->nvalue * sizeof(*g->value_name));
	return 0;
}

int dt_graph_lora(struct dt_graph *g, const struct dt_config *c, struct dt_err *err)
{
	struct rewrite r = {.c = c, .g = g};
	int rc = check(&c->lora, err);

	if (rc < 0 || (rc = compile(&c->lora, &r.meant, err)) < 0)
		return rc;
	rc = allocate(&r);
	if (rc < 0)
		dt_err_sys(err, rc, "cannot add adapters to '%s'", c->name);
	if (rc == 0)
		rc = freeze(&r, err);
	if (rc == 0 && c->lora.base)
		pack_base(&r);
	if (rc == 0)
		add_tensors(&r);
	if (rc == 0 && !r.matched) {
		rc = dt_err_set(err, -EINVAL, "adapters: '%s' matches no linear layer of '%s'",
				c->lora.targets, c->name);
		dt_err_hint(err, "names of linear layers are layers.N.attn.q, layers.N.mlp.down and so on");
	}
	for (int i = 0; i < g->nnode && rc == 0; i++)
		add_nodes(&r, &g->node[i]);
	free(r.moved);
	regfree(&r.meant);
	dt_graph_release(rc < 0 ? &r.to : g);
	if (rc == 0)
		*g = r.to;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
