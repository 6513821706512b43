/*
 * Two hundred steps of each optimizer against what tests/data/golden_optimizers.py computed in fp64:
 * PyTorch's, or the published rule. And what is a rule by itself: trust, orthogonal matrices, blocks of 8
 * bits.
 */
#include "golden.h"
#include "kernels/blocks8.h"
#include "train/whole_step.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 12, COLS = 20, STEPS = 200 };

static struct dt_dev *dev;

/* Uniform in [-scale, scale): the integers of golden_optimizers.py. */
static float hashed(uint32_t i, uint32_t t, double scale)
{
	uint32_t h = (i * 0x9E3779B1u) ^ (t * 0x85EBCA77u);

	h = (h ^ h >> 15) * 0x2C1B3C6Du;
	h = (h ^ h >> 12) * 0x297A2D39u;
	h ^= h >> 15;
	return (float)(scale * ((double)h / 0x1p31 - 1));
}

static void fill(float *x, int n, uint32_t first, uint32_t t, double scale)
{
	for (int i = 0; i < n; i++)
		x[i] = hashed(first + (uint32_t)i, t, scale);
}

/* The matrix of a rank alone. */
static int orthogonal(void *arg, struct whole_part *part, int i, struct dt_err *err)
{
	static float room[ROWS * COLS + 2 * ROWS * ROWS];

	return whole_orthogonal(dev, dt_t2(part[i].g.data, DT_F32, part[i].rows, part[i].cols), DT_F32, room,
				err);
}

struct pair { /* a matrix that decays and a vector that does not */
	float p[2][ROWS * COLS], g[2][ROWS * COLS], state[2][2][ROWS * COLS + 4];
	struct whole_part part[2];
};

static struct dt_tensor state_of(struct pair *x, const struct dt_optim_state *s, int k, int which, int rows,
				 int cols)
{
	const int64_t n = s->shape == DT_STATE_ROWS ? rows
			  : s->shape == DT_STATE_COLS
				  ? cols
				  : dt_optim_state_bytes(s, rows, cols) / dt_dtype_size(s->dtype);

	if (s->shape == DT_STATE_REST)
		return which ? dt_t1(x->state[which][k], DT_F32, rows * cols) : DT_NONE;
	return s->shape == DT_STATE_NONE ? DT_NONE : dt_t1(x->state[which][k], s->dtype, n);
}

static void begin(struct pair *x, enum dt_optim_kind kind)
{
	memset(x, 0, sizeof(*x));
	for (int w = 0; w < 2; w++) {
		const int rows = w ? COLS : ROWS, cols = w ? 1 : COLS, n = rows * cols;

		fill(x->p[w], n, w ? 1000 : 0, 0, 1);
		x->part[w] = (struct whole_part){.p = dt_t1(x->p[w], DT_F32, n),
						 .g = dt_t1(x->g[w], DT_F32, n),
						 .rows = rows,
						 .cols = cols,
						 .cut = -1,
						 .numel = n,
						 .longer = rows > cols ? rows : cols,
						 .adapted = !w,
						 .decay = w ? 0 : 0.1f};
		for (int k = 0; k < DT_OPTIM_STATES; k++)
			x->part[w].state[k] = state_of(x, &dt_optim_rule(kind)->state[k], k, w, rows, cols);
	}
}

static void step(struct pair *x, struct dt_optim *o)
{
	const struct whole_ranks alone = {.orthogonal = orthogonal};
	struct dt_err err = {0};

	fill(x->g[0], ROWS * COLS, 0, (uint32_t)o->t, 0.1);
	fill(x->g[1], COLS, 1000, (uint32_t)o->t, 0.1);
	if (dt_optim_rule(o->kind)->flags & DT_OPTIM_WHOLE) {
		assert_int_equal(whole_step(dev, o, x->part, 2, &alone, &err), 0);
		return;
	}
	for (int w = 0; w < 2; w++) {
		o->weight_decay = x->part[w].decay;
		assert_int_equal(dev->ops->optim_step(dev, o, DT_NONE, x->part[w].p, x->part[w].g,
						      x->part[w].state[0], x->part[w].state[1]),
				 0);
	}
}

