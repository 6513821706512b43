/*
 * Shared by the attention kernels. 16-bit types: a block has 64 queries (or keys) of a head, 16 per warp,
 * against tiles of 64 of the other side; products are mma.sync, and the result registers of one product are
 * the first operand of the next (Dao, FlashAttention-2, 2023, section 3). Heads are padded with zeros to 64,
 * 128 or 256. f32: one row per warp, for parity rather than speed. Tiled kernels are in attention_mma.h.
 */
#ifndef DT_KERNELS_CUDA_ATTENTION_H
#define DT_KERNELS_CUDA_ATTENTION_H

#include "kernels/cuda/mma.h"

#define DT_TILE	  64
#define DT_LOG2E  1.4426950408889634f
#define DT_NEGINF (-INFINITY)

struct dt_attn_args {
	const void *qkv, *o, *dout;
	void *out;	  /* o forward, dqkv backward */
	float *lse, *dot; /* [batch, heads, seq]; dot: do . o */
	int t;
	int64_t seq, heads, kv_heads, d, v, window, width; /* v: size of a head of v and o; width: of qkv */
	float scale, cap;				   /* cap: softcap, or 0 */
	bool fast;					   /* rows can be copied in 16-byte pieces */
	int64_t begin;					   /* the first sequence of this launch */
};

/* The sequence of a block. */
DT_DEVICE int64_t dt_attn_sequence(const struct dt_attn_args &a)
{
	return a.begin + blockIdx.z;
}

/* Launches a kernel over blocks of rows (x), heads and all sequences. */
template <class A>
static inline int dt_attn_launch(const struct dt_cuda *c, void (*kernel)(A), int64_t x, int64_t heads,
				 int64_t batch, size_t smem, A a)
{
	return dt_in_pieces(batch, [&](int64_t first, unsigned n) {
		a.begin = first;
		return DT_LAUNCH(c, kernel, dim3((unsigned)x, (unsigned)heads, n), 128, smem, a);
	});
}

static inline struct dt_attn_args dt_attn_args(const struct dt_attn *p, struct dt_tensor qkv)
{
	struct dt_attn_args a = {};

	a.qkv = qkv.data;
	a.t = qkv.dtype;
	a.seq = p->seq;
	a.heads = p->heads;
	a.kv_heads = p->kv_heads;
	a.d = p->head_dim;
	a.v = dt_attn_value_dim(p);
	a.window = p->window > 0 ? p->window : 0;
	a.width = dt_cols(qkv);
	a.scale = p->scale;
	a.cap = p->softcap;
	a.fast = a.d % 8 == 0 && a.v % 8 == 0 && a.width % 8 == 0 && dt_aligned(qkv.data);
	return a;
}

/* First column in qkv of a head of keys, of values. */
DT_DEVICE int64_t dt_attn_keys(const struct dt_attn_args &a, int64_t kv)
{
	return (a.heads + kv) * a.d;
}

DT_DEVICE int64_t dt_attn_values(const struct dt_attn_args &a, int64_t kv)
{
	return (a.heads + a.kv_heads) * a.d + kv * a.v;
}

DT_DEVICE bool dt_sees(const struct dt_attn_args &a, int64_t query, int64_t key)
{
	return key <= query && query < a.seq && (!a.window || query - key < a.window);
}

/* The keys or queries that a row sees, as a range of indices in a tile that begins at `tile`. */
struct dt_attn_range {
	int first;
	unsigned n;
};

DT_DEVICE struct dt_attn_range dt_attn_range(int64_t from, int64_t to, int64_t tile)
{
	const int64_t first = from > tile ? from - tile : 0, end = to - tile;

	if (end <= first || first >= 1 << 20)
		return {0, 0};
	return {(int)first, (unsigned)((end < 1 << 20 ? end : 1 << 20) - first)};
}

/* The keys of a tile that a query sees, and the queries that see a key. */
DT_DEVICE struct dt_attn_range dt_attn_keys_seen(const struct dt_attn_args &a, int64_t query, int64_t tile)
{
	const int64_t from = a.window && query >= a.window ? query - a.window + 1 : 0;

	return dt_attn_range(from, query < a.seq ? query + 1 : from, tile);
}

DT_DEVICE struct dt_attn_range dt_attn_seen_by(const struct dt_attn_args &a, int64_t key, int64_t tile)
{
	return dt_attn_range(key, a.window && key + a.window < a.seq ? key + a.window : a.seq, tile);
}

DT_DEVICE bool dt_attn_in(const struct dt_attn_range &r, int i)
{
	return (unsigned)(i - r.first) < r.n;
}

/* Rows row .. end - 1 of a matrix; further rows of a tile are zero. */
struct dt_attn_rows {
	int64_t row, end;
};

