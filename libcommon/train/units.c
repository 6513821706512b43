/*
 * Where the values of a unit lie under each ZeRO stage (Rajbhandari et al. 2020; Zhao et al. 2023 for z3):
 *   z1  this rank keeps masters and optimizer states of one dp-th of every unit; weights and gradients are
 * whole z2  gradients too: a layer's are computed in one of two slots, scattered, and added to the share z3
 * weights too: a layer's are gathered into one of two slots before it computes, the next layer's while it
 * does The embedding and the final unit have slots of their own; they are gathered once a step and scattered
 * at its end.
 */
#include "train/trainer.h"

#include "base/progress.h"

#include <errno.h>
#include <stdlib.h>

static int64_t shares(const struct trainer *t)
{
	return t->run.layout.zero ? t->run.layout.dp : 1;
}

int64_t share_n(const struct trainer *t, int u)
{
	return t->local.unit[u].numel / shares(t);
}

int64_t share_first(const struct trainer *t, int u)
{
	return t->run.layout.zero ? t->mesh.at.dp * share_n(t, u) : 0;
}

void *flat_at(const struct trainer *t, const struct flat *f, int u, int64_t i)
{
	int64_t at = t->local.unit[u].flat;

	at = f->shared ? at / shares(t) + i - share_first(t, u) : at + i;
	return f->p + at * dt_dtype_size(f->dtype);
}

float *grad_share(const struct trainer *t, int u)
{
	/* An in-place reduce-scatter leaves the share at the start of the unit. */
	return t->grads.shared ? flat_at(t, &t->grads, u, share_first(t, u)) : flat_at(t, &t->grads, u, 0);
}

static struct flat flat(struct trainer *t, enum dt_buf_id id, enum dt_dtype dtype, int shared_from)
{
	return (struct flat){.p = dt_plan_address(&t->plan, t->arena.base, id, -1),
			     .dtype = dtype,
			     .shared = t->run.layout.zero >= shared_from};
}

int units_bind(struct trainer *t, struct dt_err *err)
{
	int n = t->local.nunit;

	t->weights = flat(t, DT_B_WEIGHTS, t->run.compute, 3);
	t->master = flat(t, DT_B_MASTER, DT_F32, 1);
	if (!t->master.p)
		t->master = t->weights; /* f32, or bf16 without masters */
	t->grads = flat(t, DT_B_GRADS, DT_F32, 2);
	t->state[0] = flat(t, DT_B_OPTIM1, DT_F32, 1);
	t->state[1] = flat(t, DT_B_OPTIM2, DT_F32, 1);
	t->wire = flat(t, DT_B_WIRE, t->run.grad_comm, 2);
	t->fixed = dt_plan_address(&t->plan, t->arena.base, DT_B_FIXED, -1);
	t->unit_w = calloc((size_t)n, sizeof(*t->unit_w));
	t->unit_g = calloc((size_t)n, sizeof(*t->unit_g));
	t->unit_wire = calloc((size_t)n, sizeof(*t->unit_wire));
	if (!t->unit_w || !t->unit_g || !t->unit_wire)
		return dt_err_sys(err, -ENOMEM, "cannot bind the weights");
	for (int u = 0; u < n; u++) {
		int slot = dt_unit_slot(&t->local, u, t->config.layers);

		t->unit_w[u] = t->weights.shared ? dt_plan_address(&t->plan, t->arena.base, DT_B_UNIT_W, slot)
						 : flat_at(t, &t->weights, u, 0);
		t->unit_g[u] = t->grads.shared ? dt_plan_address(&t->plan, t->arena.base, DT_B_UNIT_G, slot)
					       : flat_at(t, &t->grads, u, 0);
		t->unit_wire[u] = t->grads.shared ? dt_plan_address(&t->plan, t->arena.base, DT_B_WIRE, slot)
				  : t->wire.p	  ? flat_at(t, &t->wire, u, 0)
						  : NULL;
		if (!t->wire.p)
			t->wire.p = t->unit_wire[u];
	}
	for (int k = 0; k < DT_UNIT_SLOTS; k++)
		t->held[k] = -1;
	t->grad_held[0] = t->grad_held[1] = -1;
	return 0;
}

void units_release(struct trainer *t)
{
	free(t->unit_w);
	free(t->unit_g);
	free(t->unit_wire);
}

static int start_gather(struct trainer *t, int u, struct dt_err *err)
{
	int slot = dt_unit_slot(&t->local, u, t->config.layers), rc;
	double t0;

	t->held[slot] = u;
	t0 = dt_now();
	rc = dt_iall_gather(t->mesh.dp, t->unit_w[u], flat_at(t, &t->weights, u, share_first(t, u)),
			    (size_t)share_n(t, u), t->weights.dtype, "weights of a unit", &t->gather[slot],
			    err);
	t->t.comm[TR_WEIGHTS] += dt_now() - t0;
	return rc;
}

/* Unit u is about to compute: its weights are here when this returns, its successor's on their way. */
int units_gather(struct trainer *t, int u, bool backward, struct dt_err *err)
{
	int slot = dt_unit_slot(&t->local, u, t->config.layers), next = backward ? u - 1 : u + 1, rc = 0;

	if (!t->weights.shared)
		return 0;
	if (t->held[slot] != u)
		rc = start_gather(t, u, err);
	if (rc == 0)
		rc = dt_wait(&t->gather[slot], &t->t.comm[TR_WEIGHTS], err);
	if (rc < 0 || next < 0 || next >= t->local.nunit)
		return rc;
	slot = dt_unit_slot(&t->local, next, t->config.layers);
	return t->held[slot] == next ? 0 : start_gather(t, next, err);
}

int units_publish(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	for (int k = 0; k < DT_UNIT_SLOTS; k++)
		t->held[k] = -1;
	for (int u = 0; u < t->local.nunit && rc == 0; u++) {
		int64_t first = share_first(t, u), n = share_n(t, u);

		if (t->master.p != t->weights.p)
			rc = dt_kernel_check(
				t->dev->ops->convert(
					t->dev, dt_t1(flat_at(t, &t->weights, u, first), t->weights.dtype, n),
					dt_t1(flat_at(t, &t->master, u, first), DT_F32, n)),
				"->convert(", err);
		if (rc == 0 && t->run.layout.zero && !t->weights.shared)
			rc = dt_all_gather(t->mesh.dp, flat_at(t, &t->weights, u, 0), NULL, (size_t)n,
					   t->weights.dtype, "weights of a unit", err);
	}
	return rc;
}
