/*
 * Forward moves 2 sizes of y (3 with positions). Backward reads each row of dy once and reads and writes each
 * row of the table that occurs once: the first row with an id adds up all that have it, in order.
 */
#include "kernels/cuda/kernel.h"

struct forward {
	void *y;
	const void *wte, *wpe;
	int t;
	const int32_t *ids, *pos;
	int64_t rows, n, first, vocab, positions;
	int32_t *bad;
};

template <int V> __global__ void __launch_bounds__(256) forward_kernel(struct forward a)
{
	const int64_t each = a.n / V, step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.rows * each; i += step) {
		const int64_t row = i / each, j = i % each * V, id = a.ids[row] - a.first;
		float y[V], p[V];

		for (int k = 0; k < V; k++)
			y[k] = 0;
		if (a.wpe && (a.pos[row] < 0 || a.pos[row] >= a.positions)) {
			*a.bad = 1;
			continue;
		}
		if (id >= 0 && id < a.vocab)
			dt_ld<V>(y, a.wte, a.t, id * a.n + j);
		if (a.wpe) {
			dt_ld<V>(p, a.wpe, a.t, a.pos[row] * a.n + j);
			for (int k = 0; k < V; k++)
				y[k] += p[k];
		}
		dt_st<V>(a.y, a.t, row * a.n + j, y);
	}
}

int dt_cuda_embedding_forward(struct dt_dev *dev, struct dt_tensor y, const int32_t *ids, const int32_t *pos,
			      struct dt_tensor wte, struct dt_tensor wpe, int64_t vocab_first)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(y), n = dt_cols(y);
	const struct forward a = {y.data,      wte.data,     wpe.data,	   y.dtype,
				  ids,	       pos,	     rows,	   n,
				  vocab_first, dt_rows(wte), dt_rows(wpe), c ? c->bad : NULL};

	if (!c)
		return -ENODEV;
	if (dt_by_8(n, y.data, wte.data, wpe.data))
		return DT_LAUNCH(c, forward_kernel<8>, dt_blocks(c, rows * n / 8, 256), 256, 0, a);
	return DT_LAUNCH(c, forward_kernel<1>, dt_blocks(c, rows * n, 256), 256, 0, a);
}

struct backward {
	float *dw;
	const void *dy;
	int t;
	const int32_t *key;
	int64_t rows, n, first, limit; /* rows of dw */
	bool strict;		       /* a key outside is an error, not another shard's */
	int32_t *bad;
};

#define AHEAD 8 /* rows that are asked for before the first is added */

/*
 * A block has one row of dy and V * 256 columns of it; it stops unless the row is the first with its key. Of
 * 256 rows at a time those with the key are listed, then added in order: a frequent token has thousands.
 */
template <int V> __global__ void __launch_bounds__(256) backward_kernel(struct backward a)
{
	const int64_t row = blockIdx.x, j = ((int64_t)blockIdx.y * 256 + threadIdx.x) * V;
	const int32_t key = dt_at(a.key, row);
	const int64_t to = key - a.first;
	int *count = (int *)dt_shared(), *list = count + 8; /* [8]: of each warp's 32 rows; [256] */
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	float sum[V], g[AHEAD][V];

	if (to < 0 || to >= a.limit) {
		if (a.strict)
			*a.bad = 1;
		return;
	}
	for (int k = 0; k < V; k++)
		sum[k] = 0;
	if (j < a.n)
		dt_ld<V>(sum, a.dw, DT_F32, to * a.n + j);
	for (int64_t base = 0; base < a.rows; base += 256) {
		const int64_t r = base + threadIdx.x;
		const bool mine = r < a.rows && dt_at(a.key, r) == key;
		unsigned same = mine ? 1u << lane : 0;
		int before = 0, n = 0;

		for (int by = 16; by; by >>= 1)
			same |= __shfl_xor_sync(DT_ALL, same, by);
		__syncthreads(); /* the list before has been read */
		if (lane == 0)
			count[warp] = __popc(same);
		__syncthreads();
		for (int w = 0; w < 8; w++) {
			before += w < warp ? count[w] : 0;
			n += count[w];
		}
		if (mine)
			list[before + __popc(same & ((1u << lane) - 1))] = (int)(r - base);
		__syncthreads();
		if (n && base + list[0] < row)
			return; /* every thread of the block sees the same */
		for (int i = 0; i < n && j < a.n; i += AHEAD) {
			DT_UNROLL
			for (int k = 0; k < AHEAD; k++)
				if (i + k < n)
					dt_ld<V>(g[k], a.dy, a.t, (base + list[i + k]) * a.n + j);
			DT_UNROLL
			for (int k = 0; k < AHEAD * V; k++)
				if (i + k / V < n)
					sum[k % V] += g[k / V][k % V];
		}
	}
	if (j < a.n)
		dt_st<V>(a.dw, DT_F32, to * a.n + j, sum);
}

static int scatter(const struct dt_cuda *c, struct dt_tensor dw, struct dt_tensor dy, const int32_t *key,
		   int64_t first, bool strict)
{
	const int64_t n = dt_cols(dy);
	const struct backward a = {(float *)dw.data, dy.data, dy.dtype, key, dt_rows(dy), n, first,
				   dt_rows(dw),	     strict,  c->bad};
	const unsigned rows = (unsigned)a.rows;

	if (dt_by_8(n, dw.data, dy.data))
		return DT_LAUNCH(c, backward_kernel<8>, dim3(rows, (unsigned)dt_ceil_div(n, 2048)), 256, 1056,
				 a);
	return DT_LAUNCH(c, backward_kernel<1>, dim3(rows, (unsigned)dt_ceil_div(n, 256)), 256, 1056, a);
}

int dt_cuda_embedding_backward(struct dt_dev *dev, struct dt_tensor dwte, struct dt_tensor dwpe,
			       struct dt_tensor dy, const int32_t *ids, const int32_t *pos,
			       int64_t vocab_first)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	int rc = 0;

	if (!c)
		return -ENODEV;
	if (dwte.data)
		rc = scatter(c, dwte, dy, ids, vocab_first, false);
	if (dwpe.data && rc == 0)
		rc = scatter(c, dwpe, dy, pos, 0, true);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
