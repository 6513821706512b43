/* Measures message costs, and predicts the times of algorithms from them. */
#include "bench/predict.h"

#include "base/order.h"
#include "base/progress.h"
#include "bench/links.h"
#include "comm/reduce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLOW_S 0.02		   /* once a message takes this long, larger ones are skipped (seconds) */
#define BUFFER ((size_t)128 << 20) /* maximum; enough for 4096 ranks per group */

static enum dt_comm_op_kind op_of(enum dt_bench_kind k)
{
	static const enum dt_comm_op_kind op[DT_BENCH_N] = {
		DT_COMM_ALL_REDUCE, DT_COMM_ALL_GATHER, DT_COMM_REDUCE_SCATTER, DT_COMM_BROADCAST,
		DT_COMM_ALL_TO_ALL, DT_COMM_REDUCE,	DT_COMM_GATHER,		DT_COMM_SCATTER,
		DT_COMM_SEND,	    DT_COMM_BARRIER};

	return op[k];
}

bool dt_bench_has_algorithm(enum dt_bench_kind k, enum dt_alg a)
{
	return a == DT_ALG_AUTO || a == DT_ALG_DIRECT || a == DT_ALG_MPI || dt_comm_steps_have(op_of(k), a);
}

/*
 * Time of a round in which every rank of the group sends n bytes to the next. Step lists consist of such
 * rounds. Measured with an all-gather around the ring: the median of several runs of a few calls each, so
 * that uneven release from the barrier matters little.
 */
static int round_time(struct dt_comm *c, char *buf, size_t n, double *ret, struct dt_err *err)
{
	enum { TIMES = 9, WARM = 2 };
	double t[TIMES], worst[TIMES];
	int p = dt_comm_size(c), calls = p < 5 ? 8 / (p - 1) : 2, rc = 0;

	for (int i = -WARM; i < TIMES && !rc; i++) {
		double t0;

		rc = dt_barrier(c, "message costs", err);
		t0 = dt_now();
		for (int k = 0; k < calls && !rc; k++)
			rc = dt_all_gather(c, buf, NULL, n, DT_U8, "message costs", err);
		if (i >= 0)
			t[i] = (dt_now() - t0) / calls / (p - 1);
	}
	if (!rc)
		rc = dt_all_reduce(c, worst, t, TIMES, DT_F64, DT_MAX, "message costs", err);
	if (rc)
		return rc;
	qsort(worst, TIMES, sizeof(double), dt_order_f64);
	*ret = worst[TIMES / 2];
	return 0;
}

/* Cost of a message: one rank of each machine sends, the others idle. */
static int message_cost(struct dt_comm *c, bool mine, double *ret_latency, double *ret_s, struct dt_err *err)
{
	static const size_t size[] = {64, 4 << 10, 32 << 10, 256 << 10, 1 << 20};
	enum { N = sizeof(size) / sizeof(size[0]) };
	size_t most = BUFFER / (size_t)dt_comm_size(c);
	double x[N], t[N];
	int rc = 0, n = 0;
	char *buf;

	if (!mine || dt_comm_size(c) == 1)
		return 0;
	buf = calloc((size_t)dt_comm_size(c), size[N - 1] < most ? size[N - 1] : most);
	rc = buf ? dt_comm_set_algorithm(c, DT_ALG_RING, err) : dt_err_sys(err, -ENOMEM, "message costs");
	for (int i = 0; i < N && !rc && (i < 3 || (t[i - 1] < SLOW_S && size[i] <= most)); i++, n++) {
		x[i] = (double)size[i];
		rc = round_time(c, buf, size[i], &t[i], err);
	}
	if (!rc)
		dt_bench_fit_line(x, t, n, ret_latency, ret_s);
	free(buf);
	return rc;
}

/* Seconds per byte of a port that a machine's ranks share: all send at once, messages so large that latency
 * matters little. */
static int shared_cost(struct dt_comm *c, int g, double latency, double alone, double *ret_s,
		       struct dt_err *err)
{
	size_t most = BUFFER / (size_t)dt_comm_size(c), least = 256 << 10, n;
	double enough = alone > 0 ? 12 * latency / alone : 0, t = 0, each;
	char *buf;
	int rc;

	n = enough < (double)most ? (size_t)enough : most;
	n = n > least ? n : least;
	buf = calloc((size_t)dt_comm_size(c), n);
	rc = buf ? dt_comm_set_algorithm(c, DT_ALG_RING, err) : dt_err_sys(err, -ENOMEM, "message costs");
	if (!rc)
		rc = round_time(c, buf, n, &t, err);
	free(buf);
	each = (t - latency / 2) / ((double)n * g);
	*ret_s = each > alone / g ? each : alone / g;
	return rc;
}

/* All ranks reduce at once, long enough for ranks that share a processor to take turns. */
static int reduce_cost(struct dt_comm *world, double *ret_s, struct dt_err *err)
{
	enum { TIMES = 24 };
	size_t n = 1 << 18;
	float *a = calloc(2 * n, sizeof(*a));
	const void *src[2] = {a, a ? a + n : NULL};
	int rc = a ? dt_barrier(world, "reduction cost", err) : dt_err_sys(err, -ENOMEM, "reduction cost");
	double t0 = dt_now();

	for (int i = 0; i < TIMES && !rc; i++)
		dt_comm_reduce_many(a, src, 2, n, DT_F32, DT_SUM);
	*ret_s = (dt_now() - t0) / TIMES / (4 * (double)n);
	free(a);
	return rc;
}

