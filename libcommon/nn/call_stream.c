/*
 * Communication of the tensor-parallel ranks (model/op/cuts.c): blocking, or overlapped with products that
 * process each rank's rows in turn (model/op/stream.c). Messages progress between slices of a product.
 */
#include "nn/call.h"

#include "base/progress.h"
#include "comm/reduce.h"
#include "model/op/cost.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define TAG_GATHER  (DT_TAG_MAX + 2)
#define TAG_SCATTER (DT_TAG_MAX + 3)

#define WHAT 48

/* The name of a message for the watchdog: "o output", "qkv input gradient". */
static const char *what(const struct dt_exec *x, const struct dt_node *n, char buf[WHAT])
{
	bool gradient = x->p->value[n->out[0]].gradient, input = (n->op == DT_OP_ENTER) != gradient;

	snprintf(buf, WHAT, "%s %s%s", n->name, input ? "input" : "output", gradient ? " gradient" : "");
	return buf;
}

static void count(struct dt_exec *x, double since)
{
	const double s = dt_now() - since;

	x->comm_s += s;
	x->stream.exposed_s += s;
}

/* ---- transfers under way ---- */

int dt_stream_open(struct dt_stream *s, const struct dt_stage *stage, int tp)
{
	const size_t n = (DT_STREAM_GATHERS + 1) * 2 * (size_t)tp;

	for (int k = 0; k < stage->nchunk; k++)
		s->steps = stage->chunk[k].nstep > s->steps ? stage->chunk[k].nstep : s->steps;
	s->all = calloc(n, sizeof(struct dt_comm_req *));
	s->alike = calloc((size_t)(stage->nchunk * s->steps) + 1, sizeof(*s->alike));
	if (!s->all || !s->alike)
		return -ENOMEM;
	for (int i = 0; i < DT_STREAM_GATHERS; i++)
		s->gather[i] = (struct dt_stream_way){s->all + 2 * i * tp, -1};
	s->scatter = (struct dt_stream_way){s->all + 2 * DT_STREAM_GATHERS * tp, -1};
	return 0;
}

void dt_stream_close(struct dt_stream *s)
{
	free(s->all);
	free(s->alike);
	*s = (struct dt_stream){0};
}

static int end_way(struct dt_exec *x, struct dt_stream_way *w, struct dt_err *err)
{
	const double t0 = dt_now();
	const int rc = dt_wait_all(w->req, 2 * dt_comm_size(x->tp), NULL, err);

	x->stream.under_way -= w->value >= 0;
	w->value = -1;
	count(x, t0);
	return rc;
}

void dt_stream_drop(struct dt_exec *x)
{
	for (int i = 0; i < DT_STREAM_GATHERS; i++)
		end_way(x, &x->stream.gather[i], NULL);
	end_way(x, &x->stream.scatter, NULL);
}

void dt_stream_move(struct dt_exec *x)
{
	const double t0 = dt_now();

	dt_comm_poll(dt_comm_world(x->tp), NULL);
	count(x, t0);
}

/* The gather of this value; NULL: it has completed. */
static struct dt_stream_way *way_of(struct dt_exec *x, int value)
{
	for (int i = 0; i < DT_STREAM_GATHERS; i++)
		if (x->stream.gather[i].value == value)
			return &x->stream.gather[i];
	return NULL;
}

/* ---- gathers ---- */

static int begin_gather(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const int p = dt_comm_size(x->tp), me = dt_comm_rank(x->tp);
	struct dt_tensor own = dt_call_mat(x, n->in[0]), all = dt_call_mat(x, n->out[0]);
	const size_t size = (size_t)dt_numel(own);
	const int64_t rows = own.dim[0];
	struct dt_stream_way *w = way_of(x, -1);
	int rc = 0;

	if (!w) { /* all are in use: waits for the first */
		w = &x->stream.gather[0];
		rc = end_way(x, w, err);
	}
	w->value = n->out[0];
	x->stream.under_way++;
	for (int i = 1; i < p && rc == 0; i++) {
		const int r = (me + i) % p;

		rc = dt_irecv(x->tp, dt_call_rows_of(all, r * rows, rows).data, size, x->dtype, r, TAG_GATHER,
			      n->name, &w->req[r], err);
	}
	for (int i = 1; i < p && rc == 0; i++) { /* first to the rank that needs it first */
		const int r = (me + p - i) % p;

		rc = dt_isend(x->tp, own.data, size, x->dtype, r, TAG_GATHER, n->name, &w->req[p + r], err);
	}
	memcpy(dt_call_rows_of(all, me * rows, rows).data, own.data, size * (size_t)dt_dtype_size(x->dtype));
	return rc;
}

