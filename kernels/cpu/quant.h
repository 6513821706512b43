/*
 * Memory layout of packed weights. Rows are cut into panels of 16, the last one padded with zeros. A panel
 * has three planes, k in blocks of 32:
 *
 *   quants   for each block, vectors of 64 bytes; byte 4 r + e of chunk c is element 4 c + e of row r, as an
 *            unsigned integer q (weight = scale (q - offset)):
 *              Q8_0          8 vectors, one per chunk, offset 128
 *              otherwise     planes for the binary digits of the number of bits (dt_panel_bits), lowest bits
 *                            of q first:
 *                  4         4 vectors: chunk 2 i in the low nibbles, 2 i + 1 in the high
 *                  2         2 vectors: chunks 4 i .. 4 i + 3 two bits each
 *                  1         1 vector: chunk c in bit c of its bytes
 *              MXFP4         of e2m1 codes, which stand for twice their value + 12, offset 12
 *              IQ4, IQ3, IQ2 of codes that stand for values + 128 (format.h), offset 128; IQ2 has 3 bits
 *              bf16          16 vectors; word r of vector w is elements 2 w and 2 w + 1 of row r
 *              f32           32 vectors; word r of vector w is element w of row r
 *   scales   for each block: Q8_0, Q4_0 16 f16; Q4_1, Q5_1 16 f16 scales, 16 f16 minima; MXFP4 16 bf16
 *            scales, halved; Q4_K, Q5_K 16 u8 scales, 16 u8 minima; Q6_K, Q3_K 16 i8 scales of the first
 *            half, 16 of the second, also IQ2_S and IQ2_XS; Q2_K the same of u8, scales in the low nibbles,
 *            minima in the high; IQ4_XS, IQ3_S, IQ3_XXS and IQ2_XXS 16 i8
 *   supers   for each 8 blocks: Q4_K, Q5_K, Q2_K 16 f16 d, 16 f16 dmin; Q6_K, Q3_K, IQ* 16 f16 d
 *
 * So a vector of integers multiplies four consecutive elements of a row of x (a broadcast word) for 16
 * outputs.
 */
#ifndef DT_KERNELS_CPU_QUANT_H
#define DT_KERNELS_CPU_QUANT_H

#include "kernels/packed.h"

#include "kernels/cpu/cpu.h"

/* quant_memory.c: allocates a part of `bytes` bytes, cache-line aligned; NULL: out of memory. Thread-safe. */
void *dt_panel_alloc(size_t bytes);
void dt_panel_free(void *p, size_t bytes);
/* quant_piece.c: packs a row, in the panel's own format, as row r of a panel of w. */
void dt_quant_pack_row(const struct dt_packed *w, enum dt_format f, uint8_t *panel, int r,
		       const uint8_t *row);
/* Element j of row r in a block's quants, without its offset. */
int dt_quant_at(enum dt_format f, const uint8_t *quants, int r, int j);

/* Metadata of a quantised block of x, for products. */
struct dt_xblock {
	float scale, sum;  /* sum: scale times the sum of the integers */
	int32_t start8;	   /* -128 times the sum of the integers */
	int32_t start4;	   /* -8 times */
	int32_t start6[2]; /* -32 times the sum of each half */
};

/* Quantises a row x of 32 blocks elements to q and xb [blocks]. NaN and Inf make their block's scale NaN. */
#define DT_QUANT_ROW(name)                                                                                   \
	void name(int8_t *q, struct dt_xblock *xb, const void *x, enum dt_dtype type, int64_t blocks)
typedef DT_QUANT_ROW(dt_quant_row_fn);
DT_QUANT_ROW(dt_quant_row_plain);
DT_QUANT_ROW(dt_quant_row_avx2);
DT_QUANT_ROW(dt_quant_row_vnni);

/* Converts k elements to bf16 or f32, padded with zeros to whole blocks (quant_rows.c). */
void dt_quant_round_row(uint16_t *h, const void *x, enum dt_dtype type, int64_t k, int64_t blocks);
void dt_quant_widen_row(float *f, const void *x, enum dt_dtype type, int64_t k, int64_t blocks);

/*
 * The operand of quant_amx.c: one block of sixteen rows of x. Blocks of the same rows are adjacent, an even
 * number of them. Missing rows and blocks are zeros.
 */
enum { DT_XTILE_ROWS = 16, DT_XTILES_FROM = 14 /* rows of a weight */ };
struct dt_xtile {
	_Alignas(64) int8_t q[DT_XTILE_ROWS][DT_QK];
	float scale[DT_XTILE_ROWS], sum[DT_XTILE_ROWS]; /* these and start8: see struct dt_xblock */
	int32_t start8[DT_XTILE_ROWS];
	float half[2][DT_XTILE_ROWS]; /* sums of the integers of each half */
};
/* Number of struct dt_xtile per sixteen rows. */
static inline int64_t dt_xtiles(int64_t blocks)
{
	return (blocks + 1) / 2 * 2;
}
/*
 * quant_tiles.c: struct dt_xtile of m rows of `blocks` blocks for n weights; weight e has the rows from
 * first[e] (NULL: one weight has all) to first[e + 1]. Each weight begins a new tile, or has none if its rows
 * are few. n 0: no tiles at all.
 */
