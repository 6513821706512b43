#include "train/outer.h"

#include "base/progress.h"
#include "plan/outer.h"
#include "train/trainer.h"

#include <errno.h>

int outer_bind(struct trainer *t, struct dt_err *err)
{
	const bool e3m0 = t->run.sync.comm == DT_OUTER_E3M0;
	int rc = 0;

	t->outer.merged = flat_bind(t, DT_B_OUTER, DT_F32, 1);
	t->outer.momentum = flat_bind(t, DT_B_OUTER_M, DT_F32, 1);
	if (e3m0 && (rc = host_buffer(t, DT_B_OUTER_WIRE, &t->outer.wire, err)) == 0)
		rc = host_buffer(t, DT_B_ON_HOST, &t->outer.unit, err);
	if (!e3m0)
		t->outer.wire = dt_plan_address(&t->plan, t->arena.base, DT_B_OUTER_WIRE, -1);
	t->outer.fragment = -1;
	return rc;
}

void outer_announce(const struct trainer *t)
{
	const struct dt_run_sync *s = &t->run.sync;

	if (!dt_run_alone(&t->run))
		return;
	if (s->from)
		dt_log_msg(&t->root_log, "--sync-from %lld: until this step ranks all-reduce their gradients",
			   (long long)s->from);
	if (t->run.layout.dp == 1) {
		if (s->kind == DT_SYNC_DILOCO)
			dt_log_msg(&t->root_log,
				   "--sync %s: one data-parallel rank takes an outer Nesterov step by the "
				   "change of its weights every %lld steps, and before a checkpoint",
				   s->text, (long long)s->every);
		return;
	}
	if (s->kind == DT_SYNC_GOSSIP) {
		dt_log_msg(&t->root_log,
			   "--sync gossip: each of %d data-parallel ranks averages its weights with %s after "
			   "every step. Weights of ranks differ, the more so the more ranks there are. "
			   "Before a checkpoint weights and optimizer states of all ranks are averaged, so "
			   "results depend on when checkpoints are written",
			   t->run.layout.dp,
			   t->run.layout.dp > 2 ? "those of its two neighbours on a ring"
						: "those of the other rank");
		return;
	}
	dt_log_msg(&t->root_log,
		   "--sync %s: %d data-parallel ranks train alone for %lld steps, then %s; this sends 1/%lld "
		   "of the gradients' bytes. Before a checkpoint weights are merged and optimizer states "
		   "averaged, so results depend on when checkpoints are written",
		   s->text, t->run.layout.dp, (long long)s->every,
		   s->kind == DT_SYNC_LOCAL
			   ? "average their weights"
			   : "take an outer Nesterov step by the mean change of their weights",
		   (long long)s->every);
}

/* Whether unit u has weights that are trained. */
static bool trained(const struct trainer *t, int u)
{
	return !t->local.unit[u].frozen && t->local.unit[u].numel > 0;
}

static struct dt_tensor whole(const struct trainer *t, const struct flat *f, int u)
{
	return flat_part(t, f, u, 0, t->local.unit[u].numel);
}

static int convert(struct trainer *t, const struct flat *to, const struct flat *from, int u,
		   struct dt_err *err)
{
	return dt_kernel_check(t->dev->ops->convert(t->dev, whole(t, to, u), whole(t, from, u)), "->convert(",
			       err);
}

int outer_begin(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	for (int u = 0; u < t->local.nunit && rc == 0 && t->run.sync.kind == DT_SYNC_DILOCO; u++)
		if (trained(t, u))
			rc = convert(t, &t->outer.merged, &t->store.master, u, err);
	return rc;
}

/* Averages x over the data-parallel ranks. */
static int average(struct trainer *t, struct dt_tensor x, const char *what, struct dt_err *err)
{
	struct dt_comm *c = dt_mesh_comm(&t->mesh, DT_ON_DATA);
	int rc = dt_all_reduce(c, x.data, NULL, (size_t)dt_numel(x), x.dtype, DT_SUM, what, err);

	return rc < 0 ? rc
		      : dt_kernel_check(t->dev->ops->scale(t->dev, x, 1.0f / (float)dt_comm_size(c)),
					"->scale(", err);
}

/* local: averages all weights. */
static int merge(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	for (int u = 0; u < t->local.nunit && rc == 0; u++)
		if (trained(t, u))
			rc = average(t, whole(t, &t->store.master, u), "weights", err);
	t->outer.one = true;
	return rc;
}

static int fragments(const struct trainer *t)
{
	return t->run.sync.fragments > 1 ? (int)t->run.sync.fragments : 1;
}

/*
 * Merges all fragments at once, so that all ranks have the same weights. Without --outer-mix the outer
 * gradients in transit do that for their fragment; another outer step would have no gradients, and move the
 * weights by the momentum alone.
 */
