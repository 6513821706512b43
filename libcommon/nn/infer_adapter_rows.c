/*
 * DoRA's magnitudes (kernels/dora.h): a rank measures its part of the rows of w + s b a; ranks that share a
 * row all-reduce the squares. Values are those used in computing. With several ranks it is done in portions,
 * each a part of one lane's rows, so that other steps run in between.
 */
#include "comm/comm.h"
#include "nn/infer_adapter_priv.h"
#include "nn/infer_disk.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { ROWS = 64, CARD_ROWS = 1024 }; /* rows unpacked at a time */

struct room {
	int64_t rows;
	float *w, *a, *b,
		*sums; /* [rows, in], [rank, in], [rows, rank], [2, rows]; w and a only on the CPU */
	/* device memory: row ids, then sums, b and w */
	char *there;
	int32_t *ids;
};

static int make_room(struct room *r, const struct dt_infer *m, const struct dt_infer_lane *l)
{
	const bool card = !dt_dev_is_host(m->dev);
	size_t rows;

	r->rows = card ? CARD_ROWS : ROWS;
	rows = (size_t)r->rows;
	r->w = card ? NULL : malloc(rows * (size_t)l->in * sizeof(*r->w));
	r->a = card ? NULL : malloc((size_t)(l->rank * l->in) * sizeof(*r->a));
	r->b = malloc(rows * (size_t)l->rank * sizeof(*r->b));
	r->sums = malloc(2 * rows * sizeof(*r->sums));
	r->ids = malloc(rows * sizeof(*r->ids));
	if (!((r->w && r->a) || card) || !r->b || !r->sums || !r->ids)
		return -ENOMEM;
	return card ? dt_dev_alloc(m->dev, (void **)&r->there, rows * (size_t)(l->in + l->rank + 3) * 4) : 0;
}

static void drop_room(struct room *r, const struct dt_infer *m)
{
	if (r->there)
		dt_dev_free(m->dev, r->there);
	free(r->w);
	free(r->a);
	free(r->b);
	free(r->sums);
	free(r->ids);
}

/* Squares of rows [at, at + n) on the CPU; the lane's a and b are in the room. */
static int sums_here(struct dt_dev *dev, const struct dt_infer_linear *from, const struct dt_infer_lane *l,
		     const struct room *r, int64_t at, int64_t n)
{
	int rc = 0;

	for (int64_t i = 0; i < n && rc == 0; i++)
		rc = dt_packed_row(from->w, from->at + at + i, r->w + i * l->in);
	return rc < 0 ? rc
		      : dev->ops->dora_norms(dev, dt_t2(r->sums, DT_F32, 2, n), dt_t2(r->w, DT_F32, n, l->in),
					     dt_t2(r->a, DT_F32, l->rank, l->in),
					     dt_t2(r->b, DT_F32, n, l->rank), (float)l->scale);
}

/* The same on a device. */
static int sums_there(const struct dt_infer *m, const struct dt_infer_linear *from,
		      const struct dt_infer_lane *l, const struct dt_lora_lane *lane, const struct room *r,
		      int64_t at, int64_t n)
{
	float *sums = (float *)(r->there + r->rows * 4), *b = sums + 2 * r->rows, *w = b + r->rows * l->rank;
	const int64_t of = dt_packed_rows(from->w);
	int rc;

	for (int64_t i = 0; i < n; i++)
		r->ids[i] = (int32_t)(from->at + at + i);
	if ((rc = dt_dev_copy(m->dev, r->there, r->ids, (size_t)n * 4)) < 0 ||
	    (rc = dt_dev_copy(m->dev, b, r->b, (size_t)(n * l->rank) * 4)) < 0 ||
	    (rc = m->dev->ops->packed_embed(m->dev, dt_t2(w, DT_F32, n, l->in), from->w,
					    (const int32_t *)r->there, 0, of, 1)) < 0 ||
	    (rc = m->dev->ops->dora_norms(m->dev, dt_t2(sums, DT_F32, 2, n), dt_t2(w, DT_F32, n, l->in),
					  dt_t2((void *)lane->a, m->p.dtype, l->rank, l->in),
					  dt_t2(b, DT_F32, n, l->rank), (float)l->scale)) < 0 ||
	    (rc = dt_dev_copy(m->dev, r->sums, sums, 2 * (size_t)n * 4)) < 0)
		return rc;
	return dt_dev_sync(m->dev);
}

