/* Argument checks of noise.h. */
#include "kernels/check.h"

int dt_check_noise(const struct dt_dev *dev, struct dt_tensor y, const struct dt_noise *p)
{
	if (!dt_is_compute(y.dtype))
		return -EINVAL;
	for (int64_t i = 0; i < dt_rows(y); i++)
		if (p->token[i] < 0)
			return -EINVAL;
	return dt_numel(y) ? 0 : DT_EMPTY;
}
/* SPDX-License-Identifier: Apache-2.0 */
