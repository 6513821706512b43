/*
 * Shared by the products with quantised weights (quant.h, kernels/cpu/quant.h): the job, and the decoding of
 * panels.
 */
#ifndef DT_KERNELS_CUDA_PACKED_H
#define DT_KERNELS_CUDA_PACKED_H

#include "kernels/cuda/act.h"
#include "kernels/cuda/norm_front.h"
#include "kernels/cuda/sorted.h"

/* Metadata of a block of a row of x. */
struct xblock {
	float scale, sum;
};

#define DT_BESIDE 2 /* maximum number of further parts */

/* A further part of the weights that the same launch multiplies. */
struct beside {
	const void *w;
	int64_t rows, first;
};

/* Residual: sum = x + results; sum may alias x. */
struct residual {
	const void *x;
	void *sum; /* NULL: no residual */
	int t;
};

struct quant {
	const uint8_t *w;
	size_t panel_bytes;
	int format, quants, scales, supers, offset;
	int64_t rows, blocks, m, ld, first;
	const void *raw; /* x [m, 32 blocks] of type tx */
	int tx;
	bool fast;		/* raw can be read 16 bytes at a time */
	const int8_t *q;	/* quantised x, where dt_quant_wants_x */
	const struct xblock *x; /* [m, blocks] */
	void *y;
	const void *bias;
	int ty, tb;
	struct dt_sorted set; /* if it is a set, w is not used */
	struct beside more[DT_BESIDE];
	int nmore;
	int gate; /* 0: none; 1 + f: y = f(first part) second part */
	struct residual add;
	struct dt_late_norm front; /* the norm that produces raw */
	int64_t tile;		   /* the first tile of this launch */
};

DT_DEVICE uint32_t word_at(const void *p)
{
	dt_touch(p, 4);
	return *(const uint32_t *)p;
}

/* s plus the dot product of four signed bytes. */
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

struct four {
	uint32_t w[4];
};

DT_DEVICE struct four four_of(const uint4 &u)
{
	const struct four f = {{u.x, u.y, u.z, u.w}};

	return f;
}

DT_DEVICE struct four four_at(const void *p)
{
	dt_touch(p, 16);
	return four_of(*(const uint4 *)p);
}

DT_DEVICE struct xblock xblock_at(const struct xblock *p)
{
	struct xblock b;

	dt_touch(p, 8);
	const uint2 u = *(const uint2 *)p;

	memcpy(&b, &u, 8);
	return b;
}

/* Four bytes 0 .. 255 minus an offset of up to 128, as signed bytes. */
DT_DEVICE uint32_t less(uint32_t a, int offset)
{
	return ((a | 0x80808080u) - (uint32_t)offset * 0x01010101u) ^ 0x80808080u;
}

DT_DEVICE float half_at(const uint8_t *p)
{
	dt_touch(p, 2);
	return dt_f16_wide(*(const uint16_t *)p);
}

DT_DEVICE float bf16_at(const uint8_t *p)
{
	dt_touch(p, 2);
	return dt_bf16_to_f32(*(const uint16_t *)p);
}

/* Whether integers are stored unsigned, with an offset below 128. */
static inline DT_HOST_DEVICE constexpr bool has_offset(int format)
{
	return format == DT_FMT_Q6_K || format == DT_FMT_Q3_K || format == DT_FMT_Q4_0;
}

/* Whether halves of blocks have factors of their own. */
static inline DT_HOST_DEVICE constexpr bool has_halves(int format)
{
	return dt_panel_halves(format) || dt_panel_joined(format);
}

/* Selects bytes 0 .. 7 of two words by the four low nibbles of sel (PRMT). */
DT_DEVICE uint32_t bytes_of(uint32_t low, uint32_t high, uint32_t sel)
{
#ifdef __CUDA_ARCH__
	return __byte_perm(low, high, sel);
#else
	const uint64_t all = (uint64_t)high << 32 | low;
	uint32_t r = 0;

	for (int i = 0; i < 4; i++)
		r |= (uint32_t)(all >> 8 * (sel >> 4 * i & 7) & 255) << 8 * i;
	return r;
#endif
}

