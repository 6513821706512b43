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

/* A block has one row of dy and V * 256 columns of it; it stops unless the row is the first with its key. */
template <int V> __global__ void __launch_bounds__(256) backward_kernel(struct backward a)
{
	const int64_t row = blockIdx.x, j = ((int64_t)blockIdx.y * 256 + threadIdx.x) * V;
	const int32_t key = a.key[row];
	const int64_t to = key - a.first;
	int *same =
		(int *)dt_shared(); /* [8]: of each warp's 32 rows, which have the key; [8]: seen before */
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	float sum[V], g[V];

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
		int mine = r < a.rows && a.key[r] == key ? 1 << lane : 0;

		for (int by = 16; by; by >>= 1)
			mine |= __shfl_xor_sync(DT_ALL, mine, by);
		__syncthreads();
		if (lane == 0)
			same[warp] = mine;
		__syncthreads();
		for (int w = 0; w < 8; w++)
			for (int i = 0, bits = same[w]; bits; i++, bits = (int)((unsigned)bits >> 1)) {
				const int64_t from = base + w * 32 + i;

				if (!(bits & 1))
					continue;
				if (from < row)
					return; /* every thread of the block sees the same */
				if (j >= a.n)
					continue;
				dt_ld<V>(g, a.dy, a.t, from * a.n + j);
				for (int k = 0; k < V; k++)
					sum[k] += g[k];
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
		return DT_LAUNCH(c, backward_kernel<8>, dim3(rows, (unsigned)dt_ceil_div(n, 2048)), 256, 64,
				 a);
	return DT_LAUNCH(c, backward_kernel<1>, dim3(rows, (unsigned)dt_ceil_div(n, 256)), 256, 64, a);
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
