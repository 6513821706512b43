/* Argument checks of cross_entropy.h. */
#include "kernels/check.h"

int dt_check_ce_stats(const struct dt_dev *dev, float *rowmax, float *sumexp, float *target_logit,
		      struct dt_tensor logits, const int32_t *targets, int64_t vocab_first)
{
	if (!dt_is_compute(logits.dtype))
		return -EINVAL;
	return dt_rows(logits) ? 0 : DT_EMPTY;
}

int dt_check_ce_grad(const struct dt_dev *dev, struct dt_tensor dlogits, struct dt_tensor logits,
		     const float *rowmax, const float *sumexp, const int32_t *targets, const float *weight,
		     float scale, int64_t vocab_first)
{
	if (!dt_is_compute(logits.dtype) || !dt_is_compute(dlogits.dtype) ||
	    dt_numel(dlogits) != dt_numel(logits) || dt_cols(dlogits) != dt_cols(logits) ||
	    ((dlogits.dtype != logits.dtype || dt_stride(dlogits) != dt_stride(logits)) &&
	     dt_overlap(dlogits, logits)))
		return -EINVAL;
	return dt_numel(logits) ? 0 : DT_EMPTY;
}
/* SPDX-License-Identifier: Apache-2.0 */
