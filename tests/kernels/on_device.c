#include "on_device.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool on_device(void)
{
	const char *s = getenv("DT_TEST_DEVICE");

	return s && !strcmp(s, "cuda");
}

#define SPANS 16

/* Memory of the host that a call names, each byte once, and where it lies on the device. */
struct span {
	char *host, *dev;
	void *base;
	size_t n;
	bool written;
};

struct call {
	struct dt_dev *dev;
	struct span span[SPANS];
	int n;
};

static void fatal(const char *what)
{
	fprintf(stderr, "on_device: %s failed\n", what);
	abort();
}

/* The call names n bytes at p; what overlaps is one span. */
static void use(struct call *c, const void *p, size_t n, bool written)
{
	struct span s = {.host = (char *)p, .n = n, .written = written};

	if (!p || !n)
		return;
	for (int i = 0; i < c->n; i++) {
		struct span *o = &c->span[i];

		if (s.host < o->host + o->n && o->host < s.host + s.n) {
			char *end = s.host + s.n > o->host + o->n ? s.host + s.n : o->host + o->n;

			s.host = s.host < o->host ? s.host : o->host;
			s.n = (size_t)(end - s.host);
			s.written |= o->written;
			*o = c->span[--c->n];
			i = -1;
		}
	}
	if (c->n == SPANS)
		fatal("too many arguments: this");
	c->span[c->n++] = s;
}

static void use_tensor(struct call *c, struct dt_tensor t, bool written)
{
	use(c, t.data, (size_t)(dt_numel(t) * dt_dtype_size(t.dtype)), written);
}

static void place(struct call *c)
{
	for (int i = 0; i < c->n; i++) {
		struct span *s = &c->span[i];
		const size_t off = (uintptr_t)s->host % 16;

		if (dt_dev_alloc(c->dev, &s->base, off + s->n) < 0)
			fatal("allocation");
		s->dev = (char *)s->base + off;
		if (dt_dev_copy(c->dev, s->dev, s->host, s->n) < 0)
			fatal("copy");
	}
}

static void *there(const struct call *c, const void *p)
{
	for (int i = 0; i < c->n; i++) {
		const struct span *s = &c->span[i];

		if ((const char *)p >= s->host && (const char *)p < s->host + s->n)
			return s->dev + ((const char *)p - s->host);
	}
	return (void *)p; /* absent, or empty */
}

static struct dt_tensor tensor_there(const struct call *c, struct dt_tensor t)
{
	t.data = there(c, t.data);
	return t;
}

/* The call returned rc: what it wrote comes back. An error that only the kernel met is the call's. */
static int bring(struct call *c, int rc)
{
	int late;

	for (int i = 0; i < c->n; i++)
		if (c->span[i].written &&
		    dt_dev_copy(c->dev, c->span[i].host, c->span[i].dev, c->span[i].n) < 0)
			fatal("copy");
	late = dt_dev_sync(c->dev);
	for (int i = 0; i < c->n; i++)
		dt_dev_free(c->dev, c->span[i].base);
	return rc < 0 ? rc : late;
}

static int on_matmul(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, bool ta, struct dt_tensor b,
		     bool tb, struct dt_tensor bias, bool accumulate)
{
	struct call call = {.dev = dev};

	use_tensor(&call, c, true);
	use_tensor(&call, a, false);
	use_tensor(&call, b, false);
	use_tensor(&call, bias, false);
	place(&call);
	return bring(&call,
		     dt_ops_cuda.matmul(dev, tensor_there(&call, c), tensor_there(&call, a), ta,
					tensor_there(&call, b), tb, tensor_there(&call, bias), accumulate));
}

static int on_matmul_act(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor u, struct dt_tensor x,
			 struct dt_tensor w, struct dt_tensor bias, enum dt_act_fn f)
{
	struct call call = {.dev = dev};

