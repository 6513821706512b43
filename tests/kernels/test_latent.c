/*
 * Latent attention: heads copied and added up against loops over elements, attention over values of another
 * width than keys against the same over heads filled up with zeros, over cached latents against f64 loops.
 */
#include "check.h"

static struct dt_dev *dev;

/* A copy of heads between matrices of other strides, and its backward. */
static void heads(enum dt_dtype t, int64_t rows, int64_t n, int64_t count)
{
	const struct dt_latent_place in = {3, count * (n + 2) + 5, n + 2}, out = {1, n + 4, rows * (n + 4)};
	const int64_t room = 7 + rows * (count * (n + 2) + 5), all = 5 + count * rows * (n + 4);
	struct dt_tensor x = random_tensor(t, 1, room, 1, 1), y = random_tensor(t, 1, all, 2, 1),
			 was = copy_of(y), sum = random_tensor(t, 1, rows * (n + 1), 3, 1);
	struct dt_latent_heads p = {.rows = rows, .heads = count, .n = n, .to = out, .from = in};
	double *want = reals(rows * (n + 1));
	int64_t named = 0, changed = 0;

	assert_int_equal(dev->ops->latent_heads(dev, y, x, &p), 0);
	for (int64_t i = 0; i < rows; i++)
		for (int64_t h = 0; h < count; h++)
			for (int64_t j = 0; j < n; j++, named++)
				assert_true(get(y, out.at + i * out.row + h * out.head + j) ==
					    get(x, in.at + i * in.row + h * in.head + j));
	for (int64_t i = 0; i < all; i++)
		changed += get(y, i) != get(was, i);
	assert_in_range(changed, 0, named);
	p.to = (struct dt_latent_place){0, n + 1, 0};
	p.sum = true;
	for (int64_t i = 0; i < rows * (n + 1); i++)
		want[i] = get(sum, i);
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < n; j++) {
			want[i * (n + 1) + j] = 0;
			for (int64_t h = 0; h < count; h++)
				want[i * (n + 1) + j] += get(x, in.at + i * in.row + h * in.head + j);
		}
	assert_int_equal(dev->ops->latent_heads(dev, sum, x, &p), 0);
	check_close("sum over heads", sum, want, 2e-7 * (double)count, 0);
	p.from.at = room;
	assert_int_equal(dev->ops->latent_heads(dev, sum, x, &p), -EINVAL);
	p.from.at = 3;
	p.to.head = 1;
	assert_int_equal(dev->ops->latent_heads(dev, sum, x, &p), -EINVAL);
	free_all(x.data, y.data, was.data, sum.data, want);
}

