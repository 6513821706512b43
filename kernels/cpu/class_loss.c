#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

#include <math.h>

struct row {
	const float *l;
	int64_t k;
	int32_t target, other;
	float share, smoothing;
};

/* Returns log sum exp(l - max), and the maximum in *ret_max. */
static DT_SIMD float class_loss_sum(const struct row *r, float *ret_max, float *ret_mean)
{
	float max = -INFINITY, sum = 0, mean = 0;

	for (int64_t j = 0; j < r->k; j++)
		max = r->l[j] > max ? r->l[j] : max;
	for (int64_t j = 0; j < r->k; j++)
		sum += dt_expf_bounded(r->l[j] - max);
	for (int64_t j = 0; j < r->k; j++)
		mean += r->l[j] - max;
	*ret_max = max;
	*ret_mean = mean / (float)r->k;
	return sum;
}

static DT_SIMD int32_t class_loss_above(const float *l, int64_t k, int64_t target)
{
	int32_t n = 0;

	for (int64_t j = 0; j < k; j++)
		n += l[j] > l[target] || (l[j] == l[target] && j < target) || isnan(l[j]);
	return isnan(l[target]) ? (int32_t)k : n;
}

static DT_SIMD void class_loss_grad(float *d, const struct row *r, float max, float sum, float scale)
{
	const float e = r->smoothing, inverse = 1 / sum, base = e / (float)r->k;

	for (int64_t j = 0; j < r->k; j++)
		d[j] = scale * (dt_expf_bounded(r->l[j] - max) * inverse - base);
	d[r->target] -= scale * (1 - e) * r->share;
	if (r->share < 1)
		d[r->other] -= scale * (1 - e) * (1 - r->share);
}

/* The loss of a logit against a score, and its slope. above: whether they are on different sides. */
static float score_loss(float l, float s, enum dt_class_loss kind, float *ret_slope, int32_t *above)
{
	const float e = dt_expf_bounded(-fabsf(l));

	if (kind == DT_CLASS_LOSS_MSE) {
		*above = 0;
		*ret_slope = 2 * (l - s);
		return (l - s) * (l - s);
	}
	*above = !((l > 0) == (s > 0.5f));
	*ret_slope = (l < 0 ? e : 1) / (1 + e) - s;
	return (l > 0 ? l : 0) - s * l + log1pf(e);
}

/* buf: k f32 elements, used if the gradient is not f32. */
static void one(float *loss, int32_t *above, struct dt_tensor d, struct dt_tensor logits,
		const struct dt_classes *p, int64_t i, float *buf)
{
	const int64_t k = dt_cols(logits);
	const struct row r = {(const float *)logits.data + i * k,
			      k,
			      p->targets[i],
			      p->share && p->others ? p->others[i] : 0,
			      p->share ? p->share[i] : 1,
			      p->smoothing};
	float max, mean, sum, hit, slope;

	if (r.target < 0) {
		loss[i] = 0;
		above[i] = -1;
		if (d.data)
			memset(dt_at(d, i * k), 0, (size_t)(k * dt_dtype_size(d.dtype)));
		return;
	}
	if (p->loss != DT_CLASS_LOSS_CE) {
		loss[i] = score_loss(r.l[0], p->share[i], p->loss, &slope, &above[i]);
		above[i] = isnan(loss[i]) ? 1 : above[i];
		if (d.data) {
			*dt_stage(buf, dt_at(d, i), d.dtype) = p->scale * slope;
			dt_store(dt_at(d, i), d.dtype, buf, 1);
		}
		return;
	}
	sum = class_loss_sum(&r, &max, &mean);
	hit = r.share * (r.l[r.target] - max);
	if (r.share < 1)
		hit += (1 - r.share) * (r.l[r.other] - max);
	loss[i] = logf(sum) - (1 - r.smoothing) * hit - r.smoothing * mean;
	above[i] = class_loss_above(r.l, k, r.target);
	if (!d.data)
		return;
	class_loss_grad(d.dtype == DT_F32 ? dt_at(d, i * k) : buf, &r, max, sum, p->scale);
	dt_store(dt_at(d, i * k), d.dtype, buf, k);
}

int dt_cpu_class_loss(struct dt_dev *dev, float *loss, int32_t *above, struct dt_tensor dlogits,
		      struct dt_tensor logits, const struct dt_classes *p)
{
	const int64_t rows = dt_rows(logits), k = dt_cols(logits);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *buf = dt_cpu_scratch(dev, dt_class_loss_scratch(&on, k));

	if (!buf)
		return -ENOMEM;
	for (int64_t i = 0; i < rows; i++)
		if (p->targets[i] >= k || (p->targets[i] >= 0 && p->loss == DT_CLASS_LOSS_CE && p->share &&
					   p->share[i] < 1 && (p->others[i] < 0 || p->others[i] >= k)))
			return -EINVAL;
#pragma omp parallel for num_threads(dev->nthreads) if (rows * k > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++)
		one(loss, above, dlogits, logits, p, i, buf + omp_get_thread_num() * k);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
