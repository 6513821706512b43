/*
 * quant.h's sets on a card: one launch for all weights of a set, whose blocks of threads find the rows they
 * have in memory (sorted.h). Blocks of integers lie in the CPU's panels of 16 rows (kernels/cpu/quant.h): 16
 * threads read a vector of 64 bytes, four elements of a row each. A block of threads has one panel and a few
 * rows of x: its warps find the integer sums of 64 blocks of k at a time, then one thread an output adds them
 * up in the order the contract gives. Of numbers a warp has a row of w; many rows go to the products of
 * matmul.cu.
 */
#include "kernels/cuda/sorted.h"

#define WARPS 8
#define SLAB  64 /* blocks of k at a time */
#define FEW   16 /* rows a weight that are too few for tiles */

/* A block of a row of x. */
struct set_block {
	float scale, sum;
};

struct set_quants {
	size_t panel_bytes;
	int format, quants, scales, supers, offset;
	int64_t rows, blocks, ld, first;
	const int8_t *q;	   /* rows as sorted, 32 blocks each */
	const struct set_block *x; /* and blocks */
	void *y;
	int ty;
	struct dt_sorted set;
};

struct set_round {
	int8_t *q;
	struct set_block *b;
	const void *x;
	int t;
	int64_t all, blocks; /* of all rows, of one */
	const int32_t *at;   /* NULL: in their order */
	int64_t used, rows;
	int32_t *bad;
};

/* A warp has a block of 32 elements, for wherever its row goes. NaN and Inf make its scale NaN. */
__global__ void __launch_bounds__(256) set_round_kernel(struct set_round a)
{
	const int lane = (int)threadIdx.x % 32;
	const int64_t b = (int64_t)blockIdx.x * 8 + threadIdx.x / 32, row = b / a.blocks;
	float v, scale, inverse;
	uint32_t max;
	int q, sum;

	if (b >= a.all)
		return;
	v = dt_ld1(a.x, a.t, b * DT_QK + lane);
	memcpy(&max, &v, 4);
	max &= 0x7fffffffu;
	for (int by = 16; by; by >>= 1) {
		const uint32_t o = __shfl_xor_sync(DT_ALL, max, by);

		max = o > max ? o : max;
	}
	memcpy(&scale, &max, 4);
	inverse = max < DT_X_ZERO || max >= 0x7f800000u ? 0 : 127.f / scale;
	scale = max < DT_X_ZERO ? 0 : max >= 0x7f800000u ? NAN : scale / 127.f;
	q = inverse != 0 ? (int)rintf(v * inverse) : 0;
	sum = dt_warp_sum(q);
	for (int64_t i = 0; i < a.used; i++) {
		int64_t to = row;

		if (a.at) {
			dt_touch(a.at + row * a.used + i, 4);
			to = a.at[row * a.used + i];
		}
		if (to < 0 || to >= a.rows) {
			*a.bad = 1;
			continue;
		}
		to = to * a.blocks + b % a.blocks;
		a.q[to * DT_QK + lane] = (int8_t)q;
		if (lane == 0)
			a.b[to] = set_block{scale, scale * (float)sum};
	}
}

DT_DEVICE uint32_t word_at(const void *p)
{
	dt_touch(p, 4);
	return *(const uint32_t *)p;
}

/* Sum of the products of four signed bytes, added to s. */
DT_DEVICE int dot4(uint32_t a, uint32_t b, int s)
{
#ifdef __CUDA_ARCH__
	return __dp4a((int)a, (int)b, s);
#else
	for (int i = 0; i < 32; i += 8)
		s += (int)(int8_t)(a >> i) * (int)(int8_t)(b >> i);
	return s;
#endif
}

/* Four bytes 0 .. 255 less an offset of up to 128, as signed bytes. */
DT_DEVICE uint32_t less(uint32_t a, int offset)
{
	return ((a | 0x80808080u) - (uint32_t)offset * 0x01010101u) ^ 0x80808080u;
}

