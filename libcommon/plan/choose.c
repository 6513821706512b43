/*
 * Decides what --recompute auto:SIZE leaves to the plan: the least recomputation that makes it fit and, if
 * activations may be offloaded to a file, for how many layers. Values are dropped in order of bytes freed per
 * second (plan/again.h), each in one layer after another. The memory plan is exact, so the first step that
 * fits is found by bisection. Recomputation communicates over tensor-parallel ranks: the first rank's plan
 * decides for all.
 */
#include "plan/again.h"
#include "plan/memory_priv.h"
#include "plan/offtime.h"

#include "base/units.h"

#include <errno.h>
#include <math.h>

enum { PARTS = 8 }; /* offloaded layers are tried in steps of 1 / PARTS */

struct choice {
	int layers, high; /* high: the step at which everything is dropped */
	/* [k] costs when all layers have dropped the values of k ranks */
	struct dt_again_cost cost[DT_KEEP_VALUES + 2];
};

/* Bytes of the plan after `steps` steps of dropping. */
static int try_steps(struct dt_run *r, struct dt_coords at, int steps, uint64_t *ret, struct dt_err *err)
{
	struct dt_memory_plan p;
	int rc;

	r->recompute.steps = steps;
	rc = dt_plan_exactly(r, at, &p, err);
	if (rc < 0)
		return rc;
	*ret = p.arena_bytes;
	dt_memory_plan_release(&p);
	return 0;
}

static int does_not_fit(const struct dt_run *r, uint64_t bytes, struct dt_err *err)
{
	char most[32], least[32];

	dt_err_set(err, -ENOSPC, "no recomputation fits the plan into %s: it needs %s at least",
		   dt_format_size(r->recompute.fit, most, sizeof(most)),
		   dt_format_size_up(bytes, least, sizeof(least)));
	dt_err_hint(err, "a smaller microbatch, or more ranks, need less");
	return -ENOSPC;
}

/* Finds the fewest steps with which the run fits and sets them in r. */
static int fewest(struct dt_run *r, struct dt_coords at, const struct choice *c, struct dt_err *err)
{
	int low = 0, high = c->high, rc;
	uint64_t bytes = 0;

	rc = try_steps(r, at, high, &bytes, err);
	if (rc == 0 && bytes > r->recompute.fit)
		return does_not_fit(r, bytes, err);
	while (rc == 0 && low < high) {
		int middle = (low + high) / 2;

		rc = try_steps(r, at, middle, &bytes, err);
		if (bytes <= r->recompute.fit)
			high = middle;
		else
			low = middle + 1;
	}
	r->recompute.steps = high;
	return rc;
}

/* Extra seconds of a microbatch: recomputation, and transfers that computation does not hide. */
static double longer(const struct dt_run *r, const struct choice *c)
{
	const struct dt_again_cost *all = &c->cost[r->recompute.steps / c->layers], *more = all;
	double share = (double)(r->recompute.steps % c->layers) / c->layers, again, kept, leaves, away;

	if (share > 0)
		more++;
	again = all->again + share * (more->again - all->again);
	kept = all->kept + share * (more->kept - all->kept);
	leaves = r->offload.fraction * (1 - r->offload.stay) * (c->layers - DT_AWAY_STAYS) / c->layers;
	away = dt_offload_seconds(r, &all->device, all->here, leaves * kept, leaves * kept);
	return again + fmax(0, away - all->compute - again);
}

/* Weighs offloading against recomputation: the shortest step, then the fewest bytes written. */
static int choose_both(struct dt_run *r, struct dt_coords at, const struct choice *c, struct dt_err *err)
{
	double best = INFINITY;
	struct dt_run one = *r;
	int rc = 0;

	for (int k = 0; k <= PARTS; k++) {
		one.offload.stay = (double)k / PARTS;
		rc = fewest(&one, at, c, isinf(best) ? err : NULL);
		if (rc == -ENOSPC && !isinf(best))
			return 0; /* keeping more of them in memory does not fit either */
		if (rc < 0)
			return rc;
		if (longer(&one, c) <= best) {
			best = longer(&one, c);
			*r = one;
		}
	}
	return 0;
}

int dt_plan_choose(struct dt_run *r, struct dt_coords at, struct dt_err *err)
{
	const bool both = r->offload.what & DT_OFFLOAD_ACTIVATIONS;
	struct dt_cluster machine = {0};
	struct choice c = {0};
	int ranks = 0, rc;

	rc = dt_again_machine(r, &machine, err);
	/* with a disk, predicted seconds are compared, not only ranked */
	if (rc == 0 && both && !r->on_card) {
		dt_cluster_this_machine(&machine);
		machine.cores = r->offload.cores ? r->offload.cores : machine.cores;
	}
	if (rc == 0)
		rc = dt_again_order(r, &machine, &ranks, err);
	for (int k = 0; k <= ranks && rc == 0; k++)
		rc = dt_again_weigh(r, &machine, k, &c.cost[k], err);
	dt_cluster_release(&machine);
	at.tp = 0;
	for (int v = at.pp; v < r->layout.pp * dt_layout_chunks(&r->layout); v += r->layout.pp) {
		int first, last;

		dt_layout_stage(&r->layout, r->config, v, &first, &last);
		c.layers += last - first;
	}
	r->recompute.layers = c.layers;
	c.high = ranks * c.layers;
	if (rc < 0)
		return rc;
	return both ? choose_both(r, at, &c, err) : fewest(r, at, &c, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
