#include "kernels/blocks8.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/subnormal.h"

#include <math.h>

struct step {
	enum dt_optim_kind kind;
	struct dt_tensor copy, p, g, s1, s2;
	float lr, beta1, beta2, eps, wd, scale, trust;
	struct dt_optim_factors f;
};

static DT_SIMD void sgd(float *p, float *s1, float *s2, float *g, const struct step *o, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		p[i] -= o->lr * (g[i] * o->scale + o->wd * p[i]);
}

static DT_SIMD void momentum(float *p, float *s1, float *s2, float *g, const struct step *o, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		s1[i] = o->beta1 * s1[i] + g[i] * o->scale + o->wd * p[i];
		p[i] -= o->lr * s1[i];
	}
}

static DT_SIMD void nesterov(float *p, float *s1, float *s2, float *g, const struct step *o, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float d = g[i] * o->scale + o->wd * p[i];

		s1[i] = o->beta1 * s1[i] + d;
		p[i] -= o->lr * (d + o->beta1 * s1[i]);
	}
}

static DT_SIMD void rmsprop(float *p, float *s1, float *s2, float *g, const struct step *o, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float d = g[i] * o->scale + o->wd * p[i];

		s1[i] = o->beta2 * s1[i] + (1.f - o->beta2) * d * d;
		p[i] -= o->lr * d / (sqrtf(s1[i]) + o->eps);
	}
}

static DT_SIMD void adagrad(float *p, float *s1, float *s2, float *g, const struct step *o, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float d = g[i] * o->scale + o->wd * p[i];

		s1[i] += d * d;
		p[i] -= o->lr * d / (sqrtf(s1[i]) + o->eps);
	}
}

/* coupled: weight decay is added to the gradient (adam); decoupled: it shrinks p directly (adamw). */
DT_INLINE void adam_loop(float *p, float *m, float *v, float *g, const struct step *o, int64_t n,
			 float coupled, float decoupled)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float d = g[i] * o->scale + coupled * p[i];
		float mi = o->beta1 * m[i] + (1.f - o->beta1) * d;
		float vi = o->beta2 * v[i] + (1.f - o->beta2) * d * d;

		m[i] = mi;
		v[i] = vi;
		p[i] -= o->lr *
			(mi * o->f.m_unbias / (sqrtf(vi * o->f.v_unbias) + o->eps) + decoupled * p[i]);
	}
}

static DT_SIMD void adam(float *p, float *s1, float *s2, float *g, const struct step *o, int64_t n)
{
	adam_loop(p, s1, s2, g, o, n, o->wd, 0);
}

static DT_SIMD void adamw(float *p, float *s1, float *s2, float *g, const struct step *o, int64_t n)
{
	adam_loop(p, s1, s2, g, o, n, 0, o->wd);
}

static DT_SIMD void nadam(float *p, float *s1, float *s2, float *g, const struct step *o, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float d = g[i] * o->scale + o->wd * p[i];

		s1[i] = o->beta1 * s1[i] + (1.f - o->beta1) * d;
		s2[i] = o->beta2 * s2[i] + (1.f - o->beta2) * d * d;
		p[i] -= o->lr * (o->f.of_g * d + o->f.of_m * s1[i]) / (sqrtf(s2[i] * o->f.v_unbias) + o->eps);
	}
}

static DT_SIMD void lion(float *p, float *s1, float *s2, float *g, const struct step *o, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float d = g[i] * o->scale, u = o->beta1 * s1[i] + (1.f - o->beta1) * d;

		s1[i] = o->beta2 * s1[i] + (1.f - o->beta2) * d;
		p[i] -= o->lr * ((u > 0 ? 1.f : u < 0 ? -1.f : 0.f) + o->wd * p[i]);
	}
}

static DT_SIMD void lars(float *p, float *s1, float *s2, float *g, const struct step *o, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		s1[i] = o->beta1 * s1[i] + o->lr * o->trust * (g[i] * o->scale + o->wd * p[i]);
		p[i] -= s1[i];
	}
}

static DT_SIMD void lamb(float *p, float *s1, float *s2, float *g, const struct step *o, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float d = g[i] * o->scale;

		s1[i] = o->beta1 * s1[i] + (1.f - o->beta1) * d;
		s2[i] = o->beta2 * s2[i] + (1.f - o->beta2) * d * d;
		g[i] = s1[i] * o->f.m_unbias / (sqrtf(s2[i] * o->f.v_unbias) + o->eps) + o->wd * p[i];
	}
}

