/*
 * What a process and its machine use, by counters of the system: two readings apart give rates. Energy is
 * RAPL's (packages and the memory beside them), whose counters wrap: read at least once a minute.
 */
#ifndef DT_PLAN_USAGE_H
#define DT_PLAN_USAGE_H

#include "base/err.h"

#include <stddef.h>

struct dt_usage;

/* Totals; NAN: the system does not say. */
struct dt_usage_now {
	double processor_s;    /* of this process, user and system */
	double received, sent; /* bytes, over this machine's network interfaces but lo */
	double energy_j;       /* of processors and memory, since opened */
	double memory_bytes;   /* between memory and processors, since opened */
};

/*
 * root: see plan/sysfile.h, must outlive it. ret_memory: why there are no counters of memory, or "" where
 * there are.
 */
int dt_usage_open(struct dt_usage **ret, const char *root, char *ret_memory, size_t n, struct dt_err *err);
void dt_usage_read(struct dt_usage *u, struct dt_usage_now *ret);
void dt_usage_close(struct dt_usage *u);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
