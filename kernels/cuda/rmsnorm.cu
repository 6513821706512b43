#include "kernels/cuda/norm.h"

/* Vectors of n, one a row. */
static struct dt_norm_place rows_of(int64_t n)
{
	return {1, n, 0};
}

int dt_cuda_rmsnorm_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor rstd,
			    struct dt_tensor sum, struct dt_tensor x, struct dt_tensor delta,
			    struct dt_tensor w, bool plus_one, float eps)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(x), n = dt_cols(x);

	if (!c)
		return -ENODEV;
	return dt_norm_forward_start<true>(c, {y.data, sum.data, NULL, (float *)rstd.data, x.data, delta.data,
					       w.data, NULL, x.dtype, rows, n, eps, w.dtype, rows_of(n),
					       plus_one, NULL, false});
}

int dt_cuda_heads_norm_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor rstd,
			       struct dt_tensor raw, struct dt_tensor x, struct dt_tensor w, bool plus_one,
			       float eps, const struct dt_heads *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(x) * p->heads, n = p->head_dim;

	if (!c)
		return -ENODEV;
	return dt_norm_forward_start<true>(c, {y.data,
					       NULL,
					       NULL,
					       (float *)rstd.data,
					       x.data,
					       NULL,
					       w.data,
					       NULL,
					       x.dtype,
					       rows,
					       n,
					       eps,
					       w.dtype,
					       {p->heads, dt_cols(x), p->first * n},
					       plus_one,
					       raw.data,
					       false});
}

int dt_cuda_rmsnorm_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw,
			     struct dt_tensor dy, struct dt_tensor dresid, struct dt_tensor x,
			     struct dt_tensor rstd, struct dt_tensor w, bool plus_one)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(x), n = dt_cols(x);

	if (!c)
		return -ENODEV;
	return dt_norm_backward_start<true>(dev, c,
					    {dx.data, (float *)dw.data, NULL, NULL, dy.data, dresid.data,
					     x.data, w.data, NULL, (const float *)rstd.data, x.dtype, rows, 0,
					     n, w.dtype, rows_of(n), rows_of(n), plus_one, false});
}

int dt_cuda_heads_norm_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw,
				struct dt_tensor dy, struct dt_tensor x, struct dt_tensor rstd,
				struct dt_tensor w, bool plus_one, const struct dt_heads *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(dx) * p->heads, n = p->head_dim;
	const struct dt_norm_place at = {p->heads, dt_cols(dx), p->first * n};

	if (!c)
		return -ENODEV;
	return dt_norm_backward_start<true>(dev, c,
					    {dx.data, (float *)dw.data, NULL, NULL, dy.data, NULL, x.data,
					     w.data, NULL, (const float *)rstd.data, dx.dtype, rows, 0, n,
					     w.dtype, at, dt_numel(x) == rows * n ? rows_of(n) : at, plus_one,
					     false});
}
/* SPDX-License-Identifier: Apache-2.0 */
