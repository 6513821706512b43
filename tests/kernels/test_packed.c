/*
 * Packed weights on a device against the processor's, which test_quant.c holds to their definition: the same
 * bits of quantised weights and of embeddings, rounding errors' distance of numbers.
 */
#include "blocks.h"
#include "check.h"

#include "kernels/quant.h"
#include "kernels/shape.h"

static struct dt_dev *dev, *cpu;

static const enum dt_format formats[] = {DT_PANEL_FORMATS(DT_FORMAT_ENTRY) DT_FMT_BF16, DT_FMT_F32};
#define FORMATS (sizeof formats / sizeof *formats)

/* Rows as a file holds them: any integers, small scales. */
static uint8_t *file_rows(enum dt_format f, int64_t rows, int64_t k, uint32_t stream)
{
	const struct dt_format_info *info = dt_format_info(f);
	const int64_t n = rows * k / info->block;
	uint8_t *p = malloc((size_t)(n * info->bytes));

	for (int64_t i = 0; i < n; i++) {
		uint8_t *b = p + i * info->bytes;
		const uint16_t d = dt_f32_to_f16((float)(0.01 * rnd(stream + 1, i)));
		const float x = (float)rnd(stream, i);
		const uint16_t h = dt_f32_to_bf16(x);

		for (int j = 0; j < info->bytes; j++)
			b[j] = (uint8_t)(rnd(stream, i * info->bytes + j) * 128 + 128);
		if (dt_format_info(f)->dtype >= 0)
			memcpy(b, f == DT_FMT_F32 ? (const void *)&x : (const void *)&h, (size_t)info->bytes);
		else if (f == DT_FMT_MXFP4)
			b[0] = (uint8_t)(120 + b[0] % 8);
		else
			memcpy(b + block_scale_at(f), &d, 2);
		if (block_minimum_at(f) >= 0)
			memcpy(b + block_minimum_at(f), &d, 2);
	}
	return p;
}

struct both {
	struct dt_packed *there, *here;
};

static void append(struct both *w, enum dt_format f, int64_t rows, int64_t k, uint32_t stream)
{
	uint8_t *p = file_rows(f, rows, k, stream);

	if (!w->there) {
		assert_int_equal(dt_packed_open(&w->there, dev, k), 0);
		assert_int_equal(dt_packed_open(&w->here, cpu, k), 0);
	}
	assert_int_equal(dt_packed_append(w->there, dev, f, f, p, rows), 0);
	assert_int_equal(dt_packed_append(w->here, cpu, f, f, p, rows), 0);
	assert_int_equal(dt_packed_rows(w->there), dt_packed_rows(w->here));
	assert_int_equal(dt_packed_bytes(w->there), dt_packed_bytes(w->here));
	free(p);
}

static void drop(struct both *w)
{
	dt_packed_close(w->there);
	dt_packed_close(w->here);
	*w = (struct both){0};
}

/* numbers: not bit by bit. */
static void compare(const char *what, const struct both *w, int64_t m, enum dt_dtype in, enum dt_dtype out,
		    bool with_bias, bool numbers)
{
	const int64_t n = dt_packed_rows(w->here), k = dt_packed_k(w->here);
	struct dt_tensor x = random_tensor(in, m, k, 5, 2), bias = random_tensor(in, 1, n, 6, 1);
	struct dt_tensor got = tensor(out, m, n), want = tensor(out, m, n);
	double *wide;

	bias = with_bias ? bias : (free(bias.data), DT_NONE);
	assert_int_equal(dev->ops->packed_matmul(dev, got, x, w->there, bias), 0);
	assert_int_equal(cpu->ops->packed_matmul(cpu, want, x, w->here, bias), 0);
	wide = values(want);
	if (numbers)
		check_close(what, got, wide, 4e-5 * (double)k / 256, out == DT_F32 ? 1e-5 : 1e-2);
	else
		check_same_bits(what, got, want);
	free_all(x.data, bias.data, got.data, want.data, wide);
}

