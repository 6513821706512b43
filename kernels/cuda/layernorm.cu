#include "kernels/cuda/norm.h"

int dt_cuda_layernorm_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor mean,
			      struct dt_tensor rstd, struct dt_tensor sum, struct dt_tensor x,
			      struct dt_tensor delta, struct dt_tensor w, struct dt_tensor b, float eps)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(x), n = dt_cols(x);

	if (!rows || !n)
		return 0;
	if (!dt_is_compute(x.dtype) || !dt_is(y, x.dtype, rows * n) || !dt_is(w, x.dtype, n) ||
	    !dt_is_or_absent(b, x.dtype, n) || !dt_is_or_absent(delta, x.dtype, rows * n) ||
	    (delta.data && !dt_is(sum, x.dtype, rows * n)) || !dt_is_or_absent(mean, DT_F32, rows) ||
	    !dt_is_or_absent(rstd, DT_F32, rows))
		return -EINVAL;
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

	if (!rows || !n)
		return 0;
	if (!dt_is_compute(x.dtype) || !dt_is(dx, x.dtype, rows * n) || !dt_is(dy, x.dtype, rows * n) ||
	    !dt_is_or_absent(dresid, x.dtype, rows * n) || !dt_is(mean, DT_F32, rows) ||
	    !dt_is(rstd, DT_F32, rows) || !dt_is(w, x.dtype, n) || !dt_is_or_absent(dw, DT_F32, n) ||
	    !dt_is_or_absent(db, DT_F32, n))
		return -EINVAL;
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
