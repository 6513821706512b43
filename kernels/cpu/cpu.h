/*
 * What the CPU ops share: the device's state, parallel ranges, and rows of f32, bf16 or f16 seen as f32.
 *
 * OpenMP outlines the body of a parallel region into a function that target_clones does not clone, so every
 * op here is a parallel loop that calls a DT_SIMD function for a row or a chunk. Those are static, and their
 * names differ from file to file: clang 14 gives what it clones a symbol that only its own file can call, yet
 * a resolver that all files see.
 */
#ifndef DT_KERNELS_CPU_H
#define DT_KERNELS_CPU_H

#include "kernels/ops.h"
#include "kernels/shape.h"

#include <errno.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) /* which crashes in resolvers */
#define DT_SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DT_SIMD
#endif
#define DT_INLINE static inline __attribute__((always_inline))

#define DT_CHUNK  2048 /* elements an elementwise chunk */
#define DT_GROUPS 64   /* groups of rows whose parameter gradients are summed apart */
#define DT_SERIAL 8192 /* elements under which a second thread costs more than it gives */

struct dt_matmul_cache;

struct dt_cpu {
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	struct dt_matmul_cache *matmul;
	void *scratch;
	size_t scratch_n;
};

/* At least n bytes, 64-byte aligned, contents undefined, valid until the next call. NULL: out of memory. */
void *dt_cpu_scratch(struct dt_dev *dev, size_t n);

void dt_cpu_matmul_release(struct dt_cpu *cpu);
size_t dt_cpu_matmul_bytes(const struct dt_cpu *cpu);

int dt_cpu_matmul(struct dt_dev *, struct dt_tensor c, struct dt_tensor a, bool ta, struct dt_tensor b,
		  bool tb, struct dt_tensor bias, bool accumulate);
int dt_cpu_matmul_act(struct dt_dev *, struct dt_tensor y, struct dt_tensor u, struct dt_tensor x,
		      struct dt_tensor w, struct dt_tensor bias, enum dt_act_fn f);
int dt_cpu_matmul_act_backward(struct dt_dev *, struct dt_tensor du, struct dt_tensor dy, struct dt_tensor w,
			       struct dt_tensor u, enum dt_act_fn f);
int dt_cpu_colsum(struct dt_dev *, struct dt_tensor out, struct dt_tensor x);
int dt_cpu_fp8_quantize(struct dt_dev *, struct dt_tensor y, struct dt_tensor yt, float *scale,
			struct dt_tensor x);
int dt_cpu_fp8_matmul(struct dt_dev *, struct dt_tensor c, struct dt_tensor a, const float *sa,
		      struct dt_tensor b, const float *sb, struct dt_tensor bias, bool accumulate);
int dt_cpu_layernorm_forward(struct dt_dev *, struct dt_tensor y, struct dt_tensor mean,
			     struct dt_tensor rstd, struct dt_tensor sum, struct dt_tensor x,
			     struct dt_tensor delta, struct dt_tensor w, struct dt_tensor b, float eps);
int dt_cpu_layernorm_backward(struct dt_dev *, struct dt_tensor dx, struct dt_tensor dw, struct dt_tensor db,
			      struct dt_tensor dy, struct dt_tensor dresid, struct dt_tensor x,
			      struct dt_tensor mean, struct dt_tensor rstd, struct dt_tensor w);
int dt_cpu_rmsnorm_forward(struct dt_dev *, struct dt_tensor y, struct dt_tensor rstd, struct dt_tensor sum,
			   struct dt_tensor x, struct dt_tensor delta, struct dt_tensor w, float eps);
int dt_cpu_rmsnorm_backward(struct dt_dev *, struct dt_tensor dx, struct dt_tensor dw, struct dt_tensor dy,
			    struct dt_tensor dresid, struct dt_tensor x, struct dt_tensor rstd,
			    struct dt_tensor w);
int dt_cpu_attention_forward(struct dt_dev *, struct dt_tensor o, struct dt_tensor lse, struct dt_tensor qkv,
			     const struct dt_attn *p);
int dt_cpu_attention_backward(struct dt_dev *, struct dt_tensor dqkv, struct dt_tensor dout,
			      struct dt_tensor o, struct dt_tensor lse, struct dt_tensor qkv,
			      const struct dt_attn *p);
int dt_cpu_attention_paged(struct dt_dev *, struct dt_tensor o, struct dt_tensor qkv, struct dt_tensor kcache,
			   struct dt_tensor vcache, const struct dt_attn *p, const struct dt_paged *g);
int dt_cpu_kv_write(struct dt_dev *, struct dt_tensor kcache, struct dt_tensor vcache, struct dt_tensor qkv,
		    const struct dt_attn *p, const int64_t *slot);
int dt_cpu_rope(struct dt_dev *, struct dt_tensor qkv, const struct dt_rope *p, const int32_t *pos,
		bool inverse);
