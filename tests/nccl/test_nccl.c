/*
 * Every operation on an emulated card's memory, over the fake NCCL or staged, against exact expectations.
 * Usage: test_nccl nccl|staged [WHY]   (under mpirun); WHY: part of the reason; of nccl: watched with 2 s
 */
#include "nn/card.h"

#include "base/opt.h"
#include "kernels/ops.h"
#include "tests/mpi/exact.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct dt_comm *c;
static struct dt_dev *dev;
static char *card, *host; /* PART bytes four times */
static long checks;

#define PART ((size_t)4 << 20)

static char *part(int i)
{
	return card + (size_t)i * PART;
}

/* What rank r gives as element i: small, so that sums over 16 ranks are exact in every type. */
static double given(int r, size_t i)
{
	return (double)((i * 7 + (size_t)r * 3) % 13) * (i % 3 ? 1 : 0);
}

static double reduced(size_t i, enum dt_redop op, bool integer)
{
	double v = given(0, i);

	for (int r = 1; r < np; r++) {
		const double x = given(r, i);

		v = op == DT_MAX ? fmax(v, x) : op == DT_MIN ? fmin(v, x) : v + x;
	}
	return op == DT_AVG ? (integer ? trunc(v / np) : v / np) : v;
}

/* n elements of rank r from element first on, to the card. */
static void load(void *to, enum dt_dtype t, int r, size_t first, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put(host, i, t, given(r, first + i));
	OK(dt_dev_copy(dev, to, host, n * (size_t)dt_dtype_size(t)));
	OK(dt_dev_sync(dev));
}

static void compare(const char *what, const void *at, enum dt_dtype t, size_t n,
		    double (*want)(size_t, void *), void *arg)
{
	const size_t bytes = n * (size_t)dt_dtype_size(t);
	char *expected = host + PART;

	OK(dt_dev_copy(dev, host, at, bytes));
	OK(dt_dev_sync(dev));
	for (size_t i = 0; i < n; i++)
		put(expected, i, t, want(i, arg));
	for (size_t i = 0; i < bytes; i++)
		if (host[i] != expected[i]) {
			fprintf(stderr, "rank %d of %d: %s %s of %zu: byte %zu is %d, want %d\n", me, np,
				what, dt_dtype_name(t), n, i, host[i], expected[i]);
			dt_world_abort(w, 1);
		}
	checks++;
}

struct want {
	enum dt_redop op;
	enum dt_dtype t;
	size_t n, first;
	int rank;
};

static double want_reduced(size_t i, void *p)
{
	const struct want *x = p;

	return reduced(x->first + i, x->op, x->t >= DT_I32);
}

static double want_given(size_t i, void *p)
{
	const struct want *x = p;

	return given(x->rank, x->first + i);
}

/* Block r is rank r's. */
static double want_gathered(size_t i, void *p)
{
	const struct want *x = p;

	return given((int)(i / x->n), x->first + i % x->n);
}

/* Does average come out exact? */
static bool exact(enum dt_dtype t, enum dt_redop op)
{
	return op != DT_AVG || t >= DT_I32 || t == DT_F32 || t == DT_F64 || !(np & (np - 1));
}

static void reductions(enum dt_dtype t, enum dt_redop op, size_t n, bool in_place)
{
	struct want x = {.op = op, .t = t, .n = n};
	const void *src = in_place ? NULL : part(0);
	void *dst = in_place ? part(0) : part(1);

	if (!exact(t, op))
		return;
	load(part(0), t, me, 0, n);
	OK(dt_all_reduce(c, dst, src, n, t, op, "all-reduce", &err));
	compare("all-reduce", dst, t, n, want_reduced, &x);
	load(part(0), t, me, 0, n);
	OK(dt_reduce(c, me == np - 1 ? dst : NULL, in_place && me == np - 1 ? NULL : part(0), n, t, op,
		     np - 1, "reduce", &err));
	if (me == np - 1)
		compare("reduce", dst, t, n, want_reduced, &x);
	load(part(0), t, me, 0, n * (size_t)np);
	OK(dt_reduce_scatter(c, dst, src, n, t, op, "reduce-scatter", &err));
	x.first = n * (size_t)me;
	compare("reduce-scatter", dst, t, n, want_reduced, &x);
	if (!in_place)
		return;
	load(part(0), t, me, 0, n * (size_t)np); /* and to this rank's block of it */
	dst = part(0) + n * (size_t)me * (size_t)dt_dtype_size(t);
	OK(dt_reduce_scatter(c, dst, part(0), n, t, op, "reduce-scatter", &err));
	compare("reduce-scatter to its block", dst, t, n, want_reduced, &x);
}

