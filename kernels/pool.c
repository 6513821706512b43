/* Argument checks of pool.h. */
#include "kernels/check.h"

static int check(struct dt_tensor x, struct dt_tensor y, const struct dt_pooling *p, int64_t most)
{
	int64_t h, w;

	if (p->batch < 0 || p->channels < 1 || p->height < 1 || p->width < 1 || p->kernel < 1 ||
	    p->kernel > most || p->stride < 1 || p->pad < 0 || 2 * p->pad > p->kernel ||
	    p->height + 2 * p->pad < p->kernel || p->width + 2 * p->pad < p->kernel)
		return -EINVAL;
	if (!p->batch)
		return DT_EMPTY;
	h = dt_window_out(p->height, p->kernel, p->stride, p->pad);
	w = dt_window_out(p->width, p->kernel, p->stride, p->pad);
	return dt_is_compute(x.dtype) && dt_is(x, x.dtype, p->batch * p->height * p->width * p->channels) &&
			       dt_is(y, x.dtype, p->batch * h * w * p->channels)
		       ? 0
		       : -EINVAL;
}

int dt_check_pool_max(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor at, struct dt_tensor x,
		      const struct dt_pooling *p)
{
	const int rc = check(x, y, p, 16);

	return rc ? rc : dt_is(at, DT_U8, dt_numel(y)) ? 0 : -EINVAL;
}

int dt_check_pool_max_backward(const struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy,
			       struct dt_tensor at, const struct dt_pooling *p)
{
	const int rc = check(dx, dy, p, 16);

	return rc ? rc : dt_is(at, DT_U8, dt_numel(dy)) ? 0 : -EINVAL;
}

int dt_check_pool_avg(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
		      const struct dt_pooling *p)
{
	return check(x, y, p, 4096);
}

int dt_check_pool_avg_backward(const struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy,
			       const struct dt_pooling *p)
{
	return check(dx, dy, p, 4096);
}

int dt_check_pixels(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, int64_t channels)
{
	const int64_t n = dt_numel(x);

	if (!n)
		return DT_EMPTY;
	return channels > 0 && x.dtype == DT_F32 && x.ndim == 2 && x.dim[1] % channels == 0 &&
			       dt_is_compute(y.dtype) && dt_is(y, y.dtype, n)
		       ? 0
		       : -EINVAL;
}
/* SPDX-License-Identifier: Apache-2.0 */
