/* The CUDA device of a build without CUDA: it cannot be opened, and every op answers -ENOTSUP. */
#include "kernels/backend.h"
#include "kernels/ops.h"

#include <errno.h>

static int no_open(struct dt_dev **ret, int index, int nthreads)
{
	return -ENOTSUP;
}

static int no_count(void)
{
	return 0;
}

const struct dt_backend dt_backend_cuda = {.count = no_count, .open = no_open};

static int no_matmul(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, bool ta, struct dt_tensor b,
		     bool tb, struct dt_tensor bias, bool accumulate)
{
	return -ENOTSUP;
}

static int no_colsum(struct dt_dev *dev, struct dt_tensor out, struct dt_tensor x)
{
	return -ENOTSUP;
}

static int no_matmul_act(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor u, struct dt_tensor x,
			 struct dt_tensor w, struct dt_tensor bias, enum dt_act_fn f)
{
	return -ENOTSUP;
}

static int no_fp8_quantize(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor yt, float *scale,
			   struct dt_tensor x)
{
	return -ENOTSUP;
}

static int no_matmul_act_backward(struct dt_dev *dev, struct dt_tensor du, struct dt_tensor dy,
				  struct dt_tensor w, struct dt_tensor u, enum dt_act_fn f)
{
	return -ENOTSUP;
}

static int no_fp8_matmul(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, const float *sa,
			 struct dt_tensor b, const float *sb, struct dt_tensor bias, bool accumulate)
{
	return -ENOTSUP;
}

static int no_layernorm_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor mean,
				struct dt_tensor rstd, struct dt_tensor sum, struct dt_tensor x,
				struct dt_tensor delta, struct dt_tensor w, struct dt_tensor b, float eps)
{
	return -ENOTSUP;
}

static int no_layernorm_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw,
				 struct dt_tensor db, struct dt_tensor dy, struct dt_tensor dresid,
				 struct dt_tensor x, struct dt_tensor mean, struct dt_tensor rstd,
				 struct dt_tensor w)
{
	return -ENOTSUP;
}

static int no_rmsnorm_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor rstd,
			      struct dt_tensor sum, struct dt_tensor x, struct dt_tensor delta,
			      struct dt_tensor w, float eps)
{
	return -ENOTSUP;
}

static int no_rmsnorm_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw,
			       struct dt_tensor dy, struct dt_tensor dresid, struct dt_tensor x,
			       struct dt_tensor rstd, struct dt_tensor w)
{
	return -ENOTSUP;
}

static int no_attention_forward(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse,
				struct dt_tensor qkv, const struct dt_attn *p)
{
	return -ENOTSUP;
}

static int no_attention_backward(struct dt_dev *dev, struct dt_tensor dqkv, struct dt_tensor dout,
				 struct dt_tensor o, struct dt_tensor lse, struct dt_tensor qkv,
				 const struct dt_attn *p)
{
	return -ENOTSUP;
}

static int no_attention_paged(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor qkv,
			      struct dt_tensor kcache, struct dt_tensor vcache, const struct dt_attn *p,
			      const struct dt_paged *g)
{
	return -ENOTSUP;
}

static int no_kv_write(struct dt_dev *dev, struct dt_tensor kcache, struct dt_tensor vcache,
		       struct dt_tensor qkv, const struct dt_attn *p, const int64_t *slot)
{
	return -ENOTSUP;
}

static int no_rope(struct dt_dev *dev, struct dt_tensor qkv, const struct dt_rope *p, const int32_t *pos,
		   bool inverse)
{
	return -ENOTSUP;
}

static int no_act_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f)
{
	return -ENOTSUP;
}

static int no_act_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor x,
			   enum dt_act_fn f)
{
	return -ENOTSUP;
}

static int no_gated_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f)
{
	return -ENOTSUP;
}

static int no_gated_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor x,
			     enum dt_act_fn f)
{
	return -ENOTSUP;
}

static int no_embedding_forward(struct dt_dev *dev, struct dt_tensor y, const int32_t *ids,
				const int32_t *pos, struct dt_tensor wte, struct dt_tensor wpe,
				int64_t vocab_first)
{
	return -ENOTSUP;
}

static int no_embedding_backward(struct dt_dev *dev, struct dt_tensor dwte, struct dt_tensor dwpe,
				 struct dt_tensor dy, const int32_t *ids, const int32_t *pos,
				 int64_t vocab_first)
{
	return -ENOTSUP;
}

