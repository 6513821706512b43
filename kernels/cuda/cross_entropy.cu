/*
 * ce_stats reads the logits once; ce_grad reads them and writes as many. A block has one row; elements before
 * the first 16-byte boundary and after the last are handled one by one. With a row stride that is a multiple
 * of 8 elements there are none before.
 */
#include "kernels/cuda/kernel.h"

#define THREADS 512

/* Elements of a row of n before the first 16-byte boundary; 0 if V is 1. */
template <int V> DT_DEVICE int64_t lead_of(const void *p, int t, int64_t row, int64_t ld, int64_t n)
{
	const int size = t == DT_F32 ? 4 : 2;
	const int64_t lead =
		V == 1 ? 0 : (int64_t)((16 - ((uintptr_t)p + (uint64_t)(row * ld * size)) % 16) % 16 / size);

	return lead < n ? lead : n;
}

struct stats {
	float *rowmax, *sumexp, *target_logit;
	const void *l;
	int t;
	int64_t n, ld, first;
	const int32_t *targets;
};

/* Merges two partial results (max, sum of exp(l - max)). An empty one is (-Inf, 0). */
DT_DEVICE void join(float &m, float &s, float m2, float s2)
{
	const float top = m2 > m ? m2 : m;

	s = (m == top ? s : s * expf(m - top)) + (m2 == top ? s2 : s2 * expf(m2 - top));
	m = top;
}

template <int V> DT_DEVICE void take(float &m, float &s, const float (&r)[V])
{
	float top = m;

	for (int k = 0; k < V; k++)
		top = r[k] > top ? r[k] : top;
	if (top > m) {
		s = s != 0 ? s * expf(m - top) : 0;
		m = top;
	}
	/* All are -Inf so far: avoids -Inf - -Inf, which would be NaN. */
	for (int k = 0; k < V; k++)
		s += expf(r[k] - (m == -INFINITY ? 0 : m));
}

template <int V> __global__ void __launch_bounds__(THREADS) stats_kernel(struct stats a)
{
	const int64_t row = blockIdx.x;
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	float *shared = (float *)dt_shared(), m = -INFINITY, s = 0;

	const int64_t lead = lead_of<V>(a.l, a.t, row, a.ld, a.n), end = lead + (a.n - lead) / V * V;

	for (int64_t j = lead + threadIdx.x * V; j < end; j += THREADS * V) {
		float r[V];

		dt_ld<V>(r, a.l, a.t, row * a.ld + j);
		take<V>(m, s, r);
	}
	for (int64_t j = threadIdx.x; V > 1 && j < lead + a.n - end; j += THREADS) {
		float r[1];

		dt_ld<1>(r, a.l, a.t, row * a.ld + (j < lead ? j : end + j - lead));
		take<1>(m, s, r);
	}
	for (int by = 16; by; by >>= 1) {
		const float m2 = __shfl_xor_sync(DT_ALL, m, by), s2 = __shfl_xor_sync(DT_ALL, s, by);

		join(m, s, m2, s2);
	}
	if (lane == 0) {
		shared[warp] = m;
		shared[32 + warp] = s;
	}
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	for (int w = 1; w < THREADS / 32; w++)
		join(m, s, shared[w], shared[32 + w]);
	const int64_t hit = a.targets[row] - a.first;

	a.rowmax[row] = m;
	a.sumexp[row] = s;
	a.target_logit[row] =
		a.targets[row] >= 0 && hit >= 0 && hit < a.n ? dt_ld1(a.l, a.t, row * a.ld + hit) : 0;
}

int dt_cuda_ce_stats(struct dt_dev *dev, float *rowmax, float *sumexp, float *target_logit,
		     struct dt_tensor logits, const int32_t *targets, int64_t vocab_first)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(logits), n = dt_cols(logits);
	const struct stats a = {rowmax,	      sumexp, target_logit,	 logits.data,
				logits.dtype, n,      dt_stride(logits), vocab_first,
				targets};

	if (!c)
		return -ENODEV;
	if ((uintptr_t)logits.data % (size_t)dt_dtype_size(logits.dtype) == 0)
		return DT_LAUNCH(c, stats_kernel<8>, (unsigned)rows, THREADS, 256, a);
	return DT_LAUNCH(c, stats_kernel<1>, (unsigned)rows, THREADS, 256, a);
}

struct grad {
	void *d;
	const void *l;
	int td, tl;
	int64_t n, ld, ldd, first; /* ldd: row stride of d */
	const float *rowmax, *sumexp;
	const int32_t *targets;
	const float *weight;
	float scale;
};

template <int V> __global__ void __launch_bounds__(THREADS) grad_kernel(struct grad a)
{
	const int64_t row = blockIdx.x;
	const bool counts = a.targets[row] >= 0;
	const int64_t hit = a.targets[row] - a.first;
	const float scale = a.weight ? a.scale * a.weight[row] : a.scale;
	const float max = a.rowmax[row], k = scale / a.sumexp[row];

	const int64_t lead = lead_of<V>(a.l, a.tl, row, a.ld, a.n), end = lead + (a.n - lead) / V * V;

	for (int64_t j = lead + threadIdx.x * V; j < end; j += THREADS * V) {
		float r[V];

		dt_ld<V>(r, a.l, a.tl, row * a.ld + j);
		for (int i = 0; i < V; i++)
			r[i] = !counts ? 0 : k * expf(r[i] - max) - (j + i == hit ? scale : 0);
		dt_st<V>(a.d, a.td, row * a.ldd + j, r);
	}
	for (int64_t i = threadIdx.x; V > 1 && i < lead + a.n - end; i += THREADS) {
		const int64_t j = i < lead ? i : end + i - lead;
		const float r = dt_ld1(a.l, a.tl, row * a.ld + j);

		dt_st1(a.d, a.td, row * a.ldd + j, !counts ? 0 : k * expf(r - max) - (j == hit ? scale : 0));
	}
	for (int64_t j = a.n + threadIdx.x; j < a.ldd; j += THREADS)
		dt_st1(a.d, a.td, row * a.ldd + j, 0);
}

int dt_cuda_ce_grad(struct dt_dev *dev, struct dt_tensor dlogits, struct dt_tensor logits,
		    const float *rowmax, const float *sumexp, const int32_t *targets, const float *weight,
		    float scale, int64_t vocab_first)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(logits), n = dt_cols(logits);
	const int64_t ld = dt_stride(logits), ldd = dt_stride(dlogits);
	const struct grad a = {dlogits.data, logits.data, dlogits.dtype, logits.dtype, n,      ld,   ldd,
			       vocab_first,  rowmax,	  sumexp,	 targets,      weight, scale};

	if (!c)
		return -ENODEV;
	if (dt_by_8(ld | ldd, logits.data, dlogits.data) ||
	    (logits.dtype == dlogits.dtype && ld == ldd &&
	     (uintptr_t)logits.data % 16 == (uintptr_t)dlogits.data % 16 &&
	     (uintptr_t)logits.data % (size_t)dt_dtype_size(logits.dtype) == 0))
		return DT_LAUNCH(c, grad_kernel<8>, (unsigned)rows, THREADS, 0, a);
	return DT_LAUNCH(c, grad_kernel<1>, (unsigned)rows, THREADS, 0, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
