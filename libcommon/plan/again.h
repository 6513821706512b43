/*
 * --recompute auto: the order in which activations are dropped and recomputed in backward. Next is always the
 * value that frees the most bytes per second of recomputation, given those dropped before it. Both are sums
 * over the program's nodes (plan/work.h), messages included; times are measured (--ops) or from the roofline.
 */
#ifndef DT_PLAN_AGAIN_H
#define DT_PLAN_AGAIN_H

#include "plan/cluster.h"
#include "plan/run.h"

struct dt_again_cost {	/* of a microbatch on rank 0, if layers drop the first `ranks` values of the order */
	double kept;	/* bytes of activations kept from forward to backward, all layers */
	double again;	/* seconds of recomputation */
	double compute; /* seconds of everything else */
	int here;	/* ranks that share a machine's disk */
	struct dt_device device;
};
int dt_again_weigh(const struct dt_run *r, const struct dt_cluster *machine, int ranks,
		   struct dt_again_cost *ret, struct dt_err *err);

/* The machine of the run: a typical device, or the measurements in r->ops. Released by dt_cluster_release. */
int dt_again_machine(const struct dt_run *r, struct dt_cluster *ret, struct dt_err *err);

/*
 * Fills value and rank of r->recompute. ret_ranks: the length of the order. After the last one a layer keeps
 * only its input, or, if backward is split, also what a split backward cannot recompute.
 */
int dt_again_order(struct dt_run *r, const struct dt_cluster *machine, int *ret_ranks, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
