#include "nn/infer_adapter.h"

#include "ckpt/adapter.h"
#include "nn/infer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct dt_infer_adapter {
	struct dt_lora_lane *of; /* by local parameter, without a place among columns; a NULL: none */
	char *data;		 /* of all lanes */
	float *rows;		 /* gains and shifts of all lanes */
	uint64_t bytes, sum;
};

/* Where the rows of a linear's weight are, and its bias. */
struct linear {
	const struct dt_packed *w; /* NULL: it is no linear */
	int64_t at;
	int bias; /* local parameter, -1: none */
};

static void put_node(const struct dt_infer *m, const struct dt_node *n, struct linear *to)
{
	int64_t at = 0;

	for (int i = 0; i < 3; i++) {
		if (n->param[i] < 0)
			continue;
		to[n->param[i]] = (struct linear){m->packed[m->owner[n->param[0]]], at, n->param[3 + i]};
		at += m->plan.stage.shape[n->param[i]][0];
	}
}

/* The linears of m's program, by local parameter. */
static struct linear *linears(const struct dt_infer *m, struct dt_err *err)
{
	const struct dt_prog *p = &m->plan.stage.chunk[0];
	struct linear *r = calloc((size_t)m->plan.stage.local.n + 1, sizeof(*r));

	for (int s = 0; r && s < p->nstep; s++)
		if (p->step[s].n.op == DT_OP_LINEAR || p->step[s].n.op == DT_OP_LINEAR_GATED)
			put_node(m, &p->step[s].n, r);
	if (!r)
		dt_err_sys(err, -ENOMEM, "cannot read an adapter");
	return r;
}

/* Whether m can apply every part, the bytes of their a and b, and the rows with magnitudes. */
static int check(const struct dt_infer *m, const struct linear *linear, const struct dt_adapter *a,
		 uint64_t *bytes, uint64_t *rows, struct dt_err *err)
{
	const struct dt_stage *st = &m->plan.stage;
	int rc = 0;

	*bytes = *rows = 0;
	if (a->nwhole) {
		dt_err_set(
			err, -ENOTSUP,
			"adapter '%s': '%s' was trained whole (modules_to_save), which is not served beside "
			"a base",
			a->path, st->graph.params.p[a->whole[0].param].name);
		dt_err_hint(err, "dt-shard-ckpt lora-merge makes one model of both");
		return -ENOTSUP;
	}
	for (int i = 0; i < a->n && rc == 0; i++) {
		const struct dt_adapter_part *p = &a->part[i];
		const int local = st->local_of[p->param];

		if (local < 0 || !linear[local].w)
			rc = dt_err_set(err, -ENOTSUP, "adapter '%s': that of '%s' is not served", a->path,
					st->graph.params.p[p->param].name);
		else if (p->rank > m->p.adapters)
			rc = dt_err_set(err, -EINVAL, "adapter '%s': rank %lld is above --max-lora-rank %lld",
					a->path, (long long)p->rank, (long long)m->p.adapters);
		*bytes += (uint64_t)(p->rank * (p->in + p->out) * dt_dtype_size(m->p.dtype));
		*rows += p->m ? (uint64_t)p->out : 0;
	}
	return rc;
}

static void put(void *to, enum dt_dtype type, int64_t i, float v)
{
	if (type == DT_F32)
		((float *)to)[i] = v;
	else
		((uint16_t *)to)[i] = dt_f32_to_bf16(v);
}

/* a as it is, b transposed, behind *at. */
static void lay_out(struct dt_lora_lane *l, const struct dt_adapter_part *p, enum dt_dtype type, char **at)
{
	char *a = *at, *b = a + p->rank * p->in * dt_dtype_size(type);

	for (int64_t i = 0; i < p->rank * p->in; i++)
		put(a, type, i, p->a[i]);
	for (int64_t r = 0; r < p->rank; r++)
		for (int64_t i = 0; i < p->out; i++)
			put(b, type, r * p->out + i, p->b[i * p->rank + r]);
	*at = b + p->rank * p->out * dt_dtype_size(type);
	*l = (struct dt_lora_lane){.a = a, .b = b, .rank = p->rank, .cols = p->out, .scale = (float)p->scale};
}

