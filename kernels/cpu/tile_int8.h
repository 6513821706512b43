/*
 * Products of query rows with int8 keys and values in groups (kv.h), by dot products of four bytes (VNNI).
 * Rows of the other operand become integers of 15 or 23 bits with one scale per row, and are multiplied byte
 * by byte: two bytes for 16-bit queries, three for f32. Sums are exact, so an element of the result depends
 * on its own row only, and is the same with AMX tiles, which are used for many rows of two bytes.
 */
#ifndef DT_KERNELS_CPU_TILE_INT8_H
#define DT_KERNELS_CPU_TILE_INT8_H

#include "kernels/cpu/tile.h"

enum { DT_TILE_PARTS = 3 }; /* maximum number of bytes */

/* Rows as integers, split in bytes: part 0 is the most significant. Words hold four consecutive elements. */
struct dt_tile_bytes {
	uint32_t *part[DT_TILE_PARTS]; /* [rows, words] */
	int parts;
	float scale[DT_TILE]; /* per row; NaN: the row holds a NaN or Inf */
	/* 128 times the sum of a row, for the first two parts joined and for the third */
	int32_t offset[2][DT_TILE];
};

/* Whether this processor supports them. */
bool dt_tile_int8(void);

/*
 * s[i * DT_TILE + 16 g + j] = row i of q . key j of group g, times k_scale[16 g + j]; n rows, g < 4.
 * k[g]: bytes, of elements 4 w .. 4 w + 3 of key j at [w, j], w < words, with 128 added.
 * next[g] is as long and used soon.
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

/* The same with AMX (tile_int8_amx.c); rows have two parts, padded to a multiple of sixteen rows. */
DT_INT8_ACROSS(dt_tile_int8_across_amx);
DT_INT8_ACROSS(dt_tile_int8_across_amx_plain_v4);
DT_INT8_DOWN(dt_tile_int8_down_amx);
DT_INT8_DOWN(dt_tile_int8_down_amx_plain_v4);

/* Quantises rows [n] of d elements, d a multiple of 16, to signed integers in q, whose part[] must be set. */
void dt_tile_bytes_of(struct dt_tile_bytes *q, const void *const *row, enum dt_dtype type, int64_t n,
		      int64_t d);
/* Quantises contiguous rows of DT_TILE non-negative numbers to unsigned bytes in w. */
void dt_tile_bytes_of_weights(struct dt_tile_bytes *w, const float *x, int64_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
