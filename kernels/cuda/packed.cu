/*
 * quant.h on a card. Blocks of integers lie in the CPU's panels of 16 rows (kernels/cpu/quant.h): 16 threads
 * read a vector of 64 bytes, four elements of a row each. A block of threads has one panel and a few rows of
 * x: its warps find the integer sums of 64 blocks of k at a time, then one thread an output adds them up in
 * the order the contract gives. Every weight is read once for up to 4 rows of x.
 *
 * Numbers lie row by row: a warp has a row of w for up to 4 of x; many rows go to the products of matmul.cu.
 */
#include "kernels/cuda/sorted.h"

#define WARPS 8
#define SLAB  64 /* blocks of k at a time */
#define FEW   16 /* rows of x that are too few for tiles */

/* A block of a row of x. */
struct xblock {
	float scale, sum;
};

struct quant {
	const uint8_t *w;
	size_t panel_bytes;
	int format, quants, scales, supers, offset;
	int64_t rows, blocks, m, ld, first;
	const int8_t *q;	/* [m, 32 blocks] */
	const struct xblock *x; /* [m, blocks] */
	void *y;
	const void *bias;
	int ty, tb;
	struct dt_sorted set; /* then w is not looked at */
};

struct round_job {
	int8_t *q;
	struct xblock *b;
	const void *x;
	int t;
	int64_t blocks; /* of all rows */
};

/* A warp has a block of 32 elements. NaN and Inf, whose bits are the largest, make its scale NaN. */
__global__ void __launch_bounds__(256) round_kernel(struct round_job a)
{
	const int lane = (int)threadIdx.x % 32;
	const int64_t b = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
	float v, scale, inverse;
	uint32_t max;
	int sum;

	if (b >= a.blocks)
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
	sum = inverse != 0 ? (int)rintf(v * inverse) : 0;
	a.q[b * DT_QK + lane] = (int8_t)sum;
	sum = dt_warp_sum(sum);
	if (lane == 0)
		a.b[b] = xblock{scale, scale * (float)sum};
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
DT_DEVICE void integers(const struct quant &a, const uint8_t *q, const int8_t *x, int64_t next, int r,
			int odd, int (&sum)[M][2])
{
	DT_UNROLL
	for (int i = 0; i < M; i++)
		sum[i][0] = sum[i][1] = 0;
	for (int v = odd; v < (a.format == DT_FMT_Q8_0 ? 8 : 4); v += 2) {
		const uint32_t w = word_at(q + v * 64 + 4 * r);
		uint32_t lo, hi = 0;

		if (a.format == DT_FMT_Q8_0) {
			lo = w ^ 0x80808080u;
			DT_UNROLL
			for (int i = 0; i < M; i++)
				sum[i][0] = dot4(lo, word_at(x + i * next + 4 * v), sum[i][0]);
			continue;
		}
		lo = w & 0x0f0f0f0fu;
		hi = w >> 4 & 0x0f0f0f0fu;
		if (a.format == DT_FMT_Q6_K) {
			const uint32_t two = word_at(q + 256 + v / 2 * 64 + 4 * r) >> v % 2 * 4;

			lo |= (two & 0x03030303u) << 4;
			hi |= (two >> 2 & 0x03030303u) << 4;
		}
		lo = less(lo, a.offset);
		hi = less(hi, a.offset);
		DT_UNROLL
		for (int i = 0; i < M; i++) {
			int s = dot4(lo, word_at(x + i * next + 8 * v), 0);

			s = dot4(hi, word_at(x + i * next + 8 * v + 4), s);
			if (a.format == DT_FMT_Q6_K && v >= 2)
				sum[i][1] += s;
			else
				sum[i][0] += s;
		}
	}
}

/* What the sums of block b are multiplied by, in row r; [1]: the minimum, or of the second half. */
DT_DEVICE void factors(const struct quant &a, const uint8_t *panel, int64_t b, int r, float f[2])
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

struct pair {
	float a, b;
};

template <int M> __global__ void __launch_bounds__(WARPS * 32) quant_kernel(struct quant a)
{
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, r = lane % 16, odd = lane / 16;
	const int64_t next = a.blocks * DT_QK;
	int64_t row0 = (int64_t)blockIdx.y * M, end = row0 + M;
	const void *w = a.w;
	const bool two = a.format != DT_FMT_Q8_0 && a.format != DT_FMT_Q4_0;
	struct pair *term = (struct pair *)dt_shared(); /* [SLAB][2][M][16] */
	float s = 0;

	if (a.set.n && !dt_sorted_tile<M>(a.set, blockIdx.y, &row0, &end, &w))
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
				const struct xblock x = a.x[(row0 + i) * a.blocks + b];
				struct pair *to = term + ((j * 2 + odd) * M + i) * 16 + r;

				if (!odd)
					*to = pair{f[0] * x.scale, (float)sum[i][0]};
				else if (two)
					*to = a.format == DT_FMT_Q6_K ? pair{f[1] * x.scale, (float)sum[i][1]}
								      : pair{f[1], x.sum};
			}
		}
		__syncthreads();
		if ((int)threadIdx.x < 16 * M)
			for (int j = 0; j < n; j++) {
				const struct pair *t = term + (int64_t)j * 2 * M * 16 + threadIdx.x;

				s = fmaf(t[0].a, t[0].b, s);
				if (two)
					s = fmaf(t[M * 16].a, t[M * 16].b, s);
			}
		__syncthreads();
	}
	const int64_t col = (int64_t)blockIdx.x * DT_PANEL + threadIdx.x % 16, row = row0 + threadIdx.x / 16;

	if (row >= end || col >= a.rows)
		return;
	if (a.bias)
		s += dt_ld1(a.bias, a.tb, a.first + col);
	dt_st1(a.y, a.ty, row * a.ld + a.first + col, s);
}