static void test_products(void **state)
{
	static const int64_t shapes[][3] = {{1, 1, 256},   {1, 37, 2304}, {2, 16, 256},
					    {3, 50, 512},  {9, 33, 256},  {3, 19, 4352},
					    {2, 21, 2560}, {4, 16, 2048}, {21, 19, 256}};

	for (size_t f = 0; f < FORMATS; f++)
		for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
			const bool numbers = dt_format_info(formats[f])->dtype >= 0;
			struct both w = {0};

			append(&w, formats[f], shapes[s][1], shapes[s][2], 3);
			compare(dt_format_info(formats[f])->name, &w, shapes[s][0], s % 2 ? DT_F32 : DT_BF16,
				s % 3 ? DT_F32 : DT_BF16, s % 2, numbers);
			drop(&w);
		}
}

/* Many rows: each size of tile, borders inside them, blocks of k that fill no stage. */
static void test_many_rows(void **state)
{
	static const int64_t shapes[][3] = {{16, 33, 256}, {45, 70, 768}, {150, 130, 512}, {261, 300, 256}};
	static const int64_t ends[][2] = {{17, 352}, {70, 160}, {16, 32}};

	for (size_t f = 0; f < FORMATS; f++) {
		const struct dt_format_info *info = dt_format_info(formats[f]);
		const bool numbers = info->dtype >= 0;

		for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
			struct both w = {0};

			if (!every_case(dev) && s % 2 != f % 2)
				continue;
			append(&w, formats[f], shapes[s][1], shapes[s][2], 3);
			compare(info->name, &w, shapes[s][0], s % 2 ? DT_F32 : DT_BF16,
				s % 3 ? DT_F32 : DT_BF16, s % 2, numbers);
			drop(&w);
		}
		for (size_t s = 0; s < sizeof ends / sizeof *ends && info->block == 32; s++) {
			struct both w = {0};

			append(&w, formats[f], 21, ends[s][1], 3);
			append(&w, formats[f], 19, ends[s][1], 4);
			compare(info->name, &w, ends[s][0], DT_F16, DT_F32, true, false);
			drop(&w);
		}
	}
}

/* Rows that another has already, below others of the same format and of another. */
static void test_borrowed(void **state)
{
	for (size_t f = 0; f < FORMATS; f++) {
		const bool numbers = dt_format_info(formats[f])->dtype >= 0;
		uint8_t *last = file_rows(formats[f], 16, 512, 6);
		struct both w = {0}, of = {0};

		append(&of, formats[f], 48, 512, 3);
		append(&of, formats[f], 19, 512, 4);
		append(&w, formats[f], 32, 512, 5);
		for (int i = 0; i < 2; i++) {
			const int64_t first = i ? 0 : 48, rows = i ? 48 : 19;

			assert_int_equal(dt_packed_borrow(w.there, of.there, first, rows), 0);
			assert_int_equal(dt_packed_borrow(w.here, of.here, first, rows), 0);
			assert_int_equal(dt_packed_rows(w.there), dt_packed_rows(w.here));
		}
		assert_int_equal(dt_packed_append(w.there, dev, formats[f], formats[f], last, 16), 0);
		assert_int_equal(dt_packed_append(w.here, cpu, formats[f], formats[f], last, 16), 0);
		compare(dt_format_info(formats[f])->name, &w, 3, DT_F32, DT_F32, true, numbers);
		assert_int_equal(dt_packed_borrow(w.there, of.there, 48, 20), -EINVAL);
		assert_int_equal(dt_packed_borrow(w.here, of.here, 48, 20), -EINVAL);
		assert_int_equal(dt_packed_borrow(w.there, of.here, 48, 19), -ENOTSUP);
		drop(&w);
		drop(&of);
		free(last);
	}
}

/* Parts of one format, which few rows take in one launch; gate and up with what is done with them. */
static void test_beside(void **state)
{
	static const int64_t rows[] = {19, 50, 16};

	for (size_t f = 0; f < FORMATS; f++)
		for (int64_t m = 1; m < 5; m++) {
			const bool numbers = dt_format_info(formats[f])->dtype >= 0;
			struct both w = {0};

			for (int i = 0; i < 3; i++)
				append(&w, formats[f], rows[i], 512, 3 + (uint32_t)i);
			compare(dt_format_info(formats[f])->name, &w, m,
				formats[f] == DT_FMT_F32 ? DT_F32 : DT_BF16, m % 2 ? DT_F32 : DT_BF16, m > 1,
				numbers);
			drop(&w);
		}
}

