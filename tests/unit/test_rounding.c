/* GPTQ against elimination in fp64 as the paper has it; grids of blocks; scales that weigh errors. */
#include "eval/gptq.h"
#include "eval/prune.h"
#include "eval/rounding_sites.h"
#include "kernels/ops.h"
#include "kernels/quant_grid.h"
#include "tests/unit/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const enum dt_format blocks[] = {DT_BLOCK_FORMATS(DT_FORMAT_ENTRY)};

/* Whether single weights have codes; in codebook formats several have one together. */
static bool splits(enum dt_format f)
{
	static const uint8_t none[256];
	struct dt_grid g;

	return dt_grid_of(f, none, &g);
}

static float uniform(uint32_t *s)
{
	*s = *s * 1664525u + 1013904223u;
	return (float)(*s >> 8) / (float)(1 << 24) * 2 - 1;
}

/* Inputs that depend on each other: x = noise + a shared direction, some columns larger. h [k, k]. */
static void make_inputs(int64_t k, int rows, uint32_t seed, float *h)
{
	float *x = malloc((size_t)k * sizeof(*x));

	memset(h, 0, (size_t)(k * k) * sizeof(*h));
	for (int r = 0; r < rows; r++) {
		float shared = uniform(&seed);

		for (int64_t j = 0; j < k; j++)
			x[j] = (uniform(&seed) + 2 * shared) * (j % 7 == 3 ? 4.0f : 1.0f);
		for (int64_t i = 0; i < k; i++)
			for (int64_t j = 0; j < k; j++)
				h[i * k + j] += x[i] * x[j] / (float)rows;
	}
	free(x);
}

/* (h + damping mean I)^-1 by Gauss-Jordan in fp64. */
static void inverse(const float *h, int64_t k, double damping, double *ret)
{
	double *a = calloc((size_t)(k * 2 * k), sizeof(*a)), mean = 0;

	for (int64_t i = 0; i < k; i++)
		mean += (double)h[i * k + i] / (double)k;
	for (int64_t i = 0; i < k; i++) {
		for (int64_t j = 0; j < k; j++)
			a[i * 2 * k + j] = (double)h[i * k + j] + (i == j ? damping * mean : 0);
		a[i * 2 * k + k + i] = 1;
	}
	for (int64_t p = 0; p < k; p++) {
		double d = a[p * 2 * k + p];

		for (int64_t j = 0; j < 2 * k; j++)
			a[p * 2 * k + j] /= d;
		for (int64_t i = 0; i < k; i++) {
			double f = a[i * 2 * k + p];

			for (int64_t j = 0; i != p && j < 2 * k; j++)
				a[i * 2 * k + j] -= f * a[p * 2 * k + j];
		}
	}
	for (int64_t i = 0; i < k; i++)
		memcpy(ret + i * k, a + i * 2 * k + k, (size_t)k * sizeof(*a));
	free(a);
}

static void the_factor_is_of_the_inverse(void **state)
{
	static const int64_t sizes[] = {1, 5, 64, 70, 133};

	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
		for (int ordered = 0; ordered < 2; ordered++) {
			const int64_t k = sizes[s];
			float *h = malloc((size_t)(k * k) * 4), *u = malloc((size_t)(k * k) * 4);
			double *want = malloc((size_t)(k * k) * 8), most = 0, scale = 0;
			int32_t *order = malloc((size_t)k * 4);
			struct dt_err err = {0};

			make_inputs(k, 300, 7, h);
			dt_gptq_order(h, k, order);
			for (int64_t i = 1; i < k; i++)
				assert_true(h[order[i - 1] * k + order[i - 1]] >= h[order[i] * k + order[i]]);
			assert_int_equal(dt_gptq_factor(h, k, 0.01, ordered ? order : NULL, u, &err), 0);
			inverse(h, k, 0.01, want);
			for (int64_t i = 0; i < k; i++)
				for (int64_t j = 0; j < k; j++) {
					double sum = 0,
					       w = ordered ? want[order[i] * k + order[j]] : want[i * k + j];

					for (int64_t m = 0; m < k; m++)
						sum += (double)u[m * k + i] * (double)u[m * k + j];
					if (j < i)
						assert_true(u[i * k + j] == 0);
					most = fmax(most, fabs(sum - w));
					scale = fmax(scale, fabs(w));
				}
			if (most > 1e-5 * scale)
				fail_msg("%lld inputs: off by %g of %g", (long long)k, most, scale);
			free(h);
			free(u);
			free(want);
			free(order);
		}
}

