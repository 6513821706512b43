/* Compressed all-reduces: nothing is lost over many steps, all ranks get the same bits, and each method gives
 * exact results where its kind of data allows it. */
#include "base/rng.h"
#include "comm/compress.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct dt_world *w;
static struct dt_comm *c;
static struct dt_err err;
static int me, np;

static void fail(const char *what, size_t i, double got, double want)
{
	fprintf(stderr, "rank %d of %d: %s [%zu]: got %.9g, want %.9g\n", me, np, what, i, got, want);
	dt_world_abort(w, 1);
}

#define OK(expr)                                                                                             \
	do {                                                                                                 \
		if (expr)                                                                                    \
			fail(err.msg, __LINE__, 0, 0);                                                       \
	} while (0)

static float input(int rank, int step, size_t i)
{
	struct dt_rng g = dt_rng_make(5, DT_RNG_TEST, (uint32_t)(rank * 1000 + step));

	return dt_rng_normal(&g, i);
}

static void same_bits(const char *what, const float *x, size_t n)
{
	float *lo = malloc((n + 1) * sizeof(*lo)), *hi = malloc((n + 1) * sizeof(*hi));

	OK(dt_all_reduce(c, lo, x, n, DT_F32, DT_MIN, what, &err));
	OK(dt_all_reduce(c, hi, x, n, DT_F32, DT_MAX, what, &err));
	for (size_t i = 0; i < n; i++)
		if (!(lo[i] >= hi[i]))
			fail(what, i, (double)lo[i], (double)hi[i]);
	free(lo);
	free(hi);
}

/* Sum of results = sum of inputs - sum over ranks of what is kept. */
static void nothing_is_lost(const struct dt_compress_opts *o, const char *name, size_t n)
{
	double *out = calloc(n + 1, sizeof(*out)), *in = calloc(n + 1, sizeof(*in)), size = 0;
	float *x = malloc((n + 1) * sizeof(*x)), *kept = malloc((n + 1) * sizeof(*kept));
	struct dt_compress *z;

	OK(dt_compress_open(&z, c, o, n, &err));
	for (int step = 0; step < 6; step++) {
		for (size_t i = 0; i < n; i++) {
			x[i] = input(me, step, i);
			for (int r = 0; r < np; r++)
				in[i] += (double)input(r, step, i);
		}
		OK(dt_compress_all_reduce(z, x, DT_SUM, name, NULL, &err));
		same_bits(name, x, n);
		for (size_t i = 0; i < n; i++)
			out[i] += (double)x[i];
	}
	OK(dt_all_reduce(c, kept, dt_compress_kept(z), n, DT_F32, DT_SUM, name, &err));
	for (size_t i = 0; i < n; i++) {
		size += fabs(out[i]);
		if (!(fabs(out[i] + (double)kept[i] - in[i]) < 1e-3))
			fail(name, i, out[i] + (double)kept[i], in[i]);
	}
	if (n && !(size > 0))
		fail("nothing came through", 0, size, 1);
	dt_compress_close(z);
	free(out);
	free(in);
	free(x);
	free(kept);
}

/* One call with data it can represent: the mean of the inputs comes out. */
static void exact(const struct dt_compress_opts *o, const char *name, size_t rows, size_t cols, int calls,
		  float (*f)(int rank, size_t i, size_t cols), double tolerance)
{
	size_t n = rows * cols;
	float *x = malloc(n * sizeof(*x));
	struct dt_compress *z;

	OK(dt_compress_open(&z, c, o, n, &err));
	for (int k = 0; k < calls; k++) {
		for (size_t i = 0; i < n; i++)
			x[i] = f(me, i, cols);
		OK(dt_compress_all_reduce(z, x, DT_AVG, name, NULL, &err));
	}
	for (size_t i = 0; i < n; i++) {
		double want = 0;

		for (int r = 0; r < np; r++)
			want += (double)f(r, i, cols) / np;
		if (!(fabs((double)x[i] - want) <= tolerance))
			fail(name, i, (double)x[i], want);
	}
	dt_compress_close(z);
	free(x);
}

/* Tensors of one buffer, one of them as it is: nothing is lost of any, and what lies between them stays. */
static void parts_go_together(enum dt_compress_kind kind, const char *name)
{
	static const struct dt_compress_part part[] = {
		{0, 5000, 50, false}, {5000, 100, 1, true}, {5120, 4097, 17, false}};
	const struct dt_compress_opts o = {.kind = kind, .keep = 0.1, .rank = 3};
	enum { N = 9217, GAP = 5110 };
	static float x[N], kept[N], lost[N];
	static double in[N], out[N];
	struct dt_compress_work work;
	struct dt_compress *z;
	char *room;

	dt_compress_work(&o, part, 3, np, &work);
	room = calloc(1, work.bytes + 1);
	memset(kept, 0, sizeof(kept));
	memset(in, 0, sizeof(in));
	memset(out, 0, sizeof(out));
	OK(dt_compress_open_parts(&z, c, &o, part, 3, kept, room, &err));
	for (int step = 0; step < 5; step++) {
		for (size_t i = 0; i < N; i++) {
			x[i] = i % 7 ? 0.01f * input(me, step, i) : input(me, step, i);
			for (int r = 0; r < np; r++)
				in[i] += (i % 7 ? 0.01 : 1) * (double)input(r, step, i);
		}
		for (size_t i = 5100; i < 5120; i++)
			x[i] = 5;
		OK(dt_compress_all_reduce(z, x, DT_SUM, name, NULL, &err));
		if (!(x[GAP] >= 5 && x[GAP] <= 5))
			fail(name, GAP, (double)x[GAP], 5);
		same_bits(name, x, N);
		for (size_t i = 0; i < N; i++)
			out[i] += (double)x[i];
	}
	OK(dt_all_reduce(c, lost, kept, N, DT_F32, DT_SUM, name, &err));
	for (size_t i = 0; i < N; i++)
		if ((i < 5100 || i >= 5120) && !(fabs(out[i] + (double)lost[i] - in[i]) < 1e-3))
			fail(name, i, out[i] + (double)lost[i], in[i]);
	dt_compress_close(z);
	free(room);
}

