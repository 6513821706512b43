/* The CPU backend: open, memory, events. */
#include "kernels/backend.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/kv.h"
#include "kernels/rates.h"

#include <sched.h>
#include <stdlib.h>

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
	dt_cpu_conv_release(cpu);
	dt_cpu_ragged_release(cpu);
	if (cpu->stream)
		dnnl_stream_destroy(cpu->stream);
	if (cpu->engine)
		dnnl_engine_destroy(cpu->engine);
	for (int b = 0; b < DT_SCRATCH_N; b++)
		if (!dev->scratch[b].lent)
			free(dev->scratch[b].p);
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
	if (dev->nthreads > omp_get_thread_limit())
		dev->nthreads = omp_get_thread_limit();
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

static size_t cpu_library_bytes(const struct dt_dev *dev)
{
	const struct dt_cpu *cpu = dev->impl;

	return dt_cpu_matmul_bytes(cpu) + dt_cpu_conv_bytes(cpu);
}

static const char *cpu_isa(const struct dt_dev *dev)
{
	return dt_isa()->name;
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

/* A call returns when its work is done, so events are no-ops. */
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

static int cpu_kv_group(const struct dt_dev *dev, enum dt_dtype cache, int64_t head_dim, bool latent,
			int block_size)
{
	const struct dt_attn a = {.kv_heads = 1, .head_dim = head_dim, .value_dim = latent};

	return dt_kv_grouped(&a, dt_t3(NULL, cache, 1, block_size, head_dim)) ? DT_KV_GROUP : 1;
}

const struct dt_backend dt_backend_cpu = {
	.count = cpu_count,
	.open = cpu_open,
	.close = cpu_close,
	.rest = cpu_rest,
	.scratch_on = dt_cpu_scratch_on,
	.scratch_reserve = dt_cpu_scratch_reserve,
	.library_bytes = cpu_library_bytes,
	.isa = cpu_isa,
	.rows_apart = dt_cpu_matmul_rows_apart,
	.columns_matmul = dt_cpu_columns_matmul,
	.matmul_rate = dt_cpu_matmul_rate,
	.sheet_rate = cpu_sheet_rate,
	.copy_rate = dt_cpu_copy_rate,
	.read_rate = dt_cpu_read_rate,
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
	.kv_group = cpu_kv_group,
};
/* SPDX-License-Identifier: Apache-2.0 */
