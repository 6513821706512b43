/* Exports the lines of metrics to TensorBoard and Prometheus. Rank 0 alone. */
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
	bool stale;		     /* it could not be renewed, which has been said */
	double value[EXPORT_VALUES]; /* by row of export.c's table, newest or summed; NAN: not seen */
	json_t *details;	     /* the newest; NULL: none */
	double flushed, published;   /* dt_now() of the last time */
};

int export_open(struct trainer *t, struct dt_err *err);
bool export_any(const struct trainer *t);
/* Exports one line of metrics: of a step, an evaluation or an event. */
int export_line(struct trainer *t, const json_t *line, struct dt_err *err);
/* Writes what is pending and closes all files. */
int export_close(struct trainer *t, struct dt_err *err);

/*
 * histogram.c: writes histograms of each unit's gradients and weights over all ranks, with buckets at powers
 * of sqrt(2), as events. Every rank calls it; does nothing without --tensorboard. gradients: the step has
 * some.
 */
int histograms(struct trainer *t, bool gradients, struct dt_err *err);
/* Before an update that overwrites gradients, if histograms follow after the step: counts the gradients. */
int histograms_gradients(struct trainer *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
