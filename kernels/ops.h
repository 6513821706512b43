/*
 * The flat table of what a device computes. Each op's contract (formula, shapes, what is accumulated, what
 * forward saves) is in its own header; README.md lists them. Gradients of parameters accumulate (+=) in fp32,
 * gradients of activations overwrite (=) unless a contract says otherwise.
 *
 * Absent optional tensors are DT_NONE (data == NULL). x, y, w ... share one compute type (f32, bf16 or f16);
 * statistics, parameter gradients and optimizer state are f32.
 */
#ifndef DT_KERNELS_OPS_H
#define DT_KERNELS_OPS_H

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/device.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/fixed.h"
#include "kernels/fp8.h"
#include "kernels/layernorm.h"
#include "kernels/matmul.h"
#include "kernels/matmul_act.h"
#include "kernels/moe.h"
#include "kernels/optim.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/sample.h"

struct dt_ops {
	/* matmul.h: c = (accumulate ? c : 0) + op(a) op(b) + bias */
	int (*matmul)(struct dt_dev *, struct dt_tensor c, struct dt_tensor a, bool ta, struct dt_tensor b,
		      bool tb, struct dt_tensor bias, bool accumulate);
	/* matmul.h: out[n] += sum over rows of x[rows, n] */
	int (*colsum)(struct dt_dev *, struct dt_tensor out, struct dt_tensor x);

	/* matmul_act.h: u = x w^T + bias, y = f(u); du = (dy w) f'(u) */
	int (*matmul_act)(struct dt_dev *, struct dt_tensor y, struct dt_tensor u, struct dt_tensor x,
			  struct dt_tensor w, struct dt_tensor bias, enum dt_act_fn f);
	int (*matmul_act_backward)(struct dt_dev *, struct dt_tensor du, struct dt_tensor dy,
				   struct dt_tensor w, struct dt_tensor u, enum dt_act_fn f);

	/* fp8.h: *scale, y = x / scale in 8 bits, yt the same transposed */
	int (*fp8_quantize)(struct dt_dev *, struct dt_tensor y, struct dt_tensor yt, float *scale,
			    struct dt_tensor x);
	/* c = (accumulate ? c : 0) + sa sb (a b^T) + bias */
	int (*fp8_matmul)(struct dt_dev *, struct dt_tensor c, struct dt_tensor a, const float *sa,
			  struct dt_tensor b, const float *sb, struct dt_tensor bias, bool accumulate);

	/* layernorm.h */
	int (*layernorm_forward)(struct dt_dev *, struct dt_tensor y, struct dt_tensor mean,
				 struct dt_tensor rstd, struct dt_tensor sum, struct dt_tensor x,
				 struct dt_tensor delta, struct dt_tensor w, struct dt_tensor b, float eps);
	int (*layernorm_backward)(struct dt_dev *, struct dt_tensor dx, struct dt_tensor dw,
				  struct dt_tensor db, struct dt_tensor dy, struct dt_tensor dresid,
				  struct dt_tensor x, struct dt_tensor mean, struct dt_tensor rstd,
				  struct dt_tensor w);
	/* rmsnorm.h */
	int (*rmsnorm_forward)(struct dt_dev *, struct dt_tensor y, struct dt_tensor rstd,
			       struct dt_tensor sum, struct dt_tensor x, struct dt_tensor delta,
			       struct dt_tensor w, float eps);
	int (*rmsnorm_backward)(struct dt_dev *, struct dt_tensor dx, struct dt_tensor dw,
				struct dt_tensor dy, struct dt_tensor dresid, struct dt_tensor x,
				struct dt_tensor rstd, struct dt_tensor w);

	/* attention.h */
	int (*attention_forward)(struct dt_dev *, struct dt_tensor o, struct dt_tensor lse,
				 struct dt_tensor qkv, const struct dt_attn *p);
	int (*attention_backward)(struct dt_dev *, struct dt_tensor dqkv, struct dt_tensor dout,
				  struct dt_tensor o, struct dt_tensor lse, struct dt_tensor qkv,
				  const struct dt_attn *p);
	int (*attention_paged)(struct dt_dev *, struct dt_tensor o, struct dt_tensor qkv,
			       struct dt_tensor kcache, struct dt_tensor vcache, const struct dt_attn *p,
			       const struct dt_paged *g);
	int (*kv_write)(struct dt_dev *, struct dt_tensor kcache, struct dt_tensor vcache,
			struct dt_tensor qkv, const struct dt_attn *p, const int64_t *slot);