/* squares [2, out]: of this rank's part of rows [first, end) of w, and of w + s b a. */
static int measure_rows(const struct dt_infer *m, struct dt_dev *dev, const struct dt_infer_linear *from,
			const struct dt_infer_lane *l, const struct dt_infer_adapter *a, int64_t first,
			int64_t end, float *squares, struct dt_err *err)
{
	const struct dt_tensor lane_a = dt_t2((void *)a->of[l->local].a, m->p.dtype, l->rank, l->in),
			       b = dt_t2((void *)a->of[l->local].b, m->p.dtype, l->rank, l->out);
	struct room r = {0};
	int rc = make_room(&r, m, l);

	for (int64_t i = 0; i < l->rank && rc == 0 && r.a; i++)
		for (int64_t k = 0; k < l->in; k++)
			r.a[i * l->in + k] = dt_infer_number(lane_a, dt_infer_a_at(m, i, l->rank, k, l->in));
	for (int64_t at = first; at < end && rc == 0; at += r.rows) {
		const int64_t n = end - at < r.rows ? end - at : r.rows;

		for (int64_t i = 0; i < n; i++)
			for (int64_t k = 0; k < l->rank; k++)
				r.b[i * l->rank + k] =
					dt_infer_number(b, dt_infer_b_at(m, at + i, l->out, k, l->rank));
		rc = a->placed ? sums_there(m, from, l, &a->placed->of[l->local], &r, at, n)
			       : sums_here(dev, from, l, &r, at, n);
		memcpy(squares + at, r.sums, (size_t)n * sizeof(float));
		memcpy(squares + l->out + at, r.sums + n, (size_t)n * sizeof(float));
	}
	drop_room(&r, m);
	return dt_kernel_check(rc, "the lengths of rows", err);
}

static bool is_cut(const struct dt_infer *m, const struct dt_infer_lane *l)
{
	const struct dt_local_param *here = &m->plan.stage.local.p[l->local];

	return m->ranks.tp && here->shape[1] != m->plan.stage.graph.params.p[here->index].shape[1];
}

/* Replaces the magnitudes in gain by gains, and sets the shifts after them. bias: in host memory. */
static void put_gains(const struct dt_infer_lane *l, struct dt_tensor bias, const float *squares, float *gain,
		      struct dt_lora_lane *lane)
{
	float *shift = gain + l->rows;

	for (int64_t i = 0; i < l->rows; i++) {
		const double own = l->above ? sqrt((double)squares[i]) : 0,
			     whole = sqrt((double)squares[l->out + i]);

		gain[i] = whole > 0 ? (float)((own + (double)gain[i]) / whole) : 1;
		shift[i] = bias.data ? (1 - gain[i]) * dt_infer_number(bias, i) : 0;
	}
	lane->gain = gain;
	lane->shift = bias.data ? shift : NULL;
}

/* Makes *bias readable by the host: unchanged, or a copy in *room (malloc'd). */
static int bias_here(const struct dt_infer_adapter *a, const struct dt_infer *m, struct dt_tensor *bias,
		     void **room)
{
	const size_t n = bias->data ? (size_t)(dt_numel(*bias) * dt_dtype_size(bias->dtype)) : 0;
	int rc;

	*room = NULL;
	if (!a->placed || !n)
		return 0;
	*room = malloc(n);
	rc = *room ? dt_dev_copy(m->dev, *room, bias->data, n) : -ENOMEM;
	bias->data = *room;
	return rc < 0 ? rc : dt_dev_sync(m->dev);
}

