/* What moe.h asks of its arguments. */
#include "kernels/check.h"

int dt_check_moe_route(const struct dt_dev *dev, int32_t *expert, float *weight, struct dt_tensor score,
		       const struct dt_moe *p)
{
	if (p->used < 1 || p->used > p->experts || p->experts > DT_MOE_MOST || score.dtype != DT_F32 ||
	    dt_cols(score) != p->experts)
		return -EINVAL;
	return dt_rows(score) ? 0 : DT_EMPTY;
}

int dt_check_moe_sort(const struct dt_dev *dev, int32_t *first, int32_t *at, int32_t *from,
		      const int32_t *expert, int64_t choices, int64_t experts)
{
	return experts < 1 || experts > DT_MOE_MOST || choices < 0 ? -EINVAL : 0;
}

int dt_check_moe_sum(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const int32_t *at,
		     const float *weight)
{
	const int64_t rows = dt_rows(y), choices = dt_rows(x), used = rows ? choices / rows : 0;

	if (!dt_is_compute(y.dtype) || x.dtype != DT_F32 || dt_cols(x) != dt_cols(y) ||
	    used * rows != choices)
		return -EINVAL;
	return dt_numel(y) ? 0 : DT_EMPTY;
}
/* SPDX-License-Identifier: Apache-2.0 */
