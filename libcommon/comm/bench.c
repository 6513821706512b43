#include "comm/bench.h"

#include "base/progress.h"
#include "comm/internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PERIOD 8191 /* prime: elements until the input repeats */

struct dt_bench {
	struct dt_comm *c;
	struct dt_bench_opts o;
	size_t e, region; /* element size; bytes of each buffer */
	char *src, *dst, *table;
	double *times, *worst;
};

double dt_bench_bus_factor(enum dt_bench_kind k, int ranks)
{
	double n = ranks;

	switch (k) {
	case DT_BENCH_ALL_REDUCE:
		return 2 * (n - 1) / n;
	case DT_BENCH_ALL_GATHER:
	case DT_BENCH_REDUCE_SCATTER:
	case DT_BENCH_ALL_TO_ALL:
		return (n - 1) / n;
	case DT_BENCH_BARRIER:
		return 0;
	default:
		return 1;
	}
}

double dt_bench_traffic(enum dt_bench_kind k, int ranks)
{
	switch (k) {
	case DT_BENCH_ALL_GATHER: /* every rank reads its part and writes the whole */
	case DT_BENCH_REDUCE_SCATTER:
		return ranks + 1;
	case DT_BENCH_BROADCAST:
		return ranks;
	case DT_BENCH_BARRIER:
		return 0;
	default:
		return 2 * ranks;
	}
}

bool dt_bench_has_in_place(enum dt_bench_kind k)
{
	return k != DT_BENCH_SEND_RECV && k != DT_BENCH_BARRIER;
}

bool dt_bench_reduces(enum dt_bench_kind k)
{
	return k == DT_BENCH_ALL_REDUCE || k == DT_BENCH_REDUCE_SCATTER;
}

static bool per_rank(enum dt_bench_kind k)
{
	return k == DT_BENCH_ALL_GATHER || k == DT_BENCH_REDUCE_SCATTER || k == DT_BENCH_ALL_TO_ALL;
}

static size_t cache_bytes(void)
{
	long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);

	return l3 > 0 ? (size_t)l3 : (size_t)32 << 20;
}

int dt_bench_open(struct dt_bench **ret, struct dt_comm *c, const struct dt_bench_opts *o, size_t max_bytes,
		  struct dt_err *err)
{
	struct dt_bench *b = calloc(1, sizeof(*b));
	size_t least = (size_t)c->size * 8;

	if (!b)
		return dt_err_sys(err, -ENOMEM, "benchmark");
	b->c = c;
	b->o = *o;
	b->e = (size_t)dt_dtype_size(o->t);
	b->region = max_bytes > least ? max_bytes : least;
	if (o->cold && b->region < 2 * cache_bytes())
		b->region = 2 * cache_bytes();
	b->region = (b->region + 4095) / 4096 * 4096;
	b->src = aligned_alloc(4096, b->region);
	b->dst = aligned_alloc(4096, b->region);
	b->table = malloc((size_t)PERIOD * b->e);
	b->times = calloc((size_t)o->iters, sizeof(double));
	b->worst = calloc((size_t)o->iters, sizeof(double));
	if (!b->src || !b->dst || !b->table || !b->times || !b->worst) {
		size_t need = 2 * b->region;

		dt_bench_close(b);
		return dt_err_sys(err, -ENOMEM, "two buffers of %zu bytes in all", need);
	}
	memset(b->src, 0, b->region);
	memset(b->dst, 0, b->region);
	*ret = b;
	return 0;
}

void dt_bench_close(struct dt_bench *b)
{
	if (!b)
		return;
	free(b->src);
	free(b->dst);
	free(b->table);
	free(b->times);
	free(b->worst);
	free(b);
}

static void put(char *at, enum dt_dtype t, int v)
{
	/* f16 by its definition: |v| <= 240 here, so the exponent is at most 7 and every v is exact */
	uint16_t h = 0;
	float f = (float)v;
	double d = v;
	int64_t l = v;
	int32_t w = v;

	switch (t) {
	case DT_F32:
		memcpy(at, &f, 4);
		return;
	case DT_BF16:
		h = dt_f32_to_bf16(f);
		memcpy(at, &h, 2);
		return;
	case DT_F16:
		if (v) {
			int e = 31 - __builtin_clz((unsigned)v);

			h = (uint16_t)((e + 15) << 10 | ((v << (10 - e)) & 1023));
		}
		memcpy(at, &h, 2);
		return;
	case DT_F64:
		memcpy(at, &d, 8);
		return;
	case DT_I32:
		memcpy(at, &w, 4);
		return;
	case DT_I64:
		memcpy(at, &l, 8);
		return;
	case DT_U16:
		h = (uint16_t)v;
		memcpy(at, &h, 2);
		return;
	default:
		*at = (char)v;
	}
}