static void moves(enum dt_dtype t, size_t n, bool in_place)
{
	const size_t e = (size_t)dt_dtype_size(t), mine = n * (size_t)me * e;
	struct want x = {.t = t, .n = n, .rank = np / 2};

	load(part(0), t, me, 0, n);
	OK(dt_broadcast(c, part(0), n, t, np / 2, "broadcast", &err));
	compare("broadcast", part(0), t, n, want_given, &x);

	load(in_place ? part(1) + mine : part(0), t, me, 0, n);
	OK(dt_all_gather(c, part(1), in_place ? NULL : part(0), n, t, "all-gather", &err));
	compare("all-gather", part(1), t, n * (size_t)np, want_gathered, &x);

	load(in_place && me == 0 ? part(1) + mine : part(0), t, me, 0, n);
	OK(dt_gather(c, me == 0 ? part(1) : NULL, in_place && me == 0 ? NULL : part(0), n, t, 0, "gather",
		     &err));
	if (me == 0)
		compare("gather", part(1), t, n * (size_t)np, want_gathered, &x);

	load(part(0), t, np - 1, 0, n * (size_t)np);
	OK(dt_scatter(c, in_place && me == np - 1 ? NULL : part(1), me == np - 1 ? part(0) : NULL, n, t,
		      np - 1, "scatter", &err));
	x = (struct want){.t = t, .first = n * (size_t)me, .rank = np - 1};
	compare("scatter", in_place && me == np - 1 ? part(0) + mine : part(1), t, n, want_given, &x);

	load(part(0), t, me, 0, n * (size_t)np);
	OK(dt_all_to_all(c, in_place ? part(0) : part(1), in_place ? NULL : part(0), n, t, "all-to-all",
			 &err));
	x = (struct want){.t = t, .n = n, .first = n * (size_t)me};
	compare("all-to-all", in_place ? part(0) : part(1), t, n * (size_t)np, want_gathered, &x);
}

static void vector_exchange(size_t n)
{
	size_t give[16], get[16], at = 0;
	struct want x = {.t = DT_F32};

	for (int r = 0; r < np; r++) {
		give[r] = n * (size_t)(r + 1);
		get[r] = n * (size_t)(me + 1);
	}
	load(part(0), DT_F32, me, 0, n * (size_t)(np * (np + 1) / 2));
	OK(dt_all_to_allv(c, part(1), get, part(0), give, DT_F32, "all-to-allv", &err));
	for (int r = 0; r < np; r++) {
		x.rank = r;
		x.first = n * (size_t)(me * (me + 1) / 2);
		compare("all-to-allv", part(1) + at * 4, DT_F32, get[r], want_given, &x);
		at += get[r];
	}
}

/* Both ways at once, received in another order than sent; the first wait is for what is behind. */
static void messages(size_t n)
{
	const int to = (me + 1) % np, from = (me + np - 1) % np;
	struct dt_comm_req *s[2], *r[2];
	struct want x = {.t = DT_F32, .rank = from};

	load(part(0), DT_F32, me, 0, 2 * n);
	for (int i = 0; i < 2; i++)
		OK(dt_isend(c, part(0) + (size_t)i * n * 4, n, DT_F32, to, 7 + i, "there", &s[i], &err));
	dt_comm_poll(w, NULL);
	for (int i = 1; i >= 0; i--)
		OK(dt_irecv(c, part(1) + (size_t)i * n * 4, n, DT_F32, from, 7 + i, "here", &r[i], &err));
	for (int i = 0; i < 2; i++) {
		OK(dt_wait(&r[i], NULL, &err));
		x.first = (size_t)i * n;
		compare("message", part(1) + (size_t)i * n * 4, DT_F32, n, want_given, &x);
	}
	for (int i = 1; i >= 0; i--)
		OK(dt_wait(&s[i], NULL, &err));
	/* the same way as a collective of the host, blocking, and one word back */
	if (me % 2 == 0 && me + 1 < np) {
		OK(dt_send(c, part(1), n, DT_F32, me + 1, 1, "on", &err));
		OK(dt_recv(c, part(2), n, DT_F32, me + 1, 1, "back", &err));
		compare("and back", part(2), DT_F32, n, want_given,
			&(struct want){.t = DT_F32, .rank = from});
	} else if (me % 2) {
		OK(dt_recv(c, part(2), n, DT_F32, me - 1, 1, "on", &err));
		OK(dt_send(c, part(2), n, DT_F32, me - 1, 1, "back", &err));
	}
}

/* What the device was given before is in the result; what it is given after the wait sees it. */
static void in_order(size_t n)
{
	struct dt_tensor a = dt_t1(part(0), DT_F32, (int64_t)n), b = dt_t1(part(1), DT_F32, (int64_t)n);
	struct dt_comm_req *q[3] = {NULL};
	double wait_s = 0;
	float v[3];

	OK(dev->ops->fill(dev, a, (float)(me + 1)));
	OK(dev->ops->fill(dev, b, 2.f));
	OK(dt_iall_reduce(c, part(0), NULL, n, DT_F32, DT_SUM, "a", &q[0], &err));
	OK(dt_iall_reduce(c, part(1), NULL, n, DT_F32, DT_SUM, "b", &q[1], &err));
	OK(dt_ibarrier(c, "b", &q[2], &err));
	OK(dev->ops->fill(dev, dt_t1(part(2), DT_F32, (int64_t)n), 0.5f));
	OK(dt_wait(&q[0], &wait_s, &err));
	OK(dev->ops->axpy(dev, dt_t1(part(2), DT_F32, (int64_t)n), 1.f, a));
	OK(dt_wait(&q[1], &wait_s, &err));
	OK(dev->ops->axpy(dev, dt_t1(part(2), DT_F32, (int64_t)n), 1.f, b));
	OK(dt_wait(&q[2], &wait_s, &err));
	OK(dt_dev_copy(dev, v, part(2), sizeof(v)));
	OK(dt_dev_sync(dev));
	if (v[0] != 0.5f + (float)(np * (np + 1) / 2) + 2.f * (float)np || v[2] != v[0]) {
		fprintf(stderr, "rank %d: %g\n", me, (double)v[0]);
		dt_world_abort(w, 1);
	}
	checks++;
}

