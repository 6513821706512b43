#include "on_device.h"

#include "kernels/shape.h"

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

#define PARTS 128 /* of a list */
#define SPANS (16 + 5 * PARTS)

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
	struct dt_rope rope; /* of a call that has one: its arrays are on the device */
	struct dt_bn bn;
	struct dt_classes classes;
	struct dt_distill distill;
	struct dt_meet meet;
	struct dt_moe_loss moe_loss;
	struct dt_moe_place moe_place;
	struct dt_grouped grouped;
	struct dt_dropout dropout;
	struct dt_heads heads;
	struct dt_paged paged;
	struct dt_attn_span attn_span;
	struct dt_ssm ssm;
	struct dt_ssm_slots ssm_slots;
	struct dt_blocks_part blocks_part;
	struct dt_optim_part part[PARTS];
	struct dt_optim_parts parts;
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
	use(c, t.data, (size_t)(dt_extent(t) * dt_dtype_size(t.dtype)), written);
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

static void *there(struct call *c, const void *p)
{
	for (int i = 0; i < c->n; i++) {
		const struct span *s = &c->span[i];

		if ((const char *)p >= s->host && (const char *)p < s->host + s->n)
			return s->dev + ((const char *)p - s->host);
	}
	return (void *)p; /* absent, or empty */
}

static struct dt_tensor tensor_there(struct call *c, struct dt_tensor t)
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

/*
 * An argument of a call, as the device gets it: what points to memory of the device points to the copy
 * there.
 */
static const struct dt_rope *rope_there(struct call *c, const struct dt_rope *p)
{
	if (!p)
		return NULL;
	c->rope = *p;
	c->rope.cos = there(c, p->cos);
	c->rope.sin = there(c, p->sin);
	return &c->rope;
}

static const struct dt_meet *meet_there(struct call *c, const struct dt_meet *p)
{
	c->meet = *p;
	c->meet.first = there(c, p->first);
	c->meet.at = there(c, p->at);
	c->meet.from = there(c, p->from);
	return &c->meet;
}

static const struct dt_moe_loss *moe_loss_there(struct call *c, const struct dt_moe_loss *p)
{
	c->moe_loss = *p;
	c->moe_loss.load = there(c, p->load);
	c->moe_loss.ret = there(c, p->ret);
	return &c->moe_loss;
}

static const struct dt_moe_place *moe_place_there(struct call *c, const struct dt_moe_place *p)
{
	c->moe_place = *p;
	c->moe_place.dropped = there(c, p->dropped);
	return &c->moe_place;
}

static const struct dt_grouped *grouped_there(struct call *c, const struct dt_grouped *p)
{
	c->grouped = *p;
	c->grouped.first = there(c, p->first);
	return &c->grouped;
}

static const struct dt_dropout *dropout_there(struct call *c, const struct dt_dropout *p)
{
	c->dropout = *p;
	c->dropout.pos = there(c, p->pos);
	return &c->dropout;
}

static const struct dt_heads *heads_there(struct call *c, const struct dt_heads *p)
{
	c->heads = *p;
	c->heads.sums = tensor_there(c, p->sums);
	return &c->heads;
}

static const struct dt_paged *paged_there(struct call *c, const struct dt_paged *p)
{
	c->paged = *p;
	c->paged.sink = tensor_there(c, p->sink);
	return &c->paged;
}

static const struct dt_attn_span *attn_span_there(struct call *c, const struct dt_attn_span *p)
{
	c->attn_span = *p;
	c->attn_span.pos = there(c, p->pos);
	c->attn_span.first = there(c, p->first);
	return &c->attn_span;
}

static const struct dt_ssm *ssm_there(struct call *c, const struct dt_ssm *p)
{
	c->ssm = *p;
	c->ssm.first = there(c, p->first);
	return &c->ssm;
}

static const struct dt_ssm_slots *ssm_slots_there(struct call *c, const struct dt_ssm_slots *p)
{
	c->ssm_slots = *p;
	c->ssm_slots.base = there(c, p->base);
	return &c->ssm_slots;
}

static const struct dt_blocks_part *blocks_part_there(struct call *c, const struct dt_blocks_part *p)
{
	c->blocks_part = *p;
	c->blocks_part.data = there(c, p->data);
	return &c->blocks_part;
}

static const struct dt_optim_parts *parts_there(struct call *c, const struct dt_optim_parts *p)
{
	if (p->n > PARTS)
		fatal("too many parts: this");
	c->parts = (struct dt_optim_parts){p->n, c->part};
	for (int i = 0; i < p->n; i++) {
		c->part[i] = p->part[i];
		c->part[i].copy = tensor_there(c, p->part[i].copy);
		c->part[i].p = tensor_there(c, p->part[i].p);
		c->part[i].g = tensor_there(c, p->part[i].g);
		c->part[i].s1 = tensor_there(c, p->part[i].s1);
		c->part[i].s2 = tensor_there(c, p->part[i].s2);
	}
	return &c->parts;
}

