/* Argument checks of latent.h. */
#include "kernels/check.h"

static bool within(struct dt_tensor t, const struct dt_latent_heads *p, struct dt_latent_place at)
{
	return at.at >= 0 && at.row >= 0 && at.head >= 0 &&
	       at.at + (p->rows - 1) * at.row + (p->heads - 1) * at.head + p->n <= dt_numel(t);
}

int dt_check_latent_heads(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			  const struct dt_latent_heads *p)
{
	if (!dt_is_compute(y.dtype) || x.dtype != y.dtype || p->rows < 0 || p->heads < 0 || p->n < 0 ||
	    (p->sum && p->to.head))
		return -EINVAL;
	if (!p->rows || !p->heads || !p->n)
		return DT_EMPTY;
	return within(y, p, p->to) && within(x, p, p->from) ? 0 : -EINVAL;
}
/* SPDX-License-Identifier: Apache-2.0 */
