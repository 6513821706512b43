#include "nn/infer_adapter_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_linear(const struct dt_node *n)
{
	return n->op == DT_OP_LINEAR || n->op == DT_OP_LINEAR_GATED;
}

/* Linear i of a node; in the packed weights its rows follow those of the linears before it. */
static struct dt_infer_linear linear_at(const struct dt_infer *m, const struct dt_node *n, int i)
{
	int64_t at = 0;

	for (int k = 0; k < i; k++)
		at += n->param[k] >= 0 ? m->plan.stage.shape[n->param[k]][0] : 0;
	return (struct dt_infer_linear){m->packed[m->owner[n->param[0]]], at, n->param[3 + i]};
}

struct dt_infer_linear dt_infer_linear_of(const struct dt_infer *m, int param)
{
	const struct dt_prog *p = &m->plan.stage.chunk[0];

	for (int s = 0; s < p->nstep; s++)
		for (int i = 0; i < 3 && is_linear(&p->step[s].n); i++)
			if (p->step[s].n.param[i] == param)
				return linear_at(m, &p->step[s].n, i);
	return (struct dt_infer_linear){.bias = -1};
}

struct dt_infer_linear *dt_infer_linears(const struct dt_infer *m, struct dt_err *err)
{
	const struct dt_prog *p = &m->plan.stage.chunk[0];
	struct dt_infer_linear *r = calloc((size_t)m->plan.stage.local.n + 1, sizeof(*r));

	for (int s = 0; r && s < p->nstep; s++)
		for (int i = 0; i < 3 && is_linear(&p->step[s].n); i++)
			if (p->step[s].n.param[i] >= 0)
				r[p->step[s].n.param[i]] = linear_at(m, &p->step[s].n, i);
	if (!r)
		dt_err_sys(err, -ENOMEM, "cannot read an adapter");
	return r;
}

/* Whether the parameter is a linear that is computed as a product, on any rank. */
static bool is_served(const struct dt_infer *m, const struct dt_infer_linear *linear, int param)
{
	const struct dt_graph *g = &m->plan.stage.graph;
	const int local = m->plan.stage.local_of[param];

	if (local >= 0)
		return linear[local].w != NULL;
	for (int k = 0; k < g->nnode; k++) /* of another stage; latent attention's KV_B is no product there */
		for (int i = 0; i < 3 && g->node[k].op == DT_OP_LINEAR; i++)
			if (g->node[k].param[i] == param)
				return g->params.p[param].role != DT_W_KV_B;
	return false;
}

/* Checks that m can apply every part. */
static int check(const struct dt_infer *m, const struct dt_infer_linear *linear, const struct dt_adapter *a,
		 struct dt_err *err)
{
	const struct dt_param *of = m->plan.stage.graph.params.p;

	for (int i = 0; i < a->n; i++) {
		const struct dt_adapter_part *p = &a->part[i];

		if (!is_served(m, linear, p->param))
			return dt_err_set(err, -ENOTSUP, "adapter '%s': an adapter of '%s' cannot be served",
					  a->path, of[p->param].name);
		if (p->rank > m->p.adapters)
			return dt_err_set(err, -EINVAL,
					  "adapter '%s': rank %lld is above --max-lora-rank %lld", a->path,
					  (long long)p->rank, (long long)m->p.adapters);
	}
	return dt_infer_whole_check(m, a, err);
}

