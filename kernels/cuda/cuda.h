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
	bool recording;	      /* between dt_graph_begin and _end: nothing may be allocated */
	struct dt_blas *blas; /* NULL: products are our own */
};

/* The device's state, its card made this thread's. NULL: the card is gone. */
struct dt_cuda *dt_cuda_enter(struct dt_dev *dev);
/* At least n bytes on the card, 256-byte aligned, until the next call. NULL: out of memory. */
void *dt_cuda_scratch(struct dt_dev *dev, size_t n);

/* Host tables for one call, put one after another on the card, each 16-byte aligned. */
struct dt_table {
	const void *from;
	size_t n;
	const void *ret; /* where it lies on the card */
};
int dt_cuda_tables(struct dt_dev *dev, struct dt_table *t, int count);

/* blas.c: products by cuBLASLt, found at run time. -ENOTSUP: take our own kernel. */
struct dt_blas;
int dt_blas_open(struct dt_blas **ret);
void dt_blas_close(struct dt_blas *b);
size_t dt_blas_bytes(const struct dt_blas *b);
int dt_blas_matmul(struct dt_blas *b, void *stream, struct dt_tensor c, struct dt_tensor a, bool ta,
		   struct dt_tensor w, bool tb, struct dt_tensor bias, bool accumulate, int64_t m, int64_t n,
		   int64_t k);
/* matmul_act.h with gelu_tanh: c is u and y is written, or c is du and u is read. */
int dt_blas_matmul_gelu(struct dt_blas *b, void *stream, struct dt_tensor c, struct dt_tensor y,
			struct dt_tensor a, struct dt_tensor w, bool tb, struct dt_tensor bias,
			struct dt_tensor u, int64_t m, int64_t n, int64_t k);
/* fp8.h's product; bias only where c has 16 bits. sa and sb lie on the card. */
int dt_blas_fp8(struct dt_blas *b, void *stream, struct dt_tensor c, struct dt_tensor a, const float *sa,
		struct dt_tensor w, const float *sb, struct dt_tensor bias, bool accumulate, int64_t m,
		int64_t n, int64_t k);

int dt_cuda_matmul(struct dt_dev *, struct dt_tensor c, struct dt_tensor a, bool ta, struct dt_tensor b,
		   bool tb, struct dt_tensor bias, bool accumulate);
int dt_cuda_matmul_act(struct dt_dev *, struct dt_tensor y, struct dt_tensor u, struct dt_tensor x,
		       struct dt_tensor w, struct dt_tensor bias, enum dt_act_fn f);
int dt_cuda_matmul_act_backward(struct dt_dev *, struct dt_tensor du, struct dt_tensor dy, struct dt_tensor w,
				struct dt_tensor u, enum dt_act_fn f);
int dt_cuda_colsum(struct dt_dev *, struct dt_tensor out, struct dt_tensor x);
int dt_cuda_fp8_quantize(struct dt_dev *, struct dt_tensor y, struct dt_tensor yt, float *scale,
			 struct dt_tensor x);
int dt_cuda_fp8_matmul(struct dt_dev *, struct dt_tensor c, struct dt_tensor a, const float *sa,
		       struct dt_tensor b, const float *sb, struct dt_tensor bias, bool accumulate);
int dt_cuda_layernorm_forward(struct dt_dev *, struct dt_tensor y, struct dt_tensor mean,
			      struct dt_tensor rstd, struct dt_tensor sum, struct dt_tensor x,
			      struct dt_tensor delta, struct dt_tensor w, struct dt_tensor b, float eps);
int dt_cuda_layernorm_backward(struct dt_dev *, struct dt_tensor dx, struct dt_tensor dw, struct dt_tensor db,
			       struct dt_tensor dy, struct dt_tensor dresid, struct dt_tensor x,
			       struct dt_tensor mean, struct dt_tensor rstd, struct dt_tensor w);
int dt_cuda_rmsnorm_forward(struct dt_dev *, struct dt_tensor y, struct dt_tensor rstd, struct dt_tensor sum,
			    struct dt_tensor x, struct dt_tensor delta, struct dt_tensor w, float eps);
int dt_cuda_rmsnorm_backward(struct dt_dev *, struct dt_tensor dx, struct dt_tensor dw, struct dt_tensor dy,
			     struct dt_tensor dresid, struct dt_tensor x, struct dt_tensor rstd,
			     struct dt_tensor w);
int dt_cuda_attention_forward(struct dt_dev *, struct dt_tensor o, struct dt_tensor lse, struct dt_tensor qkv,
			      const struct dt_attn *p);
int dt_cuda_attention_backward(struct dt_dev *, struct dt_tensor dqkv, struct dt_tensor dout,
			       struct dt_tensor o, struct dt_tensor lse, struct dt_tensor qkv,
			       const struct dt_attn *p);
