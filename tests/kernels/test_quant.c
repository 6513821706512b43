/*
 * Packed weights: rows come back exactly; products against f64 loops over decoded weights; the integers and
 * the order of quant.h bit for bit; the same bits whatever m, the threads and the instruction set.
 */
#include "blocks.h"
#include "group.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/quant.h"
#include "kernels/quant.h"

static const enum dt_format formats[] = {DT_PANEL_FORMATS(DT_FORMAT_ENTRY) DT_FMT_BF16, DT_FMT_F32};
#define FORMATS (sizeof formats / sizeof *formats)

static uint8_t byte_of(uint32_t stream, int64_t i)
{
	return (uint8_t)(rnd(stream, i) * 128 + 128);
}

static void put_half(uint8_t *p, double v)
{
	const uint16_t h = dt_f32_to_f16((float)v);

	memcpy(p, &h, 2);
}

/* Rows as a file holds them: any integers, scales of either sign about 1 / 100. */
static uint8_t *file_rows(enum dt_format f, int64_t rows, int64_t k, uint32_t stream)
{
	const struct dt_format_info *info = dt_format_info(f);
	const int64_t n = rows * k / info->block;
	uint8_t *p = malloc((size_t)(n * info->bytes) + 1);

	assert_non_null(p);
	for (int64_t i = 0; i < n; i++) {
		uint8_t *b = p + i * info->bytes;

		for (int j = 0; j < info->bytes; j++)
			b[j] = byte_of(stream, i * info->bytes + j);
		if (f == DT_FMT_BF16) {
			const uint16_t h = dt_f32_to_bf16((float)rnd(stream, i));

			memcpy(b, &h, 2);
		} else if (f == DT_FMT_F32) {
			const float x = (float)rnd(stream, i);

			memcpy(b, &x, 4);
		} else if (f == DT_FMT_MXFP4) {
			b[0] = (uint8_t)(120 + b[0] % 8); /* NaN at 255 */
		} else {
			put_half(b + block_scale_at(f), 0.01 * rnd(stream + 1, i));
		}
		if (block_minimum_at(f) >= 0)
			put_half(b + block_minimum_at(f), 0.02 * rnd(stream + 2, i));
	}
	return p;
}

static struct dt_packed *packed(enum dt_format f, const uint8_t *rows, int64_t n, int64_t k)
{
	struct dt_packed *w = NULL;

	assert_int_equal(dt_packed_open(&w, dev, k), 0);
	assert_int_equal(dt_packed_append(w, dev, f, f, rows, n), 0);
	assert_int_equal(dt_packed_rows(w), n);
	return w;
}

/* What is only read: kept in a format that holds the same numbers. */
static void test_q5_0_is_kept_exactly(void **state)
{
	const int64_t n = 19, k = 96;
	uint8_t *rows = file_rows(DT_FMT_Q5_0, n, k, 5);
	float want[96], got[96];
	struct dt_packed *w = NULL;

	assert_int_equal(dt_packed_open(&w, dev, k), 0);
	assert_int_equal(dt_packed_append(w, dev, DT_FMT_Q5_0, DT_FMT_Q5_0, rows, n), -ENOTSUP);
	assert_int_equal(dt_packed_append(w, dev, DT_FMT_Q8_0, DT_FMT_Q5_0, rows, n), 0);
	for (int64_t r = 0; r < n; r++) {
		dt_dequantize(DT_FMT_Q5_0, rows + (size_t)r * dt_format_bytes(DT_FMT_Q5_0, k), k, want);
		assert_int_equal(dt_packed_row(w, r, got), 0);
		for (int64_t i = 0; i < k; i++)
			if (memcmp(&got[i], &want[i], 4))
				fail_msg("row %lld, element %lld: %.9g, not %.9g", (long long)r, (long long)i,
					 (double)got[i], (double)want[i]);
	}
	dt_packed_close(w);
	free(rows);
}

