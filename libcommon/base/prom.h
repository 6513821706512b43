/*
 * A file in Prometheus's text exposition format 0.0.4, for the textfile collector of node_exporter: written
 * beside its name and renamed, so that a scrape sees all of it. Not flushed to the disk, which it describes
 * nothing of.
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

/* A page in memory. -ENOMEM. */
int dt_prom_begin(struct dt_prom *p, struct dt_err *err);
/* Begins a metric; type: "gauge" or "counter". help is one line. */
void dt_prom_metric(struct dt_prom *p, const char *name, const char *type, const char *help);
/* A value of it, with pairs of label and value up to a NULL. */
void dt_prom_value(struct dt_prom *p, const char *name, double value, ...) __attribute__((sentinel));
/* Both, for a metric of one value without labels. */
void dt_prom_one(struct dt_prom *p, const char *name, const char *type, const char *help, double value);
/* Becomes the file at path; a device or a FIFO is written to. The page is released, also after a failure. */
int dt_prom_publish(struct dt_prom *p, const char *path, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
