#include "base/trace.h"

#include "base/progress.h"
#include "base/tmpfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Writes one event; stolen. 15 digits: microseconds with three decimals fit for more than a day. */
static void put(struct dt_trace *t, const char *before, json_t *event)
{
	errno = 0;
	if (t->error == 0 && (!event || fputs(before, t->f) == EOF ||
			      json_dumpf(event, t->f, JSON_COMPACT | JSON_REAL_PRECISION(15)) < 0))
		t->error = errno ? -errno : event ? -EIO : -ENOMEM;
	json_decref(event);
}

static double micros(double s)
{
	return (double)(int64_t)(s * 1e9 + 0.5) * 1e-3;
}

static json_t *meta(const struct dt_trace *t, const char *name, const char *key, json_t *value)
{
	return json_pack("{s:s, s:s, s:i, s:i, s:{s:o}}", "name", name, "ph", "M", "pid", t->rank, "tid", 0,
			 "args", key, value);
}

int dt_trace_open(const char *path, int rank, double shift, struct dt_trace **ret, struct dt_err *err)
{
	struct dt_trace *t = calloc(1, sizeof(*t));
	char name[32];
	int rc;

	if (!t)
		return dt_err_sys(err, -ENOMEM, "cannot open the trace");
	*t = (struct dt_trace){.path = strdup(path), .shift = shift, .rank = rank};
	rc = t->path ? dt_out_stream(path, false, &t->f, err)
		     : dt_err_sys(err, -ENOMEM, "cannot open the trace");
	if (rc < 0) {
		free(t->path);
		free(t);
		return rc;
	}
	snprintf(name, sizeof(name), "rank %d", rank);
	put(t, DT_TRACE_OPEN, meta(t, "process_name", "name", json_string(name)));
	put(t, DT_TRACE_JOIN, meta(t, "process_sort_index", "sort_index", json_integer(rank)));
	put(t, DT_TRACE_JOIN, meta(t, "thread_name", "name", json_string("rank's thread")));
	*ret = t;
	return 0;
}

double dt_trace_now(const struct dt_trace *t)
{
	return t ? dt_now() : 0;
}

void dt_trace_span(struct dt_trace *t, const char *category, const char *name, double began, json_t *args)
{
	double first, last;

	if (!t) {
		json_decref(args);
		return;
	}
	first = micros(began + t->shift);
	last = micros(dt_now() + t->shift);
	put(t, DT_TRACE_JOIN,
	    json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:o}", "name", name, "cat", category, "ph", "X",
		      "ts", first, "dur", last - first, "pid", t->rank, "tid", 0, "args",
		      args ? args : json_object()));
}

void dt_trace_flight(struct dt_trace *t, const char *category, const char *name, double began, double ended,
		     json_t *args)
{
	static const char *const end[2] = {"b", "e"};
	double at[2];
	char id[32];

	if (!t) {
		json_decref(args);
		return;
	}
	at[0] = micros(began + t->shift);
	at[1] = micros(ended + t->shift);
	snprintf(id, sizeof(id), "%llu", (unsigned long long)++t->flights);
	for (int i = 0; i < 2; i++)
		put(t, DT_TRACE_JOIN,
		    json_pack("{s:s, s:s, s:s, s:{s:s}, s:f, s:i, s:i, s:o}", "name", name, "cat", category,
			      "ph", end[i], "id2", "local", id, "ts", at[i], "pid", t->rank, "tid", 0, "args",
			      i == 0 && args ? json_incref(args) : json_object()));
	json_decref(args);
}

int dt_trace_end(struct dt_trace *t, struct dt_err *err)
{
	if (!t)
		return 0;
	errno = 0;
	if (t->error == 0 && (fputs(DT_TRACE_CLOSE, t->f) == EOF || fflush(t->f) == EOF))
		t->error = errno ? -errno : -EIO;
	return t->error ? dt_err_sys(err, t->error, "cannot write '%s'", t->path) : 0;
}

void dt_trace_close(struct dt_trace *t)
{
	if (!t)
		return;
	fclose(t->f);
	free(t->path);
	free(t);
}
/* SPDX-License-Identifier: Apache-2.0 */
