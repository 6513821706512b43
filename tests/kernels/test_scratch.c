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

static int64_t any(const int64_t *of, int n)
{
	return of[rand() % n];
}

static void check_conv(const struct dt_conv *p, enum dt_dtype t)
{
	const struct dt_scratch_on on = dt_dev_scratch_on(dev);
	const int64_t h = dt_window_out(p->height, p->kernel, p->stride, p->pad),
		      w = dt_window_out(p->width, p->kernel, p->stride, p->pad),
		      cols = p->channels * p->kernel * p->kernel;
	struct dt_tensor x = tensor(t, p->batch * p->height * p->width, p->channels),
			 y = tensor(t, p->batch * h * w, p->out), k = tensor(t, p->out, cols),
			 dk = tensor(DT_F32, p->out, cols), bias = tensor(DT_F32, 1, p->out);
	struct dt_scratch want = {0};

	bias.ndim = 1, bias.dim[0] = p->out;
	forget();
	dt_conv_scratch(&on, t, false, p, &want);
	assert_int_equal(dev->ops->conv_forward(dev, y, x, k, p), 0);
	check_taken("conv_forward", &want);
	assert_int_equal(dev->ops->conv_bias(dev, y, x, k, bias, DT_NONE, true, p), 0);
	check_taken("conv_bias", &want);
	forget();
	assert_int_equal(dev->ops->conv_backward(dev, x, y, k, p), 0);
	check_taken("conv_backward", &want);
	forget();
	want = (struct dt_scratch){0};
	dt_conv_scratch(&on, t, true, p, &want);
	assert_int_equal(dev->ops->conv_weights(dev, dk, y, x, p->batch % 2, p), 0);
	check_taken("conv_weights", &want);
	free_all(x.data, y.data, k.data, dk.data, bias.data);
}

/* Of either kind: by oneDNN, and by Winograd. */
static void test_convolutions(void **state)
{
	static const enum dt_dtype types[] = {DT_F32, DT_BF16, DT_F16};
	static const int64_t channels[] = {3, 16, 48, 64, 96}, sides[] = {3, 14, 20},
			     kernels[] = {1, 3, 3, 3, 3, 7};
	int taken = 0;

	srand(2);
	for (int i = 0; i < 120; i++) {
		struct dt_conv p = {.batch = 1 + rand() % 3,
				    .channels = any(channels, 5),
				    .height = any(sides, 3),
				    .width = any(sides, 3),
				    .out = any(channels, 5),
				    .kernel = any(kernels, 6),
				    .stride = 1 + (rand() % 4 == 0)};
		struct dt_scratch s = {0};

		p.pad = p.kernel / 2;
		check_conv(&p, types[i % 3]);
		dt_conv_scratch(&(struct dt_scratch_on){.threads = 3}, DT_F32, false, &p, &s);
		taken += s.bytes[DT_SCRATCH_PANELS] > 0;
	}
	assert_in_range(taken, 20, 100);
}

static void check_op(const char *what, int rc, size_t n)
{
	assert_int_equal(rc, 0);
	check_taken(what, &(struct dt_scratch){.bytes = {[DT_SCRATCH_OP] = n}});
	forget();
}

