#include "train/beside.h"

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
		/* of the unit: the parameter is [start, end), what this rank holds [mine, mine + n) */
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

/* Programs compute with the copy until the next call. */
static int swap_weights(struct trainer *t, struct dt_err *err)
{
	char *weights = t->store.weights.p, *copy = t->beside.flat.p;
	int rc = 0;

	for (int k = 0; k < DT_UNIT_SLOTS && rc == 0; k++) {
		rc = dt_wait(&t->store.gather[k], &t->t.comm[TR_WEIGHTS], err);
		t->store.held[k] = -1;
	}
	t->store.weights.p = copy;
	t->beside.flat.p = weights;
	for (int i = 0; i < t->local.n && !t->store.weights.shared; i++)
		t->exec.w[i].data = (char *)t->exec.w[i].data + (copy - weights);
	return rc;
}

/* All rows of the step through the reference, each rank its own, in the flights of the step. */
static int ask_reference(struct trainer *t, struct dt_err *err)
{
	const int64_t mb = t->run.microbatch, each = mb * t->run.layout.dp, at = t->loop.cursor;
	const bool copy = t->beside.flat.p != NULL;
	struct given *g = &t->source.given;
	double loss = 0;
	int rc = copy ? swap_weights(t, err) : 0;

	t->exec.objective.judge = g->g->keep;
	t->exec.adapters_off = !copy;
	for (int64_t k = 0; k < g->rounds && rc == 0; k++)
		rc = pipeline_forward(t, false, at + k * each + t->mesh.at.dp * mb, at + g->now.rows, &loss,
				      err);
	t->exec.adapters_off = false;
	t->exec.objective.judge = g->g->judge;
	if (copy && rc == 0)
		rc = swap_weights(t, err);
	return rc;
}

int beside_ask(struct trainer *t, struct dt_err *err)
{
	const struct dt_given *g = t->source.given.g;
	int rc = dt_run_asks_reference(&t->run) ? ask_reference(t, err) : 0;

	return rc == 0 ? g->ready(g->arg, err) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
