/* Argument checks of layernorm.h. */
#include "kernels/check.h"

int dt_check_layernorm_forward(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor mean,
			       struct dt_tensor rstd, struct dt_tensor sum, struct dt_tensor x,
			       struct dt_tensor delta, struct dt_tensor w, struct dt_tensor b, float eps)
{
	const int64_t rows = dt_rows(x), n = dt_cols(x);

	if (!rows || !n)
		return DT_EMPTY;
	return dt_is_compute(x.dtype) && dt_is(y, x.dtype, rows * n) && dt_is(w, x.dtype, n) &&
			       dt_is_or_absent(b, x.dtype, n) && dt_is_or_absent(delta, x.dtype, rows * n) &&
			       (!delta.data || dt_is(sum, x.dtype, rows * n)) &&
			       dt_is_or_absent(mean, DT_F32, rows) && dt_is_or_absent(rstd, DT_F32, rows)
		       ? 0
		       : -EINVAL;
}

int dt_check_layernorm_backward(const struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw,
				struct dt_tensor db, struct dt_tensor dy, struct dt_tensor dresid,
				struct dt_tensor x, struct dt_tensor mean, struct dt_tensor rstd,
				struct dt_tensor w)
{
	const int64_t rows = dt_rows(x), n = dt_cols(x);

	if (!rows || !n)
		return DT_EMPTY;
	return dt_is_compute(x.dtype) && dt_is(dx, x.dtype, rows * n) && dt_is(dy, x.dtype, rows * n) &&
			       dt_is_or_absent(dresid, x.dtype, rows * n) && dt_is(mean, DT_F32, rows) &&
			       dt_is(rstd, DT_F32, rows) && dt_is(w, x.dtype, n) &&
			       dt_is_or_absent(dw, DT_F32, n) && dt_is_or_absent(db, DT_F32, n)
		       ? 0
		       : -EINVAL;
}
/* SPDX-License-Identifier: Apache-2.0 */
