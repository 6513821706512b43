/* Times calls, alternating with plain MPI if asked; records arrival times of ranks. */
#include "bench/collective_priv.h"

#include "base/order.h"
#include "base/progress.h"
#include "comm/reduce.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* The same call by plain MPI, on separate buffers. */
static int call_mpi(struct dt_bench *b, size_t n, bool in_place, size_t offset, struct dt_err *err)
{
	char *src = b->src, *dst = b->dst;
	int rc;

	b->src = b->buf[2];
	b->dst = b->buf[3];
	dt_comm_mpi_only(b->c, true);
	rc = dt_bench_call(b, n, in_place, offset, err);
	dt_comm_mpi_only(b->c, false);
	b->src = src;
	b->dst = dst;
	return rc;
}

static int add_skew(struct dt_bench *b, struct dt_bench_skew *s, struct dt_err *err)
{
	size_t iters = (size_t)b->o.iters;
	double *at = b->times + 2 * iters, *first = b->worst, *last = b->worst + iters;
	double mine[2] = {0, 0}, *all = calloc(3 * (size_t)s->ranks, sizeof(double)), often = 0;
	int rc;

	if (!all)
		return dt_err_sys(err, -ENOMEM, "arrivals");
	for (size_t i = 0; i < iters; i++)
		at[i] += s->offset_s;
	rc = dt_all_reduce(b->c, first, at, iters, DT_F64, DT_MIN, "arrivals", err);
	if (!rc)
		rc = dt_all_reduce(b->c, last, at, iters, DT_F64, DT_MAX, "arrivals", err);
	for (size_t i = 0; i < iters && !rc; i++) {
		double late = at[i] - first[i];

		mine[0] += late;
		mine[1] = late > mine[1] ? late : mine[1];
		often += at[i] >= last[i] && last[i] > first[i];
	}
	if (!rc)
		rc = dt_all_gather(b->c, all, (double[]){mine[0], mine[1], often}, 3, DT_F64, "arrivals",
				   err);
	for (int r = 0; r < s->ranks && !rc; r++) {
		s->sum_s[r] += all[3 * r];
		s->max_s[r] = all[3 * r + 1] > s->max_s[r] ? all[3 * r + 1] : s->max_s[r];
		s->last[r] += (int64_t)all[3 * r + 2];
	}
	s->calls += (int64_t)iters;
	free(all);
	return rc;
}

/* Reduces each call's time to that of its slowest rank, into worst. */
static int over_ranks(struct dt_bench *b, double *times, struct dt_err *err)
{
	return dt_all_reduce(b->c, b->worst, times, (size_t)b->o.iters, DT_F64, DT_MAX, "slowest rank", err);
}

static double mean(const double *x, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += x[i];
	return sum / (double)n;
}

/* Rank 0's clock minus this rank's, from the fastest of several round trips, assuming the reply was sent
 * midway. */
static int compare_clocks(struct dt_comm *c, double *ret, struct dt_err *err)
{
	int rank = dt_comm_rank(c), size = dt_comm_size(c), rc = 0;
	double best = INFINITY, mine, theirs;

	*ret = 0;
	for (int r = 1; r < size; r++)
		for (int i = 0; i < 16 && !rc && (rank == 0 || rank == r); i++) {
			mine = dt_now();
			if (rank) {
				rc = dt_send(c, &mine, 1, DT_F64, 0, 1, "clock", err);
				if (!rc)
					rc = dt_recv(c, &theirs, 1, DT_F64, 0, 2, "clock", err);
				if (!rc && dt_now() - mine < best) {
					best = dt_now() - mine;
					*ret = theirs - (mine + best / 2);
				}
			} else {
				rc = dt_recv(c, &theirs, 1, DT_F64, r, 1, "clock", err);
				mine = dt_now();
				if (!rc)
					rc = dt_send(c, &mine, 1, DT_F64, r, 2, "clock", err);
			}
		}
	return rc;
}

/*
 * Ranks of several machines leave a barrier up to one message latency apart. So rank 0 broadcasts a start
 * time, far enough ahead to reach all ranks.
 */
