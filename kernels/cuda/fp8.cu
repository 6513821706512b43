/*
 * fp8 quantisation: one pass finds amax, a second one writes; both are memory bound. Products use cuBLASLt;
 * without it, or if it has none for a shape, our own kernel widens tiles to bf16 (exactly) for the tensor
 * cores, at bf16's rate.
 */
#include "kernels/cuda/mma.h"
#include "kernels/fp8.h"

#define PARTS 1024 /* maximum blocks in the amax pass */
#define SIDE  64   /* side of a tile */
#define PITCH 68   /* bytes between a tile's rows in shared memory */
#define DEEP  32   /* elements of k at a time */

bool dt_cuda_has_fp8(const struct dt_cuda *c)
{
	return c->info.major * 10 + c->info.minor >= 89;
}

/* Two numbers rounded to fp8, lo in the lower byte. */
DT_DEVICE uint32_t two_to_8(float lo, float hi, int t)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
	uint16_t r;

	if (t == DT_E4M3)
		asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
	else
		asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
	return r;
#else
	return t == DT_E4M3 ? dt_f32_to_e4m3(lo) | (uint32_t)dt_f32_to_e4m3(hi) << 8
			    : dt_f32_to_e5m2(lo) | (uint32_t)dt_f32_to_e5m2(hi) << 8;
#endif
}

/* The maximum over the block of bits of non-negative floats. */
DT_DEVICE uint32_t block_max(uint32_t v, uint32_t *s)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;

	for (int turn = 0; turn < 2; turn++) {
		v = dt_warp_largest(v, 32);
		if (turn)
			break;
		__syncthreads();
		if (lane == 0)
			s[warp] = v;
		__syncthreads();
		v = lane < warps ? s[lane] : 0;
	}
	return v;
}

template <int V>
__global__ void __launch_bounds__(256) amax_kernel(uint32_t *part, const void *x, int t, int64_t n)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x * V;
	uint32_t most = 0;

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V; i < n; i += step) {
		if (V > 1 && i + V <= n) {
			float r[V];

			dt_ld<V>(r, x, t, i);
			for (int k = 0; k < V; k++)
				most = dt_magnitude(r[k]) > most ? dt_magnitude(r[k]) : most;
			continue;
		}
		for (int64_t k = i; k < n && k < i + V; k++) {
			const uint32_t u = dt_magnitude(dt_ld1(x, t, k));

			most = u > most ? u : most;
		}
	}
	most = block_max(most, (uint32_t *)dt_shared());
	if (threadIdx.x == 0)
		part[blockIdx.x] = most;
}

struct narrow {
	uint8_t *y, *yt; /* NULL: not wanted */
	float *scale;
	const uint32_t *part; /* [parts] */
	const void *x;
	int parts, tx, ty;
	int64_t rows, cols;
};

/* 16 elements of x from (r, c) on, where they exist, as fp8 in w. */
template <bool FAST>
DT_DEVICE void sixteen(uint32_t (&w)[4], const struct narrow &q, int64_t r, int64_t c, float inverse)
{
	float v[16];

	if constexpr (FAST) {
		float h[8];

		DT_UNROLL
		for (int k = 0; k < 16; k += 8) {
			dt_ld<8>(h, q.x, q.tx, r * q.cols + c + k);
			DT_UNROLL
			for (int j = 0; j < 8; j++)
				v[k + j] = h[j];
		}
	} else {
		for (int k = 0; k < 16; k++)
			v[k] = c + k < q.cols ? dt_ld1(q.x, q.tx, r * q.cols + c + k) : 0;
	}
	DT_UNROLL
	for (int k = 0; k < 4; k++)
		w[k] = two_to_8(v[4 * k] * inverse, v[4 * k + 1] * inverse, q.ty) |
		       two_to_8(v[4 * k + 2] * inverse, v[4 * k + 3] * inverse, q.ty) << 16;
}

/* Stores 16 bytes at p, or the first n of them one by one. */
template <bool FAST> DT_DEVICE void put_sixteen(uint8_t *p, const uint32_t (&w)[4], int64_t n)
{
	if constexpr (FAST) {
		dt_touch(p, 16);
		*(uint4 *)p = uint4{w[0], w[1], w[2], w[3]};
	} else {
		for (int k = 0; k < 16 && k < n; k++) {
			dt_touch(p + k, 1);
			p[k] = (uint8_t)(w[k / 4] >> (k % 4 * 8));
		}
	}
}

/*
 * 64 x 64 tiles, 256 threads: each has 16 elements of a row, then 16 of a column. FAST: rows, columns and all
 * addresses are multiples of 16.
 */