static float number(struct dt_tensor t, int64_t i)
{
	const uint16_t *half = t.data;

	return t.dtype == DT_F32    ? ((const float *)t.data)[i]
	       : t.dtype == DT_BF16 ? dt_bf16_to_f32(half[i])
				    : dt_f16_to_f32(half[i]);
}

/*
 * What rows of w + s b a are multiplied by, from the rows that m computes with, and what that takes from the
 * bias.
 */
static int put_magnitudes(struct dt_lora_lane *l, const struct dt_infer *m, const struct linear *from,
			  struct dt_adapter_part *p, float **at, struct dt_err *err)
{
	const struct dt_tensor bias = dt_call_param(m->x.w, from->bias);
	float *gain = *at, *shift = gain + p->out, *x = malloc((size_t)p->in * sizeof(*x));
	int rc = 0;

	p->ratio = malloc((size_t)p->out * sizeof(*p->ratio));
	if (!x || !p->ratio)
		rc = dt_err_sys(err, -ENOMEM, "cannot read an adapter");
	for (int64_t r = 0; r < p->out && rc == 0; r++) {
		rc = dt_kernel_check(dt_packed_row(from->w, from->at + r, x), "dt_packed_row", err);
		if (rc < 0)
			break;
		dt_adapter_measure_row(p, r, x);
		gain[r] = p->ratio[r];
		shift[r] = bias.data ? (1 - gain[r]) * number(bias, r) : 0;
	}
	l->gain = gain;
	l->shift = bias.data ? shift : NULL;
	*at += 2 * p->out;
	free(x);
	return rc;
}

/* FNV-1a over words of 8 bytes. */
static uint64_t add_to_sum(uint64_t h, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i += 8) {
		uint64_t w = 0;

		memcpy(&w, (const char *)p + i, n - i < 8 ? n - i : 8);
		h = (h ^ w) * 1099511628211u;
		h ^= h >> 29;
	}
	return h;
}

static uint64_t sum_of(const struct dt_adapter *a)
{
	uint64_t h = 14695981039346656037u;

	for (int i = 0; i < a->n; i++) {
		const struct dt_adapter_part *p = &a->part[i];
		const int64_t head[] = {p->param, p->rank, p->in, p->out};

		h = add_to_sum(h, head, sizeof(head));
		h = add_to_sum(h, &p->scale, sizeof(p->scale));
		h = add_to_sum(h, p->a, (size_t)(p->rank * p->in) * sizeof(float));
		h = add_to_sum(h, p->b, (size_t)(p->rank * p->out) * sizeof(float));
		if (p->ratio)
			h = add_to_sum(h, p->ratio, (size_t)p->out * sizeof(float));
	}
	return (h >> 1) | 1;
}

static int check_base(const struct dt_adapter *a, const char *base, struct dt_err *err)
{
	if (!base || !a->base[0] || !strcmp(a->base, base))
		return 0;
	dt_err_set(err, -EINVAL, "adapter '%s' was trained on other weights than those served", a->path);
	dt_err_hint(err, "--any-base takes them");
	return -EINVAL;
}

static int fill(struct dt_infer_adapter *r, const struct dt_infer *m, const struct linear *linear,
		struct dt_adapter *a, struct dt_err *err)
{
	char *at = r->data;
	float *rows = r->rows;
	int rc = 0;

	for (int i = 0; i < a->n && rc == 0; i++) {
		const int local = m->plan.stage.local_of[a->part[i].param];

		lay_out(&r->of[local], &a->part[i], m->p.dtype, &at);
		if (a->part[i].m)
			rc = put_magnitudes(&r->of[local], m, &linear[local], &a->part[i], &rows, err);
	}
	r->sum = sum_of(a);
	return rc;
}

