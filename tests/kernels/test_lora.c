/* Adapters of rows against a plain f64 loop; rows without one, neighbours and threads; what is refused. */
#include "check.h"

#include "kernels/quant.h"
#include "kernels/shape.h"

static struct dt_dev *dev;

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

enum { ROWS = 11, ROOM = 14, PARTS = 3 };

/* Columns that a device may move one at a time, or eight. */
static int64_t K = 2100, N = 4300, first_col[] = {0, 7, 2200}, cols[] = {7, 2150, 2100};

static void eight_at_a_time(void)
{
	K = 2104;
	N = 4304;
	first_col[1] = cols[0] = 8;
	cols[1] = 2152;
	cols[2] = 2104;
}

/* On the device. */
static void *there(struct dt_tensor t)
{
	void *p;

	assert_int_equal(dt_dev_alloc(dev, &p, bytes_of(t)), 0);
	assert_int_equal(dt_dev_copy(dev, p, t.data, bytes_of(t)), 0);
	assert_int_equal(dt_dev_sync(dev), 0); /* before its memory goes */
	return p;
}

/*
 * A lane's a or b as the device has it: on a card as it is, which across says is row by row or column by
 * column.
 */
static void *lay(struct dt_tensor t, bool across)
{
	const int64_t e = dt_dtype_size(t.dtype), rows = t.dim[!across], deep = t.dim[across];
	struct dt_tensor panels = copy_of(t);
	void *p;

	for (int64_t i = 0; i < rows && dt_dev_is_host(dev); i++)
		for (int64_t k = 0; k < deep; k++)
			memcpy((char *)panels.data + dt_lora_panel_at(t.dtype, i, rows, k, deep) * e,
			       (char *)t.data + (across ? i * deep + k : k * rows + i) * e, (size_t)e);
	p = there(panels);
	free(panels.data);
	return p;
}

/* Three adapters: of all lanes, of the middle one alone, of two lanes; rows between have none. */
struct batch {
	struct dt_lora_part part[PARTS];
	struct dt_tensor a[PARTS][DT_LORA_LANES], b[PARTS][DT_LORA_LANES], gain, shift;
	struct dt_lora_batch p;
};

static void make(struct batch *t, enum dt_dtype type)
{
	static const int64_t rank[PARTS][DT_LORA_LANES] = {{4, 1, 7}, {0, 3, 0}, {9, 0, 5}};
	static const int64_t first[] = {1, 4, 7}, n[] = {2, 3, 4};

	t->p = (struct dt_lora_batch){type, ROOM, t->part, PARTS};
	for (uint32_t i = 0; i < PARTS; i++) {
		t->part[i] = (struct dt_lora_part){.first = first[i], .n = n[i]};
		for (uint32_t k = 0; k < DT_LORA_LANES; k++) {
			if (!rank[i][k])
				continue;
			t->a[i][k] = random_tensor(type, rank[i][k], K, 10 * i + k, 0.05);
			t->b[i][k] = random_tensor(type, rank[i][k], cols[k], 100 + 10 * i + k, 1);
			t->part[i].lane[k] = (struct dt_lora_lane){lay(t->a[i][k], true),
								   lay(t->b[i][k], false),
								   rank[i][k],
								   first_col[k],
								   cols[k],
								   0.5f + (float)i,
								   NULL,
								   NULL};
		}
	}
	t->gain = random_tensor(DT_F32, 1, cols[1], 7, 2);
	t->shift = random_tensor(DT_F32, 1, cols[1], 8, 2);
	t->part[1].lane[1].gain = t->part[2].lane[2].gain = there(t->gain);
	t->part[1].lane[1].shift = there(t->shift);
}

static void release(struct batch *t)
{
	dt_dev_free(dev, (void *)t->part[1].lane[1].gain);
	dt_dev_free(dev, (void *)t->part[1].lane[1].shift);
	for (int i = 0; i < PARTS; i++)
		for (int k = 0; k < DT_LORA_LANES; k++)
			if (t->part[i].lane[k].a) {
				dt_dev_free(dev, (void *)t->part[i].lane[k].a);
				dt_dev_free(dev, (void *)t->part[i].lane[k].b);
				free_all(t->a[i][k].data, t->b[i][k].data);
			}
	free_all(t->gain.data, t->shift.data);
}

