/*
 * All-reduce of gradients over the data-parallel ranks. Without ZeRO, units are grouped into buckets of about
 * bucket_bytes in the order backward completes them; a bucket's all-reduce starts when its last unit is
 * complete and overlaps with the rest of backward (Li et al., PyTorch Distributed, VLDB 2020, section 4).
 * With ZeRO each unit is reduce-scattered by itself; from z2 on a layer after every microbatch. Each unit is
 * checked for NaN and Inf before the reduction, so that the rank that made them can report it.
 */
#include "train/trainer.h"

#include "base/progress.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

float *grad_share(const struct trainer *t, int u)
{
	const struct flat *f = &t->grads.flat;

	/* An in-place reduce-scatter leaves the share at the start of the unit. */
	return flat_at(t, f, u, f->shared ? share_first(t, u) : 0);
}

struct dt_tensor grad_part(const struct trainer *t, int u, int64_t first, int64_t n)
{
	return dt_t1(grad_share(t, u) + (first - share_first(t, u)), DT_F32, n);
}

/* Sets where the gradients of unit u are computed, and from where they are sent. */
static void bind_unit(struct trainer *t, int u)
{
	struct grads *g = &t->grads;
	int slot = dt_unit_slot(&t->local, u, t->config.layers);

	if (t->local.unit[u].frozen)
		return;
	if (g->flat.shared) {
		g->unit_g[u] = dt_plan_address(&t->plan, t->arena.base, DT_B_UNIT_G, slot);
		g->unit_wire[u] = dt_plan_address(&t->plan, t->arena.base, DT_B_WIRE, slot);
	} else {
		g->unit_g[u] = flat_at(t, &g->flat, u, 0);
		g->unit_wire[u] = g->wire.p ? flat_at(t, &g->wire, u, 0) : NULL;
	}
	if (!g->wire.p)
		g->wire.p = g->unit_wire[u];
}

int grads_bind(struct trainer *t, struct dt_err *err)
{
	struct grads *g = &t->grads;
	int n = t->local.nunit;

	g->scale = 1;
	g->flat = flat_bind(t, DT_B_GRADS, DT_F32, 2);
	g->wire = flat_bind(t, DT_B_WIRE, t->run.grad_comm, 2);
	g->fixed = dt_plan_address(&t->plan, t->arena.base, DT_B_FIXED, -1);
	g->unit_g = calloc((size_t)n, sizeof(*g->unit_g));
	g->unit_wire = calloc((size_t)n, sizeof(*g->unit_wire));
	g->squares = calloc((size_t)t->table.n + 1, sizeof(*g->squares));
	if (!g->unit_g || !g->unit_wire || !g->squares)
		return dt_err_sys(err, -ENOMEM, "cannot bind the gradients");
	for (int u = 0; u < n; u++)
		bind_unit(t, u);
	for (int k = 0; k < DT_UNIT_SLOT_EMBED; k++)
		g->held[k] = -1;
	return 0;
}

int reduce_init(struct trainer *t, struct dt_err *err)
{
	const struct dt_local *l = &t->local;
	int64_t want = (int64_t)(t->run.bucket_bytes / sizeof(float));
	struct bucket *b = NULL;

	t->grads.bucket = calloc((size_t)l->nunit, sizeof(*t->grads.bucket));
	t->grads.unit = calloc((size_t)l->nunit, sizeof(*t->grads.unit));
	if (!t->grads.bucket || !t->grads.unit)
		return dt_err_sys(err, -ENOMEM, "cannot set up gradient buckets");
	for (int u = l->nunit - 1; u >= 0; u--) {
		if (l->unit[u].frozen)
			continue;
		if (!b || b->numel >= want || l->unit[u].experts != l->unit[b->last_unit].experts) {
			b = &t->grads.bucket[t->grads.nbucket++];
			b->last_unit = u;
			snprintf(b->what, sizeof(b->what), "gradient bucket %d", t->grads.nbucket - 1);
		}
		b->first_unit = u;
		b->units++;
		b->numel += l->unit[u].numel;
		t->grads.unit[u].bucket = t->grads.nbucket - 1;
	}
	return 0;
}

