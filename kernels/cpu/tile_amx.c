/*
 * Products of tile.h for pairs of bf16 with AMX tiles (amx.h), for attention and for grouped products.
 * Compiled with the instructions and, with AMX_PLAIN, with their emulation. TILE_NAME, TILE_ASKING,
 * TILE_ACROSS and TILE_DOWN are the products, TILE_BEGIN and TILE_END the begin and end of a thread,
 * TILE_TURN the transposition (tile.h) of the surrounding instruction set.
 *
 * c is cut into blocks of 16 rows, or as many as TILE_BEGIN was given, by up to four tiles of 16 columns; 16
 * words are processed at a time. Remaining rows and words are padded with zeros, which change no sum. Sums
 * are in amx.h's order within 16 words, and these in ascending order.
 */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/tile.h"

enum { ROWS = DT_AMX_ROWS, WORDS = DT_AMX_BYTES / 4, WIDE = 4 }; /* WIDE: tiles of c processed together */

#define C_0    0
#define C_1    1
#define C_2    2
#define C_3    3
#define A      4 /* A_ODD is for words 16 .. 31 */
#define B_EVEN 5
#define B_ODD  6
#define A_ODD  7

#ifdef AMX_PLAIN
static _Thread_local struct dt_amx_tiles plain;
#define THIS (&plain)
#else
#define THIS /* with the instructions the processor holds the state */
#endif

static _Thread_local int64_t height; /* rows of the tiles of a and c; 0: not configured */

void TILE_BEGIN(int64_t rows)
{
	const int64_t want = dt_min64(rows, ROWS);
	struct dt_amx_config config = {.palette = 1};

	if (height == want)
		return;
	height = want;
	for (int i = 0; i < DT_AMX_REGISTERS; i++) {
		config.rows[i] = (uint8_t)(i <= A || i == A_ODD ? want : WORDS);
		config.bytes[i] = DT_AMX_BYTES;
	}
	tile_configure(THIS, &config);
}

void TILE_END(void)
{
	height = 0;
	tile_release(THIS);
}

/* op(C_t, column of c, tile of b) for the first n tiles of a block. */
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

/* Tiles of c += 16 words of a . b. */
DT_INLINE void add(const uint32_t *a, int64_t a_row, const uint32_t *b, int64_t ldb, int64_t tiles)
{
	tile_load(THIS, A, a, 4 * a_row);
	EACH_TILE(tiles, DOT);
}

/* Prefetches a few lines at a time, so that tile loads do not wait for fill buffers. */
DT_INLINE void ask(const struct dt_tile_next *next, int64_t past, int first, int last)
{
	if (next->at)
		for (int i = first; i < last; i++)
			dt_prefetch_ahead((const char *)next->at + past + i * next->row);
}

#define ASK_AND_DOT(tile, col, from)                                                                         \
	do {                                                                                                 \
		ask(&next, past, (col) / 4, (col) / 4 + 4);                                                  \
		DOT(tile, col, from);                                                                        \
	} while (0)

DT_TILE_MUL_ASKING(TILE_ASKING)
{
	const int64_t tiles = cols / 16;
	int64_t past = 0;

	if (accumulate)
		EACH_TILE(tiles, LOAD);
	else
		EACH_TILE(tiles, ZERO);
	for (int64_t w = 0; w < words; w += WORDS, past += next.step, a += WORDS, b += WORDS * ldb) {
		tile_load(THIS, A, a, 4 * a_row);
		EACH_TILE(tiles, ASK_AND_DOT);
		ask(&next, past, 4 * (int)tiles, ROWS);
	}
	EACH_TILE(tiles, STORE);
}

/* Copies rows x words of from into the corner of a zero matrix [16, width]. */
DT_INLINE void fill_up(uint32_t *to, int64_t width, const uint32_t *from, int64_t ld, int64_t rows,
		       int64_t words)
{
	memset(to, 0, (size_t)(ROWS * width) * 4);
	for (int64_t i = 0; i < rows; i++)
		memcpy(to + i * width, from + i * ld, (size_t)words * 4);
}