/* Sets the gains of lane l when all ranks have measured its squares. */
static int finish_lane(struct dt_infer_adapter *a, const struct dt_infer *m,
		       const struct dt_infer_linear *from, const struct dt_infer_lane *l, float *gain,
		       struct dt_err *err)
{
	struct dt_tensor bias = dt_call_param(m->w, from->bias);
	void *room;
	int rc = bias_here(a, m, &bias, &room);

	if (rc < 0)
		dt_err_sys(err, rc, "cannot read a bias from the device");
	else if (is_cut(m, l))
		rc = dt_all_reduce(m->ranks.tp, a->squares, NULL, 2 * (size_t)l->out, DT_F32, DT_SUM,
				   "lengths of an adapter's rows", err);
	if (rc == 0)
		put_gains(l, bias, a->squares, gain, &a->of[l->local]);
	free(room);
	free(a->squares);
	a->squares = NULL;
	return rc;
}

/* dev: whose threads measure; with a device, m's. */
static int measure(struct dt_infer_adapter *a, const struct dt_infer *m, struct dt_dev *dev, int portion,
		   int parts, struct dt_err *err)
{
	const int lane = portion / parts, part = portion % parts;
	const struct dt_infer_lane *l = &a->lane[lane];
	struct dt_infer_linear linear;
	float *gain = a->rows;
	int rc;

	for (int i = 0; i < lane; i++)
		gain += 2 * a->lane[i].rows;
	linear = dt_infer_linear_of(m, l->local);
	if (!a->squares)
		a->squares = calloc(2 * (size_t)l->out, sizeof(*a->squares));
	rc = dt_infer_placed_numbers(a, m, err);
	if (rc < 0)
		return rc;
	rc = a->squares ? measure_rows(m, dev, &linear, l, a, l->out * part / parts,
				       l->out * (part + 1) / parts, a->squares, err)
			: dt_err_sys(err, -ENOMEM, "cannot measure the rows of an adapter");
	if (rc == 0 && part + 1 == parts)
		rc = finish_lane(a, m, &linear, l, gain, err);
	return rc;
}

int dt_infer_adapter_measure(const struct dt_infer_adapter *of, struct dt_infer *m, int portion, int parts,
			     struct dt_err *err)
{
	struct dt_infer_adapter *a = (struct dt_infer_adapter *)of;
	const struct dt_infer_lane *l = &a->lane[portion / parts];
	int rc;

	if (portion / parts >= a->lanes || !l->rows)
		return 0;
	rc = dt_infer_disk_layer(m, m->plan.stage.graph.params.p[m->plan.stage.local.p[l->local].index].layer,
				 err);
	return rc < 0 ? rc : measure(a, m, m->dev, portion, parts, err);
}

int dt_infer_adapter_measure_all(struct dt_infer_adapter *a, const struct dt_infer *m, struct dt_dev *dev,
				 struct dt_err *err)
{
	int rc = 0;

	if (dt_infer_disk_moves(m)) {
		a->portions = a->lanes;
		a->parts = 1;
		return 0;
	}
	for (int i = 0; i < a->lanes && rc == 0; i++)
		rc = a->lane[i].rows ? measure(a, m, dev, i, 1, err) : 0;
	return rc;
}

int dt_infer_adapters_measured(struct dt_infer *m, const struct dt_infer_batch *b, struct dt_err *err)
{
	int rc = 0, parts, next;

	for (int i = 0; b->adapter && !m->gone && i < b->nseq; i++)
		while (b->adapter[i] && (next = dt_infer_adapter_portion(b->adapter[i], &parts)) >= 0) {
			rc = dt_infer_adapter_measure(b->adapter[i], m, next, parts, err);
			if (rc < 0)
				return rc;
			dt_infer_adapter_measured(b->adapter[i]);
		}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
