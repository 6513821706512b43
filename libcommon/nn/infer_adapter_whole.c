/*
 * Tensors that an adapter replaces (PEFT's modules_to_save): weights of its own in place of the base's, in
 * the format that a merged model's would have. In a joined product they are joined with the base's other
 * rows, without copying those.
 */
#include "nn/infer_adapter_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- which tensors can be replaced, and their formats ---- */

/* Whether node n uses the tensor row by row, independently of other rows. */
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

/* Another tensor of the same product that a does not replace; -1: none. */
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

		if (!is_served(m, param))
			return dt_err_set(err, -ENOTSUP,
					  "adapter '%s': '%s' is a fully trained module, which cannot be "
					  "served beside a base model",
					  a->path, of[param].name);
		if (other >= 0)
			return dt_err_set(
				err, -ENOTSUP,
				"adapter '%s': '%s' is fully trained, but '%s' of the same matrix product "
				"is not, and is on disk",
				a->path, of[param].name, of[other].name);
	}
	return 0;
}

/* The format in which a rank's part is packed, as if a file had it in f32. */
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

/* ---- memory layout ---- */

enum { ALIGN = 64 }; /* of tensors in device memory */

struct layer_out {
	struct dt_infer_adapter *r;
	const struct dt_infer *m;
	char *const *from;  /* by local parameter: its values; NULL: the base's */
	struct dt_dev *dev; /* whose threads and memory are used */
	uint64_t at;	    /* bytes of r->plain used */
	int rc;
};

static size_t plain_bytes(const struct layer_out *l, int local)
{
	const struct dt_tensor *t = &l->m->w[local];

	return (size_t)(dt_numel(*t) * dt_dtype_size(t->dtype));
}

/* Rounds the weights of a norm as training rounds them. */
static void round_norm(const struct layer_out *l, int local)
{
	const struct dt_param *p = &l->m->plan.stage.graph.params.p[l->m->plan.stage.local.p[local].index];
	float *x = (float *)(void *)l->from[local];

	if (l->m->w[local].dtype != DT_F32 || !dt_infer_rounds(l->m, p))
		return;
	for (int64_t i = 0; i < dt_numel(l->m->w[local]); i++)
		x[i] = dt_bf16_to_f32(dt_f32_to_bf16(x[i]));
}

/* Copies the adapter's tensor, else the base's, to `to`. */
static void put_tensor(struct layer_out *l, int local, char *to)
{
	const void *base = l->m->w[local].data;

	if (l->from[local])
		round_norm(l, local);
	if (l->rc == 0)
		l->rc = dt_dev_copy(l->dev, to, l->from[local] ? l->from[local] : base,
				    plain_bytes(l, local));
	l->r->w[local].data = to;
}

/* Copies n adjacent tensors if the adapter replaces one of them; without memory only counts bytes. */
static void put_plain(struct layer_out *l, const int *param, int n)
{
	struct dt_infer_adapter *r = l->r;
	bool any = false;

	for (int i = 0; i < n; i++)
		any |= param[i] >= 0 && l->from[param[i]] && l->m->owner[param[i]] < 0;
	for (int i = 0; any && i < n; i++) {
		if (param[i] < 0)
			continue;
		if (r->plain)
			put_tensor(l, param[i], r->plain + l->at);
		l->at += plain_bytes(l, param[i]);
	}
	if (any && !dt_dev_is_host(l->m->dev))
		l->at = (l->at + ALIGN - 1) / ALIGN * ALIGN;
}

/* A product's biases are joined; other tensors are separate. */
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
		return dt_packed_borrow(to, base, dt_packed_rows(to), box->shape[0]);
	return dt_packed_append(to, l->dev, format_of(l->m, &part),
				dt_infer_whole_type(l->m, box) == DT_BF16 ? DT_FMT_BF16 : DT_FMT_F32,
				l->from[local], box->shape[0]);
}

/* The owner of the node's packed weights if the adapter replaces some of them; -1. */
static int owner_at(const struct layer_out *l, const struct dt_node *n, int *ret_tensors)
{
	const int tensors = n->op == DT_OP_EMBED || n->op == DT_OP_HEAD ? 1 : 3,
		  owner = n->param[0] < 0 ? -1 : l->m->owner[n->param[0]];
	const bool products = n->op == DT_OP_EMBED || n->op == DT_OP_HEAD || n->op == DT_OP_LINEAR ||
			      n->op == DT_OP_LINEAR_GATED;

	*ret_tensors = tensors;
	for (int i = 0; products && owner >= 0 && l->m->packed[owner] && i < tensors; i++)
		if (n->param[i] >= 0 && l->from[n->param[i]])
			return owner;
	return -1;
}

static int pack(struct layer_out *l, const struct dt_node *n, struct dt_err *err)
{
	int tensors, rc;
	const int owner = owner_at(l, n, &tensors);
	struct dt_packed **to = owner < 0 ? NULL : &l->r->packed[owner];

	if (!to || *to)
		return 0;
	rc = dt_packed_open(to, l->dev, dt_packed_k(l->m->packed[owner]));
	for (int i = 0; i < tensors && rc == 0; i++)
		if (n->param[i] >= 0)
			rc = pack_one(l, *to, l->m->packed[owner], n->param[i]);
	return rc < 0 ? dt_err_sys(err, rc, "cannot lay out the fully trained modules of an adapter") : 0;
}

/* Counts the bytes of plain tensors, or copies them. */
static void each_plain(struct layer_out *l)
{
	const struct dt_prog *p = &l->m->plan.stage.chunk[0];

	l->at = 0;
	for (int s = 0; s < p->nstep; s++)
		put_plain_of(l, &p->step[s].n);
}

