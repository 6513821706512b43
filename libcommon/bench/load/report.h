/* Summary of a run: latencies, rates, and requests within the limits. */
#ifndef DT_LOAD_REPORT_H
#define DT_LOAD_REPORT_H

#include "bench/load/client.h"

#include <stdio.h>

struct dt_load_stat { /* seconds; percentiles are interpolated; all 0 if n is 0 */
	double mean, min, p50, p90, p95, p99, max;
	size_t n;
	double *v; /* [n] sorted */
};

/* Seconds; 0: no limit. A good request is answered within all limits; tpot needs its number of tokens. */
struct dt_load_limits {
	double ttft, tpot, e2e;
};

struct dt_load_report {
	int requests, ok, refused, broken, timeout, cut, unsent;
	double duration;	      /* seconds from the first counted request to the end of the last */
	double input, output, cached; /* tokens of answered requests */
	int uncounted;		      /* answered requests whose tokens the server did not report */
	double rate, offered, output_rate, total_rate; /* per second; offered 0: undefined */
	/* ttft, e2e: from when a request was due to its first text and to its end. tpot: per token; itl: gaps
	 * in the stream. lag: how late this program sent. */
	struct dt_load_stat ttft, tpot, itl, e2e, lag;
	int good;
	double good_share, good_rate; /* of the requests not cut by the client; per second */
};

/*
 * Summarises results [skip, n). closed: users wait for answers, so no rate is offered. -ENOMEM. Release with
 * dt_load_report_release.
 */
int dt_load_report_make(struct dt_load_report *rep, const struct dt_load_result *res, int skip, int n,
			bool closed, const struct dt_load_limits *limits, struct dt_err *err);
void dt_load_report_release(struct dt_load_report *rep);

void dt_load_report_print(const struct dt_load_report *rep, const struct dt_load_errors *errors,
			  const struct dt_load_limits *limits, FILE *f);
/* Draws histograms of TTFT, TPOT and end-to-end latency. */
int dt_load_report_draw(const struct dt_load_report *rep, int width, bool utf8, bool color, FILE *f);
json_t *dt_load_report_json(const struct dt_load_report *rep, const struct dt_load_errors *errors,
			    const struct dt_load_limits *limits); /* NULL: out of memory */

/* "ok", "refused" ... */
const char *dt_load_outcome_name(enum dt_load_outcome o);
/* Seconds per token after the first; < 0: fewer than two tokens. */
double dt_load_tpot(const struct dt_load_result *r);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
