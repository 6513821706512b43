/*
 * Products of small tiles, for attention and for matmuls whose rows must not depend on each other.
 *
 * Operands are arrays of 32-bit words: one f32, or two bf16 neighbours along k (the first in the low half),
 * which processors with AVX512_BF16 multiply and add in one step. The result is f32. Every element of c is
 * summed over k in ascending order by one chain of multiply-adds (with AMX in tile_amx.c's order), whatever
 * the number of rows: its bits depend on its row of a and its column of b only.
 */
#ifndef DT_KERNELS_CPU_TILE_H
#define DT_KERNELS_CPU_TILE_H

#include "kernels/cpu/cpu.h"

#define DT_TILE 64 /* rows and keys of an attention tile */
enum { DT_TILE_ROWS_FEW = 8, DT_TILE_ROWS_DIM = 512 };

/* Lines to prefetch: 16 with every 16 words, `row` bytes apart; the first advances by step bytes each time.
 * at NULL: none. */
struct dt_tile_next {
	const void *at;
	int64_t step, row;
};

struct dt_tile {
	bool pairs; /* a word is two bf16 */
	/*
	 * NULL: no-op. Each thread calls begin before its products and end after the last. rows: number of
	 * rows of the coming products; more are allowed, but slow if it was less than 16.
	 */
	void (*begin)(int64_t rows);
	void (*end)(void);
	/*
	 * c[i, j] = (accumulate ? c[i, j] : 0)
	 *           + sum over w < words of a[i * a_row + w * a_word] . b[w * ldb + j],
	 * i < rows, j < cols; cols is a multiple of 16.
	 */
	void (*mul)(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, int64_t a_word,
		    const uint32_t *b, int64_t ldb, int64_t rows, int64_t cols, int64_t words,
		    bool accumulate);
	/*
	 * AMX only, else NULL: mul of few rows, a_word 1, without tiles. Tiles stall on data that has just
	 * been packed, and a single row finishes before they start.
	 */
	void (*mul_few)(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, int64_t a_word,
			const uint32_t *b, int64_t ldb, int64_t rows, int64_t cols, int64_t words,
			bool accumulate);
	/*
	 * Pairs only: mul of 16 rows, at most DT_TILE columns and a multiple of 16 words, contiguous in a.
	 * Prefetches the lines of next, sixteen with every 16 words, so that memory latency is hidden behind
	 * products.
	 */
	void (*mul_asking)(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const uint32_t *b,
			   int64_t ldb, int64_t cols, int64_t words, bool accumulate,
			   struct dt_tile_next next);
	/*
	 * Pairs only; operand b is in several arrays. i < rows.
	 *   across  c[i, 16 g + j] = sum over w < words of a[i * a_row + w] . b[g][16 w + j], g < 4
	 *   down    c[i, j] += sum over first <= w < last of a[i * a_row + w] . b[w / 8][w % 8 * cols + j],
	 *           cols a multiple of 32, last <= 32
	 * next[g] is as long as b[g] and used soon: it is prefetched (across, NULL: nothing). With AMX, words
	 * must be a multiple of 16, and with more than 16 rows a and c need memory up to the next multiple of
	 * 16.
	 */
	void (*mul_across)(float *c, int64_t ldc, const uint32_t *a, int64_t a_row,
			   const uint32_t *const b[4], const uint32_t *const next[4], int64_t rows,
			   int64_t words);
	void (*mul_down)(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const uint32_t *const b[4],
			 const uint32_t *const next[4], int64_t rows, int64_t cols, int64_t first,
			 int64_t last);
	/*
	 * f32 words only, NULL if packing first is as fast: operand b is rows in place, of bf16, int8 or f32
	 * from byte `at` of each on, NULL for zeros; i < rows, best DT_TILE_ROWS_FEW; d at most
	 * DT_TILE_ROWS_DIM, a multiple of 16 and of the elements in 32 bytes. The bits are those of mul. ask
	 * (NULL: none): as many addresses as operand b has 64-byte lines, prefetched one by one, since many
	 * at a time would stall. Columns of c up to the next multiple of 16 keys are written.
	 *   across  c[i, j] = sum over w < d of a[i * a_row + w] . row[j][w], j < keys rounded to 16
	 *   down    c[i, j] += sum over k < keys of a[i * a_row + k] . row[k][j], j < d
	 */
	void (*across_rows)(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const void *const *row,
			    enum dt_dtype type, int64_t at, int64_t keys, int64_t rows, int64_t d,
			    const void *const *ask);
	void (*down_rows)(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const void *const *row,
			  enum dt_dtype type, int64_t at, int64_t keys, int64_t rows, int64_t d,
			  const void *const *ask);
	/*
	 * The same for int8, by pairwise sums of 16-bit products, NULL if that is not fastest. Rows of the
	 * other operand become 16-bit integers with one scale, so that sums are exact. at, d, ask: as above.
	 *   halves_of  rows of d numbers, d a multiple of 8, at most DT_TILE_ROWS_DIM
	 *   across  s[i * DT_TILE + j] = scale[i] * k_scale[j] * sum over w < d of q[i * d + w] . row[j][w],
	 *           j < keys rounded to 4; k_scale [DT_TILE]
	 *   down    o[i * ldo + j] += scale[i] * sum over k < keys of w[i * DT_TILE + k] . row[k][j], j < d
	 */
	void (*halves_of)(int16_t *to, float *scale, const void *const *row, enum dt_dtype type, int64_t n,
			  int64_t d);
	void (*halves_across)(float *s, const int16_t *q, const float *scale, const void *const *row,
			      int64_t at, const float *k_scale, int64_t keys, int64_t n, int64_t d,
			      const void *const *ask);
	void (*halves_down)(float *o, int64_t ldo, const int16_t *w, const float *scale,
			    const void *const *row, int64_t at, int64_t keys, int64_t n, int64_t d,
			    const void *const *ask);
	/* out[w * DT_TILE + i] = in[i * 64 + w], i < 16, w < n <= 64 */
	void (*turn)(uint32_t *out, const uint32_t *in, int64_t n);
	/* Pairs only: n words (x[2 i], x[2 i + 1]), and n words (x[i], y[i]). Denormals may become zero. */
	void (*along)(uint32_t *out, const float *x, int64_t n);
	void (*across)(uint32_t *out, const float *x, const float *y, int64_t n);
	/* dt_tile_pack_lanes and _depth for bf16 rows (NULL: zeros) where d is a multiple of 32, else NULL */
	void (*lanes)(uint32_t *out, const void *const *row, int64_t rows, int64_t d);
	void (*depth)(uint32_t *out, const void *const *row, int64_t rows, int64_t d);
};