static int no_ce_stats(struct dt_dev *dev, float *rowmax, float *sumexp, float *target_logit,
		       struct dt_tensor logits, const int32_t *targets, int64_t vocab_first)
{
	return -ENOTSUP;
}

static int no_ce_grad(struct dt_dev *dev, struct dt_tensor dlogits, struct dt_tensor logits,
		      const float *rowmax, const float *sumexp, const int32_t *targets, float scale,
		      int64_t vocab_first)
{
	return -ENOTSUP;
}

static int no_sample(struct dt_dev *dev, struct dt_drawn *out, struct dt_tensor logits,
		     const struct dt_draw *draw, const struct dt_edit *edit, int64_t nedits)
{
	return -ENOTSUP;
}

static int no_optim_step(struct dt_dev *dev, const struct dt_optim *o, struct dt_tensor copy,
			 struct dt_tensor p, struct dt_tensor g, struct dt_tensor s1, struct dt_tensor s2)
{
	return -ENOTSUP;
}

static int no_add(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor a, struct dt_tensor b)
{
	return -ENOTSUP;
}

static int no_axpy(struct dt_dev *dev, struct dt_tensor y, float a, struct dt_tensor x)
{
	return -ENOTSUP;
}

static int no_scale(struct dt_dev *dev, struct dt_tensor x, float a)
{
	return -ENOTSUP;
}

static int no_fill(struct dt_dev *dev, struct dt_tensor x, float value)
{
	return -ENOTSUP;
}

static int no_convert(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x)
{
	return -ENOTSUP;
}

static int no_sumsq(struct dt_dev *dev, double *ret, struct dt_tensor x)
{
	return -ENOTSUP;
}

static int no_fixed_add(struct dt_dev *dev, int *ret_out, struct dt_tensor sum, struct dt_tensor x)
{
	return -ENOTSUP;
}

static int no_fixed_join(struct dt_dev *dev, struct dt_tensor sum, struct dt_tensor other)
{
	return -ENOTSUP;
}

static int no_fixed_get(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor sum)
{
	return -ENOTSUP;
}

static int no_round_random(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			   const struct dt_round *p)
{
	return -ENOTSUP;
}

static int no_moe_route(struct dt_dev *dev, int32_t *expert, float *weight, struct dt_tensor score,
			const struct dt_moe *p)
{
	return -ENOTSUP;
}

static int no_moe_sort(struct dt_dev *dev, int32_t *first, int32_t *at, int32_t *from, const int32_t *expert,
		       int64_t choices, int64_t experts)
{
	return -ENOTSUP;
}

static int no_moe_sum(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const int32_t *at,
		      const float *weight)
{
	return -ENOTSUP;
}

const struct dt_ops dt_ops_cuda = {
	.matmul = no_matmul,
	.colsum = no_colsum,
	.matmul_act = no_matmul_act,
	.matmul_act_backward = no_matmul_act_backward,
	.fp8_quantize = no_fp8_quantize,
	.fp8_matmul = no_fp8_matmul,
	.layernorm_forward = no_layernorm_forward,
	.layernorm_backward = no_layernorm_backward,
	.rmsnorm_forward = no_rmsnorm_forward,
	.rmsnorm_backward = no_rmsnorm_backward,
	.attention_forward = no_attention_forward,
	.attention_backward = no_attention_backward,
	.attention_paged = no_attention_paged,
	.kv_write = no_kv_write,
	.rope = no_rope,
	.act_forward = no_act_forward,
	.act_backward = no_act_backward,
	.gated_forward = no_gated_forward,
	.gated_backward = no_gated_backward,
	.embedding_forward = no_embedding_forward,
	.embedding_backward = no_embedding_backward,
	.ce_stats = no_ce_stats,
	.ce_grad = no_ce_grad,
	.sample = no_sample,
	.optim_step = no_optim_step,
	.add = no_add,
	.axpy = no_axpy,
	.scale = no_scale,
	.fill = no_fill,
	.convert = no_convert,
	.sumsq = no_sumsq,
	.fixed_add = no_fixed_add,
	.fixed_join = no_fixed_join,
	.fixed_get = no_fixed_get,
	.round_random = no_round_random,
	.moe_route = no_moe_route,
	.moe_sort = no_moe_sort,
	.moe_sum = no_moe_sum,
};
