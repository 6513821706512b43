/*
 * A decision tree of measures that make a model fit: one device? replicas; else cheaper activations,
 * then ZeRO inside a machine, tensor parallelism inside a machine, a pipeline across machines; adapters
 * instead of all parameters where machines are few. A server: one device, fewer bits, tensor parallelism
 * inside a machine.
 */
#ifndef DT_PLAN_WHY_H
#define DT_PLAN_WHY_H

#include "plan/fit.h"

#include <stdio.h>

struct dt_why_step {
	char question[96];
	char layout[80];
	uint64_t peak_bytes; /* 0: cannot be cut so */
	bool fits;
};

enum { DT_WHY_MAX = 24 };

struct dt_why {
	struct dt_why_step step[DT_WHY_MAX];
	int n;
	int taken; /* the step that answers, -1: none */
	const char *advice;
};

/* gpus_a_node: of a machine. q's layout is not looked at. */
int dt_why(const struct dt_fit_query *q, uint64_t room, int gpus_a_node, struct dt_why *ret,
	   struct dt_err *err);
json_t *dt_why_json(const struct dt_why *w);

/* Bytes by category in each phase, as rows of a table and as an SVG document of stacked bars. */
void dt_fit_timeline(const struct dt_estimate *e, bool utf8, FILE *f);
void dt_fit_svg(const struct dt_fit_query *q, const struct dt_estimate *e, uint64_t room, FILE *f);

/*
 * A measurement: GET /metrics of dt-serve; or of dt-train's metrics (or one object) the last line with
 * peak_bytes, or rss_bytes, from which constant is subtracted, and the last with categories [{name, bytes}]
 * and perhaps pss_bytes.
 */
struct dt_measurement {
	uint64_t bytes;
	bool categories;  /* cat holds what each was */
	bool first_stage; /* of rank 0; otherwise of the rank with the largest peak */
	uint64_t cat[DT_EST_CAT_N];
	int64_t threads;  /* of a rank on a processor; 0: not said, or on a card */
	uint64_t process; /* what the process took, constant and all; 0: not said */
};
int dt_measurement_read(const char *path, uint64_t constant, struct dt_measurement *ret, struct dt_err *err);

/*
 * The category that is most off; where the measurement does not say, that whose bytes are nearest to the
 * difference. -1: nothing is off. ret_off: measured / estimated - 1.
 */
int dt_fit_check(const struct dt_estimate *e, const struct dt_measurement *m, double *ret_off);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
