/* Argument checks of gram.h. */
#include "kernels/check.h"

static bool is_matrix(struct dt_tensor t)
{
	return t.ndim == 2 && (t.dtype == DT_F32 || t.dtype == DT_BF16);
}

int dt_check_gram(const struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, float alpha,
		  struct dt_tensor b, float beta, float diagonal)
{
	const int64_t m = dt_rows(a);

	if (!is_matrix(c) || !is_matrix(a) || c.dtype != a.dtype || dt_rows(c) != m || dt_cols(c) != m ||
	    (b.data && (!is_matrix(b) || b.dtype != a.dtype || dt_rows(b) != m || dt_cols(b) != m)))
		return -EINVAL;
	return m ? 0 : DT_EMPTY;
}

int dt_check_transpose(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x)
{
	if (!is_matrix(y) || !is_matrix(x) || dt_rows(y) != dt_cols(x) || dt_cols(y) != dt_rows(x))
		return -EINVAL;
	return dt_numel(x) ? 0 : DT_EMPTY;
}
/* SPDX-License-Identifier: Apache-2.0 */
