/* Argument checks of embedding.h. */
#include "kernels/check.h"

int dt_check_embedding_forward(const struct dt_dev *dev, struct dt_tensor y, const int32_t *ids,
			       const int32_t *pos, struct dt_tensor wte, struct dt_tensor wpe,
			       int64_t vocab_first)
{
	const int64_t n = dt_cols(y);

	if (!dt_is_compute(y.dtype) || wte.dtype != y.dtype || dt_cols(wte) != n ||
	    (wpe.data && (wpe.dtype != y.dtype || dt_cols(wpe) != n || !pos)))
		return -EINVAL;
	return dt_numel(y) ? 0 : DT_EMPTY;
}

int dt_check_embedding_backward(const struct dt_dev *dev, struct dt_tensor dwte, struct dt_tensor dwpe,
				struct dt_tensor dy, const int32_t *ids, const int32_t *pos,
				int64_t vocab_first)
{
	const int64_t n = dt_cols(dy);

	if (!dt_is_compute(dy.dtype) || (dwte.data && (dwte.dtype != DT_F32 || dt_cols(dwte) != n)) ||
	    (dwpe.data && (dwpe.dtype != DT_F32 || dt_cols(dwpe) != n || !pos)))
		return -EINVAL;
	return dt_numel(dy) ? 0 : DT_EMPTY;
}
/* SPDX-License-Identifier: Apache-2.0 */
