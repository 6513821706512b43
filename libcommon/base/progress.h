/* A progress bar with rate and remaining time, for terminals only; redrawn at most ten times a second. */
#ifndef DT_BASE_PROGRESS_H
#define DT_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct dt_progress {
	FILE *f; /* NULL: nothing is drawn */
	const char *label;
	uint64_t total, done;
	bool bytes; /* amounts are bytes */
	double t0, drawn;
};

/* Draws on f only when it is a terminal and TERM is not "dumb". label must outlive the bar. */
void dt_progress_start(struct dt_progress *p, FILE *f, const char *label, uint64_t total, bool bytes);
void dt_progress_set(struct dt_progress *p, uint64_t done);
/* Erases the bar, so that the next line starts clean. */
void dt_progress_end(struct dt_progress *p);

/* Seconds of the monotonic clock. */
double dt_now(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
