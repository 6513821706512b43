/*
 * distill.h: one row per block. The teacher's columns, which ascend, are searched once per V columns of the
 * row. With a row stride the last V may go past the row's n columns.
 */
#include "kernels/cuda/kernel.h"
#include "kernels/distill.h"

#define THREADS 512
#define SHARED	4096 /* columns of the teacher that are kept in shared memory beside the sums */

/* The teacher's data. */
struct taught {
	const int32_t *columns;
	const float *probs;
	int64_t k, first;
	float by; /* 1 / temperature */
};

/* Index of the first of the row's k columns that is >= column, in the whole vocabulary. */
DT_DEVICE int64_t find(const int32_t *columns, int64_t k, int64_t column)
{
	int64_t from = 0;

	while (from < k) {
		const int64_t mid = (from + k) / 2;

		if (columns[mid] < column)
			from = mid + 1;
		else
			k = mid;
	}
	return from;
}

/* The row's columns, in shared memory after `at` floats if they fit. */
DT_DEVICE const int32_t *columns_of(const struct taught &p, int64_t row, int at)
{
	const int32_t *from = p.columns + row * p.k;
	int32_t *to = (int32_t *)dt_shared() + at;

	if (p.k > SHARED)
		return from;
	for (int64_t i = threadIdx.x; i < p.k; i += THREADS)
		to[i] = from[i];
	__syncthreads();
	return to;
}

static size_t room(const struct taught &p)
{
	return 32 * sizeof(float) + (p.k > SHARED ? 0 : (size_t)p.k) * sizeof(int32_t);
}

struct taught_stats {
	float *kept, *rest, *dot;
	const void *l;
	int t;
	int64_t n, ld;
	const float *rowmax;
	const int32_t *targets;
	struct taught p;
};

template <int V> __global__ void __launch_bounds__(THREADS) taught_stats_kernel(struct taught_stats a)
{
	const int64_t row = blockIdx.x;
	const int32_t *columns = columns_of(a.p, row, 32);
	const float *probs = a.p.probs + row * (a.p.k + 1), max = a.rowmax[row];
	float kept = 0, rest = 0, dot = 0;

	for (int64_t j = threadIdx.x * V; j < a.n && a.targets[row] >= 0; j += THREADS * V) {
		int64_t at = find(columns, a.p.k, a.p.first + j);
		float r[V];

		dt_ld<V>(r, a.l, a.t, row * a.ld + j);
		DT_UNROLL
		for (int i = 0; i < V; i++) {
			const float x = (r[i] - max) * a.p.by, e = expf(x);

			if (V > 1 && j + i >= a.n)
				continue;
			if (at < a.p.k && columns[at] == a.p.first + j + i) {
				kept += e;
				dot += probs[at++] * x;
			} else {
				rest += e;
			}
		}
	}
	float *scratch = (float *)dt_shared();

	kept = dt_block_sum(kept, scratch);
	rest = dt_block_sum(rest, scratch);
	dot = dt_block_sum(dot, scratch);
	if (threadIdx.x)
		return;
	a.kept[row] = kept;
	a.rest[row] = rest;
	a.dot[row] = dot;
}

static struct taught taught_of(const struct dt_distill *p)
{
	return {p->columns, p->probs, p->k, p->vocab_first, 1 / p->temperature};
}

int dt_cuda_distill_stats(struct dt_dev *dev, float *kept, float *rest, float *dot, struct dt_tensor logits,
			  const float *rowmax, const int32_t *targets, const struct dt_distill *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const unsigned rows = (unsigned)dt_rows(logits);
	const struct taught_stats a = {
		kept,	rest,	 dot,	      logits.data, logits.dtype, dt_cols(logits), dt_stride(logits),
		rowmax, targets, taught_of(p)};

	if (!c)
		return -ENODEV;
	if (dt_by_8(a.ld, logits.data))
		return DT_LAUNCH(c, taught_stats_kernel<8>, rows, THREADS, room(a.p), a);
	return DT_LAUNCH(c, taught_stats_kernel<1>, rows, THREADS, room(a.p), a);
}

struct taught_grad {
	void *d;
	const void *l;
	int td, tl;
	int64_t n, ld, ldd; /* ldd: row stride of d */
	const float *rowmax, *sumexp, *kept, *rest;
	const int32_t *targets;
	float scale, weight, temperature;
	struct taught p;
};

template <int V> __global__ void __launch_bounds__(THREADS) taught_grad_kernel(struct taught_grad a)
{
	const int64_t row = blockIdx.x, k = a.p.k, hit = a.targets[row] - a.p.first;
	const int32_t *columns = columns_of(a.p, row, 32);
	const float *probs = a.p.probs + row * (k + 1), max = a.rowmax[row], rest = a.rest[row];
	const float target = a.scale * (1 - a.weight), column = a.scale * a.weight * a.temperature;
	const float hard = target / a.sumexp[row], soft = column / (a.kept[row] + rest);
	const float others = soft - (rest > 0 ? column * probs[k] / rest : 0);

	for (int64_t j = threadIdx.x * V; j < a.n; j += THREADS * V) {
		int64_t at = find(columns, k, a.p.first + j);
		float r[V];

		dt_ld<V>(r, a.l, a.tl, row * a.ld + j);
		DT_UNROLL
		for (int i = 0; i < V; i++) {
			const bool named = at < k && columns[at] == a.p.first + j + i;
			const float x = r[i] - max, e = expf(x * a.p.by);

			r[i] = hard * (a.p.by == 1 ? e : expf(x)) + (named ? soft : others) * e;
			if (named)
				r[i] -= column * probs[at++];
			if (j + i == hit)
				r[i] -= target;
			if (a.targets[row] < 0 || (V > 1 && j + i >= a.n))
				r[i] = 0;
		}
		dt_st<V>(a.d, a.td, row * a.ldd + j, r);
	}
	/* Zeroes the rest of the stride, after what the last V wrote. */
	for (int64_t j = dt_ceil_div(a.n, V) * V + threadIdx.x; j < a.ldd; j += THREADS)
		dt_st1(a.d, a.td, row * a.ldd + j, 0);
}

int dt_cuda_distill_grad(struct dt_dev *dev, struct dt_tensor dlogits, struct dt_tensor logits,
			 const float *rowmax, const float *sumexp, const float *kept, const float *rest,
			 const int32_t *targets, float scale, const struct dt_distill *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const unsigned rows = (unsigned)dt_rows(logits);
	const struct taught_grad a = {dlogits.data,
				      logits.data,
				      dlogits.dtype,
				      logits.dtype,
				      dt_cols(logits),
				      dt_stride(logits),
				      dt_stride(dlogits),
				      rowmax,
				      sumexp,
				      kept,
				      rest,
				      targets,
				      scale,
				      p->weight,
				      p->temperature,
				      taught_of(p)};

	if (!c)
		return -ENODEV;
	if (dt_by_8(a.ld | a.ldd, dlogits.data, logits.data))
		return DT_LAUNCH(c, taught_grad_kernel<8>, rows, THREADS, room(a.p), a);
	return DT_LAUNCH(c, taught_grad_kernel<1>, rows, THREADS, room(a.p), a);
}
/* SPDX-License-Identifier: Apache-2.0 */