/* Optimal brain quantisation of one row in the columns' order: the inverse is shrunk column by column. */
static void naive_row(enum dt_format f, const float *w, int64_t k, const double *inv, const float *importance,
		      uint8_t *dst)
{
	const struct dt_format_info *info = dt_format_info(f);
	double *a = malloc((size_t)(k * k) * sizeof(*a)), *x = malloc((size_t)k * sizeof(*x));
	uint8_t code[256];
	struct dt_grid g;
	float block[256];

	memcpy(a, inv, (size_t)(k * k) * sizeof(*a));
	for (int64_t j = 0; j < k; j++)
		x[j] = (double)w[j];
	for (int64_t i = 0; i < k; i++) {
		int at = (int)(i % info->block);
		double e, d = a[i * k + i];

		if (at == 0) {
			for (int j = 0; j < info->block; j++)
				block[j] = (float)x[i + j];
			dt_quantize_weighted(f, block, info->block, importance + i,
					     dst + i / info->block * info->bytes);
			dt_grid_of(f, dst + i / info->block * info->bytes, &g);
		}
		code[at] = (uint8_t)dt_grid_nearest(&g, at, (float)x[i]);
		e = (x[i] - (double)dt_grid_value(&g, at, code[at])) / d;
		for (int64_t j = i; j < k; j++)
			x[j] -= e * a[i * k + j];
		for (int64_t p = i + 1; p < k; p++) {
			double c = a[p * k + i] / d;

			for (int64_t j = i; j < k; j++)
				a[p * k + j] -= c * a[i * k + j];
		}
		if (at == info->block - 1)
			dt_grid_put(f, code, dst + i / info->block * info->bytes);
	}
	free(a);
	free(x);
}

/* What rounding changed in the products: d h d^T over rows. */
static double change(enum dt_format f, const float *w, const void *got, int64_t rows, int64_t k,
		     const float *h)
{
	float *d = malloc((size_t)(rows * k) * sizeof(*d));
	double sum = 0;

	dt_dequantize(f, got, rows * k, d);
	for (int64_t r = 0; r < rows; r++)
		for (int64_t i = 0; i < k; i++)
			for (int64_t j = 0; j < k; j++)
				sum += (double)(d[r * k + i] - w[r * k + i]) * (double)h[i * k + j] *
				       (double)(d[r * k + j] - w[r * k + j]);
	free(d);
	return sum;
}

static void rounded_as_elimination_does(void **state)
{
	const int64_t rows = 11; /* no whole number of tiles */

	for (size_t n = 0; n < sizeof(blocks) / sizeof(*blocks); n++) {
		const enum dt_format f = blocks[n];

		if (!splits(f))
			continue;

		const int64_t k = dt_format_info(f)->block == 256 ? 256 : 160; /* not whole chunks */
		const size_t bytes = dt_format_bytes(f, rows * k);
		float *h = malloc((size_t)(k * k) * 4), *u = malloc((size_t)(k * k) * 4),
		      *w = malloc((size_t)(rows * k) * 4), *diagonal = malloc((size_t)k * 4);
		uint8_t *got = malloc(bytes), *want = malloc(bytes), *plain = malloc(bytes);
		double *inv = malloc((size_t)(k * k) * 8), a, b, c, ordered;
		int32_t *order = malloc((size_t)k * 4);
		struct dt_gptq g = {.format = f, .k = k, .u = u, .importance = diagonal};
		uint32_t seed = 3;

		make_inputs(k, 400, 5, h);
		for (int64_t i = 0; i < rows * k; i++)
			w[i] = uniform(&seed) * uniform(&seed);
		for (int64_t i = 0; i < k; i++)
			diagonal[i] = h[i * k + i];
		inverse(h, k, 0.01, inv);
		assert_int_equal(dt_gptq_factor(h, k, 0.01, NULL, u, NULL), 0);
		assert_int_equal(dt_gptq_round(&g, w, rows, got, NULL), 0);
		dt_gptq_order(h, k, order);
		for (int64_t r = 0; r < rows; r++)
			naive_row(f, w + r * k, k, inv, diagonal, want + r * (int64_t)(bytes / (size_t)rows));
		for (int64_t r = 0; r < rows; r++)
			dt_quantize_weighted(f, w + r * k, k, diagonal,
					     plain + r * (int64_t)(bytes / (size_t)rows));
		a = change(f, w, got, rows, k, h);
		b = change(f, w, want, rows, k, h);
		c = change(f, w, plain, rows, k, h);
		g.order = order;
		assert_int_equal(dt_gptq_factor(h, k, 0.01, order, u, NULL), 0);
		assert_int_equal(dt_gptq_round(&g, w, rows, got, NULL), 0);
		ordered = change(f, w, got, rows, k, h);
		/* sums in f32 take a number that lies between two codes to the other: the sum stays */
		if (fabs(a - b) > 0.03 * b || a > 0.65 * c || ordered > 0.65 * c)
			fail_msg("%s: %g, elimination %g, to nearest %g, largest first %g",
				 dt_format_info(f)->name, a, b, c, ordered);
		free(h);
		free(u);
		free(w);
		free(diagonal);
		free(got);
		free(want);
		free(plain);
		free(inv);
		free(order);
	}
}

