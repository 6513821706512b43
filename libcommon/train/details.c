#include "train/trainer.h"

#include "base/json.h"
#include "base/order.h"
#include "base/progress.h"
#include "plan/listing.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const section_name[DETAILS_SECTIONS] = {"compute_s", "data_s", "comm_exposed_s",
							   "optimizer_s", "checkpoint_s"};

/* Percentiles of step times by the nearest-rank method. */
static json_t *percentiles(struct details *d)
{
	static const struct {
		const char *name;
		double share;
	} of[] = {{"p50", .5}, {"p90", .9}, {"p99", .99}, {"max", 1}};
	int n = d->steps < DETAILS_STEPS ? (int)d->steps : DETAILS_STEPS;
	json_t *o = json_object();

	qsort(d->step_s, (size_t)n, sizeof(*d->step_s), dt_order_f64);
	for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++)
		json_object_set_new(o, of[i].name, json_real(d->step_s[(int)ceil(of[i].share * n) - 1]));
	return o;
}

static int add_square(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n, void *arg,
		      struct dt_err *err)
{
	double *squares = arg, sum;
	struct dt_tensor w;

	for (int64_t m; n > 0; first += m, n -= m) {
		int rc;

		m = store_masters(t, lp->unit, first, n, &w, err);
		rc = m < 0 ? (int)m : dt_kernel_check(t->dev->ops->sumsq(t->dev, &sum, w), "->sumsq(", err);
		if (rc < 0)
			return rc;
		squares[lp->index] += sum;
	}
	return 0;
}

#define NONE (-1.0) /* as a largest magnitude: the unit has no such value */

static json_t *magnitude(double x)
{
	return isfinite(x) && x >= 0 ? json_real(x) : json_null();
}

/*
 * One entry per unit with trained parameters: norms of its gradient, if it has one, and weights. scale: the
 * loss scale of the step.
 */
static json_t *units(const struct trainer *t, const double *weights, bool gradients, double scale)
{
	const double *most = t->details.looked ? t->details.extremes : NULL;
	int64_t layers = t->config.layers;
	json_t *list = json_array();

	for (int64_t u = -1; u <= layers; u++) {
		double g = 0, w = 0;
		char name[16];
		int n = 0;

		for (int i = 0; i < t->table.n; i++)
			if (t->table.p[i].layer == u && !t->table.p[i].frozen) {
				g += t->grads.squares[i];
				w += weights[i];
				n++;
			}
		if (n)
			json_array_append_new(
				list, json_pack("{s:s, s:o, s:o, s:o*, s:o*}", "unit",
						dt_unit_name((int)u, layers, name, sizeof(name)), "grad_norm",
						gradients ? dt_json_number(sqrt(g) / scale) : json_null(),
						"weight_norm", dt_json_number(sqrt(w)), "activation_max",
						most ? magnitude(most[u + 1]) : NULL, "activation_grad_max",
						most ? magnitude(most[layers + 3 + u] / scale) : NULL));
	}
	return list;
}

/* The values that each rank sends to rank 0. */
struct told {
	double section[DETAILS_SECTIONS]; /* sums over the steps */
	double usage[USAGE_VALUES];
};

/* all: [ranks]. */
static json_t *ranks(const struct trainer *t, const struct told *all)
{
	json_t *o = json_object();

	for (int s = 0; s < DETAILS_SECTIONS; s++) {
		json_t *list = json_array();

		for (int r = 0; r < t->info.size; r++)
			json_array_append_new(list, json_real(all[r].section[s] / (double)t->details.steps));
		json_object_set_new(o, section_name[s], list);
	}
	return o;
}

/* For each value that some rank knows, a list over ranks. */
static json_t *usage(const struct trainer *t, const struct told *all)
{
	const struct usage_row *row;
	json_t *o = json_object();

	for (int i = 0; (row = usage_row(i)); i++) {
		json_t *list = json_array();
		bool known = false;

		for (int r = 0; r < t->info.size; r++) {
			json_array_append_new(list, dt_json_number(all[r].usage[i]));
			known |= isfinite(all[r].usage[i]);
		}
		if (known)
			json_object_set(o, row->key, list);
		json_decref(list);
	}
	return o;
}