float dt_infer_number(struct dt_tensor t, int64_t i)
{
	const uint16_t *half = t.data;

	return t.dtype == DT_F32    ? ((const float *)t.data)[i]
	       : t.dtype == DT_BF16 ? dt_bf16_to_f32(half[i])
				    : dt_f16_to_f32(half[i]);
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

static uint64_t sum_of(const struct dt_adapter *a, const struct dt_param *of)
{
	uint64_t h = 14695981039346656037u;

	for (int i = 0; i < a->n; i++) {
		const struct dt_adapter_part *p = &a->part[i];
		const int64_t head[] = {p->param, p->rank, p->in, p->out};

		h = add_to_sum(h, head, sizeof(head));
		h = add_to_sum(h, &p->scale, sizeof(p->scale));
		h = add_to_sum(h, p->a, (size_t)(p->rank * p->in) * sizeof(float));
		h = add_to_sum(h, p->b, (size_t)(p->rank * p->out) * sizeof(float));
		if (p->m)
			h = add_to_sum(h, p->m, (size_t)p->out * sizeof(float));
	}
	for (int i = 0; i < a->nwhole; i++) {
		const int64_t param = a->whole[i].param;

		h = add_to_sum(h, &param, sizeof(param));
		h = add_to_sum(h, a->whole[i].x, (size_t)dt_param_numel(&of[param]) * sizeof(float));
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

/* Builds r from a, with dev's threads. */
static int fill(struct dt_infer_adapter *r, const struct dt_infer *m, const struct dt_adapter *a,
		struct dt_dev *dev, struct dt_err *err)
{
	struct dt_infer_piece piece;
	int rc = dt_infer_adapter_cut(m, a, &m->plan.stage.local, &piece, err);

	if (rc == 0)
		rc = dt_infer_adapter_lay(r, m, piece, dev, err);
	if (rc < 0)
		return rc;
	r->any_whole = a->nwhole > 0;
	r->sum = sum_of(a, m->plan.stage.graph.params.p);
	rc = dt_infer_placed_open(r, m, err);
	if (rc == 0 && m->gone)
		rc = dt_infer_adapter_deal(r, m, a, err);
	if (rc < 0 || m->gone || r->placed) /* the computing thread does the rest */
		return rc;
	return dt_infer_adapter_measure_all(r, m, dev, err);
}

/* On one thread: the others are computing. */
static int fill_alone(struct dt_infer_adapter *r, const struct dt_infer *m, const struct dt_adapter *a,
		      struct dt_err *err)
{
	struct dt_dev *dev;
	int rc = dt_dev_open(&dev, DT_DEV_CPU, 0, 1);

	if (rc < 0)
		return dt_err_sys(err, rc, "cannot read an adapter");
	rc = fill(r, m, a, dev, err);
	dt_dev_close(dev);
	return rc;
}

int dt_infer_adapter_open(struct dt_infer_adapter **ret, const struct dt_infer *m, const char *path,
			  const char *base, struct dt_err *err)
{
	struct dt_infer_adapter *r = NULL;
	struct dt_adapter *a;
	struct dt_infer_linear *linear;
	int rc = dt_adapter_open(path, &m->config, &m->plan.stage.graph.params, &a, err);

	if (rc < 0)
		return rc;
	rc = check_base(a, base, err);
	linear = rc == 0 ? dt_infer_linears(m, err) : NULL;
	if (rc == 0)
		rc = linear ? check(m, linear, a, err) : -ENOMEM;
	if (rc == 0 && !(r = calloc(1, sizeof(*r))))
		rc = dt_err_sys(err, -ENOMEM, "cannot read '%s'", path);
	if (rc == 0)
		rc = fill_alone(r, m, a, err);
	free(linear);
	dt_adapter_close(a);
	if (rc == 0)
		*ret = r;
	else if (r)
		dt_infer_adapter_free(r);
	return rc;
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

bool dt_infer_lanes(const struct dt_infer *m, const struct dt_node *n, const struct dt_infer_adapter *a,
		    struct dt_lora_lane lane[DT_LORA_LANES])
{
	const struct dt_lora_lane *of = !a ? NULL : a->placed ? a->placed->of : a->of;
	int64_t at = 0;
	bool any = false;

	for (int i = 0; i < 3; i++) {
		lane[i] = (struct dt_lora_lane){0};
		if (n->param[i] < 0)
			continue;
		if (of)
			lane[i] = of[n->param[i]];
		lane[i].at = at;
		lane[i].cols = m->plan.stage.shape[n->param[i]][0];
		any |= lane[i].a != NULL;
		at += lane[i].cols;
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

/* The adapters of the batch's rows at a linear. */
static struct dt_lora_batch adapters_at(const struct dt_exec *x, const struct dt_node *n)
{
	const struct dt_infer *m = x->owner;
	const struct dt_infer_batch *b = m->batch;
	struct dt_lora_batch p = {.type = m->p.dtype, .part = m->parts, .rank = x->p->value[n->out[2]].cols};

	if (!dt_dev_is_host(m->dev) && !m->wholes) {
		p.part = dt_infer_side_parts(m, n);
		p.n = m->side.nparts;
		return p;
	}
	for (int i = m->window.first, next; i < m->window.end; i = next) {
		const struct dt_infer_adapter *a = b->adapter[i];
		struct dt_lora_part *part = &m->parts[p.n];

		for (next = i + 1; next < m->window.end && b->adapter[next] == a;)
			next++;
		part->first = b->q_start[i] - x->row;
		part->n = b->q_start[next] - b->q_start[i];
		if (!a || part->n == 0 || !dt_infer_lanes(m, n, a, part->lane))
			continue;
		p.n++;
	}
	return p;
}

int dt_infer_adapt(struct dt_exec *x, const struct dt_node *n, struct dt_tensor y, const struct dt_packed *w,
		   int gate, struct dt_err *err)
{
	const struct dt_infer *m = x->owner;
	const struct dt_lora_batch p = adapters_at(x, n);
	const struct dt_tensor in = dt_call_mat(x, n->in[0]), room = dt_call_mat(x, n->out[2]),
			       bias = dt_call_joined(x->w, n->param + 3);
	int rc =
		m->p.as_trained ? -ENOTSUP : x->dev->ops->packed_lora(x->dev, y, in, w, bias, gate, room, &p);

	if (rc != -ENOTSUP || gate)
		return rc == -ENOTSUP ? rc : dt_kernel_check(rc, "->packed_lora(", err);
	TRY(x->dev->ops->packed_matmul(x->dev, y, in, w, bias));
	TRY(x->dev->ops->lora_add(x->dev, y, in, room, &p));
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
