/*
 * Backward without atomic additions, so that the same call has the same bits: one kernel a tile of keys for
 * dk and dv, which also adds up the q heads that share them, one a tile of queries for dq. Scores and do . v
 * are computed in both: 7 products in place of 5. Tiles are copied while the products before them, or in
 * wide heads those of the first of two tiles, are computed.
 */
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_rows.h"

/* dot = do . o of every row and head: a warp each. */
__global__ void __launch_bounds__(128) dot_kernel(struct dt_attn_args a, int64_t n)
{
	const int64_t i = (int64_t)blockIdx.x * 4 + threadIdx.x / 32; /* row * heads + head */
	const int64_t row = i / a.heads, h = i % a.heads;
	float s = 0;

	if (i >= n)
		return;
	for (int64_t c = threadIdx.x % 32; c < a.v; c += 32)
		s += dt_ld1(a.dout, a.t, i * a.v + c) * dt_ld1(a.o, a.t, i * a.v + c);
	s = dt_warp_sum(s);
	if (threadIdx.x % 32 == 0)
		a.dot[(row / a.seq * a.heads + h) * a.seq + row % a.seq] = s;
}

/* The same of values 8 * EACH wide, EACH threads a row and head, by 16 bytes each. */
template <int EACH> __global__ void __launch_bounds__(256) dot_by_8_kernel(struct dt_attn_args a, int64_t n)
{
	const int64_t i = ((int64_t)blockIdx.x * 256 + threadIdx.x) / EACH, row = i / a.heads,
		      h = i % a.heads;
	const int64_t at = (i * EACH + threadIdx.x % EACH) * 8;
	float x[8] = {0}, y[8] = {0}, s = 0;

	if (i < n) {
		dt_ld<8>(x, a.dout, a.t, at);
		dt_ld<8>(y, a.o, a.t, at);
	}
	DT_UNROLL
	for (int k = 0; k < 8; k++)
		s += x[k] * y[k];
	DT_UNROLL
	for (int by = EACH / 2; by; by >>= 1)
		s += __shfl_xor_sync(DT_ALL, s, by);
	if (i < n && threadIdx.x % EACH == 0)
		a.dot[(row / a.seq * a.heads + h) * a.seq + row % a.seq] = s;
}

static int dots(const struct dt_cuda *c, const struct dt_attn_args &a, int64_t n)
{
	const bool fast = a.t != DT_F32 && dt_aligned(a.dout) && dt_aligned(a.o);

	if (fast && a.v == 64)
		return DT_LAUNCH(c, dot_by_8_kernel<8>, (unsigned)dt_ceil_div(n, 32), 256, 0, a, n);
	if (fast && a.v == 128)
		return DT_LAUNCH(c, dot_by_8_kernel<16>, (unsigned)dt_ceil_div(n, 16), 256, 0, a, n);
	return DT_LAUNCH(c, dot_kernel, (unsigned)dt_ceil_div(n, 4), 128, 0, a, n);
}

/* Tiles of the other side that are there or on their way: two, where shared memory does not cost a block. */
template <int D> constexpr int buffers = D <= 64 ? 2 : 1;

static size_t shared_bytes(int64_t d)
{
	const size_t two = d <= 64 ? 2 : 1;

	return (2 + 2 * two) * dt_attn_tile_bytes(d) + two * 2 * DT_TILE * sizeof(float);
}

/* Rows of q or k, and of what is as wide as values, into tiles, by two groups of copies. */
template <int D>
DT_DEVICE void bring(uint16_t *x, const uint16_t *from, int64_t width, uint16_t *y, const uint16_t *other,
		     int64_t other_width, int64_t row, const struct dt_attn_args &a)
{
	dt_attn_load<D>(x, from, width, row, a.seq, a.d, a.fast);
	dt_cp_commit();
	dt_attn_load<D>(y, other, other_width, row, a.seq, a.v, a.fast);
	dt_cp_commit();
}

/* Queries and what is known of them, of step i of a tile of keys: tiles of one head after another. */
struct queries {
	uint16_t *q, *g;
	float *lse, *dot;
	int64_t h, q0;
};

