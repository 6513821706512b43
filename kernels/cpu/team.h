/*
 * Threads for the ops of inference. A step has about 200 parallel regions, which take 5 to 200 us in a small
 * model. libgomp begins and ends each of them with a barrier that makes a system call even if no thread
 * sleeps: on Zen 5 a region costs 0.46 us, one of the team 0.16 us, and one of a single thread 0.27 us
 * instead of none. On Zen 4 a step of SmolLM2-135M takes 0.95 of the time with 2 to 4 sequences, 0.985 with
 * 32.
 *
 * The process has one team, whose threads are created when they are first needed. They spin between regions
 * as long as OpenMP's threads do (GOMP_SPINCOUNT), then sleep. While both kinds of threads spin, they are in
 * each other's way: if one op per layer uses OpenMP, a step takes a third longer. So the team is for devices
 * that run inference (dev->steps), and there all ops of a step should use it.
 */
#ifndef DT_KERNELS_CPU_TEAM_H
#define DT_KERNELS_CPU_TEAM_H

#include "kernels/cpu/cpu.h"

/*
 * Calls fn(arg, t, n) on n threads, with t = 0 .. n - 1, of which the caller is the first, and returns when
 * all have returned. A region of one thread is a call, and so is one inside another. by_team: by the team,
 * unless another thread is using it, it cannot be created, or the user's settings are against it: OpenMP's
 * threads are bound (OMP_PROC_BIND, OMP_PLACES) or spin for long (OMP_WAIT_POLICY, GOMP_SPINCOUNT,
 * KMP_BLOCKTIME). Otherwise by OpenMP.
 */
void dt_cpu_together(int n, bool by_team, void (*fn)(void *arg, int t, int n), void *arg);

/*
 * Calls fn(arg, t, first, last) for parts of `rows` rows, on the device's threads, or for all rows on this
 * one if it is a single row or they have few elements, `each` a row. t: number of the thread.
 */
void dt_cpu_rows(struct dt_dev *dev, int64_t rows, int64_t each,
		 void (*fn)(void *arg, int t, int64_t first, int64_t last), void *arg);

/*
 * While this thread waits from now on, it prefetches the n bytes at p, until they end or the next call. Only
 * threads of the team wait so. A step of one sequence takes 0.92 (Q4_0) to 0.97 (Q8_0) of the time if its
 * products leave the first panels of the weights that are used next, one of 32 sequences 0.985 (Zen 4).
 */
void dt_cpu_ahead(const void *p, int64_t n);

/* Within fn: waits until all threads are here. What they wrote before can be read after. */
void dt_cpu_meet(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
