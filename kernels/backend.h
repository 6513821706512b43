/* What each kind of device implements behind device.h. */
#ifndef DT_KERNELS_BACKEND_H
#define DT_KERNELS_BACKEND_H

#include "kernels/columns.h"

struct dt_backend {
	int (*count)(void);
	int (*open)(struct dt_dev **ret, int index, int nthreads);
	void (*close)(struct dt_dev *dev);
	void (*rest)(struct dt_dev *dev); /* NULL: no-op */
	struct dt_scratch_on (*scratch_on)(const struct dt_dev *dev);
	int (*scratch_reserve)(struct dt_dev *dev, const struct dt_scratch *s); /* NULL: no-op */
	size_t (*library_bytes)(const struct dt_dev *dev);			/* of libraries' workspaces */
	const char *(*isa)(const struct dt_dev *dev);
	bool (*multiplies)(const struct dt_dev *dev, enum dt_dtype dtype); /* NULL: every type */
	bool (*convolves)(const struct dt_dev *dev);			   /* NULL: true */
	/* NULL: always false */
	bool (*rows_apart)(struct dt_dev *dev, enum dt_dtype dtype, int64_t m, int64_t k, int64_t n, bool tb,
			   bool bias);
	/* NULL: -ENOTSUP */
	int (*columns_matmul)(struct dt_dev *dev, const struct dt_columns_product *p);
	double (*matmul_rate)(struct dt_dev *dev, enum dt_dtype dtype, double seconds);
	double (*sheet_rate)(const struct dt_dev *dev, enum dt_dtype dtype);
	double (*copy_rate)(struct dt_dev *dev, double seconds);
	double (*read_rate)(struct dt_dev *dev, double seconds);

	int (*alloc)(struct dt_dev *dev, void **ret, size_t n);
	void (*free)(struct dt_dev *dev, void *p);
	int (*host_alloc)(struct dt_dev *dev, void **ret, size_t n);
	void (*host_free)(struct dt_dev *dev, void *p);
	int (*memory)(struct dt_dev *dev, size_t *ret_free, size_t *ret_total);
	int (*copy)(struct dt_dev *dev, void *to, const void *from, size_t n);
	int (*clear)(struct dt_dev *dev, void *p, size_t n);
	int (*sync)(struct dt_dev *dev);
	int (*copy_rows)(struct dt_dev *dev, void *to, size_t to_step, const void *from, size_t from_step,
			 size_t n, int64_t rows);
	void (*tables)(struct dt_dev *dev, const void *host, const void *there, size_t n); /* NULL: no-op */
	int (*graph_begin)(struct dt_dev *dev); /* NULL: no graphs */
	int (*graph_end)(struct dt_dev *dev, struct dt_graph **ret);
	int (*graph_run)(struct dt_dev *dev, const struct dt_graph *g);
	void (*graph_close)(struct dt_dev *dev, struct dt_graph *g);
	int (*event_open)(struct dt_dev *dev, void **ret);
	void (*event_close)(void *event);
	int (*event_record)(struct dt_dev *dev, void *event, void *queue);
	int (*event_wait)(struct dt_dev *dev, void *event, void *queue);
	int (*event_sync)(void *event);
	int (*event_done)(void *event);
	int (*use)(struct dt_dev *dev);				      /* NULL: no-op */
	int (*card)(const struct dt_dev *dev, unsigned char ret[16]); /* NULL: not a card, no queue_
								       * functions */
	int (*queue_open)(struct dt_dev *dev, void **ret);
	void (*queue_close)(struct dt_dev *dev, void *queue);
	int (*queue_copy)(struct dt_dev *dev, void *queue, void *to, const void *from, size_t n);
	int64_t row_pad; /* dt_dev_row_pad; 0: 1 */
	/* NULL: 1 */
	int (*kv_group)(const struct dt_dev *dev, enum dt_dtype cache, int64_t head_dim, bool latent,
			int block_size);
};

extern const struct dt_backend dt_backend_cpu;
/* In a build without CUDA only count and open are set. */
extern const struct dt_backend dt_backend_cuda;

#endif
/* SPDX-License-Identifier: Apache-2.0 */
