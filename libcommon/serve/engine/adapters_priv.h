/* Inside adapters*.c. */
#ifndef DT_SERVE_ADAPTERS_PRIV_H
#define DT_SERVE_ADAPTERS_PRIV_H

#include "serve/engine/adapters.h"

struct dt_place_waiter {
	TAILQ_ENTRY(dt_place_waiter) in_list;
};

struct dt_adapters {
	struct dt_adapters_params p; /* constant */
	char *dir;		     /* p.dir without symbolic links; NULL */
	pthread_mutex_t reading;     /* one adapter is read at a time */
	pthread_mutex_t mu;
	pthread_cond_t
		changed; /* something came into memory, went, or is held by one less; CLOCK_MONOTONIC */
	TAILQ_HEAD(, dt_served_adapter) all; /* listed ones by name, and those that are still referred to */
	TAILQ_HEAD(, dt_place_waiter) queue; /* for a place in memory */
	uint64_t numbers;		     /* given out */
	int in_memory;			     /* adapters, those being read included */
	uint64_t bytes, loads, evictions;
};

/* adapters.c: frees it when nobody refers to it. Locked. */
void dt_adapters_unref(struct dt_served_adapter *s);
/* adapters_hold.c: out of memory with it, where it is in. Locked. */
void dt_adapters_evict(struct dt_served_adapter *s);
/* Reads it, without the lock. */
int dt_adapters_read(struct dt_served_adapter *s, struct dt_infer_adapter **ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
