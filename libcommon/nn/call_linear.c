/* Linears: products in the compute type, or in 8 bits with operands quantized before (kernels/fp8.h). */
#include "nn/call.h"

static int linear_rows(struct dt_exec *x, const struct dt_node *n, int64_t first, int64_t rows,
		       struct dt_err *err)
{
	TRY(x->dev->ops->matmul(x->dev, dt_call_rows_of(dt_call_mat(x, n->out[0]), first, rows),
				dt_call_rows_of(dt_call_mat(x, n->in[0]), first, rows), false,
				dt_call_joined(x->w, n->param), true, dt_call_joined(x->w, n->param + 3),
				false));
	return 0;
}

int dt_call_linear(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	return dt_call_in_parts(x, n, linear_rows, err);
}

static int linear_act_rows(struct dt_exec *x, const struct dt_node *n, int64_t first, int64_t rows,
			   struct dt_err *err)
{
	TRY(x->dev->ops->matmul_act(x->dev, dt_call_rows_of(dt_call_mat(x, n->out[1]), first, rows),
				    dt_call_rows_of(dt_call_mat(x, n->out[0]), first, rows),
				    dt_call_rows_of(dt_call_mat(x, n->in[0]), first, rows),
				    dt_call_joined(x->w, n->param), dt_call_joined(x->w, n->param + 3),
				    (enum dt_act_fn)n->attr.act));
	return 0;
}

int dt_call_linear_act(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	return dt_call_in_parts(x, n, linear_act_rows, err);
}

int dt_call_colsum(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->colsum(x->dev, dt_call_joined(x->g, n->param + 3), dt_call_mat(x, n->in[0])));
	return 0;
}

int dt_call_dw(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->matmul(x->dev, dt_call_joined(x->g, n->param), dt_call_mat(x, n->in[0]), true,
				dt_call_mat(x, n->in[1]), false, DT_NONE, x->accumulate));
	return 0;
}

static int dx_rows(struct dt_exec *x, const struct dt_node *n, int64_t first, int64_t rows,
		   struct dt_err *err)
{
	TRY(x->dev->ops->matmul(x->dev, dt_call_rows_of(dt_call_mat(x, n->out[0]), first, rows),
				dt_call_rows_of(dt_call_mat(x, n->in[0]), first, rows), false,
				dt_call_joined(x->w, n->param), false, DT_NONE, false));
	return 0;
}

int dt_call_dx(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	return dt_call_in_parts(x, n, dx_rows, err);
}

static int dx_act_rows(struct dt_exec *x, const struct dt_node *n, int64_t first, int64_t rows,
		       struct dt_err *err)
{
	TRY(x->dev->ops->matmul_act_backward(
		x->dev, dt_call_rows_of(dt_call_mat(x, n->out[0]), first, rows),
		dt_call_rows_of(dt_call_mat(x, n->in[0]), first, rows), dt_call_joined(x->w, n->param),
		dt_call_rows_of(dt_call_mat(x, n->in[1]), first, rows), (enum dt_act_fn)n->attr.act));
	return 0;
}

int dt_call_dx_act(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	return dt_call_in_parts(x, n, dx_act_rows, err);
}

/* A value written by a quantization, as a matrix of this size. */
static struct dt_tensor narrow(const struct dt_exec *x, int v, int64_t rows, int64_t cols)
{
	return v < 0 ? DT_NONE : dt_t2(dt_call_at(x, v), x->p->value[v].dtype, rows, cols);
}

int dt_call_quantize(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_tensor t = n->in[0] < 0 ? dt_call_joined(x->w, n->param) : dt_call_mat(x, n->in[0]);

	TRY(x->dev->ops->fp8_quantize(x->dev, narrow(x, n->out[0], t.dim[0], t.dim[1]),
				      narrow(x, n->out[1], t.dim[1], t.dim[0]), dt_call_at(x, n->out[2]), t));
	return 0;
}

int dt_call_linear8(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_tensor y = dt_call_mat(x, n->out[0]), w = dt_call_joined(x->w, n->param);

	TRY(x->dev->ops->fp8_matmul(x->dev, y, narrow(x, n->in[0], y.dim[0], w.dim[1]),
				    dt_call_at(x, n->in[1]), narrow(x, n->in[2], w.dim[0], w.dim[1]),
				    dt_call_at(x, n->in[3]), dt_call_joined(x->w, n->param + 3), false));
	return 0;
}

int dt_call_dx8(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_tensor dx = dt_call_mat(x, n->out[0]), w = dt_call_joined(x->w, n->param);

	TRY(x->dev->ops->fp8_matmul(x->dev, dx, narrow(x, n->in[0], dx.dim[0], w.dim[0]),
				    dt_call_at(x, n->in[1]), narrow(x, n->in[2], w.dim[1], w.dim[0]),
				    dt_call_at(x, n->in[3]), DT_NONE, false));
	return 0;
}

int dt_call_dw8(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_tensor dw = dt_call_joined(x->g, n->param);
	int64_t rows = x->p->rows[DT_ROWS_ALL];

	TRY(x->dev->ops->fp8_matmul(x->dev, dw, narrow(x, n->in[0], dw.dim[0], rows), dt_call_at(x, n->in[1]),
				    narrow(x, n->in[2], dw.dim[1], rows), dt_call_at(x, n->in[3]), DT_NONE,
				    x->accumulate));
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
