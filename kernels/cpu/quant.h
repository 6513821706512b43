/*
 * How packed weights lie in memory. Rows are cut into panels of 16, the last one padded with zeros. A panel
 * is three planes, k in blocks of 32:
 *
 *   quants   for each block, vectors of 64 bytes; byte 4 r + e of chunk c is element 4 c + e of row r, as an
 *            unsigned integer q (weight = scale (q - offset)):
 *              Q8_0          8 vectors, one a chunk, offset 128
 *              Q4_0 _1 _K    4 vectors: chunk 2 i in the low nibbles, 2 i + 1 in the high
 *              MXFP4         the same, of e2m1 codes: 12 more than twice their number counts, offset 12
 *              Q5_K          the same for the low 4 bits, then 1 vector: chunk c in bit c of its bytes
 *              Q6_K          the same for the low 4 bits, then 2 vectors: chunks 4 i .. 4 i + 3 two bits each
 *              bf16          16 vectors; word r of vector w is elements 2 w and 2 w + 1 of row r
 *              f32           32 vectors; word r of vector w is element w of row r
 *   scales   for each block: Q8_0, Q4_0 16 f16; Q4_1 16 f16 scales, 16 f16 minima; MXFP4 16 bf16 scales,
 *            halved; Q4_K, Q5_K 16 u8 scales, 16 u8 minima; Q6_K 16 i8 scales of the first half, 16 of
 *            the second
 *   supers   for each 8 blocks: Q4_K, Q5_K 16 f16 d, 16 f16 dmin; Q6_K 16 f16 d
 *
 * So a vector of integers multiplies four neighbours of one row of x (a broadcast word) for 16 outputs.
 */
#ifndef DT_KERNELS_CPU_QUANT_H
#define DT_KERNELS_CPU_QUANT_H

#include "kernels/packed.h"

#include "kernels/cpu/cpu.h"

/* quant_memory.c: memory of a part of so many bytes, to the line; NULL: there is none. Any thread's. */
void *dt_panel_alloc(size_t bytes);
void dt_panel_free(void *p, size_t bytes);
/* quant_piece.c: row r of a panel of w from a row in the panel's own format. */
void dt_quant_pack_row(const struct dt_packed *w, enum dt_format f, uint8_t *panel, int r,
		       const uint8_t *row);
/* Element j of row r in a block's quants, without its offset. */
int dt_quant_at(enum dt_format f, const uint8_t *quants, int r, int j);

/* What a product needs to know of a block of x beside its integers. */
struct dt_xblock {
	float scale, sum;  /* sum: scale times the sum of the integers */
	int32_t start8;	   /* -128 times the sum of the integers */
	int32_t start4;	   /* -8 times */
	int32_t start6[2]; /* -32 times the sum of each half */
};

/* q and xb [blocks] of a row x of 32 blocks elements. NaN and Inf make their block's scale NaN. */
#define DT_QUANT_ROW(name)                                                                                   \
	void name(int8_t *q, struct dt_xblock *xb, const void *x, enum dt_dtype type, int64_t blocks)
typedef DT_QUANT_ROW(dt_quant_row_fn);
DT_QUANT_ROW(dt_quant_row_plain);
DT_QUANT_ROW(dt_quant_row_avx2);
DT_QUANT_ROW(dt_quant_row_vnni);

/* A row of k elements as bf16 or f32, padded with zeros to whole blocks (quant_rows.c). */
void dt_quant_round_row(uint16_t *h, const void *x, enum dt_dtype type, int64_t k, int64_t blocks);
void dt_quant_widen_row(float *f, const void *x, enum dt_dtype type, int64_t k, int64_t blocks);

/*
 * A block of sixteen rows of x as quant_amx.c takes it, side by side those of the same rows, an even number.
 * Rows and blocks that are not there are zeros.
 */
enum { DT_XTILE_ROWS = 16 };
struct dt_xtile {
	_Alignas(64) int8_t q[DT_XTILE_ROWS][DT_QK];
	float scale[DT_XTILE_ROWS], sum[DT_XTILE_ROWS]; /* these and start8: as in struct dt_xblock */
	int32_t start8[DT_XTILE_ROWS];
};
/* Tiles of sixteen rows. */
static inline int64_t dt_xtiles(int64_t blocks)
{
	return (blocks + 1) / 2 * 2;
}
/*
 * quant_tiles.c: the tiles of m rows of `blocks` blocks that meet n weights, weight e the rows from first[e]
 * (NULL: there is one, and all meet it) to first[e + 1]. They begin anew with each weight; where its rows are
 * few it has none. n 0: nothing has tiles.
 */
