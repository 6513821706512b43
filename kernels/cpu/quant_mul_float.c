/*
 * Products of bf16 and f32 panels. Compiled once per instruction set; QUANT_NAME is the function, QUANT_LANES
 * the floats per vector, QUANT_ROWS rows of x and QUANT_VECS (2) vectors of outputs in registers, QUANT_F32
 * for f32, and QUANT_PAIRS if the processor multiplies pairs of bf16. QUANT_ASKING: the rows of the next
 * layer's cache are prefetched, too (soon.h), by dt_quant_mul_bf16_pairs_asking, which QUANT_ASKED calls if
 * there are any. It is compiled apart, as gcc makes the products themselves 4 % slower beside it.
 */
#include "kernels/cpu/quant.h"
#include "kernels/cpu/soon.h"

#ifdef QUANT_PAIRS
#include <immintrin.h>
#endif

#define L    QUANT_LANES
#define ROWS QUANT_ROWS
#ifdef QUANT_VECS
#define VECS QUANT_VECS
#else
#define VECS 2
#endif
#ifdef QUANT_F32
#define WORD 1 /* elements per word */
#else
#define WORD 2
#endif

#define SOON	   4 /* words per call of dt_soon_ask, and its lines */
#define SOON_LINES 2

typedef float vec __attribute__((vector_size(L * 4), aligned(4)));
typedef uint32_t words __attribute__((vector_size(L * 4), aligned(4)));

/* sum += x . w over a word: one f32, or a pair of bf16, the even one first. */
DT_INLINE vec step(vec sum, uint32_t x, words w)
{
#ifdef QUANT_PAIRS
	return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)x), (__m512bh)w);
#elif defined(QUANT_F32)
	float f;

	memcpy(&f, &x, 4);
	return sum + f * (vec)w;
#else
	words all = x - (words){0};

#if L > 4 /* the halves are split in the vector: a broadcast load does not use the shuffle port */
	__asm__("" : "+v"(all));
#endif
	sum += (vec)(all << 16) * (vec)(w << 16);
	return sum + (vec)(all & 0xffff0000u) * (vec)(w & 0xffff0000u);
#endif
}

/*
 * rows is a constant after inlining; w[v] is the first vector of column v, x has n words per row. Prefetches
 * n times `ahead` bytes from next on, unless that is NULL, and soon, unless that is.
 */
DT_INLINE void block(float *const *out, int64_t ld, const uint8_t *const *w, const uint8_t *next,
		     int64_t ahead, struct dt_soon_list *soon, const uint32_t *x, int64_t n, const int rows)
{
	vec sum[ROWS][VECS];

	DT_FOR (16, int r = 0; r < rows; r++)
		DT_FOR (VECS, int v = 0; v < VECS; v++)
			sum[r][v] = (vec){0};
	for (int64_t k = 0; k < n; k++) {
		words b[VECS];

		for (int64_t i = 0; next && i < ahead; i += 64)
			dt_prefetch_ahead(next + k * ahead + i);
		if (soon && k % SOON == 0)
			dt_soon_ask(soon, SOON_LINES);
		DT_FOR (VECS, int v = 0; v < VECS; v++)
			b[v] = *(const words *)(w[v] + 64 * k);
		DT_FOR (16, int r = 0; r < rows; r++)
			DT_FOR (VECS, int v = 0; v < VECS; v++)
				sum[r][v] = step(sum[r][v], x[r * n + k], b[v]);
	}
	DT_FOR (16, int r = 0; r < rows; r++)
		DT_FOR (VECS, int v = 0; v < VECS; v++)
			*(vec *)(out[v] + r * ld) = sum[r][v];
}

/* Rows of the next call of block. */
DT_INLINE int64_t together(int64_t m)
{
#if ROWS > 8
	if (m >= 12 && m != 16)
		return 12;
	if (m >= 8)
		return 8;
#endif
#if ROWS > 3
	if (m >= 4)
		return 4;
#endif
	return m >= 2 ? 2 : 1;
}

/* The same for any number of rows that together() returns. */
DT_INLINE void some_rows(float *const *out, int64_t ld, const uint8_t *const *w, const uint8_t *next,
			 int64_t ahead, struct dt_soon_list *soon, const uint32_t *x, int64_t n, int64_t rows)
{
	switch (rows) {
#if ROWS > 8
	case 12:
		block(out, ld, w, next, ahead, soon, x, n, 12);
		break;
	case 8:
		block(out, ld, w, next, ahead, NULL, x, n, 8);
		break;
#endif
#if ROWS > 3
	case 4:
		block(out, ld, w, next, ahead, NULL, x, n, 4);
		break;
#endif
	case 2:
		block(out, ld, w, next, ahead, NULL, x, n, 2);
		break;
	default:
		block(out, ld, w, next, ahead, NULL, x, n, 1);
	}
}

/* Whether all rows share the prefetches. With fewer lanes more rows follow, and each has the instructions. */
#define SPREAD (L == 16)

/* VECS vectors of outputs: w[v] is the first of column v; next: the columns after them. */
static void all_rows(float *const *out, int64_t ld, const uint8_t *const *w, const uint8_t *next,
		     const uint32_t *x, int64_t m, int64_t n)
{
	struct dt_soon_list *soon = NULL;
	int64_t calls = 0, ahead, rows;

	for (int64_t r = 0; r < m && (SPREAD || !r); r += together(m - r))
		calls++;
	ahead = dt_ceil_div(VECS * L * 4, calls);
	for (int64_t r = 0; r < m; r += rows, next += n * ahead) {
		float *to[VECS];

		for (int v = 0; v < VECS; v++)
			to[v] = out[v] + r * ld;
		rows = together(m - r);
#ifdef QUANT_ASKING
		soon = rows == 12 ? dt_soon_take(m, n / SOON * SOON_LINES * 64) : NULL;
#endif
		if (SPREAD || !r)
			some_rows(to, ld, w, next, ahead, soon, x + r * n, n, rows);
		else
			some_rows(to, ld, w, NULL, 0, soon, x + r * n, n, rows);
	}
}

DT_QUANT_MUL(QUANT_NAME)
{
	const int64_t columns = panels * DT_PANEL / L, n = blocks * DT_QK / WORD;

#ifdef QUANT_ASKED
	if (dt_soon_there(m)) {
		dt_quant_mul_bf16_pairs_asking(tile, ld, f, w, panel_bytes, panels, next, xq, xb, m, blocks);
		return;
	}
#endif
	for (int64_t c = 0; c < columns; c += VECS) {
		const uint8_t *from[VECS];
		float *to[VECS];
		int64_t at = c;

		/* An odd last column is computed twice: both write the same. */
		for (int v = 0; v < VECS; v++, at += at + 1 < columns) {
			from[v] = w + (size_t)(at * L / DT_PANEL) * panel_bytes + at * L % DT_PANEL * 4;
			to[v] = tile + at * L;
		}
		/* Next are two panels with 16 lanes; with fewer lanes one panel, or the other half of this
		 * one. */
		all_rows(to, ld, from,
			 next && c + VECS >= columns ? next : from[0] + VECS * L / DT_PANEL * panel_bytes, xq,
			 m, n);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
