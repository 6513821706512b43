/* Ops of step.h against the ops that they join, one after another on the same device: bit by bit. */
#include "check.h"

#include "kernels/shape.h"
#include "kernels/step.h"

static struct dt_dev *dev;

struct shape {
	int64_t rows, heads, kv_heads, d, rot_dim; /* rot_dim 0: no rotation */
	enum dt_rope_pairing pairing;
	bool norm;
	enum dt_dtype type, cache;
};

static const struct shape shapes[] = {
	{1, 4, 2, 16, 16, DT_ROPE_HALF, true, DT_F32, DT_F32},
	{3, 4, 1, 64, 64, DT_ROPE_HALF, true, DT_BF16, DT_BF16},
	{2, 3, 3, 128, 128, DT_ROPE_HALF, false, DT_F16, DT_F16},
	{5, 2, 1, 256, 256, DT_ROPE_HALF, true, DT_F32, DT_F32},
	{4, 4, 2, 32, 16, DT_ROPE_HALF, false, DT_BF16, DT_F32},
	{3, 4, 2, 40, 20, DT_ROPE_ADJACENT, false, DT_BF16, DT_BF16},
	{2, 4, 4, 64, 64, DT_ROPE_ADJACENT, true, DT_F32, DT_I8},
	{17, 4, 2, 24, 0, DT_ROPE_HALF, true, DT_BF16, DT_I8},
	{1, 8, 2, 128, 128, DT_ROPE_HALF, false, DT_BF16, DT_I8},
	{31, 8, 2, 64, 64, DT_ROPE_HALF, true, DT_BF16, DT_BF16}, /* rows for more than a thread */
};

static void one_heads(const struct shape *s)
{
	const struct dt_attn p = {.heads = s->heads, .kv_heads = s->kv_heads, .head_dim = s->d};
	const int64_t width = (s->heads + 2 * s->kv_heads) * s->d, slots = 32, positions = 40;
	const struct dt_heads q = {0, s->heads, s->d}, k = {s->heads, s->kv_heads, s->d};
	struct dt_tensor x = random_tensor(s->type, s->rows, width, 1, 1), x2 = copy_of(x),
			 wq = random_tensor(DT_F32, 1, s->d, 2, 1), wk = random_tensor(DT_F32, 1, s->d, 3, 1),
			 c[4];
	float *table[2];
	int32_t *pos = malloc((size_t)s->rows * sizeof *pos);
	int64_t *slot = malloc((size_t)s->rows * sizeof *slot);

	wq = dt_t1(wq.data, DT_F32, s->d);
	wk = dt_t1(wk.data, DT_F32, s->d);
	for (int i = 0; i < 4; i++) {
		c[i] = tensor(s->cache, slots, dt_kv_row(&p, s->cache));
		memset(c[i].data, 0, (size_t)dt_numel(c[i]) * (size_t)dt_dtype_size(s->cache));
	}
	for (int t = 0; t < 2; t++) {
		table[t] = malloc((size_t)(positions * (s->rot_dim / 2) + 1) * sizeof **table);
		for (int64_t i = 0; i < positions * (s->rot_dim / 2); i++)
			table[t][i] = (float)rnd(4 + (uint32_t)t, i);
	}
	for (int64_t i = 0; i < s->rows; i++) {
		pos[i] = (int32_t)(7 * i % positions);
		slot[i] = i % 5 == 4 ? -1 : (3 * i + 1) % slots;
	}
	const struct dt_rope rope = {
		s->heads + s->kv_heads, s->d, s->rot_dim, s->pairing, table[0], table[1], positions};

	if (s->norm) {
		assert_int_equal(
			dev->ops->heads_norm_forward(dev, x, DT_NONE, DT_NONE, x, wq, false, 1e-6f, &q), 0);
		assert_int_equal(
			dev->ops->heads_norm_forward(dev, x, DT_NONE, DT_NONE, x, wk, false, 1e-6f, &k), 0);
	}
	if (s->rot_dim)
		assert_int_equal(dev->ops->rope(dev, x, &rope, pos, false), 0);
	assert_int_equal(dev->ops->kv_write(dev, c[0], c[1], x, &p, slot), 0);
	assert_int_equal(dev->ops->step_heads(dev, c[2], c[3], x2, &p, slot, s->rot_dim ? &rope : NULL, pos,
					      s->norm ? wq : DT_NONE, s->norm ? wk : DT_NONE, false, 1e-6f),
			 0);
	check_same_bits("qkv", x2, x);
	for (int i = 0; i < 2; i++)
		assert_memory_equal(c[2 + i].data, c[i].data,
				    (size_t)dt_numel(c[i]) * (size_t)dt_dtype_size(s->cache));
	free_all(x.data, x2.data, wq.data, wk.data, c[0].data, c[1].data, c[2].data, c[3].data, table[0],
		 table[1], pos, slot);
}

