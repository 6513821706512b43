/*
 * A server's pass over the stages of a pipeline, part by part: a flow shop. Two stages and more compute at the
 * same time, each another part or another pass.
 */
#ifndef DT_PLAN_SERVTIMES_H
#define DT_PLAN_SERVTIMES_H

#include <math.h>

enum { DT_SERVE_STAGES = 8, DT_SERVE_PARTS = 4 * DT_SERVE_STAGES /* plan/inferplan.h: parts a stage */ };

struct dt_serve_times {
	int stages, parts;
	double part_s[DT_SERVE_PARTS][DT_SERVE_STAGES]; /* seconds that a stage computes a part */
	double send_s[DT_SERVE_PARTS];			/* until its rows are on the next stage */
};

/*
 * The pass begins at `now`; a stage computes a part when it has come from the stage before and the stage has
 * computed all it had to before, to free_s [stages], which is moved on. When the last stage has the last part.
 */
static inline double dt_serve_times_run(const struct dt_serve_times *t, double now, double *free_s)
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

/* Seconds of a pass over idle stages. */
static inline double dt_serve_times_alone(const struct dt_serve_times *t)
{
	double free_s[DT_SERVE_STAGES] = {0};

	return dt_serve_times_run(t, 0, free_s);
}

/* Seconds of the stage that computes longest. */
static inline double dt_serve_times_slowest(const struct dt_serve_times *t)
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
