/*
 * Operations of training on a processor, each on operands of its own, to be timed.
 *
 * Operands move through a window of memory, since those of a run are seldom still in a core's own cache.
 */
#ifndef DT_BENCH_OPS_OPERATE_H
#define DT_BENCH_OPS_OPERATE_H

#include "kernels/ops.h"
#include "model/op/timed.h"

/*
 * Memory that operands are taken from in turn. Operands that are read keep their values; written ones
 * have a pool of their own.
 */
struct dt_bench_pool {
	char *p;
	size_t at, size, window, dirty; /* bytes; dirty: those that may have been written */
};

struct dt_bench_bed {
	struct dt_dev *dev;
	struct dt_bench_pool in, out, w; /* w: weights and their gradients */
	int32_t *ids;
	enum dt_dtype type; /* of the operands */
};

/*
 * A bed on the processor. The windows are in bytes. 0 or a negative errno; released either way by
 * dt_bench_bed_release.
 */
int dt_bench_bed_init(struct dt_bench_bed *b, int threads, size_t window, size_t weights_window);
void dt_bench_bed_release(struct dt_bench_bed *b);

/* Sets the initial values of a pool; the next operand is its first. */
void dt_bench_pool_fill(struct dt_bench_pool *p);

/* Executes op once for sizes n (plan/optimes.h says what they mean). 0 or a negative errno. */
int dt_bench_operate(struct dt_bench_bed *b, enum dt_timed op, const int64_t n[3]);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