	use_tensor(&call, y, true);
	use_tensor(&call, u, true);
	use_tensor(&call, x, false);
	use_tensor(&call, w, false);
	use_tensor(&call, bias, false);
	place(&call);
	return bring(&call, dt_ops_cuda.matmul_act(dev, tensor_there(&call, y), tensor_there(&call, u),
						   tensor_there(&call, x), tensor_there(&call, w),
						   tensor_there(&call, bias), f));
}

static int on_matmul_act_backward(struct dt_dev *dev, struct dt_tensor du, struct dt_tensor dy,
				  struct dt_tensor w, struct dt_tensor u, enum dt_act_fn f)
{
	struct call call = {.dev = dev};

	use_tensor(&call, du, true);
	use_tensor(&call, dy, false);
	use_tensor(&call, w, false);
	use_tensor(&call, u, false);
	place(&call);
	return bring(&call,
		     dt_ops_cuda.matmul_act_backward(dev, tensor_there(&call, du), tensor_there(&call, dy),
						     tensor_there(&call, w), tensor_there(&call, u), f));
}

static int on_colsum(struct dt_dev *dev, struct dt_tensor out, struct dt_tensor x)
{
	struct call call = {.dev = dev};

	use_tensor(&call, out, true);
	use_tensor(&call, x, false);
	place(&call);
	return bring(&call, dt_ops_cuda.colsum(dev, tensor_there(&call, out), tensor_there(&call, x)));
}

static int on_fp8_quantize(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor yt, float *scale,
			   struct dt_tensor x)
{
	struct call call = {.dev = dev};

	use_tensor(&call, y, true);
	use_tensor(&call, yt, true);
	use(&call, scale, sizeof *scale, true);
	use_tensor(&call, x, false);
	place(&call);
	return bring(&call, dt_ops_cuda.fp8_quantize(dev, tensor_there(&call, y), tensor_there(&call, yt),
						     there(&call, scale), tensor_there(&call, x)));
}

static int on_fp8_matmul(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, const float *sa,
			 struct dt_tensor b, const float *sb, struct dt_tensor bias, bool accumulate)
{
	struct call call = {.dev = dev};

	use_tensor(&call, c, true);
	use_tensor(&call, a, false);
	use(&call, sa, sizeof *sa, false);
	use_tensor(&call, b, false);
	use(&call, sb, sizeof *sb, false);
	use_tensor(&call, bias, false);
	place(&call);
	return bring(&call, dt_ops_cuda.fp8_matmul(dev, tensor_there(&call, c), tensor_there(&call, a),
						   there(&call, sa), tensor_there(&call, b), there(&call, sb),
						   tensor_there(&call, bias), accumulate));
}

static int on_layernorm_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor mean,
				struct dt_tensor rstd, struct dt_tensor sum, struct dt_tensor x,
				struct dt_tensor delta, struct dt_tensor w, struct dt_tensor b, float eps)
{
	struct call call = {.dev = dev};

	use_tensor(&call, y, true);
	use_tensor(&call, mean, true);
	use_tensor(&call, rstd, true);
	use_tensor(&call, sum, true);
	use_tensor(&call, x, true);
	use_tensor(&call, delta, true);
	use_tensor(&call, w, false);
	use_tensor(&call, b, false);
	place(&call);
	return bring(&call,
		     dt_ops_cuda.layernorm_forward(dev, tensor_there(&call, y), tensor_there(&call, mean),
						   tensor_there(&call, rstd), tensor_there(&call, sum),
						   tensor_there(&call, x), tensor_there(&call, delta),
						   tensor_there(&call, w), tensor_there(&call, b), eps));
}

static int on_layernorm_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw,
				 struct dt_tensor db, struct dt_tensor dy, struct dt_tensor dresid,
				 struct dt_tensor x, struct dt_tensor mean, struct dt_tensor rstd,
				 struct dt_tensor w)
{
	struct call call = {.dev = dev};