/* The rows of c of one tile, with `rows` rows of a, by `tiles` tiles of columns. */
DT_INLINE void block(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const uint32_t *b, int64_t ldb,
		     int64_t rows, int64_t tiles, int64_t words, bool accumulate)
{
	_Alignas(64) uint32_t part_a[ROWS * WORDS], part_b[WORDS * WIDE * 16];
	const int64_t tall = height;

	if (accumulate)
		EACH_TILE(tiles, LOAD);
	else
		EACH_TILE(tiles, ZERO);
	for (int64_t w = 0; w < words; w += WORDS) {
		const int64_t n = dt_min64(WORDS, words - w);
		const bool rest = n < WORDS;

		if (rest)
			fill_up(part_b, WIDE * 16, b + w * ldb, ldb, n, 16 * tiles);
		if (rest || rows < tall)
			fill_up(part_a, WORDS, a + w, a_row, rows, n);
		add(rest || rows < tall ? part_a : a + w, rest || rows < tall ? WORDS : a_row,
		    rest ? part_b : b + w * ldb, rest ? WIDE * 16 : ldb, tiles);
	}
	EACH_TILE(tiles, STORE);
}

/* to [16, DT_TILE]: transposes words that are DT_TILE apart into 16 rows. */
DT_INLINE void turned(uint32_t *to, const uint32_t *a, int64_t words)
{
	const int64_t whole = words / WORDS * WORDS;

	for (int64_t w = 0; w < whole; w += WORDS)
		TILE_TURN(to + w, a + w * DT_TILE, ROWS);
	for (int64_t w = whole; w < words; w++)
		for (int64_t i = 0; i < ROWS; i++)
			to[i * DT_TILE + w] = a[w * DT_TILE + i];
}

/*
 * Tile t += [rows, words] a . columns of b, whole tiles only. held: the first 32 words of a are already
 * loaded. A product takes 16 cycles, a load 8.
 */
#define DOTS(t, b, ldb, held, ahead)                                                                         \
	for (int64_t w = 0; w < words; w += 2 * WORDS) {                                                     \
		if (w || !(held))                                                                            \
			tile_load(THIS, A, a + w, 4 * a_row);                                                \
		tile_load(THIS, B_EVEN, (b) + w * (ldb), 4 * (ldb));                                         \
		ahead(t, w);                                                                                 \
		tile_dot_bf16(THIS, t, A, B_EVEN);                                                           \
		if (w + WORDS >= words)                                                                      \
			break;                                                                               \
		if (w || !(held))                                                                            \
			tile_load(THIS, A_ODD, a + w + WORDS, 4 * a_row);                                    \
		tile_load(THIS, B_ODD, (b) + (w + WORDS) * (ldb), 4 * (ldb));                                \
		ahead(t, w + WORDS);                                                                         \
		tile_dot_bf16(THIS, t, A_ODD, B_ODD);                                                        \
	}
#define NOTHING(t, w)

/* Columns from j + 16 t on, in tile t. */
#define COLUMNS(t)                                                                                           \
	if (j + 16 * (t) < cols) {                                                                           \
		if (accumulate)                                                                              \
			tile_load(THIS, t, c + j + 16 * (t), 4 * ldc);                                       \
		else                                                                                         \
			tile_zero(THIS, t);                                                                  \
		DOTS(t, b + j + 16 * (t), ldb, words <= 2 * WORDS && (j || (t)), NOTHING);                   \
	}
#define STORE_COLUMNS(t)                                                                                     \
	if (j + 16 * (t) < cols)                                                                             \
		tile_store(THIS, t, c + j + 16 * (t), 4 * ldc);

/* Like block_row, for whole tiles. A tile of c is stored after the products of the next one. */
DT_INLINE void whole_row(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const uint32_t *b,
			 int64_t ldb, int64_t cols, int64_t words, bool accumulate)
{
	for (int64_t j = 0; j < cols; j += WIDE * 16) {
		COLUMNS(C_0)
		COLUMNS(C_1)
		STORE_COLUMNS(C_0)
		COLUMNS(C_2)
		STORE_COLUMNS(C_1)
		COLUMNS(C_3)
		STORE_COLUMNS(C_2)
		STORE_COLUMNS(C_3)
	}
}