/* What rank sends at element i: at most 120 / ranks, or 0 and 1 on few enough ranks, so that sums stay small.
 * The sum over ranks is a multiple of their number where it will be divided (DT_AVG): all send the same. */
static int value(const struct dt_bench *b, int rank, size_t i)
{
	int p = b->c->size, most = p <= 60 ? 120 / p : 2, every = p <= 60 ? 1 : (p + 59) / 60;
	size_t x = i % PERIOD;

	if (dt_bench_reduces(b->o.kind) && b->o.op == DT_AVG)
		return (int)((x * 7 + x / 64) % (size_t)most);
	if ((rank + (int)x) % every)
		return 0;
	return (int)((x * 7 + x / 64 + (size_t)rank * 5) % (size_t)most);
}

static int reduced(const struct dt_bench *b, size_t i)
{
	int v = value(b, 0, i), x;

	if (b->o.op == DT_AVG)
		return v;
	for (int r = 1; r < b->c->size; r++) {
		x = value(b, r, i);
		v = b->o.op == DT_MAX ? (x > v ? x : v) : b->o.op == DT_MIN ? (x < v ? x : v) : v + x;
	}
	return v;
}

/* One period of what rank sends, or of the result (rank -1), from element first on. */
static void fill_table(struct dt_bench *b, int rank, size_t first)
{
	for (size_t i = 0; i < PERIOD; i++)
		put(b->table + i * b->e, b->o.t,
		    rank < 0 ? reduced(b, first + i) : value(b, rank, first + i));
}

static void fill(struct dt_bench *b, char *to, size_t n, int rank, size_t first)
{
	fill_table(b, rank, first);
	for (size_t at = 0; at < n; at += PERIOD)
		memcpy(to + at * b->e, b->table, (n - at < PERIOD ? n - at : PERIOD) * b->e);
}

static int64_t differ(struct dt_bench *b, const char *got, size_t n, int rank, size_t first)
{
	int64_t wrong = 0;

	fill_table(b, rank, first);
	for (size_t at = 0; at < n; at += PERIOD) {
		size_t m = n - at < PERIOD ? n - at : PERIOD;

		if (!memcmp(got + at * b->e, b->table, m * b->e))
			continue;
		for (size_t i = 0; i < m; i++)
			wrong += memcmp(got + (at + i) * b->e, b->table + i * b->e, b->e) != 0;
	}
	return wrong;
}

/* Whose blocks an all-to-all exchanges is told apart by a shift of the pattern. */
#define SHIFT 131

static void prepare(struct dt_bench *b, size_t n, bool in_place)
{
	struct dt_comm *c = b->c;
	char *to = in_place ? b->dst : b->src;

	switch (b->o.kind) {
	case DT_BENCH_REDUCE_SCATTER:
		fill(b, to, n * (size_t)c->size, c->rank, 0);
		break;
	case DT_BENCH_ALL_GATHER:
		fill(b, in_place ? to + (size_t)c->rank * n * b->e : to, n, c->rank, 0);
		break;
	case DT_BENCH_ALL_TO_ALL:
		for (int j = 0; j < c->size; j++)
			fill(b, to + (size_t)j * n * b->e, n, c->rank, (size_t)j * SHIFT);
		break;
	case DT_BENCH_BROADCAST:
		if (c->rank == b->o.root)
			fill(b, to, n, c->rank, 0);
		break;
	case DT_BENCH_BARRIER:
		break;
	default:
		fill(b, to, n, c->rank, 0);
	}
}

static int64_t count_wrong(struct dt_bench *b, size_t n, bool in_place)
{
	struct dt_comm *c = b->c;
	size_t block = n * b->e;
	int64_t wrong = 0;

	switch (b->o.kind) {
	case DT_BENCH_ALL_REDUCE:
		return differ(b, b->dst, n, -1, 0);
	case DT_BENCH_REDUCE_SCATTER:
		return differ(b, in_place ? b->dst + (size_t)c->rank * block : b->dst, n, -1,
			      (size_t)c->rank * n);
	case DT_BENCH_ALL_GATHER:
		for (int j = 0; j < c->size; j++)
			wrong += differ(b, b->dst + (size_t)j * block, n, j, 0);
		return wrong;
	case DT_BENCH_ALL_TO_ALL:
		for (int j = 0; j < c->size; j++)
			wrong += differ(b, b->dst + (size_t)j * block, n, j, (size_t)c->rank * SHIFT);
		return wrong;
	case DT_BENCH_BROADCAST:
		return differ(b, b->dst, n, b->o.root, 0);
	case DT_BENCH_SEND_RECV:
		return differ(b, b->dst, n, (c->rank + c->size - 1) % c->size, 0);
	default:
		return 0;
	}
}

static int send_recv(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t,
		     struct dt_err *err)
{
	struct dt_req *r = NULL, *s = NULL;
	int rc, e;

