/*
 * Which of its ways matmul takes for a product, and the memory that the way needs: read by the products
 * themselves, and by dt_matmul_scratch for products that are still to come.
 */
#ifndef DT_KERNELS_CPU_MATMUL_PATH_H
#define DT_KERNELS_CPU_MATMUL_PATH_H

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/tile.h"

/* Thin products (thin.h), by the small dimension; TALL and FLAT have a transposed. */
enum dt_thin_shape { DT_THIN_NONE, DT_THIN_TALL, DT_THIN_FLAT, DT_THIN_UP, DT_THIN_DOWN };
enum {
	DT_THIN_ROWS = 16,  /* rows of the large operand per block */
	DT_THIN_WIDE = 256, /* its columns per block */
	DT_THIN_STEP = 16,  /* the micro-kernel's columns are a multiple of this */
	DT_THIN = 32	    /* maximum of the small dimension */
};

/* n rounded up to the columns of the micro-kernel. */
static inline int64_t dt_thin_padded(int64_t n)
{
	return dt_ceil_div(n, DT_THIN_STEP) * DT_THIN_STEP;
}

static inline enum dt_thin_shape dt_thin_shape_of(const struct dt_matmul_key *key)
{
	const int64_t m = key->m, n = key->n, k = key->k;

	if (key->ta)
		return key->tb || k < DT_THIN_ROWS	   ? DT_THIN_NONE
		       : n <= DT_THIN && m > n		   ? DT_THIN_TALL
		       : m <= DT_THIN && n >= DT_THIN_WIDE ? DT_THIN_FLAT
							   : DT_THIN_NONE;
	if (m < DT_THIN_ROWS)
		return DT_THIN_NONE;
	return k <= DT_THIN && n >= DT_THIN_WIDE   ? DT_THIN_UP
	       : n <= DT_THIN && k >= DT_THIN_WIDE ? DT_THIN_DOWN
						   : DT_THIN_NONE;
}

/* Whether matmul takes the thin product where operands would be widened; columns_matmul takes every shape. */
static inline bool dt_thin_pays(const struct dt_matmul_key *key)
{
	const enum dt_thin_shape shape = dt_thin_shape_of(key);

	return shape == DT_THIN_TALL || shape == DT_THIN_FLAT || (shape == DT_THIN_UP && key->accumulate);
}

/* Bytes of the small operand of a thin product in f32. */
static inline size_t dt_thin_bytes(const struct dt_matmul_key *key)
{
	const enum dt_thin_shape shape = dt_thin_shape_of(key);
	const int64_t room = shape == DT_THIN_FLAT ? key->m : dt_thin_padded(key->n);

	return shape == DT_THIN_UP ? 0 : (size_t)(key->k * room) * 4;
}

#define DT_MATMUL_BLOCK 512  /* rows of c per part when adding to c */
#define DT_MATMUL_DEPTH 2048 /* elements of k per part, if k is larger than DT_MATMUL_DEEP */
#define DT_MATMUL_DEEP	16384

enum {
	DT_MATMUL_PACKED_ROWS = 256,   /* rows of c from which packing b takes less time than it saves */
	DT_MATMUL_PACKED_TB = 4 << 20, /* the most elements of b, if it is transposed, */
	DT_MATMUL_PACKED = 256 << 10   /* and if not */
};

/*
 * A bf16 product added to a large c, or with a transposed, is computed in blocks of rows: oneDNN 2.6 makes
 * one unnecessary pass over c, and a's copy outgrows the cache. Measured from 512 x 768 x 768 to 4096 x 11008
 * x 1024, 512 rows are 15 to 45 % faster than all at once; f32 gains nothing.
 */
static inline bool dt_matmul_in_blocks(const struct dt_matmul_key *key, bool batch_invariant)
{
	return (key->accumulate || key->ta) && !(key->ta && batch_invariant) && key->in == DT_BF16 &&
	       key->m > DT_MATMUL_BLOCK;
}

/*
 * dx = dy w over a whole vocabulary: one part of k at a time, added to f32 sums, so that w's part stays in
 * the cache for all rows. 5 to 10 % faster at k = 50257. Not for x w^T, nor for products that are split by
 * rows already.
 */
static inline bool dt_matmul_is_deep(const struct dt_matmul_key *key)
{
	return !key->ta && !key->tb && !key->bias && !key->accumulate && key->in == DT_BF16 &&
	       key->out == DT_BF16 && key->k > DT_MATMUL_DEEP;
}

/* Bytes of these sums. */
static inline size_t dt_matmul_deep_bytes(const struct dt_matmul_key *key)
{
	return (size_t)dt_min64(key->m, DT_MATMUL_BLOCK) * (size_t)key->n * 4;
}

/* Bytes of f32 copies of all operands. */
static inline size_t dt_matmul_wide_bytes(const struct dt_matmul_key *key)
{
	const int64_t bias = key->bias ? key->n : 0;

	return (size_t)(key->m * key->k + key->k * key->n + key->m * key->n + bias) * 4 + 256;
}

/*
 * oneDNN compiles all its f32 kernels at the first product, 19 ms. Products this small, 10 us, are as fast
 * with tile.h: a process without larger ones starts faster. Not for few rows, for which tile.h packs the
 * whole of b: with one row oneDNN is four times as fast.
 */
static inline bool dt_matmul_is_small(const struct dt_matmul_key *k)
{
	return k->in == DT_F32 && k->out == DT_F32 && k->m >= 16 && k->n >= 16 &&
	       k->m * k->n * k->k <= 1 << 19;
}

/*
 * Whether b is packed first (dt_matmul_pack), if oneDNN multiplies by brgemm without AMX. A step of gpt2-mini
 * takes 0.975 to 0.99 of the time. Packing a larger b that is not transposed takes as long as it saves.
 */
static inline bool dt_matmul_packs(const struct dt_matmul_key *k)
{
	return k->in == DT_BF16 && !k->ta && !k->accumulate && k->m >= DT_MATMUL_PACKED_ROWS &&
	       k->k % DT_TILE == 0 && (k->tb || k->n % DT_TILE == 0) &&
	       k->n * k->k <= (k->tb ? DT_MATMUL_PACKED_TB : DT_MATMUL_PACKED);
}

/* Bytes of the packed b. */
static inline size_t dt_matmul_packed_bytes(const struct dt_matmul_key *k)
{
	return (size_t)(dt_ceil_div(k->n, DT_TILE) * DT_TILE * k->k) * 2;
}

/* dt_matmul_rows_takes on a processor where oneDNN has AMX, or has not. */
static inline bool dt_matmul_rows_takes_on(const struct dt_matmul_key *key, bool amx_onednn)
{
	if (key->in == DT_F32)
		return true;
	/* Operands are words of two bf16 along k, as stored. */
	return key->in == DT_BF16 && amx_onednn && !key->ta && key->k % 2 == 0 && key->lda % 2 == 0;
}

/* Words of a thread's panel of b and tile of sums in a product by tiles (matmul_rows.c). */
static inline int64_t dt_matmul_panel_words(const struct dt_matmul_key *key)
{
	return DT_TILE * (key->k + DT_TILE);
}

static inline size_t dt_matmul_panels_bytes(const struct dt_matmul_key *key, int threads)
{
	return (size_t)(threads * dt_matmul_panel_words(key)) * 4;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
