/*
 * Modules that an adapter has whole (PEFT's modules_to_save): weights of its own in the place of the base's,
 * in the format that those of a merged model would be kept in. What it has of a joined product is joined
 * with the base's other rows, of which no copy is made.
 */
#include "nn/infer_adapter_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- which can be served, and in what ---- */

/* Whether node n of a model reads the tensor row by row, without what other rows do. */
static bool reads(const struct dt_node *n, int param)
{
	switch (n->op) {
	case DT_OP_EMBED:
	case DT_OP_NORM:
	case DT_OP_HEADS_NORM:
	case DT_OP_LINEAR:
	case DT_OP_LOSS:
		for (int i = 0; i < DT_NODE_PARAM; i++)
			if (n->param[i] == param)
				return true;
		return false;
	default:
		return false;
	}
}

static bool is_served(const struct dt_infer *m, int param)
{
	const struct dt_graph *g = &m->plan.stage.graph;

	for (int k = 0; k < g->nnode; k++)
		if (reads(&g->node[k], param))
			return g->params.p[param].role != DT_W_KV_B;
	return false;
}

/* Another tensor of the same product, which a does not have whole; -1. */
static int partner(const struct dt_infer *m, const struct dt_adapter *a, int param)
{
	const struct dt_graph *g = &m->plan.stage.graph;

	for (int k = 0; k < g->nnode; k++)
		for (int i = 0; g->node[k].op == DT_OP_LINEAR && i < 3; i++)
			for (int j = 0; j < 3 && g->node[k].param[i] == param; j++)
				if (g->node[k].param[j] >= 0 &&
				    !dt_adapter_find_whole(a, g->node[k].param[j]))
					return g->node[k].param[j];
	return -1;
}

int dt_infer_whole_check(const struct dt_infer *m, const struct dt_adapter *a, struct dt_err *err)
{
	const struct dt_param *of = m->plan.stage.graph.params.p;

	for (int i = 0; i < a->nwhole; i++) {
		const int param = a->whole[i].param, other = m->disk ? partner(m, a, param) : -1;

		if (!dt_dev_is_host(m->dev))
			return dt_err_set(err, -ENOTSUP,
					  "adapter '%s': '%s' was trained whole, which is served on the "
					  "processor only",
					  a->path, of[param].name);
		if (!is_served(m, param))
			return dt_err_set(
				err, -ENOTSUP,
				"adapter '%s': '%s' was trained whole, which is not served beside a base",
				a->path, of[param].name);
		if (other >= 0)
			return dt_err_set(err, -ENOTSUP,
					  "adapter '%s': '%s' was trained whole without '%s' of the same "
					  "product, which is on disk",
					  a->path, of[param].name, of[other].name);
	}
	return 0;
}

/* The format that the part of a rank is packed in, as if a file had it in f32. */
static enum dt_format format_of(const struct dt_infer *m, const struct dt_param *part)
{
	return dt_infer_format(part, m->p.weights, DT_FMT_F32, m->p.dtype);
}

enum dt_dtype dt_infer_whole_type(const struct dt_infer *m, const struct dt_local_param *box)
{
	const struct dt_param part = dt_infer_part(&m->plan.stage.graph.params.p[box->index], box);

	if (!dt_infer_packs(&part))
		return dt_infer_plain_type(&m->config, &part, m->p.dtype);
	return format_of(m, &part) == DT_FMT_BF16 ? DT_BF16 : DT_F32;
}

/* ---- laid out ---- */

struct layer_out {
	struct dt_infer_adapter *r;
	const struct dt_infer *m;
	const char *const *from; /* by local parameter: its numbers; NULL: it is the base's */
	struct dt_dev *dev;	 /* whose threads pack */
	uint64_t at;		 /* bytes of r->plain handed out */
};

static size_t plain_bytes(const struct layer_out *l, int local)
{
	const struct dt_tensor *t = &l->m->x.w[local];

	return (size_t)(dt_numel(*t) * dt_dtype_size(t->dtype));
}

