/* Argument checks of optim.h. */
#include "kernels/check.h"

static int check(const struct dt_optim *o, struct dt_tensor copy, struct dt_tensor p, struct dt_tensor g,
		 struct dt_tensor s1, struct dt_tensor s2)
{
	const int64_t n = dt_numel(p);
	const struct dt_optim_rule *rule;

	if (!n)
		return DT_EMPTY;
	if ((unsigned)o->kind >= DT_OPTIM_N)
		return -EINVAL;
	rule = dt_optim_rule(o->kind);
	if (rule->flags & DT_OPTIM_FACTORED)
		return -EINVAL;
	for (int i = 0; i < DT_OPTIM_STATES; i++) {
		const struct dt_optim_state *s = &rule->state[i];
		const int64_t want = s->shape == DT_STATE_BLOCKS ? dt_optim_state_bytes(s, 1, n) : n;

		if ((s->shape == DT_STATE_EACH || s->shape == DT_STATE_BLOCKS) &&
		    !dt_is(i ? s2 : s1, s->dtype, want))
			return -EINVAL;
	}
	if (!dt_is(p, DT_F32, n) || !dt_is_compute(g.dtype) || dt_numel(g) != n ||
	    (copy.data && !dt_is(copy, DT_BF16, n) && !dt_is(copy, DT_F16, n)))
		return -EINVAL;
	if ((rule->flags & DT_OPTIM_DIRECTION) && g.dtype != DT_F32)
		return -EINVAL;
	return (rule->flags & DT_OPTIM_CORRECTED) && o->t < 1 ? -EINVAL : 0;
}

int dt_check_optim_step(const struct dt_dev *dev, const struct dt_optim *o, struct dt_tensor copy,
			struct dt_tensor p, struct dt_tensor g, struct dt_tensor s1, struct dt_tensor s2)
{
	return check(o, copy, p, g, s1, s2);
}

int dt_check_optim_steps(const struct dt_dev *dev, const struct dt_optim *o, const struct dt_optim_parts *l)
{
	int all = DT_EMPTY;

	if (l->n < 0)
		return -EINVAL;
	for (int i = 0; i < l->n; i++) {
		const struct dt_optim_part *q = &l->part[i];
		const int rc = check(o, q->copy, q->p, q->g, q->s1, q->s2);

		if (rc < 0)
			return rc;
		all = rc == DT_EMPTY ? all : 0;
	}
	return all;
}
/* SPDX-License-Identifier: Apache-2.0 */