int dt_cpu_act_forward(struct dt_dev *, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f);
int dt_cpu_act_backward(struct dt_dev *, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor x,
			enum dt_act_fn f);
int dt_cpu_gated_forward(struct dt_dev *, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f);
/* y = f(gate) up, n of each */
void dt_cpu_gate(float *y, const float *gate, const float *up, int64_t n, enum dt_act_fn f);
int dt_cpu_gated_backward(struct dt_dev *, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor x,
			  enum dt_act_fn f);
int dt_cpu_embedding_forward(struct dt_dev *, struct dt_tensor y, const int32_t *ids, const int32_t *pos,
			     struct dt_tensor wte, struct dt_tensor wpe, int64_t vocab_first);
int dt_cpu_embedding_backward(struct dt_dev *, struct dt_tensor dwte, struct dt_tensor dwpe,
			      struct dt_tensor dy, const int32_t *ids, const int32_t *pos,
			      int64_t vocab_first);
int dt_cpu_ce_stats(struct dt_dev *, float *rowmax, float *sumexp, float *target_logit,
		    struct dt_tensor logits, const int32_t *targets, int64_t vocab_first);
int dt_cpu_ce_grad(struct dt_dev *, struct dt_tensor dlogits, struct dt_tensor logits, const float *rowmax,
		   const float *sumexp, const int32_t *targets, float scale, int64_t vocab_first);
int dt_cpu_sample(struct dt_dev *, struct dt_drawn *out, struct dt_tensor logits, const struct dt_draw *draw,
		  const struct dt_edit *edit, int64_t nedits);
int dt_cpu_optim_step(struct dt_dev *, const struct dt_optim *o, struct dt_tensor copy, struct dt_tensor p,
		      struct dt_tensor g, struct dt_tensor s1, struct dt_tensor s2);
int dt_cpu_add(struct dt_dev *, struct dt_tensor y, struct dt_tensor a, struct dt_tensor b);
int dt_cpu_axpy(struct dt_dev *, struct dt_tensor y, float a, struct dt_tensor x);
int dt_cpu_scale(struct dt_dev *, struct dt_tensor x, float a);
int dt_cpu_fill(struct dt_dev *, struct dt_tensor x, float value);
int dt_cpu_convert(struct dt_dev *, struct dt_tensor y, struct dt_tensor x);
int dt_cpu_sumsq(struct dt_dev *, double *ret, struct dt_tensor x);
int dt_cpu_fixed_add(struct dt_dev *, int *ret_out, struct dt_tensor sum, struct dt_tensor x);
int dt_cpu_fixed_join(struct dt_dev *, struct dt_tensor sum, struct dt_tensor other);
int dt_cpu_fixed_get(struct dt_dev *, struct dt_tensor y, struct dt_tensor sum);
int dt_cpu_round_random(struct dt_dev *, struct dt_tensor y, struct dt_tensor x, const struct dt_round *p);
int dt_cpu_moe_route(struct dt_dev *, int32_t *expert, float *weight, struct dt_tensor score,
		     const struct dt_moe *p);
int dt_cpu_moe_sort(struct dt_dev *, int32_t *first, int32_t *at, int32_t *from, const int32_t *expert,
		    int64_t choices, int64_t experts);
int dt_cpu_moe_sum(struct dt_dev *, struct dt_tensor y, struct dt_tensor x, const int32_t *at,
		   const float *weight);

DT_INLINE void dt_widen(float *y, const uint16_t *x, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = dt_bf16_to_f32(x[i]);
}

DT_INLINE void dt_narrow(uint16_t *y, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = dt_f32_to_bf16(x[i]);
}

DT_INLINE void dt_widen_half(float *y, const uint16_t *x, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = dt_f16_to_f32(x[i]);
}

DT_INLINE void dt_narrow_half(uint16_t *y, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = dt_f32_to_f16(x[i]);
}

/* The n elements at p (type t) as f32: p itself, or widened into buf. */
DT_INLINE const float *dt_load(float *buf, const void *p, enum dt_dtype t, int64_t n)
{
	if (t == DT_F32)
		return p;
	if (t == DT_F16)
		dt_widen_half(buf, p, n);
	else
		dt_widen(buf, p, n);
	return buf;
}

/* Where f32 results for p (type t) go: p itself, or buf, which dt_store then rounds into p. */
DT_INLINE float *dt_stage(float *buf, void *p, enum dt_dtype t)
{
	return t == DT_F32 ? p : buf;
}

DT_INLINE void dt_store(void *p, enum dt_dtype t, const float *buf, int64_t n)
{
	if (t == DT_F16)
		dt_narrow_half(p, buf, n);
	else if (t != DT_F32)
		dt_narrow(p, buf, n);
}

#endif