	use_tensor(&call, dx, true);
	use_tensor(&call, dw, true);
	use_tensor(&call, db, true);
	use_tensor(&call, dy, true);
	use_tensor(&call, dresid, true);
	use_tensor(&call, x, false);
	use_tensor(&call, mean, false);
	use_tensor(&call, rstd, false);
	use_tensor(&call, w, false);
	place(&call);
	return bring(&call,
		     dt_ops_cuda.layernorm_backward(
			     dev, tensor_there(&call, dx), tensor_there(&call, dw), tensor_there(&call, db),
			     tensor_there(&call, dy), tensor_there(&call, dresid), tensor_there(&call, x),
			     tensor_there(&call, mean), tensor_there(&call, rstd), tensor_there(&call, w)));
}

static int on_rmsnorm_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor rstd,
			      struct dt_tensor sum, struct dt_tensor x, struct dt_tensor delta,
			      struct dt_tensor w, float eps)
{
	struct call call = {.dev = dev};

	use_tensor(&call, y, true);
	use_tensor(&call, rstd, true);
	use_tensor(&call, sum, true);
	use_tensor(&call, x, true);
	use_tensor(&call, delta, true);
	use_tensor(&call, w, false);
	place(&call);
	return bring(&call,
		     dt_ops_cuda.rmsnorm_forward(dev, tensor_there(&call, y), tensor_there(&call, rstd),
						 tensor_there(&call, sum), tensor_there(&call, x),
						 tensor_there(&call, delta), tensor_there(&call, w), eps));
}

static int on_rmsnorm_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw,
			       struct dt_tensor dy, struct dt_tensor dresid, struct dt_tensor x,
			       struct dt_tensor rstd, struct dt_tensor w)
{
	struct call call = {.dev = dev};

	use_tensor(&call, dx, true);
	use_tensor(&call, dw, true);
	use_tensor(&call, dy, true);
	use_tensor(&call, dresid, true);
	use_tensor(&call, x, false);
	use_tensor(&call, rstd, false);
	use_tensor(&call, w, false);
	place(&call);
	return bring(&call, dt_ops_cuda.rmsnorm_backward(dev, tensor_there(&call, dx),
							 tensor_there(&call, dw), tensor_there(&call, dy),
							 tensor_there(&call, dresid), tensor_there(&call, x),
							 tensor_there(&call, rstd), tensor_there(&call, w)));
}

static int on_attention_forward(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse,
				struct dt_tensor qkv, const struct dt_attn *p)
{
	struct call call = {.dev = dev};

	use_tensor(&call, o, true);
	use_tensor(&call, lse, true);
	use_tensor(&call, qkv, false);
	place(&call);
	return bring(&call,
		     dt_ops_cuda.attention_forward(dev, tensor_there(&call, o), tensor_there(&call, lse),
						   tensor_there(&call, qkv), p));
}

static int on_attention_backward(struct dt_dev *dev, struct dt_tensor dqkv, struct dt_tensor dout,
				 struct dt_tensor o, struct dt_tensor lse, struct dt_tensor qkv,
				 const struct dt_attn *p)
{
	struct call call = {.dev = dev};

	use_tensor(&call, dqkv, true);
	use_tensor(&call, dout, false);
	use_tensor(&call, o, false);
	use_tensor(&call, lse, false);
	use_tensor(&call, qkv, false);
	place(&call);
	return bring(&call,
		     dt_ops_cuda.attention_backward(dev, tensor_there(&call, dqkv), tensor_there(&call, dout),
						    tensor_there(&call, o), tensor_there(&call, lse),
						    tensor_there(&call, qkv), p));
}

static int on_attention_paged(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor qkv,
			      struct dt_tensor kcache, struct dt_tensor vcache, const struct dt_attn *p,
			      const struct dt_paged *g)
{
	struct call call = {.dev = dev};

	use_tensor(&call, o, true);
	use_tensor(&call, qkv, false);
	use_tensor(&call, kcache, false);
	use_tensor(&call, vcache, false);
	place(&call);
	return bring(&call, dt_ops_cuda.attention_paged(dev, tensor_there(&call, o), tensor_there(&call, qkv),
							tensor_there(&call, kcache),
							tensor_there(&call, vcache), p, g));
}