/* Four 4-bit codes, one per byte, replaced by the bytes of a table: values of codes 0 .. 7 and 8 .. 15. */
DT_DEVICE uint32_t looked_up(uint32_t codes, uint2 first, uint2 second)
{
	const uint32_t above = (codes >> 3 & 0x01010101u) * 255u;
	uint32_t sel = codes & 0x07070707u;

	sel = (sel | sel >> 4) & 0x00ff00ffu;
	sel = (sel | sel >> 8) & 0xffffu;
	return (bytes_of(first.x, first.y, sel) & ~above) | (bytes_of(second.x, second.y, sel) & above);
}

/* The signed integers of four codes of table formats: their values (format/format.h). */
DT_DEVICE uint32_t table_bytes(int format, uint32_t codes)
{
	const uint2 e2m1[2] = {{0x03020100u, 0x0c080604u}, {0xfdfeff00u, 0xf4f8fafcu}};
	const uint2 iq4[2] = {{0xbfad9881u, 0xf6eaddcfu}, {0x26190d01u, 0x71594535u}};
	const uint2 iq3_s[2] = {{0x07050301u, 0x0f0d0b09u}, {0xf9fbfdffu, 0xf1f3f5f7u}};
	const uint2 iq3_xxs[2] = {{0x1c140c04u, 0x3e342c24u}, {0xe4ecf4fcu, 0xc2ccd4dcu}};
	const uint2 iq2 = {0x002b1908u, 0x00d5e7f8u};

	if (format == DT_FMT_MXFP4)
		return looked_up(codes, e2m1[0], e2m1[1]);
	if (format == DT_FMT_IQ3_S)
		return looked_up(codes, iq3_s[0], iq3_s[1]);
	if (format == DT_FMT_IQ3_XXS)
		return looked_up(codes, iq3_xxs[0], iq3_xxs[1]);
	return format == DT_FMT_IQ4_XS ? looked_up(codes, iq4[0], iq4[1]) : looked_up(codes, iq2, iq2);
}

/*
 * The chunks 2 v and 2 v + 1 of a block of one row as signed bytes, from its words in the planes of
 * kernels/cpu/quant.h: nibbles of vector v, pairs of bits of vector v / 2, single bits. Not for bytes.
 */
template <int F>
DT_DEVICE void chunks_of(uint32_t nibbles, uint32_t pairs, uint32_t singles, int offset, int v,
			 uint32_t (&c)[2])
{
	constexpr int bits = dt_panel_bits(F), high = bits & 4;

	c[0] = c[1] = 0;
	if (bits & 4) {
		c[0] = nibbles & 0x0f0f0f0fu;
		c[1] = nibbles >> 4 & 0x0f0f0f0fu;
	}
	if (bits & 2) {
		c[0] |= (pairs >> v % 2 * 4 & 0x03030303u) << high;
		c[1] |= (pairs >> (v % 2 * 4 + 2) & 0x03030303u) << high;
	}
	if (bits & 1) {
		c[0] |= (singles >> 2 * v & 0x01010101u) << (bits - 1);
		c[1] |= (singles >> (2 * v + 1) & 0x01010101u) << (bits - 1);
	}
	for (int e = 0; e < 2; e++) {
		if (dt_panel_table(F))
			c[e] = table_bytes(F, c[e]);
		else if (has_offset(F))
			c[e] = less(c[e], offset);
	}
}

/*
 * Factors of a block's integer sums in row r of its panel; f[1]: the minimum, or the factor of the second
 * half. s: the block's scales, u: the supers of its eight blocks (kernels/cpu/quant.h). Not for joined
 * halves.
 */
DT_DEVICE void factors(int format, const uint8_t *s, const uint8_t *u, int r, float f[2])
{
	f[1] = 0;
	if (dt_is_k_min(format)) {
		f[0] = half_at(u + 2 * r) * (float)s[r];
		f[1] = -half_at(u + 32 + 2 * r) * (float)s[16 + r];
	} else if (dt_panel_halves(format)) {
		f[0] = half_at(u + 2 * r) * dt_panel_factor(format) * (float)(int8_t)s[r];
		f[1] = half_at(u + 2 * r) * dt_panel_factor(format) * (float)(int8_t)s[16 + r];
	} else if (dt_panel_signed(format)) {
		f[0] = half_at(u + 2 * r) * dt_panel_factor(format) * (float)(int8_t)s[r];
	} else if (format == DT_FMT_MXFP4) {
		f[0] = bf16_at(s + 2 * r);
	} else {
		f[0] = half_at(s + 2 * r);
		f[1] = dt_panel_half_min(format) ? half_at(s + 32 + 2 * r) : 0;
	}
}

