/* Little work between large products: a warp has a row of scores, a block an expert of the sort. */
#include "kernels/cuda/kernel.h"

/* A candidate of the choice; e < 0: none. */
struct best {
	float s;
	int e;
};

DT_DEVICE bool before(struct best a, struct best b)
{
	return a.e >= 0 && (b.e < 0 || a.s > b.s || (a.s == b.s && a.e < b.e));
}

/* Lane l has the experts l, l + 32 ..., at most 64 of them: a bit of taken each. */
__global__ void __launch_bounds__(128)
	route_kernel(int32_t *expert, float *weight, const float *score, struct dt_moe p, int64_t rows)
{
	const int lane = (int)threadIdx.x % 32;
	const int64_t i = (int64_t)blockIdx.x * 4 + threadIdx.x / 32;
	const float *s = score + i * p.experts;
	const double scale = p.scale > 0 ? (double)p.scale : 1;
	uint64_t taken = 0;
	double sum = 0;
	float top = 0;

	if (i >= rows)
		return;
	for (int64_t j = 0; j < p.used; j++) {
		struct best b = {0, -1};

		for (int e = lane; e < p.experts; e += 32) {
			struct best c = {dt_ld1(s, DT_F32, e), e};

			c.s = isnan(c.s) ? -INFINITY : c.s;
			if (!(taken >> e / 32 & 1) && before(c, b))
				b = c;
		}
		for (int by = 16; by; by >>= 1) {
			const struct best o = {__shfl_xor_sync(DT_ALL, b.s, by),
					       __shfl_xor_sync(DT_ALL, b.e, by)};

			b = before(o, b) ? o : b;
		}
		if (b.e % 32 == lane)
			taken |= (uint64_t)1 << b.e / 32;
		b.s = dt_ld1(s, DT_F32, b.e);
		top = j ? top : b.s;
		b.s = expf(b.s - top);
		sum += (double)b.s;
		if (lane == 0) {
			expert[i * p.used + j] = b.e;
			dt_st1(weight, DT_F32, i * p.used + j, b.s);
		}
	}
	if (p.unscaled) {
		sum = 0;
		for (int e = lane; e < p.experts; e += 32)
			sum += (double)expf(dt_ld1(s, DT_F32, e) - top);
		sum = dt_warp_sum(sum);
	}
	__syncwarp();
	for (int64_t j = i * p.used + lane; j < (i + 1) * p.used; j += 32)
		dt_st1(weight, DT_F32, j, (float)((double)dt_ld1(weight, DT_F32, j) * scale / sum));
}

/* Not yet: sigmoids, groups of experts, biases of the choice. */
int dt_cuda_moe_route(struct dt_dev *dev, int32_t *expert, float *weight, struct dt_tensor score,
		      struct dt_tensor bias, const struct dt_moe *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(score);

	if (!c)
		return -ENODEV;
	if (p->sigmoid || p->groups > 1 || bias.data)
		return -ENOTSUP;
	return DT_LAUNCH(c, route_kernel, (unsigned)dt_ceil_div(rows, 4), 128, 0, expert, weight,
			 (const float *)score.data, *p, rows);
}

DT_DEVICE int index_at(const int32_t *p, int64_t i)
{
	dt_touch(p + i, 4);
	return p[i];
}

/* Block e counts what comes before its expert, then places its own in order, 256 choices at a time. */
__global__ void __launch_bounds__(256)
	sort_kernel(int32_t *first, int32_t *at, int32_t *from, const int32_t *expert, int64_t choices,
		    int experts, int32_t *bad)
{
	const int e = (int)blockIdx.x, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	int *s = (int *)dt_shared(), start = 0; /* [8] */

	for (int64_t i = threadIdx.x; i < choices; i += 256) {
		const int x = index_at(expert, i);

		if (x < 0 || x >= experts)
			*bad = 1;
		start += x >= 0 && x < e;
	}
	start = dt_block_sum(start, s);
	if (threadIdx.x == 0) {
		first[e] = start;
		if (e == 0)
			first[experts] = (int32_t)choices;
	}
	for (int64_t i0 = 0; i0 < choices; i0 += 256) {
		const int64_t i = i0 + threadIdx.x;
		const bool mine = i < choices && index_at(expert, i) == e;
		const uint32_t all = __ballot_sync(DT_ALL, mine);
		int to = start + __popc(all & ((1u << lane) - 1));

		__syncthreads(); /* what was there before has been read */
		if (lane == 0)
			s[warp] = __popc(all);
		__syncthreads();
		for (int w = 0; w < 8; w++) {
			to += w < warp ? s[w] : 0;
			start += s[w];
		}
		if (mine) {
			at[i] = to;
			from[to] = (int32_t)i;
		}
	}
}

