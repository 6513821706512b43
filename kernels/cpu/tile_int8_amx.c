/*
 * Products of tile_int8.h with AMX tiles (amx.h), for rows of two parts. Compiled with the instructions and,
 * with AMX_PLAIN, with their emulation, for AVX-512 around them; INT8_ACROSS and INT8_DOWN are the functions.
 * Sums are exact, and what follows is the same as in tile_int8.c, so the bits are the same.
 *
 * A step is sixteen rows by four tiles of c, whose products do not wait for each other, once per part of the
 * rows. After the products of each part, half of the previous step's sums are converted, which do not wait.
 */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/tile_int8.h"
#include "kernels/cpu/tile_int8_join.h"

#define C_0    0
#define C_1    1
#define C_2    2
#define C_3    3
#define A      4
#define B_EVEN 5
#define B_ODD  6

enum { ROWS = DT_AMX_ROWS, ROW = DT_AMX_BYTES, COLS = 16, WIDE = 4 /* tiles of c */ };

struct room {
	struct dt_amx_tiles amx;
	_Alignas(64) int32_t c[2][2][WIDE][ROWS][COLS]; /* [step parity][part] */
	_Alignas(64) uint8_t values[WIDE][ROWS][ROW];	/* down: sixteen elements of all keys, per tile */
};

/* Operands: keys for across, values for down. */
struct job {
	struct room *room;
	float *to;
	int64_t ld, n;
	const struct dt_tile_bytes *q;
	const void *const *b, *const *next;
	const float *k_scale;
	int64_t words, most, d; /* words of a row, and words at a time; for down: elements */
};

/* Sixteen rows from `row` on; down: elements from `col` on, `wide` groups of sixteen. */
struct step {
	int64_t row, col;
	int wide;
	const uint8_t *b[WIDE];
};

static void configure(struct job *j)
{
	struct dt_amx_config config = {.palette = 1};

	for (int i = C_0; i <= B_ODD; i++) {
		config.rows[i] = (uint8_t)(i <= A ? ROWS : j->most);
		config.bytes[i] = (uint16_t)(i == A ? 4 * j->most : ROW);
	}
	tile_configure(&j->room->amx, &config);
}

#define ZERO(tile, from, t)  tile_zero(&j->room->amx, tile)
#define STORE(tile, from, t) tile_store(&j->room->amx, tile, c[t], ROW)
#define DOT(tile, from, t)                                                                                   \
	do {                                                                                                 \
		tile_load(&j->room->amx, from, s->b[t] + w * ROW, ROW);                                      \
		if (down)                                                                                    \
			tile_dot_us(&j->room->amx, tile, A, from);                                           \
		else                                                                                         \
			tile_dot_su(&j->room->amx, tile, A, from);                                           \
	} while (0)
#define EACH(op)                                                                                             \
	do {                                                                                                 \
		op(C_0, B_EVEN, 0);                                                                          \
		op(C_1, B_ODD, 1);                                                                           \
		if (s->wide > 2) {                                                                           \
			op(C_2, B_EVEN, 2);                                                                  \
			op(C_3, B_ODD, 3);                                                                   \
		}                                                                                            \
	} while (0)

DT_INLINE void multiply(struct job *j, const struct step *s, const int part, const bool down)
{
	const uint32_t *a = j->q->part[part] + s->row * j->words;

	EACH(ZERO);
	for (int64_t w = 0; w < j->words; w += j->most) {
		tile_load(&j->room->amx, A, a + w, 4 * j->words);
		EACH(DOT);
	}
}

DT_INLINE void store(struct job *j, const struct step *s, int32_t (*c)[ROWS][COLS])
{
	EACH(STORE);
}

/* Converts the sums of tiles [t, end) of a step. */
DT_INLINE void finish(struct job *j, const struct step *s, int32_t (*c)[WIDE][ROWS][COLS], int t, int end,
		      const bool down)
{
	const int64_t n = dt_min64(ROWS, j->n - s->row);

	for (; t < end; t++) {
		float *to = j->to + s->row * j->ld + s->col + COLS * t;
		const __m512 k_scale = down ? _mm512_setzero_ps() : _mm512_loadu_ps(j->k_scale + COLS * t);

		for (int64_t r = 0; r < n; r++, to += j->ld) {
			const __m512i sum[2] = {_mm512_load_si512(c[0][t][r]), _mm512_load_si512(c[1][t][r])};

			_mm512_storeu_ps(to, down ? dt_int8_add(_mm512_loadu_ps(to), sum, 2, j->q, s->row + r)
						  : dt_int8_score(sum, 2, j->q, s->row + r, k_scale));
		}
	}
}

/* Position of step i, after preparing operands that it is the first to use. */
DT_INLINE struct step step_at(struct job *j, int64_t i, const bool down)
{
	const int64_t rows = dt_ceil_div(j->n, ROWS);
	struct step s = {i % rows * ROWS, i / rows * COLS * WIDE, WIDE};

	if (down)
		s.wide = (int)dt_min64(WIDE, (j->d - s.col) / COLS);
	for (int t = 0; t < s.wide; t++) {
		s.b[t] = down ? j->room->values[t][0] : j->b[t];
		for (int64_t u = 0; down && !s.row && u < ROWS; u++) {
			const int64_t at = 4 * (u % 4 * j->d + s.col + COLS * t);

			memcpy(j->room->values[t][u], (const char *)j->b[u / 4] + at, ROW);
			dt_prefetch_ahead((const char *)j->next[u / 4] + at);
		}
		for (int64_t w = 0; !down && !s.row && w < j->words; w++)
			dt_prefetch_ahead((const char *)j->next[t] + ROW * w);
	}
	return s;
}

DT_INLINE void run(struct job *j, int64_t steps, const bool down)
{
	struct step before = {0}, s;
	int32_t(*last)[WIDE][ROWS][COLS] = NULL, (*c)[WIDE][ROWS][COLS];

	configure(j);
	for (int64_t i = 0; i < steps; i++, before = s, last = c) {
		c = j->room->c[i % 2];
		s = step_at(j, i, down);
		multiply(j, &s, 0, down);
		if (i)
			finish(j, &before, last, 0, before.wide / 2, down);
		store(j, &s, c[0]);
		multiply(j, &s, 1, down);
		if (i)
			finish(j, &before, last, before.wide / 2, before.wide, down);
		store(j, &s, c[1]);
	}
	finish(j, &before, last, 0, before.wide, down);
	tile_release(&j->room->amx);
}

void INT8_ACROSS(float *s, const struct dt_tile_bytes *q, const void *const k[4], const void *const next[4],
		 const float *k_scale, int64_t n, int64_t words)
{
	struct room room;
	/* All tiles have one shape; words is a multiple of 8. */
	struct job j = {&room, s, DT_TILE, n, q, k, next, k_scale, words, words % 16 ? 8 : 16, 0};

	run(&j, dt_ceil_div(n, ROWS), false);
}

void INT8_DOWN(float *o, int64_t ldo, const struct dt_tile_bytes *w, const void *const v[4],
	       const void *const next[4], int64_t n, int64_t d)
{
	struct room room;
	struct job j = {&room, o, ldo, n, w, v, next, NULL, DT_TILE / 4, DT_TILE / 4, d};

	run(&j, dt_ceil_div(n, ROWS) * dt_ceil_div(d, COLS * WIDE), true);
}
/* SPDX-License-Identifier: Apache-2.0 */
