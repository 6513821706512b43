/* Opening a card, its stream, its scratch, and the measured ceilings. */
#include "kernels/backend.h"
#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct dt_cuda *dt_cuda_enter(struct dt_dev *dev)
{
	struct dt_cuda *c = dev->impl;

	return dt_gpu_use(c->index) < 0 ? NULL : c;
}

static void cuda_close(struct dt_dev *dev)
{
	struct dt_cuda *c = dev->impl;

	if (c->stream)
		dt_gpu_stream_sync(c->stream);
	dt_blas_close(c->blas);
	dt_gpu_free(c->scratch);
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

void *dt_cuda_scratch(struct dt_dev *dev, size_t n)
{
	struct dt_cuda *c = dev->impl;

	if (n > c->scratch_n && c->recording)
		return NULL;
	if (n > c->scratch_n) {
		n = (n + 65535) / 65536 * 65536;
		dt_gpu_free(c->scratch); /* waits for what uses it */
		c->scratch_n = dt_gpu_alloc((void **)&c->scratch, n) < 0 ? 0 : n;
		if (!c->scratch_n)
			c->scratch = NULL;
	}
	return c->scratch;
}

/* Room for n bytes of tables, and the host's side of it free to be written. */
static int tables_room(struct dt_cuda *c, size_t n)
{
	int rc;

	if (c->tables_busy && (rc = dt_gpu_event_sync(c->tables_read)) < 0)
		return rc;
	c->tables_busy = false;
	if (n <= c->tables_n)
		return 0;
	n = (n + 4095) / 4096 * 4096;
	dt_gpu_free(c->tables);
	dt_gpu_host_free(c->tables_host);
	c->tables = c->tables_host = NULL;
	c->tables_n = 0;
	if ((rc = dt_gpu_alloc((void **)&c->tables, n)) < 0 ||
	    (rc = dt_gpu_host_alloc((void **)&c->tables_host, n)) < 0)
		return rc;
	c->tables_n = n;
	return 0;
}

/* Where the table lies on the card already; NULL: nowhere. */
static const void *given(const struct dt_cuda *c, const struct dt_table *t)
{
	const char *p = t->from;

	return c->given && p >= c->given && p + t->n <= c->given + c->given_n
		       ? c->given_there + (p - c->given)
		       : NULL;
}

int dt_cuda_tables(struct dt_dev *dev, struct dt_table *t, int count)
{
	struct dt_cuda *c = dev->impl;
	size_t at = 0;
	int rc;

	for (int i = 0; i < count; i++) {
		t[i].ret = given(c, &t[i]);
		at += t[i].ret ? 0 : (t[i].n + 15) / 16 * 16;
	}
	if (!at)
		return 0;
	rc = c->recording ? -EBUSY : tables_room(c, at);
	if (rc < 0)
		return rc;
	at = 0;
	for (int i = 0; i < count; i++) {
		if (t[i].ret)
			continue;
		memcpy(c->tables_host + at, t[i].from, t[i].n);
		t[i].ret = c->tables + at;
		at += (t[i].n + 15) / 16 * 16;
	}
	if ((rc = dt_gpu_copy(c->tables, c->tables_host, at, c->stream)) < 0)
		return rc;
	c->tables_busy = true;
	return dt_gpu_event_record(c->tables_read, c->stream);
}

static void cuda_tables(struct dt_dev *dev, const void *host, const void *there, size_t n)
{
	struct dt_cuda *c = dev->impl;

	c->given = host;
	c->given_there = there;
	c->given_n = n;
}

struct dt_graph {
	void *record;
	const char *scratch; /* the device's when it was recorded */
};

static int cuda_graph_begin(struct dt_dev *dev)
{
	struct dt_cuda *c = dt_cuda_enter(dev);
	int rc = c ? dt_gpu_record_begin(c->stream) : -ENODEV;

	if (rc == 0)
		c->recording = true;
	return rc;
}

static int cuda_graph_end(struct dt_dev *dev, struct dt_graph **ret)
{
	struct dt_cuda *c = dt_cuda_enter(dev);
	struct dt_graph *g = calloc(1, sizeof *g);
	void *record = NULL;
	int rc = c ? dt_gpu_record_end(c->stream, &record) : -ENODEV;

	if (c)
		c->recording = false;
	if (rc == 0 && g && ret) {
		*g = (struct dt_graph){record, c->scratch};
		*ret = g;
		return 0;
	}
	if (record)
		dt_gpu_record_close(record);
	rc = rc < 0 || g ? rc : -ENOMEM;
	free(g);
	return rc;
}

static int cuda_graph_run(struct dt_dev *dev, const struct dt_graph *g)
{
	struct dt_cuda *c = dt_cuda_enter(dev);

	if (!c)
		return -ENODEV;
	return g->scratch == c->scratch ? dt_gpu_record_run(g->record, c->stream) : -ESTALE;
}

static void cuda_graph_close(struct dt_dev *dev, struct dt_graph *g)
{
	if (dt_cuda_enter(dev))
		dt_gpu_record_close(g->record);
	free(g);
}

static size_t cuda_scratch_bytes(const struct dt_dev *dev)
{
	const struct dt_cuda *c = dev->impl;

	return c->scratch_n + c->tables_n + dt_blas_bytes(c->blas);
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

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/*
 * The best rate of work(arg), which is amount of something, over about seconds: each round is enough calls
 * for the launches to hide behind one another.
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
		if (cuda_sync(dev) < 0)
			return 0;
		rate = amount * calls / (now() - t);
		best = rate > best ? rate : best;
	}
	return best;
}

static bool cuda_multiplies(const struct dt_dev *dev, enum dt_dtype dtype)
{
	return !dt_is_fp8(dtype) || dt_cuda_has_fp8(dev->impl);
}

struct product {
	struct dt_tensor c, a, b;
	const float *one; /* scales, of 8-bit operands */
};

static int one_product(struct dt_dev *dev, void *arg)
{
	struct product *p = arg;

	return dt_cuda_matmul(dev, p->c, p->a, false, p->b, true, DT_NONE, false);
}

static int one_fp8_product(struct dt_dev *dev, void *arg)
{
	struct product *p = arg;

	return dt_cuda_fp8_matmul(dev, p->c, p->a, p->one, p->b, p->one, DT_NONE, false);
}

/* Of 8-bit operands, with a result of 16. */
static double fp8_rate(struct dt_dev *dev, int64_t n, double seconds)
{
	const size_t bytes = (size_t)(n * n);
	struct dt_cuda *c = dt_cuda_enter(dev);
	double best = 0;
	char *m;

	if (!c || !dt_cuda_has_fp8(c) || cuda_alloc(dev, (void **)&m, 4 * bytes + 4) < 0)
		return 0;
	struct product p = {dt_t2(m, DT_BF16, n, n), dt_t2(m + 2 * bytes, DT_E4M3, n, n),
			    dt_t2(m + 3 * bytes, DT_E4M3, n, n), (float *)(m + 4 * bytes)};

	/* 0.75 and -0.3125; a scale of 1. */
	if (dt_gpu_set(p.a.data, 0x34, bytes, c->stream) == 0 &&
	    dt_gpu_set(p.b.data, 0xaa, bytes, c->stream) == 0 &&
	    dt_cuda_fill(dev, dt_t1((void *)p.one, DT_F32, 1), 1) == 0)
		best = best_rate(dev, one_fp8_product, &p, 2. * (double)(n * n * n),
				 dt_gpu_emulated() ? 1 : 10, seconds);
	cuda_free(dev, m);
	return best;
}

static double cuda_matmul_rate(struct dt_dev *dev, enum dt_dtype dtype, double seconds)
{
	const int64_t n = dt_gpu_emulated() ? 64 : 8192;
	const size_t bytes = (size_t)(n * n) * (size_t)dt_dtype_size(dtype);
	double best = 0;
	char *m;

	if (dtype == DT_E4M3)
		return fp8_rate(dev, n, seconds);
	if (!dt_is_compute(dtype) || cuda_alloc(dev, (void **)&m, 3 * bytes) < 0)
		return 0;
	struct product p = {dt_t2(m, dtype, n, n), dt_t2(m + bytes, dtype, n, n),
			    dt_t2(m + 2 * bytes, dtype, n, n), NULL};

	/* A power-limited card is faster on zeros: ordinary numbers. */
	if (dt_cuda_fill(dev, p.a, 0.75f) == 0 && dt_cuda_fill(dev, p.b, -0.3f) == 0)
		best = best_rate(dev, one_product, &p, 2. * (double)(n * n * n), dt_gpu_emulated() ? 1 : 10,
				 seconds);
	cuda_free(dev, m);
	return best;
}

/* NVIDIA's data sheets: tensor cores without sparsity for 16 and 8 bits (floats), and plain f32. The first
 * name that fits. */
static double cuda_sheet_rate(const struct dt_dev *dev, enum dt_dtype dtype)
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

static double cuda_copy_rate(struct dt_dev *dev, double seconds)
{
	const size_t n = dt_gpu_emulated() ? (size_t)1 << 20 : (size_t)1 << 30;
	struct bytes b = {.n = n};
	double best = 0;

	if (cuda_alloc(dev, (void **)&b.from, 2 * n) < 0)
		return 0;
	b.to = b.from + n;
	if (cuda_clear(dev, b.from, 2 * n) == 0)
		best = best_rate(dev, one_copy, &b, 2. * (double)n, 10, seconds);
	cuda_free(dev, b.from);
	return best;
}

static int one_read(struct dt_dev *dev, void *arg)
{
	struct bytes *b = arg;

	return dt_cuda_sumsq(dev, &b->sum, dt_t1(b->from, DT_F32, (int64_t)(b->n / 4)));
}

static double cuda_read_rate(struct dt_dev *dev, double seconds)
{
	const size_t n = dt_gpu_emulated() ? (size_t)1 << 18 : (size_t)4 << 30;
	struct bytes b = {.n = n};
	double best = 0;

	if (cuda_alloc(dev, (void **)&b.from, n) < 0)
		return 0;
	if (cuda_clear(dev, b.from, n) == 0)
		best = best_rate(dev, one_read, &b, (double)n, 1, seconds);
	cuda_free(dev, b.from);
	return best;
}

const struct dt_backend dt_backend_cuda = {
	.count = cuda_count,
	.open = cuda_open,
	.close = cuda_close,
	.scratch_bytes = cuda_scratch_bytes,
	.isa = cuda_isa,
	.multiplies = cuda_multiplies,
	.matmul_rate = cuda_matmul_rate,
	.sheet_rate = cuda_sheet_rate,
	.copy_rate = cuda_copy_rate,
	.read_rate = cuda_read_rate,
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
	.graph_begin = cuda_graph_begin,
	.graph_end = cuda_graph_end,
	.graph_run = cuda_graph_run,
	.graph_close = cuda_graph_close,
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
