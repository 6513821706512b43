/* Argument checks of fixed.h. */
#include "kernels/check.h"

static int fits(struct dt_tensor a, enum dt_dtype ta, struct dt_tensor b, enum dt_dtype tb)
{
	if (a.dtype != ta || b.dtype != tb || dt_numel(a) != dt_numel(b))
		return -EINVAL;
	return dt_numel(a) ? 0 : DT_EMPTY;
}

int dt_check_fixed_add(const struct dt_dev *dev, int *ret_out, struct dt_tensor sum, struct dt_tensor x)
{
	const int rc = fits(sum, DT_I64, x, DT_F32);

	return rc == DT_EMPTY ? 0 : rc; /* the device still has to write *ret_out */
}

int dt_check_fixed_join(const struct dt_dev *dev, struct dt_tensor sum, struct dt_tensor other)
{
	return fits(sum, DT_I64, other, DT_I64);
}

int dt_check_fixed_get(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor sum)
{
	return fits(y, DT_F32, sum, DT_I64);
}

int dt_check_round_random(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			  const struct dt_round *p)
{
	return fits(y, DT_BF16, x, DT_F32);
}
/* SPDX-License-Identifier: Apache-2.0 */
