/* AdamW moves 28 bytes per parameter: p, m and v read and written, g read; 2 more for a 16-bit copy, 2 less
 * for a 16-bit g. */
#include "kernels/cuda/optim.h"

#define CHUNK 2048 /* elements per block and iteration, 8 per thread */
#define PARTS 48

struct step {
	int kind, n; /* n: number of parts */
	float beta1, beta2, eps, scale;
	struct dt_optim_factors f;
	bool apart;	/* decoupled weight decay */
	bool direction; /* written into g; p is not changed */
	int64_t chunks; /* over all parts */
	struct dt_step_part part[PARTS];
};
static_assert(sizeof(struct step) <= DT_LAUNCH_BYTES, "");

/* KIND: o.kind as a constant, or DT_OPTIM_N for any kind. */
template <int KIND>
DT_DEVICE void update(const struct step &o, const struct dt_step_part &q, float &g, float &p, float &s1,
		      float &s2)
{
	const float coupled = o.apart ? 0.f : q.decay, decoupled = o.apart ? q.decay : 0.f;
	float d = g * o.scale + coupled * p;

	switch (KIND < DT_OPTIM_N ? KIND : o.kind) {
	case DT_OPTIM_SGD:
		p -= q.lr * d;
		return;
	case DT_OPTIM_MOMENTUM:
		s1 = o.beta1 * s1 + d;
		p -= q.lr * s1;
		return;
	case DT_OPTIM_NESTEROV:
		s1 = o.beta1 * s1 + d;
		p -= q.lr * (d + o.beta1 * s1);
		return;
	case DT_OPTIM_RMSPROP:
		s1 = o.beta2 * s1 + (1.f - o.beta2) * d * d;
		p -= q.lr * d / (sqrtf(s1) + o.eps);
		return;
	case DT_OPTIM_ADAGRAD:
		s1 += d * d;
		p -= q.lr * d / (sqrtf(s1) + o.eps);
		return;
	case DT_OPTIM_NADAM:
		s1 = o.beta1 * s1 + (1.f - o.beta1) * d;
		s2 = o.beta2 * s2 + (1.f - o.beta2) * d * d;
		p -= q.lr * (o.f.of_g * d + o.f.of_m * s1) / (sqrtf(s2 * o.f.v_unbias) + o.eps);
		return;
	case DT_OPTIM_LION: {
		const float u = o.beta1 * s1 + (1.f - o.beta1) * d;

		s1 = o.beta2 * s1 + (1.f - o.beta2) * d;
		p -= q.lr * ((u > 0 ? 1.f : u < 0 ? -1.f : 0.f) + decoupled * p);
		return;
	}
	case DT_OPTIM_LARS:
		s1 = o.beta1 * s1 + q.lr * q.trust * d;
		p -= s1;
		return;
	case DT_OPTIM_LAMB:
		s1 = o.beta1 * s1 + (1.f - o.beta1) * d;
		s2 = o.beta2 * s2 + (1.f - o.beta2) * d * d;
		g = s1 * o.f.m_unbias / (sqrtf(s2 * o.f.v_unbias) + o.eps) + decoupled * p;
		return;
	case DT_OPTIM_MUON:
		s1 = DT_MUON_BETA * s1 + (1.f - DT_MUON_BETA) * g * o.scale;
		g = (1.f - DT_MUON_BETA) * g * o.scale + DT_MUON_BETA * s1;
		return;
	default:
		s1 = o.beta1 * s1 + (1.f - o.beta1) * d;
		s2 = o.beta2 * s2 + (1.f - o.beta2) * d * d;
		p -= q.lr * (s1 * o.f.m_unbias / (sqrtf(s2 * o.f.v_unbias) + o.eps) + decoupled * p);
	}
}

