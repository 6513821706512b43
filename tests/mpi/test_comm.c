/*
 * Every collective against exact expectations, on the ranks mpirun gave us.
 * Usage: test_comm [mpi] [cut=N] [node=N] [registered] [alg=NAME] [whole [part=K]]
 *   mpi: no shared memory; cut: MPI calls carry N elements at most; node: N ranks count as one machine;
 *   registered: buffers that the others map; alg: collectives that have this algorithm go by it;
 *   whole: large sizes in every type; part: of types x sizes x operations the K-th quarter (modulo 4), in
 *   which every pair of them is, and as many large moves; the four parts together are all
 */
#include "base/opt.h"
#include "base/rng.h"
#include "comm/arrivals.h"
#include "comm/shm.h"
#include "tests/mpi/exact.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct dt_comm *c;
static long checks;
static bool registered;
static enum dt_alg alg;

static void *take(size_t bytes)
{
	void *p = NULL;

	if (registered)
		OK(dt_buffer_alloc(w, bytes + 8, &p, &err));
	else
		p = malloc(bytes + 8);
	return p;
}

static void give(void *p)
{
	if (registered)
		dt_buffer_free(w, p);
	else
		free(p);
}

static void fail(const char *what, enum dt_dtype t, size_t i, double got, double want)
{
	fprintf(stderr, "rank %d of %d: %s %s [%zu]: got %.9g, want %.9g\n", me, np, what, dt_dtype_name(t),
		i, got, want);
	dt_world_abort(w, 1);
}

static double f16_value(uint16_t h)
{
	int e = h >> 10 & 31, m = h & 1023;
	double a = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);

	return h & 0x8000 ? -a : a;
}

static double get(const void *buf, size_t i, enum dt_dtype t)
{
	switch (t) {
	case DT_F32:
		return (double)((const float *)buf)[i];
	case DT_BF16:
		return (double)dt_bf16_to_f32(((const uint16_t *)buf)[i]);
	case DT_F16:
		return f16_value(((const uint16_t *)buf)[i]);
	case DT_F64:
		return ((const double *)buf)[i];
	case DT_I32:
		return ((const int32_t *)buf)[i];
	case DT_I64:
		return (double)((const int64_t *)buf)[i];
	case DT_U8:
		return ((const uint8_t *)buf)[i];
	case DT_U16:
		return ((const uint16_t *)buf)[i];
	default:
		return ((const int8_t *)buf)[i];
	}
}

/* Small integers, so that sums are exact in every type; negative where the type has a sign. */
static double input(int rank, size_t i, enum dt_dtype t)
{
	int v = (int)((i * 7 + (size_t)rank * 5 + i / 11) % 13);

	return t == DT_U8 || t == DT_U16 ? v : v - 4;
}

static double expected(size_t i, enum dt_dtype t, enum dt_redop op)
{
	double v = input(0, i, t), x;
	char cell[8];

	for (int r = 1; r < np; r++) {
		x = input(r, i, t);
		v = op == DT_MAX ? fmax(v, x) : op == DT_MIN ? fmin(v, x) : v + x;
	}
	if (op != DT_AVG)
		return v;
	v = t == DT_F32 || t == DT_BF16 || t == DT_F16 ? (double)((float)v / (float)np) : v / np;
	if (t >= DT_I32)
		return trunc(v);
	put(cell, 0, t, v); /* rounded to the type */
	return get(cell, 0, t);
}

static void check_all(const char *what, const void *buf, size_t first, size_t n, enum dt_dtype t,
		      enum dt_redop op)
{
	for (size_t i = 0; i < n; i++) {
		double got = get(buf, i, t), want = expected(first + i, t, op);

		if (got != want)
			fail(what, t, first + i, got, want);
	}
	checks++;
}

static void fill(void *buf, size_t n, enum dt_dtype t)
{
	for (size_t i = 0; i < n; i++)
		put(buf, i, t, input(me, i, t));
}

