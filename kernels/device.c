/* Dispatch of device.h to the backend of each kind of device. */
#include "kernels/device.h"

#include "kernels/backend.h"
#include "kernels/check.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/team.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void dt_dev_spin_less(char **argv)
{
	char exe[PATH_MAX];
	ssize_t n;

	if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || getenv("KMP_BLOCKTIME"))
		return;
	n = readlink("/proc/self/exe", exe, sizeof exe - 1);
	if (n <= 0)
		return;
	exe[n] = '\0';
	/* both, as our loops and oneDNN's may use different runtimes */
	if (setenv("GOMP_SPINCOUNT", "5000", 1) < 0 || setenv("KMP_BLOCKTIME", "0", 1) < 0)
		return;
	execv(exe, argv);
}

static const struct dt_backend *kind_of(enum dt_dev_kind kind)
{
	return kind == DT_DEV_CPU ? &dt_backend_cpu : &dt_backend_cuda;
}

static const struct dt_backend *of(const struct dt_dev *dev)
{
	return kind_of(dev->kind);
}

int dt_dev_open(struct dt_dev **ret, enum dt_dev_kind kind, int index, int nthreads)
{
	if (index < 0 || nthreads < 0)
		return -EINVAL;
	return kind_of(kind)->open(ret, index, nthreads);
}

void dt_dev_close(struct dt_dev *dev)
{
	if (dev)
		of(dev)->close(dev);
}

int dt_dev_parse(const char *name, enum dt_dev_kind *ret_kind, int *ret_index)
{
	enum dt_dev_kind kind = DT_DEV_CUDA;
	long index = 0;

	if (!strcmp(name, "cpu")) {
		kind = DT_DEV_CPU;
	} else if (!strcmp(name, "auto")) {
		struct dt_dev *dev;

		if (dt_dev_open(&dev, DT_DEV_CUDA, 0, 0) == 0)
			dt_dev_close(dev);
		else
			kind = DT_DEV_CPU;
	} else if (strcmp(name, "cuda")) {
		char *end;

		if (strncmp(name, "cuda:", 5) || name[5] < '0' || name[5] > '9')
			return -EINVAL;
		index = strtol(name + 5, &end, 10);
		if (*end || index > 1023)
			return -EINVAL;
	}
	*ret_kind = kind;
	*ret_index = (int)index;
	return 0;
}

int dt_dev_count(enum dt_dev_kind kind)
{
	return kind_of(kind)->count();
}

const char *dt_dev_why(int rc)
{
	switch (rc) {
	case -ENOTSUP:
		return "this build has no CUDA";
	case -ENODEV:
		return "no NVIDIA driver or no such GPU";
	default:
		return strerror(-rc);
	}
}

void dt_dev_rest(struct dt_dev *dev)
{
	if (of(dev)->rest)
		of(dev)->rest(dev);
}

void dt_dev_rows(struct dt_dev *dev, int64_t rows, int64_t each,
		 void (*fn)(void *arg, int t, int64_t first, int64_t last), void *arg)
{
	dt_cpu_rows(dev, rows, each, fn, arg);
}

struct dt_scratch_on dt_dev_scratch_on(const struct dt_dev *dev)
{
	return of(dev)->scratch_on(dev);
}

void dt_dev_scratch_lend(struct dt_dev *dev, enum dt_scratch_buffer b, void *p, size_t n)
{
	struct dt_scratch_room *r = &dev->scratch[b];

	if (r->p && !r->lent)
		dt_dev_free(dev, r->p);
	*r = (struct dt_scratch_room){.p = p, .n = p ? n : 0, .lent = p != NULL};
}

int dt_dev_scratch_reserve(struct dt_dev *dev, const struct dt_scratch *s)
{
	return of(dev)->scratch_reserve ? of(dev)->scratch_reserve(dev, s) : 0;
}

