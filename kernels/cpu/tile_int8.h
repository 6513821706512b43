/*
 * Products of query rows with keys and values of int8 that lie in groups (kv.h), by sums of four products of
 * bytes (VNNI). Rows of the other operand become integers of 15 or 23 bits, all of a row with one scale, and
 * are multiplied byte by byte: two bytes for queries of 16 bits, three for f32. Sums are exact, so an element
 * of the result depends on its own row alone, and is the same by tiles of AMX, which many rows of two bytes
 * go by.
 */
#ifndef DT_KERNELS_CPU_TILE_INT8_H
#define DT_KERNELS_CPU_TILE_INT8_H

#include "kernels/cpu/tile.h"

enum { DT_TILE_PARTS = 3 }; /* at most */

/* Rows as integers: the byte of part 0 counts most. Words are four neighbours. */
struct dt_tile_bytes {
	uint32_t *part[DT_TILE_PARTS]; /* [rows, words] */
	int parts;
	float scale[DT_TILE]; /* of each row; NaN: the row holds a NaN or Inf */
	/* 128 times the sum of a row, of the first two parts joined and of the third */
	int32_t offset[2][DT_TILE];
};

/* Whether this processor has them. */
bool dt_tile_int8(void);

/*
 * s[i * DT_TILE + 16 g + j] = row i of q . key j of group g, times k_scale[16 g + j]; n rows, g < 4.
 * k[g]: bytes, of elements 4 w .. 4 w + 3 of key j at [w, j], w < words, with 128 added.
 * next[g] is as long and read soon after.
 */
#define DT_INT8_ACROSS(name)                                                                                 \
	void name(float *s, const struct dt_tile_bytes *q, const void *const k[4],                           \
		  const void *const next[4], const float *k_scale, int64_t n, int64_t words)
DT_INT8_ACROSS(dt_tile_int8_across);
/*
 * o[i * ldo + j] += sum over the tile's keys of row i of w . value element j; j < d, a multiple of 32.
 * v[g]: bytes, of keys 4 u .. 4 u + 3 of the group, element j, at [u, j], u < 4.
 */
#define DT_INT8_DOWN(name)                                                                                   \
	void name(float *o, int64_t ldo, const struct dt_tile_bytes *w, const void *const v[4],              \
		  const void *const next[4], int64_t n, int64_t d)
DT_INT8_DOWN(dt_tile_int8_down);

/* The same by tiles (tile_int8_amx.c); rows are of two parts, and there is room for sixteens of them. */
DT_INT8_ACROSS(dt_tile_int8_across_amx);
DT_INT8_ACROSS(dt_tile_int8_across_amx_plain_v4);
DT_INT8_DOWN(dt_tile_int8_down_amx);
DT_INT8_DOWN(dt_tile_int8_down_amx_plain_v4);

/* Signed rows [n] of d elements, d a multiple of 16, into q, whose part[] are set. */
void dt_tile_bytes_of(struct dt_tile_bytes *q, const void *const *row, enum dt_dtype type, int64_t n,
		      int64_t d);
/* Rows of DT_TILE numbers that are not negative, side by side, into w as unsigned bytes. */
void dt_tile_bytes_of_weights(struct dt_tile_bytes *w, const float *x, int64_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
