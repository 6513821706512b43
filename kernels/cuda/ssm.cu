/*
 * The causal convolution and the gate of ssm.h. Memory traffic: conv moves 2 times the bytes of u (backward
 * 3, and 4 (kernel + 1) bytes per channel and run of rows), gate 3 times those of y (backward 5); a run reads
 * kernel - 1 rows of its neighbour again.
 */
#include "kernels/cuda/act.h"
#include "kernels/cuda/groups.h"
#include "kernels/ssm.h"

struct conv {
	struct dt_ssm p;
	const void *u, *w, *bias, *dxbc;
	void *xbc, *du;
	float *part; /* [runs, (kernel + 1) channels]: shares of dw [channels, kernel] and of dbias */
	int type, tw, tb;
	int64_t n, across, runs; /* channels; blocks of them; runs of rows of a sequence */
};

enum { RUN = 64 }; /* rows that a thread walks down */

/*
 * A channel's taps, the last of K being the row itself, and the rows of u that they meet. Kernels of fewer
 * than K taps have the last ones; the rows in front of them are never inside.
 */
template <int K> struct walk {
	float w[K], u[K], bias;
};

template <int K> DT_DEVICE void begin(struct walk<K> &s, const struct conv &a, int64_t c)
{
	const int kernel = (int)a.p.kernel;

	DT_UNROLL
	for (int k = 0; k < K; k++) {
		s.w[k] = k >= K - kernel ? dt_ld1(a.w, a.tw, c * kernel + k - (K - kernel)) : 0;
		s.u[k] = 0;
	}
	s.bias = a.bias ? dt_ld1(a.bias, a.tb, c) : 0;
}

/* Moves on by a row, whose u is v. */
template <int K> DT_DEVICE void next(struct walk<K> &s, float v)
{
	DT_UNROLL
	for (int k = 0; k + 1 < K; k++)
		s.u[k] = s.u[k + 1];
	s.u[K - 1] = v;
}

/* The first tap of position t that is inside its document. */
template <int K> DT_DEVICE int first_tap(const struct conv &a, int64_t row, int64_t t)
{
	const int64_t first = a.p.first ? dt_at(a.p.first, row) : 0, k = K - 1 - (t - first),
		      least = K - a.p.kernel;

	return (int)(k > least ? k : least);
}

/* bias + taps, in front of the activation. */
template <int K> DT_DEVICE float taps(const struct walk<K> &s, int from)
{
	float sum = s.bias;

	DT_UNROLL
	for (int k = 0; k < K; k++)
		sum += k >= from ? s.w[k] * s.u[k] : 0;
	return sum;
}

/* A channel a thread, RUN rows. */
template <int K> static __global__ void __launch_bounds__(128) conv_kernel(struct conv a)
{
	const int64_t c = blockIdx.x % a.across * 128 + threadIdx.x, run = blockIdx.x / a.across,
		      row0 = run / a.runs * a.p.seq, t0 = run % a.runs * RUN,
		      end = t0 + RUN < a.p.seq ? t0 + RUN : a.p.seq;
	struct walk<K> s;

	if (c >= a.n)
		return;
	begin(s, a, c);
	for (int64_t t = t0 < K - 1 ? 0 : t0 - K + 1; t < end; t++) {
		float slope;

		next(s, dt_ld1(a.u, a.type, (row0 + t) * a.n + c));
		if (t >= t0)
			dt_st1(a.xbc, a.type, (row0 + t) * a.n + c,
			       dt_act(taps(s, first_tap<K>(a, row0 + t, t)), DT_ACT_SILU, &slope));
	}
}

/*
 * A channel a thread: du of RUN rows, and their shares of the gradients of taps and bias. A row's gradient
 * goes to the rows that its taps meet; du of a row is complete K - 1 rows later.
 */
template <int K> static __global__ void __launch_bounds__(128) conv_back_kernel(struct conv a)
{
	const int64_t c = blockIdx.x % a.across * 128 + threadIdx.x, run = blockIdx.x / a.across,
		      row0 = run / a.runs * a.p.seq, t0 = run % a.runs * RUN,
		      last = t0 + RUN < a.p.seq ? t0 + RUN : a.p.seq;
	const int kernel = (int)a.p.kernel;
	float du[K], dw[K], dbias = 0;
	struct walk<K> s;

	if (c >= a.n)
		return;
	begin(s, a, c);
	DT_UNROLL
	for (int k = 0; k < K; k++)
		du[k] = dw[k] = 0;
	for (int64_t t = t0 < K - 1 ? 0 : t0 - K + 1; t < last + K - 1; t++) {
		const int64_t at = (row0 + t) * a.n + c, done = t - K + 1;

		if (t < a.p.seq)
			next(s, dt_ld1(a.u, a.type, at));
		if (t >= t0 && t < a.p.seq) {
			const int from = first_tap<K>(a, row0 + t, t);
			float d;

			dt_act(taps(s, from), DT_ACT_SILU, &d);
			d *= dt_ld1(a.dxbc, a.type, at);
			DT_UNROLL
			for (int k = 0; k < K; k++) {
				du[k] += k >= from ? s.w[k] * d : 0;
				dw[k] += k >= from && t < last ? s.u[k] * d : 0;
			}
			dbias += t < last ? d : 0;
		}
		if (done >= t0 && done < last)
			dt_st1(a.du, a.type, (row0 + done) * a.n + c, du[0]);
		DT_UNROLL
		for (int k = 0; k + 1 < K; k++)
			du[k] = du[k + 1];
		du[K - 1] = 0;
	}
	float *part = a.part + run * (kernel + 1) * a.n;

	DT_UNROLL
	for (int k = 0; k < K; k++)
		if (k >= K - kernel)
			dt_st1(part, DT_F32, c * kernel + k - (K - kernel), dw[k]);
	dt_st1(part, DT_F32, a.n * kernel + c, dbias);
}

