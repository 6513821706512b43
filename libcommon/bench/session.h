/* A benchmark run: collectives, sizes and algorithms in turn, printed as a table or JSON. */
#ifndef DT_BENCH_SESSION_H
#define DT_BENCH_SESSION_H

#include "base/progress.h"
#include "bench/report.h"

#include <pthread.h>

struct dt_bench_sizes {
	size_t min, max;
	size_t step;   /* bytes added from one size to the next; 0: use factor */
	double factor; /* factor from one size to the next */
};
size_t dt_bench_next_size(const struct dt_bench_sizes *z, size_t s);

struct dt_bench_session_opts {
	enum dt_bench_kind kind; /* DT_BENCH_N: all of them */
	enum dt_alg algorithm;	 /* DT_ALG_N: all of them; otherwise the group's */
	struct dt_bench_sizes sizes;
	int warmup;
	size_t cache; /* as in struct dt_bench_opts */
	bool check;
	bool explain; /* measure message costs first, and predict every time */
	bool skew, fit, latency;
	const struct dt_compress_opts *compress; /* NULL: none */
};

struct dt_bench_session {
	/* set by the caller */
	struct dt_comm *c;
	struct dt_bench_session_opts o;
	struct dt_bench_run_info info;
	FILE *table;		       /* where to print text; NULL: nowhere */
	json_t *results, *compression; /* arrays to append to; NULL: none */
	pthread_mutex_t *lock;	       /* protects results */

	/* set by the run */
	struct dt_bench_totals totals;
	struct dt_bench_link link[2];
	struct dt_bench_skew skew;
	struct dt_bench_topo topo;
	struct dt_bench_costs *costs; /* with explain on several machines */
	double busbw_sum;
	int nbusbw;
	struct dt_progress bar;
};

/* Collective. The caller prints totals or the JSON object. Release after the group is freed. */
int dt_bench_session_run(struct dt_bench_session *b, struct dt_err *err);
void dt_bench_session_release(struct dt_bench_session *b);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
