/*
 * Integer products of quant.h's panels. Compiled once per instruction set; QUANT_NAME is the function,
 * QUANT_LANES 16 (AVX-512) or 8 (AVX2), with QUANT_VNNI for processors that add products of four bytes, or 4
 * (NEON, and its dot products of four bytes if the compiler may use them).
 *
 * A tile of ROWS rows of x by VECS vectors of outputs stays in registers: two panels with 16 lanes, one with
 * 8 or 4. All sums within a block are exact, and the f32 steps are quant.h's (the contract), so all of these
 * and quant_plain.c agree bit for bit.
 */
#include "kernels/cpu/quant_lanes.h"
#include "kernels/cpu/soon.h"

#if QUANT_LANES == 16
#define ROWS 6
#define VECS 2
#elif QUANT_LANES == 8
#define ROWS 4
#define VECS 2
#else
#define ROWS 4
#define VECS 4
#endif

#define SOON 5 /* lines per block of dt_soon_ask */

/* Weights to prefetch during products: `step` bytes per block from `at` on. */
struct ahead {
	const uint8_t *at;
	int64_t step;
};

/*
 * Without VNNI, x86 multiplies bytes and adds pairs in 16 bits. NARROW: sums stay in 16 bits for RUN pairs
 * of chunks, each of which adds at most 4 x 127 times the largest weight: 3, 7, 15, 24 (MXFP4), 31 or 63. Not
 * for weights that take all of a byte.
 */
#if QUANT_LANES >= 8 && !defined(QUANT_VNNI)
#define NARROW(f) (!dt_panel_wide(f))
#else
#define NARROW(f) false
#endif
#define RUN(f) (dt_panel_bits(f) == 6 ? 1 : dt_panel_bits(f) == 4 && !dt_panel_table(f) ? 4 : 2)

/*
 * Forces a sum to be computed here: gcc would keep the products in memory and add them at the end, clang
 * starts other sums until the registers run out.
 */
#ifdef __clang__
#define SUMMED(v) __asm__ volatile("" : "+v"(v))
#else
#define SUMMED(v) __asm__("" : "+v"(v))
#endif

/* acc += pairs of adjacent narrow sums. */
DT_INLINE vi widen(vi acc, vi run)
{
#if QUANT_LANES >= 8
	return V(add_epi32)(acc, V(madd_epi16)(run, V(set1_epi16)(1)));
#else
	(void)run;
	return acc;
#endif
}

#ifdef QUANT_VNNI /* dot multiplies unsigned by signed bytes as they are */
#elif QUANT_LANES == 16
DT_INLINE vi flip(vi w)
{
	return _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80));
}

/* x with the sign of w; where w is 0, anything: it is multiplied by 0. */
DT_INLINE vi with_sign(vi x, vi w)
{
	return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
}
#elif QUANT_LANES == 8
DT_INLINE vi flip(vi w)
{
	return _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
}

DT_INLINE vi with_sign(vi x, vi w)
{
	return _mm256_sign_epi8(x, w);
}
#endif

/* acc += w . x in groups of four, narrow sums in groups of two; w unsigned, x signed. */
DT_INLINE vi dot(vi acc, vi w, vi x, const enum dt_format f)
{
#if QUANT_LANES == 16 && defined(QUANT_VNNI)
	return _mm512_dpbusd_epi32(acc, w, x);
#elif defined(QUANT_VNNI)
	return _mm256_dpbusd_avx_epi32(acc, w, x);
#elif QUANT_LANES == 4
	const int8x16_t bytes = vreinterpretq_s8_s32(w);

	return neon_dot(acc, dt_panel_wide(f) ? veorq_s8(bytes, vdupq_n_s8(-128)) : bytes,
			vreinterpretq_s8_s32(x));
#else
	if (dt_panel_wide(f)) { /* for w - 128: 128 x 127 x 2 stays within 16 bits, 255 x 127 x 2 does not */
		w = flip(w);
		acc = widen(acc, V(maddubs_epi16)(V(abs_epi8)(w), with_sign(x, w)));
	} else {
		acc = V(add_epi16)(acc, V(maddubs_epi16)(w, x));
	}
	SUMMED(acc);
	return acc;
#endif
}

DT_INLINE vi start(const enum dt_format f, const struct dt_xblock *x, const int half)
{
#ifndef QUANT_VNNI
	if (dt_panel_wide(f)) /* dot subtracts the offset itself */
		return V(set1_epi32)(0);
#endif
	return V(set1_epi32)(offset_sum(f, x, half));
}