static void test_rows_come_back(void **state)
{
	static const int64_t sizes[][2] = {{1, 256}, {16, 512}, {37, 768}};

	for (size_t i = 0; i < FORMATS * 3; i++) {
		const enum dt_format f = formats[i % FORMATS];
		const int64_t n = sizes[i / FORMATS][0], k = sizes[i / FORMATS][1];
		uint8_t *rows = file_rows(f, n, k, 1);
		struct dt_packed *w = packed(f, rows, n, k);
		struct dt_tensor got = tensor(DT_F32, 1, k), want = tensor(DT_F32, 1, k);

		for (int64_t r = 0; r < n; r++) {
			assert_int_equal(dt_packed_row(w, r, got.data), 0);
			dt_dequantize(f, rows + dt_format_bytes(f, r * k), k, want.data);
			check_same_bits(dt_format_info(f)->name, got, want);
		}
		assert_int_equal(dt_packed_row(w, n, got.data), -EINVAL);
		assert_int_equal(dt_packed_row(w, -1, got.data), -EINVAL);
		dt_packed_close(w);
		free_all(rows, got.data, want.data);
	}
}

/* x as the contract rounds it, in f64: scale and integers. */
static double round_block(const double *x, int q[32])
{
	double max = 0;

	for (int j = 0; j < 32; j++)
		max = fmax(max, fabs(x[j]));

	const float scale = (float)max / 127.f, inverse = max > 0 ? 127.f / (float)max : 0;

	for (int j = 0; j < 32; j++)
		q[j] = (int)rintf((float)x[j] * inverse);
	return scale;
}

static void one_product(enum dt_format f, int64_t m, int64_t n, int64_t k, enum dt_dtype in,
			enum dt_dtype out, bool with_bias)
{
	uint8_t *rows = file_rows(f, n, k, 3);
	struct dt_packed *w = packed(f, rows, n, k);
	struct dt_tensor x = random_tensor(in, m, k, 5, 2), y = tensor(out, m, n);
	struct dt_tensor bias = random_tensor(DT_BF16, 1, n, 6, 1);
	double *want = reals(m * n), *xr = values(x), size = 0;
	float *row = malloc((size_t)k * 4);
	char what[96];

	for (int64_t i = 0; i < m && f != DT_FMT_BF16 && f != DT_FMT_F32; i++)
		for (int64_t b = 0; b < k; b += 32) {
			int q[32];
			const double scale = round_block(xr + i * k + b, q);

			for (int j = 0; j < 32; j++)
				xr[i * k + b + j] = scale * q[j];
		}
	for (int64_t i = 0; i < m * k && f == DT_FMT_BF16; i++)
		xr[i] = dt_bf16_to_f32(dt_f32_to_bf16((float)xr[i]));
	for (int64_t j = 0; j < n; j++) {
		dt_dequantize(f, rows + dt_format_bytes(f, j * k), k, row);
		for (int64_t i = 0; i < m; i++) {
			double sum = 0, all = 0;

			for (int64_t c = 0; c < k; c++) {
				sum += row[c] * xr[i * k + c];
				all += fabs(row[c] * xr[i * k + c]);
			}
			size = fmax(size, all);
			want[i * n + j] = sum + (with_bias ? get(bias, j) : 0);
		}
	}
	assert_int_equal(dev->ops->packed_matmul(dev, y, x, w, with_bias ? bias : DT_NONE), 0);
	snprintf(what, sizeof what, "%s %lldx%lldx%lld %s -> %s", dt_format_info(f)->name, (long long)m,
		 (long long)n, (long long)k, dt_dtype_name(in), dt_dtype_name(out));
	check_close(what, y, want, 4e-7 * size, 1e-6);
	dt_packed_close(w);
	free_all(rows, x.data, y.data, bias.data, want, xr, row);
}

static void test_products(void **state)
{
	static const int64_t shapes[][3] = {{1, 1, 256},  {1, 37, 512},	 {2, 16, 256},	{3, 130, 256},
					    {7, 33, 768}, {13, 64, 512}, {100, 35, 256}};
	static const enum dt_dtype types[] = {DT_F32, DT_BF16, DT_F16};

	for (size_t f = 0; f < FORMATS; f++)
		for (int i = 0; i < 7; i++)
			one_product(formats[f], shapes[i][0], shapes[i][1], shapes[i][2], types[i % 3],
				    types[(i + f) % 3], i & 1);
	/* bf16 and f32 take any k; blocks of 32 take theirs */
	for (int64_t k = 1; k < 80; k += 13) {
		one_product(DT_FMT_BF16, 5, 21, k, DT_F32, DT_F32, true);
		one_product(DT_FMT_F32, 5, 21, k, DT_BF16, DT_F32, true);
	}
	one_product(DT_FMT_Q8_0, 3, 18, 96, DT_F32, DT_F32, true);
	one_product(DT_FMT_Q4_1, 3, 18, 32, DT_F32, DT_F32, true);
}