/* In place and not, by turns over types and sizes; with DT_SLOW=1 both of each. */
static void everything(void)
{
	const char *s = getenv("DT_SLOW");
	const bool slow = s && !strcmp(s, "1");
	static const enum dt_dtype types[] = {DT_F32, DT_BF16, DT_F16, DT_F64, DT_I32,
					      DT_I64, DT_U8,   DT_U16, DT_I8};
	static const size_t sizes[] = {1, 7, 1000, 20011};

	for (size_t k = 0; k < sizeof(types) / sizeof(*types); k++)
		for (size_t i = 0; i < 4; i++)
			for (int in_place = 0; in_place < 2; in_place++) {
				if (!slow && (k + i) % 2 != (size_t)in_place)
					continue;
				for (int op = DT_SUM; op <= DT_AVG; op++)
					if (i < 3 || op == DT_SUM)
						reductions(types[k], (enum dt_redop)op, sizes[i], in_place);
				moves(types[k], sizes[i], in_place);
			}
	OK(dt_all_reduce(c, part(0), NULL, 0, DT_F32, DT_SUM, "nothing", &err));
	for (int i = 0; i < 5; i++) {
		if (np > 1)
			messages(i % 2 ? 50001 : 3);
		in_order(i % 2 ? 90001 : 3);
		vector_exchange(i % 2 ? 5003 : 1);
	}
}

/* A group of its own beside the world's, in use at the same time. */
static void halves(void)
{
	struct dt_comm *half;
	struct dt_comm_req *q;
	float v;

	OK(dt_comm_create(&half, w, "half", me % 2, me, &err));
	OK(dev->ops->fill(dev, dt_t1(part(0), DT_F32, 100), 1.f));
	OK(dev->ops->fill(dev, dt_t1(part(1), DT_F32, 100), 1.f));
	OK(dt_iall_reduce(c, part(0), NULL, 100, DT_F32, DT_SUM, "all", &q, &err));
	OK(dt_all_reduce(half, part(1), NULL, 100, DT_F32, DT_SUM, "half", &err));
	OK(dt_wait(&q, NULL, &err));
	OK(dt_dev_copy(dev, &v, part(1) + 396, 4));
	OK(dt_dev_sync(dev));
	if (v != (float)dt_comm_size(half))
		dt_world_abort(w, 1);
	dt_comm_free(half);
	checks++;
}

int main(int argc, char **argv)
{
	struct dt_log log = {stderr, "test_nccl", 0, false};
	struct dt_world_opts o = {.timeout_s = argc > 2 && !strcmp(argv[1], "nccl") ? 2 : 300};
	const char *staged, *mode = argc > 1 ? argv[1] : "nccl";
	struct dt_comm_device d;
	struct dt_comm_card k;
	struct dt_world_info info;

	OK(dt_world_open(&w, &o, &log, &err));
	dt_world_info(w, &info);
	me = log.rank = info.rank;
	np = info.size;
	OK(dt_dev_open(&dev, DT_DEV_CUDA, me % dt_dev_count(DT_DEV_CUDA), 1));
	OK(dt_dev_alloc(dev, (void **)&card, 4 * PART));
	host = malloc(2 * PART);
	OK(dt_comm_create(&c, w, "dp", 0, me, &err));
	d = dt_card_device(dev, &k, card, 4 * PART);
	OK(dt_world_device(w, &d, &staged, &err));
	if (np > 1 && (staged != NULL) != (strcmp(mode, "nccl") != 0)) {
		fprintf(stderr, "rank %d: mode %s, but %s\n", me, mode, staged ? staged : "NCCL");
		dt_world_abort(w, 1);
	}
	if (staged && argc > 2 && !strstr(staged, argv[2])) {
		fprintf(stderr, "rank %d: staged because %s\n", me, staged);
		dt_world_abort(w, 1);
	}
	everything();
	halves();
	OK(dt_world_device(w, NULL, &staged, &err));
	dt_comm_free(c);
	free(host);
	dt_dev_free(dev, card);
	dt_dev_close(dev);
	if (me == 0)
		printf("%ld checks on each of %d ranks\n", checks, np);
	dt_world_finalize(w);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