static void reductions(enum dt_dtype t, enum dt_redop op, size_t n)
{
	size_t e = (size_t)dt_dtype_size(t), all = n * (size_t)np;
	char *src = take(all * e), *dst = take(all * e);
	struct dt_comm_req *q;

	fill(src, n, t);
	OK(dt_all_reduce(c, dst, src, n, t, op, "test", &err));
	check_all("all-reduce", dst, 0, n, t, op);
	memcpy(dst, src, n * e);
	OK(dt_all_reduce(c, dst, NULL, n, t, op, "test", &err));
	check_all("all-reduce in place", dst, 0, n, t, op);
	memset(dst, 0x55, n * e);
	OK(dt_iall_reduce(c, dst, src, n, t, op, "test", &q, &err));
	dt_comm_poll(w, NULL);
	OK(dt_wait(&q, NULL, &err));
	check_all("all-reduce not blocking", dst, 0, n, t, op);

	fill(src, all, t);
	memset(dst, 0x55, n * e);
	OK(dt_reduce_scatter(c, dst, src, n, t, op, "test", &err));
	check_all("reduce-scatter", dst, n * (size_t)me, n, t, op);
	memcpy(dst, src, all * e);
	OK(dt_reduce_scatter(c, dst, NULL, n, t, op, "test", &err));
	check_all("reduce-scatter in place", dst, n * (size_t)me, n, t, op);
	memcpy(dst, src, all * e);
	OK(dt_ireduce_scatter(c, dst + (size_t)me * n * e, dst, n, t, op, "test", &q, &err));
	OK(dt_wait(&q, NULL, &err));
	check_all("reduce-scatter to its own place", dst + (size_t)me * n * e, n * (size_t)me, n, t, op);
	for (int root = 0; root < np; root++) {
		fill(src, n, t);
		memset(dst, 0x55, n * e);
		OK(dt_reduce(c, dst, src, n, t, op, root, "test", &err));
		if (me == root)
			check_all("reduce", dst, 0, n, t, op);
		for (size_t i = 0; i < n * e && me != root; i++)
			if (dst[i] != 0x55)
				fail("reduce wrote where it is not the root", t, i, dst[i], 0x55);
		memcpy(dst, src, n * e);
		OK(dt_reduce(c, dst, me == root ? NULL : src, n, t, op, root, "test", &err));
		if (me == root)
			check_all("reduce in place", dst, 0, n, t, op);
	}
	give(src);
	give(dst);
}

/* Element i of rank r's block, told apart by rank and place. */
static double mark(int r, int to, size_t i)
{
	return (double)((i * 3 + (size_t)r * 29 + (size_t)to * 11) % 101);
}

static void expect_mark(const char *what, const char *buf, size_t i, enum dt_dtype t, double want)
{
	if (get(buf, i, t) != want)
		fail(what, t, i, get(buf, i, t), want);
}

/* Gather and scatter, from each root, whose own block is elsewhere, in its place, or named by its place. */
static void rooted(enum dt_dtype t, size_t n, char *src, char *dst)
{
	size_t e = (size_t)dt_dtype_size(t), all = n * (size_t)np;

	for (int mode = 0; mode < 3; mode++)
		for (int root = 0; root < np; root++) {
			bool here = mode > 0 && me == root;
			char *block = dst + (size_t)me * n * e, *to = here ? NULL : dst;

			for (size_t i = 0; i < n; i++)
				put(here ? block : src, i, t, mark(me, root, i));
			OK(dt_gather(c, me == root ? dst : NULL,
				     !here	 ? src
				     : mode == 1 ? NULL
						 : block,
				     n, t, root, "test", &err));
			for (size_t i = 0; i < all && me == root; i++)
				expect_mark("gather", dst, i, t, mark((int)(i / n), root, i % n));
			for (size_t i = 0; i < all && me == root; i++)
				put(src, i, t, mark(root, (int)(i / n), i % n));
			OK(dt_scatter(c, to, me == root ? src : NULL, n, t, root, "test", &err));
			for (size_t i = 0; i < n; i++)
				expect_mark("scatter", here ? src + (size_t)me * n * e : dst, i, t,
					    mark(root, me, i));
		}
	checks++;
}

