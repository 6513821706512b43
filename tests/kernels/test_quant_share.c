/*
 * How threads share products with packed weights (quant_share.c): many rows, where each thread has ranges of
 * rows, give the bits of one thread, whatever the formats; and sixteen rows that are quantised together are
 * those that are quantised one by one.
 */
#include "group.h"

#include "kernels/cpu/quant_job.h"
#include "kernels/lora.h"

enum { K = 96, GATES = 40, N = 2 * GATES };

static struct dt_packed *packed(const enum dt_format *f, const int64_t *rows, int parts)
{
	struct dt_packed *w = NULL;

	assert_int_equal(dt_packed_open(&w, dev, K), 0);
	for (int i = 0; i < parts; i++) {
		struct dt_tensor src = random_tensor(DT_F32, rows[i], K, 10 + (uint32_t)i, 1);

		assert_int_equal(dt_packed_append(w, dev, f[i], DT_FMT_F32, src.data, rows[i]), 0);
		free(src.data);
	}
	return w;
}

/* The three kinds of product: plain, gated, and with an adapter for some of the rows. */
static void product(struct dt_dev *d, int kind, struct dt_tensor y, struct dt_tensor x,
		    const struct dt_packed *w, struct dt_tensor bias)
{
	const int64_t m = x.dim[0];
	struct dt_tensor a = random_tensor(DT_F32, 4, K, 20, 0.1), b = random_tensor(DT_F32, N, 4, 21, 1),
			 room = tensor(DT_F32, m, 4);
	const struct dt_lora_part part = {
		.first = 3,
		.n = m - 20,
		.lane = {{.a = a.data, .b = b.data, .rank = 4, .cols = N, .scale = 2}}};
	const struct dt_lora_batch lora = {DT_F32, 4, &part, 1};

	if (kind == 0)
		assert_int_equal(d->ops->packed_matmul(d, y, x, w, bias), 0);
	else if (kind == 1)
		assert_int_equal(
			d->ops->packed_gated(d, dt_t2(y.data, y.dtype, m, N / 2), x, w, bias, DT_ACT_SILU),
			0);
	else
		assert_int_equal(d->ops->packed_lora(d, y, x, w, bias, 0, room, &lora), 0);
	free_all(a.data, b.data, room.data);
}

static void test_many_rows(void **state)
{
	static const struct {
		enum dt_format f[3];
		int64_t rows[3];
		int parts, kind;
	} cases[] = {
		{{DT_FMT_Q8_0}, {N}, 1, 0},
		{{DT_FMT_Q4_0}, {N}, 1, 2},
		{{DT_FMT_BF16}, {N}, 1, 2},
		{{DT_FMT_Q8_0, DT_FMT_BF16, DT_FMT_F32}, {N - 37, 20, 17}, 3, 0},
		{{DT_FMT_Q8_0, DT_FMT_Q8_0}, {GATES, GATES}, 2, 1},
	};
	static const int64_t rows[] = {255, 256, 257, 271, 384, 399, 513, 1100};
	struct dt_tensor all = random_tensor(DT_BF16, 1100, K, 1, 3),
			 bias = random_tensor(DT_F32, 1, N, 2, 1);

	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
		struct dt_packed *w = packed(cases[c].f, cases[c].rows, cases[c].parts);

		for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
			const struct dt_tensor x = dt_t2(all.data, DT_BF16, rows[i], K);
			struct dt_tensor want = tensor(DT_BF16, rows[i], N);
			struct dt_dev *one = open_device(1);

			product(one, cases[c].kind, want, x, w, bias);
			dt_dev_close(one);
			for (int threads = 2; threads <= 5; threads += threads == 3 ? 2 : 1) {
				struct dt_dev *d = open_device(threads);
				struct dt_tensor y = tensor(DT_BF16, rows[i], N);

				assert_int_equal(dt_quant_ranges(rows[i], threads) > 0,
						 rows[i] >= 128 * threads);
				product(d, cases[c].kind, y, x, w, bias);
				check_same_bits(dt_format_info(cases[c].f[0])->name, y, want);
				dt_dev_close(d);
				free(y.data);
			}
			free(want.data);
		}
		dt_packed_close(w);
	}
	free_all(all.data, bias.data);
}

/* Numbers of all sizes, a block of zeros, and blocks with tiny numbers, NaN and Inf. */
static struct dt_tensor odd_rows(int64_t k)
{
	static const float odd[] = {0, 1e-31f, 1e-38f, 3e38f, NAN, INFINITY, -INFINITY, -0.f};
	struct dt_tensor x = random_tensor(DT_F32, DT_XTILE_ROWS, k, 3, 1);
	float *v = x.data;

	for (int64_t i = 0; i < DT_XTILE_ROWS * k; i++)
		v[i] *= (float)pow(10, (double)(i / 32 % 7 - 3));
	for (int i = 0; i < 8; i++)
		for (int j = 0; j < (i < 3 ? 32 : 1); j++)
			v[32 * (3 * i + 1) + (i < 3 ? j : 5 * i)] = odd[i];
	return x;
}

/* Compares a tile with rows that are quantised one by one. A sum is NaN where the scale is. */
static void compare(const struct dt_xtile *t, const struct dt_tensor x, int64_t blocks)
{
	int8_t q[DT_QK];
	struct dt_xblock b;

	for (int64_t i = 0; i < DT_XTILE_ROWS * blocks; i++) {
		const struct dt_xtile *at = &t[i % blocks];
		const int64_t r = i / blocks;

		dt_quant_row_plain(q, &b, dt_at(x, i * DT_QK), x.dtype, 1);
		assert_memory_equal(at->q[r], q, DT_QK);
		assert_int_equal(at->start8[r], b.start8);
		assert_true(isnan(b.scale)
				    ? isnan(at->scale[r]) && isnan(at->sum[r])
				    : !memcmp(&at->scale[r], &b.scale, 4) && !memcmp(&at->sum[r], &b.sum, 4));
	}
}

static void test_tiles(void **state)
{
	static const enum dt_dtype types[] = {DT_F32, DT_BF16, DT_F16};

	if (!dt_quant_kernels().tile) {
		print_message("not on this processor: vectors\n");
		return;
	}
	for (int64_t blocks = 3; blocks <= 8; blocks += 5)
		for (int i = 0; i < 3; i++) {
			struct dt_tensor f = odd_rows(blocks * DT_QK),
					 x = tensor(types[i], DT_XTILE_ROWS, f.dim[1]);
			const size_t bytes = (size_t)dt_xtiles(blocks) * sizeof(struct dt_xtile);
			struct dt_xtile *t = aligned_alloc(64, bytes), none = {0};

			assert_non_null(t);
			memset(t, 0xa5, bytes);
			assert_int_equal(dev->ops->convert(dev, x, f), 0);
			dt_quant_kernels().tile(t, x.data, x.dtype, blocks);
			compare(t, x, blocks);
			if (blocks % 2)
				assert_memory_equal(&t[blocks], &none, sizeof none);
			free_all(f.data, x.data, t);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_rows),
		cmocka_unit_test(test_tiles),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
