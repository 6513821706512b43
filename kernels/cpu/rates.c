/* Measured peak rates of the CPU. */
#include "kernels/rates.h"

#include "kernels/cpu/cpu.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/*
 * The best of repeated products of one square size: an upper bound, so the fastest run counts. 1024 fits the
 * caches of a few cores and is large enough to use them; 0 on failure.
 */
double dt_cpu_matmul_rate(struct dt_dev *dev, enum dt_dtype dtype, double seconds)
{
	const int64_t n = 1024;
	const bool fp8 = dtype == DT_E4M3; /* its result is 16-bit */
	const float one = 1;
	size_t bytes = (size_t)(n * n) * (size_t)dt_dtype_size(dtype);
	double best = 0, start;
	char *m;

	if ((!dt_is_compute(dtype) && !fp8) || !(m = aligned_alloc(64, (fp8 ? 4 : 3) * bytes)))
		return 0;
	memset(m, 0x3c, (fp8 ? 4 : 3) * bytes); /* small normal numbers in either type */
	struct dt_tensor a = dt_t2(m, dtype, n, n), b = dt_t2(m + bytes, dtype, n, n);
	struct dt_tensor c = dt_t2(m + 2 * bytes, fp8 ? DT_BF16 : dtype, n, n);

	start = now();
	for (int i = 0; i < 3 || now() - start < seconds; i++) {
		double t = now(), rate;

		if ((fp8 ? dev->ops->fp8_matmul(dev, c, a, &one, b, &one, DT_NONE, false)
			 : dev->ops->matmul(dev, c, a, false, b, false, DT_NONE, false)) < 0) {
			best = 0;
			break;
		}
		rate = 2. * (double)(n * n * n) / (now() - t);
		best = rate > best ? rate : best;
	}
	free(m);
	return best;
}

double dt_cpu_copy_rate(struct dt_dev *dev, double seconds)
{
	const size_t n = (size_t)192 << 20; /* bytes per buffer; exceeds most last-level caches */
	char *m = aligned_alloc(64, 2 * n);
	double best = 0, start;

	if (!m)
		return 0;
	memset(m, 1, 2 * n);
	start = now();
	for (int i = 0; i < 3 || now() - start < seconds; i++) {
		double t = now(), rate;
		const int parts = dev->nthreads;

#pragma omp parallel for num_threads(dev->nthreads)
		for (int p = 0; p < parts; p++) {
			size_t from = n / 64 * (size_t)p / (size_t)parts * 64;
			size_t to = n / 64 * (size_t)(p + 1) / (size_t)parts * 64;

			memcpy(m + n + from, m + from, to - from);
		}
		rate = 2. * (double)n / (now() - t);
		best = rate > best ? rate : best;
	}
	free(m);
	return best;
}

/* Sum over p, n a multiple of 64, so that the compiler keeps every read. */
static DT_SIMD uint64_t read_all(const uint64_t *p, size_t n)
{
	uint64_t s[32] = {0};

	for (size_t i = 0; i < n / 8; i += 32)
		for (int j = 0; j < 32; j++)
			s[j] += p[i + j];
	for (int j = 1; j < 32; j++)
		s[0] += s[j];
	return s[0];
}

double dt_cpu_read_rate(struct dt_dev *dev, double seconds)
{
	const size_t n = (size_t)256 << 20, each = n / (size_t)dev->nthreads / 256 * 256;
	char *m = aligned_alloc((size_t)2 << 20, n);
	double best = 0, begin;
	volatile uint64_t sink = 0;

	if (!m)
		return 0;
	madvise(m, n, MADV_HUGEPAGE); /* as for packed weights */
#pragma omp parallel for num_threads(dev->nthreads) schedule(static)
	for (int p = 0; p < dev->nthreads; p++)
		memset(m + (size_t)p * each, p, each);
	begin = now();
	for (int i = 0; i < 3 || now() - begin < seconds; i++) {
		double t = now(), rate;
		uint64_t sum = 0;

#pragma omp parallel for num_threads(dev->nthreads) schedule(static) reduction(+ : sum)
		for (int p = 0; p < dev->nthreads; p++)
			sum += read_all((const uint64_t *)(m + (size_t)p * each), each);
		rate = (double)each * dev->nthreads / (now() - t);
		sink = sum;
		best = rate > best ? rate : best;
	}
	(void)sink;
	free(m);
	return best;
}
/* SPDX-License-Identifier: Apache-2.0 */