int dt_call_enter(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const double t0 = dt_now();
	char buf[WHAT];
	int rc = n->attr.begins ? begin_gather(x, n, err)
				: dt_all_gather(x->tp, dt_call_at(x, n->out[0]), dt_call_at(x, n->in[0]),
						(size_t)dt_value_numel(x->p, n->in[0]), x->dtype,
						what(x, n, buf), err);

	count(x, t0);
	return rc;
}

int dt_call_enter_wait(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_stream_way *w = way_of(x, n->in[1]);

	return w ? end_way(x, w, err) : 0;
}

/* ---- sums ---- */

/* Where the rows arrive that rank r has summed for this one. */
static char *came_from(const struct dt_exec *x, int value, int r)
{
	const struct dt_value *v = &x->p->value[value];
	const int64_t each = dt_value_numel(x->p, value) / (dt_comm_size(x->tp) - 1);

	return (char *)dt_call_at(x, value) +
	       (r < dt_comm_rank(x->tp) ? r : r - 1) * each * dt_dtype_size(v->dtype);
}

static int begin_scatter(struct dt_exec *x, const struct dt_node *n, size_t each, struct dt_err *err)
{
	const int p = dt_comm_size(x->tp), me = dt_comm_rank(x->tp), to = n->out[DT_NODE_OUT - 1];
	const double t0 = dt_now();
	int rc = 0;

	x->stream.scatter.value = to;
	x->stream.under_way++;
	for (int i = 1; i < p && rc == 0; i++) {
		const int r = (me + p - i) % p;

		rc = dt_irecv(x->tp, came_from(x, to, r), each, x->dtype, r, TAG_SCATTER, n->name,
			      &x->stream.scatter.req[r], err);
	}
	count(x, t0);
	return rc;
}

/* Adds what arrived and this rank's own, in rank order. */
static int end_scatter(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const int p = dt_comm_size(x->tp), me = dt_comm_rank(x->tp);
	const size_t each = (size_t)dt_value_numel(x->p, n->out[0]);
	const void **src = malloc((size_t)p * sizeof(*src));
	double t0;
	int rc = src ? end_way(x, &x->stream.scatter, err) : dt_err_sys(err, -ENOMEM, "sums of ranks");

	t0 = dt_now();
	for (int r = 0; r < p && rc == 0; r++)
		src[r] = r == me ? (char *)dt_call_at(x, n->in[0]) +
					   (size_t)r * each * (size_t)dt_dtype_size(x->dtype)
				 : came_from(x, n->in[1], r);
	if (rc == 0)
		dt_comm_reduce_many(dt_call_at(x, n->out[0]), src, p, each, x->dtype, DT_SUM);
	free(src);
	count(x, t0);
	return rc;
}

int dt_call_leave(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	void *to = dt_call_at(x, n->out[0]), *from = dt_call_at(x, n->in[0]);
	size_t size = (size_t)dt_value_numel(x->p, n->out[0]);
	double t0 = dt_now();
	char buf[WHAT];
	int rc;

	if (n->in[1] >= 0)
		return end_scatter(x, n, err);
	if (x->seq_parallel)
		rc = dt_reduce_scatter(x->tp, to, from == to ? NULL : from, size, x->dtype, DT_SUM,
				       what(x, n, buf), err);
	else
		rc = dt_all_reduce(x->tp, to, from == to ? NULL : from, size, x->dtype, DT_SUM, n->name, err);
	count(x, t0);
	return rc;
}

/* ---- products ---- */

static int64_t slice_rows(const struct dt_node *n, const struct dt_exec *x, int64_t part)
{
	const struct dt_tensor w = dt_call_joined(x->w, n->param);

	return dt_stream_slice((double)w.dim[0] * (double)w.dim[1], part);
}