struct dt_quant_tiles {
	int n;
	int64_t m, blocks;
	const int32_t *first;
	struct dt_xtile *at;
	int64_t *begin; /* [n], index of each weight's first tile */
};
/* Bytes of memory they need, a multiple of 64, at most dt_quant_room's; and sets that memory. */
size_t dt_quant_tiles_bytes(const struct dt_quant_tiles *t);
void dt_quant_tiles_lay(struct dt_quant_tiles *t, void *memory);
/* Fills row `row` of the tiles from quantised rows and, after the last row of a weight, adds rows of
 * zeros. */
void dt_quant_tiles_fill(const struct dt_quant_tiles *t, int64_t row, const int8_t *q,
			 const struct dt_xblock *xb);
/* The tiles that begin at a row: a weight's first one or a multiple of sixteen after it. */
const struct dt_xtile *dt_quant_tiles_at(const struct dt_quant_tiles *t, int64_t row);
/* How many of the rows from `row` on, all of one weight, are multiplied with tiles; the rest are few. */
int64_t dt_quant_tiled(const struct dt_quant_tiles *t, int64_t row, int64_t rows);
/* Quantises sixteen rows of x, of 32 blocks elements each, to struct dt_xtile [dt_xtiles(blocks)]. */
#define DT_QUANT_TILE(name) void name(struct dt_xtile *t, const void *x, enum dt_dtype type, int64_t blocks)
typedef DT_QUANT_TILE(dt_quant_tile_fn);
DT_QUANT_TILE(dt_quant_tile_vnni);

#define DT_QUANT_MANY 96 /* rows per product: up to this many more may follow */

/*
 * tile[r * ld + 16 p + j] = row r of x times row j of panel p, r < m, p < panels. xq [m, 32 blocks]: bytes,
 * bf16 or f32. xb [m, blocks], for bytes only. next: panels to prefetch for later; or NULL. The integer
 * products of quant_amx.c take struct dt_xtile [m / 16 rounded up, dt_xtiles(blocks)] instead of xq and xb,
 * and tile must have memory for that many rows.
 */
#define DT_QUANT_MUL(name)                                                                                   \
	void name(float *tile, int64_t ld, enum dt_format f, const uint8_t *w, size_t panel_bytes,           \
		  int64_t panels, const uint8_t *next, const void *xq, const struct dt_xblock *xb,           \
		  int64_t m, int64_t blocks)
typedef DT_QUANT_MUL(dt_quant_mul_fn);
DT_QUANT_MUL(dt_quant_mul_plain);
DT_QUANT_MUL(dt_quant_mul_avx2);
DT_QUANT_MUL(dt_quant_mul_avxvnni);
DT_QUANT_MUL(dt_quant_mul_v4);
DT_QUANT_MUL(dt_quant_mul_vnni);
DT_QUANT_MUL(dt_quant_mul_neon);
DT_QUANT_MUL(dt_quant_mul_dotprod);
DT_QUANT_MUL(dt_quant_mul_amx);
DT_QUANT_MUL(dt_quant_mul_amx_v3); /* used only in tests, like the others with this suffix */
DT_QUANT_MUL(dt_quant_mul_amx_plain_v3);
DT_QUANT_MUL(dt_quant_mul_amx_plain_v4);

/* The same for bf16 and f32 weights; f and xb are ignored. */
DT_QUANT_MUL(dt_quant_mul_f32_plain);
DT_QUANT_MUL(dt_quant_mul_f32_v3);
DT_QUANT_MUL(dt_quant_mul_f32_v4);
DT_QUANT_MUL(dt_quant_mul_bf16_plain);
DT_QUANT_MUL(dt_quant_mul_bf16_v3);
DT_QUANT_MUL(dt_quant_mul_bf16_v4);
DT_QUANT_MUL(dt_quant_mul_bf16_pairs);
DT_QUANT_MUL(dt_quant_mul_bf16_pairs_asking);
DT_QUANT_MUL(dt_quant_mul_bf16_amx);
DT_QUANT_MUL(dt_quant_mul_bf16_amx_v3);
DT_QUANT_MUL(dt_quant_mul_bf16_amx_plain_v3);
DT_QUANT_MUL(dt_quant_mul_bf16_amx_plain_v4);

#define DT_QUANT_GROUP 4 /* panels per tile [rows, 16 panels] */

/*
 * quant_finish.c: writes n columns of `rows` rows of y, from element `at` on: tile + bias, which is added in
 * the tile; col: first column in the bias. gated: f of the first half of a row of the tile times the second
 * half; col: first column of the gates.
 */
void dt_quant_finish(struct dt_tensor y, int64_t at, float *tile, int64_t rows, struct dt_tensor bias,
		     int64_t col, int64_t n);
void dt_quant_finish_gated(struct dt_tensor y, int64_t at, float *tile, int64_t rows, struct dt_tensor bias,
			   int64_t col, int64_t n, enum dt_act_fn f);

/* The fastest kernels on this processor (isa.h); quant_kernels.c. */
struct dt_quant_kernels {
	dt_quant_mul_fn *quants, *bf16, *f32;
	dt_quant_row_fn *row;
	dt_quant_mul_fn *tiled; /* integer products with struct dt_xtile; NULL: not available */
	dt_quant_tile_fn *tile; /* NULL: rows are quantised one by one */
};
struct dt_quant_kernels dt_quant_kernels(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
