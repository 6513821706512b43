#include "train/drawn.h"

#include "plan/draws.h"
#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Sets where each parameter begins in the buffer: as in the rank's flat buffer, unless tp cuts parameters. */
static void place(struct trainer *t, char *whole)
{
	const size_t esz = dt_dtype_size(t->run.compute);
	char **at = t->source.drawn.there;
	size_t n = 0;

	for (int i = 0; i < t->local.n && t->run.layout.tp == 1; i++)
		at[t->local.p[i].index] = whole + (size_t)t->local.p[i].flat * esz;
	for (int i = 0; i < t->table.n && t->run.layout.tp > 1; i++) {
		at[i] = whole + n * esz;
		n += (size_t)dt_param_numel(&t->table.p[i]);
	}
}

void drawn_close(struct trainer *t)
{
	struct drawn *d = &t->source.drawn;

	if (d->there != (char **)d->at)
		free(d->there);
	free(d->at);
	free(d->copy);
}

/*
 * Makes one parameter whole: copies this rank's box to its place among zeros, then all-reduces over tp. Of
 * ranks that hold the same box only one contributes.
 */
static int join(struct trainer *t, const struct dt_local_param *lp, const char *part, struct dt_err *err)
{
	const struct dt_param *p = &t->table.p[lp->index];
	const int64_t n = dt_param_numel(p), rows = lp->shape[0], cols = lp->numel / rows,
		      all = n / p->shape[0];
	const size_t esz = dt_dtype_size(t->run.compute);
	char *whole = t->source.drawn.there[lp->index];
	int rc;

	if (lp->numel == n)
		return dt_kernel_check(dt_dev_copy(t->dev, whole, part, (size_t)n * esz), "dt_dev_copy(",
				       err);
	rc = dt_dev_clear(t->dev, whole, (size_t)n * esz);
	if (rc == 0 && counts(t, lp))
		rc = dt_dev_copy_rows(t->dev, whole + (size_t)(lp->off[0] * all + lp->off[1]) * esz,
				      (size_t)all * esz, part, (size_t)cols * esz, (size_t)cols * esz, rows);
	if (rc < 0)
		return dt_kernel_check(rc, "dt_dev_copy_rows(", err);
	return dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_TP), whole, NULL, (size_t)n, t->run.compute, DT_SUM,
			     "weights of a parameter", err);
}

/* *ret: all elements of unit u, in the weights themselves or (ZeRO-3) all-gathered into `room`. */
static int unit_whole(struct trainer *t, int u, char *room, const char **ret, struct dt_err *err)
{
	const struct flat *w = &t->store.weights;

	*ret = w->shared ? room : flat_at(t, w, u, 0);
	return w->shared ? dt_all_gather(unit_comm(t, u), room, flat_at(t, w, u, share_first(t, u)),
					 (size_t)share_n(t, u), w->dtype, "weights of a unit", err)
			 : 0;
}

static int gather(void *arg, struct dt_err *err)
{
	struct trainer *t = arg;
	const bool cut = t->run.layout.tp > 1;
	const size_t esz = dt_dtype_size(t->run.compute);
	char *whole = dt_plan_address(&t->plan, t->arena.base, DT_B_DRAWN, -1);
	const char *unit = NULL;
	int rc = whole ? store_drop(t, err) : 0;

	for (int u = 0; u < t->local.nunit && whole && rc == 0; u++) {
		char *room = whole + (size_t)(cut ? dt_params_total(&t->table) : t->local.unit[u].flat) * esz;

		rc = unit_whole(t, u, room, &unit, err);
		for (int i = 0; i < t->local.n && cut && rc == 0; i++) {
			const struct dt_local_param *lp = &t->local.p[i];

			if (lp->unit == u)
				rc = join(t, lp, unit + (size_t)(lp->flat - t->local.unit[u].flat) * esz,
					  err);
		}
	}
	for (int i = 0; i < t->table.n && t->source.drawn.copy && rc == 0; i++)
		rc = device_get(t, (void *)(uintptr_t)t->source.drawn.at[i], t->source.drawn.there[i],
				(size_t)dt_param_numel(&t->table.p[i]) * esz, err);
	return rc;
}

/* With a CUDA device: allocates the host's copy. */
static int open_copy(struct trainer *t)
{
	struct drawn *d = &t->source.drawn;
	size_t at = 0;

	d->there = calloc((size_t)t->table.n, sizeof(*d->there));
	d->copy = malloc((size_t)dt_draws_handed(&t->table, t->run.compute));
	for (int i = 0; i < t->table.n && d->copy; i++) {
		d->at[i] = d->copy + at;
		at += dt_draws_handed_one(&t->table.p[i], t->run.compute);
	}
	return d->there && d->copy ? 0 : -ENOMEM;
}

int drawn_open(struct trainer *t, struct dt_err *err)
{
	struct drawn *d = &t->source.drawn;
	char *whole = dt_plan_address(&t->plan, t->arena.base, DT_B_DRAWN, -1);

	if (!t->run.rl.task)
		return 0;
	d->gather = gather;
	d->at = calloc((size_t)t->table.n, sizeof(*d->at));
	d->there = (char **)d->at;
	if (!d->at || (!dt_dev_is_host(t->dev) && open_copy(t) < 0))
		return dt_err_sys(err, -ENOMEM, "cannot set up the objective");
	if (whole)
		place(t, whole);
	for (int i = 0; i < t->local.n && !whole; i++)
		d->there[t->local.p[i].index] = t->exec.w[i].data;
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