size_t dt_dev_scratch_most(const struct dt_dev *dev, enum dt_scratch_buffer b)
{
	return dev->scratch[b].most;
}

size_t dt_dev_scratch_bytes(const struct dt_dev *dev)
{
	size_t n = of(dev)->library_bytes(dev);

	for (int b = 0; b < DT_SCRATCH_N; b++)
		n += dev->scratch[b].lent ? 0 : dev->scratch[b].n;
	return n;
}

const char *dt_cpu_isa(void)
{
	return dt_isa()->name;
}

const char *dt_dev_isa(const struct dt_dev *dev)
{
	return of(dev)->isa(dev);
}

int dt_dev_kv_group(const struct dt_dev *dev, enum dt_dtype cache, int64_t head_dim, bool latent,
		    int block_size)
{
	return of(dev)->kv_group ? of(dev)->kv_group(dev, cache, head_dim, latent, block_size) : 1;
}

int64_t dt_dev_row_pad(const struct dt_dev *dev)
{
	return of(dev)->row_pad ? of(dev)->row_pad : 1;
}

bool dt_dev_convolves(const struct dt_dev *dev)
{
	return !of(dev)->convolves || of(dev)->convolves(dev);
}

bool dt_dev_multiplies(const struct dt_dev *dev, enum dt_dtype dtype)
{
	return !of(dev)->multiplies || of(dev)->multiplies(dev, dtype);
}

bool dt_dev_rows_apart(struct dt_dev *dev, enum dt_dtype dtype, int64_t m, int64_t k, int64_t n, bool tb,
		       bool bias)
{
	return of(dev)->rows_apart && of(dev)->rows_apart(dev, dtype, m, k, n, tb, bias);
}

int dt_dev_columns_matmul(struct dt_dev *dev, const struct dt_columns_product *p)
{
	const enum dt_dtype t = p->y.dtype;
	const int64_t n = dt_rows(p->b), rank = dt_cols(p->b);

	if (!dt_is_compute(t) || p->h.dtype != t || dt_rows(p->h) != dt_rows(p->y) || p->at < 0 ||
	    p->from < 0 || p->at > dt_cols(p->y) - n || p->from > dt_cols(p->h) - rank ||
	    (p->b.dtype != t && (p->of != DT_COLUMNS_B || p->b.dtype != DT_F32)))
		return -EINVAL;
	return of(dev)->columns_matmul ? of(dev)->columns_matmul(dev, p) : -ENOTSUP;
}

double dt_dev_matmul_rate(struct dt_dev *dev, enum dt_dtype dtype, double seconds)
{
	return of(dev)->matmul_rate(dev, dtype, seconds);
}

double dt_dev_sheet_rate(const struct dt_dev *dev, enum dt_dtype dtype)
{
	return of(dev)->sheet_rate(dev, dtype);
}

double dt_dev_copy_rate(struct dt_dev *dev, double seconds)
{
	return of(dev)->copy_rate(dev, seconds);
}

double dt_dev_read_rate(struct dt_dev *dev, double seconds)
{
	return of(dev)->read_rate(dev, seconds);
}

int dt_dev_alloc(struct dt_dev *dev, void **ret, size_t n)
{
	return of(dev)->alloc(dev, ret, n);
}

void dt_dev_free(struct dt_dev *dev, void *p)
{
	if (p)
		of(dev)->free(dev, p);
}

int dt_dev_host_alloc(struct dt_dev *dev, void **ret, size_t n)
{
	return of(dev)->host_alloc(dev, ret, n);
}

void dt_dev_host_free(struct dt_dev *dev, void *p)
{
	if (p)
		of(dev)->host_free(dev, p);
}

bool dt_dev_is_host(const struct dt_dev *dev)
{
	return dev->kind == DT_DEV_CPU;
}

int dt_dev_memory(struct dt_dev *dev, size_t *ret_free, size_t *ret_total)
{
	return of(dev)->memory(dev, ret_free, ret_total);
}