static void test_heads(void **state)
{
	static const enum dt_dtype type[] = {DT_F32, DT_BF16, DT_F16};

	for (int i = 0; i < 3; i++) {
		heads(type[i], 3, 8, 4);
		heads(type[i], 1, 1, 1);
		heads(type[i], 37, 300, 5);
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

/* Attention and its gradient over whole sequences, or the same by one span of each. */
static void attend(struct dt_tensor o, struct dt_tensor lse, struct dt_tensor dqkv, struct dt_tensor dout,
		   struct dt_tensor qkv, const struct dt_attn *p, bool span)
{
	const struct dt_attn_run run = {0, 0};
	const struct dt_attn_span s = {.rows = p->seq,
				       .nrun = 1,
				       .run = &run,
				       .run_keys = p->seq,
				       .stride = p->seq,
				       .k_col = p->heads * p->head_dim,
				       .v_col = (p->heads + p->kv_heads) * p->head_dim};
	const struct dt_ops *f = dev->ops;

	if (span) {
		assert_int_equal(f->attention_span_forward(dev, o, lse, qkv, qkv, p, &s), 0);
		assert_int_equal(f->attention_span_backward(dev, dqkv, dqkv, dout, o, lse, qkv, qkv, p, &s),
				 0);
	} else {
		assert_int_equal(f->attention_forward(dev, o, lse, qkv, p), 0);
		assert_int_equal(f->attention_backward(dev, dqkv, dout, o, lse, qkv, p), 0);
	}
}

/* Heads d wide, values v wide, beside heads of the larger of both, which test_attention.c holds to f64. */
static void values_of(enum dt_dtype t, int64_t seq, int64_t d, int64_t v, bool span, double tol)
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
	attend(o, lse, dqkv, g, qkv, &p, span);
	attend(wo, wlse, wdqkv, wg, wqkv, &wide, false);
	same("o", o, 0, wo, 0, heads, v, m, tol);
	same("lse", lse, 0, wlse, 0, 1, rows * heads, rows * heads, 1e-6);
	same("dq and dk", dqkv, 0, wdqkv, 0, keys, d, m, tol);
	same("dv", dqkv, keys * d, wdqkv, keys * m, kv, v, m, tol);
	free_all(qkv.data, dqkv.data, g.data, o.data, lse.data, wqkv.data, wdqkv.data, wg.data, wo.data,
		 wlse.data);
}

static void test_values(void **state)
{
	static const int64_t dims[][2] = {{24, 16}, {12, 6}, {14, 16}, {33, 70}, {48, 32}, {136, 72}};

	for (int i = 0; i < 6; i += every_case(dev) ? 1 : 2) {
		values_of(DT_F32, i ? 37 : 150, dims[i][0], dims[i][1], false, 2e-6);
		values_of(DT_BF16, i ? 37 : 150, dims[i][0], dims[i][1], false, 2e-2);
		values_of(DT_F16, 37, dims[i][0], dims[i][1], false, 2e-3);
		values_of(DT_F32, 37, dims[i][0], dims[i][1], true, 2e-6);
		values_of(DT_BF16, 37, dims[i][0], dims[i][1], true, 2e-2);
	}
}

enum { BLOCK = 5, PAGED = 300 }; /* slots, keys of the longest sequence */

/* What row i of head h gets: all keys up to it, whose last v elements are values. */
static void cached_row(double *o, const struct dt_attn *p, const double *q, const double *key, int64_t i,
		       int64_t h)
{
	const int64_t d = p->head_dim, v = p->value_dim, wide = (p->heads + 1) * d;
	double s[PAGED], max = -INFINITY, sum = 0;

	for (int64_t j = 0; j <= i; j++) {
		s[j] = 0;
		for (int64_t e = 0; e < d; e++)
			s[j] += (double)p->scale * q[i * wide + h * d + e] * key[j * wide + p->heads * d + e];
		max = fmax(max, s[j]);
	}
	for (int64_t j = 0; j <= i; j++)
		sum += s[j] = exp(s[j] - max);
	for (int64_t e = 0; e < v; e++) {
		o[e] = 0;
		for (int64_t j = 0; j <= i; j++)
			o[e] += s[j] / sum * key[j * wide + p->heads * d + d - v + e];
	}
}

static struct dt_tensor rows_of(struct dt_tensor t, int64_t from, int64_t to)
{
	return dt_t2((char *)t.data + from * t.dim[1] * dt_dtype_size(t.dtype), t.dtype, to - from, t.dim[1]);
}

/* Rows [from, to) of the sequence in one call, its blocks in the order of the table. */
static void run_cached(struct dt_tensor o, struct dt_tensor x, struct dt_tensor cache,
		       const struct dt_attn *p, const int32_t *table, int from, int to)
{
	const int32_t start[] = {0, to - from}, len[] = {to};
	const struct dt_paged g = {1, start, len, table, (int)cache.dim[0] / BLOCK, BLOCK};
	const struct dt_tensor q = rows_of(x, from, to), r = rows_of(o, from, to);

	assert_int_equal(dev->ops->attention_paged(dev, r, q, cache, DT_NONE, p, &g), 0);
}

static void cached(enum dt_dtype t, enum dt_dtype kept, int64_t count, int64_t d, int64_t v, int keys,
		   double tol)
{
	const struct dt_attn p = {
		.heads = count, .kv_heads = 1, .head_dim = d, .value_dim = v, .scale = 0.2f};
	struct dt_tensor x = random_tensor(t, keys, (count + 1) * d, 1, 1), o = tensor(t, keys, count * v),
			 cut = tensor(t, keys, count * v), cache = tensor(kept, keys, dt_kv_row(&p, kept));
	int32_t table[PAGED / BLOCK];
	int64_t slot[PAGED];
	double *q = values(x), *want = reals(keys * count * v);

	for (int i = 0; i < keys / BLOCK; i++)
		table[i] = (i * 5 + 2) % (keys / BLOCK);
	for (int i = 0; i < keys; i++)
		slot[i] = table[i / BLOCK] * BLOCK + i % BLOCK;
	assert_int_equal(dev->ops->kv_write(dev, cache, DT_NONE, x, &p, slot), 0);
	for (int64_t i = 0; i < keys; i++)
		for (int64_t h = 0; h < count; h++)
			cached_row(want + (i * count + h) * v, &p, q, q, i, h);
	run_cached(o, x, cache, &p, table, 0, keys);
	check_close("o", o, want, tol, 0);
	for (int i = 0, n = 1; i < keys; i += n, n = n * 5 % 23 + 1)
		run_cached(cut, x, cache, &p, table, i, i + n < keys ? i + n : keys);
	check_same_bits("a prompt in chunks", o, cut);
	for (int i = 0; i < keys; i++)
		run_cached(cut, x, cache, &p, table, i, i + 1);
	check_same_bits("a prompt by tokens", o, cut);
	assert_int_equal(dev->ops->kv_write(dev, cache, cache, x, &p, slot), -EINVAL);
	free_all(x.data, o.data, cut.data, cache.data, q, want);
}

/* As many heads to a key as a tile has rows, and more. */
static void test_cached(void **state)
{
	static const int64_t dims[][3] = {{3, 22, 16}, {16, 96, 64}, {64, 40, 32}, {100, 24, 24}};

	for (int i = 0; i < 4; i++) {
		const int64_t *n = dims[i];
		/* emulated, a row takes as long however few keys it sees */
		const int keys = !on_device() ? 70 : n[0] > 16 ? BLOCK : 20;

		cached(DT_F32, DT_F32, n[0], n[1], n[2], keys, 3e-6);
		cached(DT_BF16, DT_BF16, n[0], n[1], n[2], keys, 2e-2);
		cached(DT_F16, DT_F32, n[0], n[1], n[2], keys, 2e-3);
		cached(DT_F32, DT_I8, n[0], n[1], n[2], keys, 2e-2);
	}
	/* the sizes of DeepSeek's heads, and more keys than a card has in a part */
	cached(DT_BF16, DT_BF16, 17, 576, 512, 15, 2e-2);
	cached(DT_F16, DT_F16, 3, 32, 16, 290, 2e-3);
	cached(DT_F32, DT_F32, 2, 8, 8, 290, 3e-6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_heads),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_cached),
	};
	int rc;

	dev = open_device(2);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	dt_dev_close(dev);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