/* How many elements rank i sends to rank j; some send nothing. */
static size_t amount(int i, int j, size_t n)
{
	return (i + 2 * j) % 3 ? (n * (size_t)(i + 1) + (size_t)j) / (size_t)(np + 1) : 0;
}

static void varied(enum dt_dtype t, size_t n)
{
	size_t *send = calloc(2 * (size_t)np, sizeof(*send)), *recv = send + np, out = 0, in = 0, at = 0;
	struct dt_comm_req **q = calloc(2 * (size_t)np, sizeof(struct dt_comm_req *));
	char *src, *dst;

	for (int j = 0; j < np; j++) {
		out += send[j] = amount(me, j, n);
		in += recv[j] = amount(j, me, n);
	}
	src = take(out * 8);
	dst = take(in * 8);
	for (int j = 0; j < np; j++)
		for (size_t i = 0; i < send[j]; i++)
			put(src, at++, t, mark(me, j, i));
	for (int begun = 0; begun < 2; begun++) {
		memset(dst, 0, in * (size_t)dt_dtype_size(t));
		if (begun) { /* the same, with an operation of the group before its end */
			OK(dt_iall_to_allv(c, dst, recv, src, send, t, "test", q, &err));
			OK(dt_barrier(c, "meanwhile", &err));
			dt_comm_poll(dt_comm_world(c), NULL);
			OK(dt_wait_all(q, 2 * np, NULL, &err));
		} else {
			OK(dt_all_to_allv(c, dst, recv, src, send, t, "test", &err));
		}
		at = 0;
		for (int j = 0; j < np; j++)
			for (size_t i = 0; i < recv[j]; i++)
				expect_mark("all-to-all of varied length", dst, at++, t, mark(j, me, i));
	}
	free(q);
	give(src);
	give(dst);
	free(send);
	checks++;
}

/* More messages than channels have slots, tags out of order, sizes on every path. */
static void many_messages(void)
{
	enum { K = 70 };
	static const size_t sizes[] = {0, 3, 2048, 2049, 70000, 200001};
	int next = (me + 1) % np, prev = (me + np - 1) % np;
	struct dt_comm_req *s[K], *r[K];
	uint8_t *in[K], *out[K], tiny[4] = {0};

	if (np == 1)
		return;
	for (int i = 0; i < K; i++) {
		size_t n = sizes[i % 6];

		out[i] = i % 16 == 1 ? take(n) : malloc(n + 1);
		in[i] = i % 16 == 3 ? take(n) : malloc(n + 1);
		for (size_t k = 0; k < n; k++)
			out[i][k] = (uint8_t)mark(me, i, k);
		OK(dt_isend(c, out[i], n, DT_U8, next, i % 3, "many", &s[i], &err));
	}
	for (int tag = 2; tag >= 0; tag--) /* of one tag in order, the tags the other way round */
		for (int i = tag; i < K; i += 3)
			OK(dt_irecv(c, in[i], sizes[i % 6], DT_U8, prev, tag, "many", &r[i], &err));
	for (int i = 0; i < K; i++) {
		OK(dt_wait(&r[i], NULL, &err));
		OK(dt_wait(&s[i], NULL, &err));
		for (size_t k = 0; k < sizes[i % 6]; k++)
			expect_mark("many messages", (const char *)in[i], k, DT_U8, mark(prev, i, k));
	}
	for (int i = 0; i < K; i++) {
		if (i % 16 == 1)
			give(out[i]);
		else
			free(out[i]);
		if (i % 16 == 3)
			give(in[i]);
		else
			free(in[i]);
	}
	if (me == 0) /* a message behind a collective that the other has not begun */
		OK(dt_iall_reduce(c, tiny, NULL, 4, DT_U8, DT_SUM, "before", &s[0], &err));
	if (me == np - 1)
		OK(dt_send(c, (char[100000]){7}, 100000, DT_U8, 0, 9, "behind", &err));
	if (me == 0) {
		uint8_t *big = malloc(100000);

		OK(dt_recv(c, big, 100000, DT_U8, np - 1, 9, "behind", &err));
		if (big[0] != 7 || big[99999])
			fail("behind a collective", DT_U8, 0, big[0], 7);
		free(big);
		OK(dt_wait(&s[0], NULL, &err));
	} else {
		OK(dt_iall_reduce(c, tiny, NULL, 4, DT_U8, DT_SUM, "before", &s[0], &err));
		OK(dt_wait(&s[0], NULL, &err));
	}
	checks++;
}

