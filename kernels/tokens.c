/* Argument checks of tokens.h. */
#include "kernels/check.h"

/* x: of patches, y: of tokens, pos: of an image's tokens. */
static int check(struct dt_tensor x, struct dt_tensor y, int64_t tokens, int64_t n)
{
	const int64_t images = tokens > 1 && n > 0 ? dt_numel(y) / (tokens * n) : 0;

	if (!dt_is_compute(y.dtype) || tokens < 2 || n < 1 || !dt_is(y, y.dtype, images * tokens * n) ||
	    !dt_is(x, y.dtype, images * (tokens - 1) * n))
		return -EINVAL;
	return images ? 0 : DT_EMPTY;
}

int dt_check_image_tokens(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			  struct dt_tensor class_token, struct dt_tensor pos)
{
	const int64_t n = dt_numel(class_token);

	return dt_is(class_token, y.dtype, n) && dt_is(pos, y.dtype, dt_rows(pos) * n)
		       ? check(x, y, dt_rows(pos), n)
		       : -EINVAL;
}

int dt_check_image_tokens_backward(const struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dclass,
				   struct dt_tensor dpos, struct dt_tensor dy, int64_t tokens)
{
	const int64_t n = dt_cols(dy);

	return (!dclass.data || dt_is(dclass, DT_F32, n)) && (!dpos.data || dt_is(dpos, DT_F32, tokens * n))
		       ? check(dx, dy, tokens, n)
		       : -EINVAL;
}
/* SPDX-License-Identifier: Apache-2.0 */