/* d h d^T over rows, of two matrices. */
static double apart(const float *w, const float *got, int64_t rows, int64_t k, const float *h)
{
	double sum = 0;

	for (int64_t r = 0; r < rows; r++)
		for (int64_t i = 0; i < k; i++)
			for (int64_t j = 0; j < k; j++)
				sum += (double)(got[r * k + i] - w[r * k + i]) * (double)h[i * k + j] *
				       (double)(got[r * k + j] - w[r * k + j]);
	return sum;
}

/* The reference implementations on one layer (tests/data/golden_rounding.py): q4_0 has their groups. */
static void no_worse_than_the_references(void **state)
{
	int64_t at[4], rows, k, n;
	struct golden g;
	float *w, *x, *h, *u, *got, *diagonal, *mean, *most;
	int32_t *order;
	uint8_t *packed;
	struct dt_err err = {0};
	struct dt_dev *dev;
	double ours[3], theirs[3];
	static const char *const names[3] = {"gptq", "gptq-act", "awq"};

	golden_open(&g, "rounding");
	golden_shape(&g, "w", at);
	rows = at[0];
	k = at[1];
	w = golden_f32(&g, "w", NULL);
	x = golden_f32(&g, "x", &n);
	n /= k;
	h = calloc((size_t)(k * k), 4);
	u = malloc((size_t)(k * k) * 4);
	got = malloc((size_t)(rows * k) * 4);
	diagonal = malloc((size_t)k * 4);
	mean = calloc((size_t)k, 4);
	most = calloc((size_t)k, 4);
	order = malloc((size_t)k * 4);
	packed = malloc(dt_format_bytes(DT_FMT_Q4_0, rows * k));
	for (int64_t r = 0; r < n; r++)
		for (int64_t i = 0; i < k; i++) {
			mean[i] += fabsf(x[r * k + i]) / (float)n;
			most[i] = fmaxf(most[i], fabsf(x[r * k + i]));
			for (int64_t j = 0; j < k; j++)
				h[i * k + j] += x[r * k + i] * x[r * k + j] / (float)n;
		}
	for (int64_t i = 0; i < k; i++)
		diagonal[i] = h[i * k + i];
	dt_gptq_order(h, k, order);
	for (int act = 0; act < 2; act++) {
		struct dt_gptq q = {DT_FMT_Q4_0, k, u, act ? order : NULL, diagonal};

		assert_int_equal(dt_gptq_factor(h, k, 0.01, q.order, u, &err), 0);
		assert_int_equal(dt_gptq_round(&q, w, rows, packed, &err), 0);
		ours[act] = change(DT_FMT_Q4_0, w, packed, rows, k, h);
	}
	{
		struct dt_site s = {.param = {0, -1, -1},
				    .format = DT_FMT_Q4_0,
				    .k = k,
				    .rows = n,
				    .h = h,
				    .mean = mean,
				    .most = most,
				    .norm = {0, -1},
				    .up = -1};
		const struct dt_rounding r = {.method = DT_ROUND_AWQ, .format = DT_FMT_Q4_0};
		const float *all[3] = {w, NULL, NULL};
		const int64_t count[3] = {rows, 0, 0};

		assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 0), 0);
		assert_int_equal(dt_site_scale(&s, &r, dev, all, count, &err), 0);
		for (int64_t i = 0; i < rows * k; i++)
			got[i] = w[i] * s.scale[i % k];
		for (int64_t i = 0; i < k; i++)
			diagonal[i] = h[i * k + i] / (s.scale[i] * s.scale[i]);
		for (int64_t r0 = 0; r0 < rows; r0++)
			dt_quantize_weighted(DT_FMT_Q4_0, got + r0 * k, k, diagonal,
					     packed + dt_format_bytes(DT_FMT_Q4_0, r0 * k));
		dt_dequantize(DT_FMT_Q4_0, packed, rows * k, got);
		for (int64_t i = 0; i < rows * k; i++)
			got[i] /= s.scale[i % k];
		ours[2] = apart(w, got, rows, k, h);
		free(s.scale);
		dt_dev_close(dev);
	}
	for (int i = 0; i < 3; i++) {
		float *their = golden_f32(&g, names[i], NULL);

		theirs[i] = apart(w, their, rows, k, h);
		print_message("%s: %g, the reference %g\n", names[i], ours[i], theirs[i]);
		if (!(theirs[i] > 0) || ours[i] > 1.01 * theirs[i])
			fail_msg("%s changes products by %g, the reference by %g", names[i], ours[i],
				 theirs[i]);
		free(their);
	}
	golden_close(&g);
	free(w);
	free(x);
	free(h);
	free(u);
	free(got);
	free(diagonal);
	free(mean);
	free(most);
	free(order);
	free(packed);
}