static void moves(enum dt_dtype t, size_t n)
{
	size_t e = (size_t)dt_dtype_size(t), all = n * (size_t)np;
	char *src = take(all * e), *dst = take(all * e);
	struct dt_comm_req *q = NULL, *q2 = NULL;

	for (int mode = 0; mode < 4; mode++) { /* bit 0: in place; bit 1: not blocking */
		for (size_t i = 0; i < n; i++)
			put(mode & 1 ? dst + (size_t)me * n * e : src, i, t, mark(me, 0, i));
		if (mode & 2) {
			OK(dt_iall_gather(c, dst, mode & 1 ? NULL : src, n, t, "test", &q, &err));
			OK(dt_wait(&q, NULL, &err));
		} else {
			OK(dt_all_gather(c, dst, mode & 1 ? NULL : src, n, t, "test", &err));
		}
		for (size_t i = 0; i < all; i++)
			if (get(dst, i, t) != mark((int)(i / n), 0, i % n))
				fail("all-gather", t, i, get(dst, i, t), mark((int)(i / n), 0, i % n));
	}
	for (int inplace = 0; inplace < 2; inplace++) {
		for (size_t i = 0; i < all; i++)
			put(inplace ? dst : src, i, t, mark(me, (int)(i / n), i % n));
		OK(dt_all_to_all(c, dst, inplace ? NULL : src, n, t, "test", &err));
		for (size_t i = 0; i < all; i++)
			if (get(dst, i, t) != mark((int)(i / n), me, i % n))
				fail("all-to-all", t, i, get(dst, i, t), mark((int)(i / n), me, i % n));
	}
	for (int root = 0; root < np; root++) {
		for (size_t i = 0; i < n; i++)
			put(dst, i, t, me == root ? mark(root, 0, i) : 102);
		OK(dt_broadcast(c, dst, n, t, root, "test", &err));
		for (size_t i = 0; i < n; i++)
			if (get(dst, i, t) != mark(root, 0, i))
				fail("broadcast", t, i, get(dst, i, t), mark(root, 0, i));
	}
	if (np > 1) { /* around the ring, both ways at once */
		int next = (me + 1) % np, prev = (me + np - 1) % np;
		struct dt_comm_req *r2[2];

		for (size_t i = 0; i < n; i++)
			put(src, i, t, mark(me, 1, i));
		OK(dt_irecv(c, dst, n, t, prev, 1, "test", &q, &err));
		OK(dt_irecv(c, dst + n * e, n, t, next, 2, "test", &q2, &err));
		OK(dt_isend(c, src, n, t, prev, 2, "test", &r2[0], &err));
		OK(dt_isend(c, src, n, t, next, 1, "test", &r2[1], &err));
		OK(dt_wait(&q2, NULL, &err)); /* not in the order they were started in */
		OK(dt_wait(&r2[1], NULL, &err));
		OK(dt_wait(&q, NULL, &err));
		OK(dt_wait(&r2[0], NULL, &err));
		for (size_t i = 0; i < n; i++)
			if (get(dst, i, t) != mark(prev, 1, i) || get(dst + n * e, i, t) != mark(next, 1, i))
				fail("send", t, i, get(dst, i, t), mark(prev, 1, i));
		if (me == 0)
			OK(dt_send(c, src, n, t, np - 1, 7, "test", &err));
		if (me == np - 1)
			OK(dt_recv(c, dst, n, t, 0, 7, "test", &err));
		for (size_t i = 0; i < n && me == np - 1; i++)
			if (get(dst, i, t) != mark(0, 1, i))
				fail("receive", t, i, get(dst, i, t), mark(0, 1, i));
	}
	checks++;
	rooted(t, n, src, dst);
	varied(t, n);
	give(src);
	give(dst);
}

