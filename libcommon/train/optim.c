#include "train/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool grads_counted(const struct trainer *t, const struct dt_local_param *lp)
{
	/* Experts of other ranks are here too: with several copies, the first rank counts its copy. */
	if (t->run.layout.ep > 1 && !t->run.layout.zero &&
	    dt_unit_copy(&t->run.layout, &t->local.unit[lp->unit], t->mesh.at) != 0)
		return false;
	return !t->table.p[lp->index].frozen && counts(t, lp);
}

/* Returns n: elements [*first, *first + n) of local parameter i's unit are in this rank's shard. */
static int64_t mine(const struct trainer *t, int i, int64_t *first)
{
	const struct dt_local_param *lp = &t->local.p[i];
	int64_t n = dt_states_share(&t->optim.of, i, first);

	*first += lp->flat - t->local.unit[lp->unit].flat;
	return n;
}

int grads_each(struct trainer *t, grads_part *fn, void *arg, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < t->local.n && rc == 0; i++) {
		const struct dt_local_param *lp = &t->local.p[i];
		int64_t first, n = mine(t, i, &first);

		if (n > 0 && grads_counted(t, lp))
			rc = fn(t, lp, first, n, arg, err);
	}
	return rc;
}

struct dt_comm *grads_holders(const struct trainer *t)
{
	return dt_mesh_comm(&t->mesh, t->run.layout.zero || t->run.layout.ep > 1 ? DT_ON_ALL : DT_ON_MODEL);
}

int grads_unscale(struct trainer *t, struct dt_err *err)
{
	const float by = (float)(1 / t->grads.scale);
	int rc = 0;

	for (int u = 0; u < t->local.nunit && rc == 0 && t->grads.scale != 1; u++)
		if (!t->local.unit[u].frozen)
			rc = t->dev->ops->scale(t->dev, dt_t1(grad_share(t, u), DT_F32, share_n(t, u)), by);
	t->grads.scale = 1;
	return dt_kernel_check(rc, "->scale(", err);
}

#define SPANS 64 /* in one call; more parameters take several calls */

/* Parts of a unit's gradients whose squares are summed in one call, and the parameters they belong to. */
struct spans {
	int unit, n;
	int64_t span[2 * SPANS];
	int param[SPANS];
	double *squares;
};

static int add_squares(struct trainer *t, struct spans *s, struct dt_err *err)
{
	double sum[SPANS];
	int rc = 0;

	if (s->n)
		rc = dt_kernel_check(t->dev->ops->sumsq_spans(t->dev, sum,
							      grad_part(t, s->unit, 0, s->span[2 * s->n - 1]),
							      s->n, s->span),
				     "->sumsq_spans(", err);
	for (int i = 0; i < s->n && rc == 0; i++)
		s->squares[s->param[i]] = sum[i];
	s->n = 0;
	return rc;
}

/* A unit's parameters are consecutive, as are their gradients. */
static int add_square(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n, void *arg,
		      struct dt_err *err)
{
	struct spans *s = arg;
	int rc = s->n == SPANS || (s->n && (lp->unit != s->unit || first < s->span[2 * s->n - 1]))
			 ? add_squares(t, s, err)
			 : 0;

	s->unit = lp->unit;
	s->span[2 * s->n] = first;
	s->span[2 * s->n + 1] = first + n;
	s->param[s->n++] = lp->index;
	return rc;
}

/*
 * The 2-norm over all parameters, each counted once. Squares are summed parameter by parameter in f64, then
 * over the table in its order, so that the result does not depend on which stage has which.
 */
int grad_norm(struct trainer *t, double *ret, struct dt_err *err)
{
	double *squares = t->grads.squares, total = 0;
	struct spans s = {.squares = squares};
	int rc;

	memset(squares, 0, (size_t)t->table.n * sizeof(*squares));
	rc = grads_each(t, add_square, &s, err);
	if (rc == 0)
		rc = add_squares(t, &s, err);
	if (rc == 0)
		rc = dt_all_reduce(grads_holders(t), squares, NULL, (size_t)t->table.n, DT_F64, DT_SUM,
				   "gradient norm", err);
	for (int i = 0; i < t->table.n && rc == 0; i++)
		total += squares[i];
	*ret = sqrt(total);
	return rc;
}

/* Limits of the dynamic loss scale; it doubles after SCALE_STEPS good steps (Micikevicius et al. 2018). */
#define SCALE_MIN   1.0
#define SCALE_MAX   0x1p24
#define SCALE_STEPS 2000