template <int KIND, int V> DT_DEVICE void some(const struct step &o, const struct dt_step_part &q, int64_t i)
{
	float g[V], p[V], s1[V] = {}, s2[V] = {};

	dt_ld<V>(g, q.g, q.tg, i);
	dt_ld<V>(p, q.p, DT_F32, i);
	if (q.s1)
		dt_ld<V>(s1, q.s1, DT_F32, i);
	if (q.s2)
		dt_ld<V>(s2, q.s2, DT_F32, i);
	DT_UNROLL
	for (int k = 0; k < V; k++)
		update<KIND>(o, q, g[k], p[k], s1[k], s2[k]);
	if (o.direction)
		dt_st<V>(q.g, DT_F32, i, g);
	else
		dt_st<V>(q.p, DT_F32, i, p);
	if (q.s1)
		dt_st<V>(q.s1, DT_F32, i, s1);
	if (q.s2)
		dt_st<V>(q.s2, DT_F32, i, s2);
	if (q.copy)
		dt_st<V>(q.copy, q.tcopy, i, p);
}

/* Elements [from, to) of a part. */
template <int KIND>
DT_DEVICE void range(const struct step &o, const struct dt_step_part &q, int64_t from, int64_t to)
{
	const int64_t eights = q.by_8 ? from + (to - from) / 8 * 8 : from;

	for (int64_t i = from + threadIdx.x * 8; i < eights; i += 256 * 8)
		some<KIND, 8>(o, q, i);
	for (int64_t i = eights + threadIdx.x; i < to; i += 256)
		some<KIND, 1>(o, q, i);
}

/* A block has consecutive chunks, so that it rarely searches for their part. */
template <int KIND> __global__ void __launch_bounds__(256, 4) optim_kernel(struct step o)
{
	int64_t c = o.chunks * blockIdx.x / gridDim.x;
	const int64_t end = o.chunks * (blockIdx.x + 1) / gridDim.x;

	for (int at = dt_part_of(o.part, o.n, c); c < end; at++) {
		const struct dt_step_part q = o.part[at];
		const int64_t from = (c - q.first) * CHUNK, all = (end - q.first) * CHUNK;

		range<KIND>(o, q, from, q.n < all ? q.n : all);
		c = q.first + (q.n + CHUNK - 1) / CHUNK;
	}
}

int dt_cuda_optim_steps(struct dt_dev *dev, const struct dt_optim *o, const struct dt_optim_parts *l)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct dt_optim_rule *rule = dt_optim_rule(o->kind);
	const int states = rule->state[1].shape == DT_STATE_EACH   ? 2
			   : rule->state[0].shape == DT_STATE_EACH ? 1
								   : 0;
	struct step st = {};
	int rc = 0;

	if (!c)
		return -ENODEV;
	if (rule->state[0].shape == DT_STATE_BLOCKS)
		return dt_cuda_optim_blocks(c, o, l);
	st.kind = o->kind;
	st.beta1 = o->beta1;
	st.beta2 = o->beta2;
	st.eps = o->eps;
	st.scale = o->grad_scale;
	st.f = dt_optim_factors(o);
	st.apart = rule->flags & (DT_OPTIM_DECOUPLED | DT_OPTIM_DIRECTION);
	st.direction = rule->flags & DT_OPTIM_DIRECTION;
	for (int at = 0; at < l->n && rc == 0;) {
		st.n = dt_take_parts(l, &at, PARTS, CHUNK, states, st.part, &st.chunks);
		const unsigned blocks = dt_blocks(c, st.chunks, 1);

		if (st.n && o->kind == DT_OPTIM_ADAMW)
			rc = DT_LAUNCH(c, optim_kernel<DT_OPTIM_ADAMW>, blocks, 256, 0, st);
		else if (st.n)
			rc = DT_LAUNCH(c, optim_kernel<DT_OPTIM_N>, blocks, 256, 0, st);
	}
	return rc;
}

int dt_cuda_optim_step(struct dt_dev *dev, const struct dt_optim *o, struct dt_tensor copy,
		       struct dt_tensor p, struct dt_tensor g, struct dt_tensor s1, struct dt_tensor s2)
{
	const struct dt_optim_part one = {copy, p, g, s1, s2, o->lr, o->weight_decay, o->trust};
	const struct dt_optim_parts l = {1, &one};

	return dt_cuda_optim_steps(dev, o, &l);
}
/* SPDX-License-Identifier: Apache-2.0 */