static void gather(void)
{
	char mine[64], *all = NULL;
	size_t *lens = NULL;

	for (int root = 0; root < np; root++) {
		size_t n =
			me == 1 ? 0
				: (size_t)snprintf(mine, sizeof(mine), "%.*s from %d;", me, "abcdefgh", me);

		OK(dt_gather_bytes(c, mine, n, &all, &lens, root, "test", &err));
		if (me != root)
			continue;
		for (size_t r = 0, at = 0; r < (size_t)np; at += lens[r++]) {
			n = r == 1 ? 0
				   : (size_t)snprintf(mine, sizeof(mine), "%.*s from %d;", (int)r, "abcdefgh",
						      (int)r);
			if (n != lens[r] || memcmp(mine, all + at, n))
				fail("gather", DT_U8, r, (double)lens[r], (double)n);
		}
		free(all);
		free(lens);
	}
	checks++;
}

/* Sums that are not exact: the same bits everywhere; through shared memory those of adding in rank order. */
static void same_bits(enum dt_dtype t, size_t n)
{
	size_t e = (size_t)dt_dtype_size(t);
	char *x = malloc(n * e), *y = malloc(n * e * (size_t)np);
	float *sum = calloc(n, sizeof(*sum)), v;
	uint32_t hash = 2166136261u, *hashes = calloc((size_t)np, sizeof(*hashes));

	for (int r = 0; r < np; r++) {
		struct dt_rng g = dt_rng_make(7, DT_RNG_TEST, (uint32_t)r);

		for (size_t i = 0; i < n; i++) {
			char cell[8];

			put(cell, 0, t, (double)dt_rng_normal(&g, i));
			v = (float)get(cell, 0, t);
			sum[i] = r ? sum[i] + v : v;
			if (r == me)
				memcpy(x + i * e, cell, e);
		}
	}
	OK(dt_all_reduce(c, y, x, n, t, DT_SUM, "bits", &err));
	if (!strcmp(dt_comm_transport(c), "shm") && alg == DT_ALG_AUTO)
		for (size_t i = 0; i < n; i++) {
			put(x, i, t, (double)sum[i]);
			if (memcmp(x + i * e, y + i * e, e))
				fail("rank order", t, i, get(y, i, t), get(x, i, t));
		}
	for (size_t i = 0; i < n * e; i++)
		hash = (hash ^ (uint8_t)y[i]) * 16777619u;
	OK(dt_all_gather(c, hashes, &hash, 1, DT_I32, "bits", &err));
	for (int r = 0; r < np; r++)
		if (hashes[r] != hashes[0])
			fail("same bits", t, (size_t)r, hashes[r], hashes[0]);
	checks++;
	free(x);
	free(y);
	free(sum);
	free(hashes);
}

/* Several operations under way on two groups, blocking ones between them. */
static void many_pending(struct dt_comm *other)
{
	enum { K = 5 };
	const size_t n = 90000;
	struct dt_comm_req *q[2 * K];
	float *x[2 * K], one = 1;
	double waited = 0;
	int size = dt_comm_size(other);

	for (int i = 0; i < 2 * K; i++) {
		x[i] = malloc(n * sizeof(float));
		for (size_t j = 0; j < n; j++)
			x[i][j] = (float)(i + 1);
		OK(dt_iall_reduce(i & 1 ? other : c, x[i], NULL, n, DT_F32, DT_SUM, "pending", &q[i], &err));
		if (i % 3 == 0)
			OK(dt_all_reduce(other, &one, NULL, 1, DT_F32, DT_MAX, "between", &err));
		dt_comm_poll(w, NULL);
	}
	for (int i = 2 * K - 1; i >= 0; i--) {
		OK(dt_wait(&q[i], &waited, &err));
		for (size_t j = 0; j < n; j++)
			if (x[i][j] != (float)((i + 1) * (i & 1 ? size : np)))
				fail("pending", DT_F32, j, (double)x[i][j], (i + 1) * (i & 1 ? size : np));
		free(x[i]);
	}
	if (!(waited >= 0 && waited < 60))
		fail("time waited", DT_F64, 0, waited, 0);
	checks++;
}

