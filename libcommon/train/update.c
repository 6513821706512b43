#include "train/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* Elements [*first, *first + n) of unit lp->unit that are both lp's and this rank's. */
static int64_t overlap(const struct trainer *t, const struct dt_local_param *lp, int64_t *first)
{
	int u = lp->unit;
	int64_t lo = lp->flat - t->local.unit[u].flat, hi = lo + lp->numel, s = share_first(t, u);

	*first = lo > s ? lo : s;
	if (hi > s + share_n(t, u))
		hi = s + share_n(t, u);
	return hi - *first;
}

/*
 * The 2-norm over all parameters, each counted once. Squares are summed parameter by parameter in f64, then
 * over the table in its order, so that the result does not depend on which stage has which.
 */
int grad_norm(struct trainer *t, double *ret, struct dt_err *err)
{
	double *squares = calloc((size_t)t->table.n, sizeof(*squares)), total = 0;
	int rc = squares ? 0 : dt_err_sys(err, -ENOMEM, "cannot sum the gradients");

	for (int i = 0; i < t->local.n && rc == 0; i++) {
		const struct dt_local_param *lp = &t->local.p[i];
		int64_t first, n = overlap(t, lp, &first);

		if (n > 0 && counts(t, lp))
			rc = dt_kernel_check(
				t->dev->ops->sumsq(
					t->dev, &squares[lp->index],
					dt_t1(grad_share(t, lp->unit) + (first - share_first(t, lp->unit)),
					      DT_F32, n)),
				"->sumsq(", err);
	}
	if (rc == 0)
		rc = dt_all_reduce(t->run.layout.zero ? t->mesh.world : t->mesh.model, squares, NULL,
				   (size_t)t->table.n, DT_F64, DT_SUM, "gradient norm", err);
	for (int i = 0; i < t->table.n && rc == 0; i++)
		total += squares[i];
	free(squares);
	*ret = sqrt(total) / t->loss_scale;
	return rc;
}

struct dt_tensor flat_part(const struct trainer *t, const struct flat *f, int u, int64_t first, int64_t n)
{
	return f->p ? dt_t1(flat_at(t, f, u, first), f->dtype, n) : DT_NONE;
}

struct dt_tensor grad_part(const struct trainer *t, int u, int64_t first, int64_t n)
{
	return dt_t1(grad_share(t, u) + (first - share_first(t, u)), DT_F32, n);
}

int update(struct trainer *t, double lr, double norm, struct dt_err *err)
{
	struct dt_optim o = t->run.optim;
	const struct flat none = {0}, *copy = t->master.p == t->weights.p ? &none : &t->weights;

	trainer_before_update(t);
	o.lr = (float)lr;
	o.t = t->step + 1;
	o.grad_scale =
		(float)((t->run.clip > 0 && norm > t->run.clip ? t->run.clip / norm : 1) / t->loss_scale);
	for (int i = 0; i < t->local.n; i++) {
		const struct dt_local_param *lp = &t->local.p[i];
		int u = lp->unit, rc;
		int64_t first, n = overlap(t, lp, &first);

		if (n <= 0)
			continue;
		o.weight_decay = t->table.p[lp->index].decay ? t->run.optim.weight_decay : 0;
		if (t->master.dtype != DT_F32)
			rc = round_update(t, lp, &o, first - (lp->flat - t->local.unit[u].flat), n, err);
		else
			rc = dt_kernel_check(t->dev->ops->optim_step(t->dev, &o,
								     flat_part(t, copy, u, first, n),
								     flat_part(t, &t->master, u, first, n),
								     grad_part(t, u, first, n),
								     flat_part(t, &t->state[0], u, first, n),
								     flat_part(t, &t->state[1], u, first, n)),
					     "->optim_step(", err);
		if (rc < 0)
			return rc;
	}
	return t->run.layout.zero ? units_publish(t, err) : 0;
}
