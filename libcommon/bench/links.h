/* Copy bandwidth of a machine; latency and bandwidth of its links, fitted to measured all-reduces. */
#ifndef DT_BENCH_LINKS_H
#define DT_BENCH_LINKS_H

#include "comm/comm.h"

/*
 * Copy bandwidth of one machine in bytes read plus written, with all its ranks copying at once between
 * buffers that together exceed the last-level cache (bytes; 0: ask the system). Collective.
 */
int dt_bench_copy(struct dt_comm *world, size_t cache, double *ret_gbs, struct dt_err *err);

/*
 * Cost of a link class, so that a ring all-reduce of n bytes over p ranks takes
 *   2 (p - 1) latency_s + 2 (p - 1) / p n / bandwidth
 * (fitted to measured all-reduces by least squares of the relative error).
 */
struct dt_bench_link {
	const char *name; /* "shm" between ranks of one machine, "network" between machines */
	int ranks;	  /* ranks of the measured groups */
	double latency_s, bandwidth_gbs;
	double error; /* root mean square of the relative error of the fit */
};
/* Collective. Returns the number of classes, at most two. */
int dt_bench_links(struct dt_world *w, struct dt_bench_link ret[2], struct dt_err *err);

/* Fits t = a + b x by least squares of the relative error, a, b >= 0. Returns the root mean square of the
 * relative error. */
double dt_bench_fit_line(const double *x, const double *t, int n, double *ret_a, double *ret_b);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
