/*
 * Training operations on the CPU, each with its own operands, to be timed.
 *
 * Operands move through a window of memory, since in a training run they are rarely still in a core's cache.
 */
#ifndef DT_BENCH_OPS_OPERATE_H
#define DT_BENCH_OPS_OPERATE_H

#include "kernels/ops.h"
#include "model/op/timed.h"

/*
 * A pool of memory from which operands are taken in turn. Operands that are read keep their values; outputs
 * have their own pool.
 */
struct dt_bench_pool {
	char *p;
	size_t at, size, window, dirty; /* in bytes; dirty: prefix that may have been written */
};

struct dt_bench_bed {
	struct dt_dev *dev;
	struct dt_bench_pool in, out, w; /* w: weights and their gradients */
	int32_t *ids;
	enum dt_dtype type; /* of the operands */
};

/*
 * Sets up operands on the CPU; windows are in bytes. Nothing releases them before the process ends. Returns 0
 * or a negative errno.
 */
int dt_bench_bed_init(struct dt_bench_bed *b, int threads, size_t window, size_t weights_window);

/* Fills a pool with initial values and rewinds it. */
void dt_bench_pool_fill(struct dt_bench_pool *p);

/* Runs op once with sizes n (see plan/optimes.h). Returns 0 or a negative errno. */
int dt_bench_operate(struct dt_bench_bed *b, enum dt_timed op, const int64_t n[3]);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
