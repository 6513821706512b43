/*
 * The product of tile.h for pairs of bf16 by tiles of the processor (amx.h), for the attention of training.
 * Compiled with the instructions and, with AMX_PLAIN, with what stands in for them. TILE_NAME is the
 * function, TILE_BEGIN and TILE_END what a thread calls before its first product and behind its last,
 * TILE_TURN the transposition (tile.h) of the instruction set around it.
 *
 * c is cut into blocks of 16 rows by up to four tiles of 16 columns; words of 16 go at a time. What is left
 * over of rows and of words is filled up with zeros, which change no sum. Sums are in amx.h's order within 16
 * words, these then in ascending order.
 */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/tile.h"

enum { ROWS = DT_AMX_ROWS, WORDS = DT_AMX_BYTES / 4, WIDE = 4 }; /* WIDE: tiles of c side by side */

#define C_0    0
#define C_1    1
#define C_2    2
#define C_3    3
#define A      4
#define B_EVEN 5
#define B_ODD  6

#ifdef AMX_PLAIN
static _Thread_local struct dt_amx_tiles plain;
#define THIS (&plain)
#else
#define THIS /* the instructions have no state but the processor's */
#endif

DT_TILE_OF_THREAD(TILE_BEGIN)
{
	struct dt_amx_config config = {.palette = 1};

	for (int i = C_0; i <= B_ODD; i++) {
		config.rows[i] = ROWS;
		config.bytes[i] = DT_AMX_BYTES;
	}
	tile_configure(THIS, &config);
}

DT_TILE_OF_THREAD(TILE_END)
{
	tile_release(THIS);
}

/* op(C_t, column of c, tile for b) for the first n of a block's tiles. */
#define EACH_TILE(n, op)                                                                                     \
	do {                                                                                                 \
		op(C_0, 0, B_EVEN);                                                                          \
		if ((n) > 1)                                                                                 \
			op(C_1, 16, B_ODD);                                                                  \
		if ((n) > 2)                                                                                 \
			op(C_2, 32, B_EVEN);                                                                 \
		if ((n) > 3)                                                                                 \
			op(C_3, 48, B_ODD);                                                                  \
	} while (0)
#define ZERO(tile, col, from)  tile_zero(THIS, tile)
#define LOAD(tile, col, from)  tile_load(THIS, tile, c + (col), 4 * ldc)
#define STORE(tile, col, from) tile_store(THIS, tile, c + (col), 4 * ldc)
#define DOT(tile, col, from)                                                                                 \
	do {                                                                                                 \
		tile_load(THIS, from, b + (col), 4 * ldb);                                                   \
		tile_dot_bf16(THIS, tile, A, from);                                                          \
	} while (0)

/* The tiles of c += 16 words of a . b. */
DT_INLINE void add(const uint32_t *a, int64_t a_row, const uint32_t *b, int64_t ldb, int64_t tiles)
{
	tile_load(THIS, A, a, 4 * a_row);
	EACH_TILE(tiles, DOT);
}

/* rows by words of from become a corner of a zero matrix [16, width]. */
DT_INLINE void fill_up(uint32_t *to, int64_t width, const uint32_t *from, int64_t ld, int64_t rows,
		       int64_t words)
{
	memset(to, 0, (size_t)(ROWS * width) * 4);
	for (int64_t i = 0; i < rows; i++)
		memcpy(to + i * width, from + i * ld, (size_t)words * 4);
}

/* 16 rows of c, of which the first `rows` rows of a are not zero, by so many tiles of columns. */
DT_INLINE void block(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const uint32_t *b, int64_t ldb,
		     int64_t rows, int64_t tiles, int64_t words, bool accumulate)
{
	_Alignas(64) uint32_t part_a[ROWS * WORDS], part_b[WORDS * WIDE * 16];

	if (accumulate)
		EACH_TILE(tiles, LOAD);
	else
		EACH_TILE(tiles, ZERO);
	for (int64_t w = 0; w < words; w += WORDS) {
		const int64_t n = dt_min64(WORDS, words - w);
		const bool rest = n < WORDS;

		if (rest)
			fill_up(part_b, WIDE * 16, b + w * ldb, ldb, n, 16 * tiles);
		if (rest || rows < ROWS)
			fill_up(part_a, WORDS, a + w, a_row, rows, n);
		add(rest || rows < ROWS ? part_a : a + w, rest || rows < ROWS ? WORDS : a_row,
		    rest ? part_b : b + w * ldb, rest ? WIDE * 16 : ldb, tiles);
	}
	EACH_TILE(tiles, STORE);
}

/* to [16, DT_TILE]: 16 rows of words that lie DT_TILE apart. */
DT_INLINE void turned(uint32_t *to, const uint32_t *a, int64_t words)
{
	const int64_t whole = words / WORDS * WORDS;

	for (int64_t w = 0; w < whole; w += WORDS)
		TILE_TURN(to + w, a + w * DT_TILE, ROWS);
	for (int64_t w = whole; w < words; w++)
		for (int64_t i = 0; i < ROWS; i++)
			to[i * DT_TILE + w] = a[w * DT_TILE + i];
}

/* All columns of a block of rows. */
DT_INLINE void block_row(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const uint32_t *b,
			 int64_t ldb, int64_t rows, int64_t cols, int64_t words, bool accumulate)
{
	_Alignas(64) float part[ROWS * WIDE * 16];

	for (int64_t j = 0; j < cols; j += WIDE * 16) {
		const int64_t n = dt_min64(WIDE * 16, cols - j);

		if (rows == ROWS) {
			block(c + j, ldc, a, a_row, b + j, ldb, rows, n / 16, words, accumulate);
			continue;
		}
		if (accumulate)
			fill_up((uint32_t *)part, WIDE * 16, (const uint32_t *)(c + j), ldc, rows, n);
		block(part, WIDE * 16, a, a_row, b + j, ldb, rows, n / 16, words, accumulate);
		for (int64_t i = 0; i < rows; i++)
			memcpy(c + i * ldc + j, part + i * WIDE * 16, (size_t)n * 4);
	}
}

/* Words of a lie beside each other or, of whole blocks of rows and at most DT_TILE, DT_TILE apart. */
DT_TILE_MUL(TILE_NAME)
{
	_Alignas(64) uint32_t across[ROWS * DT_TILE];

	for (int64_t i = 0; i < rows; i += ROWS) {
		const uint32_t *from = a + i * a_row;

		if (a_word != 1)
			turned(across, from, words);
		block_row(c + i * ldc, ldc, a_word == 1 ? from : across, a_word == 1 ? a_row : DT_TILE, b,
			  ldb, dt_min64(ROWS, rows - i), cols, words, accumulate);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