static int one_part(struct dt_exec *x, const struct dt_node *n, dt_call_rows *of, int64_t first, int64_t rows,
		    struct dt_err *err)
{
	const int64_t most = slice_rows(n, x, rows);
	int rc = 0;

	for (int64_t i = 0; i < rows && rc == 0; i += most) {
		rc = of(x, n, first + i, i + most < rows ? most : rows - i, err);
		if (rc == 0 && x->stream.under_way)
			dt_stream_move(x);
	}
	return rc;
}

static int wait_part(struct dt_exec *x, struct dt_stream_way *w, int r, struct dt_err *err)
{
	const double t0 = dt_now();
	const int rc = w ? dt_wait(&w->req[r], NULL, err) : 0;

	count(x, t0);
	return rc;
}

static int send_part(struct dt_exec *x, const struct dt_node *n, int r, int64_t rows, struct dt_err *err)
{
	const struct dt_tensor t = dt_call_rows_of(dt_call_mat(x, n->out[0]), r * rows, rows);
	const double t0 = dt_now();
	const int rc = dt_isend(x->tp, t.data, (size_t)dt_numel(t), x->dtype, r, TAG_SCATTER, n->name,
				&x->stream.scatter.req[dt_comm_size(x->tp) + r], err);

	count(x, t0);
	return rc;
}

/* Asks the device whether the product in parts is bitwise the same. */
static bool ask_alike(struct dt_exec *x, const struct dt_node *n, int64_t part, int p)
{
	const struct dt_tensor w = dt_call_joined(x->w, n->param);
	const bool tb = n->op == DT_OP_LINEAR || n->op == DT_OP_LINEAR_ACT;
	const int64_t each = slice_rows(n, x, part), rows[] = {part * p, each, part % each};
	bool alike = true;

	for (int i = 0; i < 3 && alike; i++)
		alike = dt_dev_rows_apart(x->dev, x->dtype, rows[i], tb ? w.dim[1] : w.dim[0],
					  tb ? w.dim[0] : w.dim[1], tb, n->param[3] >= 0);
	return alike;
}

/* Whether the product may be made in parts: with equal bits, or if bits may differ. Shapes are fixed. */
static bool parts_alike(struct dt_exec *x, const struct dt_node *n, int64_t part, int p)
{
	const struct dt_step *step = (const struct dt_step *)((const char *)n - offsetof(struct dt_step, n));
	enum dt_stream_alike *known =
		&x->stream.alike[(x->p - x->stage->chunk) * x->stream.steps + (step - x->p->step)];

	if (x->stream.splits)
		return true;
	if (*known == DT_STREAM_UNKNOWN)
		*known = ask_alike(x, n, part, p) ? DT_STREAM_ALIKE : DT_STREAM_APART;
	return *known == DT_STREAM_ALIKE;
}

int dt_call_in_parts(struct dt_exec *x, const struct dt_node *n, dt_call_rows *of, struct dt_err *err)
{
	const int64_t all = dt_value_rows(x->p, n->in[0]);
	const bool sends = n->attr.sends;
	struct dt_stream_way *w;
	int64_t part;
	int rc = 0, p, me;
	bool alike;

	if (!n->attr.parts && !sends)
		return of(x, n, 0, all, err);
	p = dt_comm_size(x->tp);
	me = dt_comm_rank(x->tp);
	part = all / p;
	alike = parts_alike(x, n, part, p);
	w = n->attr.parts ? way_of(x, n->in[0]) : NULL;
	if (sends)
		rc = begin_scatter(x, n, (size_t)(part * x->p->value[n->out[0]].cols), err);
	if (w && !alike && rc == 0)
		rc = end_way(x, w, err);
	if (!alike && rc == 0)
		rc = of(x, n, 0, all, err);
	for (int i = 0; i < p && rc == 0; i++) {
		const int r = (me + i + sends) % p; /* this rank's own rows first; last if parts are sent */

		if (r != me && n->attr.parts && alike)
			rc = wait_part(x, w, r, err);
		if (rc == 0 && alike)
			rc = one_part(x, n, of, r * part, part, err);
		if (rc == 0 && r != me && sends)
			rc = send_part(x, n, r, part, err);
	}
	return rc == 0 && w && alike ? end_way(x, w, err) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
