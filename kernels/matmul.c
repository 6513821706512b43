/* Argument checks of matmul.h. */
#include "kernels/check.h"

int dt_check_matmul(const struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, bool ta,
		    struct dt_tensor b, bool tb, struct dt_tensor bias, bool accumulate)
{
	const int64_t m = ta ? dt_cols(a) : dt_rows(a), k = ta ? dt_rows(a) : dt_cols(a);
	const int64_t n = tb ? dt_rows(b) : dt_cols(b);

	if (!dt_is_compute(a.dtype) || b.dtype != a.dtype || (c.dtype != DT_F32 && c.dtype != a.dtype) ||
	    (tb ? dt_cols(b) : dt_rows(b)) != k || dt_rows(c) != m || dt_cols(c) != n ||
	    !dt_is_or_absent(bias, a.dtype, n))
		return -EINVAL;
	return m && n ? 0 : DT_EMPTY;
}

int dt_check_colsum(const struct dt_dev *dev, struct dt_tensor out, struct dt_tensor x)
{
	if (!dt_numel(x))
		return DT_EMPTY;
	return dt_is_compute(x.dtype) && dt_is(out, DT_F32, dt_cols(x)) ? 0 : -EINVAL;
}
/* SPDX-License-Identifier: Apache-2.0 */