static int start_together(struct dt_bench *b, struct dt_err *err)
{
	double t0 = dt_now(), at;
	int rc = dt_barrier(b->c, "benchmark", err);

	if (rc || !b->o.apart || b->info.nodes == 1)
		return rc;
	at = dt_now() + b->offset_s;
	at += 2 * (dt_now() - t0);
	rc = dt_broadcast(b->c, &at, 1, DT_F64, 0, "benchmark", err);
	while (!rc && dt_now() + b->offset_s < at)
		sched_yield();
	return rc;
}

/*
 * Times calls back to back; with compare or apart, a barrier precedes each. Ranks do not leave a call
 * together: without the barrier a rank that leaves one library's call early would wait inside the other
 * library's.
 */
static int time_calls(struct dt_bench *b, size_t n, size_t bytes, bool in_place, double *ret_mean,
		      struct dt_err *err)
{
	size_t stride = (bytes + 4095) / 4096 * 4096, at = 0, iters = (size_t)b->o.iters;
	double t0 = 0, last = 0, now;
	int rc = 0;

	for (size_t i = 0; i < iters + (size_t)b->o.warmup && !rc; i++) {
		size_t k = i < (size_t)b->o.warmup ? 0 : i - (size_t)b->o.warmup;

		if (b->o.compare || b->o.apart || i == (size_t)b->o.warmup || !i) {
			rc = start_together(b, err);
			last = dt_now();
			t0 = i <= (size_t)b->o.warmup ? last : t0;
		}
		b->times[2 * iters + k] = last;
		if (!rc)
			rc = dt_bench_call(b, n, in_place, at, err);
		now = dt_now();
		b->times[k] = now - last;
		last = now;
		if (!rc && b->o.compare) {
			rc = dt_barrier(b->c, "benchmark", err);
			last = dt_now();
			if (!rc)
				rc = call_mpi(b, n, in_place, at, err);
			b->times[iters + k] = dt_now() - last;
		}
		if (b->o.cold)
			at = at + stride + bytes <= b->region ? at + stride : 0;
	}
	*ret_mean = (last - t0) / (double)iters;
	return rc;
}

/* Ordinary stores, in blocks as the collectives copy. */
static void copy_near(char *dst, const char *src, size_t n)
{
	for (size_t at = 0; at < n; at += DT_COMM_COPY_BLOCK)
		memcpy(dst + at, src + at, n - at < DT_COMM_COPY_BLOCK ? n - at : DT_COMM_COPY_BLOCK);
}

/*
 * Time in which all ranks, at once, copy as many bytes as the call must read and write: the median of a few
 * tries with ordinary or non-temporal stores, whichever is faster. With compare a call of plain MPI precedes
 * each try, so that the caches are in the same state as before our calls. In place, data is moved by one
 * cache line.
 */
static int copy_time(struct dt_bench *b, double bytes, size_t elements, bool in_place, double *ret,
		     struct dt_err *err)
{
	enum { TRIES = 7 };
	size_t n = (size_t)(bytes / 2 / b->size);
	double t[2][TRIES];
	int rc = 0;

	n = n < b->region ? n : b->region;
	n -= in_place && n > 64 ? 64 : 0;
	for (int i = 0; i < 2 * TRIES && !rc; i++) {
		double *at = &t[i & 1][i / 2];

		if (b->o.compare)
			rc = call_mpi(b, elements, in_place, 0, err);
		if (!rc)
			rc = dt_barrier(b->c, "copy bandwidth", err);
		*at = dt_now();
		if (in_place)
			memmove(b->buf[0], b->buf[0] + 64, n);
		else if (i & 1)
			dt_comm_copy_stream(b->buf[1], b->buf[0], n);
		else
			copy_near(b->buf[1], b->buf[0], n);
		*at = dt_now() - *at;
	}
	if (!rc)
		rc = dt_all_reduce(b->c, t[0], NULL, 2 * TRIES, DT_F64, DT_MAX, "copy bandwidth", err);
	if (rc)
		return rc;
	for (int k = 0; k < 2; k++)
		qsort(t[k], TRIES, sizeof(double), dt_order_f64);
	*ret = fmin(t[0][TRIES / 2], t[1][TRIES / 2]);
	return 0;
}

static int measure(struct dt_bench *b, size_t n, size_t bytes, bool in_place, struct dt_bench_skew *skew,
		   struct dt_bench_result *r, struct dt_err *err)
{
	size_t iters = (size_t)b->o.iters;
	double own[2] = {0, 0}; /* this rank's calls: mean, minimum */
	int rc =
		b->o.apart && b->info.nodes > 1 && !b->compared ? compare_clocks(b->c, &b->offset_s, err) : 0;