/* y += s (x a^T) b of every part, then gains and shifts */
static void reference(double *y, struct dt_tensor x, const struct batch *t)
{
	for (int i = 0; i < PARTS; i++)
		for (int k = 0; k < DT_LORA_LANES; k++) {
			const struct dt_lora_lane *l = &t->part[i].lane[k];

			for (int64_t r = 0; l->a && r < l->rank; r++)
				for (int64_t m = t->part[i].first; m < t->part[i].first + t->part[i].n; m++) {
					double h = 0;

					for (int64_t j = 0; j < K; j++)
						h += get(x, m * K + j) * get(t->a[i][k], r * K + j);
					for (int64_t j = 0; j < l->cols; j++)
						y[m * N + l->at + j] += (double)l->scale * h *
									get(t->b[i][k], r * l->cols + j);
				}
			for (int64_t m = t->part[i].first; l->gain && m < t->part[i].first + t->part[i].n;
			     m++)
				for (int64_t j = 0; j < l->cols; j++)
					y[m * N + l->at + j] = get(t->gain, j) * y[m * N + l->at + j] +
							       (l->shift ? get(t->shift, j) : 0);
		}
}

static void test_formula(void **state)
{
	const enum dt_dtype types[][3] = {{DT_F32, DT_F32, DT_F32},
					  {DT_F32, DT_BF16, DT_BF16},
					  {DT_BF16, DT_BF16, DT_BF16},
					  {DT_F16, DT_F16, DT_BF16}};

	for (size_t v = 0; v < sizeof types / sizeof *types; v++) {
		struct dt_tensor y = random_tensor(types[v][0], ROWS, N, 1, 1),
				 x = random_tensor(types[v][1], ROWS, K, 2, 1),
				 room = tensor(DT_F32, ROWS, ROOM), before = copy_of(y);
		double *want = values(y);
		struct batch t = {0};

		make(&t, types[v][2]);
		reference(want, x, &t);
		assert_int_equal(dev->ops->lora_add(dev, y, x, room, &t.p), 0);
		check_close("y", y, want, 1e-5, 1e-5);
		for (int64_t m = 0; m < ROWS; m++) /* of no part */
			if (m == 0 || m == 3)
				assert_memory_equal((char *)y.data + m * N * dt_dtype_size(y.dtype),
						    (char *)before.data + m * N * dt_dtype_size(y.dtype),
						    (size_t)(N * dt_dtype_size(y.dtype)));
		release(&t);
		free_all(y.data, x.data, room.data, before.data, want);
	}
}

/* A row's bits are the same alone, by one thread, and among others. */
static void test_neighbours(void **state)
{
	struct dt_tensor y = random_tensor(DT_BF16, ROWS, N, 1, 1), x = random_tensor(DT_BF16, ROWS, K, 2, 1),
			 room = tensor(DT_F32, ROWS, ROOM), before = copy_of(y);
	struct batch t = {0};

	make(&t, DT_BF16);
	assert_int_equal(dev->ops->lora_add(dev, y, x, room, &t.p), 0);
	dev->nthreads = 1;
	for (int i = 0; i < PARTS; i++)
		for (int64_t m = t.part[i].first; m < t.part[i].first + t.part[i].n; m++) {
			struct dt_lora_part one = t.part[i];
			struct dt_lora_batch p = {DT_BF16, ROOM, &one, 1};

			one.first = 0;
			one.n = 1;
			assert_int_equal(dev->ops->lora_add(dev, dt_t2(dt_at(before, m * N), DT_BF16, 1, N),
							    dt_t2(dt_at(x, m * K), DT_BF16, 1, K),
							    dt_t2(room.data, DT_F32, 1, ROOM), &p),
					 0);
		}
	dev->nthreads = 2;
	check_same_bits("alone", y, before);
	release(&t);
	free_all(y.data, x.data, room.data, before.data);
}

