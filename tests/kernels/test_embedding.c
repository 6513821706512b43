/* Embedding over a shard of the vocabulary, tokens of images, and rotary position embedding, against f64. */
#include "group.h"

static void one_embedding(int64_t rows, int64_t n, enum dt_dtype type, bool with_wpe)
{
	enum { VOCAB = 11, FIRST = 5, POSITIONS = 7 };
	struct dt_tensor wte = random_tensor(type, VOCAB, n, 1, 1),
			 wpe = random_tensor(type, POSITIONS, n, 2, 1);
	struct dt_tensor y = tensor(type, rows, n), dy = random_tensor(type, rows, n, 3, 1);
	struct dt_tensor dwte = random_tensor(DT_F32, VOCAB, n, 4, 1),
			 dwpe = random_tensor(DT_F32, POSITIONS, n, 5, 1);
	struct dt_tensor dwte1 = copy_of(dwte), dwpe1 = copy_of(dwpe);
	double *ry = reals(rows * n), *rt = values(dwte), *rp = values(dwpe);
	int32_t *ids = calloc((size_t)rows, sizeof *ids), *pos = calloc((size_t)rows, sizeof *pos);
	struct dt_dev *one = open_device(1);

	for (int64_t i = 0; i < rows; i++) {
		ids[i] = (int32_t)(i * 5 % 20) - 1; /* -1, outside on either side, and inside */
		pos[i] = (int32_t)(i % POSITIONS);
		const int64_t id = ids[i] - FIRST;

		for (int64_t j = 0; j < n; j++) {
			if (id >= 0 && id < VOCAB) {
				ry[i * n + j] += get(wte, id * n + j);
				rt[id * n + j] += get(dy, i * n + j);
			}
			if (with_wpe) {
				ry[i * n + j] += get(wpe, pos[i] * n + j);
				rp[pos[i] * n + j] += get(dy, i * n + j);
			}
		}
	}
	assert_int_equal(dev->ops->embedding_forward(dev, y, ids, with_wpe ? pos : NULL, wte,
						     with_wpe ? wpe : DT_NONE, FIRST),
			 0);
	check_close("y", y, ry, 1e-7, 1e-7);
	assert_int_equal(dev->ops->embedding_backward(dev, dwte, with_wpe ? dwpe : DT_NONE, dy, ids,
						      with_wpe ? pos : NULL, FIRST),
			 0);
	check_close("dwte", dwte, rt, 1e-5, 1e-6);
	check_close("dwpe", dwpe, rp, 1e-5, 1e-6);
	assert_int_equal(one->ops->embedding_backward(one, dwte1, with_wpe ? dwpe1 : DT_NONE, dy, ids,
						      with_wpe ? pos : NULL, FIRST),
			 0);
	check_same_bits("dwte over threads", dwte, dwte1);
	check_same_bits("dwpe over threads", dwpe, dwpe1);
	if (with_wpe && rows) {
		pos[rows - 1] = POSITIONS;
		assert_int_equal(dev->ops->embedding_forward(dev, y, ids, pos, wte, wpe, FIRST), -EINVAL);
		pos[rows - 1] = -1;
		assert_int_equal(dev->ops->embedding_backward(dev, dwte, dwpe, dy, ids, pos, FIRST), -EINVAL);
	}
	dt_dev_close(one);
	free_all(wte.data, wpe.data, y.data, dy.data, dwte.data, dwpe.data, dwte1.data, dwpe1.data, ry, rt,
		 rp, ids, pos);
}

static void test_embedding(void **state)
{
	static const int64_t shapes[][2] = {{1, 1}, {23, 37}, {200, 130}, {3, 4500}};

	for (int v = 0; v < 4 * 2 * TYPES; v++)
		one_embedding(shapes[v / 2 / TYPES][0], shapes[v / 2 / TYPES][1],
			      compute_types[v / 2 % TYPES], v & 1);
}

/* Ids of so many rows each, mixed: what a card adds in pieces. */
static void one_frequent(int64_t n, enum dt_dtype type)
{
	static const int64_t often[] = {1, 31, 64, 65, 0, 128, 129, 1, 1500, 7};
	enum { VOCAB = sizeof often / sizeof *often, ROWS = 1 + 31 + 64 + 65 + 128 + 129 + 1 + 1500 + 7 };
	struct dt_tensor dy = random_tensor(type, ROWS, n, 3, 1), dw = random_tensor(DT_F32, VOCAB, n, 4, 1);
	struct dt_tensor again = copy_of(dw);
	double *want = values(dw);
	int32_t *ids = calloc(ROWS, sizeof *ids);

	for (int64_t id = 0, i = 0; id < VOCAB; id++)
		for (int64_t k = 0; k < often[id]; k++, i++)
			ids[i * 601 % ROWS] = (int32_t)id; /* 601 is prime, and no factor of ROWS */
	for (int64_t i = 0; i < ROWS * n; i++)
		want[ids[i / n] * n + i % n] += get(dy, i);
	assert_int_equal(dev->ops->embedding_backward(dev, dw, DT_NONE, dy, ids, NULL, 0), 0);
	check_close("dwte", dw, want, 1e-4, 1e-5); /* 1500 rows in f32, one after another */
	assert_int_equal(dev->ops->embedding_backward(dev, again, DT_NONE, dy, ids, NULL, 0), 0);
	check_same_bits("dwte again", dw, again);
	free_all(dy.data, dw.data, again.data, want, ids);
}

static void test_frequent(void **state)
{
	static const int64_t n[] = {8, 33, 264, 1032};

	for (int v = 0; v < 4 * TYPES; v++)
		one_frequent(n[v / TYPES], compute_types[v % TYPES]);
}

