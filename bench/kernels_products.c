/* Products: of matrices, convolutions, experts, in 8-bit floats, and with packed weights. */
#include "kernels.h"

#include "kernels/quant.h"

struct product {
	const char *what;
	int64_t m, n, k;
	bool ta, tb, accumulate, f32_out;
};

void matmuls(enum dt_dtype t)
{
	static const struct product list[] = {
		{"square", 2048, 2048, 2048, false, false, false, false},
		{"x w^T", CHUNK, HIDDEN, WIDTH, false, true, false, false},
		{"x w^T", 4096, HIDDEN, WIDTH, false, true, false, false},
		{"x w^T", 4096, WIDTH, HIDDEN, false, true, false, false},
		{"dy w", CHUNK, WIDTH, HIDDEN, false, false, false, false},
		{"dy w", 4096, WIDTH, HIDDEN, false, false, false, false},
		{"dw += dy^T x", HIDDEN, WIDTH, CHUNK, true, false, true, true},
		{"dw += dy^T x", HIDDEN, WIDTH, 4096, true, false, true, true},
		{"head", CHUNK, VOCAB, WIDTH, false, true, false, true},
		{"head dx", CHUNK, WIDTH, VOCAB, false, false, false, false},
		{"head dw +=", VOCAB, WIDTH, CHUNK, true, false, true, true},
		{"decode x w^T", 1, HIDDEN, WIDTH, false, true, false, false},
		{"decode x w^T", 16, HIDDEN, WIDTH, false, true, false, false},
	};

	for (size_t i = 0; i < sizeof list / sizeof *list && wanted("matmul"); i++) {
		const struct product *p = &list[i];
		struct dt_tensor a = tensor(t, p->ta ? p->k : p->m, p->ta ? p->m : p->k);
		struct dt_tensor b = tensor(t, p->tb ? p->n : p->k, p->tb ? p->k : p->n);
		struct dt_tensor c = tensor(p->f32_out ? DT_F32 : t, p->m, p->n);
		char shape[96];
		double best;

		TIME(best, ops->matmul(dev, c, a, p->ta, b, p->tb, DT_NONE, p->accumulate));
		snprintf(shape, sizeof shape, "%s %lldx%lldx%lld", p->what, (long long)p->m, (long long)p->n,
			 (long long)p->k);
		row("matmul", shape, t, best, 2. * (double)(p->m * p->n * p->k), 0);
		free(a.data);
		free(b.data);
		free(c.data);
	}
}

/* The convolutions of ResNet-18 on images of 32 x 32; flops are those of direct convolution. */
void convolutions(enum dt_dtype t)
{
	static const struct dt_conv list[] = {
		{32, 3, 32, 32, 64, 3, 1, 1},	{32, 64, 32, 32, 64, 3, 1, 1},
		{32, 64, 32, 32, 128, 3, 2, 1}, {32, 128, 16, 16, 128, 3, 1, 1},
		{32, 256, 8, 8, 256, 3, 1, 1},	{32, 512, 4, 4, 512, 3, 1, 1},
	};

	for (size_t i = 0; i < sizeof list / sizeof *list && wanted("conv"); i++) {
		const struct dt_conv *p = &list[i];
		const int64_t side = dt_window_out(p->height, p->kernel, p->stride, p->pad),
			      taps = p->channels * p->kernel * p->kernel, pixels = p->batch * side * side;
		struct dt_tensor x = tensor(t, p->batch * p->height * p->width, p->channels),
				 y = tensor(t, pixels, p->out), w = tensor(t, p->out, taps),
				 dw = tensor(DT_F32, p->out, taps);
		const double flop = 2. * (double)(pixels * p->out * taps);
		char shape[96];
		double best;

		snprintf(shape, sizeof shape, "%lld of %lldx%lld, %lld to %lld, /%lld", (long long)p->batch,
			 (long long)p->height, (long long)p->width, (long long)p->channels, (long long)p->out,
			 (long long)p->stride);
		TIME(best, ops->conv_forward(dev, y, x, w, p));
		row("conv_forward", shape, t, best, flop, 0);
		TIME(best, ops->conv_weights(dev, dw, y, x, false, p));
		row("conv_weights", shape, t, best, flop, 0);
		TIME(best, ops->conv_backward(dev, x, y, w, p));
		row("conv_backward", shape, t, best, flop, 0);
		free(x.data);
		free(y.data);
		free(w.data);
		free(dw.data);
	}
}