/* The group over `axes` has the ranks that differ from this one in these alone, in their order. */
static void check_group(struct dt_mesh *m, unsigned axes, const int (*at)[DT_AXES])
{
	char name[32];
	int want[64], got[64], n = 0;
	struct dt_comm *g;

	dt_axes_name(axes, name, sizeof(name));
	OK(dt_mesh_need(m, axes, &err));
	g = dt_mesh_comm(m, axes);
	for (int r = 0; r < np; r++) { /* the other ranks, by the placement rule alone */
		bool in = true;

		for (int a = 0; a < DT_AXES; a++)
			in &= axes & 1u << a || at[r][a] == at[me][a];
		if (in)
			want[n++] = r;
	}
	if (dt_comm_size(g) != n)
		fail(name, DT_I32, 0, dt_comm_size(g), n);
	OK(dt_all_gather(g, got, &me, 1, DT_I32, name, &err));
	for (int i = 0; i < n; i++)
		if (got[i] != want[i])
			fail(name, DT_I32, (size_t)i, got[i], want[i]);
	if (want[dt_comm_rank(g)] != me)
		fail("rank in group", DT_I32, 0, dt_comm_rank(g), me);
	checks++;
}

static void mesh(const struct dt_layout *l)
{
	/* dp and cp are one index, cut again by ep and edp: a set names the ones or the others. */
	static const unsigned plain[] = {DT_ON_ALL, DT_ON_DP,	 DT_ON_TP,   DT_ON_PP,
					 DT_ON_CP,  DT_ON_MODEL, DT_ON_DATA, DT_ON_CP | DT_ON_TP},
			      expert[] = {DT_ON_EP, DT_ON_EDP, DT_ON_EP | DT_ON_TP};
	int by_data[64][DT_AXES], by_expert[64][DT_AXES];
	struct dt_mesh m;

	for (int r = 0; r < np; r++) {
		int tp = r % l->tp, d = r / l->tp % (l->cp * l->dp), pp = r / l->tp / l->cp / l->dp;

		memcpy(by_data[r], (int[]){d / l->cp, tp, pp, d % l->cp, 0, 0}, sizeof(by_data[r]));
		memcpy(by_expert[r], (int[]){0, tp, pp, 0, d % l->ep, d / l->ep}, sizeof(by_expert[r]));
	}
	OK(dt_mesh_init(&m, w, l, &err));
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
		check_group(&m, plain[i], by_data);
	for (size_t i = 0; i < sizeof(expert) / sizeof(expert[0]); i++)
		check_group(&m, expert[i], by_expert);
	many_pending(dt_mesh_comm(&m, l->tp > 1 ? DT_ON_TP : DT_ON_PP));
	dt_mesh_release(&m);
}

static void meshes(void)
{
	for (int tp = 1; tp <= np; tp++)
		for (int pp = 1; pp <= np / tp; pp++)
			for (int cp = 1; cp <= np / tp / pp; cp++)
				for (int ep = 1; ep <= np / tp / pp; ep++) {
					struct dt_layout l = {.dp = np / tp / pp / cp,
							      .tp = tp,
							      .pp = pp,
							      .cp = cp,
							      .ep = ep};

					if (l.dp * tp * pp * cp == np && l.dp * cp % ep == 0)
						mesh(&l);
				}
}

