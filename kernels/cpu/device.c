/* Opening the CPU, its scratch, and the two measured ceilings. */
#include "kernels/backend.h"
#include "kernels/cpu/cpu.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static int processors(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof set, &set) == 0)
		return CPU_COUNT(&set);
	return omp_get_num_procs(); /* more processors than cpu_set_t holds */
}

static void cpu_close(struct dt_dev *dev)
{
	struct dt_cpu *cpu = dev->impl;

	dt_cpu_matmul_release(cpu);
	if (cpu->stream)
		dnnl_stream_destroy(cpu->stream);
	if (cpu->engine)
		dnnl_engine_destroy(cpu->engine);
	free(cpu->scratch);
	free(cpu);
	free(dev);
}

static int cpu_open(struct dt_dev **ret, int index, int nthreads)
{
	struct dt_dev *dev = calloc(1, sizeof *dev);
	struct dt_cpu *cpu = calloc(1, sizeof *cpu);

	if (!dev || !cpu) {
		free(dev);
		free(cpu);
		return -ENOMEM;
	}
	*dev = (struct dt_dev){.kind = DT_DEV_CPU, .index = index, .ops = &dt_ops_cpu, .impl = cpu};
	dev->nthreads = nthreads ? nthreads : processors();
	if (dnnl_engine_create(&cpu->engine, dnnl_cpu, 0) != dnnl_success ||
	    dnnl_stream_create(&cpu->stream, cpu->engine, dnnl_stream_default_flags) != dnnl_success) {
		cpu_close(dev);
		return -ENOMEM;
	}
	*ret = dev;
	return 0;
}

static void cpu_rest(struct dt_dev *dev)
{
	omp_pause_resource_all(omp_pause_soft);
}

void *dt_cpu_scratch(struct dt_dev *dev, size_t n)
{
	struct dt_cpu *cpu = dev->impl;

	if (n > cpu->scratch_n) {
		n = (n + 4095) / 4096 * 4096;
		free(cpu->scratch);
		cpu->scratch = aligned_alloc(64, n);
		cpu->scratch_n = cpu->scratch ? n : 0;
	}
	return cpu->scratch;
}

static size_t cpu_scratch_bytes(const struct dt_dev *dev)
{
	const struct dt_cpu *cpu = dev->impl;

	return cpu->scratch_n + dt_cpu_matmul_bytes(cpu);
}

static const char *cpu_isa(const struct dt_dev *dev)
{
	switch ((unsigned)dnnl_get_effective_cpu_isa()) {
	case dnnl_cpu_isa_sse41:
		return "sse41";
	case dnnl_cpu_isa_avx:
		return "avx";
	case dnnl_cpu_isa_avx2:
		return "avx2";
	case dnnl_cpu_isa_avx2_vnni:
		return "avx2_vnni";
	case dnnl_cpu_isa_avx512_core:
		return "avx512";
	case dnnl_cpu_isa_avx512_core_vnni:
		return "avx512_vnni";
	case dnnl_cpu_isa_avx512_core_bf16:
		return "avx512_bf16";
	case dnnl_cpu_isa_avx512_core_amx:
		return "avx512_amx";
	}
	return "generic";
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/*
 * The best of repeated products of one square size: a ceiling, so the fastest run is the one that counts.
 * 1024 fits the caches of a few cores and fills them; 0 on failure.
 */
static double cpu_matmul_rate(struct dt_dev *dev, enum dt_dtype dtype, double seconds)
{
	const int64_t n = 1024;
	const bool fp8 = dtype == DT_E4M3; /* whose result has 16 bits */
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

		if ((fp8 ? dt_cpu_fp8_matmul(dev, c, a, &one, b, &one, DT_NONE, false)
			 : dt_cpu_matmul(dev, c, a, false, b, false, DT_NONE, false)) < 0) {
			best = 0;
			break;
		}
		rate = 2. * (double)(n * n * n) / (now() - t);
		best = rate > best ? rate : best;
	}
	free(m);
	return best;
}

static double cpu_copy_rate(struct dt_dev *dev, double seconds)
{
	const size_t n = (size_t)192 << 20; /* of each buffer; past the last-level cache of most machines */
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

/* Bytes of p, n a multiple of 64, added up so that none is left out. */
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

static double cpu_read_rate(struct dt_dev *dev, double seconds)
{
	const size_t n = (size_t)256 << 20, each = n / (size_t)dev->nthreads / 256 * 256;
	char *m = aligned_alloc((size_t)2 << 20, n);
	double best = 0, begin;
	volatile uint64_t sink = 0;

	if (!m)
		return 0;
	madvise(m, n, MADV_HUGEPAGE); /* as weights are kept */
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

static double cpu_sheet_rate(const struct dt_dev *dev, enum dt_dtype dtype)
{
	return 0;
}

static int cpu_count(void)
{
	return 1;
}

static int cpu_alloc(struct dt_dev *dev, void **ret, size_t n)
{
	*ret = aligned_alloc(64, (n + 63) / 64 * 64 + !n * 64);
	return *ret ? 0 : -ENOMEM;
}

static void cpu_free(struct dt_dev *dev, void *p)
{
	free(p);
}

static int cpu_memory(struct dt_dev *dev, size_t *ret_free, size_t *ret_total)
{
	return -ENOTSUP;
}

static int cpu_copy(struct dt_dev *dev, void *to, const void *from, size_t n)
{
	memmove(to, from, n);
	return 0;
}

static int cpu_clear(struct dt_dev *dev, void *p, size_t n)
{
	memset(p, 0, n);
	return 0;
}

static int cpu_sync(struct dt_dev *dev)
{
	return 0;
}

/* Everything has been done when its call returned. */
static int cpu_event_open(struct dt_dev *dev, void **ret)
{
	*ret = NULL;
	return 0;
}

static void cpu_event_close(void *event)
{
}

static int cpu_event(struct dt_dev *dev, void *event, void *queue)
{
	return 0;
}

static int cpu_copy_rows(struct dt_dev *dev, void *to, size_t to_step, const void *from, size_t from_step,
			 size_t n, int64_t rows)
{
	for (size_t i = 0; i < (size_t)rows; i++)
		memcpy((char *)to + i * to_step, (const char *)from + i * from_step, n);
	return 0;
}

static int cpu_event_done(void *event)
{
	return 1;
}

static int cpu_event_sync(void *event)
{
	return 0;
}

const struct dt_backend dt_backend_cpu = {
	.count = cpu_count,
	.open = cpu_open,
	.close = cpu_close,
	.rest = cpu_rest,
	.scratch_bytes = cpu_scratch_bytes,
	.isa = cpu_isa,
	.matmul_rate = cpu_matmul_rate,
	.sheet_rate = cpu_sheet_rate,
	.copy_rate = cpu_copy_rate,
	.read_rate = cpu_read_rate,
	.alloc = cpu_alloc,
	.free = cpu_free,
	.host_alloc = cpu_alloc,
	.host_free = cpu_free,
	.memory = cpu_memory,
	.copy = cpu_copy,
	.clear = cpu_clear,
	.sync = cpu_sync,
	.copy_rows = cpu_copy_rows,
	.event_open = cpu_event_open,
	.event_close = cpu_event_close,
	.event_record = cpu_event,
	.event_wait = cpu_event,
	.event_sync = cpu_event_sync,
	.event_done = cpu_event_done,
};