	/* rope.h: in place; inverse rotates back (the backward pass) */
	int (*rope)(struct dt_dev *, struct dt_tensor qkv, const struct dt_rope *p, const int32_t *pos,
		    bool inverse);

	/* activation.h */
	int (*act_forward)(struct dt_dev *, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f);
	int (*act_backward)(struct dt_dev *, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor x,
			    enum dt_act_fn f);
	/* y[m, f] = act(x[m, 0:f]) * x[m, f:2f] (SwiGLU, GeGLU) */
	int (*gated_forward)(struct dt_dev *, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f);
	int (*gated_backward)(struct dt_dev *, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor x,
			      enum dt_act_fn f);

	/* embedding.h */
	int (*embedding_forward)(struct dt_dev *, struct dt_tensor y, const int32_t *ids, const int32_t *pos,
				 struct dt_tensor wte, struct dt_tensor wpe, int64_t vocab_first);
	int (*embedding_backward)(struct dt_dev *, struct dt_tensor dwte, struct dt_tensor dwpe,
				  struct dt_tensor dy, const int32_t *ids, const int32_t *pos,
				  int64_t vocab_first);

	/* cross_entropy.h */
	int (*ce_stats)(struct dt_dev *, float *rowmax, float *sumexp, float *target_logit,
			struct dt_tensor logits, const int32_t *targets, int64_t vocab_first);
	int (*ce_grad)(struct dt_dev *, struct dt_tensor dlogits, struct dt_tensor logits,
		       const float *rowmax, const float *sumexp, const int32_t *targets, float scale,
		       int64_t vocab_first);

	/* sample.h: out[i] = the token drawn from row i of the logits */
	int (*sample)(struct dt_dev *, struct dt_drawn *out, struct dt_tensor logits,
		      const struct dt_draw *draw, const struct dt_edit *edit, int64_t nedits);

	/* optim.h */
	int (*optim_step)(struct dt_dev *, const struct dt_optim *o, struct dt_tensor copy,
			  struct dt_tensor p, struct dt_tensor g, struct dt_tensor s1, struct dt_tensor s2);

	/* elementwise.h */
	int (*add)(struct dt_dev *, struct dt_tensor y, struct dt_tensor a,
		   struct dt_tensor b);						       /* y = a + b */
	int (*axpy)(struct dt_dev *, struct dt_tensor y, float a, struct dt_tensor x); /* y += a x */
	int (*scale)(struct dt_dev *, struct dt_tensor x, float a);		       /* x *= a */
	int (*fill)(struct dt_dev *, struct dt_tensor x, float value);
	int (*convert)(struct dt_dev *, struct dt_tensor y, struct dt_tensor x); /* y = x in y's type */
	int (*sumsq)(struct dt_dev *, double *ret, struct dt_tensor x); /* NaN or Inf if any element is */

	/* fixed.h */
	int (*fixed_add)(struct dt_dev *, int *ret_out, struct dt_tensor sum, struct dt_tensor x);
	int (*fixed_join)(struct dt_dev *, struct dt_tensor sum, struct dt_tensor other);
	int (*fixed_get)(struct dt_dev *, struct dt_tensor y, struct dt_tensor sum);
	int (*round_random)(struct dt_dev *, struct dt_tensor y, struct dt_tensor x,
			    const struct dt_round *p);

	/* moe.h: mixtures of experts between the scores and the experts' products */
	int (*moe_route)(struct dt_dev *, int32_t *expert, float *weight, struct dt_tensor score,
			 const struct dt_moe *p);
	int (*moe_sort)(struct dt_dev *, int32_t *first, int32_t *at, int32_t *from, const int32_t *expert,
			int64_t choices, int64_t experts);
	int (*moe_sum)(struct dt_dev *, struct dt_tensor y, struct dt_tensor x, const int32_t *at,
		       const float *weight);
};

extern const struct dt_ops dt_ops_cpu;
extern const struct dt_ops dt_ops_cuda;

#endif