struct numbers {
	const void *w, *x, *bias;
	void *y;
	int tw, tx, ty, tb;
	int64_t rows, k, ld, first;
	struct dt_sorted set; /* then w is not looked at */
};

/* A warp has a row of w. V elements at a time. */
template <int M, int V> __global__ void __launch_bounds__(128) number_kernel(struct numbers a)
{
	const int lane = (int)threadIdx.x % 32;
	const int64_t col = (int64_t)blockIdx.x * 4 + threadIdx.x / 32;
	int64_t row0 = (int64_t)blockIdx.y * M, end = row0 + M;
	const void *of = a.w;
	float sum[M];

	if (col >= a.rows || (a.set.n && !dt_sorted_tile<M>(a.set, blockIdx.y, &row0, &end, &of)))
		return;
	DT_UNROLL
	for (int i = 0; i < M; i++)
		sum[i] = 0;
	for (int64_t k = (int64_t)lane * V; k < a.k; k += 32 * V) {
		float w[V], x[V];

		dt_ld<V>(w, of, a.tw, col * a.k + k);
		DT_UNROLL
		for (int i = 0; i < M; i++) {
			if (row0 + i >= end)
				break;
			dt_ld<V>(x, a.x, a.tx, (row0 + i) * a.k + k);
			DT_UNROLL
			for (int e = 0; e < V; e++)
				sum[i] += w[e] *
					  (a.tw == DT_BF16 ? dt_bf16_to_f32(dt_f32_to_bf16(x[e])) : x[e]);
		}
	}
	DT_UNROLL
	for (int i = 0; i < M; i++) {
		float s = dt_warp_sum(sum[i]);

		if (lane == i && row0 + i < end) {
			if (a.bias)
				s += dt_ld1(a.bias, a.tb, a.first + col);
			dt_st1(a.y, a.ty, (row0 + i) * a.ld + a.first + col, s);
		}
	}
}

/* Rows [r, r + M) of x; smem as the kernels want it. */
template <int M> static int quant_rows(const struct dt_cuda *c, struct quant a, int64_t r, int64_t n)
{
	const size_t smem = SLAB * 2 * M * 16 * sizeof(struct pair);

	a.q += r * a.blocks * DT_QK;
	a.x += r * a.blocks;
	a.y = (char *)a.y + (size_t)(r * a.ld) * (size_t)dt_dtype_size((enum dt_dtype)a.ty);
	return DT_LAUNCH(c, quant_kernel<M>, dim3((unsigned)dt_ceil_div(a.rows, DT_PANEL), (unsigned)(n / M)),
			 WARPS * 32, smem, a);
}

template <int M> static int number_rows(const struct dt_cuda *c, struct numbers a, int64_t r, int64_t n)
{
	const dim3 grid((unsigned)dt_ceil_div(a.rows, 4), (unsigned)(n / M));

	a.x = (const char *)a.x + (size_t)(r * a.k) * (size_t)dt_dtype_size((enum dt_dtype)a.tx);
	a.y = (char *)a.y + (size_t)(r * a.ld) * (size_t)dt_dtype_size((enum dt_dtype)a.ty);
	if (dt_by_8(a.k, a.w, a.x))
		return DT_LAUNCH(c, (number_kernel<M, 8>), grid, 128, 0, a);
	return DT_LAUNCH(c, (number_kernel<M, 1>), grid, 128, 0, a);
}

