/* Measured peak rates of a card, and those of its data sheet. */
#include "kernels/rates.h"

#include "kernels/cuda/cuda.h"

#include <string.h>
#include <time.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/*
 * The best rate of work(arg), which is `amount` of something, over about `seconds`: each round has enough
 * calls to hide the launches.
 */
static double best_rate(struct dt_dev *dev, int (*work)(struct dt_dev *, void *), void *arg, double amount,
			int calls, double seconds)
{
	double best = 0, start = now();

	for (int i = 0; i < 3 || now() - start < seconds; i++) {
		double t = now(), rate;

		for (int k = 0; k < calls; k++)
			if (work(dev, arg) < 0)
				return 0;
		if (dt_dev_sync(dev) < 0)
			return 0;
		rate = amount * calls / (now() - t);
		best = rate > best ? rate : best;
	}
	return best;
}

struct product {
	struct dt_tensor c, a, b;
	const float *one; /* scales, of 8-bit operands */
};

static int one_product(struct dt_dev *dev, void *arg)
{
	struct product *p = arg;

	return dev->ops->matmul(dev, p->c, p->a, false, p->b, true, DT_NONE, false);
}

static int one_fp8_product(struct dt_dev *dev, void *arg)
{
	struct product *p = arg;

	return dev->ops->fp8_matmul(dev, p->c, p->a, p->one, p->b, p->one, DT_NONE, false);
}

/* 8-bit operands, 16-bit result. */
static double fp8_rate(struct dt_dev *dev, int64_t n, double seconds)
{
	const size_t bytes = (size_t)(n * n);
	struct dt_cuda *c = dt_cuda_enter(dev);
	double best = 0;
	char *m;

	if (!c || !dt_dev_multiplies(dev, DT_E4M3) || dt_dev_alloc(dev, (void **)&m, 4 * bytes + 4) < 0)
		return 0;
	struct product p = {dt_t2(m, DT_BF16, n, n), dt_t2(m + 2 * bytes, DT_E4M3, n, n),
			    dt_t2(m + 3 * bytes, DT_E4M3, n, n), (float *)(m + 4 * bytes)};

	/* 0.75 and -0.3125; a scale of 1. */
	if (dt_gpu_set(p.a.data, 0x34, bytes, c->stream) == 0 &&
	    dt_gpu_set(p.b.data, 0xaa, bytes, c->stream) == 0 &&
	    dev->ops->fill(dev, dt_t1((void *)p.one, DT_F32, 1), 1) == 0)
		best = best_rate(dev, one_fp8_product, &p, 2. * (double)(n * n * n),
				 dt_gpu_emulated() ? 1 : 10, seconds);
	dt_dev_free(dev, m);
	return best;
}

double dt_cuda_matmul_rate(struct dt_dev *dev, enum dt_dtype dtype, double seconds)
{
	const int64_t n = dt_gpu_emulated() ? 64 : 8192;
	const size_t bytes = (size_t)(n * n) * (size_t)dt_dtype_size(dtype);
	double best = 0;
	char *m;

	if (dtype == DT_E4M3)
		return fp8_rate(dev, n, seconds);
	if (!dt_is_compute(dtype) || dt_dev_alloc(dev, (void **)&m, 3 * bytes) < 0)
		return 0;
	struct product p = {dt_t2(m, dtype, n, n), dt_t2(m + bytes, dtype, n, n),
			    dt_t2(m + 2 * bytes, dtype, n, n), NULL};

	/* Ordinary numbers: a power-limited card is faster on zeros. */
	if (dev->ops->fill(dev, p.a, 0.75f) == 0 && dev->ops->fill(dev, p.b, -0.3f) == 0)
		best = best_rate(dev, one_product, &p, 2. * (double)(n * n * n), dt_gpu_emulated() ? 1 : 10,
				 seconds);
	dt_dev_free(dev, m);
	return best;
}

/* NVIDIA's data sheets: tensor cores without sparsity for 16 and 8 bits (floats), and plain f32. The first
 * name that fits. */
double dt_cuda_sheet_rate(const struct dt_dev *dev, enum dt_dtype dtype)
{
	static const struct {
		const char *name;
		double half, single, fp8;
	} cards[] = {
		{"A100", 312e12, 19.5e12, 0},	      {"H100 PCIe", 756e12, 51e12, 1513e12},
		{"H100 NVL", 835e12, 60e12, 1671e12}, {"H200 NVL", 835e12, 60e12, 1671e12},
		{"H100", 989e12, 67e12, 1979e12},     {"H200", 989e12, 67e12, 1979e12},
		{"GH200", 989e12, 67e12, 1979e12},    {"B200", 2250e12, 75e12, 4500e12},
		{"L40S", 362e12, 91.6e12, 733e12},
	};
	const struct dt_cuda *c = dev->impl;

	for (size_t i = 0; i < sizeof cards / sizeof *cards; i++)
		if (strstr(c->info.name, cards[i].name))
			return dtype == DT_F32	      ? cards[i].single
			       : dt_is_fp8(dtype)     ? cards[i].fp8
			       : dt_is_compute(dtype) ? cards[i].half
						      : 0;
	return 0;
}

struct bytes {
	char *to, *from;
	size_t n;
	double sum;
};

static int one_copy(struct dt_dev *dev, void *arg)
{
	struct bytes *b = arg;

	return dt_gpu_copy(b->to, b->from, b->n, ((struct dt_cuda *)dev->impl)->stream);
}

double dt_cuda_copy_rate(struct dt_dev *dev, double seconds)
{
	const size_t n = dt_gpu_emulated() ? (size_t)1 << 20 : (size_t)1 << 30;
	struct bytes b = {.n = n};
	double best = 0;

	if (dt_dev_alloc(dev, (void **)&b.from, 2 * n) < 0)
		return 0;
	b.to = b.from + n;
	if (dt_dev_clear(dev, b.from, 2 * n) == 0)
		best = best_rate(dev, one_copy, &b, 2. * (double)n, 10, seconds);
	dt_dev_free(dev, b.from);
	return best;
}

static int one_read(struct dt_dev *dev, void *arg)
{
	struct bytes *b = arg;

	return dev->ops->sumsq(dev, &b->sum, dt_t1(b->from, DT_F32, (int64_t)(b->n / 4)));
}

double dt_cuda_read_rate(struct dt_dev *dev, double seconds)
{
	const size_t n = dt_gpu_emulated() ? (size_t)1 << 18 : (size_t)4 << 30;
	struct bytes b = {.n = n};
	double best = 0;

	if (dt_dev_alloc(dev, (void **)&b.from, n) < 0)
		return 0;
	if (dt_dev_clear(dev, b.from, n) == 0)
		best = best_rate(dev, one_read, &b, (double)n, 1, seconds);
	dt_dev_free(dev, b.from);
	return best;
}
/* SPDX-License-Identifier: Apache-2.0 */