int dt_cuda_moe_sort(struct dt_dev *dev, int32_t *first, int32_t *at, int32_t *from, const int32_t *expert,
		     int64_t choices, int64_t experts)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, sort_kernel, (unsigned)experts, 256, 64, first, at, from, expert, choices,
			 (int)experts, c->bad);
}

struct rows {
	void *y;
	const void *x;
	const int32_t *at;
	const float *weight;
	const void *also;
	int64_t n, choices, used;
	int ty, tx, ta;
	int32_t *bad;
};

/* A block has 128 V columns of a row. */
template <int V> __global__ void __launch_bounds__(128) sum_kernel(struct rows a)
{
	const int64_t i = blockIdx.x, j = ((int64_t)blockIdx.y * 128 + threadIdx.x) * V;
	float sum[V] = {}, r[V];

	if (j >= a.n)
		return;
	if (a.also)
		dt_ld<V>(sum, a.also, a.ta, i * a.n + j);
	for (int64_t k = i * a.used; k < (i + 1) * a.used; k++) {
		const int64_t from = index_at(a.at, k);
		const float w = a.weight ? dt_ld1(a.weight, DT_F32, k) : 1;

		if (from == DT_MOE_AWAY)
			continue;
		if (from < 0 || from >= a.choices) {
			*a.bad = 1;
			continue;
		}
		dt_ld<V>(r, a.x, a.tx, from * a.n + j);
		for (int v = 0; v < V; v++)
			sum[v] = dt_plus(w * r[v], sum[v]);
	}
	dt_st<V>(a.y, a.ty, i * a.n + j, sum);
}

int dt_cuda_moe_sum(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const int32_t *at,
		    const float *weight, struct dt_tensor also, int64_t used)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t n = dt_cols(y), rows = dt_rows(y);

	if (!c)
		return -ENODEV;
	const struct rows a = {y.data,	   x.data, at,	    weight,  also.data,	 n,
			       dt_rows(x), used,   y.dtype, x.dtype, also.dtype, c->bad};

	if (dt_by_8(n, y.data, x.data) && (!also.data || dt_by_8(n, y.data, also.data)))
		return DT_LAUNCH(c, sum_kernel<8>, dim3((unsigned)rows, (unsigned)dt_ceil_div(n, 1024)), 128,
				 0, a);
	return DT_LAUNCH(c, sum_kernel<1>, dim3((unsigned)rows, (unsigned)dt_ceil_div(n, 128)), 128, 0, a);
}

/* What only training mixtures needs has no body on cards yet: a run there is refused before it begins. */
int dt_cuda_moe_route_backward(struct dt_dev *, struct dt_tensor, const float *, const int32_t *,
			       struct dt_tensor, const struct dt_moe *, const struct dt_moe_loss *)
{
	return -ENOTSUP;
}

int dt_cuda_moe_place(struct dt_dev *, int32_t *, int32_t *, int32_t *, const int32_t *, const float *,
		      int64_t, const struct dt_moe_place *)
{
	return -ENOTSUP;
}

int dt_cuda_moe_gather(struct dt_dev *, struct dt_tensor, struct dt_tensor, const int32_t *, int64_t)
{
	return -ENOTSUP;
}

int dt_cuda_moe_sum_backward(struct dt_dev *, struct dt_tensor, float *, struct dt_tensor, struct dt_tensor,
			     const int32_t *, const float *, int64_t)
{
	return -ENOTSUP;
}

int dt_cuda_grouped_matmul(struct dt_dev *, struct dt_tensor, struct dt_tensor, struct dt_tensor,
			   struct dt_tensor, const struct dt_grouped *)
{
	return -ENOTSUP;
}

int dt_cuda_grouped_matmul_dx(struct dt_dev *, struct dt_tensor, struct dt_tensor, struct dt_tensor,
			      struct dt_tensor, const struct dt_grouped *)
{
	return -ENOTSUP;
}

int dt_cuda_grouped_matmul_dw(struct dt_dev *, struct dt_tensor, struct dt_tensor, struct dt_tensor,
			      struct dt_tensor, const struct dt_grouped *, bool)
{
	return -ENOTSUP;
}
/* SPDX-License-Identifier: Apache-2.0 */
