/* Decides which rank of the new layout writes which piece of each tensor. */
#include "ckpt/reshard.h"

#include "base/room.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static int give(struct reshard *r, int rank, const struct dt_piece *p)
{
	if (!DT_ROOM(r->rank[rank].v, r->rank[rank].n, r->rank[rank].cap, 16))
		return -ENOMEM;
	r->rank[rank].v[r->rank[rank].n++] = *p;
	r->rank[rank].bytes += reshard_piece_bytes(p);
	return 0;
}

/* A set of ranks of dp x cp: n of them, from first on, step apart. */
struct among {
	int first, step, n;
};

/* The ranks that hold a tensor; with ep, those that hold the experts of part e are ep apart. */
static struct among holders(const struct reshard *r, bool experts, int e)
{
	const int n = dt_layout_data(r->l);

	return experts ? (struct among){e, r->l->ep, n / r->l->ep} : (struct among){0, 1, n};
}

static struct among holders_of_range(const struct reshard *r, bool experts, int e, int i)
{
	return experts ? (struct among){e + i * r->l->ep, 1, 1} : (struct among){i * r->l->cp, 1, r->l->cp};
}

/* The rank at (pp, tp), among a, with the fewest bytes to write. */
static int least(const struct reshard *r, int pp, int tp, struct among a)
{
	int best = -1;

	for (int k = 0; k < a.n; k++) {
		int d = a.first + k * a.step;
		int i = dt_layout_rank(
			r->l, (struct dt_coords){.dp = d / r->l->cp, .tp = tp, .pp = pp, .cp = d % r->l->cp});

		if (best < 0 || r->rank[i].bytes < r->rank[best].bytes)
			best = i;
	}
	return best;
}

/* The rank with the fewest bytes of all. */
static int least_of_all(const struct reshard *r)
{
	int best = 0;

	for (int i = 1; i < dt_layout_world(r->l); i++)
		if (r->rank[i].bytes < r->rank[best].bytes)
			best = i;
	return best;
}

/* ZeRO: the flat range of a unit on rank i of n, in multiples of 32 elements; the last may be short. */
static void zero_range(const struct dt_local_unit *u, int n, int i, int64_t *lo, int64_t *hi)
{
	int64_t part = (u->numel / 32 + n - 1) / n * 32;

	*lo = u->flat + (part * i < u->numel ? part * i : u->numel);
	*hi = u->flat + (part * (i + 1) < u->numel ? part * (i + 1) : u->numel);
}

static int give_ranges(struct reshard *r, const struct dt_piece *box, const struct dt_local *lo,
		       const struct dt_local_param *lp, int pp, int e, int tp)
{
	const bool experts = lo->unit[lp->unit].experts;
	const int ranges = experts ? holders(r, true, e).n : r->l->dp;
	struct dt_piece part[2 * DT_CKPT_MAX_DIM + 1];
	int rc = 0;

	for (int i = 0; i < ranges && rc == 0; i++) {
		int64_t a, b;
		int n, to;

		zero_range(&lo->unit[lp->unit], ranges, i, &a, &b);
		a = a > lp->flat ? a : lp->flat;
		b = b < lp->flat + lp->numel ? b : lp->flat + lp->numel;
		n = dt_pieces_of_range(box, a - lp->flat, b - a, part);
		to = least(r, pp, tp, holders_of_range(r, experts, e, i));
		for (int k = 0; k < n && rc == 0; k++)
			rc = give(r, to, &part[k]);
	}
	return rc;
}

static bool same_box(const struct dt_local_param *a, const struct dt_local_param *b)
{
	return !memcmp(a->off, b->off, sizeof(a->off)) && !memcmp(a->shape, b->shape, sizeof(a->shape));
}

/* A parameter in the local table; NULL: not held, as is the last stage's copy of a tied embedding. */
static const struct dt_local_param *held(const struct reshard *r, const struct dt_local *lo, int index)
{
	for (int i = 0; i < lo->n; i++)
		if (lo->p[i].index == index && lo->unit[lo->p[i].unit].layer == r->params.p[index].layer)
			return &lo->p[i];
	return NULL;
}