static const struct dt_bn *bn_there(struct call *c, const struct dt_bn *p)
{
	c->bn = (struct dt_bn){tensor_there(c, p->x),	 tensor_there(c, p->y),	    tensor_there(c, p->mean),
			       tensor_there(c, p->rstd), tensor_there(c, p->gamma), p->relu};
	return &c->bn;
}

static const struct dt_classes *classes_there(struct call *c, const struct dt_classes *p)
{
	c->classes = *p;
	c->classes.targets = there(c, p->targets);
	c->classes.others = there(c, p->others);
	c->classes.share = there(c, p->share);
	return &c->classes;
}

static const struct dt_distill *distill_there(struct call *c, const struct dt_distill *p)
{
	c->distill = *p;
	c->distill.columns = there(c, p->columns);
	c->distill.probs = there(c, p->probs);
	return &c->distill;
}

static double real_there(struct call *c, double v)
{
	return v;
}

static bool bool_there(struct call *c, bool v)
{
	return v;
}

static float float_there(struct call *c, float v)
{
	return v;
}

static int64_t integer_there(struct call *c, int64_t v)
{
	return v;
}

static int int_there(struct call *c, int v)
{
	return v;
}

static enum dt_act_fn act_there(struct call *c, enum dt_act_fn v)
{
	return v;
}

static enum dt_format format_there(struct call *c, enum dt_format v)
{
	return v;
}

/* clang-format off */
#define THERE(x)                                                                                             \
	_Generic((x), struct dt_tensor: tensor_there, const struct dt_rope *: rope_there,                    \
		 const struct dt_meet *: meet_there, const struct dt_bn *: bn_there,                         \
		 const struct dt_moe_loss *: moe_loss_there, const struct dt_moe_place *: moe_place_there,   \
		 const struct dt_grouped *: grouped_there, const struct dt_dropout *: dropout_there,         \
		 const struct dt_heads *: heads_there, const struct dt_paged *: paged_there, const struct dt_attn_span *: attn_span_there,         \
		 const struct dt_ssm *: ssm_there, const struct dt_ssm_slots *: ssm_slots_there, \
		 const struct dt_blocks_part *: blocks_part_there, const struct dt_optim_parts *: parts_there, \
		 const struct dt_classes *: classes_there, const struct dt_distill *: distill_there, bool: bool_there, float: float_there, double: real_there, \
		 int64_t: integer_there, int: int_there, enum dt_act_fn: act_there, enum dt_format: format_there,            \
		 default: there)(&call, x)

/* THERE of each of up to twelve arguments. */
#define EACH_1(x) THERE(x)
#define EACH_2(x, ...) THERE(x), EACH_1(__VA_ARGS__)
#define EACH_3(x, ...) THERE(x), EACH_2(__VA_ARGS__)
#define EACH_4(x, ...) THERE(x), EACH_3(__VA_ARGS__)
#define EACH_5(x, ...) THERE(x), EACH_4(__VA_ARGS__)
#define EACH_6(x, ...) THERE(x), EACH_5(__VA_ARGS__)
#define EACH_7(x, ...) THERE(x), EACH_6(__VA_ARGS__)
#define EACH_8(x, ...) THERE(x), EACH_7(__VA_ARGS__)
#define EACH_9(x, ...) THERE(x), EACH_8(__VA_ARGS__)
#define EACH_10(x, ...) THERE(x), EACH_9(__VA_ARGS__)
#define EACH_11(x, ...) THERE(x), EACH_10(__VA_ARGS__)
#define EACH_12(x, ...) THERE(x), EACH_11(__VA_ARGS__)
#define PICK(a, b, c, d, e, f, g, h, i, j, k, l, which, ...) which
#define EACH(...)                                                                                            \
	PICK(__VA_ARGS__, EACH_12, EACH_11, EACH_10, EACH_9, EACH_8, EACH_7, EACH_6, EACH_5, EACH_4, EACH_3, EACH_2, EACH_1, ) \
	(__VA_ARGS__)
/* clang-format on */

#define IN(t)	     use_tensor(&call, t, false);
#define OUT(t)	     use_tensor(&call, t, true);
#define IN_LD(t)     IN(t)
#define OUT_LD(t)    OUT(t)
#define IN_AT(p, n)  use(&call, p, (size_t)(n) * sizeof *(p), false);
#define OUT_AT(p, n) use(&call, p, (size_t)(n) * sizeof *(p), true);

#define DT_OP(name, params, args, memory)                                                                    \
	static int on_##name(struct dt_dev *dev, DT_LIST params)                                             \
	{                                                                                                    \
		struct call call = {.dev = dev};                                                             \
                                                                                                             \
		memory place(&call);                                                                         \
		return bring(&call, dt_ops_cuda.name(dev, EACH args));                                       \
	}
#include "kernels/ops.list"

const struct dt_ops on_device_ops = {
#define DT_OP(name, params, args, memory) .name = on_##name,
#include "kernels/ops.list"
};
/* SPDX-License-Identifier: Apache-2.0 */