/* The contract's own words for Q8_0 and Q4_0, bit for bit. */
static void test_order(void **state)
{
	const int64_t n = 19, k = 320, m = 9;
	struct dt_tensor x = random_tensor(DT_F32, m, k, 8, 3), y = tensor(DT_F32, m, n),
			 want = tensor(DT_F32, m, n);
	double *xr = values(x);

	for (int t = 0; t < 2; t++) {
		const enum dt_format f = t ? DT_FMT_Q4_0 : DT_FMT_Q8_0;
		const int bytes = t ? 18 : 34;
		uint8_t *rows = file_rows(f, n, k, 9);
		struct dt_packed *w = packed(f, rows, n, k);

		for (int64_t i = 0; i < m * n; i++) {
			float s = 0;

			for (int64_t b = 0; b < k / 32; b++) {
				const uint8_t *p = rows + (i % n * (k / 32) + b) * bytes;
				int q[32], sum = 0;
				const float scale = (float)round_block(xr + i / n * k + b * 32, q);
				uint16_t d;

				memcpy(&d, p, 2);
				for (int j = 0; j < 32; j++)
					sum += q[j] * (!t	? (int8_t)p[2 + j]
						       : j < 16 ? (p[2 + j] & 15) - 8
								: (p[2 + j - 16] >> 4) - 8);
				s = fmaf(dt_f16_to_f32(d) * scale, (float)sum, s);
			}
			((float *)want.data)[i] = s;
		}
		assert_int_equal(dev->ops->packed_matmul(dev, y, x, w, DT_NONE), 0);
		check_same_bits(dt_format_info(f)->name, y, want);
		dt_packed_close(w);
		free(rows);
	}
	free_all(x.data, y.data, want.data, xr);
}

/* Parts of several formats, filled from other formats, side by side: each column as it is alone. */
static void test_parts(void **state)
{
	static const int64_t rows[] = {17, 32, 5, 40};
	static const enum dt_format as[] = {DT_FMT_Q8_0, DT_FMT_BF16, DT_FMT_Q4_0, DT_FMT_Q6_K},
				    have[] = {DT_FMT_F32, DT_FMT_F16, DT_FMT_BF16, DT_FMT_Q6_K};
	const int64_t k = 256, m = 6;
	struct dt_tensor x = random_tensor(DT_F32, m, k, 1, 1), y = tensor(DT_F32, m, 94);
	struct dt_packed *all = NULL;
	int64_t col = 0;

	assert_int_equal(dt_packed_open(&all, dev, k), 0);
	for (int i = 0; i < 4; i++) {
		struct dt_tensor src = random_tensor(dt_format_info(have[i])->dtype < 0
							     ? DT_F32
							     : (enum dt_dtype)dt_format_info(have[i])->dtype,
						     rows[i], k, 10 + (uint32_t)i, 1);
		uint8_t *blocks = file_rows(have[i], rows[i], k, 20);
		const void *from = dt_format_info(have[i])->dtype < 0 ? (void *)blocks : src.data;

		assert_int_equal(dt_packed_append(all, dev, as[i], have[i], from, rows[i]), 0);
		free_all(src.data, blocks);
	}
	assert_int_equal(dt_packed_rows(all), 94);
	assert_true(dt_packed_bytes(all) >= 256 * (17 + 64 + 2 + 30));
	assert_int_equal(dev->ops->packed_matmul(dev, y, x, all, DT_NONE), 0);
	for (int i = 0; i < 4; col += rows[i++]) {
		struct dt_tensor part = tensor(DT_F32, rows[i], k), alone = tensor(DT_F32, m, rows[i]), cut;
		struct dt_packed *w;
		uint8_t *blocks = file_rows(have[i], rows[i], k, 20);

		for (int64_t r = 0; r < rows[i]; r++)
			assert_int_equal(dt_packed_row(all, col + r, (float *)part.data + r * k), 0);
		assert_int_equal(dt_packed_open(&w, dev, k), 0);
		/* What was decoded encodes to itself but for Q6_K, which is not written. */
		if (i == 3)
			assert_int_equal(dt_packed_append(w, dev, as[i], have[i], blocks, rows[i]), 0);
		else
			assert_int_equal(dt_packed_append(w, dev, as[i], DT_FMT_F32, part.data, rows[i]), 0);
		assert_int_equal(dev->ops->packed_matmul(dev, alone, x, w, DT_NONE), 0);
		cut = copy_of(alone);
		for (int64_t j = 0; j < m * rows[i]; j++)
			put(cut, j, get(y, j / rows[i] * 94 + col + j % rows[i]));
		if (i == 2) { /* Q4_0's scale has a sign that a second encoding may turn */
			double *want = values(alone);

			check_close("Q4_0 again", cut, want, 1e-2, 1e-2);
			free(want);
		} else {
			check_same_bits("a part alone", cut, alone);
		}
		dt_packed_close(w);
		free_all(part.data, alone.data, cut.data, blocks);
	}
	dt_packed_close(all);
	free_all(x.data, y.data);
}