static int on_kv_write(struct dt_dev *dev, struct dt_tensor kcache, struct dt_tensor vcache,
		       struct dt_tensor qkv, const struct dt_attn *p, const int64_t *slot)
{
	struct call call = {.dev = dev};

	use_tensor(&call, kcache, true);
	use_tensor(&call, vcache, true);
	use_tensor(&call, qkv, false);
	place(&call);
	return bring(&call,
		     dt_ops_cuda.kv_write(dev, tensor_there(&call, kcache), tensor_there(&call, vcache),
					  tensor_there(&call, qkv), p, slot));
}

static int on_act_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f)
{
	struct call call = {.dev = dev};

	use_tensor(&call, y, true);
	use_tensor(&call, x, true);
	place(&call);
	return bring(&call, dt_ops_cuda.act_forward(dev, tensor_there(&call, y), tensor_there(&call, x), f));
}

static int on_act_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor x,
			   enum dt_act_fn f)
{
	struct call call = {.dev = dev};

	use_tensor(&call, dx, true);
	use_tensor(&call, dy, true);
	use_tensor(&call, x, false);
	place(&call);
	return bring(&call, dt_ops_cuda.act_backward(dev, tensor_there(&call, dx), tensor_there(&call, dy),
						     tensor_there(&call, x), f));
}

static int on_gated_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f)
{
	struct call call = {.dev = dev};

	use_tensor(&call, y, true);
	use_tensor(&call, x, false);
	place(&call);
	return bring(&call,
		     dt_ops_cuda.gated_forward(dev, tensor_there(&call, y), tensor_there(&call, x), f));
}

static int on_gated_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor x,
			     enum dt_act_fn f)
{
	struct call call = {.dev = dev};

	use_tensor(&call, dx, true);
	use_tensor(&call, dy, false);
	use_tensor(&call, x, true);
	place(&call);
	return bring(&call, dt_ops_cuda.gated_backward(dev, tensor_there(&call, dx), tensor_there(&call, dy),
						       tensor_there(&call, x), f));
}

static int on_optim_step(struct dt_dev *dev, const struct dt_optim *o, struct dt_tensor copy,
			 struct dt_tensor p, struct dt_tensor g, struct dt_tensor s1, struct dt_tensor s2)
{
	struct call call = {.dev = dev};

	use_tensor(&call, copy, true);
	use_tensor(&call, p, true);
	use_tensor(&call, g, false);
	use_tensor(&call, s1, true);
	use_tensor(&call, s2, true);
	place(&call);
	return bring(&call, dt_ops_cuda.optim_step(dev, o, tensor_there(&call, copy), tensor_there(&call, p),
						   tensor_there(&call, g), tensor_there(&call, s1),
						   tensor_there(&call, s2)));
}

static int on_add(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor a, struct dt_tensor b)
{
	struct call call = {.dev = dev};

	use_tensor(&call, y, true);
	use_tensor(&call, a, true);
	use_tensor(&call, b, true);
	place(&call);
	return bring(&call, dt_ops_cuda.add(dev, tensor_there(&call, y), tensor_there(&call, a),
					    tensor_there(&call, b)));
}

static int on_axpy(struct dt_dev *dev, struct dt_tensor y, float a, struct dt_tensor x)
{
	struct call call = {.dev = dev};

	use_tensor(&call, y, true);
	use_tensor(&call, x, false);
	place(&call);
	return bring(&call, dt_ops_cuda.axpy(dev, tensor_there(&call, y), a, tensor_there(&call, x)));
}

static int on_scale(struct dt_dev *dev, struct dt_tensor x, float a)
{
	struct call call = {.dev = dev};

	use_tensor(&call, x, true);
	place(&call);
	return bring(&call, dt_ops_cuda.scale(dev, tensor_there(&call, x), a));
}