static int multiply_quants(const struct dt_cuda *c, const struct quant &a)
{
	const int64_t four = a.m / 4 * 4;
	int rc = four ? quant_rows<4>(c, a, 0, four) : 0;

	return rc < 0 || four == a.m ? rc : quant_rows<1>(c, a, four, a.m - four);
}

static int multiply_numbers(struct dt_dev *dev, const struct numbers &a, int64_t m, struct dt_tensor y,
			    struct dt_tensor x, struct dt_tensor bias)
{
	const struct dt_cuda *c = (const struct dt_cuda *)dev->impl;
	const int64_t four = m / 4 * 4;
	int rc;

	if (m > FEW && !dev->batch_invariant && a.ld == a.rows && a.tx == a.tw &&
	    (a.ty == a.tw || a.ty == DT_F32) && (!a.bias || a.tb == a.tw))
		return dt_cuda_matmul(dev, y, x, false, dt_t2((void *)a.w, (enum dt_dtype)a.tw, a.rows, a.k),
				      true, bias, false);
	rc = four ? number_rows<4>(c, a, 0, four) : 0;
	return rc < 0 || four == m ? rc : number_rows<1>(c, a, four, m - four);
}

int dt_cuda_packed_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			  const struct dt_packed *w, struct dt_tensor bias)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t m = dt_rows(x), blocks = m * w->blocks;
	struct round_job round = {NULL, NULL, x.data, x.dtype, blocks};
	int rc = c ? 0 : -ENODEV;

	for (int i = 0; i < w->nparts && rc == 0; i++) {
		const struct dt_packed_part *p = &w->part[i];
		const struct dt_quant_shape *s = dt_quant_shape(p->format);

		if (dt_is_float(p->format)) {
			const struct numbers a = {p->data,
						  x.data,
						  bias.data,
						  y.data,
						  p->format == DT_FMT_F32 ? DT_F32 : DT_BF16,
						  x.dtype,
						  y.dtype,
						  bias.dtype,
						  p->rows,
						  w->k,
						  w->rows,
						  p->first};

			rc = multiply_numbers(dev, a, m, y, x, bias);
			continue;
		}
		if (!round.q) {
			round.q = (int8_t *)dt_cuda_scratch(dev,
							    (size_t)blocks * (DT_QK + sizeof(struct xblock)));
			if (!round.q)
				return -ENOMEM;
			round.b = (struct xblock *)(round.q + blocks * DT_QK);
			rc = DT_LAUNCH(c, round_kernel, (unsigned)dt_ceil_div(blocks, 8), 256, 0, round);
		}
		const struct quant a = {p->data,   p->panel_bytes, p->format, s->quants, s->scales,
					s->supers, s->offset,	   p->rows,   w->blocks, m,
					w->rows,   p->first,	   round.q,   round.b,	 y.data,
					bias.data, y.dtype,	   bias.dtype};

		rc = rc < 0 ? rc : multiply_quants(c, a);
	}
	return rc;
}

/* Few rows a weight: every row by itself. More: 4 at a time, where they end fewer. */
static bool alone(const struct dt_sorted &s)
{
	return s.rows <= 2 * s.n;
}

static int set_quants(const struct dt_cuda *c, const struct quant &a)
{
	const int64_t tiles = alone(a.set) ? dt_sorted_tiles<1>(a.set) : dt_sorted_tiles<4>(a.set);

	return alone(a.set) ? quant_rows<1>(c, a, 0, tiles) : quant_rows<4>(c, a, 0, 4 * tiles);
}

static int set_numbers(struct dt_dev *dev, const struct numbers &a, struct dt_tensor y, struct dt_tensor x)
{
	const struct dt_cuda *c = (const struct dt_cuda *)dev->impl;

	if (a.set.rows > FEW * a.set.n && !dev->batch_invariant && a.ld == a.rows && a.tx == a.tw &&
	    (a.ty == a.tw || a.ty == DT_F32))
		return dt_cuda_matmul_sorted(c, y, x, a.rows, a.set);
	if (alone(a.set))
		return number_rows<1>(c, a, 0, dt_sorted_tiles<1>(a.set));
	return number_rows<4>(c, a, 0, 4 * dt_sorted_tiles<4>(a.set));
}