/* Numbers of an RMSNorm that training rounds are rounded here too. */
static void round_norm(const struct layer_out *l, int local, float *x)
{
	const struct dt_param *p = &l->m->plan.stage.graph.params.p[l->m->plan.stage.local.p[local].index];

	for (int64_t i = 0; dt_infer_rounds(l->m, p) && i < dt_numel(l->m->x.w[local]); i++)
		x[i] = dt_bf16_to_f32(dt_f32_to_bf16(x[i]));
}

/* n tensors that stand next to each other, if any of them is the adapter's; without memory they are counted.
 */
static void put_plain(struct layer_out *l, const int *param, int n)
{
	struct dt_infer_adapter *r = l->r;
	bool any = false;

	for (int i = 0; i < n; i++)
		any |= param[i] >= 0 && l->from[param[i]] && l->m->owner[param[i]] < 0;
	for (int i = 0; any && i < n; i++) {
		const struct dt_tensor *base = param[i] < 0 ? NULL : &l->m->x.w[param[i]];
		char *to = r->plain ? r->plain + l->at : NULL;

		if (!base)
			continue;
		l->at += plain_bytes(l, param[i]);
		if (!to)
			continue;
		memcpy(to, l->from[param[i]] ? l->from[param[i]] : (const char *)base->data,
		       plain_bytes(l, param[i]));
		if (l->from[param[i]] && base->dtype == DT_F32)
			round_norm(l, param[i], (float *)(void *)to);
		r->w[param[i]].data = to;
	}
}

/* Biases of a product are joined; all else stands alone. */
static void put_plain_of(struct layer_out *l, const struct dt_node *n)
{
	const bool linear = n->op == DT_OP_LINEAR || n->op == DT_OP_LINEAR_GATED;

	if (linear)
		put_plain(l, n->param + 3, 3);
	for (int i = 0; i < DT_NODE_PARAM; i++)
		if (!linear && n->param[i] >= 0)
			put_plain(l, &n->param[i], 1);
}

static int pack_one(struct layer_out *l, struct dt_packed *to, const struct dt_packed *base, int local)
{
	const struct dt_local_param *box = &l->m->plan.stage.local.p[local];
	const struct dt_param part = dt_infer_part(&l->m->plan.stage.graph.params.p[box->index], box);

	if (!l->from[local])
		return dt_packed_borrow(to, base, dt_packed_rows(to));
	return dt_packed_append(to, l->dev, format_of(l->m, &part),
				dt_infer_whole_type(l->m, box) == DT_BF16 ? DT_FMT_BF16 : DT_FMT_F32,
				l->from[local], box->shape[0]);
}

/* What the node multiplies with, where some of it is the adapter's. */
static int pack(struct layer_out *l, const struct dt_node *n, struct dt_err *err)
{
	const int tensors = n->op == DT_OP_EMBED || n->op == DT_OP_HEAD ? 1 : 3,
		  owner = n->param[0] < 0 ? -1 : l->m->owner[n->param[0]];
	struct dt_packed **to = &l->r->packed[owner < 0 ? 0 : owner];
	bool any = false;
	int rc;

	for (int i = 0; i < tensors; i++)
		any |= n->param[i] >= 0 && l->from[n->param[i]];
	if (owner < 0 || !l->m->packed[owner] || !any || *to)
		return 0;
	rc = dt_packed_open(to, l->dev, dt_packed_k(l->m->packed[owner]));
	for (int i = 0; i < tensors && rc == 0; i++)
		if (n->param[i] >= 0)
			rc = pack_one(l, *to, l->m->packed[owner], n->param[i]);
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot lay out what an adapter has whole");
	l->r->bytes += dt_packed_bytes(*to);
	return 0;
}

/* Counts what is plain, or writes it. */
static void each_plain(struct layer_out *l)
{
	const struct dt_prog *p = &l->m->plan.stage.chunk[0];

	l->at = 0;
	for (int s = 0; s < p->nstep; s++)
		put_plain_of(l, &p->step[s].n);
}

int dt_infer_whole_lay(struct dt_infer_adapter *r, const struct dt_infer *m, const char *const *from,
		       struct dt_dev *dev, struct dt_err *err)
{
	struct layer_out l = {.r = r, .m = m, .from = from, .dev = dev};
	const struct dt_prog *p = &m->plan.stage.chunk[0];
	const size_t n = (size_t)m->plan.stage.local.n + 1;
	int rc = 0;