static void test_refused(void **state)
{
	struct dt_tensor y = random_tensor(DT_F32, ROWS, N, 1, 1), x = random_tensor(DT_F32, ROWS, K, 2, 1),
			 room = tensor(DT_F32, ROWS, ROOM), before = copy_of(y);
	struct batch t = {0};

	make(&t, DT_F32);
	t.p.rank = 11; /* the lanes of the first part have 12 */
	room.dim[1] = 11;
	assert_int_equal(dev->ops->lora_add(dev, y, x, room, &t.p), -EINVAL);
	t.p.rank = room.dim[1] = ROOM;
	t.part[2].n = 5; /* past the last row */
	assert_int_equal(dev->ops->lora_add(dev, y, x, room, &t.p), -EINVAL);
	t.part[2].n = 4;
	t.part[1].first = 2; /* on the first part's */
	assert_int_equal(dev->ops->lora_add(dev, y, x, room, &t.p), -EINVAL);
	t.part[1].first = 4;
	t.part[0].lane[2].at++; /* past the last column */
	assert_int_equal(dev->ops->lora_add(dev, y, x, room, &t.p), -EINVAL);
	t.part[0].lane[2].at--;
	t.part[1].lane[1].gain = NULL; /* a shift alone */
	assert_int_equal(dev->ops->lora_add(dev, y, x, room, &t.p), -EINVAL);
	t.part[1].lane[1].gain = t.part[2].lane[2].gain;
	t.p.type = DT_F16;
	assert_int_equal(dev->ops->lora_add(dev, y, x, room, &t.p), -EINVAL);
	t.p.type = DT_F32;
	x.dim[0]--;
	assert_int_equal(dev->ops->lora_add(dev, y, x, room, &t.p), -EINVAL);
	check_same_bits("refused", y, before);
	t.p.n = 0;
	x.dim[0]++;
	assert_int_equal(dev->ops->lora_add(dev, y, x, room, &t.p), 0);
	check_same_bits("no parts", y, before);
	t.p.n = PARTS;
	release(&t);
	free_all(y.data, x.data, room.data, before.data);
}

/* A product whose rows are those of three calls, of which all lanes are. */
static struct dt_packed *joined(enum dt_format f, int parts, const int64_t *rows, int64_t k)
{
	struct dt_packed *w;

	assert_int_equal(dt_packed_open(&w, dev, k), 0);
	for (int i = 0; i < parts; i++) {
		struct dt_tensor t = random_tensor(DT_F32, rows[i], k, 20 + (uint32_t)i, 0.1);

		assert_int_equal(dt_packed_append(w, dev, f, DT_FMT_F32, t.data, rows[i]), 0);
		free(t.data);
	}
	return w;
}

/*
 * At once and one after another: to rounding the same, and to the bit where a row has no adapter. By one
 * thread too.
 */
