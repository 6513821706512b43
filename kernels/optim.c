/* What optim.h asks of its arguments. */
#include "kernels/check.h"

int dt_check_optim_step(const struct dt_dev *dev, const struct dt_optim *o, struct dt_tensor copy,
			struct dt_tensor p, struct dt_tensor g, struct dt_tensor s1, struct dt_tensor s2)
{
	const int64_t n = dt_numel(p);

	if (!n)
		return DT_EMPTY;
	if ((unsigned)o->kind >= DT_OPTIM_N || !dt_is(p, DT_F32, n) || !dt_is_compute(g.dtype) ||
	    dt_numel(g) != n || (copy.data && !dt_is(copy, DT_BF16, n) && !dt_is(copy, DT_F16, n)) ||
	    (dt_optim_states(o->kind) > 0 && !dt_is(s1, DT_F32, n)) ||
	    (dt_optim_states(o->kind) > 1 && !dt_is(s2, DT_F32, n)))
		return -EINVAL;
	return (o->kind == DT_OPTIM_ADAM || o->kind == DT_OPTIM_ADAMW) && o->t < 1 ? -EINVAL : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
