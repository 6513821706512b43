#include "train/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

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
		int64_t start = lp->flat - t->local.unit[lp->unit].flat, first,
			n = dt_states_share(&t->optim.of, i, &first);

		if (n > 0 && whole_counts(t, lp))
			rc = dt_kernel_check(t->dev->ops->sumsq(t->dev, &squares[lp->index],
								grad_part(t, lp->unit, start + first, n)),
					     "->sumsq(", err);
	}
	if (rc == 0)
		rc = whole_sum(t, squares, t->table.n, "gradient norm", err);
	for (int i = 0; i < t->table.n && rc == 0; i++)
		total += squares[i];
	free(squares);
	*ret = sqrt(total);
	return rc;
}

/* Smallest and largest dynamic scale; doubled after so many good steps (Micikevicius et al. 2018). */
#define SCALE_MIN   1.0
#define SCALE_MAX   0x1p24
#define SCALE_STEPS 2000

int optim_bind(struct trainer *t, struct dt_err *err)
{
	static const enum dt_buf_id id[DT_OPTIM_STATES] = {DT_B_OPTIM1, DT_B_OPTIM2};
	const struct dt_optim_rule *rule = dt_optim_rule(t->run.optim.kind);
	struct optim *o = &t->optim;

	o->of = (struct dt_states){&t->table, &t->local, &t->run.layout, t->mesh.at};
	o->loss_scale = t->run.loss_scale != 0 ? t->run.loss_scale : t->run.loss_scale_start;
	for (int i = 0; i < DT_OPTIM_STATES; i++) {
		if (rule->state[i].shape == DT_STATE_EACH || rule->state[i].shape == DT_STATE_NONE) {
			o->state[i] = flat_bind(t, id[i], rule->state[i].dtype, 1);
			continue;
		}
		o->apart[i] = dt_plan_address(&t->plan, t->arena.base, id[i], -1);
		o->place[i] = calloc((size_t)t->local.n + 1, sizeof(*o->place[i]));
		if (!o->place[i])
			return dt_err_sys(err, -ENOMEM, "cannot bind the optimizer's states");
		dt_states_place(&o->of, &rule->state[i], o->place[i]);
	}
	return 0;
}

void optim_release(struct trainer *t)
{
	for (int i = 0; i < DT_OPTIM_STATES; i++)
		free(t->optim.place[i]);
}

struct dt_tensor optim_state(const struct trainer *t, int k, int i)
{
	const struct dt_optim_state *s = &dt_optim_rule(t->run.optim.kind)->state[k];
	const struct dt_local_param *lp = &t->local.p[i];
	int64_t first, n = dt_states_share(&t->optim.of, i, &first);

	if (s->shape == DT_STATE_NONE)
		return DT_NONE;
	if (s->shape == DT_STATE_EACH)
		return flat_part(t, &t->optim.state[k], lp->unit,
				 lp->flat - t->local.unit[lp->unit].flat + first, n);
	if (t->optim.place[k][i] < 0)
		return DT_NONE;
	return dt_t1(t->optim.apart[k] + t->optim.place[k][i], s->dtype, dt_states_count(&t->optim.of, s, i));
}

bool optim_overflowed(struct trainer *t)
{
	if (t->run.loss_scale != 0 || t->optim.loss_scale <= SCALE_MIN)
		return false;
	t->optim.loss_scale /= 2;
	t->optim.good_steps = 0;
	return true;
}

/* Elements of local parameter i that are this rank's, each by itself. */
static int update_param(struct trainer *t, struct dt_optim *o, int i, struct dt_err *err)
{
	static const struct flat none = {0};
	const struct dt_local_param *lp = &t->local.p[i];
	const struct flat *copy = t->store.master.p == t->store.weights.p ? &none : &t->store.weights;
	int64_t start = lp->flat - t->local.unit[lp->unit].flat, first,
		n = dt_states_share(&t->optim.of, i, &first);
	int u = lp->unit;

	if (n <= 0 || t->table.p[lp->index].frozen)
		return 0;
	o->weight_decay = t->table.p[lp->index].decay ? t->run.optim.weight_decay : 0;
	if (t->store.master.dtype != DT_F32)
		return round_update(t, lp, o, first, n, err);
	return dt_kernel_check(t->dev->ops->optim_step(t->dev, o, flat_part(t, copy, u, start + first, n),
						       flat_part(t, &t->store.master, u, start + first, n),
						       grad_part(t, u, start + first, n),
						       optim_state(t, 0, i), optim_state(t, 1, i)),
			       "->optim_step(", err);
}

static int update(struct trainer *t, double lr, double norm, struct dt_err *err)
{
	struct dt_optim o = t->run.optim;
	int rc = 0;

	trainer_before_update(t);
	o.lr = (float)lr;
	o.t = t->loop.step + 1;
	o.grad_scale = (float)((t->run.clip > 0 && norm > t->run.clip ? t->run.clip / norm : 1) /
			       t->optim.loss_scale);
	if (dt_optim_rule(o.kind)->flags & DT_OPTIM_WHOLE)
		rc = whole_update(t, &o, err);
	else
		for (int i = 0; i < t->local.n && rc == 0; i++)
			rc = update_param(t, &o, i, err);
	return rc == 0 && t->run.layout.zero ? store_publish(t, err) : rc;
}

int optim_norm(struct trainer *t, double *ret, struct dt_err *err)
{
	int rc = grad_norm(t, ret, err);

	*ret /= t->optim.loss_scale;
	return rc;
}

int optim_step(struct trainer *t, double lr, double norm, struct dt_err *err)
{
	struct optim *o = &t->optim;
	int rc = update(t, lr, norm, err);

	if (rc == 0 && t->run.loss_scale == 0 && ++o->good_steps == SCALE_STEPS) {
		o->loss_scale = o->loss_scale < SCALE_MAX ? 2 * o->loss_scale : o->loss_scale;
		o->good_steps = 0;
	}
	return rc;
}

json_t *optim_to_json(const struct trainer *t)
{
	if (t->run.loss_scale != 0)
		return NULL;
	return json_pack("{s:f, s:I}", "scale", t->optim.loss_scale, "good_steps",
			 (json_int_t)t->optim.good_steps);
}

int optim_from_json(struct trainer *t, const json_t *meta, struct dt_err *err)
{
	const json_t *scaler = json_object_get(meta, "loss_scale");
	int rc;

	if (!scaler || t->run.loss_scale != 0)
		return 0;
	rc = dt_json_real(scaler, "scale", true, &t->optim.loss_scale, err);
	return rc < 0 ? rc : dt_json_int(scaler, "good_steps", true, 0, INT64_MAX, &t->optim.good_steps, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
