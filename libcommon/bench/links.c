/* Measures a machine's copy bandwidth, and latency and bandwidth of link classes. */
#include "bench/links.h"

#include "base/progress.h"
#include "bench/collective_priv.h"
#include "comm/reduce.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SLOW_S 0.1 /* once a call takes this long, larger sizes are skipped (seconds) */
#define HUGE   ((size_t)2 << 20)

int dt_bench_copy(struct dt_comm *world, size_t cache, double *ret_gbs, struct dt_err *err)
{
	struct dt_world_info info;
	size_t n;
	char *a, *b;
	double best = 0, sum;
	int rc = 0;

	dt_world_info(dt_comm_world(world), &info);
	n = dt_bench_cache_bytes(cache) * 2 / (size_t)info.local_size;
	n = (n + HUGE - 1) / HUGE * HUGE; /* huge pages: otherwise page faults take most of the time */
	a = aligned_alloc(HUGE, n);
	b = aligned_alloc(HUGE, n);
	if (!a || !b) {
		free(a);
		free(b);
		return dt_err_sys(err, -ENOMEM, "two buffers of %zu bytes", n);
	}
	madvise(a, n, MADV_HUGEPAGE);
	madvise(b, n, MADV_HUGEPAGE);
	memset(a, 1, n);
	memset(b, 2, n);
	for (int i = 0; i < 3 && !rc; i++) {
		double t0, t;

		rc = dt_barrier(world, "copy bandwidth", err);
		t0 = dt_now();
		dt_comm_copy_stream(b, a, n);
		if (!rc) /* with more ranks than processors, ranks take turns: the last one counts */
			rc = dt_barrier(world, "copy bandwidth", err);
		t = dt_now() - t0;
		if (!rc)
			rc = dt_all_reduce(world, &t, NULL, 1, DT_F64, DT_MAX, "copy bandwidth", err);
		sum = 2 * (double)n * info.local_size / t / 1e9;
		best = sum > best ? sum : best;
	}
	free(a);
	free(b);
	if (!rc)
		rc = dt_all_reduce(world, &best, NULL, 1, DT_F64, DT_MIN, "copy bandwidth", err);
	if (!rc)
		*ret_gbs = best;
	return rc;
}

double dt_bench_fit_line(const double *x, const double *t, int n, double *ret_a, double *ret_b)
{
	double s = 0, sx = 0, sxx = 0, st = 0, sxt = 0, det, a, b, error = 0;

	for (int i = 0; i < n; i++) { /* weights 1 / t^2 (relative error) */
		double k = 1 / (t[i] * t[i]);

		s += k;
		sx += k * x[i];
		sxx += k * x[i] * x[i];
		st += k * t[i];
		sxt += k * x[i] * t[i];
	}
	det = s * sxx - sx * sx;
	b = det > 0 ? (s * sxt - sx * st) / det : 0;
	a = (st - b * sx) / s;
	if (b < 0) {
		b = 0;
		a = st / s;
	} else if (a < 0) {
		a = 0;
		b = sxt / sxx;
	}
	for (int i = 0; i < n; i++)
		error += pow((a + b * x[i] - t[i]) / t[i], 2) / n;
	*ret_a = a;
	*ret_b = b;
	return sqrt(error);
}

static int fit(struct dt_comm *c, const char *name, struct dt_bench_link *ret, struct dt_err *err)
{
	struct dt_bench_opts o = {
		.kind = DT_BENCH_ALL_REDUCE, .t = DT_F32, .iters = 8, .warmup = 2, .registered = true};
	static const size_t size[] = {1 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20, 16 << 20};
	enum { N = sizeof(size) / sizeof(size[0]) };
	double x[N], t[N], a, b, p = dt_comm_size(c);
	struct dt_bench_result r;
	struct dt_bench *bench = NULL;
	int rc = dt_bench_open(&bench, c, &o, size[N - 1], err), n = 0;

	for (int i = 0; i < N && !rc && (i < 3 || t[i - 1] < SLOW_S); i++, n++) {
		rc = dt_bench_run(bench, size[i], true, 0, NULL, &r, err);
		x[i] = (double)size[i];
		t[i] = rc ? 0 : r.p50_s;
	}
	dt_bench_close(bench);
	if (rc)
		return rc;
	ret->name = name;
	ret->ranks = dt_comm_size(c);
	ret->error = dt_bench_fit_line(x, t, n, &a, &b);
	ret->latency_s = a / (2 * (p - 1));
	ret->bandwidth_gbs = b > 0 ? 2 * (p - 1) / p / b / 1e9 : 0;
	return 0;
}

/* Groups of one class may differ: the slowest counts. All ranks get the same numbers. */
int dt_bench_links(struct dt_world *w, struct dt_bench_link ret[2], struct dt_err *err)
{
	struct dt_world_info info;
	int n = 0, rc = 0;

	dt_world_info(w, &info);
	for (int i = 0; i < 2 && !rc; i++) {
		const bool network = i == 1;
		struct dt_bench_link l = {.name = network ? "network" : "shm"};
		struct dt_comm *c, *all;

		if (network ? info.nodes == 1 : info.size == info.nodes)
			continue;
		rc = dt_comm_create(&all, w, "all", 0, 0, err);
		if (rc)
			return rc;
		rc = dt_comm_create(&c, w, l.name, network ? info.local_rank : info.node, 0, err);
		if (!rc && dt_comm_size(c) > 1)
			rc = fit(c, l.name, &l, err);
		if (!rc) {
			double v[4] = {l.latency_s, l.bandwidth_gbs > 0 ? 1 / l.bandwidth_gbs : 0, l.error,
				       l.ranks};

			rc = dt_all_reduce(all, v, NULL, 4, DT_F64, DT_MAX, "links", err);
			ret[n] = (struct dt_bench_link){l.name, (int)v[3], v[0], v[1] > 0 ? 1 / v[1] : 0,
							v[2]};
			n++;
		}
		if (!rc)
			dt_comm_free(c);
		dt_comm_free(all);
	}
	return rc ? rc : n;
}
/* SPDX-License-Identifier: Apache-2.0 */
