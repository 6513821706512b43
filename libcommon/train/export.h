/* The lines of metrics once more, for programs that watch many runs: TensorBoard and Prometheus. Rank 0. */
#ifndef DT_TRAIN_EXPORT_H
#define DT_TRAIN_EXPORT_H

#include "base/json.h"
#include "base/tfevents.h"

struct trainer;

enum { EXPORT_VALUES = 48 };

struct export
{
	struct dt_tfevents *events;  /* NULL: none */
	const char *page;	     /* file for Prometheus; NULL: none */
	double value[EXPORT_VALUES]; /* of export.c's table, newest or summed; NAN: not seen */
	json_t *details;	     /* the newest; NULL: none */
	double flushed, published;   /* dt_now() of the last time */
};

int export_open(struct trainer *t, struct dt_err *err);
bool export_any(const struct trainer *t);
/* A line of metrics, of a step, an evaluation or an event. */
int export_line(struct trainer *t, const json_t *line, struct dt_err *err);
/* What is not written yet is; nothing is open after it. */
int export_close(struct trainer *t, struct dt_err *err);

/*
 * histogram.c: gradients and weights of each unit over powers of the square root of 2, of all ranks, as
 * events. Every rank calls it; without --tensorboard it does nothing. gradients: this step has some.
 */
int histograms(struct trainer *t, bool gradients, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
