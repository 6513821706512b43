#include "kernels/cpu/cpu.h"

#include <math.h>

struct step {
	struct dt_tensor copy, p, g, s1, s2;
	float lr, beta1, beta2, eps, wd, scale;
	float m_unbias, v_unbias; /* 1 / (1 - beta^t) */
};

static DT_SIMD void sgd(float *p, float *s1, float *s2, const float *g, const struct step *o, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		p[i] -= o->lr * (g[i] * o->scale + o->wd * p[i]);
}

static DT_SIMD void momentum(float *p, float *s1, float *s2, const float *g, const struct step *o, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		s1[i] = o->beta1 * s1[i] + g[i] * o->scale + o->wd * p[i];
		p[i] -= o->lr * s1[i];
	}
}

static DT_SIMD void rmsprop(float *p, float *s1, float *s2, const float *g, const struct step *o, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float d = g[i] * o->scale + o->wd * p[i];

		s1[i] = o->beta2 * s1[i] + (1.f - o->beta2) * d * d;
		p[i] -= o->lr * d / (sqrtf(s1[i]) + o->eps);
	}
}

static DT_SIMD void adagrad(float *p, float *s1, float *s2, const float *g, const struct step *o, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float d = g[i] * o->scale + o->wd * p[i];

		s1[i] += d * d;
		p[i] -= o->lr * d / (sqrtf(s1[i]) + o->eps);
	}
}

/* coupled: weight decay joins the gradient (adam); decoupled: it shrinks p apart (adamw). */
DT_INLINE void adam_loop(float *p, float *m, float *v, const float *g, const struct step *o, int64_t n,
			 float coupled, float decoupled)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float d = g[i] * o->scale + coupled * p[i];
		float mi = o->beta1 * m[i] + (1.f - o->beta1) * d;
		float vi = o->beta2 * v[i] + (1.f - o->beta2) * d * d;

		m[i] = mi;
		v[i] = vi;
		p[i] -= o->lr * (mi * o->m_unbias / (sqrtf(vi * o->v_unbias) + o->eps) + decoupled * p[i]);
	}
}

static DT_SIMD void adam(float *p, float *s1, float *s2, const float *g, const struct step *o, int64_t n)
{
	adam_loop(p, s1, s2, g, o, n, o->wd, 0);
}

static DT_SIMD void adamw(float *p, float *s1, float *s2, const float *g, const struct step *o, int64_t n)
{
	adam_loop(p, s1, s2, g, o, n, 0, o->wd);
}

typedef void step_fn(float *p, float *s1, float *s2, const float *g, const struct step *o, int64_t n);

static DT_SIMD const float *load_grad(float *buf, const void *g, enum dt_dtype t, int64_t n)
{
	return dt_load(buf, g, t, n);
}

static DT_SIMD void store_copy(void *copy, enum dt_dtype t, const float *p, int64_t n)
{
	dt_store(copy, t, p, n);
}

static void step_chunk(step_fn *fn, const struct step *o, int64_t i, int64_t n)
{
	float buf[DT_CHUNK];

	fn(dt_at(o->p, i), dt_at(o->s1, i), dt_at(o->s2, i), load_grad(buf, dt_at(o->g, i), o->g.dtype, n), o,
	   n);
	if (o->copy.data)
		store_copy(dt_at(o->copy, i), o->copy.dtype, dt_at(o->p, i), n);
}

int dt_cpu_optim_step(struct dt_dev *dev, const struct dt_optim *o, struct dt_tensor copy, struct dt_tensor p,
		      struct dt_tensor g, struct dt_tensor s1, struct dt_tensor s2)
{
	static step_fn *const fns[DT_OPTIM_N] = {
#define DT_OPTIM_RULE(NAME, name, ...) name,
#include "kernels/optim.list"
#undef DT_OPTIM_RULE
	};
	const int64_t n = dt_numel(p);
	struct step st = {copy,		p, g, s1, s2, o->lr, o->beta1, o->beta2, o->eps, o->weight_decay,
			  o->grad_scale};

	if (dt_optim_rule(o->kind)->flags & DT_OPTIM_CORRECTED) {
		st.m_unbias = (float)(1. / (1. - pow((double)o->beta1, (double)o->t)));
		st.v_unbias = (float)(1. / (1. - pow((double)o->beta2, (double)o->t)));
	}
#pragma omp parallel for num_threads(dev->nthreads) if (n > DT_SERIAL)
	for (int64_t i = 0; i < n; i += DT_CHUNK)
		step_chunk(fns[o->kind], &st, i, dt_min64(DT_CHUNK, n - i));
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