	b->compared = true;
	if (!rc)
		rc = time_calls(b, n, bytes, in_place, &own[0], err);
	own[1] = INFINITY;
	for (size_t i = 0; i < iters; i++)
		own[1] = fmin(own[1], b->times[i]);
	if (!rc)
		rc = dt_all_reduce(b->c, own, NULL, 2, DT_F64, DT_MAX, "slowest rank", err);
	if (!rc && skew)
		rc = add_skew(b, skew, err);
	if (!rc && b->o.compare) {
		rc = over_ranks(b, b->times + iters, err);
		qsort(b->worst, iters, sizeof(double), dt_order_f64);
		r->mpi_s = b->worst[(iters - 1) / 2];
	}
	if (!rc)
		rc = over_ranks(b, b->times, err);
	if (rc)
		return rc;
	qsort(b->worst, iters, sizeof(double), dt_order_f64);
	r->p50_s = b->worst[(iters - 1) / 2];
	r->p99_s = b->worst[(size_t)ceil(0.99 * (double)iters) - 1];
	r->max_s = b->worst[iters - 1];
	r->mean_s = mean(b->worst, iters);
	r->time_s = b->o.compare || b->o.apart ? r->p50_s : own[0];
	r->min_s = fmin(own[1], r->time_s); /* nearly equal times may differ by rounding */
	return 0;
}

int dt_bench_run(struct dt_bench *b, size_t bytes, bool in_place, double copy_gbs, struct dt_bench_skew *skew,
		 struct dt_bench_result *ret, struct dt_err *err)
{
	size_t p = (size_t)b->size, wide = dt_bench_per_rank(b->o.kind) ? p : 1, n = bytes / b->e / wide;
	struct dt_bench_result r = {.wrong = -1};
	double traffic;
	int rc;

	n = b->o.kind == DT_BENCH_BARRIER ? 0 : n ? n : 1;
	r.count = n;
	r.bytes = n * b->e * wide;
	rc = measure(b, n, r.bytes, in_place, skew, &r, err);
	if (!rc && b->o.check) {
		dt_bench_prepare(b, n, in_place);
		rc = dt_bench_call(b, n, in_place, 0, err);
		r.wrong = dt_bench_wrong(b, n, in_place);
		if (!rc)
			rc = dt_all_reduce(b->c, &r.wrong, NULL, 1, DT_I64, DT_SUM, "wrong elements", err);
	}
	if (rc)
		return rc;
	r.algbw_gbs = (double)r.bytes / r.time_s / 1e9;
	r.busbw_gbs = r.algbw_gbs * dt_bench_bus_factor(b->o.kind, (int)p);
	traffic = dt_bench_traffic(b->o.kind, (int)p, in_place) * (double)r.bytes;
	if (copy_gbs > 0 && traffic > 0) { /* all ranks on one machine */
		rc = copy_time(b, traffic, n, in_place, &r.copy_s, err);
		if (rc)
			return rc;
	}
	if (copy_gbs > 0 && traffic > 2 * (double)dt_bench_cache_bytes(b->o.cache))
		r.bound_fraction = traffic / (copy_gbs * 1e9) / r.time_s;
	*ret = r;
	return 0;
}

int dt_bench_skew_init(struct dt_bench_skew *ret, struct dt_comm *c, struct dt_err *err)
{
	struct dt_world_info info;
	size_t p = (size_t)dt_comm_size(c);
	struct dt_bench_skew s = {
		.ranks = (int)p, .sum_s = calloc(2 * p, sizeof(double)), .last = calloc(p, sizeof(int64_t))};
	int rc = s.sum_s && s.last ? 0 : dt_err_sys(err, -ENOMEM, "arrivals");

	dt_world_info(dt_comm_world(c), &info);
	if (!rc && info.nodes > 1)
		rc = compare_clocks(c, &s.offset_s, err);
	if (rc) {
		dt_bench_skew_release(&s);
		return rc;
	}
	s.max_s = s.sum_s + p;
	*ret = s;
	return 0;
}

void dt_bench_skew_release(struct dt_bench_skew *s)
{
	free(s->sum_s);
	free(s->last);
	*s = (struct dt_bench_skew){0};
}
/* SPDX-License-Identifier: Apache-2.0 */
