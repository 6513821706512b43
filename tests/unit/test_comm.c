/* What comm can do without ranks: local reductions, launch detection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An f16 by its definition. */
static double f16_value(uint16_t h)
{
	int e = h >> 10 & 31, m = h & 1023;
	double a = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);

	return h & 0x8000 ? -a : a;
}

/* The f16 nearest to v, ties to even, found by looking at all of them. */
static uint16_t f16_nearest(double v)
{
	uint16_t best = 0;
	double d, least = INFINITY;

	if (fabs(v) >= 65520)
		return v < 0 ? 0xfc00 : 0x7c00;
	for (int h = 0; h < 0x7c00; h++) {
		d = fabs(fabs(v) - f16_value((uint16_t)h));
		if (d < least || (d == least && !(h & 1))) {
			least = d;
			best = (uint16_t)h;
		}
	}
	return (uint16_t)(best | (signbit(v) ? 0x8000 : 0));
}

static void f16_sums_round_to_nearest_even(void **state)
{
	uint32_t seed = 1;

	for (int i = 0; i < 400; i++) {
		uint16_t x[2], got, want;
		double sum;

		for (int k = 0; k < 2; k++) {
			seed = seed * 1664525u + 1013904223u;
			x[k] = (uint16_t)(seed >> 16);
			if ((x[k] & 0x7c00) == 0x7c00)
				x[k] &= 0x83ff; /* subnormal in place of Inf and NaN */
		}
		if (i < 3) { /* exactly half way, and past the largest */
			x[0] = (uint16_t[]){0x3c00, 0x3c01, 0x7bff}[i];
			x[1] = (uint16_t[]){0x1000, 0x1000, 0x4c00}[i];
		}
		sum = (double)((float)f16_value(x[0]) + (float)f16_value(x[1]));
		want = f16_nearest(sum);
		dt_comm_reduce_many(&got, (const void *[]){&x[0], &x[1]}, 2, 1, DT_F16, DT_SUM);
		if (got != want && !(sum == 0))
			fail_msg("%04x + %04x: got %04x, want %04x", x[0], x[1], got, want);
	}
}

static void f16_keeps_every_value(void **state)
{
	for (uint32_t h = 0; h < 65536; h++) {
		uint16_t in = (uint16_t)h, out;

		dt_comm_reduce_many(&out, (const void *[]){&in}, 1, 1, DT_F16, DT_SUM);
		if (isnan(f16_value(in)) ? !isnan(f16_value(out)) : in != out)
			fail_msg("%04x became %04x", in, out);
	}
}

/* Five sources, odd lengths, each op, against a loop in rank order; dst may be a source. */
static void reductions_are_in_rank_order(void **state)
{
	enum { P = 5 };
	static const size_t lengths[] = {0, 1, 31, 1024, 1025, 4099};

	for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++)
		for (int op = 0; op < 4; op++) {
			size_t n = lengths[l];
			float *x[P], *want = malloc((n + 1) * sizeof(float));
			const void *src[P];

			for (int r = 0; r < P; r++) {
				src[r] = x[r] = malloc((n + 1) * sizeof(float));
				for (size_t i = 0; i < n; i++)
					x[r][i] = sinf((float)(i * 7 + (size_t)r * 1001)) * 1e3f;
			}
			for (size_t i = 0; i < n; i++) {
				float v = x[0][i];

				for (int r = 1; r < P; r++)
					v = op == DT_MAX   ? fmaxf(v, x[r][i])
					    : op == DT_MIN ? fminf(v, x[r][i])
							   : v + x[r][i];
				want[i] = op == DT_AVG ? v / P : v;
			}
			dt_comm_reduce_many(x[2], src, P, n, DT_F32, (enum dt_redop)op);
			for (size_t i = 0; i < n; i++)
				if (x[2][i] != want[i])
					fail_msg("op %d [%zu of %zu]: got %.9g, want %.9g", op, i, n,
						 (double)x[2][i], (double)want[i]);
			for (int r = 0; r < P; r++)
				free(x[r]);
			free(want);
		}
}

static void bf16_rounds_once(void **state)
{
	/* 1 + 2^-8 + 2^-8: two roundings to bf16 would lose both halves of the last bit */
	uint16_t one = dt_f32_to_bf16(1), half = dt_f32_to_bf16(0x1p-8f), got;

	dt_comm_reduce_many(&got, (const void *[]){&one, &half, &half}, 3, 1, DT_BF16, DT_SUM);
	assert_int_equal(got, dt_f32_to_bf16(1 + 0x1p-7f));
}

