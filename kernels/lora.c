/* Argument checks of lora.h. */
#include "kernels/check.h"
#include "kernels/packed.h"

static bool lanes_fit(const struct dt_lora_batch *p, const struct dt_lora_part *part, int64_t cols)
{
	int64_t rank = 0;

	for (int i = 0; i < DT_LORA_LANES; i++) {
		const struct dt_lora_lane *l = &part->lane[i];

		if (!l->a)
			continue;
		rank += l->rank;
		if (!l->b || (l->shift && !l->gain) || l->rank < 1 || l->at < 0 || l->cols < 1 ||
		    l->at > cols - l->cols || rank > p->rank)
			return false;
	}
	return true;
}

int dt_check_lora_add(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, struct dt_tensor room,
		      const struct dt_lora_batch *p)
{
	int64_t end = 0;

	if (!dt_is_compute(y.dtype) || !dt_is_compute(x.dtype) || dt_rows(y) != dt_rows(x) ||
	    (p->type != DT_F32 && p->type != DT_BF16) || p->rank < 0 ||
	    !dt_is(room, DT_F32, dt_rows(y) * p->rank))
		return -EINVAL;
	for (int64_t i = 0; i < p->n; i++) {
		const struct dt_lora_part *part = &p->part[i];

		if (part->n < 1 || part->first < end || part->first > dt_rows(y) - part->n ||
		    !lanes_fit(p, part, dt_cols(y)))
			return -EINVAL;
		end = part->first + part->n;
	}
	return p->n && dt_rows(y) ? 0 : DT_EMPTY;
}

/* Whether each lane covers whole parts of w, so that its panels begin where theirs do. */
static bool lanes_are_parts(const struct dt_lora_part *part, const struct dt_packed *w)
{
	for (int i = 0; i < DT_LORA_LANES; i++)
		for (int k = 0; k < w->nparts && part->lane[i].a; k++) {
			const struct dt_lora_lane *l = &part->lane[i];
			const int64_t first = w->part[k].first, end = first + w->part[k].rows;

			if (first < l->at + l->cols && end > l->at &&
			    (first < l->at || end > l->at + l->cols || (first - l->at) % DT_PANEL))
				return false;
		}
	return true;
}

int dt_check_packed_lora(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			 const struct dt_packed *w, struct dt_tensor bias, int64_t gate,
			 struct dt_tensor room, const struct dt_lora_batch *p)
{
	const struct dt_tensor all = dt_t2(NULL, y.dtype, dt_rows(y), w->rows);
	int rc;

	if (dev->kind != DT_DEV_CPU)
		return -ENOTSUP;
	rc = gate ? dt_check_packed_gated(dev, y, x, w, bias, (enum dt_act_fn)(gate - 1))
		  : dt_check_packed_matmul(dev, y, x, w, bias);
	if (rc == 0 && dt_check_lora_add(dev, all, x, room, p) < 0)
		rc = -EINVAL;
	for (int64_t i = 0; i < p->n && rc == 0; i++)
		if (!lanes_are_parts(&p->part[i], w))
			rc = -EINVAL;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
