/* What messages cost here, and what that predicts for each algorithm. */
#include "comm/bench_priv.h"

#include "base/progress.h"
#include "comm/simulate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLOW_S 0.02 /* where messages take this long, larger ones need not be tried */

static enum dt_op_kind op_of(enum dt_bench_kind k)
{
	static const enum dt_op_kind op[DT_BENCH_N] = {
		DT_OP_ALL_REDUCE, DT_OP_ALL_GATHER, DT_OP_REDUCE_SCATTER, DT_OP_BROADCAST, DT_OP_ALL_TO_ALL,
		DT_OP_REDUCE,	  DT_OP_GATHER,	    DT_OP_SCATTER,	  DT_OP_SEND,	   DT_OP_BARRIER};

	return op[k];
}

bool dt_bench_has_algorithm(enum dt_bench_kind k, enum dt_alg a)
{
	return a == DT_ALG_AUTO || a == DT_ALG_DIRECT || a == DT_ALG_MPI || dt_steps_have(op_of(k), a);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Every rank of the group sends to the next and receives from the one before: the median of several. */
static int exchange(struct dt_comm *c, char *buf, size_t n, double *ret, struct dt_err *err)
{
	enum { TIMES = 15, WARM = 3 };
	double t[TIMES], worst[TIMES];
	int rc = 0;

	for (int i = -WARM; i < TIMES && !rc; i++) {
		struct dt_req *q[2] = {NULL, NULL};
		double t0;
		int e;

		rc = dt_barrier(c, "message costs", err);
		if (rc)
			return rc;
		t0 = dt_now();
		rc = dt_irecv(c, buf + n, n, DT_U8, (c->rank + c->size - 1) % c->size, 0, "message costs",
			      &q[0], err);
		if (!rc)
			rc = dt_isend(c, buf, n, DT_U8, (c->rank + 1) % c->size, 0, "message costs", &q[1],
				      err);
		for (int k = 0; k < 2; k++) {
			e = dt_wait(&q[k], NULL, err);
			rc = rc ? rc : e;
		}
		if (rc)
			return rc;
		if (i >= 0)
			t[i] = dt_now() - t0;
	}
	rc = dt_all_reduce(c, worst, t, TIMES, DT_F64, DT_MAX, "message costs", err);
	qsort(worst, TIMES, sizeof(double), by_value);
	*ret = worst[TIMES / 2];
	return rc;
}

static int message_cost(struct dt_comm *c, double *ret_latency, double *ret_s, struct dt_err *err)
{
	static const size_t size[] = {64, 4 << 10, 32 << 10, 256 << 10, 1 << 20};
	enum { N = sizeof(size) / sizeof(size[0]) };
	char *buf = calloc(2, size[N - 1]);
	double x[N], t[N];
	int rc = buf ? 0 : dt_err_sys(err, -ENOMEM, "message costs"), n = 0;

	for (int i = 0; i < N && !rc && (i < 3 || t[i - 1] < SLOW_S); i++, n++) {
		x[i] = (double)size[i];
		rc = exchange(c, buf, size[i], &t[i], err);
	}
	if (!rc)
		dt_fit_line(x, t, n, ret_latency, ret_s);
	free(buf);
	return rc;
}

static double reduce_cost(void)
{
	size_t n = 1 << 16;
	float *a = calloc(2 * n, sizeof(*a));
	const void *src[2] = {a, a ? a + n : NULL};
	double best = 1, t0;

	for (int i = 0; a && i < 5; i++) {
		t0 = dt_now();
		dt_reduce_many(a, src, 2, n, DT_F32, DT_SUM);
		best = dt_now() - t0 < best ? dt_now() - t0 : best;
	}
	free(a);
	return best / (4 * (double)n);
}

int dt_bench_topology(struct dt_world *w, struct dt_comm *world, struct dt_topo *ret, struct dt_err *err)
{
	bool one = w->info.nodes == 1;
	int g = world->node_ranks, rc = 0;
	struct dt_topo t = {.kind = one ? DT_TOPO_FLAT : DT_TOPO_FAT_TREE,
			    .ranks = w->info.size,
			    .node = g,
			    .leaf = w->info.nodes,
			    .group = 1,
			    .taper = 1,
			    .reduce_s = reduce_cost()};
	double v[4] = {0};

	if (!g)
		return dt_err_set(err, -ENOTSUP,
				  "machines do not hold equal runs of ranks: costs are not fitted");
	for (int net = 0; net < 2 && !rc; net++) {
		struct dt_comm *c;

		rc = dt_comm_create(&c, w, "costs",
				    net		 ? w->info.local_rank
				    : w->node_of ? w->node_of[w->info.rank]
						 : 0,
				    0, err);
		if (!rc && c->size > 1)
			rc = message_cost(c, &v[2 * net], &v[2 * net + 1], err);
		if (!rc)
			dt_comm_free(c);
	}
	if (!rc)
		rc = dt_all_reduce(world, v, NULL, 4, DT_F64, DT_MAX, "message costs", err);
	if (!rc)
		rc = dt_all_reduce(world, &t.reduce_s, NULL, 1, DT_F64, DT_MAX, "message costs", err);
	if (rc)
		return rc;
	t.shm_latency_s = v[0];
	t.shm_s = v[1];
	t.net_latency_s = one ? v[0] : v[2];
	t.net_s = one ? v[1] : v[3] / g; /* all ranks of a node sent at once */
	*ret = t;
	return 0;
}

int dt_bench_predict(const struct dt_topo *t, enum dt_bench_kind k, enum dt_alg a, size_t n, size_t e,
		     bool here, double *ret_s, struct dt_err *err)
{
	struct dt_steps s;
	size_t chunk = (here ? DT_EXEC_CHUNK_BYTES : dt_topo_chunk(t, n * e)) / e;
	int rc = dt_steps_init(&s, op_of(k), a, t->ranks, 0, n, chunk, t->node, err);

	return rc ? rc : dt_simulate(&s, t, e, ret_s, err);
}

enum dt_alg dt_bench_chosen(struct dt_comm *c, enum dt_bench_kind k, size_t count, enum dt_dtype t)
{
	return c->size == 1 ? DT_ALG_DIRECT
			    : dt_choose(c, &(struct dt_op){.kind = op_of(k), .n = count, .t = t});
}