/* Past the caches come the same bits as through them, to every destination and nowhere else. */
static void stream_reduces_to_all(void **state)
{
	static const size_t lengths[] = {0, 1, 15, 16, 160, 1000, DT_COMM_REDUCE_BLOCK};
	enum { P = 4, ROOM = DT_COMM_REDUCE_BLOCK * 8 + 64 };
	char *x[P], *out[2], *want = aligned_alloc(64, ROOM);
	const void *src[P];

	for (int r = 0; r < P; r++) {
		src[r] = x[r] = aligned_alloc(64, ROOM);
		for (int i = 0; i < ROOM; i++) /* no NaN in any type */
			x[r][i] = (char)((i * 7 + r * 29 + i / 13) % 61);
	}
	for (int k = 0; k < 2; k++)
		out[k] = aligned_alloc(64, ROOM);
	for (int t = 0; t < DT_DTYPE_N; t++)
		for (int op = 0; op < 4; op++)
			for (int p = 1; p <= P; p++)
				for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
					size_t e = (size_t)dt_dtype_size((enum dt_dtype)t), n = lengths[l],
					       at = l % 2 ? 48 : e; /* aligned or not */

					memset(out[0], 0x5a, ROOM);
					memset(out[1], 0x5a, ROOM);
					memset(want, 0x5a, ROOM);
					dt_comm_reduce_many(want + at, src, p, n, (enum dt_dtype)t,
							    (enum dt_redop)op);
					dt_comm_reduce_stream(out, 2, at, src, p, n, (enum dt_dtype)t,
							      (enum dt_redop)op);
					dt_comm_stream_fence();
					for (int k = 0; k < 2; k++)
						for (int i = 0; i < ROOM; i++)
							if (out[k][i] != want[i])
								fail_msg("type %d op %d p %d n %zu to %d, "
									 "byte %d: "
									 "got %d, want %d",
									 t, op, p, n, k, i, out[k][i],
									 want[i]);
				}
	for (int r = 0; r < P; r++)
		free(x[r]);
	free(out[0]);
	free(out[1]);
	free(want);
}

static void stream_copies_any_alignment(void **state)
{
	char *a = malloc(5000), *b = malloc(5000);

	for (int i = 0; i < 5000; i++)
		a[i] = (char)(i * 31 + i / 256);
	for (size_t at = 0; at < 70; at += 3)
		for (size_t n = 0; n < 1500; n += 97) {
			memset(b, 0x5a, 5000);
			dt_comm_copy_stream(b + at, a + 2 * at, n);
			assert_memory_equal(b + at, a + 2 * at, n);
			assert_int_equal(b[at + n], 0x5a);
			if (at)
				assert_int_equal(b[at - 1], 0x5a);
		}
	free(a);
	free(b);
}

static const char *const *fake;

static char *fake_get(const char *name)
{
	for (int i = 0; fake[i]; i += 2)
		if (!strcmp(fake[i], name))
			return (char *)(uintptr_t)fake[i + 1];
	return NULL;
}

static struct dt_comm_launch detect(const char *const *env)
{
	fake = env;
	return dt_comm_launch_detect(fake_get);
}

static void launchers_are_told_apart(void **state)
{
	struct dt_comm_launch l;

	l = detect((const char *[]){NULL});
	assert_null(l.by);
	l = detect((const char *[]){"OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_RANK", "0", NULL});
	assert_non_null(strstr(l.by, "Open MPI"));
	assert_int_equal(l.size, 4);
	/* one process needs no MPI, whatever else the environment says */
	l = detect((const char *[]){"OMPI_COMM_WORLD_SIZE", "1", "OMPI_COMM_WORLD_RANK", "0", "PMIX_RANK",
				    "0", NULL});
	assert_null(l.by);
	/* a batch script under sbatch is one process, a step of srun is many, mpirun inside wins */
	l = detect((const char *[]){"SLURM_NTASKS", "8", "SLURM_PROCID", "0", NULL});
	assert_null(l.by);
	l = detect((const char *[]){"SLURM_NTASKS", "8", "SLURM_STEP_NUM_TASKS", "8", "SLURM_PROCID", "3",
				    NULL});
	assert_string_equal(l.by, "Slurm");
	l = detect((const char *[]){"SLURM_STEP_NUM_TASKS", "2", "SLURM_PROCID", "0", "OMPI_COMM_WORLD_SIZE",
				    "16", "OMPI_COMM_WORLD_RANK", "5", NULL});
	assert_int_equal(l.size, 16);
	l = detect((const char *[]){"PMI_SIZE", "3", "PMI_RANK", "1", NULL});
	assert_int_equal(l.size, 3);
	l = detect((const char *[]){"PMI_SIZE", "3x", "PMI_RANK", "1", NULL});
	assert_null(l.by);
	l = detect((const char *[]){"PMIX_RANK", "0", NULL});
	assert_non_null(l.by);
	assert_int_equal(l.size, 0);
}