static void test_batch_invariant(void **state)
{
	static const int threads[] = {1, 2, 5};
	const int64_t n = 150, k = 512, max = 200;

	for (size_t f = 0; f < FORMATS; f++) {
		uint8_t *rows = file_rows(formats[f], n, k, 3);
		struct dt_packed *w = packed(formats[f], rows, n, k);
		struct dt_tensor x = random_tensor(DT_BF16, max, k, 5, 2), all = tensor(DT_F32, max, n);

		for (int64_t i = 0; i < max; i++)
			assert_int_equal(dev->ops->packed_matmul(dev, dt_t2(dt_at(all, i * n), DT_F32, 1, n),
								 dt_t2(dt_at(x, i * k), DT_BF16, 1, k), w,
								 DT_NONE),
					 0);
		for (int t = 0; t < 3; t++) {
			struct dt_dev *d = open_device(threads[t]);

			for (int64_t m = 1; m <= max; m += m < 18 ? 1 : 61) {
				const int64_t first = m * 7 % (max - m + 1);
				struct dt_tensor y = tensor(DT_F32, m, n);

				assert_int_equal(
					d->ops->packed_matmul(d, y, dt_t2(dt_at(x, first * k), DT_BF16, m, k),
							      w, DT_NONE),
					0);
				check_same_bits(dt_format_info(formats[f])->name, y,
						dt_t2(dt_at(all, first * n), DT_F32, m, n));
				free(y.data);
			}
			dt_dev_close(d);
		}
		dt_packed_close(w);
		free_all(rows, x.data, all.data);
	}
}

/* Gate and up at once have the bits of a product and then the activation, rounded at the end, whatever the
 * formats. */
