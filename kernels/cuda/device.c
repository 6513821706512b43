/* The CUDA backend: open, memory, queues and events. */
#include "kernels/backend.h"
#include "kernels/cuda/cuda.h"
#include "kernels/rates.h"

#include <stdio.h>
#include <stdlib.h>

static void cuda_close(struct dt_dev *dev)
{
	struct dt_cuda *c = dev->impl;

	if (c->stream)
		dt_gpu_stream_sync(c->stream);
	dt_blas_close(c->blas);
	dt_dnn_close(c->dnn);
	dt_gpu_free(c->scratch);
	dt_gpu_free(c->padded);
	dt_gpu_free(c->tables);
	dt_gpu_host_free(c->tables_host);
	dt_gpu_free(c->bad);
	dt_gpu_host_free(c->bad_host);
	if (c->tables_read)
		dt_gpu_event_close(c->tables_read);
	if (c->stream)
		dt_gpu_stream_close(c->stream);
	free(c);
	free(dev);
}

static int begin(struct dt_cuda *c)
{
	int rc = dt_gpu_count();

	if (rc < 0)
		return rc;
	if (c->index >= rc)
		return -ENODEV;
	if ((rc = dt_gpu_use(c->index)) < 0 || (rc = dt_gpu_info(c->index, &c->info)) < 0 ||
	    (rc = dt_gpu_stream_open(&c->stream)) < 0 || (rc = dt_gpu_event_open(&c->tables_read)) < 0 ||
	    (rc = dt_gpu_alloc((void **)&c->bad, sizeof *c->bad)) < 0 ||
	    (rc = dt_gpu_host_alloc((void **)&c->bad_host, sizeof *c->bad_host)) < 0 ||
	    (rc = dt_gpu_set(c->bad, 0, sizeof *c->bad, c->stream)) < 0)
		return rc;
	snprintf(c->isa, sizeof c->isa, "sm_%d%d, %s", c->info.major, c->info.minor, c->info.name);
	rc = dt_blas_open(&c->blas);
	if (rc == 0 || rc == -ENOTSUP)
		rc = dt_dnn_open(&c->dnn, c->stream);
	return rc == -ENOTSUP ? 0 : rc;
}

static int cuda_count(void)
{
	const int n = dt_gpu_count();

	return n < 0 ? 0 : n;
}

static int cuda_open(struct dt_dev **ret, int index, int nthreads)
{
	struct dt_dev *dev = calloc(1, sizeof *dev);
	struct dt_cuda *c = calloc(1, sizeof *c);
	int rc;

	if (!dev || !c) {
		free(dev);
		free(c);
		return -ENOMEM;
	}
	c->index = index;
	*dev = (struct dt_dev){.kind = DT_DEV_CUDA, .index = index, .ops = &dt_ops_cuda, .impl = c};
	dev->nthreads = nthreads ? nthreads : 1;
	rc = begin(c);
	if (rc < 0) {
		cuda_close(dev);
		return rc;
	}
	*ret = dev;
	return 0;
}

static void cuda_tables(struct dt_dev *dev, const void *host, const void *there, size_t n)
{
	struct dt_cuda *c = dev->impl;

	c->given = host;
	c->given_there = there;
	c->given_n = n;
}

/* Sizes on a card are not planned: scratch.h's functions are about the processor. */
static struct dt_scratch_on cuda_scratch_on(const struct dt_dev *dev)
{
	return (struct dt_scratch_on){0};
}

static size_t cuda_library_bytes(const struct dt_dev *dev)
{
	const struct dt_cuda *c = dev->impl;

	return c->scratch_n + c->padded_n + c->tables_n + dt_blas_bytes(c->blas);
}

static const char *cuda_isa(const struct dt_dev *dev)
{
	return ((const struct dt_cuda *)dev->impl)->isa;
}

static int cuda_alloc(struct dt_dev *dev, void **ret, size_t n)
{
	return dt_cuda_enter(dev) ? dt_gpu_alloc(ret, n) : -ENODEV;
}

static void cuda_free(struct dt_dev *dev, void *p)
{
	if (dt_cuda_enter(dev))
		dt_gpu_free(p);
}

static int cuda_host_alloc(struct dt_dev *dev, void **ret, size_t n)
{
	return dt_cuda_enter(dev) ? dt_gpu_host_alloc(ret, n) : -ENODEV;
}

static void cuda_host_free(struct dt_dev *dev, void *p)
{
	dt_gpu_host_free(p);
}

static int cuda_memory(struct dt_dev *dev, size_t *ret_free, size_t *ret_total)
{
	return dt_cuda_enter(dev) ? dt_gpu_memory(ret_free, ret_total) : -ENODEV;
}

static int cuda_copy(struct dt_dev *dev, void *to, const void *from, size_t n)
{
	struct dt_cuda *c = dt_cuda_enter(dev);

	return c ? dt_gpu_copy(to, from, n, c->stream) : -ENODEV;
}

