/* Argument checks of dropout.h. */
#include "kernels/check.h"

int dt_check_dropout(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
		     const struct dt_dropout *p, bool add)
{
	if (!dt_is_compute(y.dtype) || !dt_is_compute(x.dtype) || dt_rows(y) != dt_rows(x) ||
	    dt_cols(y) != dt_cols(x) || p->row < 0 || p->sample < 0 || p->seq < 1 || p->positions < 1 ||
	    p->col < 0 || p->col > p->cols - dt_cols(x))
		return -EINVAL;
	return dt_numel(x) ? 0 : DT_EMPTY;
}
/* SPDX-License-Identifier: Apache-2.0 */