template <int D>
DT_DEVICE struct queries queries_of(const struct dt_attn_args &a, uint16_t *tiles, int64_t i, int64_t k0,
				    int64_t each)
{
	const int room = DT_TILE * (D + 8), which = (int)(i % buffers<D>);
	float *stats = (float *)(tiles + buffers<D> * 2 * room) + which * 2 * DT_TILE;
	const int64_t group = a.heads / a.kv_heads;

	return {tiles + which * 2 * room, tiles + (which * 2 + 1) * room, stats,
		stats + DT_TILE,	  blockIdx.y * group + i / each,  k0 + i % each * DT_TILE};
}

template <int D>
DT_DEVICE void bring_queries(const struct dt_attn_args &a, const struct queries &w, int64_t b)
{
	bring<D>(w.q, (const uint16_t *)a.qkv + b * a.seq * a.width + w.h * a.d, a.width, w.g,
		 (const uint16_t *)a.dout + (b * a.seq * a.heads + w.h) * a.v, a.heads * a.v, w.q0, a);
	if (threadIdx.x < DT_TILE) {
		const int64_t i = w.q0 + threadIdx.x, at = (b * a.heads + w.h) * a.seq + i;

		w.lse[threadIdx.x] = i < a.seq ? a.lse[at] * DT_LOG2E : 0;
		w.dot[threadIdx.x] = i < a.seq ? a.dot[at] : 0;
	}
}

/* Queries of step i are there behind this; those of the next are on their way where there is room for two. */
template <int D>
DT_DEVICE void wait_queries(const struct dt_attn_args &a, uint16_t *tiles, int64_t i, int64_t steps,
			    int64_t k0, int64_t each, int64_t b)
{
	if (i || buffers<D> == 1)
		__syncthreads(); /* the tiles before have been used */
	if (i + buffers<D> - 1 < steps) {
		bring_queries<D>(a, queries_of<D>(a, tiles, i + buffers<D> - 1, k0, each), b);
	} else {
		dt_cp_commit();
		dt_cp_commit();
	}
	dt_cp_wait<buffers<D> == 2 ? 2 : 1>();
	__syncthreads();
}

/*
 * dk and dv of a head of 128 are 128 registers of 255. Scores and their slopes for a tile of queries would be
 * 64 more, beside fragments and addresses; so these are for half a tile of queries at a time.
 */
template <class T, int D> __global__ void __launch_bounds__(128) dkv_kernel(struct dt_attn_args a)
{
	constexpr int SOME = D > 64 ? 4 : 8; /* queries, in eights */
	const int room = DT_TILE * (D + 8);
	uint16_t *k = (uint16_t *)dt_shared(), *v = k + room, *tiles = v + room;
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, col = lane % 4 * 2;
	const int64_t kv = blockIdx.y, b = blockIdx.z;
	const int64_t k0 = (int64_t)blockIdx.x * DT_TILE,
		      key = k0 + warp * 16 + lane / 4; /* the longest first */
	const uint16_t *rows = (const uint16_t *)a.qkv + b * a.seq * a.width;
	const int64_t kcol = dt_attn_keys(a, kv), vcol = dt_attn_values(a, kv);
	const int64_t end =
		a.window && k0 + DT_TILE - 1 + a.window < a.seq ? k0 + DT_TILE - 1 + a.window : a.seq;
	const int64_t each = (end - k0 + DT_TILE - 1) / DT_TILE, steps = each * (a.heads / a.kv_heads);
	float s[SOME][4], dp[SOME][4], dk[D / 8][4], dv[D / 8][4];

	DT_UNROLL
	for (int i = 0; i < D / 2; i++)
		dk[i / 4][i % 4] = dv[i / 4][i % 4] = 0;
	dt_attn_load<D>(k, rows + kcol, a.width, k0, a.seq, a.d, a.fast);
	dt_attn_load<D>(v, rows + vcol, a.width, k0, a.seq, a.v, a.fast);
	if (buffers<D> == 2)
		bring_queries<D>(a, queries_of<D>(a, tiles, 0, k0, each), b);
	for (int64_t i = 0; i < steps; i++) {
		const struct queries w = queries_of<D>(a, tiles, i, k0, each);
		const bool edge = w.q0 < k0 + DT_TILE || w.q0 + DT_TILE > a.seq ||
				  (a.window && w.q0 + DT_TILE - k0 > a.window);

		wait_queries<D>(a, tiles, i, steps, k0, each, b);
		DT_UNROLL_BY(1)
		for (int first = 0; first < DT_TILE; first += SOME * 8) {
			const uint16_t *q = w.q + first * (D + 8), *g = w.g + first * (D + 8);

			dt_attn_scores<T, D>(s, k, warp * 16, q);
			if (buffers<D> == 1 && first == 0) {
				dt_cp_wait<0>(); /* g came meanwhile */
				__syncthreads();
			}
			dt_attn_scores<T, D>(dp, v, warp * 16, g);
			DT_UNROLL
			for (int n = 0; n < SOME; n++)
				DT_UNROLL
			for (int e = 0; e < 4; e++) {
				const int j = first + n * 8 + col + e % 2;

				dt_attn_slope(a, s[n][e], dp[n][e], w.lse[j], w.dot[j],
					      !edge || dt_sees(a, w.q0 + j, key + e / 2 * 8));
			}
			dt_attn_gather<T, D>(dv, s, g);
			dt_attn_gather<T, D>(dk, dp, q);
		}
	}
	__syncthreads();
	/* Each warp's rows of k are read by no other. */
	uint16_t *out = (uint16_t *)a.out + b * a.seq * a.width, *own = k + warp * 16 * (D + 8);

	dt_attn_store<T, D>(out + kcol, a.width, own, dk, a.scale, a.scale, k0 + warp * 16, a.seq, a.d,
			    a.fast);
	dt_attn_store<T, D>(out + vcol, a.width, own, dv, 1, 1, k0 + warp * 16, a.seq, a.v, a.fast);
}

