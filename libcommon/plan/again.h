/*
 * What --recompute auto gives up first. Of the values that layers keep for backward, the one is next that
 * frees the most bytes for each second of computing it again, those before it given up already: both are sums
 * over the program's nodes (plan/work.h), messages included, times as measured (--ops) or by the roofline.
 */
#ifndef DT_PLAN_AGAIN_H
#define DT_PLAN_AGAIN_H

#include "plan/cluster.h"
#include "plan/run.h"

/* What the run computes on: a usual device, or what r->ops says. Released by dt_cluster_release. */
int dt_again_machine(const struct dt_run *r, struct dt_cluster *ret, struct dt_err *err);

/*
 * Fills value and rank of r->recompute. ret_ranks: how many there are; after the last one nothing is kept but
 * the sum that a layer begins with, or, where backward is split, what it cannot compute again apart.
 */
int dt_again_order(struct dt_run *r, const struct dt_cluster *machine, int *ret_ranks, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
