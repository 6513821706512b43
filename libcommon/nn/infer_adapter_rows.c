/*
 * Magnitudes over ranks (kernels/dora.h): each measures what it has of the rows of w + s b a, and where rows
 * are cut the ranks add up the squares. Numbers are those that are computed with, of weights and of adapters.
 * It is done in portions, part p of n of the rows of one lane, so that steps of others can go on between them.
 */
#include "comm/comm.h"
#include "nn/infer_adapter_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { ROWS = 64 }; /* unpacked at a time */
#define PORTION 4e6 /* products that a portion has at most: some milliseconds of one thread */

struct room {
	float *w, *b, *sums; /* [ROWS, in], [ROWS, rank], [2, ROWS] */
};

static int make_room(struct room *r, const struct dt_infer_lane *l)
{
	r->w = malloc((size_t)(ROWS * l->in) * sizeof(*r->w));
	r->b = malloc((size_t)(ROWS * l->rank) * sizeof(*r->b));
	r->sums = malloc(2 * ROWS * sizeof(*r->sums));
	return r->w && r->b && r->sums ? 0 : -ENOMEM;
}

/* squares [2, out]: of the rank's part of rows [first, end) of w, and of w + s b a. */
static int measure_rows(const struct dt_infer *m, const struct dt_infer_linear *from,
			const struct dt_infer_lane *l, const struct dt_lora_lane *lane, int64_t first,
			int64_t end, float *squares, struct dt_err *err)
{
	struct room room = {0}, *r = &room;
	int rc = make_room(r, l);

	const enum dt_dtype type = m->p.dtype;
	const struct dt_tensor b = dt_t2((void *)lane->b, type, l->rank, l->out);

	for (int64_t at = first; at < end && rc == 0; at += ROWS) {
		const int64_t n = end - at < ROWS ? end - at : ROWS;

		for (int64_t i = 0; i < n && rc == 0; i++) {
			rc = dt_packed_row(from->w, from->at + at + i, r->w + i * l->in);
			for (int64_t k = 0; k < l->rank; k++)
				r->b[i * l->rank + k] = dt_infer_number(b, k * l->out + at + i);
		}
		if (rc == 0)
			rc = m->dev->ops->dora_norms(m->dev, dt_t2(r->sums, DT_F32, 2, n),
						     dt_t2(r->w, DT_F32, n, l->in),
						     dt_t2((void *)lane->a, type, l->rank, l->in),
						     dt_t2(r->b, DT_F32, n, l->rank), (float)l->scale);
		memcpy(squares + at, r->sums, (size_t)n * sizeof(float));
		memcpy(squares + l->out + at, r->sums + n, (size_t)n * sizeof(float));
	}
	free(r->w);
	free(r->b);
	free(r->sums);
	return dt_kernel_check(rc, "the lengths of rows", err);
}

static bool is_cut(const struct dt_infer *m, const struct dt_infer_lane *l)
{
	const struct dt_local_param *here = &m->plan.stage.local.p[l->local];

	return m->ranks.tp && here->shape[1] != m->plan.stage.graph.params.p[here->index].shape[1];
}

/* gain holds magnitudes; behind it is shift. */
static void put_gains(const struct dt_infer *m, const struct dt_infer_linear *from,
		      const struct dt_infer_lane *l, const float *squares, float *gain,
		      struct dt_lora_lane *lane)
{
	const struct dt_tensor bias = dt_call_param(m->x.w, from->bias);
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

/* The gains of lane l, whose squares all ranks have measured. */
static int finish_lane(struct dt_infer_adapter *a, const struct dt_infer *m,
		       const struct dt_infer_linear *from, const struct dt_infer_lane *l, float *gain,
		       struct dt_err *err)
{
	int rc = is_cut(m, l) ? dt_all_reduce(m->ranks.tp, a->squares, NULL, 2 * (size_t)l->out, DT_F32,
					      DT_SUM, "lengths of an adapter's rows", err)
			      : 0;

	if (rc == 0)
		put_gains(m, from, l, a->squares, gain, &a->of[l->local]);
	free(a->squares);
	a->squares = NULL;
	return rc;
}

int dt_infer_adapter_measure(const struct dt_infer_adapter *of, const struct dt_infer *m, int portion,
			     int parts, struct dt_err *err)
{
	struct dt_infer_adapter *a = (struct dt_infer_adapter *)of;
	const int lane = portion / parts, part = portion % parts;
	const struct dt_infer_lane *l = &a->lane[lane];
	struct dt_infer_linear *linear;
	float *gain = a->rows;
	int rc;

	if (lane >= a->lanes || !l->rows)
		return 0;
	for (int i = 0; i < lane; i++)
		gain += 2 * a->lane[i].rows;
	linear = dt_infer_linears(m, err);
	if (!linear)
		return -ENOMEM;
	if (!a->squares)
		a->squares = calloc(2 * (size_t)l->out, sizeof(*a->squares));
	rc = a->squares ? measure_rows(m, &linear[l->local], l, &a->of[l->local], l->out * part / parts,
				       l->out * (part + 1) / parts, a->squares, err)
			: dt_err_sys(err, -ENOMEM, "cannot measure the rows of an adapter");
	if (rc == 0 && part + 1 == parts)
		rc = finish_lane(a, m, &linear[l->local], l, gain, err);
	free(linear);
	return rc;
}

/* ---- on the rank that reads ---- */

/* Of a rank's lanes: the last that has magnitudes, and the most that one takes. */
static void look_at(const struct dt_infer_lane *lane, int64_t n, int *last, double *most)
{
	for (int64_t i = 0; i < n; i++) {
		const double work = (double)lane[i].out * (double)lane[i].in * (double)lane[i].rank;

		if (!lane[i].rows)
			continue;
		*last = i + 1 > *last ? (int)i + 1 : *last;
		*most = work > *most ? work : *most;
	}
}

void dt_infer_adapter_plan(struct dt_infer_adapter *a, const struct dt_infer_lane *const *lane,
			   const int64_t *n, int ranks)
{
	double most = 0;
	int last = 0;

	for (int i = 0; i < ranks; i++)
		look_at(lane[i], n[i], &last, &most);
	a->parts = (int)(most / PORTION) + 1;
	a->portions = last * a->parts;
}

int dt_infer_adapter_portion(const struct dt_infer_adapter *a, int *ret_parts)
{
	*ret_parts = a->parts;
	return a->portion < a->portions ? a->portion : -1;
}

void dt_infer_adapter_measured(const struct dt_infer_adapter *a)
{
	((struct dt_infer_adapter *)a)->portion++;
}
/* SPDX-License-Identifier: Apache-2.0 */
