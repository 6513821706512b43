/* Argument checks of class_loss.h. */
#include "kernels/check.h"

int dt_check_class_loss(const struct dt_dev *dev, float *loss, int32_t *above, struct dt_tensor dlogits,
			struct dt_tensor logits, const struct dt_classes *p)
{
	const int64_t rows = dt_rows(logits);

	if (!rows)
		return DT_EMPTY;
	if (p->loss != DT_CLASS_LOSS_CE && (dt_cols(logits) != 1 || !p->share))
		return -EINVAL;
	if (!loss || !above || !p->targets || (p->share && !p->others && p->loss == DT_CLASS_LOSS_CE) ||
	    !(p->smoothing >= 0) || p->smoothing >= 1 || !dt_is(logits, DT_F32, dt_numel(logits)) ||
	    dt_cols(logits) < 1)
		return -EINVAL;
	if (!dlogits.data)
		return 0;
	return dt_is_compute(dlogits.dtype) && dt_numel(dlogits) == dt_numel(logits) ? 0 : -EINVAL;
}
/* SPDX-License-Identifier: Apache-2.0 */
