/*
 * The times of the operations of training on this machine, for dt-plan --ops.
 *
 * For every number of processes that share the cores, as many are started; each times the same point at the
 * same time, so that caches and memory are shared as ranks of a run share them.
 */
#ifndef DT_BENCH_OPS_MEASURE_H
#define DT_BENCH_OPS_MEASURE_H

#include "base/err.h"
#include "plan/optimes.h"

#include <stdio.h>

enum { DT_BENCH_MAX_CORES = 1024 };

struct dt_bench_ops_ask {
	double seconds;			/* to take, about */
	int cores;			/* 0: all that this process may run on */
	double window_mib, weights_mib; /* memory that operands, weights and gradients move through */
	FILE *progress;			/* where a bar is drawn; NULL: none */
};

/* Measures every point of every mode. ret is released by dt_op_times_release, after a failure too. */
int dt_bench_ops(const struct dt_bench_ops_ask *ask, struct dt_op_times *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
