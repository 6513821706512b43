/* Argument checks of rope.h. */
#include "kernels/check.h"

int dt_check_rope(const struct dt_dev *dev, struct dt_tensor qkv, const struct dt_rope *p, const int32_t *pos,
		  bool inverse)
{
	if (!dt_is_compute(qkv.dtype) || p->rot_dim % 2 || p->rot_dim > p->head_dim ||
	    p->rot_heads * p->head_dim > dt_cols(qkv))
		return -EINVAL;
	return dt_rows(qkv) && p->rot_heads && p->rot_dim ? 0 : DT_EMPTY;
}
/* SPDX-License-Identifier: Apache-2.0 */