int64_t grad_flat(const struct trainer *t, const struct dt_local_param *lp)
{
	const struct dt_local_unit *u = &t->local.unit[lp->unit];

	return u->trained + (lp->flat - u->flat);
}

static bool is_layer(const struct trainer *t, int u)
{
	return t->local.unit[u].layer >= 0 && t->local.unit[u].layer < t->config.layers;
}

struct dt_tensor *embed_grad(const struct trainer *t)
{
	for (int i = 0; i < t->local.n; i++)
		if (t->table.p[t->local.p[i].index].role == DT_W_EMBED)
			return &t->exec.g[i];
	return NULL;
}

bool tied_apart(const struct trainer *t, int u)
{
	return dt_config_shares_embed(&t->config) && t->run.layout.pp > 1 && !is_layer(t, u) &&
	       !t->local.unit[u].experts && (holds_embed(t) || holds_head(t)) && embed_grad(t)->data;
}

bool tied_any(const struct trainer *t)
{
	for (int u = 0; u < t->local.nunit; u++)
		if (!t->local.unit[u].frozen && tied_apart(t, u))
			return true;
	return false;
}

int reduce_begin(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	t->grads.bad = NULL;
	t->grads.own = 0;
	for (int i = 0; i < t->grads.nbucket; i++)
		t->grads.bucket[i].pending = t->grads.bucket[i].units;
	for (int u = 0; u < t->local.nunit && rc == 0; u++) {
		if (t->local.unit[u].frozen)
			continue;
		t->grads.unit[u].left = source_microbatches(t);
		t->grads.unit[u].summed = false;
		if (!t->grads.fixed && t->grads.flat.shared && !is_layer(t, u))
			rc = dt_exec_zero_grads(&t->exec, u, 1, err);
	}
	if (rc == 0 && t->grads.fixed)
		return fixed_begin(t, err);
	return rc == 0 && !t->grads.flat.shared ? dt_exec_zero_grads(&t->exec, 0, t->local.nunit, err) : rc;
}

/* Records the first parameter of the unit with a non-finite gradient. */
static int check_unit(struct trainer *t, int unit, struct dt_err *err)
{
	const struct dt_local_unit *u = &t->local.unit[unit];
	const struct dt_ops *o = t->dev->ops;
	double sum;
	int rc = o->sumsq(t->dev, &sum, dt_t1(t->grads.unit_g[unit], DT_F32, u->numel));

	t->grads.own += sum;
	if (rc < 0 || isfinite(sum) || t->grads.bad)
		return dt_kernel_check(rc, "->sumsq(", err);
	for (int i = 0; i < t->local.n && !t->grads.bad; i++) {
		const struct dt_local_param *lp = &t->local.p[i];

		if (lp->unit != unit)
			continue;
		rc = o->sumsq(t->dev, &sum,
			      dt_t1(t->grads.unit_g[unit] + (lp->flat - u->flat), DT_F32, lp->numel));
		if (rc < 0)
			return dt_kernel_check(rc, "->sumsq(", err);
		if (!isfinite(sum))
			t->grads.bad = t->table.p[lp->index].name;
	}
	return 0;
}

/* Whether a unit's gradients are rounded for the reduction; those of experts held by one rank are not. */
static bool is_rounded(const struct trainer *t, int u)
{
	return t->grads.wire.p && dt_comm_size(unit_comm(t, u)) > 1;
}