struct dt_quant_tiles {
	int n;
	int64_t m, blocks;
	const int32_t *first;
	struct dt_xtile *at;
	int64_t *begin; /* [n], of each weight's tiles */
};
/* Bytes that they need, a multiple of 64, and the memory for them. */
size_t dt_quant_tiles_bytes(const struct dt_quant_tiles *t);
void dt_quant_tiles_lay(struct dt_quant_tiles *t, void *memory);
/* The tiles of row `row` and, behind the last of a weight, of rows of zeros, from rows of bytes. */
void dt_quant_tiles_fill(const struct dt_quant_tiles *t, int64_t row, const int8_t *q,
			 const struct dt_xblock *xb);
/* Those that begin with a row, the first of a weight's or sixteens behind it. */
const struct dt_xtile *dt_quant_tiles_at(const struct dt_quant_tiles *t, int64_t row);
/* Of so many rows those, from the first on, that are multiplied by tiles; the rest are few. */
int64_t dt_quant_tiled(const struct dt_quant_tiles *t, int64_t rows);

#define DT_QUANT_MANY 96 /* rows a product takes at a time: as many may have more behind them */

/*
 * tile[r * ld + 16 p + j] = row r of x times row j of panel p, r < m, p < panels. xq [m, 32 blocks]: bytes,
 * bf16 or f32. xb [m, blocks], for bytes only. next: panels that are wanted afterwards, read ahead; or NULL.
 * quant_amx.c's products of integers take struct dt_xtile [m / 16 rounded up, dt_xtiles(blocks)] in place of
 * xq and xb, and there must be room for as many rows of tile.
 */
#define DT_QUANT_MUL(name)                                                                                   \
	void name(float *tile, int64_t ld, enum dt_format f, const uint8_t *w, size_t panel_bytes,           \
		  int64_t panels, const uint8_t *next, const void *xq, const struct dt_xblock *xb,           \
		  int64_t m, int64_t blocks)
typedef DT_QUANT_MUL(dt_quant_mul_fn);
DT_QUANT_MUL(dt_quant_mul_plain);
DT_QUANT_MUL(dt_quant_mul_avx2);
DT_QUANT_MUL(dt_quant_mul_avxvnni);
DT_QUANT_MUL(dt_quant_mul_vnni);
DT_QUANT_MUL(dt_quant_mul_neon);
DT_QUANT_MUL(dt_quant_mul_dotprod);
DT_QUANT_MUL(dt_quant_mul_amx);
DT_QUANT_MUL(dt_quant_mul_amx_v3); /* in tests alone, as are others of this name */
DT_QUANT_MUL(dt_quant_mul_amx_plain_v3);
DT_QUANT_MUL(dt_quant_mul_amx_plain_v4);

/* The same for bf16 and f32 weights; f and xb are not looked at. */
DT_QUANT_MUL(dt_quant_mul_f32_plain);
DT_QUANT_MUL(dt_quant_mul_f32_v3);
DT_QUANT_MUL(dt_quant_mul_f32_v4);
DT_QUANT_MUL(dt_quant_mul_bf16_plain);
DT_QUANT_MUL(dt_quant_mul_bf16_v3);
DT_QUANT_MUL(dt_quant_mul_bf16_v4);
DT_QUANT_MUL(dt_quant_mul_bf16_pairs);
DT_QUANT_MUL(dt_quant_mul_bf16_amx);
DT_QUANT_MUL(dt_quant_mul_bf16_amx_v3);
DT_QUANT_MUL(dt_quant_mul_bf16_amx_plain_v3);
DT_QUANT_MUL(dt_quant_mul_bf16_amx_plain_v4);

#define DT_QUANT_GROUP 4 /* panels of a tile [rows, 16 of these] */

/*
 * quant_finish.c: rows rows of n columns of y, from element `at` on, = tile + bias; col: of the first in the
 * bias. gated: f of those in the first half of a row of the tile times those in the other; col: of the gates.
 */
void dt_quant_finish(struct dt_tensor y, int64_t at, const float *tile, int64_t rows, struct dt_tensor bias,
		     int64_t col, int64_t n);
void dt_quant_finish_gated(struct dt_tensor y, int64_t at, const float *tile, int64_t rows,
			   struct dt_tensor bias, int64_t col, int64_t n, enum dt_act_fn f);

/* The fastest on this processor (isa.h); quant_kernels.c. */
struct dt_quant_kernels {
	dt_quant_mul_fn *quants, *bf16, *f32;
	dt_quant_row_fn *row;
	dt_quant_mul_fn *tiled; /* quants by struct dt_xtile; NULL: there is none */
};
struct dt_quant_kernels dt_quant_kernels(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
