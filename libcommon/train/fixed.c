/*
 * --reproducible. A microbatch is one sample. The f32 gradients of each are summed as 64-bit integers
 * (kernels/fixed.h), so that sums do not depend on their order, nor on dp, pp or gradient accumulation. A
 * sample's gradient element may be within +-2^12; the error is 2^-51 per addition. Cost: 8 more bytes per
 * parameter in memory, twice the bytes on the wire, and a pass over 12 bytes per parameter for every sample.
 */
#include "train/trainer.h"

#include <math.h>

int fixed_begin(struct trainer *t, struct dt_err *err)
{
	return dt_kernel_check(
		dt_dev_clear(t->dev, t->grads.fixed, (size_t)t->local.trained * sizeof(*t->grads.fixed)),
		"dt_dev_clear(", err);
}

/* Adds n gradients to the integer sums of the same elements. */
static int add(struct trainer *t, int64_t flat, const float *g, int64_t n, int *ret_out, struct dt_err *err)
{
	return dt_kernel_check(t->dev->ops->fixed_add(t->dev, ret_out,
						      dt_t1(t->grads.fixed + flat, DT_I64, n),
						      dt_t1((void *)g, DT_F32, n)),
			       "->fixed_add(", err);
}

static int add_param(struct trainer *t, const struct dt_local_param *lp, struct dt_err *err)
{
	const float *g = t->grads.unit_g[lp->unit] + (lp->flat - t->local.unit[lp->unit].flat);
	int out, rc = add(t, grad_flat(t, lp), g, lp->numel, &out, err);

	if (rc == 0 && out && !t->grads.bad)
		t->grads.bad = t->table.p[lp->index].name;
	return rc;
}

static int reduce(struct trainer *t, int u, struct dt_err *err)
{
	if (dt_comm_size(unit_comm(t, u)) == 1)
		return 0;
	return dt_iall_reduce(unit_comm(t, u), t->grads.fixed + t->local.unit[u].trained, NULL,
			      (size_t)t->local.unit[u].numel, DT_I64, DT_SUM, "gradients of a unit",
			      &t->grads.unit[u].req, err);
}

int fixed_add(struct trainer *t, int u, bool last, struct dt_err *err)
{
	const struct dt_local_unit *unit = &t->local.unit[u];
	int out, rc = add(t, unit->trained, t->grads.unit_g[u], unit->numel, &out, err);

	/* Out of range: finds the parameter. The sums are lost, so adding twice does no harm. */
	for (int i = 0; i < t->local.n && rc == 0 && out; i++)
		if (t->local.p[i].unit == u)
			rc = add_param(t, &t->local.p[i], err);
	if (rc < 0)
		return rc;
	return last && !tied_apart(t, u) ? reduce(t, u, err) : 0;
}

/*
 * Where one rank has both ends, the last unit's backward comes first, and adds to the embedding's gradient; a
 * head that is tied overwrites it.
 */
int fixed_before(struct trainer *t, int u, struct dt_err *err)
{
	const struct dt_tensor *g = t->config.mtp_layers && !t->config.tied ? embed_grad(t) : NULL;
	int rc = dt_exec_zero_grads(&t->exec, u, 1, err);

	if (rc < 0 || t->local.unit[u].layer < t->config.layers || !holds_embed(t) || !g || !g->data)
		return rc;
	return dt_kernel_check(t->dev->ops->fill(t->dev, *g, 0.0f), "->fill(", err);
}

int fixed_add_head(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	if (!dt_config_shares_embed(&t->config) || !holds_embed(t) || !embed_grad(t)->data)
		return 0;
	for (int i = 0; i < t->local.n && rc == 0; i++)
		if (t->table.p[t->local.p[i].index].role == DT_W_EMBED)
			rc = add_param(t, &t->local.p[i], err);
	/* Zeroes the embedding's own gradient for the next sample. */
	return rc < 0 ? rc : dt_kernel_check(t->dev->ops->fill(t->dev, *embed_grad(t), 0.0f), "->fill(", err);
}

/* First and last stage add up their sums of the tied embedding. */
static int join_tied(struct trainer *t, struct dt_err *err)
{
	int peer = holds_embed(t) ? t->run.layout.pp - 1 : 0, rc = 0;
	int64_t *other = dt_plan_address(&t->plan, t->arena.base, DT_B_TIED, -1);
	struct dt_comm_req *send = NULL;

	for (int i = 0; i < t->local.n && rc == 0; i++) {
		const struct dt_local_param *lp = &t->local.p[i];
		size_t n = (size_t)lp->numel;

		if (t->table.p[lp->index].role != DT_W_EMBED)
			continue;
		rc = dt_isend(dt_mesh_comm(&t->mesh, DT_ON_PP), t->grads.fixed + grad_flat(t, lp), n, DT_I64,
			      peer, 0, "tied embedding's gradient", &send, err);
		if (rc == 0)
			rc = dt_recv(dt_mesh_comm(&t->mesh, DT_ON_PP), other, n, DT_I64, peer, 0,
				     "tied embedding's gradient", err);
		if (rc == 0)
			rc = dt_wait(&send, &t->t.comm[TR_GRADS], err);
		if (rc == 0)
			rc = dt_kernel_check(t->dev->ops->fixed_join(t->dev,
								     dt_t1(t->grads.fixed + grad_flat(t, lp),
									   DT_I64, lp->numel),
								     dt_t1(other, DT_I64, lp->numel)),
					     "->fixed_join(", err);
	}
	return rc;
}

int fixed_finish(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	if (tied_any(t)) {
		rc = join_tied(t, err);
		for (int u = t->local.nunit - 1; u >= 0 && rc == 0; u--)
			if (!t->local.unit[u].frozen && tied_apart(t, u))
				rc = reduce(t, u, err);
	}
	for (int u = t->local.nunit - 1; u >= 0 && rc == 0; u--) {
		const int64_t n = t->local.unit[u].numel;

		if (t->local.unit[u].frozen)
			continue;
		rc = dt_wait(&t->grads.unit[u].req, &t->t.comm[TR_GRADS], err);
		if (rc == 0)
			rc = dt_kernel_check(
				t->dev->ops->fixed_get(
					t->dev, dt_t1(t->grads.unit_g[u], DT_F32, n),
					dt_t1(t->grads.fixed + t->local.unit[u].trained, DT_I64, n)),
				"->fixed_get(", err);
	}
	return rc;
}

double loss_part(const struct trainer *t, double value)
{
	return t->run.reproducible && isfinite(value) ? rint(value * 0x1p24) * 0x1p-24 : value;
}
/* SPDX-License-Identifier: Apache-2.0 */
