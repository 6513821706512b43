/*
 * What --recompute auto gives up first. Of the values that layers keep for backward, the one is next that
 * frees the most bytes for each second of computing it again, those before it given up already: both are sums
 * over the program's nodes (plan/work.h), messages included, times as measured (--ops) or by the roofline.
 */
#ifndef DT_PLAN_AGAIN_H
#define DT_PLAN_AGAIN_H

#include "plan/cluster.h"
#include "plan/run.h"

struct dt_again_cost {	/* of a microbatch on rank 0, where all layers have given up so many ranks */
	double kept;	/* bytes from forward to backward, of all layers */
	double again;	/* seconds of what is computed again */
	double compute; /* and of everything else */
	int here;	/* ranks that share a machine's disk */
	struct dt_device device;
};
int dt_again_weigh(const struct dt_run *r, const struct dt_cluster *machine, int ranks,
		   struct dt_again_cost *ret, struct dt_err *err);

/* What the run computes on: a usual device, or what r->ops says. Released by dt_cluster_release. */
int dt_again_machine(const struct dt_run *r, struct dt_cluster *ret, struct dt_err *err);

/*
 * Fills value and rank of r->recompute. ret_ranks: how many there are; after the last one nothing is kept but
 * the sum that a layer begins with, or, where backward is split, what it cannot compute again apart.
 */
int dt_again_order(struct dt_run *r, const struct dt_cluster *machine, int *ret_ranks, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