/* The integer sum of a half of a block of x. */
DT_INLINE vf half_sum(const struct dt_xblock *x, const int half)
{
	return V(set1_ps)((float)(x->start6[half] / -32));
}

/*
 * sum += scale times x's scale times acc, of a block or of its half; plus minimum times x's sum in formats
 * with minima.
 */
DT_INLINE void add_up(vf sum[VECS], const vi acc[VECS], const struct factors *w, const enum dt_format f,
		      const int half, const struct dt_xblock *x, const int vecs)
{
	DT_FOR (VECS, int v = 0; v < vecs; v++) {
		const vf s = V(mul_ps)(w[v].scale[half], V(set1_ps)(x->scale));

		sum[v] = V(fmadd_ps)(s, V(cvtepi32_ps)(acc[v]), sum[v]);
		if (dt_panel_minimum(f))
			sum[v] = V(fmadd_ps)(w[v].min[0], V(set1_ps)(x->sum), sum[v]);
	}
}

/* The same for joined halves with the integer sums first and acc. */
DT_INLINE void add_joined(vf sum[VECS], const vi first[VECS], const vi acc[VECS], const struct factors *w,
			  const struct dt_xblock *x, const int vecs)
{
	DT_FOR (VECS, int v = 0; v < vecs; v++) {
		const vf scale = V(set1_ps)(x->scale);
		const vf q = V(fmadd_ps)(w[v].scale[1], V(cvtepi32_ps)(acc[v]),
					 V(mul_ps)(w[v].scale[0], V(cvtepi32_ps)(first[v])));
		const vf m = V(fmadd_ps)(w[v].min[1], half_sum(x, 1), V(mul_ps)(w[v].min[0], half_sum(x, 0)));

		sum[v] = V(fmadd_ps)(V(mul_ps)(w[v].d, scale), q, sum[v]);
		sum[v] = V(fmadd_ps)(V(mul_ps)(w[v].dmin, scale), m, sum[v]);
	}
}

/* rows and vecs are constants after inlining. x has rows of 32 blocks bytes, xb of blocks. soon: also to
 * prefetch; NULL: nothing. */
DT_INLINE void block(float *tile, int64_t ld, const enum dt_format f, const struct column *c,
		     struct ahead *next, struct dt_soon_list *soon, const int8_t *x,
		     const struct dt_xblock *xb, int64_t blocks, const int rows, const int vecs)
{
	const int quants = 64 * dt_panel_bits(f), run = RUN(f);
	const bool narrow = NARROW(f), joined = dt_panel_joined(f), two = dt_panel_halves(f) || joined;
	vf sum[ROWS][VECS];

	DT_FOR (8, int r = 0; r < rows; r++)
		DT_FOR (VECS, int v = 0; v < vecs; v++)
			sum[r][v] = V(setzero_ps)();
	for (int64_t b = 0; b < blocks; b++) {
		struct factors by[VECS];
		vi acc[ROWS][VECS], part[ROWS][VECS], first[ROWS][VECS];

		/* Hardware prefetching does not cross panels, and stops where rows reread them. */
		for (int64_t i = 0; i < next->step; i += 64)
			dt_prefetch_ahead(next->at + i);
		next->at += next->step;
		if (soon)
			dt_soon_ask(soon, SOON);
		DT_FOR (VECS, int v = 0; v < vecs; v++)
			factors_of(&by[v], f, &c[v], b);
		DT_FOR (4, int i = 0; i < 4; i++) { /* pairs of chunks; two per half */
			vi w[VECS][2];

			DT_FOR (VECS, int v = 0; v < vecs; v++)
				unpack(w[v], f, c[v].quants + b * quants, i);
			DT_FOR (8, int r = 0; r < rows; r++)
				DT_FOR (VECS, int v = 0; v < vecs; v++) {
					if (i == 0 || (two && i == 2))
						acc[r][v] = start(f, &xb[r * blocks + b], i / 2);
					if (narrow && i % run == 0)
						part[r][v] = V(set1_epi32)(0);
				}
			DT_FOR (2, int e = 0; e < 2; e++)
				DT_FOR (8, int r = 0; r < rows; r++) {
					int32_t word;

					memcpy(&word, x + (r * blocks + b) * 32 + 8 * i + 4 * e, 4);
					DT_FOR (VECS, int v = 0; v < vecs; v++) {
						vi *to = narrow ? &part[r][v] : &acc[r][v];

						*to = dot(*to, w[v][e], V(set1_epi32)(word), f);
					}
				}
			DT_FOR (8, int r = 0; r < rows; r++) {
				DT_FOR (VECS, int v = 0; v < vecs; v++)
					if (narrow && i % run == run - 1)
						acc[r][v] = widen(acc[r][v], part[r][v]);
				if (joined && i == 1)
					DT_FOR (VECS, int v = 0; v < vecs; v++)
						first[r][v] = acc[r][v];
				else if (joined && i == 3)
					add_joined(sum[r], first[r], acc[r], by, &xb[r * blocks + b], vecs);
				else if (i == 3 || (two && i == 1))
					add_up(sum[r], acc[r], by, f, i / 2, &xb[r * blocks + b], vecs);
			}
		}
	}
	DT_FOR (8, int r = 0; r < rows; r++)
		DT_FOR (VECS, int v = 0; v < vecs; v++)
			V(storeu_ps)(tile + r * ld + v * QUANT_LANES, sum[r][v]);
}