static int on_fill(struct dt_dev *dev, struct dt_tensor x, float value)
{
	struct call call = {.dev = dev};

	use_tensor(&call, x, true);
	place(&call);
	return bring(&call, dt_ops_cuda.fill(dev, tensor_there(&call, x), value));
}

static int on_convert(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x)
{
	struct call call = {.dev = dev};

	use_tensor(&call, y, true);
	use_tensor(&call, x, true);
	place(&call);
	return bring(&call, dt_ops_cuda.convert(dev, tensor_there(&call, y), tensor_there(&call, x)));
}

static int on_sumsq(struct dt_dev *dev, double *ret, struct dt_tensor x)
{
	struct call call = {.dev = dev};

	use_tensor(&call, x, false);
	place(&call);
	return bring(&call, dt_ops_cuda.sumsq(dev, ret, tensor_there(&call, x)));
}

static int on_rope(struct dt_dev *dev, struct dt_tensor qkv, const struct dt_rope *p, const int32_t *pos,
		   bool inverse)
{
	struct call call = {.dev = dev};
	const size_t table = (size_t)(p->positions * (p->rot_dim / 2)) * sizeof(float);
	struct dt_rope q = *p;

	use_tensor(&call, qkv, true);
	use(&call, p->cos, table, false);
	use(&call, p->sin, table, false);
	use(&call, pos, (size_t)qkv.dim[0] * sizeof *pos, false);
	place(&call);
	q.cos = there(&call, p->cos);
	q.sin = there(&call, p->sin);
	return bring(&call, dt_ops_cuda.rope(dev, tensor_there(&call, qkv), &q, there(&call, pos), inverse));
}

static int on_embedding_forward(struct dt_dev *dev, struct dt_tensor y, const int32_t *ids,
				const int32_t *pos, struct dt_tensor wte, struct dt_tensor wpe,
				int64_t vocab_first)
{
	struct call call = {.dev = dev};

	use_tensor(&call, y, true);
	use_tensor(&call, wte, false);
	use_tensor(&call, wpe, false);
	use(&call, ids, (size_t)y.dim[0] * sizeof *ids, false);
	use(&call, pos, (size_t)y.dim[0] * sizeof *pos, false);
	place(&call);
	return bring(&call, dt_ops_cuda.embedding_forward(dev, tensor_there(&call, y), there(&call, ids),
							  there(&call, pos), tensor_there(&call, wte),
							  tensor_there(&call, wpe), vocab_first));
}

static int on_embedding_backward(struct dt_dev *dev, struct dt_tensor dwte, struct dt_tensor dwpe,
				 struct dt_tensor dy, const int32_t *ids, const int32_t *pos,
				 int64_t vocab_first)
{
	struct call call = {.dev = dev};

	use_tensor(&call, dwte, true);
	use_tensor(&call, dwpe, true);
	use_tensor(&call, dy, false);
	use(&call, ids, (size_t)dy.dim[0] * sizeof *ids, false);
	use(&call, pos, (size_t)dy.dim[0] * sizeof *pos, false);
	place(&call);
	return bring(&call,
		     dt_ops_cuda.embedding_backward(dev, tensor_there(&call, dwte), tensor_there(&call, dwpe),
						    tensor_there(&call, dy), there(&call, ids),
						    there(&call, pos), vocab_first));
}

static int on_ce_stats(struct dt_dev *dev, float *rowmax, float *sumexp, float *target_logit,
		       struct dt_tensor logits, const int32_t *targets, int64_t vocab_first)
{
	struct call call = {.dev = dev};
	const size_t n = (size_t)logits.dim[0] * 4;

	use(&call, rowmax, n, true);
	use(&call, sumexp, n, true);
	use(&call, target_logit, n, true);
	use(&call, targets, n, false);
	use_tensor(&call, logits, false);
	place(&call);
	return bring(&call, dt_ops_cuda.ce_stats(dev, there(&call, rowmax), there(&call, sumexp),
						 there(&call, target_logit), tensor_there(&call, logits),
						 there(&call, targets), vocab_first));
}