static void test_batch_norms(void **state)
{
	const struct dt_scratch_on on = dt_dev_scratch_on(dev);
	static const int64_t rows[] = {1, 3, 63, 64, 65, 255, 1000, 4200}, cols[] = {1, 7, 64};

	srand(3);
	for (int i = 0; i < 40; i++) {
		const enum dt_dtype t = i % 2 ? DT_BF16 : DT_F32;
		const int64_t groups = 1 + rand() % 3, n = any(rows, 8), c = any(cols, 3);
		struct dt_tensor x = tensor(t, groups * n, c), y = tensor(t, groups * n, c),
				 mean = tensor(DT_F32, groups, c), rstd = tensor(DT_F32, groups, c),
				 sum = tensor(DT_F32, groups, c), dot = tensor(DT_F32, groups, c),
				 gamma = tensor(t, 1, c), beta = tensor(t, 1, c);
		const struct dt_bn p = {x, y, mean, rstd, gamma, true};

		gamma.ndim = beta.ndim = 1, gamma.dim[0] = beta.dim[0] = c;
		forget();
		check_op("bn_stats", dev->ops->bn_stats(dev, mean, rstd, x),
			 dt_bn_stats_scratch(&on, groups, n, c));
		check_op("bn_forward", dev->ops->bn_forward(dev, &p, DT_NONE, beta),
			 dt_bn_forward_scratch(&on, c));
		check_op("bn_sums", dev->ops->bn_sums(dev, sum, dot, y, &p), dt_bn_sums_scratch(&on, n, c));
		check_op("bn_backward", dev->ops->bn_backward(dev, x, DT_NONE, y, sum, dot, (double)n, &p),
			 dt_bn_backward_scratch(&on, c));
		free_all(x.data, y.data, mean.data, rstd.data, sum.data, dot.data, gamma.data, beta.data);
	}
}

static void test_image_ends(void **state)
{
	const struct dt_scratch_on on = dt_dev_scratch_on(dev);

	srand(4);
	for (int i = 0; i < 40; i++) {
		const enum dt_dtype t = i % 2 ? DT_BF16 : DT_F32;
		const struct dt_pooling p = {.batch = 1 + rand() % 3,
					     .channels = 1 + rand() % 70,
					     .height = 2 + rand() % 9,
					     .width = 2 + rand() % 9,
					     .kernel = 2,
					     .stride = 1 + rand() % 2};
		const int64_t h = dt_window_out(p.height, 2, p.stride, 0),
			      w = dt_window_out(p.width, 2, p.stride, 0),
			      all = p.height * p.width * p.channels, classes = 2 + rand() % 300;
		struct dt_tensor x = tensor(t, p.batch * p.height * p.width, p.channels),
				 y = tensor(t, p.batch * h * w, p.channels),
				 at = tensor(DT_F32, p.batch * h * w, p.channels),
				 planes = tensor(DT_F32, p.batch, all), logits = tensor(DT_F32, 3, classes);
		const int32_t targets[3] = {0, -1, 1};
		int32_t above[3];
		float loss[3];

		at.dtype = DT_U8;
		forget();
		check_op("pool_max", dev->ops->pool_max(dev, y, at, x, &p), dt_pool_scratch(&on, &p));
		check_op("pool_max_backward", dev->ops->pool_max_backward(dev, x, y, at, &p),
			 dt_pool_backward_scratch(&on, &p));
		check_op("pool_avg", dev->ops->pool_avg(dev, y, x, &p), dt_pool_scratch(&on, &p));
		check_op("pool_avg_backward", dev->ops->pool_avg_backward(dev, x, y, &p),
			 dt_pool_backward_scratch(&on, &p));
		check_op("pixels", dev->ops->pixels(dev, x, planes, p.channels), dt_pixels_scratch(&on, all));
		check_op("class_loss",
			 dev->ops->class_loss(dev, loss, above, DT_NONE, logits,
					      &(struct dt_classes){.targets = targets, .scale = 1}),
			 dt_class_loss_scratch(&on, classes));
		free_all(x.data, y.data, at.data, planes.data, logits.data);
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
	assert_int_equal(on.amx_int8, here.amx_int8);
	assert_int_equal(on.brgemm, here.brgemm);
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
		cmocka_unit_test(test_products),    cmocka_unit_test(test_columns),
		cmocka_unit_test(test_groups),	    cmocka_unit_test(test_convolutions),
		cmocka_unit_test(test_batch_norms), cmocka_unit_test(test_image_ends),
		cmocka_unit_test(test_loan),	    cmocka_unit_test(test_processor),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
