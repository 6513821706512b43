/*
 * A flow shop: parts (microbatches) pass through stages in order, as in a pipeline. Stages work concurrently,
 * each on a different part.
 */
#ifndef DT_BASE_FLOW_H
#define DT_BASE_FLOW_H

#include <math.h>

enum { DT_FLOW_STAGES = 8, DT_FLOW_PARTS = 32 };

struct dt_flow {
	int stages, parts;
	double part_s[DT_FLOW_PARTS][DT_FLOW_STAGES]; /* seconds of a stage's work on a part */
	double send_s[DT_FLOW_PARTS];		      /* seconds to send the part to the next stage */
};

/*
 * Runs all parts from time `now`. A stage starts a part when the part has arrived and the stage has finished
 * its earlier work, at free_s[stage]; free_s is updated. Returns the time at which the last stage ends.
 */
static inline double dt_flow_run(const struct dt_flow *t, double now, double *free_s)
{
	double at = now;

	for (int i = 0; i < t->parts; i++) {
		at = now;
		for (int p = 0; p < t->stages; p++) {
			at = free_s[p] = fmax(at, free_s[p]) + t->part_s[i][p];
			at += p + 1 < t->stages ? t->send_s[i] : 0;
		}
	}
	return at;
}

/* Total seconds when all stages are idle at the start. */
static inline double dt_flow_alone(const struct dt_flow *t)
{
	double free_s[DT_FLOW_STAGES] = {0};

	return dt_flow_run(t, 0, free_s);
}

/* Total seconds of work of the busiest stage. */
static inline double dt_flow_slowest(const struct dt_flow *t)
{
	double most = 0;

	for (int p = 0; p < t->stages; p++) {
		double sum = 0;

		for (int i = 0; i < t->parts; i++)
			sum += t->part_s[i][p];
		most = fmax(most, sum);
	}
	return most;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
