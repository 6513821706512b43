/* The scratch of ops on images: the calls of nn/call_image.c and nn/call_batchnorm.c. */
#include "kernels/batchnorm.h"
#include "kernels/class_loss.h"
#include "kernels/pool.h"
#include "model/op/scratch_need.h"

static struct dt_conv conv_of(const struct dt_need *w, const struct dt_node *n)
{
	const struct dt_sliding *s = &n->attr.window2d;

	return (struct dt_conv){.batch = w->s->p->rows[DT_ROWS_ALL],
				.channels = s->channels,
				.height = s->height,
				.width = s->width,
				.out = w->s->param[n->param[0]][0],
				.kernel = s->kernel,
				.stride = s->stride,
				.pad = s->pad};
}

static struct dt_pooling pool_of(const struct dt_need *w, const struct dt_node *n)
{
	const struct dt_sliding *s = &n->attr.window2d;

	return (struct dt_pooling){.batch = w->s->p->rows[DT_ROWS_ALL],
				   .channels = s->channels,
				   .height = s->height,
				   .width = s->width,
				   .kernel = s->kernel,
				   .stride = s->stride,
				   .pad = s->pad};
}

void dt_need_pixels(const struct dt_need *w, const struct dt_node *n)
{
	const struct dt_sliding *s = &n->attr.window2d;

	dt_need_op(w, dt_pixels_scratch(w->on, s->channels * s->height * s->width));
}

static void conv(const struct dt_need *w, const struct dt_node *n, enum dt_dtype t, bool weights)
{
	const struct dt_conv p = conv_of(w, n);

	dt_conv_scratch(w->on, t, weights, &p, w->ret);
}

void dt_need_conv(const struct dt_need *w, const struct dt_node *n)
{
	conv(w, n, dt_need_type(w, n->out[0]), false);
}

void dt_need_conv_dw(const struct dt_need *w, const struct dt_node *n)
{
	if (!n->attr.frozen)
		conv(w, n, dt_need_type(w, n->in[0]), true);
	if (n->param[3] >= 0)
		dt_need_op(w, dt_colsum_scratch(w->on, dt_need_rows(w, n->in[0]), dt_need_cols(w, n->in[0])));
}

void dt_need_batch_norm(const struct dt_need *w, const struct dt_node *n)
{
	const int64_t groups = dt_need_rows(w, n->out[1]), c = dt_need_cols(w, n->out[1]);

	dt_need_op(w, dt_bn_stats_scratch(w->on, groups, dt_need_rows(w, n->in[0]) / groups, c));
	dt_need_op(w, dt_bn_forward_scratch(w->on, c));
}

void dt_need_batch_norm_b(const struct dt_need *w, const struct dt_node *n)
{
	const int64_t groups = dt_need_rows(w, n->in[3]), c = dt_need_cols(w, n->in[3]);

	dt_need_op(w, dt_bn_sums_scratch(w->on, dt_need_rows(w, n->in[2]) / groups, c));
	dt_need_op(w, dt_colsum_scratch(w->on, groups, c));
	dt_need_op(w, dt_bn_backward_scratch(w->on, c));
}

void dt_need_pool(const struct dt_need *w, const struct dt_node *n)
{
	const struct dt_pooling p = pool_of(w, n);

	dt_need_op(w, dt_pool_scratch(w->on, &p));
}

void dt_need_pool_b(const struct dt_need *w, const struct dt_node *n)
{
	const struct dt_pooling p = pool_of(w, n);

	dt_need_op(w, dt_pool_backward_scratch(w->on, &p));
}

void dt_need_classify(const struct dt_need *w, const struct dt_node *n)
{
	const int64_t rows = dt_need_rows(w, n->in[0]), cols = dt_need_cols(w, n->in[0]),
		      classes = dt_need_cols(w, n->out[1]);
	const enum dt_dtype in = dt_need_type(w, n->in[0]),
			    dl = dt_need_type(w, n->out[n->out[2] < 0 ? 1 : 2]);
	const bool bias = n->param[3] >= 0;

	dt_need_product(w, (struct dt_product){.m = rows,
					       .n = classes,
					       .k = cols,
					       .tb = true,
					       .in = in,
					       .out = dt_need_type(w, n->out[1]),
					       .bias = bias});
	dt_need_op(w, dt_class_loss_scratch(w->on, classes));
	if (!n->attr.frozen)
		dt_need_product(
			w, (struct dt_product){
				   .m = classes, .n = cols, .k = rows, .ta = true, .in = dl, .out = DT_F32});
	if (bias)
		dt_need_op(w, dt_colsum_scratch(w->on, rows, classes));
	dt_need_product(
		w, (struct dt_product){
			   .m = rows, .n = cols, .k = classes, .in = dl, .out = dt_need_type(w, n->out[0])});
}
/* SPDX-License-Identifier: Apache-2.0 */
