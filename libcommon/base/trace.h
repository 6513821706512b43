/*
 * A timeline of a rank in the Trace Event Format of chrome://tracing and Perfetto: a JSON array, one event a
 * line. Complete events (ph X) are nested spans of the rank's main thread; a pair of asynchronous events (b,
 * e) is a message in flight beside it. pid is the rank; ts and dur are in microseconds.
 * Source: Google, "Trace Event Format" (2016), JSON array format: a truncated file is still readable.
 */
#ifndef DT_BASE_TRACE_H
#define DT_BASE_TRACE_H

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Written before and after the events of a complete file. DT_TRACE_JOIN separates events when lists are
 * joined.
 */
#define DT_TRACE_OPEN  "[\n"
#define DT_TRACE_JOIN  ",\n"
#define DT_TRACE_CLOSE "\n]\n"

struct dt_trace {
	FILE *f;
	char *path;
	double shift; /* dt_now() + shift is seconds since the trace's beginning on rank 0's clock */
	int rank;
	uint64_t flights; /* number of asynchronous spans so far */
	int error;	  /* negative errno of the first write that failed; 0: none */
};

/* Creates the file; see dt_out_stream. */
int dt_trace_open(const char *path, int rank, double shift, struct dt_trace **ret, struct dt_err *err);
/* The start time of a span; 0 if t is NULL. With t NULL every call here does nothing. */
double dt_trace_now(const struct dt_trace *t);
/* Writes a span of the rank's main thread from `began` until now. args: an object or NULL; stolen. */
void dt_trace_span(struct dt_trace *t, const char *category, const char *name, double began, json_t *args);
/* Writes an asynchronous span beside that thread, from `began` to `ended`. */
void dt_trace_flight(struct dt_trace *t, const char *category, const char *name, double began, double ended,
		     json_t *args);
/* Ends the array and flushes; the file stays open. -ENOSPC ... of the first write that failed. */
int dt_trace_end(struct dt_trace *t, struct dt_err *err);
void dt_trace_close(struct dt_trace *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
