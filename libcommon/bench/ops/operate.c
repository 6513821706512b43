#include "bench/ops/operate.h"

#include "kernels/quant_formats.h"
#include "plan/optimes.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { IDS = 1 << 16 };
#define POOL ((size_t)224 << 20)

static size_t bytes_of(enum dt_dtype t, int64_t r, int64_t c)
{
	return ((size_t)(r * c * dt_dtype_size(t)) + 63) / 64 * 64;
}

static struct dt_tensor take(struct dt_bench_pool *p, enum dt_dtype t, int64_t r, int64_t c)
{
	size_t n = bytes_of(t, r, c);
	struct dt_tensor x;

	if (p->at + n > p->size || (p->at > 0 && p->at + n > p->window))
		p->at = 0;
	x = dt_t2(p->p + p->at, t, r, c);
	p->at += n;
	p->dirty = p->at > p->dirty ? p->at : p->dirty;
	return x;
}

static struct dt_tensor flat(struct dt_bench_pool *p, enum dt_dtype t, int64_t n)
{
	struct dt_tensor x = take(p, t, 1, n);

	return dt_t1(x.data, t, n);
}

/* Fills a pool with small numbers that are valid in both types: pairs of bf16, which are also f32. */
void dt_bench_pool_fill(struct dt_bench_pool *p)
{
	uint16_t *w = (uint16_t *)p->p;

	for (size_t i = 0; i < p->dirty / 4; i++)
		w[2 * i] = w[2 * i + 1] =
			(uint16_t)(0x3c00 + (i * 2654435761u >> 20 & 0x1ff) + (i & 1) * 0x8000);
	p->at = p->dirty = 0;
}

