#include "train/trainer.h"

#include <math.h>

/* Whether every rank of a tensor-parallel group holds this parameter whole. */
static bool replicated(const struct trainer *t, const struct dt_param *p)
{
	return t->layout.tp > 1 && p->cut == DT_CUT_NONE;
}

/*
 * The 2-norm over all parameters, each counted once: what a tensor-parallel group holds in common is added by
 * its first rank only. Squares are summed parameter by parameter in f64, in table order.
 */
int grad_norm(struct trainer *t, double *ret, struct dt_err *err)
{
	double total = 0, one;
	int rc;

	for (int i = 0; i < t->local.n; i++) {
		const struct dt_local_param *lp = &t->local.p[i];

		if (replicated(t, &t->table.p[lp->index]) && t->mesh.at.tp != 0)
			continue;
		rc = t->dev->ops->sumsq(t->dev, &one, dt_t1(t->grads + lp->flat, DT_F32, lp->numel));
		if (rc < 0)
			return dt_kernel_check(rc, "->sumsq(", err);
		total += one;
	}
	rc = dt_all_reduce(t->mesh.model, &total, NULL, 1, DT_F64, DT_SUM, "gradient norm", err);
	*ret = sqrt(total);
	return rc;
}

/* One optimizer call over each run of neighbours with the same weight decay. */
int update(struct trainer *t, double lr, double norm, struct dt_err *err)
{
	struct dt_optim o = t->o->optim;
	const struct dt_local_param *lp = t->local.p;

	o.lr = (float)lr;
	o.t = t->step + 1;
	o.grad_scale = t->o->clip > 0 && norm > t->o->clip ? (float)(t->o->clip / norm) : 1.0f;
	for (int i = 0, j; i < t->local.n; i = j) {
		bool decay = t->table.p[lp[i].index].decay;
		int64_t first = lp[i].flat, n;
		int rc;

		for (j = i; j < t->local.n && t->table.p[lp[j].index].decay == decay; j++)
			;
		n = lp[j - 1].flat + lp[j - 1].numel - first;
		o.weight_decay = decay ? t->o->optim.weight_decay : 0;
		rc = t->dev->ops->optim_step(
			t->dev, &o,
			t->o->compute == DT_F32
				? DT_NONE
				: dt_t1((char *)t->weights + first * dt_dtype_size(t->o->compute),
					t->o->compute, n),
			dt_t1(t->master + first, DT_F32, n), dt_t1(t->grads + first, DT_F32, n),
			t->state[0] ? dt_t1(t->state[0] + first, DT_F32, n) : DT_NONE,
			t->state[1] ? dt_t1(t->state[1] + first, DT_F32, n) : DT_NONE);
		if (rc < 0)
			return dt_kernel_check(rc, "->optim_step(", err);
	}
	return 0;
}
