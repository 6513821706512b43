#include "kernels/cuda/norm.h"

int dt_cuda_layernorm_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor mean,
			      struct dt_tensor rstd, struct dt_tensor sum, struct dt_tensor x,
			      struct dt_tensor delta, struct dt_tensor w, struct dt_tensor b, float eps)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(x), n = dt_cols(x);

	if (!c)
		return -ENODEV;
	return dt_norm_forward_start<false>(c, {y.data,
						sum.data,
						(float *)mean.data,
						(float *)rstd.data,
						x.data,
						delta.data,
						w.data,
						b.data,
						x.dtype,
						rows,
						n,
						eps,
						w.dtype,
						{1, n, 0},
						false,
						NULL,
						false});
}

int dt_cuda_layernorm_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw,
			       struct dt_tensor db, struct dt_tensor dy, struct dt_tensor dresid,
			       struct dt_tensor x, struct dt_tensor mean, struct dt_tensor rstd,
			       struct dt_tensor w)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(x), n = dt_cols(x);

	if (!c)
		return -ENODEV;
	return dt_norm_backward_start<false>(dev, c,
					     {dx.data,
					      (float *)dw.data,
					      (float *)db.data,
					      NULL,
					      dy.data,
					      dresid.data,
					      x.data,
					      w.data,
					      (const float *)mean.data,
					      (const float *)rstd.data,
					      x.dtype,
					      rows,
					      0,
					      n,
					      w.dtype,
					      {1, n, 0},
					      {1, n, 0},
					      false,
					      false});
}
/* SPDX-License-Identifier: Apache-2.0 */
