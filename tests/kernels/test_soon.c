/* kernels/cpu/soon.h: each piece is prefetched once, in order, as late as possible. */
#include "kernels/cpu/quant.h"
#include "kernels/cpu/soon.h"

#include "check.h"

enum { BYTES = 256, LINES = 2 };

static char k[64 * BYTES], v[64 * BYTES];

static void make(const void *second, const int64_t *piece, int n)
{
	dt_soon_begin(k, second, BYTES);
	for (int i = 0; i < n; i++)
		assert_true(dt_soon_add(piece[i]));
	dt_soon_end();
}

/* One step of a product of 32 rows: the first byte that it prefetches; NULL: none. */
static const char *ask(void)
{
	struct dt_soon_list *l = dt_soon_take(32, LINES * 64);
	const char *was = l ? l->at : NULL;

	if (!l)
		return NULL;
	dt_soon_ask(l, LINES);
	return l->at == was ? NULL : l->at - LINES * 64;
}

/* Takes the whole list, of which the next step has the first lines. */
static void check_pieces(bool two, const int64_t *piece, int n)
{
	for (int i = 0; i < n; i++)
		for (int c = 0; c <= two; c++)
			for (int b = 0; b < BYTES; b += LINES * 64)
				assert_ptr_equal(ask(), (c ? v : k) + piece[i] * BYTES + b);
}

static void test_order(void **state)
{
	const int64_t piece[] = {3, 1, 63, 0};

	(void)state;
	make(v, piece, 4);
	check_pieces(true, piece, 4);
	make(NULL, piece, 4); /* half the bytes: waits for as many */
	for (int i = 1; i < 4 * BYTES / (LINES * 64); i++)
		assert_null(ask());
	check_pieces(false, piece, 4);
	assert_null(ask());
	make(v, piece, 0);
	assert_null(ask());
}

static void test_few_rows(void **state)
{
	const int64_t piece[] = {5};

	(void)state;
	make(v, piece, 1);
	assert_null(dt_soon_take(DT_SOON_ROWS - 1, 64));
	assert_non_null(dt_soon_take(DT_SOON_ROWS, 64));
}

/* The list begins when the rest of the steps, as many as the time before, suffices for it. */
static void test_wait(void **state)
{
	const int64_t piece[] = {2, 7};
	const int all = 20, need = 2 * 2 * BYTES / (LINES * 64);

	(void)state;
	make(v, piece, 2);
	for (int i = 0; i < all; i++)
		(void)ask();
	for (int times = 0; times < 3; times++) { /* a list that waited is no reason to wait longer */
		make(v, piece, 2);
		for (int i = 1; i < all - need; i++)
			assert_null(ask());
		check_pieces(true, piece, 2);
		assert_null(ask());
	}
	make(v, piece, 0); /* steps up to the next list, after the last layer, do not count */
	for (int i = 0; i < 10 * all; i++)
		(void)ask();
	make(v, piece, 2);
	for (int i = 1; i < all - need; i++)
		assert_null(ask());
	check_pieces(true, piece, 2);
}

static void test_full(void **state)
{
	int64_t n = 0;

	(void)state;
	dt_soon_begin(k, v, BYTES);
	while (dt_soon_add(n % 64))
		assert_true(++n <= DT_SOON_PIECES);
	assert_int_equal(n, DT_SOON_PIECES);
	dt_soon_begin(k, v, DT_SOON_BYTES / 4);
	assert_true(dt_soon_add(0) && dt_soon_add(0));
	assert_false(dt_soon_add(0));
	dt_soon_begin(k, NULL, 64);
	assert_false(dt_soon_add((int64_t)INT32_MAX + 1));
}

/* Products are the same with a list, which ends in the middle of one or waits for it. */
static void check_product(dt_quant_mul_fn *mul, enum dt_format f, size_t panel_bytes, bool floats)
{
	enum { M = 53, BLOCKS = 3, PANELS = 3, LD = 16 * PANELS };
	static float want[M * LD], got[M * LD];
	static uint16_t x[M * BLOCKS * DT_QK];
	static struct dt_xblock xb[M * BLOCKS];
	static uint8_t w[PANELS * BLOCKS * DT_QK * 32];
	const int64_t piece[] = {2, 7, 1, 9};

	assert_true(PANELS * panel_bytes * BLOCKS <= sizeof(w));
	for (size_t i = 0; i < sizeof(w); i++) /* positive numbers below 2 of each type */
		w[i] = (uint8_t)(i % 2 ? 0x30 + i % 15 : i * 37);
	for (int i = 0; i < M * BLOCKS * DT_QK; i++)
		x[i] = (uint16_t)(floats ? 0x3c00 + i * 41 % 1024 : i * 7919);
	for (int i = 0; i < M * BLOCKS; i++)
		xb[i] = (struct dt_xblock){.scale = 1 + (float)(i % 5)};
	make(v, piece, 0);
	mul(want, LD, f, w, panel_bytes * BLOCKS, PANELS, NULL, x, xb, M, BLOCKS);
	for (int n = 1; n <= 4; n += 3)
		for (int i = 0; i < 3; i++) {
			make(v, piece, n);
			memset(got, 0xff, sizeof(got));
			mul(got, LD, f, w, panel_bytes * BLOCKS, PANELS, w, x, xb, M, BLOCKS);
			assert_memory_equal(got, want, sizeof(got));
		}
}

static void test_products(void **state)
{
	const struct dt_quant_kernels fast = dt_quant_kernels();

	(void)state;
	check_product(fast.bf16, DT_FMT_BF16, DT_QK * 32, true);
	check_product(fast.quants, DT_FMT_Q8_0, DT_QK * 16 + 32, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_few_rows), /* the first list does not wait */
		cmocka_unit_test(test_order),	 cmocka_unit_test(test_wait),
		cmocka_unit_test(test_full),	 cmocka_unit_test(test_products),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