static void test_heads(void **state)
{
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		one_heads(&shapes[i]);
}

/* Heads of 12 columns: the card leaves them to the other ops. */
static void test_heads_refused(void **state)
{
	const struct dt_attn p = {.heads = 2, .kv_heads = 1, .head_dim = 12};
	struct dt_tensor x = random_tensor(DT_F32, 1, 48, 1, 1), before = copy_of(x),
			 k = tensor(DT_F32, 4, 12), v = tensor(DT_F32, 4, 12),
			 w = random_tensor(DT_F32, 1, 12, 2, 1);
	const int64_t slot = 1;
	const int rc = dev->ops->step_heads(dev, k, v, x, &p, &slot, NULL, NULL, dt_t1(w.data, DT_F32, 12),
					    dt_t1(w.data, DT_F32, 12), false, 1e-6f);

	assert_int_equal(rc, on_device() ? -ENOTSUP : 0);
	if (rc)
		check_same_bits("qkv", x, before);
	assert_int_equal(dev->ops->step_heads(dev, k, v, x, &p, &slot, NULL, NULL, dt_t1(w.data, DT_F32, 12),
					      DT_NONE, false, 1e-6f),
			 -EINVAL);
	free_all(x.data, before.data, k.data, v.data, w.data);
}

static void one_norm(enum dt_format f, uint32_t m, uint32_t n)
{
	enum { k = 256 };
	const enum dt_dtype type = f == DT_FMT_F32    ? DT_F32
				   : f == DT_FMT_Q4_0 ? DT_F16
						      : DT_BF16,
			    scales = m % 2 ? DT_F32 : type;
	struct dt_tensor in = random_tensor(type, m, k, 1, 0.3), x = random_tensor(type, m, n, 2, 1),
			 x2 = copy_of(x), before = copy_of(x), g = random_tensor(scales, 1, n, 3, 1),
			 w = random_tensor(DT_F32, n, k, 4, 0.1),
			 delta[2] = {tensor(type, m, n), tensor(type, m, n)},
			 y[2] = {tensor(type, m, n), tensor(type, m, n)};
	struct dt_packed *packed;

	g = dt_t1(g.data, scales, n);
	assert_int_equal(dt_packed_open(&packed, dev, k), 0);
	assert_int_equal(dt_packed_append(packed, dev, f, DT_FMT_F32, w.data, n), 0);
	assert_int_equal(dev->ops->packed_matmul(dev, delta[0], in, packed, DT_NONE), 0);
	assert_int_equal(dev->ops->rmsnorm_forward(dev, y[0], DT_NONE, x, x, delta[0], g, m % 2, 1e-6f), 0);
	assert_int_equal(
		dev->ops->step_norm(dev, y[1], x2, delta[1], x2, in, packed, DT_NONE, g, m % 2, 1e-6f), 0);
	check_same_bits("delta", delta[1], delta[0]);
	check_same_bits("sum", x2, x);
	check_same_bits("norm", y[1], y[0]);
	if (n == k) { /* sum over in, that all of the product reads */
		assert_int_equal(dev->ops->step_norm(dev, y[1], in, delta[1], before, in, packed, DT_NONE, g,
						     m % 2, 1e-6f),
				 0);
		check_same_bits("sum over in", in, x);
		check_same_bits("its norm", y[1], y[0]);
	}
	dt_packed_close(packed);
	free_all(in.data, x.data, x2.data, before.data, g.data, w.data, delta[0].data, delta[1].data,
		 y[0].data, y[1].data);
}