static struct dt_optim constants(enum dt_optim_kind kind)
{
	return (struct dt_optim){.kind = kind,
				 .lr = 0.01f,
				 .beta1 = 0.9f,
				 .beta2 = kind == DT_OPTIM_LION ? 0.99f : 0.95f,
				 .eps = 1e-8f,
				 .grad_scale = 1};
}

static void train(struct pair *x, enum dt_optim_kind kind, float trust)
{
	struct dt_optim o = constants(kind);

	o.trust = trust;
	begin(x, kind);
	for (o.t = 1; o.t <= STEPS; o.t++)
		step(x, &o);
}

static void test_golden(void **state)
{
	static const struct {
		enum dt_optim_kind kind;
		double tol; /* of the largest value */
	} row[] = {{DT_OPTIM_NESTEROV, 1e-6}, {DT_OPTIM_NADAM, 2e-6},
		   {DT_OPTIM_ADAMW, 1e-6},    {DT_OPTIM_LION, 1e-6},
		   {DT_OPTIM_LAMB, 2e-6},     {DT_OPTIM_LARS, 2e-6},
		   {DT_OPTIM_MUON, 2e-6},     {DT_OPTIM_ADAFACTOR, 1e-6},
		   {DT_OPTIM_ADAMW8BIT, 5e-4}}; /* fp32 takes another code where two are as near */
	struct pair x;
	struct golden g;
	char name[64];

	golden_open(&g, "optimizers");
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		train(&x, row[i].kind, 0);
		for (int w = 0; w < 2; w++) {
			int64_t n;
			float *want;

			snprintf(name, sizeof(name), "%s/%c", dt_optim_rule(row[i].kind)->name,
				 w ? 'b' : 'w');
			want = golden_f32(&g, name, &n);
			golden_assert_close(name, x.p[w], want, n, 0, row[i].tol);
			free(want);
		}
	}
	golden_close(&g);
}

static float farthest(const struct pair *a, const struct pair *b)
{
	float most = 0;

	for (int w = 0; w < 2; w++)
		for (int i = 0; i < (w ? COLS : ROWS * COLS); i++)
			most = fmaxf(most, fabsf(a->p[w][i] - b->p[w][i]));
	return most;
}

/* With a ratio of 1 lamb is adamw and lars is momentum; of a rate that does not change. */
static void test_trust(void **state)
{
	struct pair a, b;

	train(&a, DT_OPTIM_LAMB, 1);
	train(&b, DT_OPTIM_ADAMW, 0);
	assert_true(farthest(&a, &b) < 1e-6f);
	train(&a, DT_OPTIM_LARS, 1);
	train(&b, DT_OPTIM_MOMENTUM, 0);
	assert_true(farthest(&a, &b) < 1e-6f);
	train(&a, DT_OPTIM_LARS, 0);
	assert_true(farthest(&a, &b) > 1e-3f);
}

/* X X^T of the shorter side is near the identity, for wide matrices and tall ones alike. */
static void test_orthogonal(void **state)
{
	float x[COLS * ROWS], t[COLS * ROWS], room[ROWS * COLS + 2 * ROWS * ROWS];
	struct dt_err err = {0};

	fill(x, ROWS * COLS, 0, 5, 3);
	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < COLS; j++)
			t[j * ROWS + i] = x[i * COLS + j];
	assert_int_equal(whole_orthogonal(dev, dt_t2(x, DT_F32, ROWS, COLS), DT_F32, room, &err), 0);
	assert_int_equal(whole_orthogonal(dev, dt_t2(t, DT_F32, COLS, ROWS), DT_F32, room, &err), 0);
	for (int i = 0; i < ROWS; i++) {
		double sq = 0;

		for (int j = 0; j < COLS; j++) {
			sq += (double)x[i * COLS + j] * (double)x[i * COLS + j];
			assert_true(fabsf(t[j * ROWS + i] - x[i * COLS + j]) < 1e-5f);
		}
		assert_true(sq > 0.4 && sq < 1.5);
	}
}

