/*
 * What a rank did and when, in the Trace Event Format that chrome://tracing and Perfetto read: an array of
 * objects, one a line. Complete events (ph X) are spans of the rank's own thread, one inside the other; a
 * pair of asynchronous ones (b, e) is a message under way beside it. pid is the rank, ts and dur are
 * microseconds.
 * Source: Google, "Trace Event Format" (2016), JSON array format: a file that ends early is still read.
 */
#ifndef DT_BASE_TRACE_H
#define DT_BASE_TRACE_H

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* What stands around the events of a file that has been ended. Two lists of events are joined by JOIN. */
#define DT_TRACE_OPEN  "[\n"
#define DT_TRACE_JOIN  ",\n"
#define DT_TRACE_CLOSE "\n]\n"

struct dt_trace {
	FILE *f;
	char *path;
	double shift; /* added to dt_now() gives seconds since the trace's beginning, on rank 0's clock */
	int rank;
	uint64_t flights; /* asynchronous spans so far */
	int error;	  /* negative errno of the first write that failed; 0: none */
};

/* Creates the file, see dt_out_stream. */
int dt_trace_open(const char *path, int rank, double shift, struct dt_trace **ret, struct dt_err *err);
/* When a span begins; 0 where t is NULL. Every call here does nothing then. */
double dt_trace_now(const struct dt_trace *t);
/* A span of the rank's thread, from began until now. args: an object or NULL; stolen. */
void dt_trace_span(struct dt_trace *t, const char *category, const char *name, double began, json_t *args);
/* Something under way beside that thread, from began to ended. */
void dt_trace_flight(struct dt_trace *t, const char *category, const char *name, double began, double ended,
		     json_t *args);
/* Ends the array and flushes; the file stays open. -ENOSPC ... of any write so far. */
int dt_trace_end(struct dt_trace *t, struct dt_err *err);
void dt_trace_close(struct dt_trace *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