int dt_infer_adapter_open(struct dt_infer_adapter **ret, const struct dt_infer *m, const char *path,
			  const char *base, struct dt_err *err)
{
	struct dt_infer_adapter *r = NULL;
	struct dt_adapter *a;
	uint64_t bytes = 0, rows = 0;
	struct linear *linear;
	int rc = dt_adapter_open(path, &m->config, &m->plan.stage.graph.params, &a, err);

	if (rc < 0)
		return rc;
	rc = check_base(a, base, err);
	linear = rc == 0 ? linears(m, err) : NULL;
	if (rc == 0)
		rc = linear ? check(m, linear, a, &bytes, &rows, err) : -ENOMEM;
	if (rc == 0) {
		r = calloc(1, sizeof(*r));
		if (r) {
			r->of = calloc((size_t)m->plan.stage.local.n + 1, sizeof(*r->of));
			r->data = malloc(bytes + 1);
			r->rows = malloc(2 * rows * sizeof(float) + 1);
			r->bytes = bytes + 2 * rows * sizeof(float);
		}
		if (!r || !r->of || !r->data || !r->rows)
			rc = dt_err_sys(err, -ENOMEM, "cannot read '%s'", path);
	}
	if (rc == 0)
		rc = fill(r, m, linear, a, err);
	free(linear);
	dt_adapter_close(a);
	if (rc < 0)
		dt_infer_adapter_close(r);
	else
		*ret = r;
	return rc;
}

void dt_infer_adapter_close(struct dt_infer_adapter *a)
{
	if (!a)
		return;
	free(a->of);
	free(a->rows);
	free(a->data);
	free(a);
}

uint64_t dt_infer_adapter_bytes(const struct dt_infer_adapter *a)
{
	return a->bytes;
}

uint64_t dt_infer_adapter_sum(const struct dt_infer_adapter *a)
{
	return a->sum;
}

/* ---- the pass ---- */

/* The lanes of an adapter at the linears of a node; false: it has none there. */
static bool lanes_of(const struct dt_infer *m, const struct dt_node *n, const struct dt_infer_adapter *a,
		     struct dt_lora_lane *lane)
{
	int64_t at = 0;
	bool any = false;

	for (int i = 0; i < 3; i++) {
		lane[i] = (struct dt_lora_lane){0};
		if (n->param[i] < 0)
			continue;
		lane[i] = a->of[n->param[i]];
		lane[i].at = at;
		any |= lane[i].a != NULL;
		at += m->plan.stage.shape[n->param[i]][0];
	}
	return any;
}

bool dt_infer_adapts(const struct dt_infer_batch *b)
{
	for (int i = 0; b->adapter && i < b->nseq; i++)
		if (b->adapter[i])
			return true;
	return false;
}

int dt_infer_adapt(struct dt_exec *x, const struct dt_node *n, struct dt_tensor y, struct dt_err *err)
{
	const struct dt_infer *m = x->owner;
	const struct dt_infer_batch *b = m->batch;
	struct dt_lora_batch p = {.type = m->p.dtype, .part = m->parts};

	for (int i = 0, next; i < b->nseq; i = next) {
		const struct dt_infer_adapter *a = b->adapter[i];
		struct dt_lora_part *part = &m->parts[p.n];

		for (next = i + 1; next < b->nseq && b->adapter[next] == a;)
			next++;
		if (!a || !lanes_of(m, n, a, part->lane))
			continue;
		part->first = b->q_start[i];
		part->n = b->q_start[next] - b->q_start[i];
		p.n++;
	}
	p.rank = x->p->value[n->out[2]].cols;
	TRY(x->dev->ops->lora_add(x->dev, y, dt_call_mat(x, n->in[0]), dt_call_mat(x, n->out[2]), &p));
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
