/*
 * The ranks' parts of an adapter. The rank that reads it makes a piece for each rank. Of a linear with
 * sharded rows it has all of a and those rows of b; with sharded columns those columns of a and all of b, so
 * that the all-reduce after the product also completes the adapter's. A piece is a head, its lanes, their
 * values in the compute type, the magnitudes of the rank's rows in f32, and the replaced tensors: a struct
 * dt_infer_own for each, then their values.
 */
#include "nn/infer_adapter_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct dt_local_param *box_of(const struct dt_local *l, int param, int *ret)
{
	for (int i = 0; i < l->n; i++)
		if (l->p[i].index == param) {
			*ret = i;
			return &l->p[i];
		}
	return NULL;
}

static void put(void *to, enum dt_dtype type, int64_t i, float v)
{
	if (type == DT_F32)
		((float *)to)[i] = v;
	else
		((uint16_t *)to)[i] = dt_f32_to_bf16(v);
}

/* Writes the rank's part of a, then of b, in the device's layout (kernels/lora.h). */
static char *put_lane(const struct dt_infer *m, const struct dt_adapter_part *p,
		      const struct dt_local_param *box, char *at)
{
	const int64_t rows = box->shape[0], cols = box->shape[1];
	char *b = at + p->rank * cols * dt_dtype_size(m->p.dtype);

	for (int64_t r = 0; r < p->rank; r++) {
		for (int64_t c = 0; c < cols; c++)
			put(at, m->p.dtype, dt_infer_a_at(m, r, p->rank, c, cols),
			    p->a[r * p->in + box->off[1] + c]);
		for (int64_t i = 0; i < rows; i++)
			put(b, m->p.dtype, dt_infer_b_at(m, i, rows, r, p->rank),
			    p->b[(box->off[0] + i) * p->rank + r]);
	}
	return b + p->rank * rows * dt_dtype_size(m->p.dtype);
}

/* Bytes at the end that are needed only until lay: magnitudes and replaced tensors. */
static size_t tail_of(const struct dt_infer_piece_head *h)
{
	return (size_t)h->rows * sizeof(float) + (size_t)h->own * sizeof(struct dt_infer_own) +
	       (size_t)h->own_bytes;
}

static size_t size_of(const struct dt_infer_piece_head *h)
{
	return sizeof(*h) + (size_t)h->lanes * sizeof(struct dt_infer_lane) + (size_t)h->bytes + tail_of(h);
}

static int64_t columns(const struct dt_param *p, const struct dt_local_param *box)
{
	return p->ndim == 2 ? box->shape[1] : 1;
}

static void put_box(const struct dt_adapter_whole *w, const struct dt_param *p,
		    const struct dt_local_param *box, enum dt_dtype type, char *to)
{
	const int64_t cols = columns(p, box), all = p->ndim == 2 ? p->shape[1] : 1,
		      left = p->ndim == 2 ? box->off[1] : 0;

	for (int64_t r = 0; r < box->shape[0]; r++)
		for (int64_t c = 0; c < cols; c++)
			put(to, type, r * cols + c, w->x[(box->off[0] + r) * all + left + c]);
}

/* Writes the tensors that a replaces and the rank has part of to `at`; at NULL: counts them. */
static void cut_whole(const struct dt_infer *m, const struct dt_adapter *a, const struct dt_local *local,
		      struct dt_infer_piece_head *h, char *at)
{
	const struct dt_param *of = m->plan.stage.graph.params.p;
	char *data = at ? at + h->own * (int64_t)sizeof(struct dt_infer_own) : NULL;
	int k;

	for (int i = 0; i < a->nwhole; i++) {
		const struct dt_local_param *box = box_of(local, a->whole[i].param, &k);
		struct dt_infer_own own;
		enum dt_dtype type;

		if (!box)
			continue;
		own = (struct dt_infer_own){k, box->shape[0] * columns(&of[box->index], box)};
		type = dt_infer_whole_type(m, box);
		if (!at) {
			h->own++;
			h->own_bytes += own.n * dt_dtype_size(type);
			continue;
		}
		at = mempcpy(at, &own, sizeof(own));
		put_box(&a->whole[i], &of[box->index], box, type, data);
		data += own.n * dt_dtype_size(type);
	}
}

int dt_infer_adapter_cut(const struct dt_infer *m, const struct dt_adapter *a, const struct dt_local *local,
			 struct dt_infer_piece *ret, struct dt_err *err)
{
	const struct dt_local_param *box;
	struct dt_infer_lane *lane;
	struct dt_infer_piece_head h = {0};
	char *at, *magnitude;
	int k;

