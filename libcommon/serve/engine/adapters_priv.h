/* Shared by adapters.c and adapters_hold.c. */
#ifndef DT_SERVE_ADAPTERS_PRIV_H
#define DT_SERVE_ADAPTERS_PRIV_H

#include "serve/engine/adapters.h"

struct dt_place_waiter {
	TAILQ_ENTRY(dt_place_waiter) in_list;
};

struct dt_adapters {
	struct dt_adapters_params p; /* constant */
	char *dir;		     /* p.dir with symbolic links resolved; NULL: none */
	pthread_mutex_t reading;     /* only one adapter is read at a time */
	pthread_mutex_t mu;
	pthread_cond_t
		changed; /* an adapter was loaded or evicted, or a hold was released; CLOCK_MONOTONIC */
	TAILQ_HEAD(, dt_served_adapter) all; /* listed ones by name, and unlisted ones with references */
	TAILQ_HEAD(, dt_place_waiter) queue; /* requests waiting for a place in memory */
	uint64_t numbers;		     /* numbers given out so far */
	int in_memory;			     /* adapters in memory, including those being read */
	uint64_t bytes, loads, evictions;
};

/* adapters_hold.c: removes the adapter from memory if it is there. Call with the lock held. */
void dt_adapters_evict(struct dt_served_adapter *s);
/* Reads the adapter from disk. Call without the lock. */
int dt_adapters_read(struct dt_served_adapter *s, struct dt_infer_adapter **ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
