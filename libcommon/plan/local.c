/* The parameters of one rank, in flat order. */
#include "kernels/unpack.h"
#include "plan/layout.h"

#include <errno.h>
#include <stdlib.h>

#define ALIGN 32 /* elements: 64 bytes at 2 bytes an element */

/* Whether one of the stage's chunks has the layer. */
static bool has_layer(const struct dt_layout *l, const struct dt_config *c, int stage, int layer)
{
	for (int v = stage; v < l->pp * dt_layout_chunks(l); v += l->pp) {
		int first, last;

		dt_layout_stage(l, c, v, &first, &last);
		if (layer >= first && layer < last)
			return true;
	}
	return false;
}

static int64_t align_up(int64_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* Appends parameter i to the last unit. A fused one directly follows its predecessor; others are aligned. */
static void append(struct dt_local *l, const struct dt_params *t, int i, const struct dt_layout *lay,
		   struct dt_coords at, bool fused)
{
	struct dt_local_param *p = &l->p[l->n++];

	if (!fused)
		l->numel = align_up(l->numel);
	p->index = i;
	dt_param_cut(&t->p[i], lay->tp, at.tp, p->off, p->shape);
	if (t->p[i].experts && lay->ep > 1) { /* experts are cut as wholes, after the cut over tp */
		p->shape[0] /= lay->ep;
		p->off[0] += dt_coords_data(lay, at) % lay->ep * p->shape[0];
	}
	p->flat = l->numel;
	p->numel = p->shape[0] * p->shape[1];
	p->unit = l->nunit - 1;
	l->numel += p->numel;
	if (t->p[i].blocks) {
		int64_t n = dt_blocks_bytes((enum dt_block_kind)t->p[i].blocks, p->numel,
					    dt_param_numel(&t->p[i]));

		p->packed = l->packed_bytes;
		l->packed_bytes += (n + 63) / 64 * 64;
	}
}

static void open_unit(struct dt_local *l, int layer, const struct dt_param *p, bool experts)
{
	const struct dt_local_unit *before = l->nunit ? &l->unit[l->nunit - 1] : NULL;

	l->unit[l->nunit++] =
		(struct dt_local_unit){.layer = layer,
				       .flat = l->numel,
				       .frozen = p->frozen,
				       .packed = p->blocks != 0,
				       .experts = experts,
				       .trained = l->trained,
				       .share_flat = l->share,
				       .share_trained = l->share_trained,
				       .place = before ? before->place + (before->layer != layer) : 0};
}

/* Pads a unit: with ZeRO it divides evenly over the ranks that hold it, each share aligned. */
static void close_unit(struct dt_local *l, const struct dt_layout *lay)
{
	struct dt_local_unit *u = &l->unit[l->nunit - 1];
	int shares = lay->zero ? dt_unit_copies(lay, u) : 1;

	u->numel = align_up(l->numel - u->flat);
	if (u->numel % (ALIGN * shares))
		u->numel += ALIGN * shares - u->numel % (ALIGN * shares);
	u->share = u->numel / shares;
	if (!u->packed) {
		l->numel = u->flat + u->numel;
		l->share += u->share;
	} else {
		l->numel = u->flat;
	}
	if (!u->frozen) {
		l->trained += u->numel;
		l->share_trained += u->share;
	}
}

/* Appends parameter i to the current unit or starts a new one. */
static void add(struct dt_local *l, const struct dt_params *t, int i, int layer, const struct dt_layout *lay,
		struct dt_coords at, bool fused)
{
	const struct dt_local_unit *u = l->nunit ? &l->unit[l->nunit - 1] : NULL;
	bool experts = t->p[i].experts > 0 && lay->ep > 1;

	if (!u || u->layer != layer || u->frozen != t->p[i].frozen || u->packed != (t->p[i].blocks != 0) ||
	    u->experts != experts) {
		if (u)
			close_unit(l, lay);
		open_unit(l, layer, &t->p[i], experts);
	}
	append(l, t, i, lay, at, fused);
}

/* Which of a layer's units has the parameter: packed, frozen, trained, each with experts behind the rest. */
static int kind_of(const struct dt_param *p, const struct dt_layout *l)
{
	return 2 * (p->blocks ? 0 : p->frozen ? 1 : 2) + (p->experts > 0 && l->ep > 1);
}

/* Adds a layer's parameters [first, end); embed: and a copy of the embedding. */
static void add_layer(struct dt_local *lo, const struct dt_params *t, int first, int end, bool embed,
		      const struct dt_layout *l, struct dt_coords at)
{
	const int copy = embed ? dt_params_find(t, "embed.weight") : -1;

	for (int kind = 0; kind < 6; kind++) {
		for (int k = first; k < end; k++)
			if (kind == kind_of(&t->p[k], l))
				add(lo, t, k, t->p[first].layer, l, at, t->p[k].fused);
		if (copy >= 0 && kind == kind_of(&t->p[copy], l))
			add(lo, t, copy, t->p[first].layer, l, at, false);
	}
}

int dt_local_build(const struct dt_params *t, const struct dt_config *c, const struct dt_layout *l,
		   struct dt_coords at, struct dt_local *ret, struct dt_err *err)
{
	struct dt_local lo = {0};
	int rc = dt_layout_check(l, c, err);

	if (rc < 0)
		return rc;
	if (at.tp < 0 || at.tp >= l->tp || at.pp < 0 || at.pp >= l->pp)
		return dt_err_set(err, -EINVAL, "no rank is at tp %d, pp %d of this layout", at.tp, at.pp);
	lo.p = calloc((size_t)t->n + 1, sizeof(*lo.p));
	lo.unit = calloc(6 * ((size_t)c->layers + 2) + 1, sizeof(*lo.unit));
	if (!lo.p || !lo.unit) {
		dt_local_release(&lo);
		return dt_err_sys(err, -ENOMEM, "cannot lay out the parameters of '%s'", c->name);
	}
	for (int i = 0, end; i < t->n; i = end) {
		int layer = t->p[i].layer;

		for (end = i; end < t->n && t->p[end].layer == layer;)
			end++;
		if (layer < 0		 ? at.pp > 0
		    : layer == c->layers ? at.pp < l->pp - 1
					 : !has_layer(l, c, at.pp, layer))
			continue;
		add_layer(&lo, t, i, end, layer == c->layers && dt_config_shares_embed(c) && at.pp > 0, l,
			  at);
	}
	close_unit(&lo, l);
	if (l->servers && dt_layout_server(l, at.dp) == l->servers) /* another rank serves them */
		lo.share = lo.share_trained = 0;
	*ret = lo;
	return 0;
}

void dt_local_release(struct dt_local *l)
{
	free(l->p);
	free(l->unit);
	l->p = NULL;
	l->unit = NULL;
	l->n = l->nunit = 0;
}

int dt_unit_slot(const struct dt_local *l, int u, int64_t layers)
{
	int layer = l->unit[u].layer, kind = l->unit[u].packed	 ? DT_UNIT_SLOT_PACKED
					     : l->unit[u].frozen ? DT_UNIT_SLOT_FROZEN
								 : 0;

	if (layer < 0)
		return kind + DT_UNIT_SLOT_EMBED;
	if (layer == layers)
		return kind + (l->unit[u].experts ? DT_UNIT_SLOT_FINAL_EXPERTS : DT_UNIT_SLOT_FINAL);
	return kind + (l->unit[u].experts ? DT_UNIT_SLOT_EXPERTS : 0) +
	       (l->unit[u].place - (l->unit[0].layer < 0)) % 2;
}
/* SPDX-License-Identifier: Apache-2.0 */