static int diloco_all(struct trainer *t, struct dt_err *err)
{
	const double mix = t->run.sync.mix;
	const int merged = mix <= 0 && t->outer.arrive ? t->outer.fragment : -1;
	int rc = t->outer.fragment >= 0 ? outer_diloco_finish(t, mix, err) : 0;

	for (int p = 0; p < fragments(t) && rc == 0; p++) {
		if (p == merged)
			continue;
		rc = outer_diloco_begin(t, p, true, err);
		if (rc == 0)
			rc = outer_diloco_finish(t, 0, err);
	}
	t->outer.one = true;
	return rc;
}

/* Applies and starts the outer gradients that are due after this step. *changed: weights have changed. */
static int diloco(struct trainer *t, bool *changed, struct dt_err *err)
{
	const struct dt_run_sync *s = &t->run.sync;
	struct outer *w = &t->outer;
	int rc = 0;

	if (w->fragment >= 0 && w->since >= w->due) {
		*changed = true;
		rc = outer_diloco_finish(t, s->mix, err);
	}
	for (int p = 0; p < fragments(t) && rc == 0; p++) {
		if ((w->since - dt_outer_turn(s, p)) % s->every)
			continue;
		rc = outer_diloco_begin(t, p, false, err);
		w->due = w->since + s->delay;
		if (rc == 0 && !s->delay) {
			*changed = true;
			w->one = fragments(t) == 1 && s->mix <= 0 && w->arrive;
			rc = outer_diloco_finish(t, s->mix, err);
		}
	}
	return rc;
}

/* Averages a unit's weights with both neighbours'; the previous rank's arrive in the gradients' memory. */
static int mix(struct trainer *t, int u, struct dt_err *err)
{
	const struct dt_ops *o = t->dev->ops;
	const int n = t->run.layout.dp, others = n > 2 ? 2 : n - 1;
	struct dt_tensor w = whole(t, &t->store.master, u),
			 got[2] = {dt_t1(t->grads.unit_g[u], DT_F32, t->local.unit[u].numel),
				   whole(t, &t->outer.merged, u)};
	void *const into[2] = {got[0].data, got[1].data};
	int rc = dt_ring_exchange(dt_mesh_comm(&t->mesh, DT_ON_DATA), w.data, into, (size_t)dt_numel(w),
				  w.dtype, "weights of neighbours", err);

	if (rc < 0)
		return rc;
	for (int k = 0; k < others && rc == 0; k++)
		rc = o->axpy(t->dev, w, 1, got[k]);
	if (rc == 0)
		rc = o->scale(t->dev, w, 1.0f / (float)(others + 1));
	return dt_kernel_check(rc, "->axpy(", err);
}

static int gossip(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	for (int u = 0; u < t->local.nunit && rc == 0; u++)
		if (trained(t, u))
			rc = mix(t, u, err);
	return rc;
}

/* Whether an exchange that may change weights is due after this step. */
static bool is_due(const struct trainer *t)
{
	const struct dt_run_sync *s = &t->run.sync;
	bool due = s->kind == DT_SYNC_GOSSIP || (s->kind == DT_SYNC_LOCAL && t->outer.since % s->every == 0);

	for (int p = 0; p < fragments(t) && s->kind == DT_SYNC_DILOCO; p++)
		due |= (t->outer.since - dt_outer_turn(s, p)) % s->every == 0;
	return due || (t->outer.fragment >= 0 && t->outer.since >= t->outer.due);
}

/* together: all ranks must have the same weights afterwards. */
static int change(struct trainer *t, bool together, struct dt_err *err)
{
	bool changed = true;
	int rc;

	trainer_before_update(t);
	if (t->run.sync.kind == DT_SYNC_DILOCO) {
		changed = together;
		rc = together ? diloco_all(t, err) : diloco(t, &changed, err);
	} else {
		rc = t->run.sync.kind == DT_SYNC_LOCAL || together ? merge(t, err) : gossip(t, err);
	}
	return rc == 0 && changed ? store_publish(t, false, err) : rc;
}

int outer_step(struct trainer *t, bool save, bool end, struct dt_err *err)
{
	double t0 = dt_now();
	int rc = 0;

	t->outer.one = true;
	if (!dt_run_alone(&t->run) || t->loop.step < t->run.sync.from)
		return 0;
	if (t->loop.step == t->run.sync.from) /* the last step with gradients averaged */
		return outer_begin(t, err);
	t->outer.since++;
	t->outer.one = false;
	if (save || end || is_due(t))
		rc = change(t, save || end, err);
	if (save || end)
		t->outer.since = 0;
	for (int k = 0; k < DT_OPTIM_STATES && save; k++)
		for (int u = 0; u < t->local.nunit && rc == 0 && t->optim.state[k].p; u++)
			if (trained(t, u))
				rc = average(t, whole(t, &t->optim.state[k], u), "optimizer states", err);
	t->t.comm[TR_WEIGHTS] += dt_now() - t0;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