static void refusals(void)
{
	struct dt_layout l = {.dp = np + 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1};
	struct dt_mesh m;
	float x = 0;

	if (dt_mesh_init(&m, w, &l, &err) != -EINVAL || !strstr(err.msg, "layout"))
		fail(err.msg, DT_I32, 0, 0, -EINVAL);
	if (dt_broadcast(c, &x, 1, DT_F32, np, "test", &err) != -EINVAL)
		fail("root past the end", DT_I32, 0, 0, -EINVAL);
	if (dt_send(c, &x, 1, DT_F32, me, 0, "test", &err) != -EINVAL)
		fail("to itself", DT_I32, 0, 0, -EINVAL);
	if (dt_all_gather(c, &x, &x, SIZE_MAX / 2, DT_F32, "test", &err) != -EOVERFLOW)
		fail("too many", DT_I32, 0, 0, -EOVERFLOW);
	checks++;
}

/*
 * An all-gather needs either all inputs or all results where others reach them, in the caches and past them;
 * with one of each on different ranks it goes by way of the segment.
 */
/* Machines that are parts of this one have one clock: what is measured lies within its own error. */
static void one_clock(void)
{
	double offset = 1, error = -1;

	OK(dt_comm_clock(c, &offset, &error, &err));
	checks++;
	if (!(fabs(offset) <= error) || error > 1) {
		fprintf(stderr, "rank %d: clock %g s from rank 0's, within %g s\n", me, offset, error);
		dt_world_abort(w, 1);
	}
}

static void half_registered(void)
{
	static const size_t sizes[] = {70001, 1500007};
	const bool choice = alg == DT_ALG_AUTO || alg == DT_ALG_DIRECT; /* others where they exist */
	uint64_t before, want;

	for (int way = 0; way < 3; way++)
		for (size_t k = 0; k < 2; k++) {
			size_t n = sizes[k] / (size_t)np, m = n * (size_t)np;
			bool in = way == 2 ? me % 2 : way, shared = registered;
			int32_t *src, *dst;

			registered = in;
			src = take(n * 4);
			registered = !in;
			dst = take(m * 4);
			for (size_t i = 0; i < n; i++)
				src[i] = (int32_t)((size_t)me * n + i + 1);
			before = c->shm ? c->shm->direct : 0;
			OK(dt_all_gather(c, dst, src, n, DT_I32, "half", &err));
			want = before + (c->shm && np > 1 && way < 2);
			if (choice && (c->shm ? c->shm->direct : 0) != want)
				fail("half registered", DT_I32, n, (double)(c->shm ? c->shm->direct : 0),
				     (double)want);
			for (size_t i = 0; i < m; i++)
				if (dst[i] != (int32_t)(i + 1))
					fail("half registered", DT_I32, i, dst[i], (double)i + 1);
			checks++;
			OK(dt_barrier(c, "half", &err));
			give(dst);
			registered = in;
			give(src);
			registered = shared;
		}
}

/* Each rank's numbers arrive at both neighbours, several times at once, and nowhere else. */
static void ring(void)
{
	enum { N = 3001 };
	int32_t *own = take(N * sizeof(*own)), *got[2] = {take(N * sizeof(*own)), take(N * sizeof(*own))};
	void *const into[2] = {got[0], got[1]};
	const int from[2] = {np > 1 ? (me + np - 1) % np : -1, np > 2 ? (me + 1) % np : -1};

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < N; i++) {
			own[i] = (me * 10 + round) * N + i;
			got[0][i] = got[1][i] = -i;
		}
		OK(dt_ring_exchange(c, own, into, N, DT_I32, "ring", &err));
		for (int k = 0; k < 2; k++)
			for (int i = 0; i < N; i++) {
				int want = from[k] < 0 ? -i : (from[k] * 10 + round) * N + i;

				if (got[k][i] != want)
					fail(k ? "ring, after" : "ring, before", DT_I32, (size_t)i, got[k][i],
					     want);
			}
		checks++;
	}
	give(own);
	give(got[0]);
	give(got[1]);
}

