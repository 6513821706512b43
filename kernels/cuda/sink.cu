/* Attention sinks: reads and writes o once; backward reads o and dout once. */
#include "kernels/cuda/kernel.h"

#define THREADS 128

struct sink {
	void *o;
	const void *dout, *sink;
	float *lse, *dsink;
	int t, ts;
	int64_t heads, rows, d, n, batch; /* rows of a sequence, numbers of lse */
};

/* Where the d elements of number i of lse [batch, heads, rows] begin. */
DT_DEVICE int64_t place_of(const struct sink &a, int64_t i)
{
	return ((i / a.rows / a.heads * a.rows + i % a.rows) * a.heads + i / a.rows % a.heads) * a.d;
}

/* A warp has a row of a head. */
__global__ void __launch_bounds__(THREADS) sink_kernel(struct sink a)
{
	const int64_t i = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
	const int lane = (int)threadIdx.x % 32;

	if (i >= a.n)
		return;
	const int64_t at = place_of(a, i);
	const float s = dt_ld1(a.sink, a.ts, i / a.rows % a.heads), lse = dt_ld1(a.lse, DT_F32, i),
		    more = s - lse, by = 1.f / (1.f + expf(more));

	for (int64_t c = lane; c < a.d; c += 32)
		dt_st1(a.o, a.t, at + c, dt_ld1(a.o, a.t, at + c) * by);
	__syncwarp();
	if (lane == 0)
		dt_st1(a.lse, DT_F32, i, more > 0 ? s + log1pf(expf(-more)) : lse + log1pf(expf(more)));
}

/* A block has a head; its warps add up every fourth row of it, and their sums are added in order. */
__global__ void __launch_bounds__(THREADS) sink_back_kernel(struct sink a)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	const int64_t h = blockIdx.x;
	const float s = dt_ld1(a.sink, a.ts, h);
	float *sums = (float *)dt_shared();
	double sum = 0;

	for (int64_t r = warp; r < a.batch * a.rows; r += THREADS / 32) {
		const int64_t i = (r / a.rows * a.heads + h) * a.rows + r % a.rows, at = place_of(a, i);
		float dot = 0;

		for (int64_t c = lane; c < a.d; c += 32)
			dot += dt_ld1(a.o, a.t, at + c) * dt_ld1(a.dout, a.t, at + c);
		dot = dt_warp_sum(dot);
		sum -= (double)(expf(s - dt_ld1(a.lse, DT_F32, i)) * dot);
	}
	if (lane == 0)
		sums[warp] = (float)sum;
	__syncthreads();
	if (threadIdx.x == 0) {
		float all = 0;

		for (int w = 0; w < THREADS / 32; w++)
			all += sums[w];
		dt_st1(a.dsink, DT_F32, h, dt_ld1(a.dsink, DT_F32, h) + all);
	}
}

static struct sink sink_of(struct dt_tensor o, struct dt_tensor lse, struct dt_tensor sink)
{
	struct sink a = {};

	a.o = o.data;
	a.sink = sink.data;
	a.lse = (float *)lse.data;
	a.t = o.dtype;
	a.ts = sink.dtype;
	a.batch = lse.dim[0];
	a.heads = lse.dim[1];
	a.rows = lse.dim[2];
	a.n = dt_numel(lse);
	a.d = dt_numel(o) / a.n;
	return a;
}

int dt_cuda_attention_sink(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse,
			   struct dt_tensor sink)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct sink a = sink_of(o, lse, sink);

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, sink_kernel, (unsigned)dt_ceil_div(a.n, THREADS / 32), THREADS, 0, a);
}

int dt_cuda_attention_sink_backward(struct dt_dev *dev, struct dt_tensor dsink, struct dt_tensor dout,
				    struct dt_tensor o, struct dt_tensor lse, struct dt_tensor sink)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	struct sink a = sink_of(o, lse, sink);

	if (!c)
		return -ENODEV;
	a.dout = dout.data;
	a.dsink = (float *)dsink.data;
	return DT_LAUNCH(c, sink_back_kernel, (unsigned)a.heads, THREADS, THREADS / 32 * 4, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
