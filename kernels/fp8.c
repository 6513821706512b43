/* Argument checks of fp8.h. */
#include "kernels/check.h"

int dt_check_fp8_quantize(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor yt, float *scale,
			  struct dt_tensor x)
{
	const enum dt_dtype t = y.data ? y.dtype : yt.dtype;
	const int64_t n = dt_numel(x);

	return dt_is_compute(x.dtype) && dt_is_fp8(t) && scale && dt_is_or_absent(y, t, n) &&
			       dt_is_or_absent(yt, t, n)
		       ? 0
		       : -EINVAL;
}

int dt_check_fp8_matmul(const struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, const float *sa,
			struct dt_tensor b, const float *sb, struct dt_tensor bias, bool accumulate)
{
	const int64_t m = dt_rows(a), n = dt_rows(b);

	if (!dt_is_fp8(a.dtype) || !dt_is_fp8(b.dtype) || (a.dtype == DT_E5M2 && b.dtype == DT_E5M2) ||
	    dt_cols(b) != dt_cols(a) || !dt_is_compute(c.dtype) || dt_rows(c) != m || dt_cols(c) != n ||
	    !sa || !sb || !dt_is_or_absent(bias, c.dtype, n))
		return -EINVAL;
	return m && n ? 0 : DT_EMPTY;
}
/* SPDX-License-Identifier: Apache-2.0 */