static int pool_init(struct dt_bench_pool *p, size_t window)
{
	void *at = mmap(NULL, POOL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return -ENOMEM;
	*p = (struct dt_bench_pool){.p = at, .size = POOL, .window = window, .dirty = POOL};
	dt_bench_pool_fill(p);
	return 0;
}

static int product(struct dt_bench_bed *b, enum dt_timed op, const int64_t n[3])
{
	enum dt_dtype t = b->type, head = op == DT_T_HEAD ? DT_F32 : t;
	struct dt_tensor x, y, w;

	if (op == DT_T_MUL || op == DT_T_HEAD) {
		x = take(&b->in, t, n[0], n[2]);
		w = take(&b->w, t, n[1], n[2]);
		y = take(&b->out, head, n[0], n[1]);
		return b->dev->ops->matmul(b->dev, y, x, false, w, true,
					   op == DT_T_MUL ? flat(&b->in, t, n[1]) : DT_NONE, false);
	}
	if (op == DT_T_MUL_X || op == DT_T_HEAD_X) {
		int64_t cols = op == DT_T_HEAD_X ? n[2] : n[1], from = op == DT_T_HEAD_X ? n[1] : n[2];

		x = take(&b->in, t, n[0], from);
		w = take(&b->w, t, from, cols);
		y = take(&b->out, t, n[0], cols);
		return b->dev->ops->matmul(b->dev, y, x, false, w, false, DT_NONE, false);
	}
	x = take(&b->in, t, n[0], n[1]);
	w = take(&b->in, t, n[0], n[2]);
	y = take(&b->w, DT_F32, n[1], n[2]);
	return b->dev->ops->matmul(b->dev, y, x, true, w, false, DT_NONE,
				   op == DT_T_MUL_ADD || op == DT_T_HEAD_ADD);
}

static int attention(struct dt_bench_bed *b, enum dt_timed op, const int64_t n[3])
{
	struct dt_attn p = {.batch = n[0] / 4,
			    .seq = n[1],
			    .heads = 4,
			    .kv_heads = 4,
			    .head_dim = n[2],
			    .scale = (float)(1 / sqrt((double)n[2]))};
	int64_t rows = p.batch * n[1], cols = 4 * n[2];
	struct dt_tensor qkv = take(&b->in, b->type, rows, 3 * cols), lse = flat(&b->out, DT_F32, rows * 4);

	if (op == DT_T_ATTENTION)
		return b->dev->ops->attention_forward(b->dev, take(&b->out, b->type, rows, cols), lse, qkv,
						      &p);
	return b->dev->ops->attention_backward(
		b->dev, take(&b->out, b->type, rows, 3 * cols), take(&b->in, b->type, rows, cols),
		take(&b->in, b->type, rows, cols), flat(&b->in, DT_F32, rows * 4), qkv, &p);
}

static int norm(struct dt_bench_bed *b, enum dt_timed op, const int64_t n[3])
{
	const struct dt_ops *o = b->dev->ops;
	struct dt_tensor x = take(&b->in, b->type, n[0], n[1]), d = take(&b->in, b->type, n[0], n[1]);
	struct dt_tensor y = take(&b->out, b->type, n[0], n[1]), s = take(&b->out, b->type, n[0], n[1]);
	struct dt_tensor w = flat(&b->in, b->type, n[1]), w2 = flat(&b->in, b->type, n[1]);
	struct dt_tensor g = flat(&b->out, DT_F32, n[1]), g2 = flat(&b->out, DT_F32, n[1]);
	bool forward = op == DT_T_LAYERNORM || op == DT_T_RMSNORM;
	struct dt_bench_pool *stats = forward ? &b->out : &b->in;
	struct dt_tensor mean = flat(stats, DT_F32, n[0]), rstd = flat(stats, DT_F32, n[0]);

	switch (op) {
	case DT_T_LAYERNORM:
		return o->layernorm_forward(b->dev, y, mean, rstd, s, x, d, w, w2, 1e-5f);
	case DT_T_LAYERNORM_B:
		return o->layernorm_backward(b->dev, y, g, g2, d, y, x, mean, rstd, w);
	case DT_T_RMSNORM:
		return o->rmsnorm_forward(b->dev, y, rstd, s, x, d, w, false, 1e-5f);
	default:
		return o->rmsnorm_backward(b->dev, y, g, d, y, x, rstd, w, false);
	}
}

static int rope(struct dt_bench_bed *b, const int64_t n[3])
{
	struct dt_tensor qkv = take(&b->out, b->type, n[0], n[1]);
	struct dt_tensor table = take(&b->in, DT_F32, 2, 256 * 16);
	struct dt_rope p = {.rot_heads = n[1] / 32,
			    .head_dim = 32,
			    .rot_dim = 32,
			    .pairing = DT_ROPE_HALF,
			    .cos = table.data,
			    .sin = (float *)table.data + 256 * 16,
			    .positions = 256};

	return b->dev->ops->rope(b->dev, qkv, &p, b->ids, false);
}

static int rows(struct dt_bench_bed *b, enum dt_timed op, const int64_t n[3])
{
	const struct dt_ops *o = b->dev->ops;
	enum dt_dtype t = b->type;
	struct dt_tensor x, y;

	switch (op) {
	case DT_T_ACT:
		return o->act_forward(b->dev, take(&b->out, t, n[0], n[1]), take(&b->in, t, n[0], n[1]),
				      DT_ACT_GELU_TANH);
	case DT_T_ACT_B:
		x = take(&b->in, t, n[0], n[1]);
		return o->act_backward(b->dev, take(&b->out, t, n[0], n[1]), x, take(&b->in, t, n[0], n[1]),
				       DT_ACT_GELU_TANH);
	case DT_T_GATED:
		return o->gated_forward(b->dev, take(&b->out, t, n[0], n[1]), take(&b->in, t, n[0], 2 * n[1]),
					DT_ACT_SILU);
	case DT_T_GATED_B:
		x = take(&b->in, t, n[0], n[1]);
		return o->gated_backward(b->dev, take(&b->out, t, n[0], 2 * n[1]), x,
					 take(&b->in, t, n[0], 2 * n[1]), DT_ACT_SILU);
	case DT_T_COLSUM:
		return o->colsum(b->dev, flat(&b->out, DT_F32, n[1]), take(&b->in, t, n[0], n[1]));
	case DT_T_EMBED:
		x = take(&b->in, t, 256, n[1]);
		return o->embedding_forward(b->dev, take(&b->out, t, n[0], n[1]), b->ids, b->ids, x, x, 0);
	case DT_T_EMBED_B:
		y = take(&b->out, DT_F32, 256, n[1]);
		return o->embedding_backward(b->dev, y, take(&b->out, DT_F32, 256, n[1]),
					     take(&b->in, t, n[0], n[1]), b->ids, b->ids, 0);
	default:
		x = take(&b->in, t, n[0], n[1]);
		return o->add(b->dev, take(&b->out, t, n[0], n[1]), x, take(&b->in, t, n[0], n[1]));
	}
}

/* As in the trainer: the logits of a chunk were just written, and the gradient goes to other memory. */
static int cross_entropy(struct dt_bench_bed *b, const int64_t n[3])
{
	static float stat[3][512];
	struct dt_tensor l = take(&b->in, DT_F32, n[0], n[1]), d = take(&b->out, b->type, n[0], n[1]);
	int rc = b->dev->ops->ce_stats(b->dev, stat[0], stat[1], stat[2], l, b->ids, 0);

	return rc < 0 ? rc : b->dev->ops->ce_grad(b->dev, d, l, stat[0], stat[1], b->ids, NULL, 1, 0);
}

static int flats(struct dt_bench_bed *b, enum dt_timed op, const int64_t n[3])
{
	static const enum dt_optim_kind kind[] = {DT_OPTIM_SGD, DT_OPTIM_MOMENTUM, DT_OPTIM_ADAMW};
	const struct dt_ops *o = b->dev->ops;
	struct dt_tensor p = flat(&b->w, DT_F32, n[0]), g = flat(&b->w, DT_F32, n[0]);
	struct dt_optim how = {.lr = 1e-6f,
			       .beta1 = 0.9f,
			       .beta2 = 0.95f,
			       .eps = 1e-8f,
			       .weight_decay = 0.1f,
			       .grad_scale = 1,
			       .t = 10};
	double sum;

	if (op == DT_T_SUMSQ)
		return o->sumsq(b->dev, &sum, g);
	if (op == DT_T_FILL)
		return o->fill(b->dev, p, 0.5f);
	if (op == DT_T_CONVERT)
		return o->convert(b->dev, flat(&b->w, b->type, n[0]), g);
	if (op >= DT_T_ROUND_Q8_0)
		return o->round_blocks(
			b->dev, take(&b->w, b->type, n[0] / 256, 256),
			(enum dt_format)dt_format_parse(dt_timed_ops[op].name + strlen(DT_TIMED_ROUND)));
	how.kind = kind[op - DT_T_OPTIM0];
	return o->optim_step(b->dev, &how, b->type == DT_F32 ? DT_NONE : flat(&b->w, b->type, n[0]), p, g,
			     op == DT_T_OPTIM0 ? DT_NONE : flat(&b->w, DT_F32, n[0]),
			     op == DT_T_OPTIM2 ? flat(&b->w, DT_F32, n[0]) : DT_NONE);
}

int dt_bench_operate(struct dt_bench_bed *b, enum dt_timed op, const int64_t n[3])
{
	if (op <= DT_T_HEAD_ADD)
		return product(b, op, n);
	if (op <= DT_T_ATTENTION_B)
		return attention(b, op, n);
	if (op <= DT_T_RMSNORM_B)
		return norm(b, op, n);
	if (op == DT_T_ROPE)
		return rope(b, n);
	if (op == DT_T_CE)
		return cross_entropy(b, n);
	return op < DT_T_OPTIM0 ? rows(b, op, n) : flats(b, op, n);
}

int dt_bench_bed_init(struct dt_bench_bed *b, int threads, size_t window, size_t weights_window)
{
	int rc = dt_dev_open(&b->dev, DT_DEV_CPU, 0, threads);

	if (rc < 0 || (rc = pool_init(&b->in, window)) < 0 || (rc = pool_init(&b->out, window)) < 0 ||
	    (rc = pool_init(&b->w, weights_window)) < 0)
		return rc;
	b->ids = calloc(IDS, sizeof(*b->ids));
	for (int i = 0; b->ids && i < IDS; i++)
		b->ids[i] = i * 7919 % 256;
	return b->ids ? 0 : -ENOMEM;
}
/* SPDX-License-Identifier: Apache-2.0 */