static void beside(char shape[96], int64_t m, int64_t n, int64_t k, int64_t experts, double ratio)
{
	snprintf(shape, 96, "%lldx%lldx%lld, %lld experts: %.2f of dense", (long long)m, (long long)n,
		 (long long)k, (long long)experts, ratio);
}

/*
 * Grouped products with uneven groups (expert e has e + 1 shares), preceded by dense products of the same
 * flops: as many rows, one weight. The shape is followed by the grouped product's share of the dense rate.
 */
void experts(enum dt_dtype t)
{
	static const struct {
		int64_t experts, rows, n, k;
	} list[] = {{8, 4096, HIDDEN, WIDTH}, {64, 4096, 1024, WIDTH}};

	for (size_t i = 0; i < sizeof list / sizeof *list && wanted("grouped"); i++) {
		const int64_t e = list[i].experts, m = list[i].rows, n = list[i].n, k = list[i].k;
		struct dt_tensor x = tensor(t, m, k), y = tensor(t, m, n), w = tensor(t, e * n, k),
				 dw = tensor(DT_F32, e * n, k);
		struct dt_tensor one = dt_t2(w.data, t, n, k), done = dt_t2(dw.data, DT_F32, n, k);
		const double flop = 2. * (double)(m * n * k);
		struct dt_grouped g = {.n = e, .experts = e};
		int32_t first[65] = {0};
		double best, dense, dense_dw;
		char shape[96];

		for (int64_t j = 1; j <= e; j++)
			first[j] = (int32_t)(m * j * (j + 1) / (e * (e + 1)));
		g.first = first;
		snprintf(shape, sizeof shape, "%lldx%lldx%lld", (long long)m, (long long)n, (long long)k);
		TIME(dense, ops->matmul(dev, y, x, false, one, true, DT_NONE, false));
		row("beside grouped: matmul", shape, t, dense, flop, 0);
		TIME(dense_dw, ops->matmul(dev, done, y, true, x, false, DT_NONE, true));
		row("beside grouped: matmul dw +=", shape, t, dense_dw, flop, 0);
		TIME(best, ops->grouped_matmul(dev, y, x, w, DT_NONE, &g));
		beside(shape, m, n, k, e, dense / best);
		row("grouped_matmul", shape, t, best, flop, 0);
		TIME(best, ops->grouped_matmul_dx(dev, x, y, w, DT_NONE, &g));
		beside(shape, m, n, k, e, dense / best);
		row("grouped_matmul_dx", shape, t, best, flop, 0);
		TIME(best, ops->grouped_matmul_dw(dev, dw, DT_NONE, y, x, &g, true));
		beside(shape, m, n, k, e, dense_dw / best);
		row("grouped_matmul_dw", shape, t, best, flop, 0);
		free(x.data);
		free(y.data);
		free(w.data);
		free(dw.data);
	}
}

/* A linear in fp8: quantisation relative to the copy rate; products relative to those of bf16, by which the
 * CPU computes them. */
void eight_bits(void)
{
	enum { M = 4096, N = HIDDEN, K = WIDTH };
	struct dt_tensor x = tensor(DT_BF16, M, K), y = tensor(DT_BF16, M, N);
	struct dt_tensor x8 = dt_t2(memory(M * K), DT_E4M3, M, K), w8 = dt_t2(memory(N * K), DT_E4M3, N, K);
	struct dt_tensor xt = dt_t2(memory(M * K), DT_E4M3, K, M);
	float s = 1;
	double best;

	if (wanted("fp8")) {
		TIME(best, ops->fp8_quantize(dev, x8, DT_NONE, &s, x));
		row("fp8_quantize", "4096 x 768", DT_BF16, best, 0, 5. * M * K);
		TIME(best, ops->fp8_quantize(dev, x8, xt, &s, x));
		row("fp8_quantize", "4096 x 768, and transposed", DT_BF16, best, 0, 6. * M * K);
		TIME(best, ops->fp8_matmul(dev, y, x8, &s, w8, &s, DT_NONE, false));
		row("fp8_matmul", "x w^T 4096x3072x768", DT_BF16, best, 2. * M * N * K, 0);
	}
	free(x.data);
	free(y.data);
	free(x8.data);
	free(w8.data);
	free(xt.data);
}

/* oneDNN's product of the same sizes, with weights reordered at each call or used as they are. */
static void onednn_beside(int64_t rows, int64_t n, int64_t k)
{
	struct dt_tensor x = tensor(DT_BF16, rows, k), w = tensor(DT_BF16, n, k), y = tensor(DT_F32, rows, n);
	char shape[96];
	double best;

	TIME(best, dev->ops->matmul(dev, y, x, false, w, true, DT_NONE, false));
	snprintf(shape, sizeof shape, "oneDNN, bf16 %lldx%lldx%lld", (long long)rows, (long long)n,
		 (long long)k);
	row("packed", shape, DT_BF16, best, 2. * (double)(rows * n * k), 0);
	free(x.data);
	free(w.data);
	free(y.data);
}

