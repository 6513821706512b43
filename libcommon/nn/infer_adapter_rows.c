/*
 * Magnitudes over ranks (kernels/dora.h): each measures what it has of the rows of w + s b a, and where rows
 * are cut the ranks add up the squares. Numbers are those that are computed with, of weights and of adapters.
 */
#include "comm/comm.h"
#include "nn/infer_adapter_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { ROWS = 64 }; /* unpacked at a time */

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

/* squares [2, out]: of the rank's part of rows of w, and of w + s b a. */
static int measure_lane(const struct dt_infer *m, const struct dt_infer_linear *from,
			const struct dt_infer_lane *l, const struct dt_lora_lane *lane, const struct room *r,
			float *squares, struct dt_err *err)
{
	const enum dt_dtype type = m->p.dtype;
	const struct dt_tensor b = dt_t2((void *)lane->b, type, l->rank, l->out);

	for (int64_t at = 0; at < l->out; at += ROWS) {
		const int64_t n = l->out - at < ROWS ? l->out - at : ROWS;
		int rc = 0;

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
		if (rc < 0)
			return dt_kernel_check(rc, "the lengths of rows", err);
		memcpy(squares + at, r->sums, (size_t)n * sizeof(float));
		memcpy(squares + l->out + at, r->sums + n, (size_t)n * sizeof(float));
	}
	return 0;
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

static int add_lane(const struct dt_infer_adapter *a, const struct dt_infer *m,
		    const struct dt_infer_linear *from, const struct dt_infer_lane *l, float *gain,
		    struct dt_err *err)
{
	float *squares = malloc(2 * (size_t)l->out * sizeof(*squares));
	struct room r = {0};
	int rc = make_room(&r, l);

	if (rc < 0 || !squares)
		rc = dt_err_sys(err, -ENOMEM, "cannot measure the rows of an adapter");
	if (rc == 0)
		rc = measure_lane(m, from, l, &a->of[l->local], &r, squares, err);
	if (rc == 0 && is_cut(m, l))
		rc = dt_all_reduce(m->ranks.tp, squares, NULL, 2 * (size_t)l->out, DT_F32, DT_SUM,
				   "lengths of an adapter's rows", err);
	if (rc == 0)
		put_gains(m, from, l, squares, gain, &a->of[l->local]);
	free(squares);
	free(r.w);
	free(r.b);
	free(r.sums);
	return rc;
}

int dt_infer_adapter_measure(const struct dt_infer_adapter *a, const struct dt_infer *m, struct dt_err *err)
{
	struct dt_infer_linear *linear;
	float *gain = a->rows;
	int rc = 0;

	if (!gain)
		return 0;
	linear = dt_infer_linears(m, err);
	if (!linear)
		return -ENOMEM;
	for (int i = 0; i < a->lanes && rc == 0; i++) {
		const struct dt_infer_lane *l = &a->lane[i];

		if (l->rows)
			rc = add_lane(a, m, &linear[l->local], l, gain, err);
		gain += 2 * l->rows;
	}
	free(linear);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
