/* Shared by simulate.c and simulate_events.c: the links of a described network. */
#ifndef DT_BENCH_SIMULATE_PRIV_H
#define DT_BENCH_SIMULATE_PRIV_H

#include "bench/simulate.h"

#define DT_BENCH_PATH_LINKS 128

struct dt_bench_sim {
	const struct dt_bench_topo *t;
	int nodes, leaves, groups, dim[3];
	int group; /* routers of a dragonfly group, at most all that there are */
	size_t nlink;
	double *load,
		*cost; /* of each link: bytes of the round, or (events) when it is free; seconds a byte */
	int *touched;
	int ntouched;
	double *clock, *next;
	struct dt_comm_moves m;
};

struct dt_bench_path {
	int link[DT_BENCH_PATH_LINKS], n, hops;
	bool local; /* inside a node */
};

/* The route of a message from rank i to rank j. */
void dt_bench_sim_route(const struct dt_bench_sim *s, int i, int j, struct dt_bench_path *p);

/* Runs the discrete-event simulation; s is newly initialised. */
int dt_bench_sim_events(struct dt_bench_sim *s, const struct dt_comm_steps *st, size_t element_bytes,
			double *ret_s, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