/* As above, all weights of the set in one launch a part. */
int dt_cuda_packed_set_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			      const struct dt_packed_set *s, const int32_t *first)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct dt_packed *w = s->w[0];
	const int64_t m = dt_rows(x), blocks = m * w->blocks, room = (m + 3) * w->blocks; /* tiles read on */
	struct round_job round = {NULL, NULL, x.data, x.dtype, blocks};
	int rc = c ? 0 : -ENODEV;

	for (int i = 0; i < w->nparts && rc == 0; i++) {
		const struct dt_packed_part *p = &w->part[i];
		const struct dt_quant_shape *q = dt_quant_shape(p->format);
		const struct dt_sorted set = {first, s->there + i * s->n, s->n, m};

		if (dt_is_float(p->format)) {
			const int tw = p->format == DT_FMT_F32 ? DT_F32 : DT_BF16;

			rc = set_numbers(dev,
					 {p->data, x.data, NULL, y.data, tw, x.dtype, y.dtype, 0, p->rows,
					  w->k, w->rows, p->first, set},
					 y, x);
			continue;
		}
		if (!round.q) {
			round.q = (int8_t *)dt_cuda_scratch(dev,
							    (size_t)room * (DT_QK + sizeof(struct xblock)));
			if (!round.q)
				return -ENOMEM;
			round.b = (struct xblock *)(round.q + room * DT_QK);
			rc = DT_LAUNCH(c, round_kernel, (unsigned)dt_ceil_div(blocks, 8), 256, 0, round);
		}
		rc = rc < 0 ? rc
			    : set_quants(c, {p->data, p->panel_bytes, p->format, q->quants, q->scales,
					     q->supers, q->offset, p->rows, w->blocks, m, w->rows, p->first,
					     round.q, round.b, y.data, NULL, y.dtype, 0, set});
	}
	return rc;
}

struct embed {
	const uint8_t *w;
	void *y;
	const int32_t *ids;
	struct quant a; /* of the panels: format and planes */
	int64_t n, k, rows;
	float scale;
	int32_t *bad;
};

/* Element j of row r of a panel, without its offset. */
DT_DEVICE int integer_at(const struct quant &a, const uint8_t *q, int r, int j)
{
	const int c = j / 4, byte = 4 * r + j % 4;
	int v;

	if (a.format == DT_FMT_Q8_0)
		return q[c * 64 + byte] - 128;
	v = q[c / 2 * 64 + byte] >> (c & 1 ? 4 : 0) & 15;
	if (a.format == DT_FMT_Q6_K)
		v |= (q[256 + c / 4 * 64 + byte] >> c % 4 * 2 & 3) << 4;
	return v - a.offset;
}

/* The part of the table that has rows [first, first + rows). */
__global__ void __launch_bounds__(256) embed_kernel(struct embed e)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < e.n * e.k; i += step) {
		const int64_t t = i / e.k, j = i % e.k, id = (int64_t)e.ids[t] - e.a.first;
		float v;

		if (e.ids[t] < 0 || e.ids[t] >= e.rows)
			*e.bad = 1;
		if (id < 0 || id >= e.a.rows)
			continue;
		if (e.a.format == DT_FMT_F32 || e.a.format == DT_FMT_BF16) {
			v = dt_ld1(e.a.w, e.a.format == DT_FMT_F32 ? DT_F32 : DT_BF16, id * e.k + j);
		} else {
			const uint8_t *panel = e.a.w + id / DT_PANEL * e.a.panel_bytes;
			const int r = (int)(id % DT_PANEL);
			float f[2];

			factors(e.a, panel, j / DT_QK, r, f);
			v = (e.a.format == DT_FMT_Q6_K ? f[j / 16 % 2] : f[0]) *
			    (float)integer_at(e.a, panel + j / DT_QK * e.a.quants, r, (int)(j % DT_QK));
			if (e.a.format == DT_FMT_Q4_1 || e.a.format == DT_FMT_Q4_K)
				v = dt_plus(v, f[1]);
		}
		dt_st1(e.y, e.a.ty, i, v * e.scale);
	}
}

int dt_cuda_packed_embed(struct dt_dev *dev, struct dt_tensor y, const struct dt_packed *w,
			 const int32_t *ids, float scale)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	int rc = c ? 0 : -ENODEV;

	for (int i = 0; i < w->nparts && rc == 0; i++) {
		const struct dt_packed_part *p = &w->part[i];
		const struct dt_quant_shape *s = dt_quant_shape(p->format);
		struct embed e = {p->data, y.data, ids, {}, dt_rows(y), w->k, w->rows, scale, c->bad};

		e.a.w = p->data;
		e.a.panel_bytes = p->panel_bytes;
		e.a.format = p->format;
		e.a.quants = s->quants;
		e.a.scales = s->scales;
		e.a.supers = s->supers;
		e.a.offset = s->offset;
		e.a.blocks = w->blocks;
		e.a.rows = p->rows;
		e.a.first = p->first;
		e.a.ty = y.dtype;
		rc = DT_LAUNCH(c, embed_kernel, dt_blocks(c, e.n * e.k, 256), 256, 0, e);
	}
	return rc;
}