int dt_cuda_attention_paged(struct dt_dev *, struct dt_tensor o, struct dt_tensor qkv,
			    struct dt_tensor kcache, struct dt_tensor vcache, const struct dt_attn *p,
			    const struct dt_paged *g);
int dt_cuda_kv_write(struct dt_dev *, struct dt_tensor kcache, struct dt_tensor vcache, struct dt_tensor qkv,
		     const struct dt_attn *p, const int64_t *slot);
int dt_cuda_rope(struct dt_dev *, struct dt_tensor qkv, const struct dt_rope *p, const int32_t *pos,
		 bool inverse);
int dt_cuda_act_forward(struct dt_dev *, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f);
int dt_cuda_act_backward(struct dt_dev *, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor x,
			 enum dt_act_fn f);
int dt_cuda_gated_forward(struct dt_dev *, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f);
int dt_cuda_gated_backward(struct dt_dev *, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor x,
			   enum dt_act_fn f);
int dt_cuda_embedding_forward(struct dt_dev *, struct dt_tensor y, const int32_t *ids, const int32_t *pos,
			      struct dt_tensor wte, struct dt_tensor wpe, int64_t vocab_first);
int dt_cuda_embedding_backward(struct dt_dev *, struct dt_tensor dwte, struct dt_tensor dwpe,
			       struct dt_tensor dy, const int32_t *ids, const int32_t *pos,
			       int64_t vocab_first);
int dt_cuda_ce_stats(struct dt_dev *, float *rowmax, float *sumexp, float *target_logit,
		     struct dt_tensor logits, const int32_t *targets, int64_t vocab_first);
int dt_cuda_ce_grad(struct dt_dev *, struct dt_tensor dlogits, struct dt_tensor logits, const float *rowmax,
		    const float *sumexp, const int32_t *targets, float scale, int64_t vocab_first);
int dt_cuda_sample(struct dt_dev *, struct dt_drawn *out, struct dt_tensor logits, const struct dt_draw *draw,
		   const struct dt_edit *edit, int64_t nedits);
int dt_cuda_optim_step(struct dt_dev *, const struct dt_optim *o, struct dt_tensor copy, struct dt_tensor p,
		       struct dt_tensor g, struct dt_tensor s1, struct dt_tensor s2);
int dt_cuda_add(struct dt_dev *, struct dt_tensor y, struct dt_tensor a, struct dt_tensor b);
int dt_cuda_axpy(struct dt_dev *, struct dt_tensor y, float a, struct dt_tensor x);
int dt_cuda_scale(struct dt_dev *, struct dt_tensor x, float a);
int dt_cuda_fill(struct dt_dev *, struct dt_tensor x, float value);
int dt_cuda_convert(struct dt_dev *, struct dt_tensor y, struct dt_tensor x);
int dt_cuda_sumsq(struct dt_dev *, double *ret, struct dt_tensor x);
int dt_cuda_fixed_add(struct dt_dev *, int *ret_out, struct dt_tensor sum, struct dt_tensor x);
int dt_cuda_fixed_join(struct dt_dev *, struct dt_tensor sum, struct dt_tensor other);
int dt_cuda_fixed_get(struct dt_dev *, struct dt_tensor y, struct dt_tensor sum);
int dt_cuda_round_random(struct dt_dev *, struct dt_tensor y, struct dt_tensor x, const struct dt_round *p);
int dt_cuda_moe_route(struct dt_dev *, int32_t *expert, float *weight, struct dt_tensor score,
		      const struct dt_moe *p);
int dt_cuda_moe_sort(struct dt_dev *, int32_t *first, int32_t *at, int32_t *from, const int32_t *expert,
		     int64_t choices, int64_t experts);
int dt_cuda_moe_sum(struct dt_dev *, struct dt_tensor y, struct dt_tensor x, const int32_t *at,
		    const float *weight);

/* fp8.cu: whether the card has such products, from sm_89 on. */
bool dt_cuda_has_fp8(const struct dt_cuda *c);

/* packed.cu: w is in the memory of a card, and the arguments have been checked. */
int dt_cuda_packed_matmul(struct dt_dev *, struct dt_tensor y, struct dt_tensor x, const struct dt_packed *w,
			  struct dt_tensor bias);
int dt_cuda_packed_set_matmul(struct dt_dev *, struct dt_tensor y, struct dt_tensor x,
			      const struct dt_packed_set *s, const struct dt_meet *p);
int dt_cuda_packed_embed(struct dt_dev *, struct dt_tensor y, const struct dt_packed *w, const int32_t *ids,
			 float scale);

#ifdef __cplusplus
}
#endif
#endif
