/*
 * Shared by the CUDA ops on the host: the device's state, and declarations. In C, so that the C compiler
 * checks the table of ops; kernel.h is the counterpart on the device.
 */
#ifndef DT_KERNELS_CUDA_CUDA_H
#define DT_KERNELS_CUDA_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/cuda/gpu.h"
#include "kernels/ops.h"
#include "kernels/packed.h"
#include "kernels/shape.h"

#include <errno.h>

/*
 * A deferred norm (rmsnorm.h) of a recorded step: rows of x, with weight w, into y. It is fused into the
 * product that reads y if that is the next op; otherwise it is launched before the next op.
 */
struct dt_late_norm {
	void *y; /* NULL: none pending */
	const void *x, *w;
	int t, tw; /* types of x and y; of w */
	int64_t rows, n;
	float eps;
	bool plus_one;
};

struct dt_cuda {
	int index;
	void *stream;
	struct dt_gpu_info info;
	char isa[80]; /* "sm_90, NVIDIA H200" */
	int32_t *bad; /* on the card: non-zero once a kernel met an index out of range */
	int32_t *bad_host;
	char *scratch; /* on the card */
	size_t scratch_n;
	char *tables;	   /* on the card: the tables of the last dt_cuda_tables */
	char *tables_host; /* pinned */
	size_t tables_n;
	void *tables_read; /* event: tables_host may be overwritten */
	bool tables_busy;
	const char *given, *given_there; /* dt_dev_tables; NULL: none */
	size_t given_n;
	bool recording; /* between dt_graph_begin and _end: nothing may be allocated */
	struct dt_late_norm late;
	struct dt_blas *blas; /* NULL: own kernels only */
	char *padded;	      /* on the card: operands of a product copied with rows padded to 16 bytes */
	size_t padded_n;
	struct dt_dnn *dnn; /* NULL: no convolutions */
};

/*
 * scratch.c. Returns the device's state, after making its card current for this thread and launching a
 * pending norm. NULL: the card is gone. enter_late leaves the norm pending: for ops that fuse it, or that
 * call dt_cuda_settle, which launches it if there is one.
 */
struct dt_cuda *dt_cuda_enter(struct dt_dev *dev);
struct dt_cuda *dt_cuda_enter_late(struct dt_dev *dev);
int dt_cuda_settle(struct dt_cuda *c); /* rmsnorm.cu */
/* At least n bytes on the card, 256-byte aligned, valid until the next call. NULL: out of memory. */
void *dt_cuda_scratch(struct dt_dev *dev, size_t n);

/* The same in separate memory: for a product within an op that uses scratch. */
void *dt_cuda_padded(struct dt_dev *dev, size_t n);

/* Host tables of one call, copied one after another to the card, each 16-byte aligned. */
struct dt_table {
	const void *from;
	size_t n;
	const void *ret; /* its address on the card */
};
int dt_cuda_tables(struct dt_dev *dev, struct dt_table *t, int count);

/* device_graph.c: implements dt_graph_begin and the like. */
int dt_cuda_graph_begin(struct dt_dev *dev);
int dt_cuda_graph_end(struct dt_dev *dev, struct dt_graph **ret);
int dt_cuda_graph_run(struct dt_dev *dev, const struct dt_graph *g);
void dt_cuda_graph_close(struct dt_dev *dev, struct dt_graph *g);

/* blas.c: products by cuBLASLt, loaded at run time. -ENOTSUP: use our own kernel. */
struct dt_blas;
int dt_blas_open(struct dt_blas **ret);
void dt_blas_close(struct dt_blas *b);
size_t dt_blas_bytes(const struct dt_blas *b);
/* Row strides in elements of operands that are not dense; 0: dense. */
struct dt_blas_rows {
	int64_t c, a, b;
};
int dt_blas_matmul(struct dt_blas *b, void *stream, struct dt_tensor c, struct dt_tensor a, bool ta,
		   struct dt_tensor w, bool tb, struct dt_tensor bias, bool accumulate, int64_t m, int64_t n,
		   int64_t k, const struct dt_blas_rows *ld);
/* matmul_library.cu: the same, over copies of operands where the library would be slow on them. */
int dt_cuda_matmul_library(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, bool ta,
			   struct dt_tensor b, bool tb, struct dt_tensor bias, bool accumulate, int64_t m,
			   int64_t n, int64_t k);
/* matmul_act.h with gelu_tanh: c is u and y is written, or c is du and u is read. */
int dt_blas_matmul_gelu(struct dt_blas *b, void *stream, struct dt_tensor c, struct dt_tensor y,
			struct dt_tensor a, struct dt_tensor w, bool tb, struct dt_tensor bias,
			struct dt_tensor u, int64_t m, int64_t n, int64_t k);
/* fp8.h's product; bias only if c is 16-bit. sa and sb are on the card. */
int dt_blas_fp8(struct dt_blas *b, void *stream, struct dt_tensor c, struct dt_tensor a, const float *sa,
		struct dt_tensor w, const float *sb, struct dt_tensor bias, bool accumulate, int64_t m,
		int64_t n, int64_t k);

/* dnn.c: convolutions by cuDNN, loaded at run time, queued on the stream. -ENOTSUP: none. */
struct dt_dnn;
int dt_dnn_open(struct dt_dnn **ret, void *stream);
void dt_dnn_close(struct dt_dnn *d);

#define DT_OP(name, params, args, memory) int dt_cuda_##name(struct dt_dev *dev, DT_LIST params);
#include "kernels/ops.list"

/* round_blocks.cu: decodes whole blocks of format f into y. */
int dt_cuda_read_blocks(struct dt_dev *dev, struct dt_tensor y, enum dt_format f, const uint8_t *from);
/* fp8.cu: whether the card has fp8 products (sm_89 and later). */
bool dt_cuda_has_fp8(const struct dt_cuda *c);

#ifdef __cplusplus
}
#endif
#endif
/* SPDX-License-Identifier: Apache-2.0 */
