/* Argument checks of moe.h. */
#include "kernels/check.h"

static bool routes(struct dt_tensor score, const struct dt_moe *p)
{
	const int64_t groups = p->groups > 1 ? p->groups : 1;

	return p->used >= 1 && p->used <= p->experts && p->experts <= DT_MOE_MOST && score.dtype == DT_F32 &&
	       dt_cols(score) == p->experts && p->experts % groups == 0 && p->scale >= 0 &&
	       (groups == 1 || (p->groups_used >= 1 && p->groups_used <= groups &&
				p->groups_used * (p->experts / groups) >= p->used));
}

int dt_check_moe_route(const struct dt_dev *dev, int32_t *expert, float *weight, struct dt_tensor score,
		       struct dt_tensor bias, const struct dt_moe *p)
{
	if (!routes(score, p) || !dt_is_or_absent(bias, DT_F32, p->experts))
		return -EINVAL;
	return dt_rows(score) ? 0 : DT_EMPTY;
}

int dt_check_moe_route_backward(const struct dt_dev *dev, struct dt_tensor dscore, const float *dweight,
				const int32_t *expert, struct dt_tensor score, const struct dt_moe *p,
				const struct dt_moe_loss *l)
{
	if (!routes(score, p) || !dt_is(dscore, DT_F32, dt_numel(score)) || (l->balance != 0 && !l->load) ||
	    (l->load && l->load_rows < 1))
		return -EINVAL;
	return dt_rows(score) ? 0 : DT_EMPTY;
}

int dt_check_moe_sort(const struct dt_dev *dev, int32_t *first, int32_t *at, int32_t *from,
		      const int32_t *expert, int64_t choices, int64_t experts)
{
	return experts < 1 || experts > DT_MOE_MOST || choices < 0 ? -EINVAL : 0;
}

int dt_check_moe_place(const struct dt_dev *dev, int32_t *first, int32_t *at, int32_t *from,
		       const int32_t *expert, const float *weight, int64_t choices,
		       const struct dt_moe_place *p)
{
	return p->experts < 1 || p->experts > DT_MOE_MOST || p->begin < 0 || p->n < 1 ||
			       p->n > p->experts - p->begin || choices < 0 || p->capacity < 0
		       ? -EINVAL
		       : 0;
}

int dt_check_moe_count(const struct dt_dev *dev, float *load, int64_t groups, double *count,
		       const int32_t *expert, int64_t choices, int64_t experts, double total)
{
	return experts < 1 || experts > DT_MOE_MOST || groups < 1 || choices < 0 || choices % groups ||
			       !(total > 0)
		       ? -EINVAL
		       : 0;
}

int dt_check_moe_gather(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const int32_t *from,
			int64_t used)
{
	if (used < 1 || !dt_is_compute(x.dtype) || y.dtype != x.dtype || dt_cols(y) != dt_cols(x))
		return -EINVAL;
	return dt_numel(y) ? 0 : DT_EMPTY;
}

int dt_check_moe_sum(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const int32_t *at,
		     const float *weight, struct dt_tensor also, int64_t used)
{
	if (!dt_is_compute(y.dtype) || !dt_is_compute(x.dtype) || dt_cols(x) != dt_cols(y) || used < 1 ||
	    (also.data && (!dt_is_compute(also.dtype) || dt_numel(also) != dt_numel(y))))
		return -EINVAL;
	return dt_numel(y) ? 0 : DT_EMPTY;
}

int dt_check_moe_sum_backward(const struct dt_dev *dev, struct dt_tensor dx, float *dweight,
			      struct dt_tensor dy, struct dt_tensor x, const int32_t *at, const float *weight,
			      int64_t used)
{
	if (!dt_is_compute(dy.dtype) || x.dtype != dy.dtype || !dt_is(dx, x.dtype, dt_numel(x)) ||
	    dt_cols(x) != dt_cols(dy) || used < 1)
		return -EINVAL;
	return dt_numel(dy) ? 0 : DT_EMPTY;
}
/* SPDX-License-Identifier: Apache-2.0 */