	if (c->size == 1) {
		memcpy(dst, src, n * (size_t)dt_dtype_size(t));
		return 0;
	}
	rc = dt_irecv(c, dst, n, t, (c->rank + c->size - 1) % c->size, 0, "benchmark", &r, err);
	if (!rc)
		rc = dt_isend(c, src, n, t, (c->rank + 1) % c->size, 0, "benchmark", &s, err);
	e = dt_wait(&s, NULL, err);
	rc = rc ? rc : e;
	e = dt_wait(&r, NULL, err);
	return rc ? rc : e;
}

static int call(struct dt_bench *b, size_t n, bool in_place, size_t offset, struct dt_err *err)
{
	char *src = b->src + offset, *dst = b->dst + offset;
	const void *in = in_place ? NULL : src;
	struct dt_comm *c = b->c;
	enum dt_dtype t = b->o.t;

	switch (b->o.kind) {
	case DT_BENCH_ALL_REDUCE:
		return dt_all_reduce(c, dst, in, n, t, b->o.op, "benchmark", err);
	case DT_BENCH_REDUCE_SCATTER: /* in place as NCCL has it: to this rank's own block */
		return in_place ? dt_reduce_scatter(c, dst + (size_t)c->rank * n * b->e, dst, n, t, b->o.op,
						    "benchmark", err)
				: dt_reduce_scatter(c, dst, src, n, t, b->o.op, "benchmark", err);
	case DT_BENCH_ALL_GATHER:
		return dt_all_gather(c, dst, in, n, t, "benchmark", err);
	case DT_BENCH_ALL_TO_ALL:
		return dt_all_to_all(c, dst, in, n, t, "benchmark", err);
	case DT_BENCH_BROADCAST: /* out of place the root copies, as NCCL does */
		if (!in_place && c->rank == b->o.root)
			memcpy(dst, src, n * b->e);
		return dt_broadcast(c, dst, n, t, b->o.root, "benchmark", err);
	case DT_BENCH_SEND_RECV:
		return send_recv(c, dst, src, n, t, err);
	default:
		return dt_barrier(c, "benchmark", err);
	}
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int measure(struct dt_bench *b, size_t n, size_t bytes, bool in_place, struct dt_bench_result *r,
		   struct dt_err *err)
{
	size_t stride = (bytes + 4095) / 4096 * 4096, at = 0, iters = (size_t)b->o.iters;
	double t0, total, last;
	int rc = 0;

	for (int i = 0; i < b->o.warmup && !rc; i++)
		rc = call(b, n, in_place, 0, err);
	if (!rc)
		rc = dt_barrier(b->c, "benchmark", err);
	t0 = last = dt_now();
	for (size_t i = 0; i < iters && !rc; i++) {
		double now;

		rc = call(b, n, in_place, at, err);
		now = dt_now();
		b->times[i] = now - last;
		last = now;
		if (b->o.cold)
			at = at + stride + bytes <= b->region ? at + stride : 0;
	}
	total = (last - t0) / (double)iters;
	if (!rc)
		rc = dt_all_reduce(b->c, &total, NULL, 1, DT_F64, DT_MAX, "slowest rank", err);
	if (!rc)
		rc = dt_all_reduce(b->c, b->worst, b->times, iters, DT_F64, DT_MAX, "slowest rank", err);
	if (rc)
		return rc;
	qsort(b->worst, iters, sizeof(double), by_value);
	r->time_s = total;
	r->min_s = b->worst[0];
	r->p50_s = b->worst[(iters - 1) / 2];
	r->p99_s = b->worst[(size_t)ceil(0.99 * (double)iters) - 1];
	r->mean_s = 0;
	for (size_t i = 0; i < iters; i++)
		r->mean_s += b->worst[i] / (double)iters;
	return 0;
}

int dt_bench_run(struct dt_bench *b, size_t bytes, bool in_place, double copy_gbs,
		 struct dt_bench_result *ret, struct dt_err *err)
{
	size_t p = (size_t)b->c->size, wide = per_rank(b->o.kind) ? p : 1, n = bytes / b->e / wide;
	struct dt_bench_result r = {.wrong = -1};
	double traffic;
	int rc;

	n = b->o.kind == DT_BENCH_BARRIER ? 0 : n ? n : 1;
	r.count = n;
	r.bytes = n * b->e * wide;
	rc = measure(b, n, r.bytes, in_place, &r, err);
	if (!rc && b->o.check) {
		prepare(b, n, in_place);
		rc = call(b, n, in_place, 0, err);
		r.wrong = count_wrong(b, n, in_place);
		if (!rc)
			rc = dt_all_reduce(b->c, &r.wrong, NULL, 1, DT_I64, DT_SUM, "wrong elements", err);
	}
	if (rc)
		return rc;
	r.algbw_gbs = (double)r.bytes / r.time_s / 1e9;
	r.busbw_gbs = r.algbw_gbs * dt_bench_bus_factor(b->o.kind, (int)p);
	traffic = dt_bench_traffic(b->o.kind, (int)p) * (double)r.bytes;
	if (copy_gbs > 0 && traffic > 2 * (double)cache_bytes())
		r.bound_fraction = traffic / (copy_gbs * 1e9) / r.time_s;
	*ret = r;
	return 0;
}

int dt_bench_copy(struct dt_world *w, struct dt_comm *world, double *ret_gbs, struct dt_err *err)
{
	size_t n = cache_bytes() * 4 / (size_t)w->info.local_size;
	char *a, *b;
	double best = 0, sum;
	int rc = 0;

	n = (n + 4095) / 4096 * 4096;
	a = aligned_alloc(4096, n);
	b = aligned_alloc(4096, n);
	if (!a || !b) {
		free(a);
		free(b);
		return dt_err_sys(err, -ENOMEM, "two buffers of %zu bytes", n);
	}
	memset(a, 1, n);
	memset(b, 2, n);
	for (int i = 0; i < 3 && !rc; i++) {
		double t0, t;

		rc = dt_barrier(world, "copy bandwidth", err);
		t0 = dt_now();
		dt_copy_stream(b, a, n);
		if (!rc) /* with more ranks than processors they take turns: the last one counts */
			rc = dt_barrier(world, "copy bandwidth", err);
		t = dt_now() - t0;
		if (!rc)
			rc = dt_all_reduce(world, &t, NULL, 1, DT_F64, DT_MAX, "copy bandwidth", err);
		sum = 2 * (double)n * w->info.local_size / t / 1e9;
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

double dt_fit_line(const double *x, const double *t, int n, double *ret_a, double *ret_b)
{
	double s = 0, sx = 0, sxx = 0, st = 0, sxt = 0, det, a, b, error = 0;

	for (int i = 0; i < n; i++) { /* weights 1 / t^2 */
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

static int fit(struct dt_comm *c, const char *name, struct dt_link *ret, struct dt_err *err)
{
	struct dt_bench_opts o = {.kind = DT_BENCH_ALL_REDUCE, .t = DT_F32, .iters = 8, .warmup = 2};
	static const size_t size[] = {1 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20, 16 << 20};
	enum { N = sizeof(size) / sizeof(size[0]) };
	double x[N], t[N], a, b, p = c->size;
	struct dt_bench_result r;
	struct dt_bench *bench = NULL;
	int rc = dt_bench_open(&bench, c, &o, size[N - 1], err);

	for (int i = 0; i < N && !rc; i++) {
		rc = dt_bench_run(bench, size[i], true, 0, &r, err);
		x[i] = (double)size[i];
		t[i] = rc ? 0 : r.p50_s;
	}
	dt_bench_close(bench);
	if (rc)
		return rc;
	ret->name = name;
	ret->ranks = c->size;
	ret->error = dt_fit_line(x, t, N, &a, &b);
	ret->latency_s = a / (2 * (p - 1));
	ret->bandwidth_gbs = b > 0 ? 2 * (p - 1) / p / b / 1e9 : 0;
	return 0;
}

/* Groups of one class may differ: the slowest counts, and all ranks have the same numbers. */
int dt_bench_links(struct dt_world *w, struct dt_link ret[2], struct dt_err *err)
{
	struct {
		const char *name;
		int color;
		bool any;
	} kinds[2] = {{"shm", w->node_of ? w->node_of[w->info.rank] : 0, w->info.size > w->info.nodes},
		      {"network", w->info.local_rank, w->info.nodes > 1}};
	int n = 0, rc = 0;

	for (int i = 0; i < 2 && !rc; i++) {
		struct dt_link l = {.name = kinds[i].name};
		struct dt_comm *c, *all;

		if (!kinds[i].any)
			continue;
		rc = dt_comm_create(&all, w, "all", 0, 0, err);
		if (rc)
			return rc;
		rc = dt_comm_create(&c, w, kinds[i].name, kinds[i].color, 0, err);
		if (!rc && c->size > 1)
			rc = fit(c, kinds[i].name, &l, err);
		if (!rc) {
			double v[4] = {l.latency_s, l.bandwidth_gbs > 0 ? 1 / l.bandwidth_gbs : 0, l.error,
				       l.ranks};

			rc = dt_all_reduce(all, v, NULL, 4, DT_F64, DT_MAX, "links", err);
			ret[n] = (struct dt_link){kinds[i].name, (int)v[3], v[0], v[1] > 0 ? 1 / v[1] : 0,
						  v[2]};
			n++;
		}
		if (!rc)
			dt_comm_free(c);
		dt_comm_free(all);
	}
	return rc ? rc : n;
}
