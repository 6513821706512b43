/* Backward over whole sequences. */
#include "kernels/cuda/attention_mma_backward.h"
#include "kernels/cuda/attention_rows.h"

/* dot = do . o for every row and head, one per warp. */
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

/* The same for values 8 * EACH wide: EACH threads per row and head, 16 bytes each. */
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

int dt_attn_dots(const struct dt_cuda *c, const struct dt_attn_args &a, int64_t n)
{
	const bool fast = a.t != DT_F32 && dt_aligned(a.dout) && dt_aligned(a.o);

	if (fast && a.v == 64)
		return DT_LAUNCH(c, dot_by_8_kernel<8>, (unsigned)dt_ceil_div(n, 32), 256, 0, a, n);
	if (fast && a.v == 128)
		return DT_LAUNCH(c, dot_by_8_kernel<16>, (unsigned)dt_ceil_div(n, 16), 256, 0, a, n);
	return DT_LAUNCH(c, dot_kernel, (unsigned)dt_ceil_div(n, 4), 128, 0, a, n);
}

template <class T, int D> __global__ void __launch_bounds__(128) dkv_kernel(struct dt_attn_args a)
{
	dt_attn_dkv_tile<T, D>(a);
}

template <class T, int D> __global__ void __launch_bounds__(128) dq_kernel(struct dt_attn_args a)
{
	dt_attn_dq_tile<T, D>(a);
}

/* Shared memory of one row of a warp kernel: operands x and y, and a sum as wide as each. */
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
	const int64_t h = blockIdx.y, kv = h / (a.heads / a.kv_heads), b = dt_attn_sequence(a);
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
	const int64_t kv = blockIdx.y, group = a.heads / a.kv_heads, b = dt_attn_sequence(a);
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
	rc = dt_attn_dots(c, a, rows * p->heads);
	const int64_t tiles = dt_ceil_div(a.seq, DT_TILE), parts = dt_ceil_div(a.seq, 4), batch = p->batch;
	const int64_t wide = dt_attn_wide(a);
	const size_t room = (size_t)(a.d + a.v) * 32; /* for the rows */
	void (*dkv)(struct dt_attn_args) = a.t == DT_F32 ? NULL : DT_ATTN_PICK(dkv_kernel, a.t, wide);
	void (*dq)(struct dt_attn_args) = a.t == DT_F32 ? NULL : DT_ATTN_PICK(dq_kernel, a.t, wide);

	if (rc == 0)
		rc = dt_attn_wg_backward(c, a, p->batch);
	if (rc != -ENOTSUP)
		return rc;
	if (dkv && dq) {
		const size_t smem = dt_attn_room(wide, 2 * sizeof(float));

		rc = dt_attn_launch(c, dkv, tiles, a.kv_heads, batch, smem, a);
		return rc < 0 ? rc : dt_attn_launch(c, dq, tiles, a.heads, batch, smem, a);
	}
	rc = dt_attn_launch(c, dkv_rows_kernel, parts, a.kv_heads, batch, room, a);
	return rc < 0 ? rc : dt_attn_launch(c, dq_rows_kernel, parts, a.heads, batch, room, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
