/*
 * diloco's outer step, one fragment at a time. The change of a rank's weights since the fragment was last
 * merged is averaged over the ranks, at once or overlapped with the next steps, and updates the merged
 * weights. The rank goes on from these, or from a weighted mean of them and its own.
 */
#include "comm/e3m0.h"
#include "train/inject.h"
#include "train/trainer.h"

#include <errno.h>
#include <string.h>

static struct dt_tensor unit_of(const struct trainer *t, const struct flat *f, int u)
{
	return flat_part(t, f, u, 0, t->local.unit[u].numel);
}

/* Scratch for f32 values of a unit: the memory of its gradients, which the inner update has used. */
static struct dt_tensor room_of(const struct trainer *t, int u)
{
	return dt_t1(t->grads.unit_g[u], DT_F32, t->local.unit[u].numel);
}

static bool in_wire(const struct trainer *t)
{
	return t->outer.wire != NULL;
}

/* Whether unit u is in the fragment in flight. */
static bool turn(const struct trainer *t, int u)
{
	return dt_outer_fragment(&t->run.sync, &t->config, &t->local, u) == t->outer.fragment;
}

/* Encodes a unit's values x, each parameter from a new block on. */
static void put_blocks(const struct trainer *t, int u, struct dt_e3m0 *to, const float *x)
{
	for (int i = 0; i < t->local.n; i++) {
		const struct dt_local_param *lp = &t->local.p[i];

		if (lp->unit != u)
			continue;
		dt_e3m0_put(to, x + (lp->flat - t->local.unit[u].flat), lp->numel);
		to += dt_outer_blocks(lp->numel);
	}
}

/* Adds such values to x. */
static void add_blocks(const struct trainer *t, int u, float *x, const struct dt_e3m0 *from)
{
	for (int i = 0; i < t->local.n; i++) {
		const struct dt_local_param *lp = &t->local.p[i];

		if (lp->unit != u)
			continue;
		dt_e3m0_add(x + (lp->flat - t->local.unit[u].flat), from, lp->numel);
		from += dt_outer_blocks(lp->numel);
	}
}

/* Writes the outer gradient of unit u to the send buffer, in the type that is sent. */
static int to_wire(struct trainer *t, int u, struct dt_tensor d, char *at, struct dt_err *err)
{
	const size_t n = (size_t)dt_numel(d);
	float *here = t->outer.unit ? t->outer.unit : d.data;
	int rc;

	switch ((enum dt_outer_comm)t->run.sync.comm) {
	case DT_OUTER_E3M0:
		rc = t->outer.unit ? device_get(t, here, d.data, n * sizeof(float), err) : 0;
		if (rc == 0)
			put_blocks(t, u, (struct dt_e3m0 *)(void *)at, here);
		return rc;
	case DT_OUTER_BF16:
		return dt_kernel_check(t->dev->ops->convert(t->dev, dt_t1(at, DT_BF16, (int64_t)n), d),
				       "->convert(", err);
	case DT_OUTER_F32:
		break;
	}
	return dt_kernel_check(t->dev->ops->convert(t->dev, dt_t1(at, DT_F32, (int64_t)n), d), "->convert(",
			       err);
}

/* Reads the sum over the ranks of unit u back into d. sent: bytes that each rank has sent. */
static int from_wire(struct trainer *t, int u, struct dt_tensor d, char *at, size_t sent, struct dt_err *err)
{
	const int64_t n = dt_numel(d);
	float *here = t->outer.unit ? t->outer.unit : d.data;

	if (t->run.sync.comm != DT_OUTER_E3M0)
		return dt_kernel_check(
			t->dev->ops->convert(
				t->dev, d,
				dt_t1(at, t->run.sync.comm == DT_OUTER_BF16 ? DT_BF16 : DT_F32, n)),
			"->convert(", err);
	memset(here, 0, (size_t)n * sizeof(float));
	for (int r = 0; r < t->run.layout.dp; r++)
		add_blocks(t, u, here, (const struct dt_e3m0 *)(void *)(at + (size_t)(r + 1) * sent));
	return t->outer.unit ? device_put(t, d.data, here, (size_t)n * sizeof(float), err) : 0;
}

/* Bytes that a rank sends for the fragment. */
static size_t fragment_bytes(const struct trainer *t)
{
	size_t n = 0;

	for (int u = 0; u < t->local.nunit; u++)
		if (turn(t, u))
			n += dt_outer_sent(&t->run.sync, &t->local, u);
	return n;
}