DT_DEVICE float half_at(const uint8_t *p)
{
	dt_touch(p, 2);
	return dt_f16_to_f32(*(const uint16_t *)p);
}

/*
 * The integer sums of one block of k: this thread's part of row r, for the chunks 4 c .. 4 c + 3 it has (the
 * even or the odd vectors). sum[1]: of Q6_K's second half.
 */
template <int M>
DT_DEVICE void integers(const struct set_quants &a, const uint8_t *q, const int8_t *x, int64_t next, int r,
			int odd, int (&sum)[M][2])
{
	DT_UNROLL
	for (int i = 0; i < M; i++)
		sum[i][0] = sum[i][1] = 0;
	for (int v = odd; v < (a.format == DT_FMT_Q8_0 ? 8 : 4); v += 2) {
		const uint32_t w = word_at(q + v * 64 + 4 * r);
		uint32_t lo = w & 0x0f0f0f0fu, hi = w >> 4 & 0x0f0f0f0fu;

		if (a.format == DT_FMT_Q8_0) {
			DT_UNROLL
			for (int i = 0; i < M; i++)
				sum[i][0] = dot4(w ^ 0x80808080u, word_at(x + i * next + 4 * v), sum[i][0]);
			continue;
		}
		if (a.format == DT_FMT_Q6_K) {
			const uint32_t two = word_at(q + 256 + v / 2 * 64 + 4 * r) >> v % 2 * 4;

			lo |= (two & 0x03030303u) << 4;
			hi |= (two >> 2 & 0x03030303u) << 4;
		}
		lo = less(lo, a.offset);
		hi = less(hi, a.offset);
		DT_UNROLL
		for (int i = 0; i < M; i++) {
			const int s = dot4(lo, word_at(x + i * next + 8 * v), 0);

			sum[i][a.format == DT_FMT_Q6_K && v >= 2] +=
				dot4(hi, word_at(x + i * next + 8 * v + 4), s);
		}
	}
}

/* What the sums of block b are multiplied by, in row r; [1]: the minimum, or of the second half. */
DT_DEVICE void factors(const struct set_quants &a, const uint8_t *panel, int64_t b, int r, float f[2])
{
	const uint8_t *s = panel + a.blocks * a.quants + b * a.scales;
	const uint8_t *u = panel + a.blocks * (a.quants + a.scales) + b / 8 * a.supers + 2 * r;

	f[1] = 0;
	if (a.format == DT_FMT_Q4_K) {
		f[0] = half_at(u) * (float)s[r];
		f[1] = -half_at(u + 32) * (float)s[16 + r];
	} else if (a.format == DT_FMT_Q6_K) {
		f[0] = half_at(u) * (float)(int8_t)s[r];
		f[1] = half_at(u) * (float)(int8_t)s[16 + r];
	} else {
		f[0] = half_at(s + 2 * r);
		f[1] = a.format == DT_FMT_Q4_1 ? half_at(s + 32 + 2 * r) : 0;
	}
}

struct set_term {
	float a, b;
};

