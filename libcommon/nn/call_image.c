/* Images: convolutions, pooling, and the end of a classifier. */
#include "nn/call.h"

#include <errno.h>
#include <math.h>

static struct dt_conv conv_of(const struct dt_exec *x, const struct dt_node *n)
{
	const struct dt_sliding *w = &n->attr.window2d;

	return (struct dt_conv){.batch = x->p->rows[DT_ROWS_ALL],
				.channels = w->channels,
				.height = w->height,
				.width = w->width,
				.out = x->w[n->param[0]].dim[0],
				.kernel = w->kernel,
				.stride = w->stride,
				.pad = w->pad};
}

static struct dt_pooling pool_of(const struct dt_exec *x, const struct dt_node *n)
{
	const struct dt_sliding *w = &n->attr.window2d;

	return (struct dt_pooling){.batch = x->p->rows[DT_ROWS_ALL],
				   .channels = w->channels,
				   .height = w->height,
				   .width = w->width,
				   .kernel = w->kernel,
				   .stride = w->stride,
				   .pad = w->pad};
}

int dt_call_pixels(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_sliding *w = &n->attr.window2d;
	struct dt_tensor in =
		dt_t2(x->flight->pixels, DT_F32, x->p->rows[DT_ROWS_ALL], w->channels * w->height * w->width);

	TRY(x->dev->ops->pixels(x->dev, dt_call_mat(x, n->out[0]), in, w->channels));
	return 0;
}

int dt_call_conv(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_conv p = conv_of(x, n);
	struct dt_tensor bias = dt_call_param(x->w, n->param[3]);

	if (bias.data && n->out[1] >= 0) {
		struct dt_tensor wide = dt_call_mat(x, n->out[1]);

		TRY(x->dev->ops->convert(x->dev, wide, bias));
		bias = wide;
	}
	if (bias.data) {
		TRY(x->dev->ops->conv_bias(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]),
					   x->w[n->param[0]], bias, DT_NONE, false, &p));
		return 0;
	}
	TRY(x->dev->ops->conv_forward(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]),
				      x->w[n->param[0]], &p));
	return 0;
}

int dt_call_conv_bias(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_conv p = conv_of(x, n);

	TRY(x->dev->ops->conv_bias(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[1]),
				   x->w[n->param[0]], dt_t2(x->bn.shifts + n->attr.buffer, DT_F32, 1, p.out),
				   dt_call_mat(x, n->in[0]), n->attr.relu, &p));
	return 0;
}

int dt_call_conv_dx(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_conv p = conv_of(x, n);

	TRY(x->dev->ops->conv_backward(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]),
				       x->w[n->param[0]], &p));
	return 0;
}

int dt_call_conv_dw(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_conv p = conv_of(x, n);
	struct dt_tensor db = dt_call_param(x->g, n->param[3]);

	if (x->g[n->param[0]].data)
		TRY(x->dev->ops->conv_weights(x->dev, x->g[n->param[0]], dt_call_mat(x, n->in[0]),
					      dt_call_mat(x, n->in[1]), x->accumulate, &p));
	if (db.data)
		TRY(x->dev->ops->colsum(x->dev, db, dt_call_mat(x, n->in[0])));
	return 0;
}

int dt_call_pool_max(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_pooling p = pool_of(x, n);

	TRY(x->dev->ops->pool_max(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->out[1]),
				  dt_call_mat(x, n->in[0]), &p));
	return 0;
}

int dt_call_pool_max_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_pooling p = pool_of(x, n);

	TRY(x->dev->ops->pool_max_backward(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]),
					   dt_call_mat(x, n->in[1]), &p));
	return 0;
}

int dt_call_pool_avg(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_pooling p = pool_of(x, n);

	TRY(x->dev->ops->pool_avg(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]), &p));
	return 0;
}

int dt_call_pool_avg_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_pooling p = pool_of(x, n);

	TRY(x->dev->ops->pool_avg_backward(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]), &p));
	return 0;
}