static int cuda_copy_rows(struct dt_dev *dev, void *to, size_t to_step, const void *from, size_t from_step,
			  size_t n, int64_t rows)
{
	struct dt_cuda *c = dt_cuda_enter(dev);

	return c ? dt_gpu_copy_rows(to, to_step, from, from_step, n, (size_t)rows, c->stream) : -ENODEV;
}

static int cuda_clear(struct dt_dev *dev, void *p, size_t n)
{
	struct dt_cuda *c = dt_cuda_enter(dev);

	return c ? dt_gpu_set(p, 0, n, c->stream) : -ENODEV;
}

static int cuda_sync(struct dt_dev *dev)
{
	struct dt_cuda *c = dt_cuda_enter(dev);
	int rc;

	if (!c)
		return -ENODEV;
	if (c->recording)
		return -EBUSY;
	rc = dt_gpu_copy(c->bad_host, c->bad, sizeof *c->bad, c->stream);
	if (rc == 0)
		rc = dt_gpu_stream_sync(c->stream);
	if (rc < 0 || !*c->bad_host)
		return rc;
	rc = dt_gpu_set(c->bad, 0, sizeof *c->bad, c->stream);
	return rc < 0 ? rc : -EINVAL;
}

static int cuda_event_open(struct dt_dev *dev, void **ret)
{
	return dt_cuda_enter(dev) ? dt_gpu_event_open(ret) : -ENODEV;
}

static int cuda_event_record(struct dt_dev *dev, void *event, void *queue)
{
	struct dt_cuda *c = dt_cuda_enter(dev);

	return c ? dt_gpu_event_record(event, queue ? queue : c->stream) : -ENODEV;
}

static int cuda_event_wait(struct dt_dev *dev, void *event, void *queue)
{
	struct dt_cuda *c = dt_cuda_enter(dev);

	return c ? dt_gpu_event_wait(event, queue ? queue : c->stream) : -ENODEV;
}

static int cuda_use(struct dt_dev *dev)
{
	return dt_cuda_enter(dev) ? 0 : -ENODEV;
}

static int cuda_card(const struct dt_dev *dev, unsigned char ret[16])
{
	const struct dt_cuda *c = dev->impl;

	memcpy(ret, c->info.id, sizeof c->info.id);
	return 0;
}

static int cuda_queue_open(struct dt_dev *dev, void **ret)
{
	return dt_cuda_enter(dev) ? dt_gpu_stream_open(ret) : -ENODEV;
}

static void cuda_queue_close(struct dt_dev *dev, void *queue)
{
	if (dt_cuda_enter(dev))
		dt_gpu_stream_close(queue);
}

static int cuda_queue_copy(struct dt_dev *dev, void *queue, void *to, const void *from, size_t n)
{
	return dt_cuda_enter(dev) ? dt_gpu_copy(to, from, n, queue) : -ENODEV;
}

static bool cuda_multiplies(const struct dt_dev *dev, enum dt_dtype dtype)
{
	return !dt_is_fp8(dtype) || dt_cuda_has_fp8(dev->impl);
}

static bool cuda_convolves(const struct dt_dev *dev)
{
	return ((const struct dt_cuda *)dev->impl)->dnn != NULL;
}

const struct dt_backend dt_backend_cuda = {
	.count = cuda_count,
	.open = cuda_open,
	.close = cuda_close,
	.scratch_on = cuda_scratch_on,
	.library_bytes = cuda_library_bytes,
	.isa = cuda_isa,
	.multiplies = cuda_multiplies,
	.convolves = cuda_convolves,
	.row_pad = 8, /* cuBLASLt: 16 bytes of 16-bit operands */
	.matmul_rate = dt_cuda_matmul_rate,
	.sheet_rate = dt_cuda_sheet_rate,
	.copy_rate = dt_cuda_copy_rate,
	.read_rate = dt_cuda_read_rate,
	.alloc = cuda_alloc,
	.free = cuda_free,
	.host_alloc = cuda_host_alloc,
	.host_free = cuda_host_free,
	.memory = cuda_memory,
	.copy = cuda_copy,
	.clear = cuda_clear,
	.sync = cuda_sync,
	.copy_rows = cuda_copy_rows,
	.tables = cuda_tables,
	.graph_begin = dt_cuda_graph_begin,
	.graph_end = dt_cuda_graph_end,
	.graph_run = dt_cuda_graph_run,
	.graph_close = dt_cuda_graph_close,
	.event_open = cuda_event_open,
	.event_close = dt_gpu_event_close,
	.event_record = cuda_event_record,
	.event_wait = cuda_event_wait,
	.event_sync = dt_gpu_event_sync,
	.event_done = dt_gpu_event_done,
	.use = cuda_use,
	.card = cuda_card,
	.queue_open = cuda_queue_open,
	.queue_close = cuda_queue_close,
	.queue_copy = cuda_queue_copy,
};
/* SPDX-License-Identifier: Apache-2.0 */