/* Rows behind the last of a tile are computed too, as there is room behind x, but not written. */
template <int M> __global__ void __launch_bounds__(WARPS * 32) set_quants_kernel(struct set_quants a)
{
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, r = lane % 16, odd = lane / 16;
	const bool two = a.format != DT_FMT_Q8_0 && a.format != DT_FMT_Q4_0;
	const int64_t next = a.blocks * DT_QK;
	struct set_term *term = (struct set_term *)dt_shared(); /* [SLAB][2][M][16] */
	int64_t row0, end;
	const void *w;
	float s = 0;

	if (!dt_sorted_tile<M>(a.set, blockIdx.y, &row0, &end, &w))
		return;
	const uint8_t *panel = (const uint8_t *)w + blockIdx.x * a.panel_bytes;

	for (int64_t b0 = 0; b0 < a.blocks; b0 += SLAB) {
		const int n = (int)dt_min64(SLAB, a.blocks - b0);

		for (int j = warp; j < n; j += WARPS) {
			const int64_t b = b0 + j;
			int sum[M][2];
			float f[2];

			integers<M>(a, panel + b * a.quants, a.q + row0 * next + b * DT_QK, next, r, odd,
				    sum);
			DT_UNROLL
			for (int i = 0; i < M; i++) {
				sum[i][0] += __shfl_xor_sync(DT_ALL, sum[i][0], 16);
				sum[i][1] += __shfl_xor_sync(DT_ALL, sum[i][1], 16);
			}
			factors(a, panel, b, r, f);
			DT_UNROLL
			for (int i = 0; i < M; i++) {
				const struct set_block x = a.x[(row0 + i) * a.blocks + b];
				struct set_term *to = term + ((j * 2 + odd) * M + i) * 16 + r;

				if (!odd)
					*to = set_term{f[0] * x.scale, (float)sum[i][0]};
				else if (two)
					*to = a.format == DT_FMT_Q6_K
						      ? set_term{f[1] * x.scale, (float)sum[i][1]}
						      : set_term{f[1], x.sum};
			}
		}
		__syncthreads();
		if ((int)threadIdx.x < 16 * M)
			for (int j = 0; j < n; j++) {
				const struct set_term *t = term + (int64_t)j * 2 * M * 16 + threadIdx.x;

				s = fmaf(t[0].a, t[0].b, s);
				if (two)
					s = fmaf(t[M * 16].a, t[M * 16].b, s);
			}
		__syncthreads();
	}
	const int64_t col = (int64_t)blockIdx.x * DT_PANEL + threadIdx.x % 16, row = row0 + threadIdx.x / 16;

	if (row < end && col < a.rows)
		dt_st1(a.y, a.ty, row * a.ld + a.first + col, s);
}

struct set_numbers {
	const void *x;
	void *y;
	int tw, tx, ty;
	int64_t rows, k, ld, first;
	struct dt_sorted set;
};

/* A warp has a row of w. V elements at a time. */
template <int M, int V> __global__ void __launch_bounds__(128) set_numbers_kernel(struct set_numbers a)
{
	const int lane = (int)threadIdx.x % 32;
	const int64_t col = (int64_t)blockIdx.x * 4 + threadIdx.x / 32;
	int64_t row0, end, from[M];
	const void *of;
	float sum[M];

	if (col >= a.rows || !dt_sorted_tile<M>(a.set, blockIdx.y, &row0, &end, &of))
		return;
	DT_UNROLL
	for (int i = 0; i < M; i++) {
		sum[i] = 0;
		from[i] = row0 + i < end ? dt_sorted_row(a.set, row0 + i) : 0;
	}
	for (int64_t k = (int64_t)lane * V; k < a.k; k += 32 * V) {
		float w[V], x[V];

		dt_ld<V>(w, of, a.tw, col * a.k + k);
		DT_UNROLL
		for (int i = 0; i < M; i++) {
			dt_ld<V>(x, a.x, a.tx, from[i] * a.k + k);
			DT_UNROLL
			for (int e = 0; e < V; e++)
				sum[i] += w[e] *
					  (a.tw == DT_BF16 ? dt_bf16_to_f32(dt_f32_to_bf16(x[e])) : x[e]);
		}
	}
	DT_UNROLL
	for (int i = 0; i < M; i++) {
		const float s = dt_warp_sum(sum[i]);

		if (lane == i && row0 + i < end)
			dt_st1(a.y, a.ty, (row0 + i) * a.ld + a.first + col, s);
	}
}

/* Few rows a weight: each by itself. More: 4 at a time, where a weight's end fewer. */
static bool alone(const struct dt_sorted &s)
{
	return s.rows <= 2 * s.n;
}

