/* A model's phases on a device's roofline (Williams et al. 2009): flops a byte, and what bounds them. */
#ifndef DT_PLAN_ROOFLINE_H
#define DT_PLAN_ROOFLINE_H

#include "plan/cluster.h"
#include "plan/formulas.h"
#include "plan/steptime.h"

#include <stdio.h>

struct dt_roofline {
	const struct dt_config *config;
	struct dt_device device;
	enum dt_weight_format weights; /* served */
	double cache_bits;	       /* an element of the KV cache */
	int64_t seq, microbatch;       /* of a sample, or of prompt and context; samples trained at a time */
};

/* As a table, or as a JSON object. */
int dt_roofline_print(const struct dt_roofline *q, bool json, FILE *f, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
