/*
 * --reproducible. The microbatch is one sample; the f32 gradients of each are added up as 64-bit integers in
 * units of 2^-50, and integer sums do not depend on their order. So neither do they on dp, pp or
 * accumulation. Range +-2^12 a sample's gradient element, error 2^-51 an addition; cost: 8 bytes more a
 * parameter in memory, twice the bytes on the wire, and a pass over 12 bytes a parameter for every sample.
 */
#include "train/trainer.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define UNIT  0x1p-50
#define LIMIT 0x1p12

int fixed_begin(struct trainer *t, struct dt_err *err)
{
	memset(t->fixed, 0, (size_t)t->local.numel * sizeof(*t->fixed));
	return 0;
}

/* sum[i] += g[i]; whether all were in range. NaN is not. */
static bool add(int64_t *restrict sum, const float *restrict g, int64_t n)
{
	int out = 0;

#pragma omp parallel for reduction(| : out) schedule(static)
	for (int64_t i = 0; i < n; i++) {
		bool in = fabsf(g[i]) < (float)LIMIT;

		out |= !in;
		sum[i] += in ? llrint((double)g[i] / UNIT) : 0;
	}
	return !out;
}

static void add_param(struct trainer *t, const struct dt_local_param *lp)
{
	const float *g = t->unit_g[lp->unit] + (lp->flat - t->local.unit[lp->unit].flat);

	if (!add(t->fixed + lp->flat, g, lp->numel) && !t->bad)
		t->bad = t->table.p[lp->index].name;
}

static int reduce(struct trainer *t, int u, struct dt_err *err)
{
	if (dt_comm_size(t->mesh.dp) == 1)
		return 0;
	return dt_iall_reduce(t->mesh.dp, t->fixed + t->local.unit[u].flat, NULL,
			      (size_t)t->local.unit[u].numel, DT_I64, DT_SUM, "gradients of a unit",
			      &t->unit[u].req, err);
}

int fixed_add(struct trainer *t, int u, bool last, struct dt_err *err)
{
	for (int i = 0; i < t->local.n; i++)
		if (t->local.p[i].unit == u)
			add_param(t, &t->local.p[i]);
	return last && !tied_apart(t, u) ? reduce(t, u, err) : 0;
}

int fixed_add_head(struct trainer *t, struct dt_err *err)
{
	if (!t->config.tied || !t->model.has_embed)
		return 0;
	for (int i = 0; i < t->local.n; i++)
		if (t->table.p[t->local.p[i].index].role == DT_W_EMBED)
			add_param(t, &t->local.p[i]);
	/* The embedding's own gradient starts from nothing. */
	return dt_kernel_check(t->dev->ops->fill(t->dev, t->model.embed.g[DT_W_EMBED], 0.0f), "->fill(", err);
}

/* First and last stage add up their sums of the embedding they share. */
static int join_tied(struct trainer *t, struct dt_err *err)
{
	int peer = t->model.has_embed ? t->layout.pp - 1 : 0, rc = 0;
	int64_t *other = dt_plan_address(&t->plan, t->arena.base, DT_B_TIED, -1, -1, -1);
	struct dt_req *send = NULL;

	for (int i = 0; i < t->local.n && rc == 0; i++) {
		const struct dt_local_param *lp = &t->local.p[i];
		size_t n = (size_t)lp->numel;

		if (t->table.p[lp->index].role != DT_W_EMBED)
			continue;
		rc = dt_isend(t->mesh.pp, t->fixed + lp->flat, n, DT_I64, peer, 0,
			      "tied embedding's gradient", &send, err);
		if (rc == 0)
			rc = dt_recv(t->mesh.pp, other, n, DT_I64, peer, 0, "tied embedding's gradient", err);
		if (rc == 0)
			rc = dt_wait(&send, &t->t.comm[TR_GRADS], err);
		for (size_t k = 0; k < n && rc == 0; k++)
			t->fixed[lp->flat + (int64_t)k] += other[k];
	}
	return rc;
}

int fixed_finish(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	if (tied_apart(t, t->model.has_embed ? 0 : t->local.nunit - 1)) {
		rc = join_tied(t, err);
		for (int u = t->local.nunit - 1; u >= 0 && rc == 0; u--)
			if (tied_apart(t, u))
				rc = reduce(t, u, err);
	}
	for (int u = t->local.nunit - 1; u >= 0 && rc == 0; u--) {
		const int64_t *sum = t->fixed + t->local.unit[u].flat;
		float *g = t->unit_g[u];
		int64_t n = t->local.unit[u].numel;

		rc = dt_wait(&t->unit[u].req, &t->t.comm[TR_GRADS], err);
#pragma omp parallel for schedule(static)
		for (int64_t i = 0; i < n; i++)
			g[i] = (float)((double)sum[i] * UNIT);
	}
	return rc;
}

double loss_part(const struct trainer *t, double value)
{
	return t->o->reproducible && isfinite(value) ? rint(value * 0x1p24) * 0x1p-24 : value;
}