static int no_memory(int rc, struct dt_err *err)
{
	return dt_err_sys(err, rc, "cannot read an adapter");
}

/* Allocates r->plain with l->at bytes and r->packed, on l->dev, and fills both. */
static int lay(struct layer_out *l, struct dt_err *err)
{
	struct dt_infer_adapter *r = l->r;
	const struct dt_prog *p = &l->m->plan.stage.chunk[0];
	void *plain = NULL;
	int rc = 0;

	if (dt_dev_is_host(l->dev))
		rc = (plain = malloc(l->at + 1)) ? 0 : -ENOMEM;
	else
		rc = dt_dev_alloc(l->dev, &plain, l->at + 1);
	if (rc < 0)
		return no_memory(rc, err);
	r->plain = plain;
	each_plain(l);
	if (l->rc < 0)
		return dt_err_sys(err, l->rc, "cannot copy an adapter to the device");
	for (int s = 0; s < p->nstep && rc == 0; s++)
		rc = pack(l, &p->step[s].n, err);
	return rc;
}

/* Keeps copies of the values for a later copy to the device. */
static int keep(struct layer_out *l, struct dt_err *err)
{
	struct dt_infer_adapter *r = l->r;

	r->kept = calloc((size_t)r->nlocal + 1, sizeof(*r->kept));
	for (int i = 0; i < r->nlocal && r->kept; i++) {
		const struct dt_local_param *box = &l->m->plan.stage.local.p[i];
		const struct dt_param part = dt_infer_part(&l->m->plan.stage.graph.params.p[box->index], box);
		const size_t n =
			(size_t)dt_param_numel(&part) * (size_t)dt_dtype_size(dt_infer_whole_type(l->m, box));

		if (l->from[i] && !(r->kept[i] = malloc(n + 1)))
			return no_memory(-ENOMEM, err);
		if (l->from[i])
			memcpy(r->kept[i], l->from[i], n);
	}
	return r->kept ? 0 : no_memory(-ENOMEM, err);
}

/* Bytes of the replaced products, as large as the base's. */
static uint64_t packed_bytes(const struct layer_out *l)
{
	const struct dt_prog *p = &l->m->plan.stage.chunk[0];
	uint64_t n = 0;
	int tensors;

	for (int i = 0; i < l->r->nlocal; i++)
		for (int s = 0; s < p->nstep; s++)
			if (owner_at(l, &p->step[s].n, &tensors) == i) {
				n += dt_packed_bytes(l->m->packed[i]);
				break;
			}
	return n;
}

int dt_infer_whole_lay(struct dt_infer_adapter *r, const struct dt_infer *m, char *const *from,
		       struct dt_dev *dev, struct dt_err *err)
{
	struct layer_out l = {.r = r, .m = m, .from = from, .dev = dev};
	const size_t n = (size_t)m->plan.stage.local.n + 1;
	int rc;

	each_plain(&l);
	r->nlocal = m->plan.stage.local.n;
	r->own = calloc(n, sizeof(*r->own));
	r->w = malloc(n * sizeof(*r->w));
	r->packed = calloc(n, sizeof(struct dt_packed *));
	if (!r->own || !r->w || !r->packed)
		return no_memory(-ENOMEM, err);
	for (size_t i = 0; i + 1 < n; i++)
		r->own[i] = from[i] != NULL;
	memcpy(r->w, m->w, n * sizeof(*r->w));
	r->bytes += l.at;
	if (!dt_dev_is_host(m->dev)) {
		r->bytes += packed_bytes(&l);
		return keep(&l, err);
	}
	rc = lay(&l, err);
	for (int i = 0; i < r->nlocal; i++)
		r->bytes += r->packed[i] ? dt_packed_bytes(r->packed[i]) : 0;
	return rc;
}

static void drop_kept(struct dt_infer_adapter *r)
{
	for (int i = 0; r->kept && i < r->nlocal; i++)
		free(r->kept[i]);
	free(r->kept);
	r->kept = NULL;
}

/* Frees the packed weights and the memory of plain tensors. */
static void drop_laid(struct dt_infer_adapter *r)
{
	for (int i = 0; r->packed && i < r->nlocal; i++) {
		dt_packed_close(r->packed[i]);
		r->packed[i] = NULL;
	}
	if (r->placed)
		dt_dev_free(r->placed->dev, r->plain);
	else
		free(r->plain);
	r->plain = NULL;
}

int dt_infer_whole_place(struct dt_infer_adapter *r, const struct dt_infer *m, struct dt_err *err)
{
	struct layer_out l = {.r = r, .m = m, .from = r->kept, .dev = m->dev};
	int rc;

	if (!r->kept)
		return 0;
	r->placed->dev = m->dev;
	each_plain(&l);
	rc = lay(&l, err);
	if (rc == 0 && (rc = dt_dev_sync(m->dev)) < 0)
		dt_err_sys(err, rc, "cannot copy an adapter to the device");
	if (rc < 0)
		drop_laid(r);
	else
		drop_kept(r);
	return rc;
}

void dt_infer_whole_release(struct dt_infer_adapter *r)
{
	drop_laid(r);
	drop_kept(r);
	free(r->packed);
	free(r->own);
	free(r->w);
	r->packed = NULL;
	r->own = NULL;
	r->w = NULL;
}

bool dt_infer_adapter_has_whole(const struct dt_infer_adapter *a)
{
	return a && a->any_whole;
}
/* SPDX-License-Identifier: Apache-2.0 */