static struct conv conv_of(struct dt_tensor u, struct dt_tensor w, struct dt_tensor bias,
			   const struct dt_ssm *p)
{
	struct conv a = {};

	a.p = *p;
	a.u = u.data, a.w = w.data, a.bias = bias.data;
	a.type = u.dtype, a.tw = w.dtype, a.tb = bias.dtype;
	a.n = dt_ssm_conv(p);
	a.across = dt_ceil_div(a.n, 128);
	a.runs = dt_ceil_div(p->seq, RUN);
	return a;
}

/* Launches KERNEL<4>, or of as many taps as a convolution may have. */
#define LAUNCH(KERNEL, c, a)                                                                                 \
	((a).p.kernel <= 4 ? DT_LAUNCH(c, KERNEL<4>, blocks(a), 128, 0, a)                                   \
			   : DT_LAUNCH(c, KERNEL<DT_SSM_KERNEL>, blocks(a), 128, 0, a))

static unsigned blocks(const struct conv &a)
{
	return (unsigned)(a.across * a.p.batch * a.runs);
}

int dt_cuda_ssm_conv(struct dt_dev *dev, struct dt_tensor xbc, struct dt_tensor u, struct dt_tensor w,
		     struct dt_tensor bias, const struct dt_ssm *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	struct conv a = conv_of(u, w, bias, p);

	if (!c)
		return -ENODEV;
	a.xbc = xbc.data;
	return LAUNCH(conv_kernel, c, a);
}

int dt_cuda_ssm_conv_backward(struct dt_dev *dev, struct dt_tensor du, struct dt_tensor dw,
			      struct dt_tensor dbias, struct dt_tensor dxbc, struct dt_tensor u,
			      struct dt_tensor w, struct dt_tensor bias, const struct dt_ssm *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	struct conv a = conv_of(u, w, bias, p);
	const int64_t all = p->batch * a.runs, share = (p->kernel + 1) * a.n;
	int rc;

	if (!c)
		return -ENODEV;
	a.du = du.data;
	a.dxbc = dxbc.data;
	a.part = (float *)dt_cuda_scratch(dev, (size_t)(all * share) * sizeof *a.part);
	if (!a.part)
		return -ENOMEM;
	rc = LAUNCH(conv_back_kernel, c, a);
	if (rc == 0 && dw.data)
		rc = dt_groups_add(c, (float *)dw.data, a.part, share, all, p->kernel * a.n);
	if (rc == 0 && dbias.data)
		rc = dt_groups_add(c, (float *)dbias.data, a.part + p->kernel * a.n, share, all, a.n);
	return rc;
}

/* ---- the gate ---- */

struct gate {
	const void *x, *z, *dy;
	void *y, *dx, *dz; /* y: forward */
	int type;
	int64_t n;
};

template <int V> static __global__ void __launch_bounds__(256) gate_kernel(struct gate a)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x * V;

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V; i < a.n; i += step) {
		float x[V], z[V], dy[V], slope;

		dt_ld<V>(x, a.x, a.type, i);
		dt_ld<V>(z, a.z, a.type, i);
		if (a.y) {
			DT_UNROLL
			for (int k = 0; k < V; k++)
				x[k] *= dt_act(z[k], DT_ACT_SILU, &slope);
			dt_st<V>(a.y, a.type, i, x);
			continue;
		}
		dt_ld<V>(dy, a.dy, a.type, i);
		DT_UNROLL
		for (int k = 0; k < V; k++) {
			const float f = dt_act(z[k], DT_ACT_SILU, &slope), v = x[k];

			x[k] = dy[k] * f;
			z[k] = dy[k] * v * slope;
		}
		dt_st<V>(a.dx, a.type, i, x);
		dt_st<V>(a.dz, a.type, i, z);
	}
}

static int gate(struct dt_dev *dev, const struct gate &a)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);

	if (!c)
		return -ENODEV;
	return dt_by_8(a.n, a.x, a.z, a.dy, a.y, a.dx, a.dz)
		       ? DT_LAUNCH(c, gate_kernel<8>, dt_blocks(c, a.n / 8, 256), 256, 0, a)
		       : DT_LAUNCH(c, gate_kernel<1>, dt_blocks(c, a.n, 256), 256, 0, a);
}

int dt_cuda_ssm_gate(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, struct dt_tensor z)
{
	return gate(dev, {x.data, z.data, NULL, y.data, NULL, NULL, x.dtype, dt_numel(x)});
}

int dt_cuda_ssm_gate_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dz,
			      struct dt_tensor dy, struct dt_tensor x, struct dt_tensor z)
{
	return gate(dev, {x.data, z.data, dy.data, NULL, dx.data, dz.data, x.dtype, dt_numel(x)});
}
/* SPDX-License-Identifier: Apache-2.0 */