/* Keys and values from row j on are in k and v behind this, but for v where there is room for one only. */
template <int D>
DT_DEVICE void wait_keys(const struct dt_attn_args &a, uint16_t *tiles, int which, const uint16_t *keys,
			 const uint16_t *values, int64_t j, bool first, bool last)
{
	const int room = DT_TILE * (D + 8);

	if (!first || buffers<D> == 1)
		__syncthreads(); /* the tiles before have been used */
	if (buffers<D> == 1 || !last) {
		uint16_t *to = tiles + (buffers<D> == 1 ? 0 : 1 - which) * 2 * room;

		bring<D>(to, keys, a.width, to + room, values, a.width, buffers<D> == 1 ? j : j + DT_TILE, a);
	} else {
		dt_cp_commit();
		dt_cp_commit();
	}
	dt_cp_wait<buffers<D> == 2 ? 2 : 1>();
	__syncthreads();
}

template <class T, int D> __global__ void __launch_bounds__(128) dq_kernel(struct dt_attn_args a)
{
	const int room = DT_TILE * (D + 8);
	uint16_t *q = (uint16_t *)dt_shared(), *g = q + room, *tiles = g + room;
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, col = lane % 4 * 2;
	const int64_t h = blockIdx.y, kv = h / (a.heads / a.kv_heads), b = blockIdx.z;
	const int64_t q0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * DT_TILE, query = q0 + warp * 16 + lane / 4;
	const uint16_t *rows = (const uint16_t *)a.qkv + b * a.seq * a.width;
	const uint16_t *keys = rows + dt_attn_keys(a, kv), *values = rows + dt_attn_values(a, kv);
	const int64_t from = a.window && q0 >= a.window ? (q0 - a.window + 1) / DT_TILE * DT_TILE : 0;
	float s[8][4], dp[8][4], dq[D / 8][4], lse[2], dot[2];

	DT_UNROLL
	for (int i = 0; i < D / 2; i++)
		dq[i / 4][i % 4] = 0;
	DT_UNROLL
	for (int i = 0; i < 2; i++) {
		const int64_t at = (b * a.heads + h) * a.seq + query + 8 * i;

		lse[i] = query + 8 * i < a.seq ? a.lse[at] * DT_LOG2E : 0;
		dot[i] = query + 8 * i < a.seq ? a.dot[at] : 0;
	}
	dt_attn_load<D>(q, rows + h * a.d, a.width, q0, a.seq, a.d, a.fast);
	dt_attn_load<D>(g, (const uint16_t *)a.dout + (b * a.seq * a.heads + h) * a.v, a.heads * a.v, q0,
			a.seq, a.v, a.fast);
	if (buffers<D> == 2)
		bring<D>(tiles, keys, a.width, tiles + room, values, a.width, from, a);
	for (int64_t j = from; j <= q0; j += DT_TILE) {
		const bool edge = j + DT_TILE > q0 || (a.window && q0 + DT_TILE - j > a.window);
		const int which = (int)((j - from) / DT_TILE % buffers<D>);
		uint16_t *k = tiles + which * 2 * room, *v = k + room;

		wait_keys<D>(a, tiles, which, keys, values, j, j == from, j >= q0);
		dt_attn_scores<T, D>(s, q, warp * 16, k);
		if (buffers<D> == 1) {
			dt_cp_wait<0>(); /* v came meanwhile */
			__syncthreads();
		}
		dt_attn_scores<T, D>(dp, g, warp * 16, v);
		DT_UNROLL
		for (int n = 0; n < 8; n++)
			DT_UNROLL
		for (int e = 0; e < 4; e++)
			dt_attn_slope(a, s[n][e], dp[n][e], lse[e / 2], dot[e / 2],
				      !edge || dt_sees(a, query + e / 2 * 8, j + n * 8 + col + e % 2));
		dt_attn_gather<T, D>(dq, dp, k);
	}
	__syncthreads();
	dt_attn_store<T, D>((uint16_t *)a.out + b * a.seq * a.width + h * a.d, a.width,
			    q + warp * 16 * (D + 8), dq, a.scale, a.scale, q0 + warp * 16, a.seq, a.d,
			    a.fast);
}