static void test_packed(void **state)
{
	const enum dt_format formats[] = {DT_FMT_F32, DT_FMT_BF16, DT_FMT_Q8_0};
	const int64_t rows[] = {40, 70, 23};
	enum { WIDE = 133, DEEP = 608 };

	if (!dt_dev_is_host(dev))
		return;
	K = DEEP;
	N = WIDE;
	memcpy(cols, rows, sizeof rows);
	memcpy(first_col, (const int64_t[]){0, 40, 110}, sizeof rows);
	for (size_t v = 0; v < sizeof formats / sizeof *formats; v++) {
		struct dt_packed *w = joined(formats[v], 3, rows, DEEP);
		struct dt_tensor x = random_tensor(DT_BF16, ROWS, K, 2, 1), y = tensor(DT_F32, ROWS, N),
				 plain = copy_of(y), alone = copy_of(y),
				 bias = random_tensor(DT_F32, 1, N, 3, 1), room = tensor(DT_F32, ROWS, ROOM);
		struct batch t = {0}, made;
		double *want;

		make(&t, v ? DT_BF16 : DT_F32);
		made = t;
		for (int i = 1; i < PARTS; i++) /* which the reference reads */
			t.part[i].lane[i].shift = NULL;
		assert_int_equal(dev->ops->packed_matmul(dev, plain, x, w, DT_NONE), 0);
		want = values(plain);
		reference(want, x, &t);
		for (int64_t i = 0; i < ROWS * N; i++)
			want[i] += get(bias, i % N);
		assert_int_equal(dev->ops->packed_lora(dev, y, x, w, bias, 0, room, &t.p), 0);
		check_close("y", y, want, 1e-5, 1e-5);
		assert_int_equal(dev->ops->packed_matmul(dev, plain, x, w, bias), 0);
		for (int64_t m = 0; m < 4; m += 3) /* of no part */
			assert_memory_equal(dt_at(y, m * N), dt_at(plain, m * N), (size_t)N * 4);
		dev->nthreads = 1;
		assert_int_equal(dev->ops->packed_lora(dev, alone, x, w, bias, 0, room, &t.p), 0);
		dev->nthreads = 2;
		check_same_bits("by one thread", y, alone);
		t.part[0].lane[1].at--; /* no rows of one call */
		t.part[0].lane[0].cols--;
		assert_int_equal(dev->ops->packed_lora(dev, y, x, w, bias, 0, room, &t.p), -EINVAL);
		assert_int_equal(dev->ops->packed_lora(dev, y, x, w, bias, 1, room, &t.p), -ENOTSUP);
		release(&made);
		dt_packed_close(w);
		free_all(x.data, y.data, plain.data, alone.data, bias.data, room.data, want);
	}
}

/* Gates: the bits of the product in f32 and gated_forward. */
static void test_packed_gated(void **state)
{
	const int64_t rows[] = {72, 72};
	struct dt_packed *w;

	if (!dt_dev_is_host(dev))
		return;
	K = 608;
	N = 144;
	memcpy(cols, rows, sizeof rows);
	memcpy(first_col, (const int64_t[]){0, 72}, sizeof rows);
	w = joined(DT_FMT_BF16, 2, rows, K);
	struct dt_tensor x = random_tensor(DT_BF16, ROWS, K, 2, 1), y = tensor(DT_BF16, ROWS, N / 2),
			 want = copy_of(y), up = tensor(DT_F32, ROWS, N), room = tensor(DT_F32, ROWS, ROOM);
	struct batch t = {0}, made;

	cols[2] = 1;
	make(&t, DT_BF16);
	made = t;
	for (int i = 0; i < PARTS; i++)
		t.part[i].lane[2].a = NULL;
	assert_int_equal(dev->ops->packed_lora(dev, up, x, w, DT_NONE, 0, room, &t.p), 0);
	assert_int_equal(dev->ops->gated_forward(dev, want, up, DT_ACT_SILU), 0);
	assert_int_equal(dev->ops->packed_lora(dev, y, x, w, DT_NONE, 1 + DT_ACT_SILU, room, &t.p), 0);
	check_same_bits("gated", y, want);
	release(&made);
	dt_packed_close(w);
	free_all(x.data, y.data, want.data, up.data, room.data);
}

/* What stands between base and activation in f32 gives the bits of both at once. */
static void test_gated_from_f32(void **state)
{
	struct dt_tensor up = random_tensor(DT_F32, 5, 2 * 300, 1, 4), y = tensor(DT_BF16, 5, 300),
			 exact = tensor(DT_F32, 5, 300), rounded = tensor(DT_BF16, 5, 300);

	assert_int_equal(dev->ops->gated_forward(dev, exact, up, DT_ACT_SILU), 0);
	assert_int_equal(dev->ops->gated_forward(dev, y, up, DT_ACT_SILU), 0);
	assert_int_equal(dev->ops->convert(dev, rounded, exact), 0);
	check_same_bits("rounded once", y, rounded);
	free_all(up.data, y.data, exact.data, rounded.data);
}