/*
 * One thread block and many; rows of fewer elements than threads, and of more than their sum takes at
 * once.
 */
static void test_norm(void **state)
{
	static const enum dt_format formats[] = {DT_FMT_Q8_0, DT_FMT_Q4_0, DT_FMT_Q6_K, DT_FMT_BF16,
						 DT_FMT_F32};
	static const uint32_t n[] = {8, 96, 256, 1024, 1032, 2048, 2200};

	for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
		for (uint32_t m = 1; m < 5; m++)
			for (size_t i = 0; i < sizeof n / sizeof *n; i++)
				if (n[i] <= 1024 || m < 3)
					one_norm(formats[f], m, n[i]);
}

/* In parts, as gate and up are. */
static struct dt_packed *weights_of(enum dt_format f, int64_t rows, int64_t k, uint32_t seed, int parts)
{
	struct dt_tensor w = random_tensor(DT_F32, rows, k, seed, 0.1);
	struct dt_packed *p;

	assert_int_equal(dt_packed_open(&p, dev, k), 0);
	for (int i = 0; i < parts; i++)
		assert_int_equal(dt_packed_append(p, dev, f, DT_FMT_F32,
						  (float *)w.data + i * (rows / parts) * k, rows / parts),
				 0);
	free_all(w.data);
	return p;
}

/* What comes behind step_norm in a recorded step. */
enum { MATMUL, TWO, GATED, ANOTHER, ADD, NOTHING, BEHINDS };

static void behind(const struct dt_ops *ops, int what, struct dt_tensor out, struct dt_tensor y,
		   struct dt_tensor other, const struct dt_packed *w)
{
	if (what == GATED)
		assert_int_equal(ops->packed_gated(dev, out, y, w, DT_NONE, DT_ACT_SILU), 0);
	else if (what == ADD)
		assert_int_equal(ops->add(dev, out, y, other), 0);
	else if (what != NOTHING)
		assert_int_equal(ops->packed_matmul(dev, out, what == ANOTHER ? other : y, w, DT_NONE), 0);
	if (what == TWO) /* y has been written, too */
		assert_int_equal(ops->packed_matmul(dev, out, y, w, DT_NONE), 0);
}

enum { X, IN, G, OTHER, DELTA, SUM, Y, OUT, TENSORS };

/* A copy in the device's memory. */
static struct dt_tensor moved(struct dt_tensor t)
{
	struct dt_tensor r = t;

	assert_int_equal(dt_dev_alloc(dev, &r.data, (size_t)bytes_of(t)), 0);
	assert_int_equal(dt_dev_copy(dev, r.data, t.data, (size_t)bytes_of(t)), 0);
	assert_int_equal(dt_dev_sync(dev), 0);
	return r;
}