static int send_wire(struct trainer *t, struct dt_err *err)
{
	struct dt_comm *c = dt_mesh_comm(&t->mesh, DT_ON_DATA);
	const size_t n = fragment_bytes(t);
	char *wire = t->outer.wire;

	switch ((enum dt_outer_comm)t->run.sync.comm) {
	case DT_OUTER_E3M0:
		return dt_iall_gather(c, wire + n, wire, n, DT_U8, "outer gradients", &t->outer.req, err);
	case DT_OUTER_BF16:
		return dt_iall_reduce(c, wire, NULL, n / 2, DT_BF16, DT_SUM, "outer gradients", &t->outer.req,
				      err);
	case DT_OUTER_F32:
		break;
	}
	return dt_iall_reduce(c, wire, NULL, n / 4, DT_F32, DT_SUM, "outer gradients", &t->outer.req, err);
}

/* d = merged - master, or zero if the message is to be lost (fault injection). */
static int difference(struct trainer *t, int u, struct dt_err *err)
{
	const struct dt_ops *o = t->dev->ops;
	struct dt_tensor d = room_of(t, u);
	int rc = o->convert(t->dev, d, unit_of(t, &t->outer.merged, u));

	if (rc == 0)
		rc = o->axpy(t->dev, d, -1, unit_of(t, &t->store.master, u));
	if (rc == 0 && t->outer.lost)
		rc = o->scale(t->dev, d, 0);
	return dt_kernel_check(rc, "->axpy(", err);
}

int outer_diloco_begin(struct trainer *t, int fragment, bool all, struct dt_err *err)
{
	struct outer *w = &t->outer;
	size_t at = 0;
	int rc = 0;

	w->fragment = fragment;
	w->lost = !all && inject_drop(t, t->mesh.at.dp);
	w->arrive = 0;
	for (int r = 0; r < t->run.layout.dp; r++)
		w->arrive += all || !inject_drop(t, r);
	for (int u = 0; u < t->local.nunit && rc == 0; u++) {
		if (!turn(t, u))
			continue;
		rc = difference(t, u, err);
		if (rc == 0 && in_wire(t))
			rc = to_wire(t, u, room_of(t, u), w->wire + at, err);
		at += dt_outer_sent(&t->run.sync, &t->local, u);
	}
	return rc == 0 && in_wire(t) && at ? send_wire(t, err) : rc;
}

/* The outer step of a unit with the mean of the arrived outer gradients; sets this rank's weights. */
static int step_unit(struct trainer *t, int u, double mix, struct dt_err *err)
{
	const struct dt_optim nesterov = {.kind = DT_OPTIM_NESTEROV,
					  .lr = (float)t->run.sync.lr,
					  .beta1 = (float)t->run.sync.momentum,
					  .grad_scale = 1,
					  .t = 1};
	const struct dt_ops *o = t->dev->ops;
	struct dt_tensor d = room_of(t, u), merged = unit_of(t, &t->outer.merged, u),
			 master = unit_of(t, &t->store.master, u);
	int rc = o->scale(t->dev, d, 1.0f / (float)t->outer.arrive);

	if (rc == 0)
		rc = o->optim_step(t->dev, &nesterov, DT_NONE, merged, d, unit_of(t, &t->outer.momentum, u),
				   DT_NONE);
	if (rc < 0)
		return dt_kernel_check(rc, "->optim_step(", err);
	if (mix <= 0)
		return dt_kernel_check(o->convert(t->dev, master, merged), "->convert(", err);
	rc = o->scale(t->dev, master, (float)mix);
	if (rc == 0)
		rc = o->axpy(t->dev, master, (float)(1 - mix), merged);
	return dt_kernel_check(rc, "->axpy(", err);
}

int outer_diloco_finish(struct trainer *t, double mix, struct dt_err *err)
{
	struct outer *w = &t->outer;
	const size_t sent = in_wire(t) ? fragment_bytes(t) : 0;
	size_t at = 0;
	int rc = w->req ? dt_wait(&w->req, NULL, err) : 0;

	for (int u = 0; u < t->local.nunit && rc == 0 && w->arrive; u++) {
		struct dt_tensor d = room_of(t, u);

		if (!turn(t, u))
			continue;
		rc = in_wire(t) ? from_wire(t, u, d, w->wire + at, sent, err)
				: dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_DATA), d.data, NULL,
						(size_t)dt_numel(d), DT_F32, DT_SUM, "outer gradients", err);
		if (rc == 0)
			rc = step_unit(t, u, mix, err);
		at += dt_outer_sent(&t->run.sync, &t->local, u);
	}
	w->fragment = -1;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