static void test_gated(void **state)
{
	const int64_t half = 37, k = 512;

	for (size_t f = 0; f < FORMATS; f++)
		for (int64_t m = 1; m < 5; m++) {
			const enum dt_dtype type = formats[f] == DT_FMT_F32 ? DT_F32 : DT_BF16;
			struct dt_tensor x = random_tensor(type, m, k, 5, 0.3),
					 bias = random_tensor(type, 1, 2 * half, 6, 1),
					 both = tensor(type, m, 2 * half), y = tensor(type, m, half),
					 want = tensor(type, m, half);
			struct both w = {0};

			bias = m % 2 ? bias : (free(bias.data), DT_NONE);
			append(&w, formats[f], half, k, 3);
			append(&w, formats[f], half, k, 4);
			assert_int_equal(dev->ops->packed_matmul(dev, both, x, w.there, bias), 0);
			assert_int_equal(dev->ops->gated_forward(dev, want, both, DT_ACT_SILU), 0);
			assert_int_equal(dev->ops->packed_gated(dev, y, x, w.there, bias, DT_ACT_SILU), 0);
			check_same_bits(dt_format_info(formats[f])->name, y, want);
			drop(&w);
			free_all(x.data, bias.data, both.data, y.data, want.data);
		}
}

/* Two formats, and rows that a product takes many at a time. */
static void test_gated_refused(void **state)
{
	struct dt_tensor x = random_tensor(DT_F32, 16, 256, 5, 1), y = tensor(DT_F32, 16, 20);
	struct both w = {0};

	append(&w, DT_FMT_Q8_0, 20, 256, 3);
	append(&w, DT_FMT_Q4_0, 20, 256, 4);
	y.dim[0] = x.dim[0] = 1;
	assert_int_equal(dev->ops->packed_gated(dev, y, x, w.there, DT_NONE, DT_ACT_SILU), -ENOTSUP);
	drop(&w);
	append(&w, DT_FMT_Q8_0, 20, 256, 3);
	append(&w, DT_FMT_Q8_0, 20, 256, 4);
	y.dim[0] = x.dim[0] = 16;
	assert_int_equal(dev->ops->packed_gated(dev, y, x, w.there, DT_NONE, DT_ACT_SILU), -ENOTSUP);
	drop(&w);
	append(&w, DT_FMT_F32, 20, 256, 3);
	append(&w, DT_FMT_F32, 20, 256, 4);
	assert_int_equal(dev->ops->packed_gated(dev, y, x, w.there, DT_NONE, DT_ACT_SILU), -ENOTSUP);
	drop(&w);
	free_all(x.data, y.data);
}

/* Any length that is not a block's, of numbers. */
static void test_odd(void **state)
{
	struct both w = {0};

	append(&w, DT_FMT_F32, 5, 77, 3);
	for (int64_t m = 1; m < 20; m += 6)
		compare("f32 of 77", &w, m, DT_F32, DT_F32, true, true);
	drop(&w);
	append(&w, DT_FMT_F32, 9, 1068, 3);
	for (int64_t m = 1; m < 6; m += 2)
		compare("f32 of 1068", &w, m, DT_F32, DT_F32, true, true);
	drop(&w);
	append(&w, DT_FMT_BF16, 9, 2120, 3);
	for (int64_t m = 1; m < 7; m++)
		compare("bf16 of 2120", &w, m, DT_BF16, m % 2 ? DT_BF16 : DT_F32, m % 2, true);
	compare("bf16 of 2120", &w, 3, DT_F32, DT_F32, true, true);
	drop(&w);
	append(&w, DT_FMT_BF16, 7, 45, 3);
	compare("bf16 of 45", &w, 18, DT_BF16, DT_BF16, true, true);
	drop(&w);
}

/* More tiles of rows than a grid has blocks in y, of one row and of four. */
static void test_more_than_a_grid(void **state)
{
	struct both w = {0};

	append(&w, DT_FMT_F32, 1, 3, 3);
	compare("f32 of 3", &w, 65537, DT_F32, DT_F32, true, true);
	drop(&w);
	append(&w, DT_FMT_F32, 1, 4, 3);
	compare("f32 of 4", &w, 4 * 65536 + 1, DT_F32, DT_F32, true, true);
	drop(&w);
}