	for (int i = 0; i < a->n; i++)
		if ((box = box_of(local, a->part[i].param, &k))) {
			h.lanes++;
			h.bytes +=
				a->part[i].rank * (box->shape[0] + box->shape[1]) * dt_dtype_size(m->p.dtype);
			h.rows += a->part[i].m ? box->shape[0] : 0;
		}
	cut_whole(m, a, local, &h, NULL);
	ret->n = size_of(&h);
	ret->p = malloc(ret->n);
	if (!ret->p)
		return dt_err_sys(err, -ENOMEM, "cannot read an adapter");
	memcpy(ret->p, &h, sizeof(h));
	lane = (struct dt_infer_lane *)(ret->p + sizeof(h));
	at = (char *)(lane + h.lanes);
	magnitude = at + h.bytes;
	for (int i = 0; i < a->n; i++) {
		const struct dt_adapter_part *p = &a->part[i];

		if (!(box = box_of(local, p->param, &k)))
			continue;
		*lane++ = (struct dt_infer_lane){
			k,	  p->rank, box->shape[1], box->shape[0], p->m ? box->shape[0] : 0,
			p->above, p->scale};
		at = put_lane(m, p, box, at);
		if (p->m)
			magnitude =
				mempcpy(magnitude, p->m + box->off[0], (size_t)box->shape[0] * sizeof(float));
	}
	cut_whole(m, a, local, &h, magnitude);
	return 0;
}

/* Whether a lane of a piece fits this rank's parameters and `bytes`. */
static bool fits(const struct dt_infer *m, const struct dt_infer_linear *linear,
		 const struct dt_infer_lane *l, int64_t bytes)
{
	const struct dt_local *local = &m->plan.stage.local;

	return l->local >= 0 && l->local < local->n && linear[l->local].w && l->rank > 0 &&
	       l->rank <= m->p.adapters && l->out == local->p[l->local].shape[0] &&
	       l->in == local->p[l->local].shape[1] && (!l->rows || l->rows == l->out) &&
	       l->rank * (l->in + l->out) * dt_dtype_size(m->p.dtype) <= bytes;
}

/* from: the values of each replaced tensor, by local parameter. -EPROTO if they do not fit this rank. */
static int find_whole(const struct dt_infer *m, const struct dt_infer_piece_head *h, char *at, char **from)
{
	const struct dt_local *local = &m->plan.stage.local;
	char *data = at + h->own * (int64_t)sizeof(struct dt_infer_own);
	int64_t left = h->own_bytes;

	for (int64_t i = 0; i < h->own; i++) {
		const struct dt_local_param *box;
		struct dt_infer_own own;
		int64_t bytes;

		memcpy(&own, at + i * (int64_t)sizeof(own), sizeof(own));
		if (own.local < 0 || own.local >= local->n || from[own.local])
			return -EPROTO;
		box = &local->p[own.local];
		bytes = own.n * dt_dtype_size(dt_infer_whole_type(m, box));
		if (own.n != box->shape[0] * columns(&m->plan.stage.graph.params.p[box->index], box) ||
		    bytes > left)
			return -EPROTO;
		from[own.local] = data;
		data += bytes;
		left -= bytes;
	}
	return left ? -EPROTO : 0;
}

static int take_whole(struct dt_infer_adapter *r, const struct dt_infer *m,
		      const struct dt_infer_piece_head *h, struct dt_dev *dev, struct dt_err *err)
{
	char **from = calloc((size_t)m->plan.stage.local.n + 1, sizeof(*from));
	int rc = from ? 0 : dt_err_sys(err, -ENOMEM, "cannot read an adapter");

	if (rc == 0 && (rc = find_whole(m, h, r->data.p + size_of(h) - tail_of(h) + h->rows * 4, from)) < 0)
		dt_err_set(err, rc, "received data that is not a part of an adapter");
	if (rc == 0)
		rc = dt_infer_whole_lay(r, m, from, dev, err);
	free(from);
	return rc;
}

