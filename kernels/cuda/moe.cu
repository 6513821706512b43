/* Mixture of experts between large products: sorts choices by expert, gathers and sums rows. */
#include "kernels/cuda/kernel.h"

DT_DEVICE int index_at(const int32_t *p, int64_t i)
{
	dt_touch(p + i, 4);
	return p[i];
}

/* Number of the block's threads before this one with `in` set; *ret_all: of all 256. s: shared, [8]. */
DT_DEVICE int block_rank(bool in, int *s, int *ret_all)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	const uint32_t mine = __ballot_sync(DT_ALL, in);
	int before = __popc(mine & ((1u << lane) - 1)), all = 0;

	__syncthreads(); /* the previous contents have been read */
	if (lane == 0)
		s[warp] = __popc(mine);
	__syncthreads();
	for (int w = 0; w < 8; w++) {
		before += w < warp ? s[w] : 0;
		all += s[w];
	}
	*ret_all = all;
	return before;
}

/* Block e counts the choices of experts before e, then places its own in order, 256 choices at a time. */
__global__ void __launch_bounds__(256)
	sort_kernel(int32_t *first, int32_t *at, int32_t *from, const int32_t *expert, int64_t choices,
		    int experts, int32_t *bad)
{
	const int e = (int)blockIdx.x;
	int *s = (int *)dt_shared(), start = 0, all; /* [8] */

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
		const int to = start + block_rank(mine, s, &all);

		start += all;
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

struct place {
	int32_t *first, *at, *from, *bad;
	int *number; /* [n] choices per expert */
	const int32_t *expert;
	const float *weight;
	int64_t choices;
	struct dt_moe_place p;
};

/* Block e counts its expert's choices; all blocks initialise the entries that no choice may fill. */
__global__ void __launch_bounds__(256) place_count_kernel(struct place a)
{
	const int e = (int)(a.p.begin + blockIdx.x);
	int number = 0;

	for (int64_t i = threadIdx.x; i < a.choices; i += 256) {
		const int x = index_at(a.expert, i);

		if (x < 0 || x >= a.p.experts)
			*a.bad = 1;
		number += x == e;
		if (i / 256 % gridDim.x == blockIdx.x)
			a.at[i] = a.from[i] = DT_MOE_AWAY;
	}
	number = dt_block_sum(number, (int *)dt_shared());
	if (threadIdx.x == 0)
		a.number[blockIdx.x] = number;
}

/* A key in the order of the weights. */
DT_DEVICE uint32_t weight_key(const float *weight, int64_t i)
{
	const float w = dt_ld1(weight, DT_F32, i) + 0.f; /* -0 is 0 */
	uint32_t u;

	memcpy(&u, &w, 4);
	return u >> 31 ? ~u : u | 0x80000000u;
}

/* Number of the expert's choices with at least this key. */
DT_DEVICE int number_from(const struct place &a, int e, uint32_t key, int *s)
{
	int n = 0;

	for (int64_t i = threadIdx.x; i < a.choices; i += 256)
		n += index_at(a.expert, i) == e && weight_key(a.weight, i) >= key;
	return dt_block_sum(n, s);
}

/* The key of the capacity-th largest weight, found bit by bit, and how many choices with that key are
 * kept. */
DT_DEVICE uint32_t last_key(const struct place &a, int e, int *s, int *ret_equal)
{
	const int most = (int)a.p.capacity;
	uint32_t key = 0;

	for (int bit = 31; bit >= 0; bit--)
		if (number_from(a, e, key | 1u << bit, s) >= most)
			key |= 1u << bit;
	*ret_equal = key == 0xffffffffu ? most : most - number_from(a, e, key + 1, s);
	return key;
}

/* Block e places its expert's choices after those of the experts before it. */
__global__ void __launch_bounds__(256) place_kernel(struct place a)
{
	const int block = (int)blockIdx.x, e = (int)(a.p.begin + block), number = a.number[block];
	const int most = a.p.capacity && a.p.capacity < a.choices ? (int)a.p.capacity : (int)a.choices;
	int *s = (int *)dt_shared(), start = 0, lost = 0, equal = 0, all; /* [8] */
	uint32_t key = 0;

	for (int i = (int)threadIdx.x; i <= block; i += 256) {
		const int kept = a.number[i] < most ? a.number[i] : most;

		start += i < block ? kept : 0;
		lost += a.number[i] - kept;
	}
	start = dt_block_sum(start, s);
	lost = dt_block_sum(lost, s);
	if (threadIdx.x == 0) {
		a.first[block] = start;
		if (block == a.p.n - 1) {
			a.first[a.p.n] = start + (number < most ? number : most);
			if (a.p.dropped)
				*a.p.dropped += lost;
		}
	}
	if (number > most)
		key = last_key(a, e, s, &equal);
	for (int64_t i0 = 0; i0 < a.choices; i0 += 256) {
		const int64_t i = i0 + threadIdx.x;
		bool mine = i < a.choices && index_at(a.expert, i) == e;

		if (number > most) {
			const uint32_t k = mine ? weight_key(a.weight, i) : 0;
			const int before = block_rank(mine && k == key, s, &all);

			mine = mine && (k > key || (k == key && before < equal));
			equal -= all;
		}
		const int to = start + block_rank(mine, s, &all);

		start += all;
		if (mine) {
			a.at[i] = to;
			a.from[to] = (int32_t)i;
		}
	}
}

int dt_cuda_moe_place(struct dt_dev *dev, int32_t *first, int32_t *at, int32_t *from, const int32_t *expert,
		      const float *weight, int64_t choices, const struct dt_moe_place *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	int *number = c ? (int *)dt_cuda_scratch(dev, (size_t)p->n * sizeof *number) : NULL;
	int rc;

	if (!number)
		return c ? -ENOMEM : -ENODEV;
	const struct place a = {first, at, from, c->bad, number, expert, weight, choices, *p};

	rc = DT_LAUNCH(c, place_count_kernel, (unsigned)p->n, 256, 64, a);
	return rc < 0 ? rc : DT_LAUNCH(c, place_kernel, (unsigned)p->n, 256, 64, a);
}

/* One expert per block. */
__global__ void __launch_bounds__(256) count_kernel(float *load, double *count, const int32_t *expert,
						    int64_t each, int64_t groups, double total, int32_t *bad)
{
	const int e = (int)blockIdx.x, experts = (int)gridDim.x;
	int *s = (int *)dt_shared(); /* [8] */
	double sum = 0;

	for (int64_t g = 0; g < groups; g++) {
		int n = 0;

		for (int64_t i = g * each + threadIdx.x; i < (g + 1) * each; i += 256) {
			const int x = index_at(expert, i);

			if (x < 0 || x >= experts)
				*bad = 1;
			n += x == e;
		}
		n = dt_block_sum(n, s);
		sum += n;
		if (threadIdx.x == 0)
			dt_st1(load, DT_F32, g * experts + e, (float)(n / total));
	}
	if (threadIdx.x == 0 && count)
		count[e] += sum;
}

int dt_cuda_moe_count(struct dt_dev *dev, float *load, int64_t groups, double *count, const int32_t *expert,
		      int64_t choices, int64_t experts, double total)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, count_kernel, (unsigned)experts, 256, 64, load, count, expert, choices / groups,
			 groups, total, c->bad);
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