/* The same for rows 4 quad .. + 3, as stored: two groups of four f16, four bytes. */
struct scales {
	uint2 d, m;
	uint32_t a, b;
};

DT_DEVICE uint2 two_at(const void *p)
{
	dt_touch(p, 8);
	return *(const uint2 *)p;
}

DT_DEVICE struct scales scales_at(int format, const uint8_t *s, const uint8_t *u, int quad)
{
	const bool k = dt_panel_supers(format);
	const uint8_t *halves = (k ? u : s) + 8 * quad;
	struct scales r = {{0, 0}, {0, 0}, 0, 0};

	r.d = two_at(halves);
	if (dt_panel_minimum(format) || dt_panel_joined(format))
		r.m = two_at(halves + 32);
	if (k)
		r.a = word_at(s + 4 * quad);
	if (k && !dt_panel_signed(format))
		r.b = word_at(s + 16 + 4 * quad);
	return r;
}

/* The i-th of four f16. */
DT_DEVICE float half_of(const uint2 &h, int i)
{
	return dt_f16_wide((uint16_t)((i < 2 ? h.x : h.y) >> 16 * (i % 2)));
}

DT_DEVICE float bf16_of(const uint2 &h, int i)
{
	return dt_bf16_to_f32((uint16_t)((i < 2 ? h.x : h.y) >> 16 * (i % 2)));
}

/* The results of factors() for all four rows; of joined halves the factors of what `joined` returns. */
DT_DEVICE void four_factors(int format, const struct scales &s, float (&f)[4][2])
{
	DT_UNROLL
	for (int i = 0; i < 4; i++) {
		const uint8_t a = (uint8_t)(s.a >> 8 * i), b = (uint8_t)(s.b >> 8 * i);
		const float d = format == DT_FMT_MXFP4 ? bf16_of(s.d, i) : half_of(s.d, i),
			    m = half_of(s.m, i);

		f[i][0] = d;
		f[i][1] = dt_panel_joined(format) ? -m : m;
		if (dt_is_k_min(format)) {
			f[i][0] = d * (float)a;
			f[i][1] = -m * (float)b;
		} else if (dt_panel_halves(format) || dt_panel_signed(format)) {
			f[i][0] = d * dt_panel_factor(format) * (float)(int8_t)a;
			f[i][1] = d * dt_panel_factor(format) * (float)(int8_t)b;
		}
	}
}

/* Joined halves of row i of the four: their sums weighted by the scales, or by the minima; exact. */
DT_DEVICE float joined(const struct scales &s, int i, bool minima, float first, float second)
{
	const uint32_t by = minima ? 4 : 0;

	return fmaf((float)(s.b >> (8 * i + by) & 15), second, (float)(s.a >> (8 * i + by) & 15) * first);
}

/* Whether a block is added in two steps: two halves, or integers and minimum. */
static inline DT_HOST_DEVICE constexpr bool two_terms(int format)
{
	return has_halves(format) || dt_panel_minimum(format);
}

/* Addresses in a panel of the scales and supers of block b. */
DT_DEVICE const uint8_t *scales_of(const struct quant &a, const uint8_t *panel, int64_t b)
{
	return panel + a.blocks * a.quants + b * a.scales;
}

DT_DEVICE const uint8_t *supers_of(const struct quant &a, const uint8_t *panel, int64_t b)
{
	return panel + a.blocks * (a.quants + a.scales) + b / 8 * a.supers;
}

template <int FORMAT> struct in {
	static constexpr int format = FORMAT;
};

