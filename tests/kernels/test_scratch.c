/* kernels/scratch.h: what the functions beside the contracts say is what ops ask the CPU device for. */
#include "kernels/ops.h"

#include "check.h"

#include <stdlib.h>

static struct dt_dev *dev;

/* Ends the loan of nothing, which forgets what was asked for. */
static void forget(void)
{
	for (int b = 0; b < DT_SCRATCH_N; b++)
		dt_dev_scratch_lend(dev, (enum dt_scratch_buffer)b, NULL, 0);
}

static void check_taken(const char *what, const struct dt_scratch *want)
{
	for (int b = 0; b < DT_SCRATCH_N; b++) {
		const size_t most = dt_dev_scratch_most(dev, (enum dt_scratch_buffer)b);

		if (most != want->bytes[b])
			fail_msg("%s: %s: %zu bytes taken, %zu planned", what,
				 dt_scratch_name((enum dt_scratch_buffer)b), most, want->bytes[b]);
	}
}

static void check_product(const struct dt_product *p)
{
	const struct dt_scratch_on on = dt_dev_scratch_on(dev);
	struct dt_tensor a = tensor(p->in, p->ta ? p->k : p->m, p->ta ? p->m : p->k),
			 b = tensor(p->in, p->tb ? p->n : p->k, p->tb ? p->k : p->n),
			 c = tensor(p->out, p->m, p->n), bias = p->bias ? tensor(p->in, 1, p->n) : DT_NONE;
	struct dt_scratch want = {0};
	char what[120];

	snprintf(what, sizeof(what), "%lld x %lld x %lld, types %d %d%s%s%s%s", (long long)p->m,
		 (long long)p->n, (long long)p->k, p->in, p->out, p->ta ? ", ta" : "", p->tb ? ", tb" : "",
		 p->bias ? ", bias" : "", p->accumulate ? ", added" : "");
	forget();
	dt_matmul_scratch(&on, p, &want);
	assert_int_equal(dev->ops->matmul(dev, c, a, p->ta, b, p->tb, bias, p->accumulate), 0);
	check_taken(what, &want);
	free_all(a.data, b.data, c.data, bias.data);
}

/* Sizes on both sides of every bound in matmul_path.h. */
static void test_products(void **state)
{
	static const int64_t sizes[] = {1, 15, 16, 32, 33, 64, 255, 256, 300, 512, 513};
	static const enum dt_dtype types[] = {DT_F32, DT_BF16, DT_F16};
	const int n = sizeof(sizes) / sizeof(*sizes);

	srand(1);
	for (int i = 0; i < 600; i++) {
		const enum dt_dtype in = types[rand() % 3];

		check_product(&(struct dt_product){.m = sizes[rand() % n],
						   .n = sizes[rand() % n],
						   .k = sizes[rand() % n],
						   .ta = rand() % 3 == 0,
						   .tb = rand() % 2,
						   .in = in,
						   .out = rand() % 2 ? in : DT_F32,
						   .bias = rand() % 4 == 0,
						   .accumulate = rand() % 4 == 0});
	}
	for (int m = 4; m <= 600; m += 596) /* over a vocabulary */
		for (int t = 0; t < 3; t++)
			check_product(&(struct dt_product){
				.m = m, .n = 24, .k = 16400, .in = types[t], .out = types[t]});
}

static void test_columns(void **state)
{
	const struct dt_scratch_on on = dt_dev_scratch_on(dev);
	static const int64_t sizes[] = {8, 16, 32, 48, 300};

	for (int i = 0; i < 120; i++) {
		const int64_t rows = 64, n = sizes[i % 5], rank = sizes[i / 5 % 4];
		const int of = i / 20 % 3;
		struct dt_tensor y = tensor(DT_BF16, rows, n + 8), h = tensor(DT_BF16, rows, rank + 8),
				 b = tensor(of == DT_COLUMNS_B ? DT_F32 : DT_BF16, n, rank);
		const struct dt_columns_product call = {of, y, h, b, 8, 8, false};
		const struct dt_product p =
			of == DT_COLUMNS_Y   ? (struct dt_product){rows,    n,	     rank,  false, true,
								   DT_BF16, DT_BF16, false, true}
			: of == DT_COLUMNS_H ? (struct dt_product){rows,    rank,    n,	    false, false,
								   DT_BF16, DT_BF16, false, false}
					     : (struct dt_product){n,	    rank,   rows,  true, false,
								   DT_BF16, DT_F32, false, false};
		struct dt_scratch want = {0};

		forget();
		assert_int_equal(dt_columns_matmul_scratch(&on, &p, &want),
				 dt_dev_columns_matmul(dev, &call) == 0);
		check_taken("columns", &want);
		free_all(y.data, h.data, b.data);
	}
}