/* Packed weights larger than the last-level cache: one row vs. the read rate, more rows vs. the bf16 rate */
void weights(void)
{
	static const enum dt_format formats[] = {DT_PANEL_FORMATS(DT_FORMAT_ENTRY) DT_FMT_BF16};
	static const int64_t rows[] = {1, 2, 4, 8, 16, 32, 512};
	const int64_t n = 32768, k = 4096;
	double read_rate, best;

	if (!wanted("packed"))
		return;
	read_rate = dt_dev_read_rate(dev, seconds);
	printf("read %.1f GB/s: the ceiling of packed products of one row\n", read_rate * 1e-9);
	for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
		const size_t bytes = dt_format_bytes(formats[f], n * k);
		uint8_t *blocks = memory(bytes);
		struct dt_tensor x = tensor(DT_F32, 512, k), y = tensor(DT_F32, 512, n);
		struct dt_packed *w;

		/* Small as f16 and as bf16; no bf16 is subnormal, which some processors multiply slowly. */
		for (size_t i = 0; i < bytes; i++)
			blocks[i] = (uint8_t)((i * 2654435761u >> 12 & 0x3b) |
					      (formats[f] == DT_FMT_BF16 && i % 2 ? 0x38 : 0));
		if (dt_packed_open(&w, dev, k) < 0 ||
		    dt_packed_append(w, dev, formats[f], formats[f], blocks, n) < 0)
			exit(1);
		free(blocks);
		for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
			char shape[96];

			x.dim[0] = y.dim[0] = rows[i];
			dev->steps = true; /* as in dt-serve */
			TIME(best, dev->ops->packed_matmul(dev, y, x, w, DT_NONE));
			dev->steps = false;
			snprintf(shape, sizeof shape, "%s %lldx%lldx%lld", dt_format_info(formats[f])->name,
				 (long long)rows[i], (long long)n, (long long)k);
			row("packed", shape, DT_BF16, best, 2. * (double)(rows[i] * n * k), 0);
			if (formats[f] == DT_FMT_BF16 && rows[i] >= 32)
				onednn_beside(rows[i], n, k);
			if (rows[i] == 1) {
				char what[48];

				snprintf(what, sizeof what, "%s, of the read rate",
					 dt_format_info(formats[f])->name);
				row_of("packed", what, "-", best, (double)dt_packed_bytes(w) / best, "GB/s",
				       read_rate);
			}
		}
		dt_packed_close(w);
		free(x.data);
		free(y.data);
	}
}

static int encode_rows(enum dt_format f, const float *x, int64_t rows, int64_t k, uint8_t *to)
{
	const size_t bytes = dt_format_bytes(f, k);

#pragma omp parallel for num_threads(dev->nthreads)
	for (int64_t r = 0; r < rows; r++)
		dt_quantize(f, x + r * k, k, to + (size_t)r * bytes);
	return 0;
}

/* Weights of a normal distribution to blocks of each format, as dt-shard-ckpt quantize stores them. */
void encoders(void)
{
	const int64_t rows = 1024, k = 4096;
	float *x;
	uint8_t *to;

	if (!wanted("encode"))
		return;
	x = memory((size_t)(rows * k) * sizeof(*x));
	to = memory((size_t)(rows * k) * sizeof(*x));
	for (int64_t i = 0; i < rows * k; i += 2) {
		const double u = (double)((uint32_t)i * 2654435761u >> 8 | 1) / (1 << 24);
		const double r = 0.02 * sqrt(-2 * log(u)), angle = 0.7548776662 * (double)i;

		x[i] = (float)(r * cos(angle));
		x[i + 1] = (float)(r * sin(angle));
	}
	for (int f = 0; f < DT_FMT_N; f++) {
		const struct dt_format_info *info = dt_format_info((enum dt_format)f);
		const double bytes = (double)(rows * k) * sizeof(*x) +
				     (double)dt_format_bytes((enum dt_format)f, rows * k);
		double best;

		if (info->dtype >= 0)
			continue;
		TIME(best, encode_rows((enum dt_format)f, x, rows, k, to));
		row_of("encode", info->name, "f32", best, bytes / best, "GB/s", copy_rate);
	}
	free(x);
	free(to);
}
/* SPDX-License-Identifier: Apache-2.0 */