static void one_rank_needs_no_mpi(void **state)
{
	struct dt_layout l = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1};
	struct dt_world_info info;
	struct dt_world *w;
	struct dt_mesh m;
	struct dt_err err;
	float x[2] = {1, 2}, y[2];
	size_t *lens;
	char *all;

	assert_int_equal(dt_world_init(&w, 1, NULL, &err), 0);
	dt_world_info(w, &info);
	assert_int_equal(info.size, 1);
	assert_int_equal(dt_mesh_init(&m, w, &l, &err), 0);
	assert_null(dt_mesh_comm(&m, DT_ON_DP));
	assert_int_equal(dt_mesh_need(&m, DT_ON_DP, &err), 0);
	assert_int_equal(dt_mesh_need(&m, DT_ON_CP | DT_ON_EP, &err), -EINVAL);
	assert_int_equal(dt_all_reduce(dt_mesh_comm(&m, DT_ON_DP), y, x, 2, DT_F32, DT_AVG, "x", &err), 0);
	assert_memory_equal(x, y, sizeof(x));
	assert_int_equal(dt_gather_bytes(dt_mesh_comm(&m, DT_ON_ALL), "abc", 3, &all, &lens, 0, "x", &err),
			 0);
	assert_int_equal(lens[0], 3);
	assert_memory_equal(all, "abc", 3);
	free(all);
	free(lens);
	dt_mesh_release(&m);
	l.tp = 2;
	assert_int_equal(dt_mesh_init(&m, w, &l, &err), -EINVAL);
	dt_world_finalize(w);
}

/* Of rank 0 and of rank 3 of 4, 100 values of 4 bytes: what nccl-tests counts for busbw. */
static void bytes_sent_are_those_of_busbw(void **state)
{
	static const struct {
		enum dt_comm_op_kind kind;
		double root, other;
	} want[] = {
		{DT_COMM_ALL_REDUCE, 600, 600},	  {DT_COMM_REDUCE_SCATTER, 1200, 1200},
		{DT_COMM_ALL_GATHER, 1200, 1200}, {DT_COMM_ALL_TO_ALL, 1200, 1200},
		{DT_COMM_BROADCAST, 300, 300},	  {DT_COMM_REDUCE, 300, 300},
		{DT_COMM_GATHER, 0, 400},	  {DT_COMM_SCATTER, 1200, 0},
		{DT_COMM_SEND, 400, 400},	  {DT_COMM_RECV, 0, 0},
		{DT_COMM_BARRIER, 0, 0},
	};

	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		const struct dt_comm_op o = {.kind = want[i].kind, .n = 100, .t = DT_F32};
		const struct dt_comm root = {.size = 4, .rank = 0}, other = {.size = 4, .rank = 3},
				     alone = {.size = 1};

		assert_float_equal(dt_comm_op_sent(&root, &o), want[i].root, 1e-9);
		assert_float_equal(dt_comm_op_sent(&other, &o), want[i].other, 1e-9);
		if (o.kind != DT_COMM_SEND)
			assert_float_equal(dt_comm_op_sent(&alone, &o), 0, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(f16_keeps_every_value),
		cmocka_unit_test(f16_sums_round_to_nearest_even),
		cmocka_unit_test(reductions_are_in_rank_order),
		cmocka_unit_test(bf16_rounds_once),
		cmocka_unit_test(stream_reduces_to_all),
		cmocka_unit_test(stream_copies_any_alignment),
		cmocka_unit_test(launchers_are_told_apart),
		cmocka_unit_test(bytes_sent_are_those_of_busbw),
		cmocka_unit_test(one_rank_needs_no_mpi),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
