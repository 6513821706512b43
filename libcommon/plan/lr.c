#include "plan/lr.h"

#include <math.h>

static double rate(const struct dt_lr *l, int64_t step)
{
	int64_t start = l->warmup;
	double x;

	if (step < l->warmup)
		return l->lr * (double)(step + 1) / (double)l->warmup;
	if (l->schedule == DT_LR_CONSTANT)
		return l->lr;
	if (l->schedule == DT_LR_WSD && l->steps - l->decay > start)
		start = l->steps - l->decay;
	if (step < start)
		return l->lr;
	if (step >= l->steps)
		return l->min_lr;
	x = (double)(step - start) / (double)(l->steps - start);
	if (l->schedule == DT_LR_COSINE)
		return l->min_lr + 0.5 * (l->lr - l->min_lr) * (1 + cos(M_PI * x));
	if (l->schedule == DT_LR_POLYNOMIAL)
		return l->min_lr + (l->lr - l->min_lr) * (1 - x) * (1 - x);
	return l->lr + (l->min_lr - l->lr) * x;
}

double dt_lr_at(const struct dt_lr *l, int64_t step)
{
	return rate(l, step) * (l->scale > 0 ? l->scale : 1);
}
/* SPDX-License-Identifier: Apache-2.0 */
