/*
 * A flow shop: parts that go through stages one after the other, as those of a pass over a pipeline do.
 * Stages work at the same time, each on another part or on what comes behind.
 */
#ifndef DT_BASE_FLOW_H
#define DT_BASE_FLOW_H

#include <math.h>

enum { DT_FLOW_STAGES = 8, DT_FLOW_PARTS = 32 };

struct dt_flow {
	int stages, parts;
	double part_s[DT_FLOW_PARTS][DT_FLOW_STAGES]; /* seconds that a stage works on a part */
	double send_s[DT_FLOW_PARTS];		      /* until it is on the next stage */
};

/*
 * It begins at `now`; a stage takes a part when it has come from the stage before and the stage is
 * through with all it had to do before, at free_s [stages], which is moved on. When the last stage is
 * through.
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

/* Seconds over idle stages. */
static inline double dt_flow_alone(const struct dt_flow *t)
{
	double free_s[DT_FLOW_STAGES] = {0};

	return dt_flow_run(t, 0, free_s);
}

/* Seconds of the stage that works longest. */
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