/* The same for all divisions of rows into groups. */
static void test_groups(void **state)
{
	const struct dt_scratch_on on = dt_dev_scratch_on(dev);
	static const enum dt_dtype types[] = {DT_F32, DT_BF16, DT_F16};
	enum { ROWS = 200, N = 64, K = 128, GROUPS = 4 };

	for (int i = 0; i < 12; i++) {
		const enum dt_dtype t = types[i % 3];
		const int64_t n2 = i / 3 % 2 ? 2 * N : 0;
		const struct dt_grouped_shape s = {ROWS, N, n2, K, GROUPS, 2};
		int32_t first[GROUPS + 1] = {0, i * 10, i * 10, 150, 150 + i};
		const struct dt_grouped g = {first, GROUPS, 2};
		struct dt_tensor x = tensor(t, ROWS, K), y = tensor(t, ROWS, N + n2), w = tensor(t, 2 * N, K),
				 w2 = n2 ? tensor(t, 2 * n2, K) : DT_NONE, dw = tensor(DT_F32, 2 * N, K),
				 dw2 = n2 ? tensor(DT_F32, 2 * n2, K) : DT_NONE;

		forget();
		assert_int_equal(dev->ops->grouped_matmul(dev, y, x, w, w2, &g), 0);
		check_taken("grouped",
			    &(struct dt_scratch){.bytes = {dt_grouped_matmul_scratch(&on, t, &s)}});
		forget();
		assert_int_equal(dev->ops->grouped_matmul_dx(dev, x, y, w, w2, &g), 0);
		check_taken("dx", &(struct dt_scratch){.bytes = {dt_grouped_matmul_dx_scratch(&on, t, &s)}});
		forget();
		assert_int_equal(dev->ops->grouped_matmul_dw(dev, dw, dw2, y, x, &g, false), 0);
		check_taken("dw", &(struct dt_scratch){.bytes = {dt_grouped_matmul_dw_scratch(&on, t, &s)}});
		free_all(x.data, y.data, w.data, w2.data, dw.data, dw2.data);
	}
}

/* Lent memory is used as long as it is enough, and is not freed. */
static void test_loan(void **state)
{
	struct dt_tensor x = tensor(DT_F32, 100, 300), out = tensor(DT_F32, 1, 300);
	const struct dt_scratch_on on = dt_dev_scratch_on(dev);
	const size_t n = dt_colsum_scratch(&on, 100, 300);
	void *p = aligned_alloc(64, (n + 63) / 64 * 64), *none = aligned_alloc(64, 64);
	size_t before;

	forget();
	before = dt_dev_scratch_bytes(dev);
	dt_dev_scratch_lend(dev, DT_SCRATCH_OP, p, n);
	out.ndim = 1, out.dim[0] = 300;
	assert_int_equal(dev->ops->colsum(dev, out, x), 0);
	assert_int_equal(dt_dev_scratch_bytes(dev), before);
	assert_int_equal(dt_dev_scratch_most(dev, DT_SCRATCH_OP), n);
	dt_dev_scratch_lend(dev, DT_SCRATCH_OP, none, 64);
	assert_int_equal(dt_dev_scratch_most(dev, DT_SCRATCH_OP), 0);
	assert_int_equal(dev->ops->colsum(dev, out, x), 0);
	assert_true(dt_dev_scratch_bytes(dev) >= before + n);
	forget();
	assert_int_equal(dt_dev_scratch_bytes(dev), before);
	free_all(x.data, out.data, p, none);
}

/* Programs that only plan see the same processor, but for a limit that only oneDNN reads. */
static void test_processor(void **state)
{
	const struct dt_scratch_on on = dt_dev_scratch_on(dev), here = dt_scratch_here(dev->nthreads);

	if (getenv("ONEDNN_MAX_CPU_ISA"))
		skip();
	assert_int_equal(on.threads, here.threads);
	assert_int_equal(on.batch_invariant, here.batch_invariant);
	assert_int_equal(on.pairs, here.pairs);
	assert_int_equal(on.amx, here.amx);
	assert_int_equal(on.bf16_onednn, here.bf16_onednn);
	assert_int_equal(on.amx_onednn, here.amx_onednn);
	assert_int_equal(on.tiles_only, here.tiles_only);
}

static int setup(void **state)
{
	return dt_dev_open(&dev, DT_DEV_CPU, 0, 3);
}

static int teardown(void **state)
{
	dt_dev_close(dev);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_products),  cmocka_unit_test(test_columns),
		cmocka_unit_test(test_groups),	  cmocka_unit_test(test_loan),
		cmocka_unit_test(test_processor),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