/* Copies magnitudes to where gains will be, before the shifts, lane by lane. */
static int take_magnitudes(struct dt_infer_adapter *r, const struct dt_infer_piece_head *h)
{
	const struct dt_infer_lane *lane = (const struct dt_infer_lane *)(r->data.p + sizeof(*h));
	const char *from = (const char *)(lane + h->lanes) + h->bytes;
	int64_t left = h->rows;

	r->rows = calloc(2 * (size_t)h->rows, sizeof(float));
	if (!r->rows)
		return -ENOMEM;
	for (int64_t i = 0, at = 0; i < h->lanes; i++) {
		const int64_t n = lane[i].rows < 0 || lane[i].rows > left ? left : lane[i].rows;

		memcpy(r->rows + at, from, (size_t)n * sizeof(float));
		from += n * (int64_t)sizeof(float);
		at += 2 * n;
		left -= n;
	}
	return 0;
}

/* Takes the tail of a piece, and shrinks the piece. */
static int take_tail(struct dt_infer_adapter *r, const struct dt_infer *m,
		     const struct dt_infer_piece_head *h, struct dt_dev *dev, struct dt_err *err)
{
	int rc = h->own ? take_whole(r, m, h, dev, err) : 0;
	char *less;

	if (rc < 0)
		return rc;
	if (h->rows && take_magnitudes(r, h) < 0)
		return dt_err_sys(err, -ENOMEM, "cannot read an adapter");
	if (!tail_of(h))
		return 0;
	less = realloc(r->data.p, r->data.n - tail_of(h));
	r->data.p = less ? less : r->data.p;
	return 0;
}

static int lay_out(struct dt_infer_adapter *r, const struct dt_infer *m, const struct dt_infer_linear *linear,
		   struct dt_dev *dev, struct dt_err *err)
{
	const int64_t e = dt_dtype_size(m->p.dtype);
	const struct dt_infer_lane *lane;
	const char *at;
	struct dt_infer_piece_head h = {0};
	int64_t left, rows;
	int rc;

	if (r->data.n >= sizeof(h))
		memcpy(&h, r->data.p, sizeof(h));
	if (h.lanes < 0 || h.lanes > m->plan.stage.local.n || h.bytes < 0 || h.rows < 0 || h.own < 0 ||
	    h.own > m->plan.stage.local.n || h.own_bytes < 0 || r->data.n != size_of(&h))
		return dt_err_set(err, -EPROTO, "received data that is not a part of an adapter");
	rc = take_tail(r, m, &h, dev, err);
	if (rc < 0)
		return rc;
	r->lane = lane = (const struct dt_infer_lane *)(r->data.p + sizeof(struct dt_infer_piece_head));
	r->lanes = (int)h.lanes;
	at = (const char *)(lane + h.lanes);
	left = h.bytes;
	rows = h.rows;
	for (int64_t i = 0; i < h.lanes; i++, lane++) {
		const int64_t a = lane->rank * lane->in * e, b = lane->rank * lane->out * e;

		if (!fits(m, linear, lane, left) || lane->rows > rows)
			return dt_err_set(err, -EPROTO, "received data that is not a part of an adapter");
		r->of[lane->local] = (struct dt_lora_lane){.a = at,
							   .b = at + a,
							   .rank = lane->rank,
							   .cols = lane->out,
							   .scale = (float)lane->scale};
		at += a + b;
		left -= a + b;
		rows -= lane->rows;
	}
	r->bytes += (uint64_t)h.bytes + 2 * (uint64_t)h.rows * sizeof(float);
	return 0;
}

int dt_infer_adapter_lay(struct dt_infer_adapter *r, const struct dt_infer *m, struct dt_infer_piece piece,
			 struct dt_dev *dev, struct dt_err *err)
{
	struct dt_infer_linear *linear = dt_infer_linears(m, err);
	int rc = linear ? 0 : -ENOMEM;

	r->data = piece;
	r->of = calloc((size_t)m->plan.stage.local.n + 1, sizeof(*r->of));
	if (rc == 0 && !r->of)
		rc = dt_err_sys(err, -ENOMEM, "cannot read an adapter");
	if (rc == 0)
		rc = lay_out(r, m, linear, dev, err);
	free(linear);
	return rc;
}

int dt_infer_adapter_take(struct dt_infer_adapter **ret, const struct dt_infer *m, void *part, size_t n,
			  struct dt_err *err)
{
	struct dt_infer_adapter *r = calloc(1, sizeof(*r));
	int rc;

	if (!r) {
		free(part);
		return dt_err_sys(err, -ENOMEM, "cannot take an adapter");
	}
	rc = dt_infer_adapter_lay(r, m, (struct dt_infer_piece){part, n}, m->dev, err);
	if (rc == 0)
		rc = dt_infer_placed_open(r, m, err);
	if (rc < 0)
		dt_infer_adapter_free(r);
	else
		*ret = r;
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
