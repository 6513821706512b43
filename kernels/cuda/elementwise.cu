/*
 * Each element of every operand crosses memory once: add moves 3 sizes, axpy 3, scale 2, fill 1,
 * convert 2.
 */
#include "kernels/cuda/kernel.h"

enum what { ADD, AXPY, SCALE, FILL, CONVERT, SOFTCAP, SOFTCAP_GRAD };

struct each {
	int64_t n;
	int what;
	void *y;
	int ty;
	const void *a, *b;
	int ta, tb;
	float s;
};

template <int V> DT_DEVICE void one(const struct each &e, int64_t i)
{
	float y[V], a[V] = {}, b[V] = {};

	if (e.what != FILL)
		dt_ld<V>(a, e.a, e.ta, i);
	if (e.what == ADD || e.what == AXPY || e.what == SOFTCAP_GRAD)
		dt_ld<V>(b, e.b, e.tb, i);
	for (int k = 0; k < V; k++)
		y[k] = e.what == ADD		? a[k] + b[k]
		       : e.what == AXPY		? a[k] + e.s * b[k]
		       : e.what == SCALE	? a[k] * e.s
		       : e.what == FILL		? e.s
		       : e.what == SOFTCAP	? dt_softcap(a[k], e.s)
		       : e.what == SOFTCAP_GRAD ? a[k] * (1.f - b[k] / e.s * (b[k] / e.s))
						: a[k];
	dt_st<V>(e.y, e.ty, i, y);
}

template <int V> __global__ void __launch_bounds__(256) each_kernel(struct each e)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x * V;

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V; i < e.n; i += step) {
		if (V == 1 || i + V <= e.n)
			one<V>(e, i);
		else
			for (int64_t k = i; k < e.n; k++)
				one<1>(e, k);
	}
}

static int start(struct dt_dev *dev, struct each e)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);

	if (!c)
		return -ENODEV;
	/* The end of an array is scalar: only the addresses matter. */
	if (dt_by_8(8, e.y, e.a, e.b))
		return DT_LAUNCH(c, each_kernel<8>, dt_blocks(c, e.n, 2048), 256, 0, e);
	return DT_LAUNCH(c, each_kernel<1>, dt_blocks(c, e.n, 256), 256, 0, e);
}

int dt_cuda_add(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor a, struct dt_tensor b)
{
	const int64_t n = dt_numel(y);

	return start(dev, {n, ADD, y.data, y.dtype, a.data, b.data, a.dtype, b.dtype, 0});
}

int dt_cuda_axpy(struct dt_dev *dev, struct dt_tensor y, float a, struct dt_tensor x)
{
	const int64_t n = dt_numel(y);

	return start(dev, {n, AXPY, y.data, y.dtype, y.data, x.data, y.dtype, x.dtype, a});
}

int dt_cuda_scale(struct dt_dev *dev, struct dt_tensor x, float a)
{
	return start(dev, {dt_numel(x), SCALE, x.data, x.dtype, x.data, NULL, x.dtype, 0, a});
}

int dt_cuda_softcap(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, float cap)
{
	return start(dev, {dt_numel(y), SOFTCAP, y.data, y.dtype, x.data, NULL, x.dtype, 0, cap});
}

int dt_cuda_softcap_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor y,
			     float cap)
{
	return start(dev, {dt_numel(dx), SOFTCAP_GRAD, dx.data, dx.dtype, dy.data, y.data, dy.dtype, y.dtype,
			   cap});
}

int dt_cuda_fill(struct dt_dev *dev, struct dt_tensor x, float value)
{
	return start(dev, {dt_numel(x), FILL, x.data, x.dtype, NULL, NULL, 0, 0, value});
}

int dt_cuda_convert(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x)
{
	if (y.dtype == x.dtype)
		return y.data == x.data ? 0
					: dt_dev_copy(dev, y.data, x.data,
						      (size_t)(dt_numel(x) * dt_dtype_size(x.dtype)));
	return start(dev, {dt_numel(y), CONVERT, y.data, y.dtype, x.data, NULL, x.dtype, 0, 0});
}

#define SUMSQ_CHUNK 8192 /* as the CPU cuts it */

/* A block has a chunk; the last one that is done adds up all: part [chunks + 1], the sum at its end. */
template <int V>
__global__ void __launch_bounds__(256)
	sumsq_kernel(double *part, const void *x, int t, int64_t n, int32_t *done)
{
	double *scratch = (double *)dt_shared();
	int32_t *last_done = (int32_t *)(scratch + 32);
	const int64_t first = (int64_t)blockIdx.x * SUMSQ_CHUNK;
	const int64_t last = n - first < SUMSQ_CHUNK ? n : first + SUMSQ_CHUNK;
	double s = 0;

	for (int64_t i = first + threadIdx.x * V; i < last; i += blockDim.x * V) {
		if (V > 1 && i + V <= last) {
			float r[V];

			dt_ld<V>(r, x, t, i);
			for (int k = 0; k < V; k++)
				s += (double)r[k] * (double)r[k];
			continue;
		}
		for (int64_t k = i; k < last && k < i + V; k++) {
			const double r = (double)dt_ld1(x, t, k);

			s += r * r;
		}
	}
	s = dt_block_sum(s, scratch);
	if (threadIdx.x == 0) {
		part[blockIdx.x] = s;
		__threadfence(); /* written before it is counted */
		*last_done = atomicAdd(done, 1) == (int32_t)gridDim.x - 1;
		if (*last_done)
			*done = 0;
	}
	__syncthreads();
	if (!*last_done)
		return;
	__threadfence();
	/* Each thread adds every 256th in order, then all of them in a fixed one. */
	s = 0;
	for (int64_t i = threadIdx.x; i < gridDim.x; i += blockDim.x)
		s += dt_at(part, i);
	s = dt_block_sum(s, scratch);
	if (threadIdx.x == 0)
		part[gridDim.x] = s;
}

int dt_cuda_sumsq(struct dt_dev *dev, double *ret, struct dt_tensor x)
{
	const int64_t n = dt_numel(x), chunks = dt_ceil_div(n, SUMSQ_CHUNK);
	struct dt_cuda *c = dt_cuda_enter(dev);
	double *part;
	int rc;

	if (!c)
		return -ENODEV;
	if (!n) {
		*ret = 0;
		return 0;
	}
	part = (double *)dt_cuda_scratch(dev, (size_t)(chunks + 1) * sizeof *part);
	if (!part)
		return -ENOMEM;
	rc = dt_aligned(x.data) ? DT_LAUNCH(c, sumsq_kernel<8>, (unsigned)chunks, 256, 272, part, x.data,
					    (int)x.dtype, n, c->done)
				: DT_LAUNCH(c, sumsq_kernel<1>, (unsigned)chunks, 256, 272, part, x.data,
					    (int)x.dtype, n, c->done);
	if (rc == 0)
		rc = dt_gpu_copy(ret, part + chunks, sizeof *ret, c->stream);
	return rc < 0 ? rc : dt_gpu_stream_sync(c->stream);
}
/* SPDX-License-Identifier: Apache-2.0 */