/* Converts a unit's gradients to the type they are sent in; returns their address. */
static void *outgoing(struct trainer *t, int u, int *rc)
{
	int64_t n = t->local.unit[u].numel;

	if (!is_rounded(t, u))
		return t->grads.unit_g[u];
	*rc = t->dev->ops->convert(t->dev, dt_t1(t->grads.unit_wire[u], t->grads.wire.dtype, n),
				   dt_t1(t->grads.unit_g[u], DT_F32, n));
	return t->grads.unit_wire[u];
}

/* Converts the received values back into the first n elements of the unit's gradients. */
static int incoming(struct trainer *t, int u, int64_t n, struct dt_err *err)
{
	if (!is_rounded(t, u))
		return 0;
	return dt_kernel_check(t->dev->ops->convert(t->dev, dt_t1(t->grads.unit_g[u], DT_F32, n),
						    dt_t1(t->grads.unit_wire[u], t->grads.wire.dtype, n)),
			       "->convert(", err);
}

/* Starts the reduction of a unit whose gradients are complete and final. */
static int start(struct trainer *t, int u, struct dt_err *err)
{
	struct bucket *b = &t->grads.bucket[t->grads.unit[u].bucket];
	double t0;
	int rc = 0;
	void *g = outer_alone(t) || dt_run_served(&t->run) || t->compressed.z ? NULL
		  : t->run.layout.zero || dt_comm_size(unit_comm(t, u)) > 1   ? outgoing(t, u, &rc)
									      : NULL;

	if (rc < 0)
		return dt_kernel_check(rc, "->convert(", err);
	if (dt_run_served(&t->run)) /* the parameter servers take them unreduced */
		return 0;
	t0 = dt_now();
	if (t->run.layout.zero)
		rc = dt_ireduce_scatter(unit_comm(t, u), g, NULL, (size_t)share_n(t, u),
					is_rounded(t, u) ? t->grads.wire.dtype : DT_F32, DT_SUM,
					"gradients of a unit", &t->grads.unit[u].req, err);
	else if (--b->pending <= 0 && g)
		rc = dt_iall_reduce(
			unit_comm(t, u),
			flat_at(t, t->grads.wire.p ? &t->grads.wire : &t->grads.flat, b->first_unit, 0), NULL,
			(size_t)b->numel, t->grads.wire.dtype, DT_SUM, b->what, &b->req, err);
	t->t.comm[TR_GRADS] += dt_now() - t0;
	return rc;
}

/* z2: adds the reduce-scattered gradients of a unit to this rank's share. */
static int collect(struct trainer *t, int u, struct dt_err *err)
{
	struct dt_tensor share = dt_t1(grad_share(t, u), DT_F32, share_n(t, u)),
			 got = dt_t1(t->grads.unit_g[u], DT_F32, share_n(t, u));
	int rc = dt_wait(&t->grads.unit[u].req, &t->t.comm[TR_GRADS], err);

	if (rc == 0)
		rc = incoming(t, u, share_n(t, u), err);
	if (rc < 0 || !t->grads.flat.shared)
		return rc;
	rc = t->grads.unit[u].summed ? t->dev->ops->axpy(t->dev, share, 1.0f, got)
				     : t->dev->ops->convert(t->dev, share, got);
	t->grads.unit[u].summed = true;
	return dt_kernel_check(rc, "->axpy(", err);
}

int reduce_before(struct trainer *t, int u, struct dt_err *err)
{
	int slot = dt_unit_slot(&t->local, u, t->config.layers), rc = 0;

	if (t->local.unit[u].frozen)
		return 0;
	if (t->grads.fixed)
		return fixed_before(t, u, err);
	if (!t->grads.flat.shared)
		return 0;
	/* A layer's slot is reduced after each microbatch; other units hold the sum over a step. */
	t->exec.accumulate = !is_layer(t, u) && t->grads.unit[u].left < source_microbatches(t);
	if (!is_layer(t, u))
		return 0;
	if (t->grads.held[slot] >= 0)
		rc = collect(t, t->grads.held[slot], err);
	t->grads.held[slot] = u;
	return rc == 0 ? dt_exec_zero_grads(&t->exec, u, 1, err) : rc;
}