template <int M> static int multiply_quants(const struct dt_cuda *c, const struct set_quants &a)
{
	const dim3 grid((unsigned)dt_ceil_div(a.rows, DT_PANEL), (unsigned)dt_sorted_tiles<M>(a.set));

	return DT_LAUNCH(c, set_quants_kernel<M>, grid, WARPS * 32,
			 SLAB * 2 * M * 16 * sizeof(struct set_term), a);
}

template <int M> static int multiply_numbers(const struct dt_cuda *c, const struct set_numbers &a)
{
	const dim3 grid((unsigned)dt_ceil_div(a.rows, 4), (unsigned)dt_sorted_tiles<M>(a.set));

	if (dt_by_8(a.k, a.x)) /* weights are allocated, so aligned */
		return DT_LAUNCH(c, (set_numbers_kernel<M, 8>), grid, 128, 0, a);
	return DT_LAUNCH(c, (set_numbers_kernel<M, 1>), grid, 128, 0, a);
}

static int numbers(struct dt_dev *dev, const struct set_numbers &a, struct dt_tensor y, struct dt_tensor x)
{
	const struct dt_cuda *c = (const struct dt_cuda *)dev->impl;

	if (a.set.rows > FEW * a.set.n && !dev->batch_invariant && a.ld == a.rows && a.tx == a.tw &&
	    (a.ty == a.tw || a.ty == DT_F32))
		return dt_cuda_matmul_sorted(c, y, x, a.rows, a.set);
	return alone(a.set) ? multiply_numbers<1>(c, a) : multiply_numbers<4>(c, a);
}

/* x as integers, each row where it is wanted, with room behind for the rest of a tile. */
static int round_rows(struct dt_dev *dev, const struct dt_cuda *c, struct set_round *a)
{
	const int64_t room = (a->rows + 3) * a->blocks;

	a->q = (int8_t *)dt_cuda_scratch(dev, (size_t)room * (DT_QK + sizeof(struct set_block)));
	if (!a->q)
		return -ENOMEM;
	a->b = (struct set_block *)(a->q + room * DT_QK);
	return DT_LAUNCH(c, set_round_kernel, (unsigned)dt_ceil_div(a->all, 8), 256, 0, *a);
}

int dt_cuda_packed_set_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			      const struct dt_packed_set *s, const struct dt_meet *meet)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct dt_packed *w = s->w[0];
	const int64_t m = dt_rows(y);
	int rc = 0;

	if (!c)
		return -ENODEV;
	struct set_round round = {NULL,
				  NULL,
				  x.data,
				  x.dtype,
				  dt_rows(x) * w->blocks,
				  w->blocks,
				  meet->used ? meet->at : NULL,
				  meet->used ? meet->used : 1,
				  m,
				  c->bad};

	for (int i = 0; i < w->nparts && rc == 0; i++) {
		const struct dt_packed_part *p = &w->part[i];
		const struct dt_quant_shape *q = dt_quant_shape(p->format);
		const struct dt_sorted set = {meet->first, s->there + (int64_t)i * s->n,   s->n,
					      m,	   meet->used ? meet->from : NULL, meet->used,
					      c->bad};

		if (dt_is_float(p->format)) {
			const int tw = p->format == DT_FMT_F32 ? DT_F32 : DT_BF16;

			rc = numbers(
				dev,
				{x.data, y.data, tw, x.dtype, y.dtype, p->rows, w->k, w->rows, p->first, set},
				y, x);
			continue;
		}
		if (!round.q && (rc = round_rows(dev, c, &round)) < 0)
			break;
		const struct set_quants a = {p->panel_bytes, p->format, q->quants, q->scales, q->supers,
					     q->offset,	     p->rows,	w->blocks, w->rows,   p->first,
					     round.q,	     round.b,	y.data,	   y.dtype,   set};

		rc = alone(set) ? multiply_quants<1>(c, a) : multiply_quants<4>(c, a);
	}
	return rc;
}
