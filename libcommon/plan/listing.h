/*
 * Prints a rank's program as text or JSON: every node of one microbatch in execution order, with its results,
 * cost and kept activations, and the point of the memory plan's peak.
 */
#ifndef DT_PLAN_LISTING_H
#define DT_PLAN_LISTING_H

#include "base/json.h"
#include "plan/memory.h"
#include "plan/work.h"

#include <stdio.h>

/* "forward", "loss", "backward", "weights". */
const char *dt_list_name(enum dt_list l);
/* The unit of a layer (as dt_param.layer) of a model: "embed", "final", else its number. Returns buf. */
const char *dt_unit_name(int layer, int64_t layers, char *buf, size_t n);
/* Likewise the unit of a node: "mtp" within the last one, of a module for a further token. */
static inline const char *dt_node_unit_name(const struct dt_node *node, int64_t layers, char *buf, size_t n)
{
	return node->ahead ? "mtp" : dt_unit_name(node->unit, layers, buf, n);
}

/* A table of 80 columns for models of usual names; layers that are alike are one row. plan is r's at `at`. */
void dt_listing_print(const struct dt_memory_plan *plan, const struct dt_run *r, struct dt_coords at,
		      FILE *f);
/* The same of a server's pass (plan: dt_memory_plan_serving's), and what one of `decoding` costs. */
int dt_listing_print_serving(const struct dt_memory_plan *plan, const struct dt_work_serving *s,
			     const struct dt_work_serving *decoding, FILE *f, struct dt_err *err);
/* All nodes, bytes and flops raw. NULL: out of memory. */
json_t *dt_listing_json(const struct dt_memory_plan *plan, const struct dt_run *r, struct dt_coords at);

/*
 * The program of a rank of a run that is not yet settled, for a model of this configuration: as a table to f,
 * or as *ret_json when not NULL. -EINVAL, -ENOTSUP: the run is refused. (listing_run.c)
 */
int dt_listing_run(struct dt_run *r, struct dt_config *config, int rank, FILE *f, json_t **ret_json,
		   struct dt_err *err);
/*
 * The table of the run's pipeline; layout: its name in a message. ret_bubble: the idle share of its stages
 * where backward takes twice as long as forward, negative where it cannot be said.
 */
int dt_listing_schedule(const struct dt_run *run, const char *layout, FILE *f, double *ret_bubble,
			struct dt_err *err);

/* What tables and objects are made of. */
struct dt_listed {
	const struct dt_step *step;
	struct dt_node_cost cost;
	double kept; /* bytes of results that are kept for backward */
};
struct dt_listed dt_list_node(const struct dt_cost_site *s, int step);
/* Adds up the numbers of b. */
void dt_listed_add(struct dt_listed *a, const struct dt_listed *b, double times);
/* What a node makes, "qkv[1024,2304]": its first result, or the gradient of its first tensor. Returns buf. */
const char *dt_listed_result(const struct dt_cost_site *s, const struct dt_node *n, char *buf, size_t size);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