static int gather(struct trainer *t, const struct step_result *r, struct dt_err *err)
{
	struct told *all = calloc((size_t)t->info.size, sizeof(*all)), mine;
	double *weights = calloc((size_t)t->table.n + 1, sizeof(*weights));
	int settled, rc = all && weights ? grads_each(t, add_square, weights, err)
					 : dt_err_sys(err, -ENOMEM, "cannot gather details");

	memcpy(mine.section, t->details.section, sizeof(mine.section));
	usage_read(t, mine.usage);
	rc = trainer_agree(t, rc, err);
	if (rc == 0 && t->details.looked)
		rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_ALL), t->details.extremes, NULL,
				   DT_WATCH_N * (size_t)(t->config.layers + 2), DT_F64, DT_MAX,
				   "largest activations", err);
	if (rc == 0)
		rc = dt_all_reduce(grads_holders(t), weights, NULL, (size_t)t->table.n, DT_F64, DT_SUM,
				   "weight norms", err);
	if (rc == 0)
		rc = dt_gather(dt_mesh_comm(&t->mesh, DT_ON_ALL), all, &mine, sizeof(mine) / sizeof(double),
			       DT_F64, 0, "times of ranks", err);
	if (rc == 0 && t->info.rank == 0)
		t->details.line =
			json_pack("{s:I, s:o, s:o, s:o, s:o}", "steps", (json_int_t)t->details.steps,
				  "step_s", percentiles(&t->details), "ranks", ranks(t, all), "usage",
				  usage(t, all), "units", units(t, weights, !r->skipped, r->loss_scale));
	free(all);
	free(weights);
	if (rc == 0)
		rc = histograms(t, !r->skipped, err);
	/* Offloaded masters were read into memory that the next step computes in. */
	settled = offload_settle(t, rc < 0 ? NULL : err);
	return rc < 0 ? rc : settled;
}

int details_open(struct trainer *t, struct dt_err *err)
{
	if (!t->run.details)
		return 0;
	if (t->run.extremes) {
		t->details.extremes = calloc(DT_WATCH_N * (size_t)(t->config.layers + 2), sizeof(double));
		if (!t->details.extremes)
			return dt_err_sys(err, -ENOMEM, "cannot look at activations");
	}
	return usage_open(t, err);
}

/* Whether this step's line has details. After a signal, an earlier step than planned may be the last. */
static bool is_due(const struct trainer *t, int64_t step)
{
	return step % t->run.details == 0 || step >= trainer_end(t);
}

double *details_extremes(struct trainer *t)
{
	struct details *d = &t->details;

	d->looked = d->extremes && is_due(t, t->loop.step + 1);
	for (int64_t i = 0; d->looked && i < DT_WATCH_N * (t->config.layers + 2); i++)
		d->extremes[i] = NONE;
	return d->looked ? d->extremes : NULL;
}

int details_gradients(struct trainer *t, const struct step_result *r, struct dt_err *err)
{
	if (!t->run.details || !t->run.tensorboard || !dt_run_overwrites_grads(&t->run) ||
	    t->optim.direction.p || !(is_due(t, t->loop.step + 1) || r->stop))
		return 0;
	return histograms_gradients(t, err);
}

int details_step(struct trainer *t, const struct step_result *r, struct dt_err *err)
{
	struct details *d = &t->details;
	int rc = 0;

	if (!t->run.details)
		return 0;
	d->step_s[d->steps++ % DETAILS_STEPS] = dt_now() - t->t.start;
	d->section[DETAILS_COMPUTE] += t->t.compute;
	d->section[DETAILS_DATA] += t->t.data;
	d->section[DETAILS_OPTIMIZER] += t->t.optimizer;
	d->section[DETAILS_CHECKPOINT] += t->t.checkpoint;
	for (int k = 0; k < TR_N; k++)
		d->section[DETAILS_COMM] += t->t.comm[k];
	if (!is_due(t, t->loop.step) && !r->stop)
		return 0;
	rc = gather(t, r, err);
	d->steps = 0;
	memset(d->section, 0, sizeof(d->section));
	return rc;
}

json_t *details_take(struct trainer *t)
{
	json_t *line = t->details.line;

	t->details.line = NULL;
	return line;
}

void details_release(struct trainer *t)
{
	json_decref(details_take(t));
	usage_release(t);
	free(t->details.extremes);
	t->details.extremes = NULL;
	free(t->details.tally);
	t->details.tally = NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