static void test_gated(void **state)
{
	static const int64_t halves[] = {1, 37, 96, 150}, rows[] = {1, 7, 33, 130};
	const int64_t k = 256;
	struct dt_packed *w;

	for (size_t i = 0; i < FORMATS * 4; i++) {
		const enum dt_format have[2] = {formats[i % FORMATS], formats[(i + i / FORMATS) % FORMATS]};
		const int64_t half = halves[i / FORMATS], m = rows[(i + i / FORMATS) % 4];
		const enum dt_dtype type = compute_types[i % TYPES];
		const enum dt_act_fn f = i % 2 ? DT_ACT_SILU : DT_ACT_GELU_TANH;
		struct dt_tensor x = random_tensor(DT_BF16, m, k, 5, 2), y = tensor(type, m, half);
		struct dt_tensor both = tensor(DT_F32, m, 2 * half), wide = tensor(DT_F32, m, half),
				 want = tensor(type, m, half);
		struct dt_tensor bias = random_tensor(DT_F32, 1, 2 * half, 6, 1);

		bias = i % 3 ? dt_t1(bias.data, DT_F32, 2 * half) : (free(bias.data), DT_NONE);
		assert_int_equal(dt_packed_open(&w, dev, k), 0);
		for (int p = 0; p < 2; p++) {
			uint8_t *blocks = file_rows(have[p], half, k, 11 + (uint32_t)p);

			assert_int_equal(dt_packed_append(w, dev, have[p], have[p], blocks, half), 0);
			free(blocks);
		}
		assert_int_equal(dev->ops->packed_matmul(dev, both, x, w, bias), 0);
		assert_int_equal(dev->ops->gated_forward(dev, wide, both, f), 0);
		assert_int_equal(dev->ops->convert(dev, want, wide), 0);
		assert_int_equal(dev->ops->packed_gated(dev, y, x, w, bias, f), 0);
		check_same_bits(dt_format_info(have[0])->name, y, want);
		assert_int_equal(dev->ops->packed_gated(dev, both, x, w, bias, f), -EINVAL);
		dt_packed_close(w);
		free_all(x.data, y.data, both.data, wide.data, want.data, bias.data);
	}
	w = packed(DT_FMT_Q8_0, (const uint8_t[34]){0}, 1, 32);
	assert_int_equal(dev->ops->packed_gated(dev, DT_NONE, DT_NONE, w, DT_NONE, DT_ACT_SILU), -ENOTSUP);
	dt_packed_close(w);
}

