/* Argument checks of the ops of quant.h. */
#include "kernels/check.h"
#include "kernels/packed.h"

/* Whether y has this many columns, and `used` rows per row of x. */
static bool fits(const struct dt_dev *dev, struct dt_tensor y, int64_t columns, struct dt_tensor x,
		 int64_t used, const struct dt_packed *w, struct dt_tensor bias)
{
	return dev->kind == (w->dev ? w->dev->kind : DT_DEV_CPU) && dt_is_compute(x.dtype) &&
	       dt_is_compute(y.dtype) && dt_cols(x) == w->k && dt_cols(y) == columns &&
	       dt_rows(y) == dt_rows(x) * used &&
	       (!bias.data || (dt_is_compute(bias.dtype) && dt_numel(bias) == w->rows));
}

int dt_check_packed_matmul(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			   const struct dt_packed *w, struct dt_tensor bias)
{
	if (!fits(dev, y, w->rows, x, 1, w, bias))
		return -EINVAL;
	return dt_numel(y) ? 0 : DT_EMPTY;
}

int dt_check_packed_gated(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			  const struct dt_packed *w, struct dt_tensor bias, enum dt_act_fn f)
{
	/* On a card all float weights are one part, whatever was appended. */
	const bool one = w->nparts == 1 && w->dev && dt_is_float(w->part[0].format) && w->rows % 2 == 0;

	if (!one && (w->nparts != 2 || w->part[0].rows != w->part[1].rows))
		return -ENOTSUP;
	if (!fits(dev, y, w->rows / 2, x, 1, w, bias))
		return -EINVAL;
	return dt_numel(y) ? 0 : DT_EMPTY;
}

int dt_check_packed_set_matmul(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			       const struct dt_packed_set *s, const struct dt_meet *p)
{
	const struct dt_packed *w = s->w[0];
	const int64_t all = dt_rows(x) * (p->used ? p->used : 1);
	struct dt_tensor whole = y;

	if (p->used > 0 && dev->kind == DT_DEV_CPU && dt_rows(y) < all && y.ndim == 2)
		whole.dim[0] = all; /* some rows may be elsewhere (DT_MOE_AWAY) */
	if (p->used < 0 || !fits(dev, whole, w->rows, x, p->used ? p->used : 1, w, DT_NONE))
		return -EINVAL;
	return dt_numel(y) ? 0 : DT_EMPTY;
}

int dt_check_packed_embed(const struct dt_dev *dev, struct dt_tensor y, const struct dt_packed *w,
			  const int32_t *ids, int64_t first, int64_t of, float scale)
{
	if (first < 0 || first > of - w->rows || dev->kind != (w->dev ? w->dev->kind : DT_DEV_CPU) ||
	    !dt_is_compute(y.dtype) || dt_cols(y) != w->k)
		return -EINVAL;
	return dt_numel(y) ? 0 : DT_EMPTY;
}
/* SPDX-License-Identifier: Apache-2.0 */