/* Norms of rows, what they make of columns with and without a bias, and backward, against f64. */
static void test_magnitudes(void **state)
{
	enum { OUT = 37, RANK = 5, WIDE = 50, AT = 9 };
	for (int v = 0; v < 2 * TYPES; v++) {
		const int IN = v % 2 ? 1100 : 1104;
		const enum dt_dtype t = compute_types[v / 2];
		const double eps = t == DT_F32 ? 2e-6 : t == DT_BF16 ? BF16_EPS : F16_EPS;
		struct dt_tensor w = random_tensor(t, OUT, IN, 1, 1), a = random_tensor(t, RANK, IN, 2, 1),
				 b = random_tensor(t, OUT, RANK, 3, 0.3), m = random_tensor(t, 1, OUT, 4, 1),
				 bias = v % 2 ? random_tensor(t, 1, OUT, 5, 1) : DT_NONE,
				 u = random_tensor(t, ROWS, WIDE, 6, 1), y = copy_of(u),
				 r = tensor(DT_F32, 2, OUT), dx = random_tensor(t, ROWS, WIDE, 7, 1),
				 dm = random_tensor(DT_F32, 1, OUT, 8, 1);
		double *ratio = reals(2 * OUT), *want = values(u), *du = values(dx), *sum = values(dm);

		for (int i = 0; i < OUT; i++) {
			double plain = 0, whole = 0;

			for (int c = 0; c < IN; c++) {
				double x = get(w, i * IN + c);

				plain += x * x;
				for (int k = 0; k < RANK; k++)
					x += 0.7f * get(b, i * RANK + k) * get(a, k * IN + c);
				whole += x * x;
			}
			ratio[i] = (sqrt(plain) + get(m, i)) / sqrt(whole);
			ratio[OUT + i] = 1 / sqrt(whole);
			for (int64_t q = 0; q < ROWS; q++) {
				const int64_t at = q * WIDE + AT + i;
				const double off = get(u, at) - (v % 2 ? get(bias, i) : 0), d = du[at];

				want[at] += (ratio[i] - 1) * off;
				sum[i] += d * off * ratio[OUT + i];
				du[at] = d * ratio[i];
			}
		}
		assert_int_equal(dev->ops->dora_norms(dev, r, w, a, b, 0.7f), 0);
		assert_int_equal(dev->ops->dora_ratio(dev, r, m), 0);
		check_close("ratio", r, ratio, 1e-5, 1e-5);
		assert_int_equal(dev->ops->dora_scale(dev, y, AT, dt_t1(r.data, DT_F32, OUT), bias), 0);
		check_close("scale", y, want, 1e-5, 1e-5 + eps);
		assert_int_equal(dev->ops->dora_backward(dev, dx, AT, dm, u, r, bias), 0);
		check_close("dx", dx, du, 1e-5, 1e-5 + eps);
		check_close("dm", dm, sum, 1e-5, 1e-5);
		assert_int_equal(
			dev->ops->dora_scale(dev, y, WIDE - OUT + 1, dt_t1(r.data, DT_F32, OUT), bias),
			-EINVAL);
		assert_int_equal(dev->ops->fill(dev, b, 0), 0);
		assert_int_equal(dev->ops->fill(dev, m, 0), 0);
		assert_int_equal(dev->ops->dora_norms(dev, r, w, a, b, 0.7f), 0);
		assert_int_equal(dev->ops->dora_ratio(dev, r, m), 0);
		for (int i = 0; i < OUT; i++)
			assert_true(get(r, i) == 1);
		free_all(w.data, a.data, b.data, m.data, bias.data, u.data, y.data, r.data);
		free_all(dx.data, dm.data, ratio, want, du, sum);
	}
}

/* From here on sizes change. */
static void test_by_8(void **state)
{
	eight_at_a_time();
	test_formula(state);
	test_neighbours(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_formula),	   cmocka_unit_test(test_neighbours),
		cmocka_unit_test(test_refused),	   cmocka_unit_test(test_gated_from_f32),
		cmocka_unit_test(test_magnitudes), cmocka_unit_test(test_by_8),
		cmocka_unit_test(test_packed),	   cmocka_unit_test(test_packed_gated),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