/* Copies the elements, unless the result has the operand's memory. */
int dt_call_flatten(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	void *to = dt_call_at(x, n->out[0]), *from = dt_call_at(x, n->in[0]);
	const enum dt_dtype type = x->p->value[n->out[0]].dtype;

	if (to != from)
		TRY(dt_dev_copy(x->dev, to, from,
				(size_t)dt_value_numel(x->p, n->out[0]) * (size_t)dt_dtype_size(type)));
	return 0;
}

/* Adds a microbatch's loss, and its counts of rows whose class was top-1 and top-5. */
static int count(struct dt_exec *x, const float *loss, int64_t rows, struct dt_err *err)
{
	const int32_t *above;

	if (x->flight->host_ce) {
		TRY(dt_dev_copy(x->dev, x->flight->host_ce, loss, 2 * (size_t)rows * sizeof(*loss)));
		TRY(dt_dev_sync(x->dev));
		loss = x->flight->host_ce;
	}
	above = (const int32_t *)(loss + rows);
	for (int64_t i = 0; i < rows; i++) {
		x->loss_sum += (double)loss[i];
		x->hits[0] += above[i] == 0;
		x->hits[1] += above[i] >= 0 && above[i] < 5;
	}
	return 0;
}

/* Computes the gradients of the head and of its input from those of the logits. */
static int head_backward(struct dt_exec *x, const struct dt_node *n, struct dt_tensor in, struct dt_tensor dl,
			 struct dt_err *err)
{
	const struct dt_ops *o = x->dev->ops;
	struct dt_tensor db = dt_call_param(x->g, n->param[3]);

	if (x->g[n->param[0]].data)
		TRY(o->matmul(x->dev, x->g[n->param[0]], dl, true, in, false, DT_NONE, x->accumulate_head));
	if (db.data && !x->accumulate_head)
		TRY(o->fill(x->dev, db, 0));
	if (db.data)
		TRY(o->colsum(x->dev, db, dl));
	TRY(o->matmul(x->dev, dt_call_mat(x, n->out[0]), dl, false, x->w[n->param[0]], false, DT_NONE,
		      false));
	return 0;
}

int dt_call_classify(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_flight *f = x->flight;
	struct dt_tensor in = dt_call_mat(x, n->in[0]), logits = dt_call_mat(x, n->out[1]),
			 dl = dt_call_mat(x, n->out[n->out[2] < 0 ? 1 : 2]);
	const int64_t rows = in.dim[0];
	float *loss = dt_call_at(x, n->out[3]);
	int32_t *above = (int32_t *)(loss + rows);
	int rc;
	struct dt_classes c = {.targets = f->targets,
			       .scale = x->loss_scale,
			       .loss = (enum dt_class_loss)n->attr.label_loss};

	if (c.loss != DT_CLASS_LOSS_CE) {
		c.share = f->share;
	} else if (x->loss_backward) { /* evaluation uses the targets unchanged */
		c.others = f->others;
		c.share = f->share;
		c.smoothing = x->smoothing;
	}
	TRY(x->dev->ops->matmul(x->dev, logits, in, false, x->w[n->param[0]], true,
				dt_call_param(x->w, n->param[3]), false));
	if (x->objective.outputs) {
		float *dy = x->loss_backward ? logits.data : NULL;
		rc = dt_dev_is_host(x->dev) && n->out[2] < 0
			     ? x->objective.outputs(x->objective.arg, rows, logits.data, dy, &x->loss_sum,
						    err)
			     : dt_err_set(err, -ENOTSUP,
					  "policy outputs are evaluated in fp32 on the CPU only");

		return rc == 0 && x->loss_backward ? head_backward(x, n, in, dl, err) : rc;
	}
	TRY(x->dev->ops->class_loss(x->dev, loss, above, x->loss_backward ? dl : DT_NONE, logits, &c));
	rc = count(x, loss, rows, err);
	return rc == 0 && x->loss_backward ? head_backward(x, n, in, dl, err) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