	each_plain(&l);
	r->nlocal = m->plan.stage.local.n;
	r->own = calloc(n, sizeof(*r->own));
	r->w = malloc(n * sizeof(*r->w));
	r->packed = calloc(n, sizeof(struct dt_packed *));
	r->plain = malloc(l.at + 1);
	if (!r->own || !r->w || !r->packed || !r->plain)
		return dt_err_sys(err, -ENOMEM, "cannot read an adapter");
	for (size_t i = 0; i + 1 < n; i++)
		r->own[i] = from[i] != NULL;
	memcpy(r->w, m->x.w, n * sizeof(*r->w));
	each_plain(&l);
	r->bytes += l.at;
	for (int s = 0; s < p->nstep && rc == 0; s++)
		switch (p->step[s].n.op) {
		case DT_OP_EMBED:
		case DT_OP_HEAD:
		case DT_OP_LINEAR:
		case DT_OP_LINEAR_GATED:
			rc = pack(&l, &p->step[s].n, err);
			break;
		default:
			break;
		}
	return rc;
}

void dt_infer_whole_release(struct dt_infer_adapter *r)
{
	for (int i = 0; r->packed && i < r->nlocal; i++)
		dt_packed_close(r->packed[i]);
	free(r->packed);
	free(r->plain);
	free(r->own);
	free(r->w);
	r->packed = NULL;
	r->plain = NULL;
	r->own = NULL;
	r->w = NULL;
}

/* ---- the pass ---- */

bool dt_infer_adapter_has_whole(const struct dt_infer_adapter *a)
{
	return a && a->any_whole;
}

bool dt_infer_wholes(const struct dt_infer_batch *b)
{
	for (int i = 0; b->adapter && i < b->nseq; i++)
		if (b->adapter[i] && b->adapter[i]->own)
			return true;
	return false;
}

/* The adapter of a sequence, where it has some tensor of the node whole; NULL. */
static const struct dt_infer_adapter *whole_at(const struct dt_infer_batch *b, const struct dt_node *n,
					       int seq)
{
	const struct dt_infer_adapter *a = b->adapter ? b->adapter[seq] : NULL;

	for (int i = 0; a && a->own && i < DT_NODE_PARAM; i++)
		if (n->param[i] >= 0 && a->own[n->param[i]])
			return a;
	return NULL;
}

bool dt_infer_window_next(const struct dt_infer *m, const struct dt_node *n, struct dt_infer_window *w)
{
	const struct dt_infer_batch *b = m->batch;

	if (w->end == b->nseq)
		return false;
	w->first = w->end;
	w->whole = whole_at(b, n, w->first);
	do
		w->end++;
	while (w->end < b->nseq && whole_at(b, n, w->end) == w->whole);
	return true;
}

const struct dt_packed *dt_infer_packed_at(const struct dt_infer *m, int param)
{
	const int owner = m->owner[param];
	const struct dt_infer_adapter *a = m->window.whole;

	return a && a->packed[owner] ? a->packed[owner] : m->packed[owner];
}

int dt_infer_in_windows(struct dt_exec *x, const struct dt_node *n, dt_call *call, struct dt_err *err)
{
	struct dt_infer *m = x->owner;
	int64_t *rows = m->plan.stage.chunk[0].rows;
	const struct dt_infer_batch *b = m->batch;
	const struct dt_infer_window all = m->window;
	const int64_t all_rows = b->ntokens;
	struct dt_infer_window w = {0};
	struct dt_tensor *weights = x->w;
	int32_t *pos = x->pos;
	int rc = 0;

	if (!m->wholes || b->nseq == 0)
		return call(x, n, err);
	while (rc == 0 && dt_infer_window_next(m, n, &w)) {
		m->window = w;
		x->row = b->q_start[w.first];
		x->pos = pos + x->row;
		x->w = w.whole ? w.whole->w : weights;
		rows[DT_ROWS_ALL] = rows[DT_ROWS_STREAM] = b->q_start[w.end] - x->row;
		rc = call(x, n, err);
	}
	m->window = all;
	x->row = 0;
	x->pos = pos;
	x->w = weights;
	rows[DT_ROWS_ALL] = rows[DT_ROWS_STREAM] = all_rows;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
