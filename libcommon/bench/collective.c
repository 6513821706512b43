/* Bandwidth formulas of the collectives, inputs with exact results, and the calls. */
#include "bench/collective_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PERIOD 8191 /* period of the input, in elements; prime */

double dt_bench_bus_factor(enum dt_bench_kind k, int ranks)
{
	double n = ranks;

	switch (k) {
	case DT_BENCH_ALL_REDUCE:
		return 2 * (n - 1) / n;
	case DT_BENCH_ALL_GATHER:
	case DT_BENCH_REDUCE_SCATTER:
	case DT_BENCH_ALL_TO_ALL:
	case DT_BENCH_GATHER:
	case DT_BENCH_SCATTER:
		return (n - 1) / n;
	case DT_BENCH_BARRIER:
		return 0;
	default:
		return 1;
	}
}

double dt_bench_traffic(enum dt_bench_kind k, int ranks, bool in_place)
{
	switch (k) {
	case DT_BENCH_ALL_GATHER: /* every rank reads its part and writes all; in place only the others'
				   * parts */
		return in_place ? ranks : ranks + 1;
	case DT_BENCH_REDUCE_SCATTER:
		return ranks + 1;
	case DT_BENCH_REDUCE:
		return ranks + 1;
	case DT_BENCH_BROADCAST:
		return ranks;
	case DT_BENCH_GATHER: /* in place, the root's block stays where it is */
	case DT_BENCH_SCATTER:
		return in_place ? 2 * (double)(ranks - 1) / ranks : 2;
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
	return k == DT_BENCH_ALL_REDUCE || k == DT_BENCH_REDUCE_SCATTER || k == DT_BENCH_REDUCE;
}

bool dt_bench_has_root(enum dt_bench_kind k)
{
	return k == DT_BENCH_BROADCAST || k == DT_BENCH_REDUCE || k == DT_BENCH_GATHER ||
	       k == DT_BENCH_SCATTER;
}

bool dt_bench_per_rank(enum dt_bench_kind k)
{
	return k == DT_BENCH_ALL_GATHER || k == DT_BENCH_REDUCE_SCATTER || k == DT_BENCH_ALL_TO_ALL ||
	       k == DT_BENCH_GATHER || k == DT_BENCH_SCATTER;
}

size_t dt_bench_cache_bytes(size_t given)
{
	long l3 = given ? (long)given : sysconf(_SC_LEVEL3_CACHE_SIZE);

	return l3 > 0 ? (size_t)l3 : (size_t)32 << 20;
}

int dt_bench_open(struct dt_bench **ret, struct dt_comm *c, const struct dt_bench_opts *o, size_t max_bytes,
		  struct dt_err *err)
{
	struct dt_bench *b = calloc(1, sizeof(*b));
	size_t least = (size_t)dt_comm_size(c) * 8;
	bool missing = false;

	if (!b)
		return dt_err_sys(err, -ENOMEM, "benchmark");
	b->c = c;
	dt_world_info(dt_comm_world(c), &b->info);
	b->rank = dt_comm_rank(c);
	b->size = dt_comm_size(c);
	b->o = *o;
	b->e = (size_t)dt_dtype_size(o->t);
	b->region = max_bytes > least ? max_bytes : least;
	if (o->cold && b->region < 2 * dt_bench_cache_bytes(o->cache))
		b->region = 2 * dt_bench_cache_bytes(o->cache);
	b->region = (b->region + 4095) / 4096 * 4096;
	for (int i = 0; i < (o->compare ? 4 : 2); i++) {
		void *p = NULL;

		if (i < 2 && o->registered) {
			int rc = dt_buffer_alloc(dt_comm_world(c), b->region, &p, err);

			if (rc) {
				dt_bench_close(b);
				return rc;
			}
		} else {
			p = aligned_alloc(4096, b->region);
		}
		b->buf[i] = p;
		if (p)
			memset(p, 0, b->region);
		else
			missing = true;
	}
	b->table = malloc((size_t)PERIOD * b->e);
	b->times = calloc(3 * (size_t)o->iters, sizeof(double));
	b->worst = calloc(2 * (size_t)o->iters, sizeof(double));
	if (missing || !b->table || !b->times || !b->worst) {
		size_t need = 2 * b->region;

		dt_bench_close(b);
		return dt_err_sys(err, -ENOMEM, "two buffers of %zu bytes in all", need);
	}
	b->src = b->buf[0];
	b->dst = b->buf[1];
	*ret = b;
	return 0;
}

void dt_bench_close(struct dt_bench *b)
{
	if (!b)
		return;
	for (int i = 0; i < 4; i++)
		if (i < 2 && b->o.registered)
			dt_buffer_free(dt_comm_world(b->c), b->buf[i]);
		else
			free(b->buf[i]);
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

/*
 * Input of a rank at element i: at most 120 / ranks, or with more than 60 ranks mostly 0 with a few 1, so
 * that sums are exact in every type. With DT_AVG all ranks send the same values, so that the division is
 * exact.
 */
static int value(const struct dt_bench *b, int rank, size_t i)
{
	int p = b->size, most = p <= 60 ? 120 / p : 2, every = p <= 60 ? 1 : (p + 59) / 60;
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
	for (int r = 1; r < b->size; r++) {
		x = value(b, r, i);
		v = b->o.op == DT_MAX ? (x > v ? x : v) : b->o.op == DT_MIN ? (x < v ? x : v) : v + x;
	}
	return v;
}

/* One period of a rank's input, or of the result (rank -1), from element `first` on. */
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

/* Shift of the pattern, in elements, between blocks of an all-to-all, to tell the blocks apart. */
#define SHIFT 131

void dt_bench_prepare(struct dt_bench *b, size_t n, bool in_place)
{
	char *to = in_place ? b->dst : b->src;

	switch (b->o.kind) {
	case DT_BENCH_REDUCE_SCATTER:
		fill(b, to, n * (size_t)b->size, b->rank, 0);
		break;
	case DT_BENCH_ALL_GATHER:
	case DT_BENCH_GATHER:
		fill(b, in_place ? to + (size_t)b->rank * n * b->e : to, n, b->rank, 0);
		break;
	case DT_BENCH_ALL_TO_ALL:
		for (int j = 0; j < b->size; j++)
			fill(b, to + (size_t)j * n * b->e, n, b->rank, (size_t)j * SHIFT);
		break;
	case DT_BENCH_BROADCAST:
		if (b->rank == b->o.root)
			fill(b, to, n, b->rank, 0);
		break;
	case DT_BENCH_SCATTER:
		for (int j = 0; j < b->size && b->rank == b->o.root; j++)
			fill(b, to + (size_t)j * n * b->e, n, b->rank, (size_t)j * SHIFT);
		break;
	case DT_BENCH_BARRIER:
		break;
	default:
		fill(b, to, n, b->rank, 0);
	}
}

int64_t dt_bench_wrong(struct dt_bench *b, size_t n, bool in_place)
{
	size_t block = n * b->e;
	int64_t wrong = 0;

	switch (b->o.kind) {
	case DT_BENCH_ALL_REDUCE:
		return differ(b, b->dst, n, -1, 0);
	case DT_BENCH_REDUCE_SCATTER:
		return differ(b, in_place ? b->dst + (size_t)b->rank * block : b->dst, n, -1,
			      (size_t)b->rank * n);
	case DT_BENCH_REDUCE:
		return b->rank == b->o.root ? differ(b, b->dst, n, -1, 0) : 0;
	case DT_BENCH_SCATTER:
		return differ(b, in_place ? b->dst + (size_t)b->rank * block : b->dst, n, b->o.root,
			      (size_t)b->rank * SHIFT);
	case DT_BENCH_GATHER:
		if (b->rank != b->o.root)
			return 0;
		/* fall through */
	case DT_BENCH_ALL_GATHER:
		for (int j = 0; j < b->size; j++)
			wrong += differ(b, b->dst + (size_t)j * block, n, j, 0);
		return wrong;
	case DT_BENCH_ALL_TO_ALL:
		for (int j = 0; j < b->size; j++)
			wrong += differ(b, b->dst + (size_t)j * block, n, j, (size_t)b->rank * SHIFT);
		return wrong;
	case DT_BENCH_BROADCAST:
		return differ(b, b->dst, n, b->o.root, 0);
	case DT_BENCH_SEND_RECV:
		return differ(b, b->dst, n, (b->rank + b->size - 1) % b->size, 0);
	default:
		return 0;
	}
}

static int send_recv(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t,
		     struct dt_err *err)
{
	int rank = dt_comm_rank(c), size = dt_comm_size(c), rc, e;
	struct dt_comm_req *r = NULL, *s = NULL;

	if (size == 1) {
		memcpy(dst, src, n * (size_t)dt_dtype_size(t));
		return 0;
	}
	rc = dt_irecv(c, dst, n, t, (rank + size - 1) % size, 0, "benchmark", &r, err);
	if (!rc)
		rc = dt_isend(c, src, n, t, (rank + 1) % size, 0, "benchmark", &s, err);
	e = dt_wait(&s, NULL, err);
	rc = rc ? rc : e;
	e = dt_wait(&r, NULL, err);
	return rc ? rc : e;
}

int dt_bench_call(struct dt_bench *b, size_t n, bool in_place, size_t offset, struct dt_err *err)
{
	char *src = b->src + offset, *dst = b->dst + offset;
	const void *in = in_place ? NULL : src;
	struct dt_comm *c = b->c;
	enum dt_dtype t = b->o.t;

	switch (b->o.kind) {
	case DT_BENCH_ALL_REDUCE:
		return dt_all_reduce(c, dst, in, n, t, b->o.op, "benchmark", err);
	case DT_BENCH_REDUCE_SCATTER: /* in place as in NCCL: into this rank's own block */
		return in_place ? dt_reduce_scatter(c, dst + (size_t)b->rank * n * b->e, dst, n, t, b->o.op,
						    "benchmark", err)
				: dt_reduce_scatter(c, dst, src, n, t, b->o.op, "benchmark", err);
	case DT_BENCH_ALL_GATHER:
		return dt_all_gather(c, dst, in, n, t, "benchmark", err);
	case DT_BENCH_ALL_TO_ALL:
		return dt_all_to_all(c, dst, in, n, t, "benchmark", err);
	case DT_BENCH_REDUCE:
		return dt_reduce(c, dst, in_place ? dst : src, n, t, b->o.op, b->o.root, "benchmark", err);
	case DT_BENCH_GATHER:
		src = in_place ? dst + (size_t)b->rank * n * b->e : src;
		return dt_gather(c, dst, src, n, t, b->o.root, "benchmark", err);
	case DT_BENCH_SCATTER:
		return in_place ? dt_scatter(c, dst + (size_t)b->rank * n * b->e, dst, n, t, b->o.root,
					     "benchmark", err)
				: dt_scatter(c, dst, src, n, t, b->o.root, "benchmark", err);
	case DT_BENCH_BROADCAST: /* out of place, the root copies, as in NCCL */
		if (!in_place && b->rank == b->o.root)
			memcpy(dst, src, n * b->e);
		return dt_broadcast(c, dst, n, t, b->o.root, "benchmark", err);
	case DT_BENCH_SEND_RECV:
		return send_recv(c, dst, src, n, t, err);
	default:
		return dt_barrier(c, "benchmark", err);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
