/*
 * A file in Prometheus's text exposition format 0.0.4, for node_exporter's textfile collector. It is written
 * to a temporary and renamed, so that a scrape sees a whole file. It is not fsynced.
 */
#ifndef DT_BASE_PROM_H
#define DT_BASE_PROM_H

#include "base/err.h"

#include <stdio.h>

struct dt_prom {
	FILE *f;
	char *text; /* what f holds so far */
	size_t n;
};

/* Starts an empty page in memory. -ENOMEM. */
int dt_prom_begin(struct dt_prom *p, struct dt_err *err);
/* Starts a metric of type "gauge" or "counter". help is one line. */
void dt_prom_metric(struct dt_prom *p, const char *name, const char *type, const char *help);
/* Adds a value of the metric with label-value pairs, ended by NULL. */
void dt_prom_value(struct dt_prom *p, const char *name, double value, ...) __attribute__((sentinel));
/* Both of the above, for a metric with one value and no labels. */
void dt_prom_one(struct dt_prom *p, const char *name, const char *type, const char *help, double value);
/*
 * Writes the page to path; a device or a FIFO is written to directly. Releases the page, also after a
 * failure.
 */
int dt_prom_publish(struct dt_prom *p, const char *path, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
