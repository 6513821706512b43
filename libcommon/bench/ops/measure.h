/*
 * Measures the times of training operations on this machine, for dt-plan --ops.
 *
 * For every number of processes that share the cores, that many processes are started. All time the same
 * point at the same time, so that they share caches and memory like the ranks of a run.
 */
#ifndef DT_BENCH_OPS_MEASURE_H
#define DT_BENCH_OPS_MEASURE_H

#include "base/err.h"
#include "plan/optimes.h"

#include <stdio.h>

enum { DT_BENCH_MAX_CORES = 1024 };

struct dt_bench_ops_ask {
	double seconds;			/* approximate duration */
	int cores;			/* 0: all that this process may run on */
	double window_mib, weights_mib; /* windows for operands, and for weights and gradients */
	FILE *progress;			/* where to draw a progress bar; NULL: nowhere */
};

/* Measures every point of every mode. Release ret by dt_op_times_release, after a failure too. */
int dt_bench_ops(const struct dt_bench_ops_ask *ask, struct dt_op_times *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