/* Codes taken from a block's numbers and put back are the block. */
static void grids_are_what_blocks_say(void **state)
{
	int codebooks = 0;

	for (size_t n = 0; n < sizeof(blocks) / sizeof(*blocks); n++) {
		const enum dt_format f = blocks[n];
		const int size = dt_format_info(f)->block;
		float x[256], y[256];
		uint8_t block[256], copy[256], code[256];
		uint32_t seed = 11;
		struct dt_grid g;

		codebooks += !splits(f);
		if (!splits(f))
			continue;
		for (int i = 0; i < size; i++)
			x[i] = uniform(&seed) + 0.2f;
		dt_quantize(f, x, size, block);
		dt_dequantize(f, block, size, y);
		assert_true(dt_grid_of(f, block, &g));
		assert_int_equal(g.block, size);
		memcpy(copy, block, sizeof(copy));
		for (int i = 0; i < size; i++) {
			code[i] = (uint8_t)dt_grid_nearest(&g, i, y[i]);
			if (fabsf(dt_grid_value(&g, i, code[i]) - y[i]) > 1e-6f)
				fail_msg("%s: element %d is %g, not %g", dt_format_info(f)->name, i,
					 (double)dt_grid_value(&g, i, code[i]), (double)y[i]);
		}
		dt_grid_put(f, code, copy);
		assert_memory_equal(copy, block, (size_t)dt_format_info(f)->bytes);
		assert_int_equal(dt_grid_nearest(&g, 0, NAN), 0);
	}
	assert_int_equal(codebooks, 5);
	assert_false(dt_grid_of(DT_FMT_F16, NULL, &(struct dt_grid){0}));
}

/* Where some errors count more, they become smaller; NaN, nothing and equal numbers are rounded too. */
static void important_errors_are_smaller(void **state)
{
	enum { N = 64 * 256 };
	float *x = malloc(N * 4), *w = malloc(N * 4), *y = malloc(N * 4);
	uint8_t *b = malloc(N * 4);
	uint32_t seed = 23;

	for (int i = 0; i < N; i++) {
		x[i] = uniform(&seed) * uniform(&seed);
		w[i] = i % 5 ? 0.1f : 10;
	}
	for (size_t n = 0; n < sizeof(blocks) / sizeof(*blocks); n++) {
		double sum[2] = {0, 0};

		for (int weighted = 0; weighted < 2; weighted++) {
			if (weighted)
				dt_quantize_weighted(blocks[n], x, N, w, b);
			else
				dt_quantize(blocks[n], x, N, b);
			dt_dequantize(blocks[n], b, N, y);
			for (int i = 0; i < N; i++)
				sum[weighted] += (double)w[i] * (double)(y[i] - x[i]) * (double)(y[i] - x[i]);
		}
		if (!(sum[1] < 0.97 * sum[0]))
			fail_msg("%s: %g weighted, %g plain", dt_format_info(blocks[n])->name, sum[1],
				 sum[0]);
		memset(y, 0, 256 * 4);
		y[3] = NAN;
		dt_quantize_weighted(blocks[n], y, 256, w, b);
		dt_dequantize(blocks[n], b, 256, y);
		for (int i = 0; i < 256; i++)
			assert_true(y[i] == 0);
	}
	free(x);
	free(w);
	free(y);
	free(b);
}