/*
 * Gives the box of a tensor that ranks at (pp, tp) with experts e hold to one rank. Of the tp ranks with the
 * same box the least loaded one writes it. Under ZeRO its flat ranges are that rank's, since other ranks' may
 * differ.
 */
static int cut_box(struct reshard *r, const struct dt_piece *whole, int index, bool flat, int pp, int e,
		   int tp)
{
	const struct dt_local *row = &r->local[(pp * r->l->ep + e) * r->l->tp];
	const struct dt_local_param *lp = held(r, &row[tp], index), *q;
	struct dt_piece box = *whole;
	struct among a;
	int best, best_tp = tp;
	bool first = lp && lp->numel;

	for (int k = 0; k < tp && first; k++) /* an earlier tp rank had the same box */
		first = !(q = held(r, &row[k], index)) || !same_box(q, lp);
	if (!first)
		return 0;
	a = holders(r, row[tp].unit[lp->unit].experts, e);
	best = least(r, pp, tp, a);
	for (int k = tp + 1; k < r->l->tp; k++) {
		int other = least(r, pp, k, a);

		q = held(r, &row[k], index);
		if (q && same_box(q, lp) && r->rank[other].bytes < r->rank[best].bytes) {
			best = other;
			best_tp = k;
		}
	}
	for (int d = 0; d < r->params.p[index].ndim; d++) {
		box.off[d] = lp->off[d];
		box.shape[d] = lp->shape[d];
	}
	if (!flat)
		return give(r, best, &box);
	return give_ranges(r, &box, &row[best_tp], held(r, &row[best_tp], index), pp, e, best_tp);
}

/* Distributes the boxes of one tensor, each once. */
static int cut_tensor(struct reshard *r, const struct dt_piece *whole, int index, bool flat)
{
	const int turns = r->params.p[index].experts ? r->l->ep : 1;
	int rc = 0;

	for (int pp = 0; pp < r->l->pp; pp++)
		for (int e = 0; e < turns; e++)
			for (int tp = 0; tp < r->l->tp && rc == 0; tp++)
				rc = cut_box(r, whole, index, flat, pp, e, tp);
	return rc;
}

/* States of rows, columns or factors have another shape than their parameter. */
static bool like(const struct dt_param *p, const struct ck_tensor *t)
{
	return p->ndim == t->ndim && !memcmp(p->shape, t->shape, (size_t)p->ndim * sizeof(*p->shape));
}

int reshard_cut(struct reshard *r, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < r->src->m.ntensor && rc == 0; i++) {
		const struct ck_tensor *t = &r->src->m.tensor[i];
		const char *name = strchr(t->name, '/') + 1;
		int index = dt_params_find(&r->params, name);
		bool state = !strncmp(t->name, "m/", 2) || !strncmp(t->name, "v/", 2);
		bool flat = (state && r->l->zero >= 1) || (!strncmp(t->name, "model/", 6) && r->l->zero == 3);
		struct dt_piece p = {.dtype = t->dtype, .ndim = t->ndim};

		snprintf(p.name, sizeof(p.name), "%s", t->name);
		memcpy(p.global, t->shape, sizeof(p.global));
		memcpy(p.shape, t->shape, sizeof(p.shape));
		if (index >= 0 && like(&r->params.p[index], t)) {
			rc = cut_tensor(r, &p, index, flat && r->l->dp > 1);
		} else if (index >= 0 && !strncmp(t->name, "model/", 6)) {
			return dt_err_set(err, -EINVAL,
					  "tensor '%s' does not have the shape that the model says", t->name);
		} else {
			rc = give(r, least_of_all(r), &p);
		}
	}
	for (int i = r->part; i < dt_layout_world(r->l); i += r->parts)
		r->total += r->rank[i].bytes;
	return rc < 0 ? dt_err_sys(err, rc, "cannot reshard '%s'", r->src->path) : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