/* Rows of x that begin anywhere, of every type. */
static void test_unaligned(void **state)
{
	const int64_t n = 18, k = 256;

	for (size_t f = 0; f < FORMATS; f++) {
		struct both w = {0};

		append(&w, formats[f], n, k, 3);
		for (int v = 0; v < 3 * TYPES; v++) {
			const int64_t m = v / TYPES + 1;
			struct dt_tensor room = random_tensor(compute_types[v % TYPES], 1, m * k + 1, 5, 2);
			struct dt_tensor x = dt_t2(dt_at(room, 1), room.dtype, m, k),
					 got = tensor(DT_F32, m, n), want = tensor(DT_F32, m, n);
			double *wide;

			assert_int_equal(dev->ops->packed_matmul(dev, got, x, w.there, DT_NONE), 0);
			assert_int_equal(cpu->ops->packed_matmul(cpu, want, x, w.here, DT_NONE), 0);
			wide = values(want);
			if (dt_format_info(formats[f])->dtype >= 0)
				check_close("unaligned", got, wide, 4e-5, 1e-5);
			else
				check_same_bits("unaligned", got, want);
			free_all(room.data, got.data, want.data, wide);
		}
		drop(&w);
	}
}

/* Several formats under one another, the same one twice among them. */
static void test_parts(void **state)
{
	struct both w = {0};

	append(&w, DT_FMT_Q8_0, 17, 512, 3);
	append(&w, DT_FMT_Q4_0, 40, 512, 4);
	append(&w, DT_FMT_Q6_K, 3, 512, 5);
	append(&w, DT_FMT_Q6_K, 30, 512, 6);
	compare("parts", &w, 3, DT_BF16, DT_F32, true, false);
	drop(&w);
	append(&w, DT_FMT_Q4_K, 32, 256, 3);
	append(&w, DT_FMT_Q4_K, 16, 256, 4);
	append(&w, DT_FMT_Q4_K, 21, 256, 5);
	append(&w, DT_FMT_Q4_K, 18, 256, 6);
	compare("full panels and others", &w, 5, DT_BF16, DT_F32, true, false);
	compare("full panels and others", &w, 20, DT_BF16, DT_F32, true, false);
	drop(&w);
	append(&w, DT_FMT_BF16, 17, 64, 3);
	append(&w, DT_FMT_BF16, 16, 64, 4);
	append(&w, DT_FMT_F32, 5, 64, 4);
	append(&w, DT_FMT_BF16, 2, 64, 4);
	compare("numbers", &w, 3, DT_BF16, DT_F32, true, true);
	compare("many numbers", &w, 19, DT_BF16, DT_F32, true, true);
	drop(&w);
}

/* On the flag a row's bits are its own, whatever m. */
static void test_invariant(void **state)
{
	const int64_t n = 40, k = 256, max = 35;
	struct dt_tensor x = random_tensor(DT_BF16, max, k, 5, 2), all = tensor(DT_F32, max, n);

	dev->batch_invariant = true;
	for (size_t f = 0; f < FORMATS; f++) {
		struct both w = {0};

		append(&w, formats[f], n, k, 3);
		for (int64_t i = 0; i < max; i++)
			assert_int_equal(dev->ops->packed_matmul(dev, dt_t2(dt_at(all, i * n), DT_F32, 1, n),
								 dt_t2(dt_at(x, i * k), DT_BF16, 1, k),
								 w.there, DT_NONE),
					 0);
		for (int64_t m = 2; m <= max; m += 11) {
			struct dt_tensor y = tensor(DT_F32, m, n);

			assert_int_equal(dev->ops->packed_matmul(dev, y, dt_t2(x.data, DT_BF16, m, k),
								 w.there, DT_NONE),
					 0);
			check_same_bits(dt_format_info(formats[f])->name, y, dt_t2(all.data, DT_F32, m, n));
			free(y.data);
		}
		drop(&w);
	}
	dev->batch_invariant = false;
	free_all(x.data, all.data);
}

