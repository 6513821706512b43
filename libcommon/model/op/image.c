/*
 * Image ops. A batch of images is a matrix with pixels as rows and channels as columns (kernels/conv.h), so a
 * value has height x width rows a sample. Input images need no gradient.
 */
#include "model/op/cost.h"
#include "model/op/rule.h"

#include "kernels/conv.h"

/* A value with this many pixels a sample. */
static int plane(struct dt_lower *lo, const struct dt_node *n, int out, int64_t pixels, int64_t channels)
{
	return dt_lo_value(lo, dt_lo_name(lo, out), n->unit, lo->s->compute, DT_ROWS_ALL, pixels, channels);
}

static int64_t pixels_out(const struct dt_sliding *w)
{
	return dt_window_out(w->height, w->kernel, w->stride, w->pad) *
	       dt_window_out(w->width, w->kernel, w->stride, w->pad);
}

static bool is_data(const struct dt_lower *lo, int v)
{
	const struct dt_node *from = dt_lo_from(lo, v);

	return from && (from->op == DT_OP_PIXELS || (from->op == DT_OP_FLATTEN && is_data(lo, from->in[0])));
}

void dt_shape_pixels(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_sliding *w = &n->attr.window2d;

	n->out[0] = plane(lo, n, n->out[0], w->height * w->width, w->channels);
}

/* Nothing to do: a product that reads the images may have computed a gradient, which is not used. */
void dt_back_pixels(struct dt_lower *lo, const struct dt_node *n)
{
	(void)lo;
	(void)n;
}

/* A 16-bit bias is first converted to f32, as its kernel needs. */
void dt_shape_conv(struct dt_lower *lo, struct dt_node *n)
{
	const int64_t out = dt_lo_dim(lo, n->param[0], 0);
	const bool widened = n->param[3] >= 0 && lo->s->compute != DT_F32;

	n->out[0] = plane(lo, n, n->out[0], pixels_out(&n->attr.window2d), out);
	n->out[1] =
		widened ? dt_lo_value(lo, dt_lo_name(lo, n->out[1]), n->unit, DT_F32, DT_ROWS_NONE, 1, out)
			: -1;
}

/* Serving only (model/fold.h): the result overwrites the residual if that is not read later. */
void dt_shape_conv_bias(struct dt_lower *lo, struct dt_node *n)
{
	dt_shape_conv(lo, n);
}

void dt_back_conv(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), x = dt_lo_need(lo, n->in[0]), dx;
	struct dt_node *m = dt_lo_emit(lo, DT_OP_CONV_DW, n);

	m->in[0] = dy;
	m->in[1] = x;
	m->param[0] = n->param[0];
	m->param[3] = n->param[3];
	m->attr.frozen = lo->s->graph->params.p[n->param[0]].frozen;
	if (is_data(lo, n->in[0]))
		return;
	dx = dt_lo_like(lo, "d.in", n->unit, n->in[0]);
	m = dt_lo_emit(lo, DT_OP_CONV_DX, n);
	m->in[0] = dy;
	m->out[0] = dx;
	m->param[0] = n->param[0];
	dt_lo_add_grad(lo, n->in[0], dx);
}

void dt_shape_pool_max(struct dt_lower *lo, struct dt_node *n)
{
	const int64_t pixels = pixels_out(&n->attr.window2d), c = n->attr.window2d.channels;

	n->out[0] = plane(lo, n, n->out[0], pixels, c);
	n->out[1] = dt_lo_value(lo, dt_lo_name(lo, n->out[1]), n->unit, DT_U8, DT_ROWS_ALL, pixels, c);
}

void dt_shape_pool_avg(struct dt_lower *lo, struct dt_node *n)
{
	n->out[0] = plane(lo, n, n->out[0], pixels_out(&n->attr.window2d), n->attr.window2d.channels);
}

/* at: positions of the maxima; -1 for average pooling. */
static void pool_backward(struct dt_lower *lo, const struct dt_node *n, enum dt_op op, int at)
{
	int dy = dt_lo_grad(lo, n->out[0]), kept = at < 0 ? -1 : dt_lo_need(lo, at), dx;
	struct dt_node *m;

	if (is_data(lo, n->in[0]))
		return;
	dx = dt_lo_like(lo, "d.in", n->unit, n->in[0]);
	m = dt_lo_emit(lo, op, n);
	m->in[0] = dy;
	m->in[1] = kept;
	m->out[0] = dx;
	dt_lo_add_grad(lo, n->in[0], dx);
}

void dt_back_pool_max(struct dt_lower *lo, const struct dt_node *n)
{
	pool_backward(lo, n, DT_OP_POOL_MAX_B, n->out[1]);
}

void dt_back_pool_avg(struct dt_lower *lo, const struct dt_node *n)
{
	pool_backward(lo, n, DT_OP_POOL_AVG_B, -1);
}

/* Views the pixels of a sample as one row, or some rows as one; the same bytes. */
void dt_shape_flatten(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_value x = lo->p->value[n->in[0]];

	if (n->attr.joined) {
		n->out[0] = dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, x.dtype, DT_ROWS_JOINED, 1,
					n->attr.joined * x.cols);
		lo->info[n->out[0]].whole = lo->info[n->in[0]].whole;
		return;
	}
	n->out[0] = dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, x.dtype, x.rows, 1, x.mul * x.cols);
}

void dt_back_flatten(struct dt_lower *lo, const struct dt_node *n)
{
	struct dt_node *m;
	int dx;

	if (is_data(lo, n->in[0]))
		return;
	dx = dt_lo_like(lo, "d.in", n->unit, n->in[0]);
	m = dt_lo_emit(lo, DT_OP_FLATTEN, n);
	m->in[0] = dt_lo_grad(lo, n->out[0]);
	m->out[0] = dx;
	dt_lo_add_grad(lo, n->in[0], dx);
}

/* Each of the three products: 2 operations per weight and output pixel. */
struct dt_node_cost dt_cost_conv(const struct dt_cost_site *s, const struct dt_node *n)
{
	const int y = n->op == DT_OP_CONV || n->op == DT_OP_CONV_BIAS ? n->out[0] : n->in[0];
	struct dt_node_cost r = n->op == DT_OP_CONV_DW ? dt_cost_move_add(s, n) : dt_cost_move(s, n);

	if (n->attr.frozen) /* only the bias's sum */
		return r;
	return dt_cost_product(r, (double)dt_value_rows(s->p, y), dt_cost_numel(s, n, 0, 1));
}
/* SPDX-License-Identifier: Apache-2.0 */
