/* Argument checks of factor.h. */
#include "kernels/check.h"

static int within(struct dt_tensor g, const struct dt_factor *f)
{
	const int64_t n = dt_numel(g);

	if (!n)
		return DT_EMPTY;
	return g.dtype == DT_F32 && f->rows > 0 && f->cols > 0 && f->first >= 0 &&
			       f->first <= f->rows * f->cols - n
		       ? 0
		       : -EINVAL;
}

int dt_check_factor_sums(const struct dt_dev *dev, double *rows, double *cols, struct dt_tensor g,
			 const struct dt_factor *f)
{
	return within(g, f);
}

int dt_check_factor_direction(const struct dt_dev *dev, struct dt_tensor g, struct dt_tensor r,
			      struct dt_tensor c, const struct dt_factor *f)
{
	const int rc = within(g, f);

	return rc ? rc : dt_is(r, DT_F32, f->rows) && dt_is(c, DT_F32, f->cols) && f->sum > 0 ? 0 : -EINVAL;
}
/* SPDX-License-Identifier: Apache-2.0 */
