/* Argument checks of columns.h. */
#include "kernels/check.h"

int dt_check_columns(const struct dt_dev *dev, struct dt_tensor y, int64_t at, struct dt_tensor x,
		     int64_t from, int64_t n, bool add)
{
	if (!dt_is_compute(y.dtype) || !dt_is_compute(x.dtype) || dt_rows(y) != dt_rows(x) || n < 0 ||
	    at < 0 || from < 0 || at > dt_cols(y) - n || from > dt_cols(x) - n)
		return -EINVAL;
	return n && dt_rows(y) ? 0 : DT_EMPTY;
}
/* SPDX-License-Identifier: Apache-2.0 */
