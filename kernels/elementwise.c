/* Argument checks of elementwise.h. */
#include "kernels/check.h"

#include <math.h>

/* 0, or DT_EMPTY if n is 0. */
static int some(int64_t n)
{
	return n ? 0 : DT_EMPTY;
}

int dt_check_add(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor a, struct dt_tensor b)
{
	const int64_t n = dt_numel(y);

	if (!dt_is_compute(y.dtype) || dt_numel(a) != n || dt_numel(b) != n || a.dtype != y.dtype ||
	    b.dtype != y.dtype)
		return -EINVAL;
	return some(n);
}

/* Checks two tensors of equally many elements, each of a compute type. */
static int pair(struct dt_tensor y, struct dt_tensor x)
{
	if (!dt_is_compute(y.dtype) || !dt_is_compute(x.dtype) || dt_numel(x) != dt_numel(y))
		return -EINVAL;
	return some(dt_numel(y));
}

int dt_check_axpy(const struct dt_dev *dev, struct dt_tensor y, float a, struct dt_tensor x)
{
	return pair(y, x);
}

int dt_check_convert(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x)
{
	return pair(y, x);
}

int dt_check_scale(const struct dt_dev *dev, struct dt_tensor x, float a)
{
	return dt_is_compute(x.dtype) ? some(dt_numel(x)) : -EINVAL;
}

int dt_check_fill(const struct dt_dev *dev, struct dt_tensor x, float value)
{
	return dt_is_compute(x.dtype) ? some(dt_numel(x)) : -EINVAL;
}

int dt_check_softcap(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, float cap)
{
	return cap > 0 && isfinite(cap) ? pair(y, x) : -EINVAL;
}

int dt_check_softcap_backward(const struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy,
			      struct dt_tensor y, float cap)
{
	const int rc = dt_check_softcap(dev, dx, y, cap);

	return rc < 0 ? rc : pair(dx, dy);
}

int dt_check_sumsq(const struct dt_dev *dev, double *ret, struct dt_tensor x)
{
	return dt_is_compute(x.dtype) ? 0 : -EINVAL;
}

static int spans(struct dt_tensor x, int n, const int64_t *span)
{
	if (!dt_is_compute(x.dtype) || n < 0)
		return -EINVAL;
	for (int i = 0; i < n; i++)
		if (span[2 * i] < 0 || span[2 * i + 1] < span[2 * i] || span[2 * i + 1] > dt_numel(x))
			return -EINVAL;
	return some(n);
}

int dt_check_sumsq_spans(const struct dt_dev *dev, double *ret, struct dt_tensor x, int n,
			 const int64_t *span)
{
	return spans(x, n, span);
}

int dt_check_fill_spans(const struct dt_dev *dev, struct dt_tensor x, int n, const int64_t *span, float value)
{
	return spans(x, n, span);
}
/* SPDX-License-Identifier: Apache-2.0 */