/* What a row of a warp kernel needs: x and y to multiply with, a sum as wide as each. */
struct row_space {
	float *x, *y, *sx, *sy;
};

DT_DEVICE struct row_space row_space(const struct dt_attn_args &a)
{
	float *p = (float *)dt_shared() + (int64_t)(threadIdx.x / 32) * 2 * (a.d + a.v);

	return {p, p + a.d, p + a.d + a.v, p + 2 * a.d + a.v};
}

__global__ void __launch_bounds__(128) dq_rows_kernel(struct dt_attn_args a)
{
	const int lane = (int)threadIdx.x % 32;
	const int64_t h = blockIdx.y, kv = h / (a.heads / a.kv_heads), b = blockIdx.z;
	const int64_t i = (int64_t)blockIdx.x * 4 + threadIdx.x / 32, row = b * a.seq + i;
	const int64_t kcol = dt_attn_keys(a, kv), vcol = dt_attn_values(a, kv),
		      stat = (b * a.heads + h) * a.seq + i;
	const struct row_space w = row_space(a);

	if (i >= a.seq)
		return;
	for (int64_t c = lane; c < a.d; c += 32) {
		w.x[c] = dt_ld1(a.qkv, a.t, row * a.width + h * a.d + c);
		w.sx[c] = 0;
	}
	for (int64_t c = lane; c < a.v; c += 32)
		w.y[c] = dt_ld1(a.dout, a.t, (row * a.heads + h) * a.v + c);
	__syncwarp();
	for (int64_t j = a.window && i >= a.window ? i - a.window + 1 : 0; j <= i; j += 32) {
		const int64_t at = (b * a.seq + j) * a.width;
		float s = 0, dp = 0;

		if (j + lane <= i) {
			s = dt_dot_row(w.x, a.qkv, a.t, at + lane * a.width + kcol, a.d);
			dp = dt_dot_row(w.y, a.qkv, a.t, at + lane * a.width + vcol, a.v);
		}
		dt_attn_slope(a, s, dp, a.lse[stat] * DT_LOG2E, a.dot[stat], j + lane <= i);
		dt_add_rows(w.sx, dp, a.qkv, a.t, at + kcol, a.width, i - j + 1, a.d);
	}
	for (int64_t c = lane; c < a.d; c += 32)
		dt_st1(a.out, a.t, row * a.width + h * a.d + c, w.sx[c] * a.scale);
}