static float small_integers(int rank, size_t i, size_t cols)
{
	return (float)((i * 7 + (size_t)rank * 3) % 11) - 5;
}

static float one_magnitude(int rank, size_t i, size_t cols)
{
	return i * 7 % 3 ? 0.5f : -0.5f;
}

/* The mean over ranks has rank one: u v^T. */
static float outer(int rank, size_t i, size_t cols)
{
	return (float)(1 + rank) * sinf((float)(i / cols)) * cosf((float)(i % cols));
}

/* Gradients of zero, those of an adapter's A in the first step, do not stop the sums after them. */
static void zeros_end_nothing(void)
{
	const struct dt_compress_opts o = {.kind = DT_COMPRESS_POWERSGD, .rank = 3, .rows = 40};
	enum { COLS = 33, N = 40 * COLS };
	static float x[N];
	struct dt_compress *z;

	OK(dt_compress_open(&z, c, &o, N, &err));
	for (int step = 0; step < 4; step++) {
		for (size_t i = 0; i < N; i++)
			x[i] = step % 2 ? outer(me, i, COLS) : 0;
		OK(dt_compress_all_reduce(z, x, DT_SUM, "powersgd after zeros", NULL, &err));
		for (size_t i = 0; i < N; i++) {
			double want = 0;

			for (int r = 0; r < np && step % 2; r++)
				want += (double)outer(r, i, COLS);
			if (!(fabs((double)x[i] - want) <= 1e-4))
				fail("powersgd after zeros", i, (double)x[i], want);
		}
	}
	dt_compress_close(z);
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {0, 1, 2, 100, 9001};
	struct dt_log log = {.f = stderr, .name = "test_compress", .rank = -1};
	struct dt_world_opts wo = {.timeout_s = 60};
	struct dt_compress_opts o;
	struct dt_world_info info;
	struct dt_compress *z;

	if (dt_world_open(&w, &wo, &log, &err))
		return 1;
	dt_world_info(w, &info);
	me = info.rank;
	np = info.size;
	OK(dt_comm_create(&c, w, "all", 0, 0, &err));
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		o = (struct dt_compress_opts){.kind = DT_COMPRESS_POWERSGD, .rank = 2};
		nothing_is_lost(&o, "powersgd", sizes[s]);
		o = (struct dt_compress_opts){.kind = DT_COMPRESS_TOP_K, .keep = 0.05};
		nothing_is_lost(&o, "top-k", sizes[s]);
		o = (struct dt_compress_opts){.kind = DT_COMPRESS_ONE_BIT};
		nothing_is_lost(&o, "one-bit", sizes[s]);
		o = (struct dt_compress_opts){.kind = DT_COMPRESS_INT8};
		nothing_is_lost(&o, "int8", sizes[s]);
	}
	parts_go_together(DT_COMPRESS_POWERSGD, "powersgd of parts");
	parts_go_together(DT_COMPRESS_TOP_K, "top-k of parts");
	parts_go_together(DT_COMPRESS_ONE_BIT, "one-bit of parts");
	parts_go_together(DT_COMPRESS_INT8, "int8 of parts");
	o = (struct dt_compress_opts){.kind = DT_COMPRESS_BF16};
	exact(&o, "bf16", 50, 31, 1, small_integers, np & (np - 1) ? 0.02 : 0);
	o = (struct dt_compress_opts){.kind = DT_COMPRESS_TOP_K, .keep = 1};
	exact(&o, "top-k of everything", 50, 31, 1, small_integers, 1e-6);
	o = (struct dt_compress_opts){.kind = DT_COMPRESS_ONE_BIT};
	exact(&o, "one-bit of one magnitude", 64, 128, 1, one_magnitude, 0);
	o = (struct dt_compress_opts){.kind = DT_COMPRESS_POWERSGD, .rank = 1, .rows = 40};
	exact(&o, "powersgd of a matrix of rank one", 40, 33, 1, outer, 1e-5);
	o.rank = 3;
	exact(&o, "powersgd with more columns than the matrix has rank", 40, 33, 1, outer, 1e-5);
	zeros_end_nothing();
	o = (struct dt_compress_opts){.kind = DT_COMPRESS_TOP_K, .keep = 2};
	if (dt_compress_open(&z, c, &o, 10, &err) != -EINVAL)
		fail("keep of 2 was taken", 0, 0, -EINVAL);
	if (me == 0)
		printf("compression over %d ranks\n", np);
	dt_comm_free(c);
	dt_world_finalize(w);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