int dt_bench_topology(struct dt_comm *world, struct dt_bench_topo *ret, struct dt_err *err)
{
	struct dt_world *w = dt_comm_world(world);
	struct dt_world_info info;
	int g = dt_comm_node_ranks(world), rc = 0;
	struct dt_bench_topo t;
	double v[6] = {0};
	bool one;

	if (!g)
		return dt_err_set(
			err, -ENOTSUP,
			"machines do not hold equally many consecutive ranks: costs cannot be fitted");
	dt_world_info(w, &info);
	one = info.nodes == 1;
	t = (struct dt_bench_topo){.kind = one ? DT_BENCH_TOPO_FLAT : DT_BENCH_TOPO_FAT_TREE,
				   .ranks = info.size,
				   .node = g,
				   .leaf = info.nodes,
				   .group = 1,
				   .taper = 1};
	for (int net = 0; net < 2 && !rc; net++) {
		struct dt_comm *c;

		rc = dt_comm_create(&c, w, "costs", net ? info.local_rank : info.node, 0, err);
		if (!rc)
			rc = message_cost(c, !net || info.local_rank == 0, &v[2 * net], &v[2 * net + 1], err);
		if (!rc && net)
			rc = dt_all_reduce(world, v, NULL, 4, DT_F64, DT_MAX, "message costs", err);
		if (!rc && net && dt_comm_size(c) > 1)
			rc = shared_cost(c, g, v[2], v[3], &v[5], err);
		if (!rc)
			dt_comm_free(c);
	}
	if (!rc)
		rc = reduce_cost(world, &v[4], err);
	if (!rc)
		rc = dt_all_reduce(world, &v[4], NULL, 2, DT_F64, DT_MAX, "message costs", err);
	if (rc)
		return rc;
	t.reduce_s = v[4];
	t.shm_latency_s = v[0];
	t.shm_s = v[1];
	t.net_latency_s = one ? v[0] : v[2];
	t.net_s = one ? v[1] : v[5];
	t.eager = !one;
	*ret = t;
	return 0;
}

int dt_bench_predict(const struct dt_bench_topo *t, enum dt_bench_kind k, enum dt_alg a, size_t n, size_t e,
		     bool here, double *ret_s, struct dt_err *err)
{
	struct dt_comm_steps s;
	size_t chunk = (here ? DT_COMM_STEPS_CHUNK_BYTES : dt_bench_topo_chunk(t, n * e)) / e;
	int rc = dt_comm_steps_init(&s, op_of(k), a, t->ranks, 0, n, chunk, t->node, err);

	return rc ? rc : dt_bench_simulate(&s, t, e, ret_s, err);
}

enum dt_alg dt_bench_chosen(const struct dt_comm *c, enum dt_bench_kind k, size_t count, enum dt_dtype t)
{
	return dt_comm_choose(c, op_of(k), count, t);
}

/* The cheapest step list for operations of up to 2^i bytes; AUTO: not simulated yet. */
struct dt_bench_costs {
	struct dt_bench_topo topo;
	int node_ranks;
	enum dt_alg best[DT_COMM_FINISH][48];
};

/* The dt_comm_chooser. Every rank has the same costs and so gets the same answer. */
static enum dt_alg cheapest(void *arg, enum dt_comm_op_kind kind, size_t bytes)
{
	enum dt_alg best = DT_ALG_MPI;
	struct dt_bench_costs *k = arg;
	double least = 0, t;
	struct dt_comm_steps s;
	int i = 0;

	while (i < 47 && (size_t)1 << i < bytes)
		i++;
	if (k->best[kind][i] != DT_ALG_AUTO)
		return k->best[kind][i];
	for (int a = DT_ALG_NAIVE; a < DT_ALG_N; a++) {
		if (!dt_comm_steps_have(kind, (enum dt_alg)a) || (a == DT_ALG_TWO_LEVEL && !k->node_ranks) ||
		    dt_comm_steps_init(&s, kind, (enum dt_alg)a, k->topo.ranks, 0, (size_t)1 << i,
				       DT_COMM_STEPS_CHUNK_BYTES, k->node_ranks, NULL) ||
		    dt_bench_simulate(&s, &k->topo, 1, &t, NULL) || (least > 0 && t >= least))
			continue;
		least = t;
		best = (enum dt_alg)a;
	}
	k->best[kind][i] = best;
	return best;
}

int dt_bench_costs_open(struct dt_bench_costs **ret, struct dt_comm *c, const struct dt_bench_topo *t,
			struct dt_err *err)
{
	struct dt_bench_costs *k;

	if (t->ranks != dt_comm_size(c))
		return dt_err_set(err, -EINVAL, "costs of %d ranks for a group of %d", t->ranks,
				  dt_comm_size(c));
	k = calloc(1, sizeof(*k));
	if (!k)
		return dt_err_sys(err, -ENOMEM, "costs");
	k->topo = *t;
	k->node_ranks = dt_comm_node_ranks(c);
	dt_comm_set_chooser(c, cheapest, k);
	*ret = k;
	return 0;
}

void dt_bench_costs_close(struct dt_bench_costs *k)
{
	free(k);
}
/* SPDX-License-Identifier: Apache-2.0 */