static void what_has_no_factor_is_told(void **state)
{
	float h[4] = {1, 2, 2, 1}, u[4];
	struct dt_err err = {0};

	assert_true(dt_gptq_factor(h, 2, 0, NULL, u, &err) < 0);
	assert_non_null(strstr(err.msg, "--damping"));
	h[1] = h[2] = h[3] = 0; /* an input that is always 0 */
	assert_int_equal(dt_gptq_factor(h, 2, 0.01, NULL, u, &err), 0);
	assert_true(isfinite(u[3]) && u[3] > 0);
}

struct counted {
	double v;
	int at;
};

static int by_count(const void *a, const void *b)
{
	const struct counted *x = a, *y = b;

	return x->v < y->v ? -1 : x->v > y->v ? 1 : x->at - y->at;
}

/* Zeros the n - keep first of a sorted list; products of floats are exact in fp64 up to the order. */
static void prune_by_sorting(float *x, int n, const float *scale, int zeros)
{
	struct counted *c = malloc((size_t)n * sizeof(*c));

	for (int i = 0; i < n; i++)
		c[i] = (struct counted){(double)(fabsf(x[i]) * (scale ? scale[i] : 1)), i};
	qsort(c, (size_t)n, sizeof(*c), by_count);
	for (int i = 0; i < zeros; i++)
		x[c[i].at] = 0;
	free(c);
}

static void what_counts_least_is_pruned(void **state)
{
	static const int sizes[] = {1, 2, 4, 31, 64, 1000, 4099};
	uint32_t seed = 9;

	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
		for (int kind = 0; kind < 4; kind++) { /* with a scale, with ties */
			const int n = sizes[s];
			float *x = malloc((size_t)n * 4), *got = malloc((size_t)n * 4),
			      *want = malloc((size_t)n * 4), *scale = malloc((size_t)n * 4);

			for (int i = 0; i < n; i++) {
				x[i] = uniform(&seed) * (i % 5 ? 1 : 1e-20f);
				x[i] = kind & 2 ? rintf(3 * x[i]) : x[i];
				scale[i] = kind & 2 ? (float)(i % 3) : fabsf(uniform(&seed));
			}
			for (int zeros = 0; zeros <= n; zeros += 1 + n / 7) {
				memcpy(got, x, (size_t)n * 4);
				memcpy(want, x, (size_t)n * 4);
				dt_prune_least(got, n, kind & 1 ? scale : NULL, zeros);
				prune_by_sorting(want, n, kind & 1 ? scale : NULL, zeros);
				assert_memory_equal(got, want, (size_t)n * 4);
			}
			memcpy(got, x, (size_t)n * 4);
			memcpy(want, x, (size_t)n * 4);
			dt_prune_pattern(got, n / 4 * 4, kind & 1 ? scale : NULL, 2, 4);
			for (int i = 0; i + 4 <= n; i += 4)
				prune_by_sorting(want + i, 4, kind & 1 ? scale + i : NULL, 2);
			assert_memory_equal(got, want, (size_t)n * 4);
			free(x);
			free(got);
			free(want);
			free(scale);
		}
}

/* A NaN is never taken for small. */
static void not_a_number_stays(void **state)
{
	float x[4] = {1, NAN, INFINITY, -2};

	dt_prune_least(x, 4, NULL, 3);
	assert_true(x[0] == 0 && isnan(x[1]) && x[2] == 0 && x[3] == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_factor_is_of_the_inverse), cmocka_unit_test(rounded_as_elimination_does),
		cmocka_unit_test(no_worse_than_the_references), cmocka_unit_test(grids_are_what_blocks_say),
		cmocka_unit_test(important_errors_are_smaller), cmocka_unit_test(what_has_no_factor_is_told),
		cmocka_unit_test(what_counts_least_is_pruned),	cmocka_unit_test(not_a_number_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
