/* AdamW moves 28 bytes a parameter: p, m and v read and written, g read; 2 more for a 16-bit copy, 2 less for
 * g. */
#include "kernels/cuda/optim_blocks.h"

struct step {
	int kind;
	float coupled, decoupled; /* weight decay, in the gradient or apart from it */
	void *copy, *p, *s1, *s2;
	void *g;
	int tcopy, tg;
	int64_t n;
	float lr, beta1, beta2, eps, scale, trust;
	struct dt_optim_factors f;
	bool direction; /* which is written into g; p stays */
};

DT_DEVICE void update(const struct step &o, float &g, float &p, float &s1, float &s2)
{
	float d = g * o.scale + o.coupled * p;

	switch (o.kind) {
	case DT_OPTIM_SGD:
		p -= o.lr * d;
		return;
	case DT_OPTIM_MOMENTUM:
		s1 = o.beta1 * s1 + d;
		p -= o.lr * s1;
		return;
	case DT_OPTIM_NESTEROV:
		s1 = o.beta1 * s1 + d;
		p -= o.lr * (d + o.beta1 * s1);
		return;
	case DT_OPTIM_RMSPROP:
		s1 = o.beta2 * s1 + (1.f - o.beta2) * d * d;
		p -= o.lr * d / (sqrtf(s1) + o.eps);
		return;
	case DT_OPTIM_ADAGRAD:
		s1 += d * d;
		p -= o.lr * d / (sqrtf(s1) + o.eps);
		return;
	case DT_OPTIM_NADAM:
		s1 = o.beta1 * s1 + (1.f - o.beta1) * d;
		s2 = o.beta2 * s2 + (1.f - o.beta2) * d * d;
		p -= o.lr * (o.f.of_g * d + o.f.of_m * s1) / (sqrtf(s2 * o.f.v_unbias) + o.eps);
		return;
	case DT_OPTIM_LION: {
		const float u = o.beta1 * s1 + (1.f - o.beta1) * d;

		s1 = o.beta2 * s1 + (1.f - o.beta2) * d;
		p -= o.lr * ((u > 0 ? 1.f : u < 0 ? -1.f : 0.f) + o.decoupled * p);
		return;
	}
	case DT_OPTIM_LARS:
		s1 = o.beta1 * s1 + o.lr * o.trust * d;
		p -= s1;
		return;
	case DT_OPTIM_LAMB:
		s1 = o.beta1 * s1 + (1.f - o.beta1) * d;
		s2 = o.beta2 * s2 + (1.f - o.beta2) * d * d;
		g = s1 * o.f.m_unbias / (sqrtf(s2 * o.f.v_unbias) + o.eps) + o.decoupled * p;
		return;
	case DT_OPTIM_MUON:
		s1 = DT_MUON_BETA * s1 + (1.f - DT_MUON_BETA) * g * o.scale;
		g = (1.f - DT_MUON_BETA) * g * o.scale + DT_MUON_BETA * s1;
		return;
	default:
		s1 = o.beta1 * s1 + (1.f - o.beta1) * d;
		s2 = o.beta2 * s2 + (1.f - o.beta2) * d * d;
		p -= o.lr * (s1 * o.f.m_unbias / (sqrtf(s2 * o.f.v_unbias) + o.eps) + o.decoupled * p);
	}
}

template <int V> DT_DEVICE void some(const struct step &o, int64_t i)
{
	float g[V], p[V], s1[V] = {}, s2[V] = {};

	dt_ld<V>(g, o.g, o.tg, i);
	dt_ld<V>(p, o.p, DT_F32, i);
	if (o.s1)
		dt_ld<V>(s1, o.s1, DT_F32, i);
	if (o.s2)
		dt_ld<V>(s2, o.s2, DT_F32, i);
	for (int k = 0; k < V; k++)
		update(o, g[k], p[k], s1[k], s2[k]);
	if (o.direction)
		dt_st<V>(o.g, DT_F32, i, g);
	else
		dt_st<V>(o.p, DT_F32, i, p);
	if (o.s1)
		dt_st<V>(o.s1, DT_F32, i, s1);
	if (o.s2)
		dt_st<V>(o.s2, DT_F32, i, s2);
	if (o.copy)
		dt_st<V>(o.copy, o.tcopy, i, p);
}

template <int V> __global__ void __launch_bounds__(256) optim_kernel(struct step o)
{
	const int64_t each = (int64_t)gridDim.x * blockDim.x * V;

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V; i < o.n; i += each) {
		if (V == 1 || i + V <= o.n)
			some<V>(o, i);
		else
			for (int64_t k = i; k < o.n; k++)
				some<1>(o, k);
	}
}

int dt_cuda_optim_step(struct dt_dev *dev, const struct dt_optim *o, struct dt_tensor copy,
		       struct dt_tensor p, struct dt_tensor g, struct dt_tensor s1, struct dt_tensor s2)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t n = dt_numel(p);
	const struct dt_optim_rule *rule = dt_optim_rule(o->kind);
	const bool apart = rule->flags & (DT_OPTIM_DECOUPLED | DT_OPTIM_DIRECTION);
	struct step st;

	if (!c)
		return -ENODEV;
	if (rule->state[0].shape == DT_STATE_BLOCKS)
		return dt_cuda_optim_blocks(c, o, copy, p, g, s1, s2);
	st = {o->kind,
	      apart ? 0.f : o->weight_decay,
	      apart ? o->weight_decay : 0.f,
	      copy.data,
	      p.data,
	      NULL,
	      NULL,
	      g.data,
	      copy.dtype,
	      g.dtype,
	      n,
	      o->lr,
	      o->beta1,
	      o->beta2,
	      o->eps,
	      o->grad_scale,
	      o->trust,
	      dt_optim_factors(o),
	      (rule->flags & DT_OPTIM_DIRECTION) != 0};
	if (dt_optim_states(o->kind) > 0)
		st.s1 = s1.data;
	if (dt_optim_states(o->kind) > 1 && rule->state[1].shape == DT_STATE_EACH)
		st.s2 = s2.data;
	if (dt_by_8(8, st.p, st.g, st.s1, st.s2, st.copy))
		return DT_LAUNCH(c, optim_kernel<8>, dt_blocks(c, n, 2048), 256, 0, st);
	return DT_LAUNCH(c, optim_kernel<1>, dt_blocks(c, n, 256), 256, 0, st);
}
/* SPDX-License-Identifier: Apache-2.0 */
