/* Argument checks of batchnorm.h. */
#include "kernels/check.h"

/* Whether stats is [groups, columns of x] with groups that divide the rows of x. */
static bool fits(struct dt_tensor stats, struct dt_tensor x)
{
	const int64_t c = dt_cols(x), n = dt_numel(stats);

	return stats.data && stats.dtype == DT_F32 && n >= c && n % c == 0 && dt_rows(x) % (n / c) == 0;
}

static int check(const struct dt_bn *p, struct dt_tensor a, struct dt_tensor b)
{
	const int64_t n = dt_numel(p->x), c = dt_cols(p->x);

	if (!n)
		return DT_EMPTY;
	return dt_is_compute(p->x.dtype) && fits(p->mean, p->x) &&
			       dt_is(p->rstd, DT_F32, dt_numel(p->mean)) &&
			       dt_is_or_absent(p->gamma, p->x.dtype, c) &&
			       (!p->relu || dt_is(p->y, p->x.dtype, n)) &&
			       dt_is_or_absent(a, p->x.dtype, n) && dt_is_or_absent(b, p->x.dtype, n)
		       ? 0
		       : -EINVAL;
}

int dt_check_bn_stats(const struct dt_dev *dev, struct dt_tensor mean, struct dt_tensor sqdev,
		      struct dt_tensor x)
{
	if (!dt_cols(x))
		return DT_EMPTY;
	return dt_is_compute(x.dtype) && fits(mean, x) && dt_is(sqdev, DT_F32, dt_numel(mean)) ? 0 : -EINVAL;
}

int dt_check_bn_forward(const struct dt_dev *dev, const struct dt_bn *p, struct dt_tensor residual,
			struct dt_tensor beta)
{
	const int rc = check(p, residual, p->y);

	if (rc)
		return rc;
	return p->y.data && p->gamma.data && dt_is(beta, p->x.dtype, dt_cols(p->x)) ? 0 : -EINVAL;
}

int dt_check_bn_sums(const struct dt_dev *dev, struct dt_tensor sum, struct dt_tensor dot,
		     struct dt_tensor dy, const struct dt_bn *p)
{
	if (!dt_cols(p->x))
		return DT_EMPTY;
	if (!dt_is(sum, DT_F32, dt_numel(p->mean)) || !dt_is(dot, DT_F32, dt_numel(p->mean)))
		return -EINVAL;
	if (!dt_rows(p->x))
		return fits(p->mean, p->x) ? 0 : -EINVAL;
	return dy.data ? check(p, dy, DT_NONE) : -EINVAL;
}

int dt_check_bn_backward(const struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dresidual,
			 struct dt_tensor dy, struct dt_tensor sum, struct dt_tensor dot, double count,
			 const struct dt_bn *p)
{
	const int rc = check(p, dx, dresidual);

	if (rc)
		return rc;
	if (count > 0 && (!dt_is(sum, DT_F32, dt_numel(p->mean)) || !dt_is(dot, DT_F32, dt_numel(p->mean))))
		return -EINVAL;
	return dx.data && p->gamma.data && dt_is(dy, p->x.dtype, dt_numel(p->x)) ? 0 : -EINVAL;
}
/* SPDX-License-Identifier: Apache-2.0 */