/* Copies 64 rows of D columns, of which d exist, from from + row * width. 128 threads. */
template <int D>
DT_DEVICE void dt_attn_load(uint16_t *tile, const void *from, int64_t width, struct dt_attn_rows rows,
			    int64_t d, bool fast)
{
	const uint16_t *src = (const uint16_t *)from;

	for (int i = (int)threadIdx.x; i < DT_TILE * D / 8; i += 128) {
		const int r = i / (D / 8), c = i % (D / 8) * 8;
		const uint16_t *at = src + (rows.row + r) * width + c;
		uint16_t *to = tile + r * (D + 8) + c;
		const bool in = rows.row + r < rows.end;

		if (fast) {
			dt_cp_async(to, in && c < d ? at : src, in && c < d ? 16 : 0);
			continue;
		}
		for (int k = 0; k < 8; k++) {
			const bool ok = in && c + k < d;

			if (ok)
				dt_touch(at + k, 2);
			to[k] = ok ? at[k] : (uint16_t)0;
		}
	}
}

/* Stores a warp's 16 rows of D f32 results, each times its factor, through the warp's rows of a shared
 * tile. */
template <class T, int D>
DT_DEVICE void dt_attn_store(void *to, int64_t width, uint16_t *tile, const float (&acc)[D / 8][4], float f0,
			     float f1, int64_t row, int64_t rows, int64_t d, bool fast)
{
	const int lane = (int)threadIdx.x % 32, r = lane / 4;
	uint16_t *out = (uint16_t *)to;

	__syncwarp();
	DT_UNROLL
	for (int n = 0; n < D / 8; n++) {
		const int c = n * 8 + lane % 4 * 2;

		*(uint32_t *)(tile + r * (D + 8) + c) = dt_pack<T>(acc[n][0] * f0, acc[n][1] * f0);
		*(uint32_t *)(tile + (r + 8) * (D + 8) + c) = dt_pack<T>(acc[n][2] * f1, acc[n][3] * f1);
	}
	__syncwarp();
	for (int i = lane; i < 16 * D / 8; i += 32) {
		const int k = i / (D / 8), c = i % (D / 8) * 8;
		uint16_t *at = out + (row + k) * width + c;

		if (row + k >= rows)
			continue;
		if (fast && c < d) {
			dt_touch(at, 16);
			*(uint4 *)at = *(const uint4 *)(tile + k * (D + 8) + c);
		} else if (!fast) {
			for (int e = 0; e < 8 && c + e < d; e++) {
				dt_touch(at + e, 2);
				at[e] = tile[k * (D + 8) + c + e];
			}
		}
	}
}

/* s[16, 8 N] = rows from `row` on of a times 8 N rows of b, both [., D]. */
template <class T, int D, int N>
DT_DEVICE void dt_attn_scores(float (&s)[N][4], const uint16_t *a, int row, const uint16_t *b)
{
	dt_zero(s);
	DT_UNROLL
	for (int k = 0; k < D; k += 16) {
		uint32_t fa[4], fb[4];

		dt_fragment_a(fa, a, D + 8, row, k);
		DT_UNROLL
		for (int n = 0; n < N / 2; n++) {
			dt_fragment_b(fb, b, D + 8, n * 16, k);
			dt_mma<T>(s[2 * n], fa, fb[0], fb[1]);
			dt_mma<T>(s[2 * n + 1], fa, fb[2], fb[3]);
		}
	}
}

/* The factor that turns products q . k into exponents of 2. With a softcap this converts s itself and returns
 * 1. */
template <int N> DT_DEVICE float dt_attn_unit(float (&s)[N][4], float scale, float cap)
{
	if (cap == 0)
		return scale * DT_LOG2E;
	DT_UNROLL
	for (int i = 0; i < 4 * N; i++)
		s[i / 4][i % 4] = dt_softcap_fast(s[i / 4][i % 4] * scale, cap) * DT_LOG2E;
	return 1;
}

/* 2^x; 0 if that is not a normal number. */
DT_DEVICE float dt_exp2(float x)
{
#ifdef __CUDA_ARCH__
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#else
	return exp2f(x);
#endif
}

/* Sum over the four lanes that share a row. */
DT_DEVICE float dt_quad_sum(float v)
{
	v += __shfl_xor_sync(DT_ALL, v, 1);
	return v + __shfl_xor_sync(DT_ALL, v, 2);
}

DT_DEVICE float dt_quad_max(float v)
{
	v = fmaxf(v, __shfl_xor_sync(DT_ALL, v, 1));
	return fmaxf(v, __shfl_xor_sync(DT_ALL, v, 2));
}

/*
 * Online softmax for rows query and query + 8 and a tile w of keys: turns products into weights
 * exp(scale (s - max)). Updates max (an exponent of 2) and sum; shrink is the factor for earlier sums. sum
 * covers this lane's columns only.
 */
