/*
 * Event files of TensorBoard: records of a length, its checksum, a message and its checksum (TensorFlow,
 * core/lib/io/record_writer.h: little-endian, CRC-32C masked by rotation and a constant); a message is an
 * Event of protocol buffers (tensorboard/compat/proto/event.proto, summary.proto). TensorBoard reads all
 * files of a folder and its folders; each process that writes has a file of its own.
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

/* Creates DIR and in it events.out.tfevents.TIME.HOST.PID; now: seconds since 1970, as in the calls below. */
int dt_tfevents_open(const char *dir, double now, struct dt_tfevents **ret, struct dt_err *err);
/* Steps from this one on that other files of the folder have are void: a run went back to it. */
void dt_tfevents_restart(struct dt_tfevents *e, double now, int64_t step);
void dt_tfevents_scalar(struct dt_tfevents *e, double now, int64_t step, const char *tag, double value);
void dt_tfevents_histogram(struct dt_tfevents *e, double now, int64_t step, const char *tag,
			   const struct dt_tf_histogram *h);
/* Markdown. */
void dt_tfevents_text(struct dt_tfevents *e, double now, int64_t step, const char *tag, const char *text);
/* To the file, for whoever reads it meanwhile: 0, or what went wrong with any call so far. */
int dt_tfevents_flush(struct dt_tfevents *e, struct dt_err *err);
void dt_tfevents_close(struct dt_tfevents *e);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