/* Every kernel this processor can run has the plain one's bits; extreme integers included. */
static void test_instruction_sets(void **state)
{
	const struct {
		const char *name;
		dt_quant_mul_fn *fn;
		bool can;
	} list[] = {
		{"plain", dt_quant_mul_plain, true},
#ifdef __x86_64__
		{"avx2", dt_quant_mul_avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
		{"avx512", dt_quant_mul_v4,
		 __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")},
		{"avx512 vnni", dt_quant_mul_vnni, __builtin_cpu_supports("avx512vnni")},
		{"avx vnni", dt_quant_mul_avxvnni,
		 (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx2_vnni) == dnnl_cpu_isa_avx2_vnni},
#endif
#ifdef __aarch64__
		{"neon", dt_quant_mul_neon, true},
		{"dotprod", dt_quant_mul_dotprod, dt_isa()->dotprod},
#endif
	};
	const int64_t n = 48, k = 512, m = 11, blocks = k / 32;
	int8_t *q = malloc((size_t)(m * k));
	struct dt_xblock *xb = calloc((size_t)(m * blocks), sizeof *xb);
	struct dt_tensor got = tensor(DT_F32, m, n), want = tensor(DT_F32, m, n);

	for (int64_t i = 0; i < m * k; i++)
		q[i] = (int8_t)(i / k == 0 ? 127 : i / k == 1 ? -127 : (int)(rnd(2, i) * 127.9));
	for (int64_t i = 0; i < m * blocks; i++) {
		int half[2] = {0, 0};

		for (int j = 0; j < 32; j++)
			half[j / 16] += q[i * 32 + j];
		xb[i].scale = (float)(rnd(4, i) + 1.1);
		xb[i].sum = xb[i].scale * (float)(half[0] + half[1]);
		xb[i].start8 = -128 * (half[0] + half[1]);
		xb[i].start4 = -8 * (half[0] + half[1]);
		xb[i].start6[0] = -32 * half[0];
		xb[i].start6[1] = -32 * half[1];
	}
	for (size_t f = 0; f + 2 < FORMATS; f++) {
		uint8_t *rows = file_rows(formats[f], n, k, 3);

		if (formats[f] == DT_FMT_Q8_0) /* rows of the smallest and the largest integer */
			for (int64_t i = 0; i < 2 * blocks; i++)
				memset(rows + i * 34 + 2, i < blocks ? 0x80 : 0x7f, 32);

		struct dt_packed *w = packed(formats[f], rows, n, k);
		const struct dt_packed_part *p = w->part;
		const int64_t vectors = blocks * dt_quant_shape(formats[f])->quants / 64;

		/* And of the others: every bit set, the largest number of MXFP4, none set. */
		for (int64_t i = 0; i < vectors && formats[f] != DT_FMT_Q8_0; i++)
			for (int r = 0; r < 3; r++)
				memset(p->data + i * 64 + r * 4, (const int[]){0xff, 0x77, 0}[r], 4);
		for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
			const bool plain = list[i].fn == dt_quant_mul_plain;

			if (!list[i].can) {
				print_message("not on this processor: %s\n", list[i].name);
				continue;
			}
			list[i].fn((plain ? want : got).data, n, formats[f], p->data, p->panel_bytes,
				   p->panels, NULL, q, xb, m, blocks);
			if (!plain)
				check_same_bits(list[i].name, got, want);
		}
		dt_packed_close(w);
		free(rows);
	}
	free_all(q, xb, got.data, want.data);
}

static void test_not_finite(void **state)
{
	const int64_t n = 20, k = 256, m = 3;
	struct dt_tensor x = random_tensor(DT_F32, m, k, 5, 2), y = tensor(DT_F32, m, n),
			 alone = tensor(DT_F32, 1, n);
	const float bad[] = {NAN, INFINITY, -INFINITY};

	for (int i = 0; i < 5 * 3; i++) {
		uint8_t *rows = file_rows(formats[i / 3], n, k, 3);
		struct dt_packed *w = packed(formats[i / 3], rows, n, k);
		float *f = x.data;
		const float kept = f[k + 77];

		f[k + 77] = bad[i % 3];
		assert_int_equal(dev->ops->packed_matmul(dev, y, x, w, DT_NONE), 0);
		for (int64_t j = 0; j < n; j++) {
			assert_true(isnan(get(y, n + j)));
			assert_true(isfinite(get(y, j)) && isfinite(get(y, 2 * n + j)));
		}
		f[k + 77] = kept;
		dt_packed_close(w);
		free(rows);
	}
	/* Zeros and the smallest of numbers are no trouble. */
	uint8_t *rows = file_rows(DT_FMT_Q8_0, n, k, 3);
	struct dt_packed *w = packed(DT_FMT_Q8_0, rows, n, k);

	for (int64_t i = 0; i < k; i++)
		((float *)x.data)[i] = i % 2 ? 1e-42f : 0;
	assert_int_equal(dev->ops->packed_matmul(dev, alone, dt_t2(x.data, DT_F32, 1, k), w, DT_NONE), 0);
	for (int64_t j = 0; j < n; j++)
		assert_true(get(alone, j) == 0);
	dt_packed_close(w);
	free_all(rows, x.data, y.data, alone.data);
}

/* Numbers packed as blocks are what dt_quantize makes of them. */
static void test_numbers_become_blocks(void **state)
{
	static const enum dt_format as[] = {DT_PANEL_FORMATS(DT_FORMAT_ENTRY)};
	struct dt_tensor f = random_tensor(DT_F32, 5, 256, 1, 1);
	uint8_t block[256 / 32 * 34];
	float want[256], got[256];

	for (size_t i = 0; i < sizeof(as) / sizeof(as[0]); i++) {
		struct dt_packed *w = NULL;

		assert_int_equal(dt_packed_open(&w, dev, 256), 0);
		assert_int_equal(dt_packed_append(w, dev, as[i], DT_FMT_F32, f.data, 5), 0);
		for (int64_t r = 0; r < 5; r++) {
			dt_quantize(as[i], (float *)f.data + 256 * r, 256, block);
			dt_dequantize(as[i], block, 256, want);
			assert_int_equal(dt_packed_row(w, r, got), 0);
			assert_memory_equal(got, want, sizeof(want));
		}
		dt_packed_close(w);
	}
	free(f.data);
}

static void test_refused(void **state)
{
	struct dt_tensor f = random_tensor(DT_F32, 4, 256, 1, 1), y = tensor(DT_F32, 4, 4),
			 i = tensor(DT_F32, 4, 5);
	struct dt_packed *w = NULL;

	assert_int_equal(dt_packed_open(&w, dev, 0), -EINVAL);
	assert_null(w);
	assert_int_equal(dt_packed_open(&w, dev, 200), 0);
	assert_int_equal(dt_packed_append(w, dev, DT_FMT_Q8_0, DT_FMT_F32, f.data, 4), -EINVAL);
	assert_int_equal(dt_packed_append(w, dev, DT_FMT_F16, DT_FMT_F32, f.data, 4), -ENOTSUP);
	dt_packed_close(w);
	assert_int_equal(dt_packed_open(&w, dev, 256), 0);
	assert_int_equal(dt_packed_append(w, dev, DT_FMT_Q5_0, DT_FMT_F32, f.data, 4), -ENOTSUP);
	assert_int_equal(dt_packed_append(w, dev, DT_FMT_Q8_0, DT_FMT_F32, f.data, 0), -EINVAL);
	((float *)f.data)[700] = INFINITY;
	assert_int_equal(dt_packed_append(w, dev, DT_FMT_Q8_0, DT_FMT_F32, f.data, 4), -EINVAL);
	assert_int_equal(dt_packed_rows(w), 0);
	((float *)f.data)[700] = 0;
	assert_int_equal(dt_packed_append(w, dev, DT_FMT_Q8_0, DT_FMT_F32, f.data, 4), 0);
	assert_int_equal(dev->ops->packed_matmul(dev, i, f, w, DT_NONE), -EINVAL);
	assert_int_equal(dev->ops->packed_matmul(dev, y, y, w, DT_NONE), -EINVAL);
	assert_int_equal(dev->ops->packed_matmul(dev, y, f, w, i), -EINVAL);
	assert_int_equal(dev->ops->packed_matmul(dev, y, f, w, DT_NONE), 0);
	dt_packed_close(w);
	free_all(f.data, y.data, i.data);
}

/* Rows are rounded to the same integers and scales by every kernel: ordinary ones, tiny, zero, NaN and Inf */
static void test_rounded_rows_agree(void **state)
{
	enum { BLOCKS = 43, N = 32 * BLOCKS };
	static const float odd[] = {0, 1e-31f, 1e-38f, 3e38f, NAN, INFINITY, -INFINITY, -0.f};
	struct dt_tensor f = tensor(DT_F32, 1, N);
	int8_t q[2][N];
	struct dt_xblock xb[2][BLOCKS];
	float *v = f.data;

	if (dt_quant_kernels().row == dt_quant_row_plain)
		print_message("not on this processor: vectors\n");
	for (int i = 0; i < N; i++)
		v[i] = (float)(rnd(3, i) * pow(10, i / 32 % 7 - 3));
	for (int i = 0; i < 8; i++)
		for (int j = 0; j < (i < 3 ? 32 : 1); j++)
			v[32 * (4 * i + 2) + (i < 3 ? j : 5 * i % 32)] = odd[i];
	for (int t = 0; t < 3; t++) {
		const enum dt_dtype type = (enum dt_dtype[]){DT_F32, DT_BF16, DT_F16}[t];
		struct dt_tensor x = tensor(type, 1, N);

		assert_int_equal(dev->ops->convert(dev, x, f), 0);
		memset(xb, 0, sizeof xb);
		dt_quant_row_plain(q[0], xb[0], x.data, type, BLOCKS);
		dt_quant_kernels().row(q[1], xb[1], x.data, type, BLOCKS);
		assert_memory_equal(q[0], q[1], N);
		for (int b = 0; b < BLOCKS; b++) {
			if (isnan(xb[0][b].scale)) {
				assert_true(isnan(xb[1][b].scale) && isnan(xb[1][b].sum));
				xb[0][b].scale = xb[1][b].scale = xb[0][b].sum = xb[1][b].sum = 0;
			}
			assert_memory_equal(&xb[0][b], &xb[1][b], sizeof xb[0][b]);
		}
		free(x.data);
	}
	free(f.data);
}

/* Parts of a few MiB, as of experts, lie one behind the other; large ones have whole huge pages. */
static void test_parts_share_memory(void **state)
{
	enum { PARTS = 20 };
	const size_t each = dt_panels_bytes(DT_FMT_BF16, 768, 2048);
	char *part[PARTS];

	assert_int_equal(each, 768 * 2048 * 2);
	assert_int_equal(dt_panels_bytes(DT_FMT_BF16, 4096, 2048), 16 << 20);
	assert_int_equal(dt_panels_bytes(DT_FMT_BF16, 4112, 2048), 18 << 20);
	for (int i = 0; i < PARTS; i++) {
		part[i] = dt_panel_alloc(each);
		assert_non_null(part[i]);
		memset(part[i], i, each);
	}
	for (int i = 2; i < PARTS; i++) /* the first may be in a chunk that is begun */
		assert_int_equal(part[i] - part[i - 1], each);
	for (int i = 0; i < PARTS; i++) {
		assert_int_equal(part[i][0], i);
		assert_int_equal(part[i][each - 1], i);
		dt_panel_free(part[i], each);
	}
}

/* Bytes of a line of /proc/self/status. */
static size_t status_bytes(const char *name)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	size_t kib = 0;

	assert_non_null(f);
	while (fgets(line, sizeof line, f))
		if (!strncmp(line, name, strlen(name)))
			kib = strtoul(line + strlen(name), NULL, 10);
	fclose(f);
	assert_true(kib > 0);
	return kib * 1024;
}