static DT_SIMD void muon(float *p, float *s1, float *s2, float *g, const struct step *o, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float d = g[i] * o->scale;

		s1[i] = DT_MUON_BETA * s1[i] + (1.f - DT_MUON_BETA) * d;
		g[i] = (1.f - DT_MUON_BETA) * d + DT_MUON_BETA * s1[i];
	}
}

/* Unused: its ops are in factor.h. */
static void adafactor(float *p, float *s1, float *s2, float *g, const struct step *o, int64_t n)
{
}

/* s1 and s2 are the decoded moments of a chunk. */
static DT_SIMD void adamw8bit(float *p, float *s1, float *s2, float *g, const struct step *o, int64_t n)
{
	adam_loop(p, s1, s2, g, o, n, 0, o->wd);
}

_Static_assert(DT_CHUNK % DT_STATE_BLOCK == 0, "a chunk has whole blocks");
typedef void step_fn(float *p, float *s1, float *s2, float *g, const struct step *o, int64_t n);

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
	const struct dt_optim_state *state = dt_optim_rule(o->kind)->state;
	float buf[DT_CHUNK], wide[2][DT_CHUNK];
	const bool blocks = state[0].shape == DT_STATE_BLOCKS;
	const int64_t all = dt_numel(o->p);
	const uint64_t was = dt_subnormals_flush();

	if (blocks) {
		dt_blocks8_decode(wide[0], o->s1.data, all, i, n, true);
		dt_blocks8_decode(wide[1], o->s2.data, all, i, n, false);
	}
	/* If the op writes a direction, g is f32 and so not in buf. */
	fn(dt_at(o->p, i), blocks ? wide[0] : dt_at(o->s1, i), blocks ? wide[1] : dt_at(o->s2, i),
	   (float *)load_grad(buf, dt_at(o->g, i), o->g.dtype, n), o, n);
	for (int64_t j = 0; blocks && j < n; j += DT_STATE_BLOCK) {
		const int64_t w = dt_min64(DT_STATE_BLOCK, n - j);

		/* Encoding is arithmetic: meanwhile the next chunk comes from memory. */
		for (int64_t k = 0; k < w * 4; k += 64)
			dt_prefetch_ahead((const char *)dt_at(o->p, i + n + j) + k);
		for (int64_t k = 0; k < w * dt_dtype_size(o->g.dtype); k += 64)
			dt_prefetch_ahead((const char *)dt_at(o->g, i + n + j) + k);
		dt_blocks8_encode(o->s1.data, all, i + j, wide[0] + j, w, true);
		dt_blocks8_encode(o->s2.data, all, i + j, wide[1] + j, w, false);
	}
	dt_subnormals_keep(was);
	if (o->copy.data)
		store_copy(dt_at(o->copy, i), o->copy.dtype, dt_at(o->p, i), n);
}

static void step_part(struct dt_dev *dev, step_fn *fn, const struct step *o)
{
	const int64_t n = dt_numel(o->p);

#pragma omp parallel for num_threads(dev->nthreads) if (n > DT_SERIAL)
	for (int64_t i = 0; i < n; i += DT_CHUNK)
		step_chunk(fn, o, i, dt_min64(DT_CHUNK, n - i));
}

int dt_cpu_optim_steps(struct dt_dev *dev, const struct dt_optim *o, const struct dt_optim_parts *l)
{
	static step_fn *const fns[DT_OPTIM_N] = {
#define DT_OPTIM_RULE(NAME, name, ...) name,
#include "kernels/optim.list"
#undef DT_OPTIM_RULE
	};
	struct step st = {.kind = o->kind,
			  .beta1 = o->beta1,
			  .beta2 = o->beta2,
			  .eps = o->eps,
			  .scale = o->grad_scale,
			  .f = dt_optim_factors(o)};

	for (int i = 0; i < l->n; i++) {
		const struct dt_optim_part *q = &l->part[i];

		st.copy = q->copy;
		st.p = q->p;
		st.g = q->g;
		st.s1 = q->s1;
		st.s2 = q->s2;
		st.lr = q->lr;
		st.wd = q->weight_decay;
		st.trust = q->trust;
		step_part(dev, fns[o->kind], &st);
	}
	return 0;
}

int dt_cpu_optim_step(struct dt_dev *dev, const struct dt_optim *o, struct dt_tensor copy, struct dt_tensor p,
		      struct dt_tensor g, struct dt_tensor s1, struct dt_tensor s2)
{
	const struct dt_optim_part one = {copy, p, g, s1, s2, o->lr, o->weight_decay, o->trust};

	return dt_cpu_optim_steps(dev, o, &(struct dt_optim_parts){1, &one});
}
/* SPDX-License-Identifier: Apache-2.0 */
