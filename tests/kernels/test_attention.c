/*
 * Attention against f64 loops over the whole matrix, its backward against an f64 backward that is itself
 * checked by finite differences.
 */
#include "attention_ref.h"

static void ref_backward(double *dx, const struct dt_attn *p, const double *x, const double *dout)
{
	const int64_t d = p->head_dim, W = width(p), T = p->seq;
	double *prob = reals(T), *dp = reals(T);

	memset(dx, 0, (size_t)(p->batch * T * W) * sizeof *dx);
	for (int64_t u = 0; u < p->batch * p->heads * T; u++) {
		const int64_t b = u / p->heads / T, h = u / T % p->heads, i = u % T,
			      kv = h / (p->heads / p->kv_heads);
		const int64_t k = (p->heads + kv) * d, v = (p->heads + p->kv_heads + kv) * d,
			      q = (b * T + i) * W + h * d;
		const double *g = dout + ((b * T + i) * p->heads + h) * d;
		double dot = 0;

		const double lse = ref_row(prob, p, x, b, h, i);

		for (int64_t j = 0; j < T; j++) {
			dp[j] = 0;
			for (int64_t c = 0; c < d; c++) {
				dp[j] += g[c] * x[(b * T + j) * W + v + c];
				dx[(b * T + j) * W + v + c] += prob[j] * g[c];
			}
			dot += prob[j] * dp[j];
		}
		for (int64_t j = 0; j < T; j++)
			for (int64_t c = 0; c < d; c++) {
				double ds = p->scale * prob[j] * (dp[j] - dot);

				if (p->softcap > 0 && prob[j] > 0)
					ds *= 1 - pow((log(prob[j]) + lse) / p->softcap, 2);
				dx[q + c] += ds * x[(b * T + j) * W + k + c];
				dx[(b * T + j) * W + k + c] += ds * x[q + c];
			}
	}
	free_all(prob, dp);
}

/* The f64 backward is the slope of the f64 forward along random directions. */
static void test_reference(void **state)
{
	const struct dt_attn p = {2, 9, 4, 2, 5, 6, 0.4f, *state ? 0.5f : 0};
	const int64_t n = p.batch * p.seq * width(&p), m = p.batch * p.seq * p.heads * p.head_dim;
	double *x = reals(n), *y = reals(n), *dx = reals(n), *g = reals(m), *o = reals(m), *lse = reals(m);

	for (int64_t i = 0; i < m; i++)
		g[i] = rnd(2, i);
	for (int64_t i = 0; i < n; i++)
		x[i] = rnd(1, i);
	ref_backward(dx, &p, x, g);
	for (uint32_t dir = 10; dir < 20; dir++) {
		double slope = 0, diff = 0, h = 1e-5;

		for (int sign = -1; sign <= 1; sign += 2) {
			for (int64_t i = 0; i < n; i++)
				y[i] = x[i] + sign * h * rnd(dir, i);
			ref_forward(o, lse, &p, y);
			for (int64_t i = 0; i < m; i++)
				diff += sign * o[i] * g[i] / (2 * h);
		}
		for (int64_t i = 0; i < n; i++)
			slope += dx[i] * rnd(dir, i);
		if (fabs(slope - diff) > 1e-7 * (1 + fabs(slope)))
			fail_msg("direction %u: slope %.9g, difference %.9g", dir, slope, diff);
	}
	free_all(x, y, dx, g, o, lse);
}

/* Against f64; with `again`, also the same bits on a device of one thread and in a second call. */
static void both_ways(const struct dt_attn *p, enum dt_dtype type, struct dt_dev *again)
{
	const int64_t rows = p->batch * p->seq, out = p->heads * p->head_dim;
	struct dt_tensor x = random_tensor(type, rows, width(p), 1, 1),
			 g = random_tensor(type, rows, out, 2, 1);
	struct dt_tensor o = tensor(type, rows, out), o1 = tensor(type, rows, out);
	struct dt_tensor lse = tensor(DT_F32, p->heads, rows), dx = tensor(type, rows, width(p));
	struct dt_tensor dx1 = copy_of(dx), lse1 = copy_of(lse);
	double *rx = values(x), *rg = values(g), *ro = reals(rows * out), *rl = reals(rows * p->heads);
	double *rdx = reals(rows * width(p));
	/* p and ds are rounded to bf16 before they multiply v, k and q; backward sees a rounded o */
	const double tol = type == DT_F32 ? 3e-6 : type == DT_F16 ? 1e-3 : 2e-2;

	ref_forward(ro, rl, p, rx);
	ref_backward(rdx, p, rx, rg);
	assert_int_equal(dev->ops->attention_forward(dev, o, lse, x, p), 0);
	check_close("o", o, ro, tol, 0);
	check_close("lse", lse, rl, 3e-6, 1e-6);
	assert_int_equal(dev->ops->attention_backward(dev, dx, g, o, lse, x, p), 0);
	check_close("dqkv", dx, rdx, tol * 4, tol);
	if (again) {
		assert_int_equal(again->ops->attention_forward(again, o1, lse1, x, p), 0);
		assert_int_equal(again->ops->attention_backward(again, dx1, g, o, lse, x, p), 0);
		check_same_bits("o over threads", o, o1);
		check_same_bits("lse over threads", lse, lse1);
		check_same_bits("dqkv over threads", dx, dx1);
	}
	free_all(x.data, g.data, o.data, o1.data, lse.data, lse1.data, dx.data, dx1.data, rx, rg, ro, rl,
		 rdx);
}

