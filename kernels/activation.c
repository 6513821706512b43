/* Argument checks of activation.h. */
#include "kernels/check.h"

int dt_check_act_forward(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f)
{
	const int64_t n = dt_numel(x);

	if (!n)
		return DT_EMPTY;
	return dt_is_compute(x.dtype) && dt_is(y, x.dtype, n) ? 0 : -EINVAL;
}

int dt_check_act_backward(const struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy,
			  struct dt_tensor x, enum dt_act_fn f)
{
	const int64_t n = dt_numel(x);

	if (!n)
		return DT_EMPTY;
	return dt_is_compute(x.dtype) && dt_is(dx, x.dtype, n) && dt_is(dy, x.dtype, n) ? 0 : -EINVAL;
}

int dt_check_gated_forward(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f)
{
	if (!dt_is_compute(x.dtype) || !dt_is_compute(y.dtype) || dt_rows(x) != dt_rows(y) ||
	    dt_cols(x) != 2 * dt_cols(y))
		return -EINVAL;
	return dt_numel(y) ? 0 : DT_EMPTY;
}

int dt_check_gated_backward(const struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy,
			    struct dt_tensor x, enum dt_act_fn f)
{
	if (!dt_is_compute(x.dtype) || dx.dtype != x.dtype || dy.dtype != x.dtype ||
	    dt_rows(x) != dt_rows(dy) || dt_cols(x) != 2 * dt_cols(dy) || dt_numel(dx) != dt_numel(x))
		return -EINVAL;
	return dt_numel(dy) ? 0 : DT_EMPTY;
}
/* SPDX-License-Identifier: Apache-2.0 */