/* Layers are loaded, and every tenth is kept, as with weights on disk: the others leave no memory behind. */
static void test_freed_parts_leave_no_memory(void **state)
{
	enum { LAYERS = 100, PARTS = 7 };
	static const size_t bytes[PARTS] = {300000, 80000, 80000, 300000, 1500000, 1500000, 1500000};
	static char *kept[LAYERS][PARTS];
	const size_t before = status_bytes("RssAnon:"), data = status_bytes("VmData:");
	size_t layer = 0, most;

	for (int k = 0; k < PARTS; k++)
		layer += bytes[k];
	most = (LAYERS / 10 + 1) * layer + (8 << 20);
	for (int l = 0; l < LAYERS; l++) {
		for (int k = 0; k < PARTS; k++) {
			kept[l][k] = dt_panel_alloc(bytes[k]);
			assert_non_null(kept[l][k]);
			memset(kept[l][k], l + k, bytes[k]);
		}
		for (int k = 0; l % 10 && k < PARTS; k++)
			dt_panel_free(kept[l][k], bytes[k]);
	}
	print_message("resident: %zu more, at most %zu\n", status_bytes("RssAnon:") - before, most);
	assert_true(status_bytes("RssAnon:") - before < most - layer);
	assert_true(status_bytes("VmData:") - data < most);
	for (int l = 0; l < LAYERS; l += 10)
		for (int k = 0; k < PARTS; k++) {
			assert_int_equal(kept[l][k][0], l + k);
			assert_int_equal(kept[l][k][bytes[k] - 1], l + k);
			dt_panel_free(kept[l][k], bytes[k]);
		}
}

