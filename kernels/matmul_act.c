/* Argument checks of matmul_act.h. */
#include "kernels/check.h"

static bool fits(struct dt_tensor x, enum dt_dtype t, int64_t rows, int64_t cols)
{
	return x.dtype == t && dt_rows(x) == rows && dt_cols(x) == cols;
}

int dt_check_matmul_act(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor u, struct dt_tensor x,
			struct dt_tensor w, struct dt_tensor bias, enum dt_act_fn f)
{
	if (!fits(u, x.dtype, dt_rows(x), dt_rows(w)) || !fits(y, x.dtype, dt_rows(x), dt_rows(w)))
		return -EINVAL;
	return dt_check_matmul(dev, u, x, false, w, true, bias, false);
}

int dt_check_matmul_act_backward(const struct dt_dev *dev, struct dt_tensor du, struct dt_tensor dy,
				 struct dt_tensor w, struct dt_tensor u, enum dt_act_fn f)
{
	if (!fits(u, dy.dtype, dt_rows(dy), dt_cols(w)) || !fits(du, dy.dtype, dt_rows(dy), dt_cols(w)))
		return -EINVAL;
	return dt_check_matmul(dev, du, dy, false, w, false, DT_NONE, false);
}
/* SPDX-License-Identifier: Apache-2.0 */
