/* Argument checks of dora.h. */
#include "kernels/check.h"

int dt_check_dora_norms(const struct dt_dev *dev, struct dt_tensor r, struct dt_tensor w, struct dt_tensor a,
			struct dt_tensor b, float s)
{
	const int64_t out = dt_rows(w), rank = dt_rows(a);

	if (!dt_is_compute(w.dtype) || !dt_is_compute(a.dtype) || !dt_is_compute(b.dtype) ||
	    dt_cols(a) != dt_cols(w) || dt_rows(b) != out || dt_cols(b) != rank || !dt_is(r, DT_F32, 2 * out))
		return -EINVAL;
	return out ? 0 : DT_EMPTY;
}

int dt_check_dora_ratio(const struct dt_dev *dev, struct dt_tensor r, struct dt_tensor m)
{
	const int64_t n = dt_numel(m);

	if (!dt_is_compute(m.dtype) || !dt_is(r, DT_F32, 2 * n))
		return -EINVAL;
	return n ? 0 : DT_EMPTY;
}

static bool within(struct dt_tensor y, int64_t at, int64_t n, struct dt_tensor bias)
{
	return dt_is_compute(y.dtype) && at >= 0 && at <= dt_cols(y) - n &&
	       (!bias.data || (dt_is_compute(bias.dtype) && dt_numel(bias) == n));
}

int dt_check_dora_scale(const struct dt_dev *dev, struct dt_tensor y, int64_t at, struct dt_tensor g,
			struct dt_tensor bias)
{
	if (g.dtype != DT_F32 || !within(y, at, dt_numel(g), bias))
		return -EINVAL;
	return dt_rows(y) && dt_numel(g) ? 0 : DT_EMPTY;
}

int dt_check_dora_backward(const struct dt_dev *dev, struct dt_tensor dx, int64_t at, struct dt_tensor dm,
			   struct dt_tensor u, struct dt_tensor r, struct dt_tensor bias)
{
	const int64_t n = dt_numel(r) / 2;

	if (!dt_is(r, DT_F32, 2 * n) || !dt_is_or_absent(dm, DT_F32, n) || !within(dx, at, n, bias) ||
	    !dt_is_compute(u.dtype) || dt_rows(u) != dt_rows(dx) || dt_cols(u) != dt_cols(dx))
		return -EINVAL;
	return dt_rows(dx) && n ? 0 : DT_EMPTY;
}
/* SPDX-License-Identifier: Apache-2.0 */