/* All columns of a block of rows. */
DT_INLINE void block_row(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const uint32_t *b,
			 int64_t ldb, int64_t rows, int64_t cols, int64_t words, bool accumulate)
{
	_Alignas(64) float part[ROWS * WIDE * 16];

	if (rows == height && words % WORDS == 0) {
		whole_row(c, ldc, a, a_row, b, ldb, cols, words, accumulate);
		return;
	}
	for (int64_t j = 0; j < cols; j += WIDE * 16) {
		const int64_t n = dt_min64(WIDE * 16, cols - j);

		if (rows == height) {
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

/* Words of a are contiguous or, for whole blocks of 16 rows and at most DT_TILE, DT_TILE apart. */
DT_TILE_MUL(TILE_NAME)
{
	_Alignas(64) uint32_t across[ROWS * DT_TILE];
	const int64_t tall = height;

	for (int64_t i = 0; i < rows; i += tall) {
		const uint32_t *from = a + i * a_row;

		if (a_word != 1)
			turned(across, from, words);
		block_row(c + i * ldc, ldc, a_word == 1 ? from : across, a_word == 1 ? a_row : DT_TILE, b,
			  ldb, dt_min64(tall, rows - i), cols, words, accumulate);
	}
}

/* A group's columns, which are tiles in place, in tile t. Prefetches all groups in turn. */
#define ASK(t, w)                                                                                            \
	for (int i = 0; then && i < 16; i++)                                                                 \
		dt_prefetch_ahead(then[i % 4] + 16 * ((w) + 4 * (t) + i / 4));
#define GROUP(t)                                                                                             \
	tile_zero(THIS, t);                                                                                  \
	DOTS(t, b[t], 16, words <= 2 * WORDS && (t), ASK)
#define STORE_GROUP(t) tile_store(THIS, t, c + 16 * (t), 4 * ldc);

DT_TILE_MUL_ACROSS(TILE_ACROSS)
{
	const int64_t tall = height;

	for (int64_t r = 0; r < rows; r += tall, c += tall * ldc, a += tall * a_row) {
		const uint32_t *const *then = r ? NULL : next;

		GROUP(C_0)
		GROUP(C_1)
		STORE_GROUP(C_0)
		GROUP(C_2)
		STORE_GROUP(C_1)
		GROUP(C_3)
		STORE_GROUP(C_2)
		STORE_GROUP(C_3)
	}
}

/* Joins columns [col, col + cols) of 32 words in groups of eight: zeros before first and from last on. */
DT_INLINE void join(uint32_t *to, const uint32_t *const *b, const uint32_t *const *next, int64_t ld,
		    int64_t col, int64_t cols, int64_t first, int64_t last)
{
	for (int64_t w = 0; w < 2 * WORDS; w++, to += WIDE * 16) {
		const int64_t at = w % 8 * ld + col;

		for (int64_t j = 0; j < cols; j += 16) {
			dt_prefetch_ahead(next[w / 8] + at + j);
			if (w >= first && w < last)
				memcpy(to + j, b[w / 8] + at + j, 64);
			else
				memset(to + j, 0, 64);
		}
	}
}

DT_TILE_MUL_DOWN(TILE_DOWN)
{
	_Alignas(64) uint32_t joined[2 * WORDS * WIDE * 16];

	for (int64_t j = 0; j < cols; j += WIDE * 16) {
		const int64_t n = dt_min64(WIDE * 16, cols - j);

		join(joined, b, next, cols, j, n, first, last);
		for (int64_t i = 0; i < rows; i += height)
			block_row(c + i * ldc + j, ldc, a + i * a_row, a_row, joined, WIDE * 16,
				  dt_min64(height, rows - i), n, (last + 15) / 16 * 16, true);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
