/*
 * Latent attention: heads put together and their gradients taken apart against loops over elements, and
 * attention over values of another width than keys against the same over heads filled up with zeros.
 */
#include "check.h"

static struct dt_dev *dev;

struct parts {
	struct dt_tensor qkv, q, key, kv;
};

static struct parts parts_make(enum dt_dtype t, int64_t rows, const struct dt_latent *p, uint32_t stream)
{
	const int64_t head = p->nope + p->rope;

	return (struct parts){random_tensor(t, rows, p->heads * (2 * head + p->value), stream, 1),
			      random_tensor(t, rows, p->heads * head, stream + 1, 1),
			      random_tensor(t, rows, p->rope, stream + 2, 1),
			      random_tensor(t, rows, p->heads * (p->nope + p->value), stream + 3, 1)};
}

static void parts_free(struct parts *x)
{
	free_all(x->qkv.data, x->q.data, x->key.data, x->kv.data);
}

/* Where element e of row i of qkv comes from: 0 q, 1 key, 2 kv, and its number there. */
static int source(const struct dt_latent *p, int64_t i, int64_t e, int64_t *ret)
{
	const int64_t head = p->rope + p->nope, keys = p->heads * head, h = e % keys / head, at = e % head;

	if (e >= 2 * keys) { /* a value */
		const int64_t v = e - 2 * keys;

		*ret = (i * p->heads + v / p->value) * (p->nope + p->value) + p->nope + v % p->value;
		return 2;
	}
	if (e < keys) {
		*ret = (i * p->heads + h) * head + (at < p->rope ? p->nope + at : at - p->rope);
		return 0;
	}
	*ret = at < p->rope ? i * p->rope + at : (i * p->heads + h) * (p->nope + p->value) + at - p->rope;
	return at < p->rope ? 1 : 2;
}

static void join(enum dt_dtype t, int64_t rows, struct dt_latent p)
{
	struct parts x = parts_make(t, rows, &p, 1), d = parts_make(t, rows, &p, 11);
	const int64_t cols = x.qkv.dim[1];
	double *sum = reals(rows * p.rope), *got = values(d.qkv);

	assert_int_equal(dev->ops->latent_join(dev, x.qkv, x.q, x.key, x.kv, &p), 0);
	assert_int_equal(dev->ops->latent_join_backward(dev, d.q, d.key, d.kv, d.qkv, &p), 0);
	for (int64_t i = 0; i < rows; i++)
		for (int64_t e = 0; e < cols; e++) {
			int64_t at;
			const int from = source(&p, i, e, &at);
			const struct dt_tensor *in = from == 0 ? &x.q : from == 1 ? &x.key : &x.kv;

			assert_true(get(x.qkv, i * cols + e) == get(*in, at));
			if (from == 1)
				sum[at] += got[i * cols + e];
			else
				assert_true(get(from ? d.kv : d.q, at) == got[i * cols + e]);
		}
	check_close("dkey", d.key, sum, 2e-7 * (double)p.heads, 0);
	assert_int_equal(dev->ops->latent_join(dev, x.qkv, x.q, x.kv, x.key, &p), -EINVAL);
	free_all(sum, got);
	parts_free(&x);
	parts_free(&d);
}

static void test_join(void **state)
{
	static const enum dt_dtype type[] = {DT_F32, DT_BF16, DT_F16};

	for (int i = 0; i < 3; i++) {
		join(type[i], 3, (struct dt_latent){4, 8, 4, 6});
		join(type[i], 1, (struct dt_latent){1, 0, 2, 1});
		join(type[i], 37, (struct dt_latent){5, 33, 18, 21});
	}
}

/* Columns of heads `from` wide as heads `to` wide, zeros behind. */
static void widen(struct dt_tensor y, int64_t at, struct dt_tensor x, int64_t first, int64_t heads,
		  int64_t from, int64_t to)
{
	for (int64_t i = 0; i < x.dim[0]; i++)
		for (int64_t h = 0; h < heads; h++)
			for (int64_t c = 0; c < to; c++)
				put(y, i * y.dim[1] + at + h * to + c,
				    c < from ? get(x, i * x.dim[1] + first + h * from + c) : 0);
}