/* A recorded step makes the norm in front of the product that reads it, run twice; n: columns of x. */
static void one_recorded(enum dt_format f, uint32_t m, int64_t n, int what)
{
	enum { k = 256, columns = 74 };
	static const char *const name[] = {"delta", "sum", "norm", "what is behind the norm"};
	const enum dt_dtype type = f == DT_FMT_F32 ? DT_F32 : f == DT_FMT_Q4_0 ? DT_F16 : DT_BF16;
	const int64_t cols = what == ADD ? n : what == GATED ? columns / 2 : columns;
	struct dt_tensor t[TENSORS] = {[X] = random_tensor(type, m, n, 2, 1),
				       [IN] = random_tensor(type, m, k, 1, 0.3),
				       [G] = random_tensor(DT_F32, 1, n, 3, 1),
				       [OTHER] = random_tensor(type, m, n, 5, 1),
				       [DELTA] = tensor(type, m, n),
				       [SUM] = tensor(type, m, n),
				       [Y] = tensor(type, m, n),
				       [OUT] = tensor(type, m, cols)};
	struct dt_packed *w = weights_of(f, n, k, 4, 1), *next = weights_of(f, columns, n, 6, 2);
	struct dt_tensor there[TENSORS], got;
	struct dt_graph *graph;

	t[G] = dt_t1(t[G].data, DT_F32, n);
	memset(t[OUT].data, 0, (size_t)bytes_of(t[OUT]));
	for (int i = 0; i < TENSORS; i++)
		there[i] = moved(t[i]);
	for (int i = 0; i < 2; i++) {
		const struct dt_ops *ops = i ? &dt_ops_cuda : dev->ops;
		const struct dt_tensor *a = i ? there : t;

		if (i) /* the tensors themselves, in the device's memory */
			assert_int_equal(dt_graph_begin(dev), 0);
		assert_int_equal(ops->step_norm(dev, a[Y], a[SUM], a[DELTA], a[X], a[IN], w, DT_NONE, a[G],
						m % 2, 1e-6f),
				 0);
		behind(ops, what, a[OUT], a[Y], a[OTHER], next);
	}
	assert_int_equal(dt_graph_end(dev, &graph), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(dt_graph_run(dev, graph), 0);
	for (int i = DELTA; i < TENSORS; i++) {
		got = tensor(t[i].dtype, t[i].dim[0], t[i].dim[1]);
		assert_int_equal(dt_dev_copy(dev, got.data, there[i].data, (size_t)bytes_of(got)), 0);
		assert_int_equal(dt_dev_sync(dev), 0);
		check_same_bits(name[i - DELTA], got, t[i]);
		free(got.data);
	}
	dt_graph_close(dev, graph);
	dt_packed_close(w);
	dt_packed_close(next);
	for (int i = 0; i < TENSORS; i++) {
		dt_dev_free(dev, there[i].data);
		free(t[i].data);
	}
}

static void test_recorded(void **state)
{
	static const enum dt_format formats[] = {DT_FMT_Q8_0, DT_FMT_Q4_0, DT_FMT_Q6_K, DT_FMT_BF16,
						 DT_FMT_F32};
	static const int64_t n[] = {256, 1280, 2304};

	if (!on_device())
		skip();
	for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
		for (uint32_t m = 1; m < 5; m++)
			for (int what = 0; what < BEHINDS; what++)
				for (size_t i = 0; i < sizeof n / sizeof *n; i++)
					if (i == 0 || (m < 3 && what == MATMUL))
						one_recorded(formats[f], m, n[i], what);
}

/* Rows that a product takes many at a time, columns that are no eights. */
static void test_norm_refused(void **state)
{
	struct dt_tensor in = random_tensor(DT_F32, 16, 32, 1, 1), x = random_tensor(DT_F32, 16, 20, 2, 1),
			 y = tensor(DT_F32, 16, 20), delta = tensor(DT_F32, 16, 20),
			 w = random_tensor(DT_F32, 20, 32, 4, 1), g = random_tensor(DT_F32, 1, 20, 3, 1);
	struct dt_packed *packed;

	for (int64_t n = 16; n <= 20; n += 4) {
		const int64_t m = n == 16 ? 16 : 1;

		assert_int_equal(dt_packed_open(&packed, dev, 32), 0);
		assert_int_equal(dt_packed_append(packed, dev, DT_FMT_Q8_0, DT_FMT_F32, w.data, n), 0);
		assert_int_equal(
			dev->ops->step_norm(dev, dt_t2(y.data, DT_F32, m, n), dt_t2(x.data, DT_F32, m, n),
					    dt_t2(delta.data, DT_F32, m, n), dt_t2(x.data, DT_F32, m, n),
					    dt_t2(in.data, DT_F32, m, 32), packed, DT_NONE,
					    dt_t1(g.data, DT_F32, n), false, 1e-6f),
			on_device() ? -ENOTSUP : 0);
		dt_packed_close(packed);
	}
	free_all(in.data, x.data, y.data, delta.data, w.data, g.data);
}

static int setup(void **state)
{
	dev = open_device(2);
	return 0;
}

static int teardown(void **state)
{
	dt_dev_close(dev);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_heads),	     cmocka_unit_test(test_heads_refused),
		cmocka_unit_test(test_norm),	     cmocka_unit_test(test_recorded),
		cmocka_unit_test(test_norm_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
