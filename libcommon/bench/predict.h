/* Which algorithms a collective has, what messages cost here, and what that predicts for each algorithm. */
#ifndef DT_BENCH_PREDICT_H
#define DT_BENCH_PREDICT_H

#include "bench/collective.h"
#include "bench/simulate.h"

/* Whether the collective can go by this algorithm at all. */
bool dt_bench_has_algorithm(enum dt_bench_kind k, enum dt_alg a);
/* What operations of so many elements go by. */
enum dt_alg dt_bench_chosen(const struct dt_comm *c, enum dt_bench_kind k, size_t count, enum dt_dtype t);

/*
 * Measures what messages cost here, in a node and between nodes, and gives the network this amounts to.
 * Collective. -ENOTSUP where machines do not hold equal runs of ranks.
 */
int dt_bench_topology(struct dt_comm *world, struct dt_bench_topo *ret, struct dt_err *err);
/* Simulates a call on n elements of e bytes in all (every rank's block counted). Step lists only. here: with
 * the message size that is used, otherwise with the best one. */
int dt_bench_predict(const struct dt_bench_topo *t, enum dt_bench_kind k, enum dt_alg a, size_t n, size_t e,
		     bool here, double *ret_s, struct dt_err *err);

/*
 * From now on AUTO takes the cheapest step list by these costs where the group spans machines. The same call
 * on every rank, with the same costs. -EINVAL when t is for another number of ranks. Close after the group is
 * freed, or set no chooser in between (dt_comm_set_chooser).
 */
struct dt_bench_costs;
int dt_bench_costs_open(struct dt_bench_costs **ret, struct dt_comm *c, const struct dt_bench_topo *t,
			struct dt_err *err);
void dt_bench_costs_close(struct dt_bench_costs *k);

#endif