/* A block has 128 V columns of one row. */
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

/* The same columns of a row of y, from the row of x of its choice. */
template <int V> __global__ void __launch_bounds__(128) gather_kernel(struct rows a)
{
	const int64_t i = blockIdx.x, j = ((int64_t)blockIdx.y * 128 + threadIdx.x) * V;
	const int64_t from = index_at(a.at, i);
	float r[V];

	if (j >= a.n || from == DT_MOE_AWAY)
		return;
	if (from < 0 || from >= a.choices) {
		*a.bad = 1;
		return;
	}
	dt_ld<V>(r, a.x, a.tx, from / a.used * a.n + j);
	dt_st<V>(a.y, a.ty, i * a.n + j, r);
}

int dt_cuda_moe_gather(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const int32_t *from,
		       int64_t used)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t n = dt_cols(y), rows = dt_rows(y);

	if (!c)
		return -ENODEV;
	const struct rows a = {y.data, x.data,	from,	 NULL,	 NULL,	n, dt_rows(x) * used,
			       used,   y.dtype, x.dtype, DT_F32, c->bad};

	if (dt_by_8(n, y.data, x.data))
		return DT_LAUNCH(c, gather_kernel<8>, dim3((unsigned)rows, (unsigned)dt_ceil_div(n, 1024)),
				 128, 0, a);
	return DT_LAUNCH(c, gather_kernel<1>, dim3((unsigned)rows, (unsigned)dt_ceil_div(n, 128)), 128, 0, a);
}

/* Block i computes choice i. y is dx, also is dy. */
template <int V> __global__ void __launch_bounds__(128) sum_backward_kernel(struct rows a, float *dweight)
{
	const int64_t i = blockIdx.x, at = index_at(a.at, i), row = i / a.used;
	const bool out = at != DT_MOE_AWAY && (at < 0 || at >= a.choices);
	const float w = dt_ld1(a.weight, DT_F32, i);
	double dot = 0;

	if (out)
		*a.bad = 1;
	if (!out && at != DT_MOE_AWAY)
		for (int64_t j = (int64_t)threadIdx.x * V; j < a.n; j += 128 * V) {
			float g[V], x[V];

			dt_ld<V>(g, a.also, a.ta, row * a.n + j);
			dt_ld<V>(x, a.x, a.tx, at * a.n + j);
			for (int v = 0; v < V; v++) {
				dot += (double)g[v] * (double)x[v];
				g[v] *= w;
			}
			dt_st<V>(a.y, a.ty, at * a.n + j, g);
		}
	dot = dt_block_sum(dot, (double *)dt_shared());
	if (threadIdx.x == 0)
		dt_st1(dweight, DT_F32, i, (float)dot);
}

int dt_cuda_moe_sum_backward(struct dt_dev *dev, struct dt_tensor dx, float *dweight, struct dt_tensor dy,
			     struct dt_tensor x, const int32_t *at, const float *weight, int64_t used)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t n = dt_cols(dy);
	const unsigned choices = (unsigned)(dt_rows(dy) * used);

	if (!c)
		return -ENODEV;
	const struct rows a = {dx.data,	   x.data, at,	     weight,  dy.data,	n,
			       dt_rows(x), used,   dx.dtype, x.dtype, dy.dtype, c->bad};

	if (dt_by_8(n, dx.data, x.data, dy.data))
		return DT_LAUNCH(c, sum_backward_kernel<8>, choices, 128, 64, a, dweight);
	return DT_LAUNCH(c, sum_backward_kernel<1>, choices, 128, 64, a, dweight);
}
/* SPDX-License-Identifier: Apache-2.0 */