template <bool FAST> __global__ void __launch_bounds__(256) narrow_kernel(struct narrow q)
{
	uint8_t *tile = (uint8_t *)dt_shared();
	uint32_t *words = (uint32_t *)(dt_shared() + SIDE * PITCH);
	const int64_t across = dt_ceil_div(q.cols, SIDE), tiles = across * dt_ceil_div(q.rows, SIDE);
	const int line = (int)threadIdx.x / 4, at = (int)threadIdx.x % 4 * 16;
	uint32_t most = 0;
	float s;

	for (int i = (int)threadIdx.x; i < q.parts; i += 256)
		most = q.part[i] > most ? q.part[i] : most;
	s = dt_fp8_scale(block_max(most, words), (enum dt_dtype)q.ty);
	if (blockIdx.x == 0 && threadIdx.x == 0)
		*q.scale = s;
	for (int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
		const int64_t r0 = i / across * SIDE, c0 = i % across * SIDE;
		uint32_t w[4] = {0, 0, 0, 0};

		if (r0 + line < q.rows && c0 + at < q.cols) {
			sixteen<FAST>(w, q, r0 + line, c0 + at, 1 / s);
			if (q.y)
				put_sixteen<FAST>(q.y + (r0 + line) * q.cols + c0 + at, w, q.cols - c0 - at);
		}
		if (!q.yt)
			continue;
		for (int k = 0; k < 4; k++)
			*(uint32_t *)(tile + line * PITCH + at + 4 * k) = w[k];
		__syncthreads();
		if (c0 + line < q.cols && r0 + at < q.rows) {
			for (int k = 0; k < 4; k++) {
				const uint8_t *from = tile + (at + 4 * k) * PITCH + line;

				w[k] = from[0] | (uint32_t)from[PITCH] << 8 |
				       (uint32_t)from[2 * PITCH] << 16 | (uint32_t)from[3 * PITCH] << 24;
			}
			put_sixteen<FAST>(q.yt + (c0 + line) * q.rows + r0 + at, w, q.rows - r0 - at);
		}
		__syncthreads(); /* the tile is overwritten next */
	}
}

int dt_cuda_fp8_quantize(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor yt, float *scale,
			 struct dt_tensor x)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t n = dt_numel(x);
	const enum dt_dtype t = y.data ? y.dtype : yt.dtype;
	uint32_t *part;
	unsigned parts, tiles;
	int rc;

	if (!c)
		return -ENODEV;
	part = (uint32_t *)dt_cuda_scratch(dev, PARTS * sizeof *part);
	if (!part)
		return -ENOMEM;
	parts = dt_blocks(c, n, 2048);
	parts = parts < PARTS ? parts : PARTS;
	rc = dt_aligned(x.data)
		     ? DT_LAUNCH(c, amax_kernel<8>, parts, 256, 128, part, x.data, (int)x.dtype, n)
		     : DT_LAUNCH(c, amax_kernel<1>, parts, 256, 128, part, x.data, (int)x.dtype, n);
	if (rc < 0)
		return rc;
	const struct narrow q = {(uint8_t *)y.data, (uint8_t *)yt.data, scale,	part,	    x.data,
				 (int)parts,	    (int)x.dtype,	(int)t, dt_rows(x), dt_cols(x)};

	tiles = dt_blocks(c, dt_ceil_div(q.rows, SIDE) * dt_ceil_div(q.cols, SIDE), 1);
	if (q.rows % 16 == 0 && q.cols % 16 == 0 && dt_aligned(q.x) && dt_aligned(q.y) && dt_aligned(q.yt))
		return DT_LAUNCH(c, narrow_kernel<true>, tiles, 256, SIDE * PITCH + 128, q);
	return DT_LAUNCH(c, narrow_kernel<false>, tiles, 256, SIDE * PITCH + 128, q);
}

struct product8 {
	void *c;
	const uint8_t *a, *b;
	const float *sa, *sb;
	const void *bias;
	int tc, ta, tb;
	int64_t m, n, k;
	bool accumulate;
};

DT_DEVICE uint16_t widened(uint32_t code, int t)
{
	return dt_f32_to_bf16(t == DT_E4M3 ? dt_e4m3_to_f32((uint8_t)code) : dt_e5m2_to_f32((uint8_t)code));
}

/* Rows row .. row + 63, columns k .. k + 31 of a matrix [rows, depth] as bf16, zeros outside. 128 threads. */
template <bool FAST>
DT_DEVICE void load8(uint16_t *tile, const uint8_t *from, int t, int64_t rows, int64_t depth, int64_t row,
		     int64_t k)
{
	const int r = (int)threadIdx.x / 2, c = (int)threadIdx.x % 2 * 16;
	const uint8_t *src = from + (row + r) * depth + k + c;
	uint16_t *to = tile + r * (DEEP + 8) + c;
	uint32_t w[4] = {0, 0, 0, 0};

	if (row + r < rows && k + c < depth) {
		if constexpr (FAST) {
			dt_touch(src, 16);
			const uint4 u = *(const uint4 *)src;

			w[0] = u.x;
			w[1] = u.y;
			w[2] = u.z;
			w[3] = u.w;
		} else {
			for (int i = 0; i < 16 && k + c + i < depth; i++) {
				dt_touch(src + i, 1);
				w[i / 4] |= (uint32_t)src[i] << (i % 4 * 8);
			}
		}
	}
	DT_UNROLL
	for (int i = 0; i < 16; i++)
		to[i] = widened(w[i / 4] >> (i % 4 * 8) & 0xff, t);
}