/* Parts of any size, allocated and freed in any order, do not overlap. */
static void test_parts_do_not_overlap(void **state)
{
	enum { PARTS = 60, TRIALS = 4000 };
	static uint8_t *part[PARTS];
	static size_t bytes[PARTS];

	for (int t = 0; t < TRIALS; t++) {
		const int i = (int)(fabs(rnd(41, t)) * 1e6) % PARTS;

		if (part[i]) {
			for (size_t k = 0; k < bytes[i]; k += 61)
				assert_int_equal(part[i][k], i);
			assert_int_equal(part[i][bytes[i] - 1], i);
			dt_panel_free(part[i], bytes[i]);
			part[i] = NULL;
			continue;
		}
		bytes[i] = 1 + (size_t)(fabs(rnd(42, t)) * 1e9) % (t % 3 ? 200000 : 3000000);
		part[i] = dt_panel_alloc(bytes[i]);
		assert_non_null(part[i]);
		assert_int_equal((uintptr_t)part[i] % 64, 0);
		memset(part[i], i, bytes[i]);
	}
	for (int i = 0; i < PARTS; i++)
		dt_panel_free(part[i], bytes[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows_come_back),
		cmocka_unit_test(test_parts_share_memory),
		cmocka_unit_test(test_freed_parts_leave_no_memory),
		cmocka_unit_test(test_parts_do_not_overlap),
		cmocka_unit_test(test_q5_0_is_kept_exactly),
		cmocka_unit_test(test_products),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_batch_invariant),
		cmocka_unit_test(test_gated),
		cmocka_unit_test(test_rounded_rows_agree),
		cmocka_unit_test(test_instruction_sets),
		cmocka_unit_test(test_not_finite),
		cmocka_unit_test(test_numbers_become_blocks),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
