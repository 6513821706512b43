/* Gradient of the router: of the choices' weights, and of the load balancing and z losses. */
#include "kernels/cpu/cpu.h"

#include <math.h>

#define BLOCK DT_MOE_LOSS_ROWS

struct back {
	const struct dt_moe *p;
	const struct dt_moe_loss *l;
	const float *dweight, *score;
	const int32_t *expert;
	float *dscore;
};

/* Backward of the choices' weights through the softmax, over used or all experts, or the sigmoid. */
static void through_weights(const struct back *a, int64_t i, const double *prob, double *d)
{
	const struct dt_moe *p = a->p;
	const double scale = p->scale > 0 ? (double)p->scale : 1;
	const float *dw = a->dweight + i * p->used;
	const int32_t *chosen = a->expert + i * p->used;
	double sum = 0, mean = 0;

	for (int64_t j = 0; j < p->used; j++)
		sum += prob[chosen[j]];
	if (p->sigmoid)
		sum = p->unscaled ? 1 : sum + 1e-20;
	else if (p->unscaled)
		sum = 1; /* normalised over all experts: the sum is one */
	for (int64_t j = 0; j < p->used; j++)
		mean += (double)dw[j] * prob[chosen[j]] / sum;
	if (p->sigmoid && p->unscaled)
		mean = 0;
	for (int64_t j = 0; j < p->used; j++) {
		const double s = prob[chosen[j]], g = scale / sum * s;

		d[chosen[j]] += p->sigmoid    ? g * ((double)dw[j] - mean) * (1 - s)
				: p->unscaled ? g * (double)dw[j]
					      : g * ((double)dw[j] - mean);
	}
	for (int64_t e = 0; e < p->experts && p->unscaled && !p->sigmoid; e++)
		d[e] -= scale * prob[e] * mean;
}

/* Backward of balance sum_i load_i p_i of the row, p as in moe.h; returns sum_i load_i p_i. */
static double through_balance(const struct back *a, const float *load, const double *prob, double *d)
{
	const struct dt_moe *p = a->p;
	double sum = 0, mean = 0;

	for (int64_t e = 0; e < p->experts; e++)
		sum += prob[e];
	sum = p->sigmoid ? sum + 1e-20 : 1;
	for (int64_t e = 0; e < p->experts; e++)
		mean += (double)load[e] * prob[e] / sum;
	for (int64_t e = 0; e < p->experts; e++)
		d[e] += (double)a->l->balance * prob[e] / sum * ((double)load[e] - mean) *
			(p->sigmoid ? 1 - prob[e] : 1);
	return mean;
}

static void back_row(const struct back *a, int64_t i, double ret[2])
{
	const struct dt_moe *p = a->p;
	const float *s = a->score + i * p->experts;
	double prob[DT_MOE_MOST], d[DT_MOE_MOST], top = -INFINITY, sum = 0, lse;

	for (int64_t e = 0; e < p->experts; e++)
		top = (double)s[e] > top ? (double)s[e] : top;
	for (int64_t e = 0; e < p->experts; e++) {
		d[e] = 0;
		prob[e] = exp((double)s[e] - top);
		sum += prob[e];
	}
	lse = top + log(sum);
	for (int64_t e = 0; e < p->experts; e++) {
		prob[e] /= sum;
		d[e] = 2 * (double)a->l->z * lse * prob[e];
		if (p->sigmoid)
			prob[e] = 1 / (1 + exp(-(double)s[e]));
	}
	through_weights(a, i, prob, d);
	if (a->l->load)
		ret[0] += through_balance(a, a->l->load + i / a->l->load_rows * p->experts, prob, d);
	ret[1] += lse * lse;
	for (int64_t e = 0; e < p->experts; e++)
		a->dscore[i * p->experts + e] = (float)d[e];
}

int dt_cpu_moe_route_backward(struct dt_dev *dev, struct dt_tensor dscore, const float *dweight,
			      const int32_t *expert, struct dt_tensor score, const struct dt_moe *p,
			      const struct dt_moe_loss *l)
{
	const struct back a = {p, l, dweight, score.data, expert, dscore.data};
	const int64_t rows = dt_rows(score), blocks = dt_ceil_div(rows, BLOCK);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	double *sums;

	if (!dt_within(expert, rows * p->used, p->experts))
		return -EINVAL;
	sums = dt_cpu_scratch(dev, dt_moe_route_backward_scratch(&on, rows));
	if (!sums)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads)
	for (int64_t b = 0; b < blocks; b++) {
		sums[2 * b] = sums[2 * b + 1] = 0;
		for (int64_t i = b * BLOCK; i < dt_min64(rows, (b + 1) * BLOCK); i++)
			back_row(&a, i, sums + 2 * b);
	}
	for (int64_t b = 0; b < blocks && l->ret; b++) {
		l->ret[0] += sums[2 * b];
		l->ret[1] += sums[2 * b + 1];
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
