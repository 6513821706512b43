/* Argument checks of distill.h. */
#include "kernels/check.h"

static int look(struct dt_tensor logits, const struct dt_distill *p)
{
	if (!dt_is_compute(logits.dtype) || p->k < 1 || !(p->temperature > 0) || !(p->weight >= 0) ||
	    !(p->weight <= 1) || p->vocab_first < 0)
		return -EINVAL;
	return dt_numel(logits) ? 0 : DT_EMPTY;
}

int dt_check_distill_stats(const struct dt_dev *dev, float *kept, float *rest, float *dot,
			   struct dt_tensor logits, const float *rowmax, const int32_t *targets,
			   const struct dt_distill *p)
{
	return look(logits, p);
}

int dt_check_distill_grad(const struct dt_dev *dev, struct dt_tensor dlogits, struct dt_tensor logits,
			  const float *rowmax, const float *sumexp, const float *kept, const float *rest,
			  const int32_t *targets, float scale, const struct dt_distill *p)
{
	if (!dt_is_compute(dlogits.dtype) || dt_numel(dlogits) != dt_numel(logits) ||
	    dt_cols(dlogits) != dt_cols(logits) ||
	    ((dlogits.dtype != logits.dtype || dt_stride(dlogits) != dt_stride(logits)) &&
	     dt_overlap(dlogits, logits)))
		return -EINVAL;
	return look(logits, p);
}
/* SPDX-License-Identifier: Apache-2.0 */