template <int N, class A, class W>
DT_DEVICE void dt_attn_soften(float (&s)[N][4], float (&shrink)[2], float (&max)[2], float (&sum)[2],
			      const A &a, const W &w, int64_t query, bool edge)
{
	const int col = (int)threadIdx.x % 4 * 2;
	const float k = dt_attn_unit(s, a.scale, a.cap);

	DT_UNROLL
	for (int h = 0; h < 2; h++) {
		float top = DT_NEGINF, base, add = 0;

		if (edge) {
			const struct dt_attn_range in = dt_attn_keys_seen(a, w, query + 8 * h);

			DT_UNROLL
			for (int i = 0; i < 2 * N; i++) {
				float &v = s[i / 2][2 * h + i % 2];

				v = dt_attn_in(in, i / 2 * 8 + col + i % 2) ? v : DT_NEGINF;
			}
		}
		DT_UNROLL
		for (int i = 0; i < 2 * N; i++)
			top = fmaxf(top, s[i / 2][2 * h + i % 2]);
		top = fmaxf(max[h], dt_quad_max(top) * k);
		base = top == DT_NEGINF ? 0 : top; /* a row that sees none of these keys */
		shrink[h] = dt_exp2(max[h] - base);
		max[h] = top;
		DT_UNROLL
		for (int i = 0; i < 2 * N; i++)
			add += s[i / 2][2 * h + i % 2] = dt_exp2(fmaf(s[i / 2][2 * h + i % 2], k, -base));
		sum[h] = sum[h] * shrink[h] + add;
	}
}

template <int N> DT_DEVICE void dt_attn_shrink(float (&o)[N][4], const float (&by)[2])
{
	DT_UNROLL
	for (int i = 0; i < 4 * N; i++)
		o[i / 4][i % 4] *= by[i % 4 / 2];
}

/* p from a score s, and ds = p (dp - dot), times the derivative of the softcap. */
DT_DEVICE void dt_attn_slope(const struct dt_attn_args &a, float &s, float &dp, float lse, float dot,
			     bool sees)
{
	float score = s * a.scale, cap = 1;

	if (a.cap > 0) {
		score = a.t == DT_F32 ? dt_softcap(score, a.cap) : dt_softcap_fast(score, a.cap);
		cap = 1.f - score / a.cap * (score / a.cap);
	}
	s = sees ? exp2f(score * DT_LOG2E - lse) : 0;
	dp = s * (dp - dot) * cap;
}

/*
 * acc[16, D] += p[16, 8 N] (rounded to T) times 8 N rows of b with stride STRIDE, of which the first cols
 * columns exist.
 */
template <class T, int D, int STRIDE = D + 8, int N>
DT_DEVICE void dt_attn_gather(float (&acc)[D / 8][4], const float (&p)[N][4], const uint16_t *b, int cols = D)
{
	DT_UNROLL
	for (int k = 0; k < N / 2; k++) {
		const uint32_t fa[4] = {dt_pack<T>(p[2 * k][0], p[2 * k][1]),
					dt_pack<T>(p[2 * k][2], p[2 * k][3]),
					dt_pack<T>(p[2 * k + 1][0], p[2 * k + 1][1]),
					dt_pack<T>(p[2 * k + 1][2], p[2 * k + 1][3])};
		DT_UNROLL
		for (int n = 0; n < D / 16; n++) {
			uint32_t fb[4];

			if (n * 16 >= cols)
				continue;
			dt_fragment_b_trans(fb, b, STRIDE, n * 16, k * 16);
			dt_mma<T>(acc[2 * n], fa, fb[0], fb[1]);
			dt_mma<T>(acc[2 * n + 1], fa, fb[2], fb[3]);
		}
	}
}

/* attention_wg.cu, attention_wg_backward.cu: with wgmma. -ENOTSUP: not on this card, or not these shapes. */
int dt_attn_wg_forward(const struct dt_cuda *c, const struct dt_attn_args &a, int64_t batch);
int dt_attn_wg_backward(const struct dt_cuda *c, const struct dt_attn_args &a, int64_t batch);

static inline int64_t dt_attn_wide(const struct dt_attn_args &a)
{
	return a.d > a.v ? a.d : a.v;
}

/* attention_backward.cu: computes a.dot for n rows and heads. */
int dt_attn_dots(const struct dt_cuda *c, const struct dt_attn_args &a, int64_t n);

/* Selects the instance of kernel<T, D> for a 16-bit type and width w; NULL: the head is too wide. */
#define DT_ATTN_PICK(kernel, type, w)                                                                        \
	((w) > 256	     ? NULL                                                                          \
	 : (type) == DT_BF16 ? (w) <= 64    ? kernel<struct dt_bf16, 64>                                     \
			       : (w) <= 128 ? kernel<struct dt_bf16, 128>                                    \
					    : kernel<struct dt_bf16, 256>                                    \
	 : (w) <= 64 ? kernel<struct dt_f16, 64>                                                             \
	 : (w) <= 128	     ? kernel<struct dt_f16, 128>                                                    \
			     : kernel<struct dt_f16, 256>)

static inline size_t dt_attn_tile_bytes(int64_t d)
{
	return (size_t)DT_TILE * ((d <= 64 ? 64 : d <= 128 ? 128 : 256) + 8) * 2;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