/* Calls go with the format as a constant. */
template <class G> static int in_format(int format, G go)
{
	switch (format) {
#define DT_IN_FORMAT(NAME, name)                                                                             \
	case DT_FMT_##NAME:                                                                                  \
		return go(in<DT_FMT_##NAME>());
		DT_PANEL_FORMATS(DT_IN_FORMAT)
	default:
		return -EINVAL;
	}
}

/* A product with float weights, row-major. */
struct numbers {
	const void *w, *x, *bias;
	void *y;
	int tw, tx, ty, tb;
	int64_t rows, m, k, ld, first;
	struct dt_sorted set; /* if it is a set, w is not used */
	struct beside more[DT_BESIDE];
	int nmore, gate; /* as in quant */
	struct residual add;
	struct dt_late_norm front; /* the norm that produces x */
	int64_t tile;		   /* the first tile of this launch */
};

/* Thread blocks for all parts, `each` rows per block. */
template <class J> static int64_t blocks_of(const J &a, int each)
{
	int64_t n = dt_ceil_div(a.rows, each);

	for (int i = 0; i < a.nmore && !a.gate; i++)
		n += dt_ceil_div(a.more[i].rows, each);
	return n;
}

/* The part that a thread block works on; *block becomes its index in that part. */
template <class J> DT_DEVICE struct beside part_of(const J &a, const void *w, int each, int64_t *block)
{
	struct beside p = {w, a.rows, a.first};

	DT_UNROLL
	for (int i = 0; i < DT_BESIDE; i++) {
		const int64_t n = dt_ceil_div(p.rows, each);

		if (a.gate || i >= a.nmore || *block < n)
			return p;
		*block -= n;
		p = a.more[i];
	}
	return p;
}

/* The residual for a result. */
template <class J> DT_DEVICE float residual_at(const J &a, const struct beside &p, int64_t row, int64_t col)
{
	return a.add.sum ? dt_ld1(a.add.x, a.add.t, row * a.ld + p.first + col) : 0;
}

/* Stores a sum of part p with bias; with a gate also uses the sum of the part before. to: residual_at. */
template <class J>
DT_DEVICE void finish(const J &a, const struct beside &p, int64_t row, int64_t col, float s, float gate,
		      float to)
{
	float slope;

	if (a.bias)
		s += dt_ld1(a.bias, a.tb, p.first + col);
	if (a.gate == 0) {
		dt_st1(a.y, a.ty, row * a.ld + p.first + col, s);
		if (a.add.sum)
			dt_st1(a.add.sum, a.add.t, row * a.ld + p.first + col, to + dt_rounded(s, a.ty));
		return;
	}
	if (a.bias)
		gate += dt_ld1(a.bias, a.tb, a.first + col);
	dt_st1(a.y, a.ty, row * a.ld + col,
	       dt_act(dt_rounded(gate, a.ty), a.gate - 1, &slope) *
		       dt_act_up(dt_rounded(s, a.ty), a.gate - 1, &slope));
}

/* Few rows per weight: rows one by one. More: 4 at a time. */
static inline bool alone(const struct dt_sorted &s)
{
	return s.rows <= 2 * s.n;
}

/* Tiles of M rows of x. */
template <int M, class J> static int64_t tiles_of(const J &a)
{
	return a.set.n ? dt_sorted_tiles<M>(a.set) : dt_ceil_div(a.m, M);
}

/* Rows [*row, *end), at most M, and weight of tile t. false: no such tile. */
template <int M, class J>
DT_DEVICE bool tile_of(const J &a, int64_t t, int64_t *row, int64_t *end, const void **w)
{
	if (a.set.n)
		return dt_sorted_tile<M>(a.set, t, row, end, w);
	*row = t * M;
	*end = dt_min64(a.m, *row + M);
	*w = a.w;
	return true;
}

/*
 * packed_numbers.cu: multiplies all rows of x, with bits that do not depend on their number. Further parts,
 * gates, residuals and fused norms only if dt_numbers_fast.
 */
static inline bool dt_numbers_fast(const struct numbers &a)
{
	return a.tx == a.tw && a.k % (16 / dt_dtype_size((enum dt_dtype)a.tw)) == 0 && dt_aligned(a.w) &&
	       dt_aligned(a.x);
}
int dt_number_rows(const struct dt_cuda *c, const struct numbers &a);

/* Multiply all rows of x, with the same bits: packed_rows.cu for few rows, packed_tiles.cu for many on tensor
 * cores. */
int dt_quant_rows(const struct dt_cuda *c, const struct quant &a);
/* Whether x must be quantised beforehand; for one or two rows every thread block does it itself. */
static inline bool dt_quant_wants_x(int64_t m, const struct dt_sorted &set)
{
	return set.n ? !alone(set) : m > 2;
}
int dt_quant_tiles(const struct dt_cuda *c, const struct quant &a);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