static void test_forward_backward(void **state)
{
	struct dt_dev *one = open_device(1);

	for (int v = 0; v < TYPES * SHAPES; v++) {
		const enum dt_dtype type = compute_types[v % TYPES];

		/* f16 differs from bf16 in how numbers are rounded: a shape for each width of a card's
		 * kernels. */
		if (emulated(dev) && type == DT_F16 && v / TYPES != 1 && v / TYPES != 4 && v / TYPES != 6)
			continue;
		/* Emulated, one type and some shapes show it. */
		both_ways(&shapes[v / TYPES], type, !emulated(dev) || v % (3 * TYPES) == 1 ? one : NULL);
	}
	dt_dev_close(one);
}

/*
 * More tiles of keys and of queries than a card has room for at a time, so that places are used again; also
 * by the last few keys, which half of a card's threads have nothing to do for.
 */
static void test_long(void **state)
{
	static const struct dt_attn all[] = {
		{1, 590, 1, 1, 64, 0, 0.125f}, {1, 600, 2, 1, 128, 0, 0.09f}, {1, 700, 2, 1, 64, 460, 0.125f},
		{1, 740, 1, 1, 72, 400, 0.1f}, {1, 180, 7, 1, 64, 0, 0.125f},
	};

	for (int i = 0; i < 5; i++)
		both_ways(&all[i], i % 3 ? DT_BF16 : DT_F16, NULL);
}

/* More sequences than a grid has blocks in z. */
static void test_more_than_a_grid(void **state)
{
	static const struct dt_attn p = {65537, 1, 1, 1, 8, 0, 0.3f};

	both_ways(&p, DT_F32, NULL);
	if (!emulated(dev))
		both_ways(&p, DT_BF16, NULL);
}

/* A product past the largest f32 is -Inf: that key has no part in any row, forward and backward. */
static void test_overflow(void **state)
{
	const struct dt_attn p = {1, 90, 1, 1, 16, 0, 0.25f};
	const int64_t w = width(&p);

	for (int v = 0; v < 2; v++) {
		const enum dt_dtype type = compute_types[v];
		const double tol = type == DT_F32 ? 3e-6 : 2e-2;
		struct dt_tensor x = random_tensor(type, p.seq, w, 1, 1),
				 g = random_tensor(type, p.seq, p.head_dim, 2, 1);
		struct dt_tensor o = tensor(type, p.seq, p.head_dim), lse = tensor(DT_F32, 1, p.seq),
				 dx = tensor(type, p.seq, w);
		double *rx, *rg, *ro = reals(p.seq * p.head_dim), *rl = reals(p.seq), *rdx = reals(p.seq * w);

		for (int64_t i = 0; i < p.seq; i++)
			put(x, i * w, 4);
		for (int64_t i = 5; i < p.seq; i += 20)
			put(x, i * w + p.head_dim, -0x1p127);
		rx = values(x);
		rg = values(g);
		ref_forward(ro, rl, &p, rx);
		ref_backward(rdx, &p, rx, rg);
		assert_int_equal(dev->ops->attention_forward(dev, o, lse, x, &p), 0);
		check_close("o", o, ro, tol, 0);
		check_close("lse", lse, rl, 3e-6, 1e-6);
		assert_int_equal(dev->ops->attention_backward(dev, dx, g, o, lse, x, &p), 0);
		check_close("dqkv", dx, rdx, tol * 4, tol);
		free_all(x.data, g.data, o.data, lse.data, dx.data, rx, rg, ro, rl, rdx);
	}
}

/* Scores that rise by 1 a key after 150 keys: the largest so far is soon much too small to subtract. */
static void test_rising(void **state)
{
	const struct dt_attn p = {1, 420, 1, 1, 32, 0, 0.125f};
	const int64_t w = width(&p);

	for (int v = 0; v < 2; v++) {
		const enum dt_dtype type = compute_types[v];
		const double tol = type == DT_F32 ? 1e-5 : 2e-2;
		struct dt_tensor x = random_tensor(type, p.seq, w, 1, 1), o = tensor(type, p.seq, p.head_dim),
				 lse = tensor(DT_F32, 1, p.seq);
		double *rx, *ro = reals(p.seq * p.head_dim), *rl = reals(p.seq);

		for (int64_t i = 0; i < p.seq; i++)
			for (int64_t c = 0; c < p.head_dim; c++) {
				put(x, i * w + c, 1);
				put(x, i * w + p.head_dim + c, 0.25 * fmax((double)i - 150, 0));
			}
		rx = values(x);
		ref_forward(ro, rl, &p, rx);
		assert_int_equal(dev->ops->attention_forward(dev, o, lse, x, &p), 0);
		check_close("o", o, ro, tol, 0);
		check_close("lse", lse, rl, 3e-6, 1e-6);
		free_all(x.data, o.data, lse.data, rx, ro, rl);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reference),
		cmocka_unit_test_prestate(test_reference, (void *)"capped"),
		cmocka_unit_test(test_forward_backward),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_more_than_a_grid),
		cmocka_unit_test(test_overflow),
		cmocka_unit_test(test_rising),
	};

	return without_tiles() ? 77 : cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