__global__ void __launch_bounds__(128) dkv_rows_kernel(struct dt_attn_args a)
{
	const int lane = (int)threadIdx.x % 32;
	const int64_t kv = blockIdx.y, group = a.heads / a.kv_heads, b = blockIdx.z;
	const int64_t j = (int64_t)blockIdx.x * 4 + threadIdx.x / 32, row = b * a.seq + j;
	const int64_t kcol = dt_attn_keys(a, kv), vcol = dt_attn_values(a, kv);
	const int64_t end = a.window && j + a.window < a.seq ? j + a.window : a.seq;
	const struct row_space w = row_space(a);

	if (j >= a.seq)
		return;
	for (int64_t c = lane; c < a.d; c += 32) {
		w.x[c] = dt_ld1(a.qkv, a.t, row * a.width + kcol + c);
		w.sx[c] = 0;
	}
	for (int64_t c = lane; c < a.v; c += 32) {
		w.y[c] = dt_ld1(a.qkv, a.t, row * a.width + vcol + c);
		w.sy[c] = 0;
	}
	__syncwarp();
	for (int64_t h = kv * group; h < (kv + 1) * group; h++)
		for (int64_t i = j; i < end; i += 32) {
			const int64_t at = b * a.seq + i, stat = (b * a.heads + h) * a.seq + i + lane;
			const bool in = i + lane < end;
			float s = 0, dp = 0;

			if (in) {
				s = dt_dot_row(w.x, a.qkv, a.t, (at + lane) * a.width + h * a.d, a.d);
				dp = dt_dot_row(w.y, a.dout, a.t, ((at + lane) * a.heads + h) * a.v, a.v);
			}
			dt_attn_slope(a, s, dp, in ? a.lse[stat] * DT_LOG2E : 0, in ? a.dot[stat] : 0, in);
			dt_add_rows(w.sx, dp, a.qkv, a.t, at * a.width + h * a.d, a.width, end - i, a.d);
			dt_add_rows(w.sy, s, a.dout, a.t, (at * a.heads + h) * a.v, a.heads * a.v, end - i,
				    a.v);
		}
	for (int64_t c = lane; c < a.d; c += 32)
		dt_st1(a.out, a.t, row * a.width + kcol + c, w.sx[c] * a.scale);
	for (int64_t c = lane; c < a.v; c += 32)
		dt_st1(a.out, a.t, row * a.width + vcol + c, w.sy[c]);
}

int dt_cuda_attention_backward(struct dt_dev *dev, struct dt_tensor dqkv, struct dt_tensor dout,
			       struct dt_tensor o, struct dt_tensor lse, struct dt_tensor qkv,
			       const struct dt_attn *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = p->batch * p->seq;
	struct dt_attn_args a;
	int rc;

	if (!c)
		return -ENODEV;
	a = dt_attn_args(p, qkv);
	a.o = o.data;
	a.dout = dout.data;
	a.out = dqkv.data;
	a.lse = (float *)lse.data;
	a.dot = (float *)dt_cuda_scratch(dev, (size_t)(rows * p->heads) * 4);
	if (!a.dot)
		return -ENOMEM;
	a.fast = a.fast && dt_aligned(dout.data) && dt_aligned(dqkv.data);
	rc = dots(c, a, rows * p->heads);
	const unsigned tiles = (unsigned)dt_ceil_div(a.seq, DT_TILE), parts = (unsigned)dt_ceil_div(a.seq, 4);
	const unsigned heads = (unsigned)a.heads, kv = (unsigned)a.kv_heads, batch = (unsigned)p->batch;
	const int64_t wide = dt_attn_wide(a);
	const size_t room = (size_t)(a.d + a.v) * 32; /* of rows */
	void (*dkv)(struct dt_attn_args) = a.t == DT_F32 ? NULL : DT_ATTN_PICK(dkv_kernel, a.t, wide);
	void (*dq)(struct dt_attn_args) = a.t == DT_F32 ? NULL : DT_ATTN_PICK(dq_kernel, a.t, wide);

	if (rc == 0)
		rc = dt_attn_wg_backward(c, a, p->batch);
	if (rc != -ENOTSUP)
		return rc;
	if (dkv && dq) {
		rc = DT_LAUNCH(c, dkv, dim3(tiles, kv, batch), 128, shared_bytes(wide), a);
		return rc < 0 ? rc : DT_LAUNCH(c, dq, dim3(tiles, heads, batch), 128, shared_bytes(wide), a);
	}
	rc = DT_LAUNCH(c, dkv_rows_kernel, dim3(parts, kv, batch), 128, room, a);
	return rc < 0 ? rc : DT_LAUNCH(c, dq_rows_kernel, dim3(parts, heads, batch), 128, room, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