/* The last rank gives up when it has heard that all others finished; in other rounds all finish. */
static void arrivals(void)
{
	struct dt_arrivals *a = NULL;
	int n = -1, others = 0;

	OK(dt_arrivals_open(&a, c, &err));
	for (int round = 0; round < 20; round++) {
		bool late = np > 1 && me == np - 1 && round % 3 == 1;

		OK(dt_arrivals_begin(a, &err));
		while (late && (others = dt_arrivals_count(a)) < np - 1)
			dt_comm_poll(w, NULL);
		OK(dt_arrivals_say(a, !late, &err));
		OK(dt_arrivals_end(a, &n, &err));
		if (n != (np > 1 && round % 3 == 1 ? np - 1 : np))
			fail("ranks that have finished", DT_I32, (size_t)round, n, np);
		checks++;
	}
	dt_arrivals_close(a);
}

int main(int argc, char **argv)
{
	/* tiny, small, one piece, several; the last goes past the caches */
	static const size_t sizes[] = {0, 1, 7, 1001, 70001, 270007};
	struct dt_log log = {.f = stderr, .name = "test_comm", .rank = -1};
	struct dt_world_opts o = {.timeout_s = 120};
	struct dt_world_info info;
	bool whole = false;
	int part = -1;
	uint64_t direct = 0;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "mpi"))
			o.transport = DT_TRANSPORT_MPI;
		else if (!strcmp(argv[i], "registered"))
			registered = true;
		else if (!strcmp(argv[i], "whole"))
			whole = true;
		else if (!strncmp(argv[i], "part=", 5))
			part = atoi(argv[i] + 5);
		else if (!strncmp(argv[i], "alg=", 4))
			alg = (enum dt_alg)dt_opt_choice_index(DT_ALG_CHOICES, argv[i] + 4);
		else if (!strncmp(argv[i], "node=", 5))
			o.node_ranks = atoi(argv[i] + 5);
		else if (!strncmp(argv[i], "cut=", 4))
			dt_comm_mpi_max_count = (size_t)atol(argv[i] + 4);
	}
	OK(dt_world_open(&w, &o, &log, &err));
	dt_world_info(w, &info);
	me = info.rank;
	np = info.size;
	log.rank = me;
	OK(dt_comm_create(&c, w, "all", 0, 0, &err));
	OK(dt_comm_set_algorithm(c, alg, &err));
	for (int t = 0; t < DT_DTYPE_N; t++)
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
			if (!whole && sizes[s] > (t == DT_F32 ? 100000 : t == DT_BF16 ? 70001 : 5000))
				continue;
			for (int op = 0; op < 4; op++)
				if (part < 0 || (t + (int)s + op + part) % 4 == 0)
					reductions((enum dt_dtype)t, (enum dt_redop)op, sizes[s]);
			if (part < 0 || sizes[s] < 5000 || (t + (int)s + part) % 4 == 0)
				moves((enum dt_dtype)t, sizes[s]);
		}
	if (!whole) /* past the caches, in part of the types */
		reductions(DT_F32, DT_AVG, 270007);
	OK(dt_barrier(c, "test", &err));
	many_messages();
	gather();
	ring();
	arrivals();
	same_bits(DT_F32, 70001);
	same_bits(DT_BF16, 70001);
	same_bits(DT_F16, 3);
	refusals();
	one_clock();
	meshes();
	direct = c->shm ? c->shm->direct : 0;
	half_registered();
	/* with another algorithm only what it does not exist for goes this way */
	if ((alg == DT_ALG_AUTO || alg == DT_ALG_DIRECT) && (direct > 0) != (registered && c->shm))
		fail("operations on registered buffers", DT_I64, 0, (double)direct, registered);
	if (me == 0)
		printf("%ld checks, %d ranks on %d machines, %s, %llu on registered buffers\n", checks, np,
		       info.nodes, dt_comm_transport(c), (unsigned long long)direct);
	dt_comm_free(c);
	dt_world_finalize(w);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