int optim_bind(struct trainer *t, struct dt_err *err)
{
	static const enum dt_buf_id id[DT_OPTIM_STATES] = {DT_B_OPTIM1, DT_B_OPTIM2};
	const struct dt_optim_rule *rule = dt_optim_rule(t->run.optim.kind);
	struct optim *o = &t->optim;

	o->of = (struct dt_states){&t->table, &t->local, &t->run.layout, t->mesh.at};
	o->direction = flat_bind(t, DT_B_DIRECTION, DT_F32, 1);
	o->loss_scale = t->run.loss_scale != 0 ? t->run.loss_scale : t->run.loss_scale_start;
	for (int i = 0; i < DT_OPTIM_STATES; i++) {
		if (rule->state[i].shape == DT_STATE_EACH || rule->state[i].shape == DT_STATE_NONE) {
			o->state[i] = t->offload.tiles.states && i < dt_optim_states(t->run.optim.kind)
					      ? offload_flat(t, dt_tiles_state(&t->offload.tiles, i))
					      : flat_bind(t, id[i], rule->state[i].dtype, 1);
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

/*
 * Updates elements [first, first + n) of local parameter i's unit, all in memory: the whole shard of the
 * parameter, unless states are offloaded. Offloaded states have one value an element.
 */
static int update_part(struct trainer *t, int i, struct optim_list *l, int64_t first, int64_t n, void *arg,
		       struct dt_err *err)
{
	const struct dt_local_param *lp = &t->local.p[i];
	const struct flat none = {0}, *copy = store_rounds(t) ? &t->store.weights : &none;
	struct dt_tensor state[DT_OPTIM_STATES];
	int u = lp->unit;

	if (t->store.master.dtype != DT_F32)
		return round_update(t, lp, &l->o, first - (lp->flat - t->local.unit[u].flat), n, err);
	for (int k = 0; k < DT_OPTIM_STATES; k++)
		state[k] = t->optim.place[k] ? optim_state(t, k, i)
					     : flat_part(t, &t->optim.state[k], u, first, n);
	return optim_add(l, flat_part(t, copy, u, first, n), flat_part(t, &t->store.master, u, first, n),
			 grad_part(t, u, first, n), state[0], state[1], err);
}

/*
 * Layer-wise learning rate decay: a parameter's rate is lr X^(layers above it), so final norm and head have
 * factor 1 and the embedding the smallest (Clark et al. 2020, ELECTRA); times its factor of --lr-scale.
 */
static float of_layer(const struct trainer *t, const struct dt_param *p, double lr)
{
	double x = t->run.layer_decay > 0 ? t->run.layer_decay : 1;

	return (float)(lr * p->rate * pow(x, (double)(t->config.layers - p->layer)));
}

/* Sets the constants that differ between parameters: weight decay and learning rate. */
static void of_param(const struct trainer *t, struct dt_optim *o, const struct dt_param *p, double lr)
{
	o->weight_decay = p->decay ? t->run.optim.weight_decay : 0;
	o->lr = of_layer(t, p, lr);
}

int optim_part(struct trainer *t, struct optim_list *l, double lr, int i, int64_t first, int64_t n,
	       struct dt_err *err)
{
	of_param(t, &l->o, &t->table.p[t->local.p[i].index], lr);
	return update_part(t, i, l, first, n, NULL, err);
}

int optim_each(struct trainer *t, struct optim_list *l, double lr, const struct dt_states *of,
	       optim_update_fn *part, void *arg, struct dt_err *err)
{
	const bool moves = t->offload.tiles.n > 0; /* offloaded elements may be replaced by the next */

	for (int i = 0; i < t->local.n; i++) {
		const struct dt_local_param *lp = &t->local.p[i];
		int64_t first, n = dt_states_share(of, i, &first), m;

		if (n <= 0 || t->table.p[lp->index].frozen)
			continue;
		first += lp->flat - t->local.unit[lp->unit].flat;
		of_param(t, &l->o, &t->table.p[lp->index], lr);
		for (; n > 0; first += m, n -= m) {
			int rc;

			m = offload_hold(t, OFFLOAD_EVERY, lp->unit, first, n, OFFLOAD_CHANGE, err);
			rc = m < 0 ? (int)m : part(t, i, l, first, m, arg, err);
			if (rc == 0 && moves)
				rc = optim_flush(l, err);
			if (rc < 0)
				return rc;
		}
	}
	return optim_flush(l, err);
}

struct dt_optim optim_rule(const struct trainer *t, double lr, double norm)
{
	struct dt_optim o = t->run.optim;

	o.lr = (float)lr;
	if (t->run.momentum_correction && t->optim.rate > 0) /* Goyal et al. 2017, section 3 */
		o.beta1 *= (float)(lr / t->optim.rate);
	o.t = t->loop.step + 1;
	o.grad_scale = (float)((t->run.clip > 0 && norm > t->run.clip ? t->run.clip / norm : 1) /
			       t->optim.loss_scale);
	return o;
}

static int update(struct trainer *t, double lr, double norm, struct dt_err *err)
{
	struct optim_list l = {.dev = t->dev, .o = optim_rule(t, lr, norm)};
	int rc;

	trainer_before_update(t);
	rc = t->behind.on ? behind_finish(t, err)
	     : dt_optim_rule(l.o.kind)->flags & DT_OPTIM_WHOLE
		     ? whole_update(t, &l.o, err)
		     : optim_each(t, &l, lr, &t->optim.of, update_part, NULL, err);
	if (rc == 0 && dt_run_copies_peer(&t->run)) {
		const struct dt_states before = peer_states(t);

		rc = optim_each(t, &l, lr, &before, peer_update, NULL, err);
	}
	return rc;
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
	if (rc == 0) {
		o->updated = t->loop.step + 1;
		o->rate = lr;
	}
	return rc;
}

int optim_publish(struct trainer *t, struct dt_err *err)
{
	if (t->run.qat)
		return store_publish(t, false, err);
	return t->run.layout.zero ? store_publish(t, true, err) : offload_settle(t, err);
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
	int rc = dt_json_real(json_object_get(meta, "optimizer"), "rate", false, &t->optim.rate, err);

	if (rc < 0)
		return rc;
	if (!scaler || t->run.loss_scale != 0)
		return 0;
	rc = dt_json_real(scaler, "scale", true, &t->optim.loss_scale, err);
	return rc < 0 ? rc : dt_json_int(scaler, "good_steps", true, 0, INT64_MAX, &t->optim.good_steps, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
