/* What dt-plan prints of a search (plan/search.h): plans, where the best one's time goes, the whole run. */
#ifndef DT_PLAN_PLAN_PRINT_H
#define DT_PLAN_PLAN_PRINT_H

#include "plan/search.h"

#include <stdio.h>

struct dt_plan_view {
	const struct dt_plan_query *q;
	bool assumed;		   /* nobody named the device */
	bool links;		   /* they were measured */
	bool explain;		   /* say what a step's time goes into, and what was passed over */
	double memory;		   /* of a device, bytes */
	uint64_t tokens;	   /* of the whole run, 0: not asked */
	double mtbf_hours;	   /* between failures of one device, 0: not asked */
	double save_s;		   /* of a checkpoint, 0: its bytes at 2 GB/s a machine */
	double restart_s, every_s; /* after a failure; between checkpoints, 0: the best */
	double spot; /* the share that the price is lower by for devices that are taken away; 0: not asked */
	FILE *f;
};

/* other: a layout to stand beside them, NULL: none. Returns whether something, and other, fits. */
bool dt_plan_print(const struct dt_plan_view *v, const struct dt_plan *p, const struct dt_candidate *other);
json_t *dt_plan_json(const struct dt_plan_view *v, const struct dt_plan *p, const struct dt_candidate *other);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