static int on_sample(struct dt_dev *dev, struct dt_drawn *out, struct dt_tensor logits,
		     const struct dt_draw *draw, const struct dt_edit *edit, int64_t nedits)
{
	struct call call = {.dev = dev};

	use(&call, out, (size_t)logits.dim[0] * sizeof *out, true);
	use_tensor(&call, logits, true);
	place(&call);
	return bring(&call, dt_ops_cuda.sample(dev, there(&call, out), tensor_there(&call, logits), draw,
					       edit, nedits));
}

static int on_ce_grad(struct dt_dev *dev, struct dt_tensor dlogits, struct dt_tensor logits,
		      const float *rowmax, const float *sumexp, const int32_t *targets, float scale,
		      int64_t vocab_first)
{
	struct call call = {.dev = dev};
	const size_t n = (size_t)logits.dim[0] * 4;

	use(&call, rowmax, n, false);
	use(&call, sumexp, n, false);
	use(&call, targets, n, false);
	use_tensor(&call, logits, true);
	use_tensor(&call, dlogits, true);
	place(&call);
	return bring(&call,
		     dt_ops_cuda.ce_grad(dev, tensor_there(&call, dlogits), tensor_there(&call, logits),
					 there(&call, rowmax), there(&call, sumexp), there(&call, targets),
					 scale, vocab_first));
}

static int on_fixed_add(struct dt_dev *dev, int *ret_out, struct dt_tensor sum, struct dt_tensor x)
{
	struct call call = {.dev = dev};

	use_tensor(&call, sum, true);
	use_tensor(&call, x, false);
	place(&call);
	return bring(&call,
		     dt_ops_cuda.fixed_add(dev, ret_out, tensor_there(&call, sum), tensor_there(&call, x)));
}

static int on_fixed_join(struct dt_dev *dev, struct dt_tensor sum, struct dt_tensor other)
{
	struct call call = {.dev = dev};

	use_tensor(&call, sum, true);
	use_tensor(&call, other, false);
	place(&call);
	return bring(&call,
		     dt_ops_cuda.fixed_join(dev, tensor_there(&call, sum), tensor_there(&call, other)));
}

static int on_fixed_get(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor sum)
{
	struct call call = {.dev = dev};

	use_tensor(&call, y, true);
	use_tensor(&call, sum, false);
	place(&call);
	return bring(&call, dt_ops_cuda.fixed_get(dev, tensor_there(&call, y), tensor_there(&call, sum)));
}

static int on_round_random(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			   const struct dt_round *p)
{
	struct call call = {.dev = dev};

	use_tensor(&call, y, true);
	use_tensor(&call, x, false);
	place(&call);
	return bring(&call, dt_ops_cuda.round_random(dev, tensor_there(&call, y), tensor_there(&call, x), p));
}

static int on_moe_route(struct dt_dev *dev, int32_t *expert, float *weight, struct dt_tensor score,
			const struct dt_moe *p)
{
	struct call call = {.dev = dev};
	const size_t n = (size_t)(score.dim[0] * p->used) * 4;

	use(&call, expert, n, true);
	use(&call, weight, n, true);
	use_tensor(&call, score, false);
	place(&call);
	return bring(&call, dt_ops_cuda.moe_route(dev, there(&call, expert), there(&call, weight),
						  tensor_there(&call, score), p));
}

static int on_moe_sort(struct dt_dev *dev, int32_t *first, int32_t *at, int32_t *from, const int32_t *expert,
		       int64_t choices, int64_t experts)
{
	struct call call = {.dev = dev};

	use(&call, first, (size_t)(experts + 1) * 4, true);
	use(&call, at, (size_t)choices * 4, true);
	use(&call, from, (size_t)choices * 4, true);
	use(&call, expert, (size_t)choices * 4, false);
	place(&call);
	return bring(&call, dt_ops_cuda.moe_sort(dev, there(&call, first), there(&call, at),
						 there(&call, from), there(&call, expert), choices, experts));
}