/* Like matmul.cu: four warps, each 32 x 32 of the block's 64 x 64. */
template <bool FAST> __global__ void __launch_bounds__(128) fp8_kernel(struct product8 p)
{
	uint16_t *a = (uint16_t *)dt_shared(), *b = a + SIDE * (DEEP + 8);
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	const int mw = warp / 2 * 32, nw = warp % 2 * 32;
	const int64_t m0 = (int64_t)blockIdx.x * SIDE, n0 = (int64_t)blockIdx.y * SIDE;
	float d[2][4][4];

	DT_UNROLL
	for (int i = 0; i < 32; i++)
		d[i / 16][i / 4 % 4][i % 4] = 0;
	for (int64_t k = 0; k < p.k; k += DEEP) {
		load8<FAST>(a, p.a, p.ta, p.m, p.k, m0, k);
		load8<FAST>(b, p.b, p.tb, p.n, p.k, n0, k);
		__syncthreads();
		DT_UNROLL
		for (int kk = 0; kk < DEEP; kk += 16) {
			uint32_t fa[2][4], fb[2][4];

			DT_UNROLL
			for (int i = 0; i < 2; i++) {
				dt_fragment_a(fa[i], a, DEEP + 8, mw + 16 * i, kk);
				dt_fragment_b(fb[i], b, DEEP + 8, nw + 16 * i, kk);
			}
			DT_UNROLL
			for (int i = 0; i < 2; i++)
				DT_UNROLL
			for (int j = 0; j < 4; j++)
				dt_mma<struct dt_bf16>(d[i][j], fa[i], fb[j / 2][j % 2 * 2],
						       fb[j / 2][j % 2 * 2 + 1]);
		}
		__syncthreads(); /* the tiles are overwritten next */
	}
	const float sa = *p.sa, sb = *p.sb;

	DT_UNROLL
	for (int e = 0; e < 32; e++) {
		const int64_t i = m0 + mw + 16 * (e / 16) + lane / 4 + e % 4 / 2 * 8;
		const int64_t j = n0 + nw + 8 * (e / 4 % 4) + lane % 4 * 2 + e % 2;
		float v = d[e / 16][e / 4 % 4][e % 4] * sa * sb;

		if (i >= p.m || j >= p.n)
			continue;
		if (p.bias)
			v += dt_ld1(p.bias, p.tc, j);
		if (p.accumulate)
			v += dt_ld1(p.c, p.tc, i * p.n + j);
		dt_st1(p.c, p.tc, i * p.n + j, v);
	}
}

/* c[rows, n] += bias, f32: the library's 8-bit products cannot add it. */
__global__ void __launch_bounds__(256) bias_kernel(float *c, const float *bias, int64_t n, int64_t total)
{
	for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < total; i += (int64_t)gridDim.x * 256) {
		dt_touch(c + i, 4);
		dt_touch(bias + i % n, 4);
		c[i] += bias[i % n];
	}
}

int dt_cuda_fp8_matmul(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, const float *sa,
		       struct dt_tensor b, const float *sb, struct dt_tensor bias, bool accumulate)
{
	const struct dt_cuda *cu = dt_cuda_enter(dev);
	const int64_t m = dt_rows(a), k = dt_cols(a), n = dt_rows(b);
	const dim3 grid((unsigned)dt_ceil_div(m, SIDE), (unsigned)dt_ceil_div(n, SIDE));
	const bool apart = bias.data && c.dtype == DT_F32;
	int rc = -ENOTSUP;

	if (!cu)
		return -ENODEV;
	if (!dt_cuda_has_fp8(cu))
		return -ENOTSUP;
	if (cu->blas && dt_fp8_fits(m, k, n))
		rc = dt_blas_fp8(cu->blas, cu->stream, c, a, sa, b, sb, apart ? DT_NONE : bias, accumulate, m,
				 n, k);
	if (rc == 0 && apart)
		return DT_LAUNCH(cu, bias_kernel, dt_blocks(cu, m * n, 256), 256, 0, (float *)c.data,
				 (const float *)bias.data, n, m * n);
	if (rc != -ENOTSUP)
		return rc;
	const struct product8 p = {c.data,
				   (const uint8_t *)a.data,
				   (const uint8_t *)b.data,
				   sa,
				   sb,
				   bias.data,
				   (int)c.dtype,
				   (int)a.dtype,
				   (int)b.dtype,
				   m,
				   n,
				   k,
				   accumulate};

	if (k % 16 == 0 && dt_aligned(a.data) && dt_aligned(b.data))
		return DT_LAUNCH(cu, fp8_kernel<true>, grid, 128, 2 * SIDE * (DEEP + 8) * 2, p);
	return DT_LAUNCH(cu, fp8_kernel<false>, grid, 128, 2 * SIDE * (DEEP + 8) * 2, p);
}
/* SPDX-License-Identifier: Apache-2.0 */