/* Rows of the next call of block: sixes, then fours, which take a remainder of 2 or 3 along. */
DT_INLINE int64_t together(int64_t m)
{
#if ROWS > 2
	if (m >= ROWS && m != 8 && m != 9)
		return ROWS;
	if (m >= 4)
		return 4;
#endif
	return m >= 2 ? 2 : 1;
}

/* next_bytes: size of the weights used next, whose prefetch is spread over the blocks. */
DT_INLINE void all_rows(float *tile, int64_t ld, const enum dt_format f, const struct column *c,
			const uint8_t *next_at, size_t next_bytes, const int8_t *x,
			const struct dt_xblock *xb, int64_t m, int64_t blocks, const int vecs)
{
	struct ahead next = {next_at, 0};
	struct dt_soon_list *soon;
	int64_t calls = 0, n;

	for (int64_t r = 0; r < m; r += together(m - r))
		calls++;
	next.step = (int64_t)(next_bytes / 64) / (calls * blocks) * 64 + (next_bytes ? 64 : 0);
	for (int64_t r = 0; r < m; r += n) {
		float *to = tile + r * ld;
		const int8_t *row = x + r * blocks * 32;
		const struct dt_xblock *rb = xb + r * blocks;

		n = together(m - r);
		soon = n == ROWS ? dt_soon_take(m, SOON * 64 * blocks) : NULL;
#if ROWS > 2
		if (n == ROWS)
			block(to, ld, f, c, &next, soon, row, rb, blocks, ROWS, vecs);
		else if (n == 4)
			block(to, ld, f, c, &next, NULL, row, rb, blocks, 4, vecs);
		else
#endif
			if (n == 2)
			block(to, ld, f, c, &next, NULL, row, rb, blocks, 2, vecs);
		else
			block(to, ld, f, c, &next, NULL, row, rb, blocks, 1, vecs);
	}
}

DT_INLINE void panels_of(float *tile, int64_t ld, const enum dt_format f, const uint8_t *w,
			 size_t panel_bytes, int64_t panels, const uint8_t *next, const int8_t *x,
			 const struct dt_xblock *xb, int64_t m, int64_t blocks)
{
	struct column c[VECS];
	int64_t p = 0;

#if QUANT_LANES == 16
	for (; p + 2 <= panels; p += 2) {
		const uint8_t *then = p + 2 < panels ? w + (size_t)(p + 2) * panel_bytes : next;

		c[0] = column(f, w + (size_t)p * panel_bytes, blocks, 0);
		c[1] = column(f, w + (size_t)(p + 1) * panel_bytes, blocks, 0);
		all_rows(tile + p * DT_PANEL, ld, f, c, then, then ? 2 * panel_bytes : 0, x, xb, m, blocks,
			 2);
	}
	for (; p < panels; p++) {
		c[0] = column(f, w + (size_t)p * panel_bytes, blocks, 0);
		all_rows(tile + p * DT_PANEL, ld, f, c, next, next ? panel_bytes : 0, x, xb, m, blocks, 1);
	}
#else
	for (; p < panels; p++) {
		const uint8_t *then = p + 1 < panels ? w + (size_t)(p + 1) * panel_bytes : next;

		DT_FOR (VECS, int v = 0; v < VECS; v++)
			c[v] = column(f, w + (size_t)p * panel_bytes, blocks, v * QUANT_LANES);
		all_rows(tile + p * DT_PANEL, ld, f, c, then, then ? panel_bytes : 0, x, xb, m, blocks, VECS);
	}
#endif
}

#define QUANT_PANELS(format) panels_of(tile, ld, format, w, panel_bytes, panels, next, xq, xb, m, blocks)
DT_PANEL_FORMATS(QUANT_FUNCTION)

DT_QUANT_MUL(QUANT_NAME)
{
	switch (f) {
		DT_PANEL_FORMATS(QUANT_CASE)
	default:
		break;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
