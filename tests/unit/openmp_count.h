/*
 * Counts libgomp's parallel regions in this process, in `regions`, by functions of the same names. With
 * another OpenMP, regions_count is false.
 */
#ifndef OPENMP_COUNT_H
#define OPENMP_COUNT_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>

static atomic_long regions;

#ifdef __clang__
static const bool regions_count = false; /* libomp has other functions */
#else
static const bool regions_count = true;

/* All of them have a function and its argument first, and at most six more integers. */
typedef void parallel_fn(void *fn, void *arg, long a, long b, long c, long d, long e, long f);

#define COUNTED(name)                                                                                        \
	void name(void *fn, void *arg, long a, long b, long c, long d, long e, long f);                      \
	void name(void *fn, void *arg, long a, long b, long c, long d, long e, long f)                       \
	{                                                                                                    \
		parallel_fn *next;                                                                           \
                                                                                                             \
		*(void **)&next = dlsym(RTLD_NEXT, #name);                                                   \
		regions++;                                                                                   \
		next(fn, arg, a, b, c, d, e, f);                                                             \
	}
COUNTED(GOMP_parallel)
COUNTED(GOMP_parallel_loop_dynamic)
COUNTED(GOMP_parallel_loop_nonmonotonic_dynamic)
#endif

#endif
/* SPDX-License-Identifier: Apache-2.0 */