/* The fastest for this type on this processor. bf16 without AVX512_BF16 uses f32 words. */
const struct dt_tile *dt_tile(enum dt_dtype t);
/* The same, but bf16 uses AMX if available: for attention. */
const struct dt_tile *dt_tile_with_amx(enum dt_dtype t);

/* begin and end of a thread that uses t. */
static inline void dt_tile_begin(const struct dt_tile *t, int64_t rows)
{
	if (t->begin)
		t->begin(rows);
}

static inline void dt_tile_end(const struct dt_tile *t)
{
	if (t->end)
		t->end();
}

/* Words of a row of d elements. */
static inline int64_t dt_tile_words(const struct dt_tile *t, int64_t d)
{
	return t->pairs ? (d + 1) / 2 : d;
}

/* Words along a dimension of DT_TILE elements. */
static inline int64_t dt_tile_depth(const struct dt_tile *t)
{
	return t->pairs ? DT_TILE / 2 : DT_TILE;
}

/*
 * Packing. row[i], i < rows <= DT_TILE, are rows of d elements of type t. Missing rows (in lanes and depth
 * also NULL rows) and columns are zero. Lanes and depth also accept int8.
 *   rows   out[i * words + w]                        operand a: DT_TILE rows, words along d
 *   lanes  out[w * DT_TILE + i]                      operand b: words along d, one column per row
 *   depth  out[w * pad + j], pad = d rounded to 16   operand b: words along the rows, one column per element
 */
void dt_tile_pack_rows(const struct dt_tile *t, uint32_t *out, const void *const *row, enum dt_dtype type,
		       int64_t rows, int64_t d);
void dt_tile_pack_lanes(const struct dt_tile *t, uint32_t *out, const void *const *row, enum dt_dtype type,
			int64_t rows, int64_t d);
void dt_tile_pack_depth(const struct dt_tile *t, uint32_t *out, const void *const *row, enum dt_dtype type,
			int64_t rows, int64_t d);

/* The micro-kernels, one object per instruction set (meson.build). */
#define DT_TILE_MUL(name)                                                                                    \
	void name(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, int64_t a_word,                   \
		  const uint32_t *b, int64_t ldb, int64_t rows, int64_t cols, int64_t words,                 \
		  bool accumulate)