static void test_embed(void **state)
{
	const int64_t n = 40, k = 256, rows = 6;
	const int32_t ids[] = {0, 39, 17, 17, 15, 16}, wrong[] = {0, 1, 2, 3, 4, 40};

	for (size_t f = 0; f < FORMATS; f++)
		for (int t = 0; t < 2; t++) {
			struct dt_tensor got = tensor(t ? DT_BF16 : DT_F32, rows, k),
					 want = tensor(got.dtype, rows, k);
			struct both w = {0};
			float *row = malloc((size_t)k * 4);

			append(&w, formats[f], n, k, 3);
			assert_int_equal(dev->ops->packed_embed(dev, got, w.there, ids, 0, n, t ? 1.f : 7.5f),
					 0);
			assert_int_equal(cpu->ops->packed_embed(cpu, want, w.here, ids, 0, n, t ? 1.f : 7.5f),
					 0);
			check_same_bits(dt_format_info(formats[f])->name, got, want);
			for (int64_t i = 0; i < rows && !t; i++) {
				assert_int_equal(dt_packed_row(w.here, ids[i], row), 0);
				for (int64_t j = 0; j < k; j++)
					assert_true(get(want, i * k + j) == (double)(row[j] * 7.5f));
			}
			assert_int_equal(dev->ops->packed_embed(dev, got, w.there, wrong, 0, n, 1), -EINVAL);
			assert_int_equal(cpu->ops->packed_embed(cpu, want, w.here, wrong, 0, n, 1), -EINVAL);
			drop(&w);
			free_all(row, got.data, want.data);
		}
}

/* Two parts of a table: each has zeros for the other's rows, so their sum is the table's. */
static void test_embed_parts(void **state)
{
	const int64_t n = 40, k = 64, rows = 5;
	const int32_t ids[] = {0, 39, 17, 18, 40 + 3};
	struct dt_tensor y = tensor(DT_F32, rows, k);
	struct both w = {0};
	float *row = malloc((size_t)k * 4);

	append(&w, DT_FMT_Q8_0, n, k, 3);
	for (int part = 0; part < 2; part++) { /* rows [0, 40) and [18, 58) of 58 */
		const int64_t first = part ? 18 : 0;

		assert_int_equal(dev->ops->packed_embed(dev, y, w.there, ids, first, 58, 2.f), 0);
		for (int64_t i = 0; i < rows; i++) {
			const bool here = dt_packed_row(w.here, ids[i] - first, row) == 0;

			assert_int_equal(here, part ? ids[i] >= 18 : ids[i] < 40);
			for (int64_t j = 0; j < k; j++)
				assert_true(get(y, i * k + j) == (here ? (double)(row[j] * 2.f) : 0));
		}
	}
	assert_int_equal(cpu->ops->packed_embed(cpu, y, w.here, ids, 19, 58, 1), -EINVAL);
	drop(&w);
	free_all(row, y.data);
}

/* What is not finite stays in its row. */
static void test_not_finite(void **state)
{
	const int64_t n = 20, k = 256, m = 3;
	struct dt_tensor x = random_tensor(DT_F32, m, k, 5, 2), y = tensor(DT_F32, m, n);

	((float *)x.data)[k + 77] = INFINITY;
	for (size_t f = 0; f < 5; f++) {
		struct both w = {0};

		append(&w, formats[f], n, k, 3);
		assert_int_equal(dev->ops->packed_matmul(dev, y, x, w.there, DT_NONE), 0);
		for (int64_t j = 0; j < n; j++)
			assert_true(isnan(get(y, n + j)) && isfinite(get(y, j)) &&
				    isfinite(get(y, 2 * n + j)));
		drop(&w);
	}
	free_all(x.data, y.data);
}

static int setup(void **state)
{
	dev = open_device(1);
	return dt_dev_open(&cpu, DT_DEV_CPU, 0, 1);
}

static int teardown(void **state)
{
	dt_dev_close(dev);
	dt_dev_close(cpu);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_products),      cmocka_unit_test(test_many_rows),
		cmocka_unit_test(test_odd),	      cmocka_unit_test(test_unaligned),
		cmocka_unit_test(test_parts),	      cmocka_unit_test(test_invariant),
		cmocka_unit_test(test_embed),	      cmocka_unit_test(test_embed_parts),
		cmocka_unit_test(test_not_finite),    cmocka_unit_test(test_borrowed),
		cmocka_unit_test(test_beside),	      cmocka_unit_test(test_gated),
		cmocka_unit_test(test_gated_refused), cmocka_unit_test(test_more_than_a_grid),
	};

	if (!on_device()) {
		puts("skipped: compares a card with the processor: DT_TEST_DEVICE=cuda");
		return 77;
	}
	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