/*
 * In bf16 a matrix becomes that of f32 to 3 % of its norm, wide and tall alike. PyTorch 2.15's
 * torch.optim.Muon, whose products are bf16, differs from f32 by 1.6 % on such a matrix.
 */
static void test_orthogonal_bf16(void **state)
{
	float x[COLS * ROWS], y[COLS * ROWS], t[COLS * ROWS], room[ROWS * COLS + 2 * ROWS * ROWS];
	struct dt_err err = {0};
	double sq = 0, off = 0, apart = 0;

	fill(x, ROWS * COLS, 0, 5, 3);
	memcpy(y, x, sizeof(y));
	for (int i = 0; i < ROWS * COLS; i++)
		t[i % COLS * ROWS + i / COLS] = x[i];
	assert_int_equal(whole_orthogonal(dev, dt_t2(x, DT_F32, ROWS, COLS), DT_F32, room, &err), 0);
	assert_int_equal(whole_orthogonal(dev, dt_t2(y, DT_F32, ROWS, COLS), DT_BF16, room, &err), 0);
	assert_int_equal(whole_orthogonal(dev, dt_t2(t, DT_F32, COLS, ROWS), DT_BF16, room, &err), 0);
	for (int i = 0; i < ROWS * COLS; i++) {
		const double far = (double)y[i] - (double)x[i], same = (double)t[i % COLS * ROWS + i / COLS];

		sq += (double)x[i] * (double)x[i];
		off += far * far;
		apart += fabs(same - (double)y[i]);
	}
	assert_true(off > 0 && sqrt(off / sq) < 0.03);
	assert_true(apart == 0);
}

/*
 * The maps are bitsandbytes'. Every value goes to the nearest code, and what was decoded encodes to
 * itself.
 */
static void test_blocks(void **state)
{
	enum { N = 3 * DT_STATE_BLOCK + 7 };
	float *from = malloc(N * sizeof(*from)), *once = malloc(N * sizeof(*once)),
	      *twice = malloc(N * sizeof(*twice));
	char *a = calloc(1, N + 16), *b = calloc(1, N + 16);
	struct golden g;

	golden_open(&g, "optimizers");
	for (int s = 0; s < 2; s++) {
		const float *map = dt_blocks8_map(s);
		float *want = golden_f32(&g, s ? "map/signed" : "map/unsigned", NULL);

		for (int i = 0; i < 256; i++)
			assert_true(fabsf(map[i] - want[i]) <= 1e-6f * fabsf(want[i]));
		free(want);
		for (int i = 0; i < N; i++)
			from[i] = powf(hashed((uint32_t)i, 9, 1), 5) * (s ? 1 : -1) *
				  (s || hashed((uint32_t)i, 9, 1) < 0 ? 1 : -1);
		dt_blocks8_encode(a, N, 0, from, N, s);
		dt_blocks8_decode(once, a, N, 0, N, s);
		for (int i = 0; i < N; i++) {
			float scale = ((float *)a)[i / DT_STATE_BLOCK], least = INFINITY;

			for (int k = 0; k < 256; k++)
				least = fminf(least, fabsf(map[k] * scale - from[i]));
			assert_true(fabsf(once[i] - from[i]) <= least * 1.00001f + 1e-12f);
		}
		memset(b, 0, N + 16);
		dt_blocks8_encode(b, N, 0, once, N, s);
		assert_memory_equal(a, b, N + 16);
		dt_blocks8_decode(twice, b, N, DT_STATE_BLOCK + 3, 9, s);
		assert_memory_equal(twice, once + DT_STATE_BLOCK + 3, 9 * sizeof(float));
	}
	golden_close(&g);
	free(from);
	free(once);
	free(twice);
	free(a);
	free(b);
}

static int setup(void **state)
{
	return dt_dev_open(&dev, DT_DEV_CPU, 0, 2);
}

static int teardown(void **state)
{
	dt_dev_close(dev);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_trust),
					   cmocka_unit_test(test_orthogonal),
					   cmocka_unit_test(test_orthogonal_bf16),
					   cmocka_unit_test(test_blocks)};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