static int on_moe_sum(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const int32_t *at,
		      const float *weight)
{
	struct call call = {.dev = dev};

	use_tensor(&call, y, true);
	use_tensor(&call, x, false);
	use(&call, at, (size_t)x.dim[0] * sizeof *at, false);
	use(&call, weight, (size_t)x.dim[0] * sizeof *weight, false);
	place(&call);
	return bring(&call, dt_ops_cuda.moe_sum(dev, tensor_there(&call, y), tensor_there(&call, x),
						there(&call, at), there(&call, weight)));
}

const struct dt_ops on_device_ops = {
	.matmul = on_matmul,
	.matmul_act = on_matmul_act,
	.matmul_act_backward = on_matmul_act_backward,
	.colsum = on_colsum,
	.fp8_quantize = on_fp8_quantize,
	.fp8_matmul = on_fp8_matmul,
	.layernorm_forward = on_layernorm_forward,
	.layernorm_backward = on_layernorm_backward,
	.rmsnorm_forward = on_rmsnorm_forward,
	.rmsnorm_backward = on_rmsnorm_backward,
	.attention_forward = on_attention_forward,
	.attention_backward = on_attention_backward,
	.attention_paged = on_attention_paged,
	.kv_write = on_kv_write,
	.act_forward = on_act_forward,
	.act_backward = on_act_backward,
	.gated_forward = on_gated_forward,
	.gated_backward = on_gated_backward,
	.optim_step = on_optim_step,
	.add = on_add,
	.axpy = on_axpy,
	.scale = on_scale,
	.fill = on_fill,
	.convert = on_convert,
	.sumsq = on_sumsq,
	.rope = on_rope,
	.embedding_forward = on_embedding_forward,
	.embedding_backward = on_embedding_backward,
	.ce_stats = on_ce_stats,
	.ce_grad = on_ce_grad,
	.fixed_add = on_fixed_add,
	.fixed_join = on_fixed_join,
	.fixed_get = on_fixed_get,
	.round_random = on_round_random,
	.moe_route = on_moe_route,
	.moe_sort = on_moe_sort,
	.moe_sum = on_moe_sum,
	.sample = on_sample,
};

int on_packed_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const struct dt_packed *w,
		     struct dt_tensor bias)
{
	struct call call = {.dev = dev};

	use_tensor(&call, y, true);
	use_tensor(&call, x, false);
	use_tensor(&call, bias, false);
	place(&call);
	return bring(&call, dt_packed_matmul(dev, tensor_there(&call, y), tensor_there(&call, x), w,
					     tensor_there(&call, bias)));
}

int on_packed_embed(struct dt_dev *dev, struct dt_tensor y, const struct dt_packed *w, const int32_t *ids,
		    float scale)
{
	struct call call = {.dev = dev};

	use_tensor(&call, y, true);
	use(&call, ids, (size_t)(dt_numel(y) / dt_packed_k(w)) * sizeof *ids, false);
	place(&call);
	return bring(&call, dt_packed_embed(dev, tensor_there(&call, y), w, there(&call, ids), scale));
}

int on_packed_set_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			 const struct dt_packed_set *s, int n, const struct dt_meet *p)
{
	struct call call = {.dev = dev};
	struct dt_meet q = *p;

	use_tensor(&call, y, true);
	use_tensor(&call, x, false);
	use(&call, p->first, (size_t)(n + 1) * 4, false);
	use(&call, p->at, (size_t)y.dim[0] * 4, false);
	use(&call, p->from, (size_t)y.dim[0] * 4, false);
	place(&call);
	q.first = there(&call, p->first);
	q.at = there(&call, p->at);
	q.from = there(&call, p->from);
	return bring(&call, dt_packed_set_matmul(dev, tensor_there(&call, y), tensor_there(&call, x), s, &q));
}
