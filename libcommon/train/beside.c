#include "train/beside.h"

#include "plan/objective.h"
#include "train/trainer.h"

void beside_bind(struct trainer *t)
{
	t->beside.flat = flat_bind(t, DT_B_REFERENCE, t->run.compute, 3);
}

int beside_fill(struct trainer *t, struct dt_err *err)
{
	const struct flat *f = &t->beside.flat;

	for (int i = 0; i < t->local.n && f->p; i++) {
		const struct dt_local_param *lp = &t->local.p[i];
		const struct dt_local_unit *u = &t->local.unit[lp->unit];
		/* Relative to the unit: the parameter is [start, end), this rank's part [mine, mine + n). */
		const int64_t start = lp->flat - u->flat, end = start + lp->numel,
			      mine = f->shared ? share_first(t, lp->unit) : 0,
			      n = f->shared ? share_n(t, lp->unit) : u->numel;
		const int64_t first = start > mine ? start : mine, last = end < mine + n ? end : mine + n;
		int rc = first < last ? store_put_initial(t, f, lp, first - start, last - first, err) : 0;

		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Swaps the weights with the copy: programs compute with the copy until the next call. */
static int swap_weights(struct trainer *t, struct dt_err *err)
{
	char *weights = t->store.weights.p, *copy = t->beside.flat.p;
	int rc = store_drop(t, err);

	t->store.weights.p = copy;
	t->beside.flat.p = weights;
	for (int i = 0; i < t->local.n && !t->store.weights.shared; i++)
		t->exec.w[i].data = (char *)t->exec.w[i].data + (copy - weights);
	return rc;
}

/* Runs forward over this rank's samples of the step; look receives each flight's results. */
static int pass(struct trainer *t,
		int (*look)(void *, const struct dt_flight *, const float *, float *, double *,
			    struct dt_err *),
		struct dt_err *err)
{
	const int64_t mb = t->run.microbatch, each = mb * t->run.layout.dp, at = t->loop.cursor;
	struct given *g = &t->source.given;
	double loss = 0;
	int rc = 0;

	t->exec.objective.judge = look;
	for (int64_t k = 0; k < g->rounds && rc == 0; k++)
		rc = pipeline_forward(t, false, at + k * each + t->mesh.at.dp * mb, at + g->now.rows, &loss,
				      err);
	t->exec.objective.judge = g->g->judge;
	return rc;
}

static int ask_reference(struct trainer *t, struct dt_err *err)
{
	const bool copy = t->beside.flat.p != NULL;
	int rc = copy ? swap_weights(t, err) : 0;

	t->exec.adapters_off = !copy;
	if (rc == 0)
		rc = pass(t, t->source.given.g->keep, err);
	t->exec.adapters_off = false;
	return rc == 0 && copy ? swap_weights(t, err) : rc;
}

int beside_ask(struct trainer *t, struct dt_err *err)
{
	const struct dt_given *g = t->source.given.g;
	int rc = dt_objective_rule(t->run.objective.kind)->values ? pass(t, g->look, err) : 0;

	if (rc == 0 && dt_run_asks_reference(&t->run))
		rc = ask_reference(t, err);
	return rc == 0 ? g->ready(g->arg, err) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