int reduce_after(struct trainer *t, int u, struct dt_err *err)
{
	bool each = t->grads.fixed || (t->grads.flat.shared && is_layer(t, u));
	int rc;

	if (t->local.unit[u].frozen || (--t->grads.unit[u].left > 0 && !each))
		return 0;
	rc = replicas_sum(t, u, err);
	if (rc == 0 && t->grads.fixed)
		return fixed_add(t, u, t->grads.unit[u].left == 0, err);
	if (rc == 0)
		rc = check_unit(t, u, err);
	return rc < 0 || tied_apart(t, u) || t->backup.racing ? rc : start(t, u, err);
}

/* First and last stage add up their gradients of the tied embedding. */
static int join_tied(struct trainer *t, struct dt_err *err)
{
	int last = t->run.layout.pp - 1, peer = holds_embed(t) ? last : 0, rc;
	struct dt_tensor mine = *embed_grad(t), other = mine;
	struct dt_comm_req *send = NULL;
	size_t n = (size_t)dt_numel(mine);

	other.data = dt_plan_address(&t->plan, t->arena.base, DT_B_TIED, -1);
	rc = dt_isend(dt_mesh_comm(&t->mesh, DT_ON_PP), mine.data, n, DT_F32, peer, 0,
		      "tied embedding's gradient", &send, err);
	if (rc == 0)
		rc = dt_recv(dt_mesh_comm(&t->mesh, DT_ON_PP), other.data, n, DT_F32, peer, 0,
			     "tied embedding's gradient", err);
	if (rc == 0)
		rc = dt_wait(&send, &t->t.comm[TR_GRADS], err);
	return rc < 0 ? rc : dt_kernel_check(t->dev->ops->axpy(t->dev, mine, 1.0f, other), "->axpy(", err);
}

int reduce_finish(struct trainer *t, struct dt_err *err)
{
	int rc = 0, n = t->local.nunit;

	if (t->grads.fixed)
		return fixed_finish(t, err);
	if (tied_any(t)) {
		rc = join_tied(t, err);
		for (int u = n - 1; u >= 0 && rc == 0; u--)
			if (!t->local.unit[u].frozen && tied_apart(t, u))
				rc = start(t, u, err);
	}
	for (int u = n - 1; u >= 0 && rc == 0 && t->backup.a; u--)
		if (!t->local.unit[u].frozen)
			rc = start(t, u, err);
	if (rc == 0 && t->compressed.z)
		rc = compressed_reduce(t, err);
	for (int i = 0; i < t->grads.nbucket && rc == 0; i++) {
		struct bucket *b = &t->grads.bucket[i];

		if (!b->req)
			continue;
		rc = dt_wait(&b->req, &t->t.comm[TR_GRADS], err);
		for (int u = b->first_unit; u <= b->last_unit && rc == 0; u++)
			if (!t->local.unit[u].frozen)
				rc = incoming(t, u, t->local.unit[u].numel, err);
	}
	for (int u = n - 1; u >= 0 && rc == 0 && t->run.layout.zero && !dt_run_served(&t->run); u--)
		if (!t->local.unit[u].frozen && (!is_layer(t, u) || !t->grads.flat.shared))
			rc = collect(t, u, err);
	for (int slot = 0; slot < DT_UNIT_SLOT_EMBED && rc == 0; slot++) {
		if (t->grads.held[slot] >= 0)
			rc = collect(t, t->grads.held[slot], err);
		t->grads.held[slot] = -1;
	}
	return rc;
}

void grads_release(struct trainer *t)
{
	free(t->grads.unit_g);
	free(t->grads.unit_wire);
	free(t->grads.squares);
	free(t->grads.bucket);
	free(t->grads.unit);
	replicas_release(t);
}
/* SPDX-License-Identifier: Apache-2.0 */