static void one_rope(struct dt_rope p, int64_t rows, int64_t width, enum dt_dtype type)
{
	const int64_t half = p.rot_dim / 2;
	struct dt_tensor x = random_tensor(type, rows, width, 1, 1), was = copy_of(x);
	double *want = values(x), *back = values(x);
	float *cs = calloc((size_t)(p.positions * half), sizeof *cs),
	      *sn = calloc((size_t)(p.positions * half), sizeof *sn);
	int32_t *pos = calloc((size_t)rows, sizeof *pos);

	for (int64_t i = 0; i < p.positions * half; i++) {
		double angle = (double)(i / half) * pow(10000, -(double)(i % half) / (double)half);

		cs[i] = (float)cos(angle);
		sn[i] = (float)sin(angle);
	}
	p.cos = cs;
	p.sin = sn;
	for (int64_t r = 0; r < rows; r++) {
		pos[r] = (int32_t)(r * 3 % p.positions);
		for (int64_t u = 0; u < p.rot_heads * half; u++) {
			const int64_t i = u % half, at = r * width + u / half * p.head_dim;
			const int64_t a = at + (p.pairing == DT_ROPE_HALF ? i : 2 * i);
			const int64_t b = at + (p.pairing == DT_ROPE_HALF ? i + half : 2 * i + 1);
			const double c = cs[pos[r] * half + i], s = sn[pos[r] * half + i];

			want[a] = get(was, a) * c - get(was, b) * s;
			want[b] = get(was, a) * s + get(was, b) * c;
		}
	}
	assert_int_equal(dev->ops->rope(dev, x, &p, pos, false), 0);
	check_close("rope", x, want, 1e-6, 1e-6);
	assert_int_equal(dev->ops->rope(dev, x, &p, pos, true), 0);
	check_close("rope there and back", x, back, type == DT_F32 ? 1e-6 : 1e-2, 1e-6);
	pos[0] = (int32_t)p.positions;
	assert_int_equal(dev->ops->rope(dev, x, &p, pos, false), -EINVAL);
	free_all(x.data, was.data, want, back, cs, sn, pos);
}

static void test_rope(void **state)
{
	static const struct dt_rope p[] = {
		{3, 16, 16, DT_ROPE_HALF, NULL, NULL, 40},     {2, 20, 10, DT_ROPE_HALF, NULL, NULL, 40},
		{3, 16, 16, DT_ROPE_ADJACENT, NULL, NULL, 40}, {2, 21, 6, DT_ROPE_ADJACENT, NULL, NULL, 9},
		{1, 1040, 1040, DT_ROPE_HALF, NULL, NULL, 5},
	};

	for (int v = 0; v < 5 * TYPES; v++)
		one_rope(p[v / TYPES], 33, p[v / TYPES].rot_heads * p[v / TYPES].head_dim + 13,
			 compute_types[v % TYPES]);
}

/* Tokens of images: class token and positions, and their gradients. */
static void one_tokens(int64_t images, int64_t patches, int64_t n, enum dt_dtype type)
{
	const int64_t tokens = patches + 1;
	struct dt_tensor x = random_tensor(type, images * patches, n, 1, 1),
			 first = random_tensor(type, 1, n, 2, 1), pos = random_tensor(type, tokens, n, 3, 1),
			 y = tensor(type, images * tokens, n),
			 dy = random_tensor(type, images * tokens, n, 4, 1),
			 dx = tensor(type, images * patches, n), dfirst = random_tensor(DT_F32, 1, n, 5, 1),
			 dpos = random_tensor(DT_F32, tokens, n, 6, 1);
	double *ry = reals(images * tokens * n), *rx = reals(images * patches * n), *rf = values(dfirst),
	       *rp = values(dpos);

	for (int64_t i = 0; i < images * tokens * n; i++) {
		const int64_t c = i % n, at = i / n % tokens, b = i / n / tokens,
			      from = ((b * patches) + at - 1) * n + c;

		ry[i] = (at ? get(x, from) : get(first, c)) + get(pos, at * n + c);
		rp[at * n + c] += get(dy, i);
		if (at)
			rx[from] = get(dy, i);
		else
			rf[c] += get(dy, i);
	}
	assert_int_equal(dev->ops->image_tokens(dev, y, x, first, pos), 0);
	check_close("y", y, ry, 1e-7, 1e-7);
	assert_int_equal(dev->ops->image_tokens_backward(dev, dx, dfirst, dpos, dy, tokens), 0);
	check_close("dx", dx, rx, 0, 0);
	check_close("dclass", dfirst, rf, 1e-6, 1e-6);
	check_close("dpos", dpos, rp, 1e-6, 1e-6);
	assert_int_equal(dev->ops->image_tokens_backward(dev, dx, DT_NONE, DT_NONE, dy, tokens), 0);
	check_close("dx alone", dx, rx, 0, 0);
	pos.dim[0]--;
	assert_int_equal(dev->ops->image_tokens(dev, y, x, first, pos), -EINVAL);
	free_all(x.data, first.data, pos.data, y.data, dy.data, dx.data, dfirst.data, dpos.data, ry, rx, rf,
		 rp);
}

static void test_image_tokens(void **state)
{
	for (int t = 0; t < TYPES; t++) {
		one_tokens(3, 4, 16, compute_types[t]);
		one_tokens(2, 1, 1, compute_types[t]);
		one_tokens(5, 7, emulated(dev) ? 33 : 2051, compute_types[t]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_image_tokens),
					   cmocka_unit_test(test_embedding), cmocka_unit_test(test_frequent),
					   cmocka_unit_test(test_rope)};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
