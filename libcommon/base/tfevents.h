/*
 * TensorBoard event files: records of a length, its checksum, a message and its checksum (TensorFlow,
 * core/lib/io/record_writer.h: little-endian, CRC-32C masked by rotation and a constant). A message is a
 * protocol buffers Event (tensorboard/compat/proto/event.proto, summary.proto). TensorBoard reads all files
 * of a folder and its subfolders; each process writes its own file.
 */
#ifndef DT_BASE_TFEVENTS_H
#define DT_BASE_TFEVENTS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct dt_tfevents {
	FILE *f;
	char *path;
	int error; /* negative errno of the first write that failed */
};

/* A histogram of n buckets: counts[i] values in (limits[i - 1], limits[i]]. */
struct dt_tf_histogram {
	double min, max, num, sum, sum_squares;
	const double *limits, *counts;
	size_t n;
};

/* Creates DIR and DIR/events.out.tfevents.TIME.HOST.PID. now, here and below: seconds since 1970. */
int dt_tfevents_open(const char *dir, double now, struct dt_tfevents **ret, struct dt_err *err);
/* Tells TensorBoard to drop the folder's earlier events from this step on: the run has resumed from there. */
void dt_tfevents_restart(struct dt_tfevents *e, double now, int64_t step);
void dt_tfevents_scalar(struct dt_tfevents *e, double now, int64_t step, const char *tag, double value);
void dt_tfevents_histogram(struct dt_tfevents *e, double now, int64_t step, const char *tag,
			   const struct dt_tf_histogram *h);
/* text is Markdown. */
void dt_tfevents_text(struct dt_tfevents *e, double now, int64_t step, const char *tag, const char *text);
/* Flushes to the file, for concurrent readers. Returns 0, or the first error of any call so far. */
int dt_tfevents_flush(struct dt_tfevents *e, struct dt_err *err);
void dt_tfevents_close(struct dt_tfevents *e);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
