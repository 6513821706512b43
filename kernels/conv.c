/* Argument checks of conv.h. */
#include "kernels/check.h"

static int check(struct dt_tensor x, struct dt_tensor y, struct dt_tensor w, enum dt_dtype weights,
		 const struct dt_conv *p)
{
	int64_t h, v;

	if (p->batch < 0 || p->channels < 1 || p->out < 1 || p->height < 1 || p->width < 1 || p->kernel < 1 ||
	    p->stride < 1 || p->pad < 0 || p->pad >= p->kernel || p->height + 2 * p->pad < p->kernel ||
	    p->width + 2 * p->pad < p->kernel)
		return -EINVAL;
	h = dt_window_out(p->height, p->kernel, p->stride, p->pad);
	v = dt_window_out(p->width, p->kernel, p->stride, p->pad);
	if (!dt_is_compute(x.dtype) || !dt_is(w, weights, p->out * p->channels * p->kernel * p->kernel))
		return -EINVAL;
	if (!p->batch)
		return DT_EMPTY;
	return dt_is(x, x.dtype, p->batch * p->height * p->width * p->channels) &&
			       dt_is(y, x.dtype, p->batch * h * v * p->out)
		       ? 0
		       : -EINVAL;
}

int dt_check_conv_forward(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			  struct dt_tensor w, const struct dt_conv *p)
{
	return check(x, y, w, x.dtype, p);
}

int dt_check_conv_bias(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, struct dt_tensor w,
		       struct dt_tensor bias, struct dt_tensor residual, bool relu, const struct dt_conv *p)
{
	const int rc = check(x, y, w, x.dtype, p);

	if (rc < 0)
		return rc;
	if (!dt_is(bias, DT_F32, p->out) || !dt_is_or_absent(residual, x.dtype, dt_numel(y)))
		return -EINVAL;
	return rc;
}

int dt_check_conv_backward(const struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy,
			   struct dt_tensor w, const struct dt_conv *p)
{
	return check(dx, dy, w, dx.dtype, p);
}

int dt_check_conv_weights(const struct dt_dev *dev, struct dt_tensor dw, struct dt_tensor dy,
			  struct dt_tensor x, bool accumulate, const struct dt_conv *p)
{
	const int rc = check(x, dy, dw, DT_F32, p);

	return rc == DT_EMPTY && !accumulate ? 0 : rc; /* the device still has to zero dw */
}
/* SPDX-License-Identifier: Apache-2.0 */
