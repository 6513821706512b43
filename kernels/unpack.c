/* Argument checks of unpack.h. */
#include "kernels/unpack.h"

#include "kernels/check.h"

int dt_check_unpack(const struct dt_dev *dev, struct dt_tensor y, const struct dt_blocks_part *p)
{
	const int64_t block = dt_blocks_size(p->kind), n = dt_numel(y);

	if (!dt_is_compute(y.dtype) || p->kind == DT_BLOCKS_NONE || dt_cols(y) % block || p->cols % block ||
	    p->first % block || p->bytes != dt_blocks_bytes(p->kind, n, p->whole))
		return -EINVAL;
	return n ? 0 : DT_EMPTY;
}

int dt_check_round_blocks(const struct dt_dev *dev, struct dt_tensor w, enum dt_format f)
{
	const struct dt_format_info *info = dt_format_info(f);

	if (!dt_is_compute(w.dtype) || info->dtype >= 0 || dt_cols(w) % info->block)
		return -EINVAL;
	return dt_numel(w) ? 0 : DT_EMPTY;
}
/* SPDX-License-Identifier: Apache-2.0 */
