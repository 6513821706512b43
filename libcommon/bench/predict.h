/* The algorithms of a collective, measured message costs, and times predicted from them. */
#ifndef DT_BENCH_PREDICT_H
#define DT_BENCH_PREDICT_H

#include "bench/collective.h"
#include "bench/simulate.h"

/* Whether the collective has this algorithm. */
bool dt_bench_has_algorithm(enum dt_bench_kind k, enum dt_alg a);
/* The algorithm used for operations of count elements. */
enum dt_alg dt_bench_chosen(const struct dt_comm *c, enum dt_bench_kind k, size_t count, enum dt_dtype t);

/*
 * Measures message costs within and between nodes and returns them as a network. Collective. -ENOTSUP if
 * ranks are not placed in equal consecutive runs on the machines.
 */
int dt_bench_topology(struct dt_comm *world, struct dt_bench_topo *ret, struct dt_err *err);
/*
 * Simulates a call on n elements of e bytes, over all blocks, with an algorithm that has step lists. here:
 * with the chunk size in use, otherwise with the best one.
 */
int dt_bench_predict(const struct dt_bench_topo *t, enum dt_bench_kind k, enum dt_alg a, size_t n, size_t e,
		     bool here, double *ret_s, struct dt_err *err);

/*
 * From now on AUTO chooses the cheapest step list by these costs, if the group spans machines. Every rank
 * must make the same call with the same costs. -EINVAL if t has another number of ranks. Close it after the
 * group is freed or its chooser is reset (dt_comm_set_chooser).
 */
struct dt_bench_costs;
int dt_bench_costs_open(struct dt_bench_costs **ret, struct dt_comm *c, const struct dt_bench_topo *t,
			struct dt_err *err);
void dt_bench_costs_close(struct dt_bench_costs *k);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