DT_TILE_MUL(dt_tile_mul_plain);
DT_TILE_MUL(dt_tile_mul_v3);
DT_TILE_MUL(dt_tile_mul_v4);
DT_TILE_MUL(dt_tile_mul_bf16);
DT_TILE_MUL(dt_tile_mul_few_bf16);
DT_TILE_MUL(dt_tile_mul_amx);
DT_TILE_MUL(dt_tile_mul_amx_v3); /* used only in tests, like the others with this suffix */
DT_TILE_MUL(dt_tile_mul_amx_plain_v3);
DT_TILE_MUL(dt_tile_mul_amx_plain_v4);
#define DT_TILE_MUL_ASKING(name)                                                                             \
	void name(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const uint32_t *b, int64_t ldb,   \
		  int64_t cols, int64_t words, bool accumulate, struct dt_tile_next next)
DT_TILE_MUL_ASKING(dt_tile_mul_asking_bf16);
DT_TILE_MUL_ASKING(dt_tile_mul_asking_amx);
DT_TILE_MUL_ASKING(dt_tile_mul_asking_amx_v3);
DT_TILE_MUL_ASKING(dt_tile_mul_asking_amx_plain_v3);
DT_TILE_MUL_ASKING(dt_tile_mul_asking_amx_plain_v4);
void dt_tile_begin_amx(int64_t rows);
void dt_tile_begin_amx_v3(int64_t rows);
void dt_tile_begin_amx_plain_v3(int64_t rows);
void dt_tile_begin_amx_plain_v4(int64_t rows);
void dt_tile_end_amx(void);
void dt_tile_end_amx_v3(void);
void dt_tile_end_amx_plain_v3(void);
void dt_tile_end_amx_plain_v4(void);
#define DT_TILE_OF_ROWS(name)                                                                                \
	void name(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const void *const *row,           \
		  enum dt_dtype type, int64_t at, int64_t keys, int64_t rows, int64_t d,                     \
		  const void *const *ask)
DT_TILE_OF_ROWS(dt_tile_across_rows_v3);
DT_TILE_OF_ROWS(dt_tile_down_rows_v3);
void dt_tile_halves_of(int16_t *to, float *scale, const void *const *row, enum dt_dtype type, int64_t n,
		       int64_t d);
void dt_tile_halves_across(float *s, const int16_t *q, const float *scale, const void *const *row, int64_t at,
			   const float *k_scale, int64_t keys, int64_t n, int64_t d, const void *const *ask);
void dt_tile_halves_down(float *o, int64_t ldo, const int16_t *w, const float *scale, const void *const *row,
			 int64_t at, int64_t keys, int64_t n, int64_t d, const void *const *ask);
#define DT_TILE_TURN(name) void name(uint32_t *out, const uint32_t *in, int64_t n)
DT_TILE_TURN(dt_tile_turn_plain);
DT_TILE_TURN(dt_tile_turn_v3);
DT_TILE_TURN(dt_tile_turn_v4);
#define DT_TILE_MUL_ACROSS(name)                                                                             \
	void name(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const uint32_t *const b[4],       \
		  const uint32_t *const next[4], int64_t rows, int64_t words)
DT_TILE_MUL_ACROSS(dt_tile_mul_across_bf16);
DT_TILE_MUL_ACROSS(dt_tile_mul_across_amx);
DT_TILE_MUL_ACROSS(dt_tile_mul_across_amx_v3);
DT_TILE_MUL_ACROSS(dt_tile_mul_across_amx_plain_v3);
DT_TILE_MUL_ACROSS(dt_tile_mul_across_amx_plain_v4);
#define DT_TILE_MUL_DOWN(name)                                                                               \
	void name(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const uint32_t *const b[4],       \
		  const uint32_t *const next[4], int64_t rows, int64_t cols, int64_t first, int64_t last)
DT_TILE_MUL_DOWN(dt_tile_mul_down_bf16);
DT_TILE_MUL_DOWN(dt_tile_mul_down_amx);
DT_TILE_MUL_DOWN(dt_tile_mul_down_amx_v3);
DT_TILE_MUL_DOWN(dt_tile_mul_down_amx_plain_v3);
DT_TILE_MUL_DOWN(dt_tile_mul_down_amx_plain_v4);
void dt_tile_along_bf16(uint32_t *out, const float *x, int64_t n);
void dt_tile_across_bf16(uint32_t *out, const float *x, const float *y, int64_t n);
void dt_tile_lanes_bf16(uint32_t *out, const void *const *row, int64_t rows, int64_t d);
void dt_tile_depth_bf16(uint32_t *out, const void *const *row, int64_t rows, int64_t d);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