static void same(const char *what, struct dt_tensor got, int64_t at, struct dt_tensor wide, int64_t first,
		 int64_t heads, int64_t from, int64_t to, double tol)
{
	for (int64_t i = 0; i < got.dim[0]; i++)
		for (int64_t h = 0; h < heads; h++)
			for (int64_t c = 0; c < from; c++) {
				const double g = get(got, i * got.dim[1] + at + h * from + c),
					     w = get(wide, i * wide.dim[1] + first + h * to + c);

				if (!(fabs(g - w) <= tol * (1 + fabs(w))))
					fail_msg("%s: got %.9g, want %.9g", what, g, w);
			}
}

/* Heads d wide, values v wide, beside heads of the larger of both, which test_attention.c holds to f64. */
static void values_of(enum dt_dtype t, int64_t seq, int64_t d, int64_t v, double tol)
{
	const int64_t heads = 4, kv = 2, batch = 2, rows = batch * seq, m = d > v ? d : v, keys = heads + kv;
	const struct dt_attn p = {.batch = batch,
				  .seq = seq,
				  .heads = heads,
				  .kv_heads = kv,
				  .head_dim = d,
				  .value_dim = v,
				  .scale = 0.3f};
	struct dt_attn wide = p;
	struct dt_tensor qkv = random_tensor(t, rows, keys * d + kv * v, 1, 1),
			 dqkv = tensor(t, rows, keys * d + kv * v),
			 g = random_tensor(t, rows, heads * v, 2, 1), o = tensor(t, rows, heads * v),
			 lse = tensor(DT_F32, 1, rows * heads);
	struct dt_tensor wqkv = tensor(t, rows, (keys + kv) * m), wdqkv = tensor(t, rows, (keys + kv) * m),
			 wg = tensor(t, rows, heads * m), wo = tensor(t, rows, heads * m),
			 wlse = tensor(DT_F32, 1, rows * heads);

	wide.head_dim = m;
	wide.value_dim = 0;
	widen(wqkv, 0, qkv, 0, keys, d, m);
	widen(wqkv, keys * m, qkv, keys * d, kv, v, m);
	widen(wg, 0, g, 0, heads, v, m);
	assert_int_equal(dev->ops->attention_forward(dev, o, lse, qkv, &p), 0);
	assert_int_equal(dev->ops->attention_forward(dev, wo, wlse, wqkv, &wide), 0);
	same("o", o, 0, wo, 0, heads, v, m, tol);
	same("lse", lse, 0, wlse, 0, 1, rows * heads, rows * heads, 1e-6);
	assert_int_equal(dev->ops->attention_backward(dev, dqkv, g, o, lse, qkv, &p), 0);
	assert_int_equal(dev->ops->attention_backward(dev, wdqkv, wg, wo, wlse, wqkv, &wide), 0);
	same("dq and dk", dqkv, 0, wdqkv, 0, keys, d, m, tol);
	same("dv", dqkv, keys * d, wdqkv, keys * m, kv, v, m, tol);
	free_all(qkv.data, dqkv.data, g.data, o.data, lse.data, wqkv.data, wdqkv.data, wg.data, wo.data,
		 wlse.data);
}

static void test_values(void **state)
{
	static const int64_t dims[][2] = {{24, 16}, {12, 6}, {14, 16}, {33, 70}, {48, 32}};

	for (int i = 0; i < 5; i++) {
		values_of(DT_F32, i ? 37 : 150, dims[i][0], dims[i][1], 2e-6);
		values_of(DT_BF16, i ? 37 : 150, dims[i][0], dims[i][1], 2e-2);
		values_of(DT_F16, 37, dims[i][0], dims[i][1], 2e-3);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_join),
		cmocka_unit_test(test_values),
	};
	int rc;

	dev = open_device(2);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	dt_dev_close(dev);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