int dt_dev_copy(struct dt_dev *dev, void *to, const void *from, size_t n)
{
	return n ? of(dev)->copy(dev, to, from, n) : 0;
}

int dt_dev_clear(struct dt_dev *dev, void *p, size_t n)
{
	return n ? of(dev)->clear(dev, p, n) : 0;
}

int dt_dev_sync(struct dt_dev *dev)
{
	return of(dev)->sync(dev);
}

struct dt_event {
	const struct dt_backend *of;
	void *impl;
};

int dt_event_open(struct dt_event **ret, struct dt_dev *dev)
{
	struct dt_event *e = calloc(1, sizeof *e);
	int rc = e ? of(dev)->event_open(dev, &e->impl) : -ENOMEM;

	if (rc < 0) {
		free(e);
		return rc;
	}
	e->of = of(dev);
	*ret = e;
	return 0;
}

void dt_event_close(struct dt_event *e)
{
	if (e)
		e->of->event_close(e->impl);
	free(e);
}

int dt_event_record(struct dt_event *e, struct dt_dev *dev)
{
	return e->of->event_record(dev, e->impl, NULL);
}

int dt_event_wait(struct dt_event *e, struct dt_dev *dev)
{
	return e->of->event_wait(dev, e->impl, NULL);
}

int dt_event_sync(struct dt_event *e)
{
	return e->of->event_sync(e->impl);
}

int dt_event_done(struct dt_event *e)
{
	return e->of->event_done(e->impl);
}

int dt_event_record_on(struct dt_event *e, struct dt_dev *dev, void *queue)
{
	return e->of->event_record(dev, e->impl, queue);
}

int dt_event_wait_on(struct dt_event *e, struct dt_dev *dev, void *queue)
{
	return e->of->event_wait(dev, e->impl, queue);
}

int dt_queue_open(struct dt_dev *dev, void **ret)
{
	return of(dev)->queue_open ? of(dev)->queue_open(dev, ret) : -ENOTSUP;
}

void dt_queue_close(struct dt_dev *dev, void *queue)
{
	if (queue && of(dev)->queue_close)
		of(dev)->queue_close(dev, queue);
}

int dt_queue_copy(struct dt_dev *dev, void *queue, void *to, const void *from, size_t n)
{
	return queue ? of(dev)->queue_copy(dev, queue, to, from, n) : of(dev)->copy(dev, to, from, n);
}

int dt_dev_use(struct dt_dev *dev)
{
	return of(dev)->use ? of(dev)->use(dev) : 0;
}

int dt_dev_card(const struct dt_dev *dev, unsigned char ret[16])
{
	return of(dev)->card ? of(dev)->card(dev, ret) : -ENOTSUP;
}

int dt_dev_copy_rows(struct dt_dev *dev, void *to, size_t to_step, const void *from, size_t from_step,
		     size_t n, int64_t rows)
{
	return of(dev)->copy_rows(dev, to, to_step, from, from_step, n, rows);
}

void dt_dev_tables(struct dt_dev *dev, const void *host, const void *there, size_t n)
{
	if (of(dev)->tables)
		of(dev)->tables(dev, host, there, n);
}

int dt_graph_begin(struct dt_dev *dev)
{
	return of(dev)->graph_begin ? of(dev)->graph_begin(dev) : -ENOTSUP;
}

int dt_graph_end(struct dt_dev *dev, struct dt_graph **ret)
{
	return of(dev)->graph_end ? of(dev)->graph_end(dev, ret) : -ENOTSUP;
}

int dt_graph_run(struct dt_dev *dev, const struct dt_graph *g)
{
	return of(dev)->graph_run ? of(dev)->graph_run(dev, g) : -ENOTSUP;
}

void dt_graph_close(struct dt_dev *dev, struct dt_graph *g)
{
	if (g)
		of(dev)->graph_close(dev, g);
}
/* SPDX-License-Identifier: Apache-2.0 */
