/*
 * What to do so that a model fits, as the field decides it: one device? replicas; else cheaper activations,
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

enum { DT_WHY_MAX = 16 };

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
 * Against a measurement: the last line of dt-train's metrics, or one object, with peak_bytes (or rss_bytes,
 * from which constant is subtracted) and perhaps categories [{name, bytes}]. ret_off: peak measured /
 * estimated - 1; ret_cat: the category that is most off, or whose bytes are nearest to the difference; -1:
 * nothing is off.
 */
int dt_fit_check(const struct dt_estimate *e, const char *path, uint64_t constant, uint64_t *ret_measured,
		 double *ret_off, int *ret_cat, struct dt_err *err);

#endif
