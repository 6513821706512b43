/*
 * What the CUDA ops share on the host: the device's state, and their names. C, so that the table of ops is
 * checked by the C compiler; kernel.h is what the kernels share on the card.
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
 * A norm (rmsnorm.h) that a recorded step still owes: rows of x, with weight w, into y. It is made in front
 * of the product that reads y, if that is the next op, else before whatever comes next.
 */
struct dt_late_norm {
	void *y; /* NULL: none */
	const void *x, *w;
	int t, tw; /* of x and y; of w */
	int64_t rows, n;
	float eps;
	bool plus_one;
};

struct dt_cuda {
	int index;
	void *stream;
	struct dt_gpu_info info;
	char isa[80]; /* "sm_90, NVIDIA H200" */
	int32_t *bad; /* on the card: not 0 once a kernel met an index out of range */
	int32_t *bad_host;
	char *scratch; /* on the card */
	size_t scratch_n;
	char *tables;	   /* on the card, what dt_cuda_tables was given last */
	char *tables_host; /* pinned */
	size_t tables_n;
	void *tables_read; /* event: the copy out of tables_host is done */
	bool tables_busy;
	const char *given, *given_there; /* dt_dev_tables; NULL: none */
	size_t given_n;
	bool recording; /* between dt_graph_begin and _end: nothing may be allocated */
	struct dt_late_norm late;
	struct dt_blas *blas; /* NULL: products are our own */
	char *padded;	      /* on the card: operands of a product with their rows 16 bytes apart */
	size_t padded_n;
	struct dt_dnn *dnn; /* NULL: there are no convolutions */
};

/*
 * scratch.c. The device's state, its card made this thread's, nothing owed. NULL: the card is gone.
 * enter_late: for ops that take what is owed, or call dt_cuda_settle, a call without effect where nothing is.
 */
struct dt_cuda *dt_cuda_enter(struct dt_dev *dev);
struct dt_cuda *dt_cuda_enter_late(struct dt_dev *dev);
int dt_cuda_settle(struct dt_cuda *c); /* rmsnorm.cu */
/* At least n bytes on the card, 256-byte aligned, until the next call. NULL: out of memory. */
void *dt_cuda_scratch(struct dt_dev *dev, size_t n);

/* The same, kept apart from it: for a product within a call that has scratch. */
void *dt_cuda_padded(struct dt_dev *dev, size_t n);

/* Host tables for one call, put one after another on the card, each 16-byte aligned. */
struct dt_table {
	const void *from;
	size_t n;
	const void *ret; /* where it lies on the card */
};
int dt_cuda_tables(struct dt_dev *dev, struct dt_table *t, int count);

/* device_graph.c: of dt_dev's dt_graph_begin and its like. */
int dt_cuda_graph_begin(struct dt_dev *dev);
int dt_cuda_graph_end(struct dt_dev *dev, struct dt_graph **ret);
int dt_cuda_graph_run(struct dt_dev *dev, const struct dt_graph *g);
void dt_cuda_graph_close(struct dt_dev *dev, struct dt_graph *g);

/* blas.c: products by cuBLASLt, found at run time. -ENOTSUP: take our own kernel. */
struct dt_blas;
int dt_blas_open(struct dt_blas **ret);
void dt_blas_close(struct dt_blas *b);
size_t dt_blas_bytes(const struct dt_blas *b);
/* Elements from one row to the next, of operands whose rows do not follow one another; 0: they do. */
struct dt_blas_rows {
	int64_t c, a, b;
};
int dt_blas_matmul(struct dt_blas *b, void *stream, struct dt_tensor c, struct dt_tensor a, bool ta,
		   struct dt_tensor w, bool tb, struct dt_tensor bias, bool accumulate, int64_t m, int64_t n,
		   int64_t k, const struct dt_blas_rows *ld);
/* matmul_act.h with gelu_tanh: c is u and y is written, or c is du and u is read. */
int dt_blas_matmul_gelu(struct dt_blas *b, void *stream, struct dt_tensor c, struct dt_tensor y,
			struct dt_tensor a, struct dt_tensor w, bool tb, struct dt_tensor bias,
			struct dt_tensor u, int64_t m, int64_t n, int64_t k);
/* fp8.h's product; bias only where c has 16 bits. sa and sb lie on the card. */
int dt_blas_fp8(struct dt_blas *b, void *stream, struct dt_tensor c, struct dt_tensor a, const float *sa,
		struct dt_tensor w, const float *sb, struct dt_tensor bias, bool accumulate, int64_t m,
		int64_t n, int64_t k);

/* dnn.c: convolutions by cuDNN, found at run time, in the order of the stream. -ENOTSUP: there are none. */
struct dt_dnn;
int dt_dnn_open(struct dt_dnn **ret, void *stream);
void dt_dnn_close(struct dt_dnn *d);

#define DT_OP(name, params, args, memory) int dt_cuda_##name(struct dt_dev *dev, DT_LIST params);
#include "kernels/ops.list"

/* round_blocks.cu: y = what blocks of f say; whole ones. */
int dt_cuda_read_blocks(struct dt_dev *dev, struct dt_tensor y, enum dt_format f, const uint8_t *from);
/* fp8.cu: whether the card has such products, from sm_89 on. */
bool dt_cuda_has_fp8(const struct dt_cuda *c);

#ifdef __cplusplus
}
#endif
#endif
/* SPDX-License-Identifier: Apache-2.0 */
