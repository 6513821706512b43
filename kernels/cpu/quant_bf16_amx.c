/*
 * Products of quant.h's bf16 panels with AMX tiles (amx.h). Compiled with the instructions and, with
 * AMX_PLAIN, with their emulation; QUANT_NAME is the function.
 *
 * A block of a panel is a tile in place. The order of summation is amx.h's within 32 elements, then blocks in
 * order of k.
 */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/quant.h"

/* Tiles of bf16 sums: C_ij is row block i times panel j. */
#define C_00 0
#define C_01 1
#define C_10 2
#define C_11 3
#define A_0  4
#define A_1  5
#define B_0  6
#define B_1  7

/*
 * One tile of rows of x, or two if tall, times one panel, or two if wide. at: weights, which advance by 1 KiB
 * per block; the prefetch address advances by `ahead` bytes.
 */
DT_INLINE void block_bf16(struct dt_amx_tiles *amx, float *tile, int64_t ld, const uint8_t *const w[2],
			  const uint8_t *next, int64_t ahead, const uint16_t *x, int64_t blocks,
			  const bool tall, const bool wide)
{
	const int64_t stride = blocks * DT_QK * 2;
	const uint8_t *row = (const uint8_t *)x, *below = row + DT_AMX_ROWS * stride;

	tile_zero(amx, C_00);
	if (wide)
		tile_zero(amx, C_01);
	if (tall)
		tile_zero(amx, C_10);
	if (tall && wide)
		tile_zero(amx, C_11);
	for (int64_t b = 0; b < blocks; b++, next += ahead) {
		for (int64_t i = 0; i < ahead; i += 64)
			dt_prefetch_ahead(next + i);
		tile_load(amx, A_0, row + 64 * b, stride);
		tile_load(amx, B_0, w[0] + 1024 * b, 64);
		tile_dot_bf16(amx, C_00, A_0, B_0);
		if (wide) {
			tile_load(amx, B_1, w[1] + 1024 * b, 64);
			tile_dot_bf16(amx, C_01, A_0, B_1);
		}
		if (tall) {
			tile_load(amx, A_1, below + 64 * b, stride);
			tile_dot_bf16(amx, C_10, A_1, B_0);
		}
		if (tall && wide)
			tile_dot_bf16(amx, C_11, A_1, B_1);
	}
	tile_store(amx, C_00, tile, 4 * ld);
	if (wide)
		tile_store(amx, C_01, tile + DT_PANEL, 4 * ld);
	if (tall)
		tile_store(amx, C_10, tile + DT_AMX_ROWS * ld, 4 * ld);
	if (tall && wide)
		tile_store(amx, C_11, tile + DT_AMX_ROWS * ld + DT_PANEL, 4 * ld);
}

/* Configures all tiles for `rows` rows. */
static void configure_bf16(struct dt_amx_tiles *amx, int64_t rows)
{
	struct dt_amx_config config = {.palette = 1};

	for (int i = C_00; i <= B_1; i++) {
		config.rows[i] = (uint8_t)(i <= A_1 ? rows : 16);
		config.bytes[i] = 64;
	}
	tile_configure(amx, &config);
}

/* All rows of x times one panel or two. have: the number of rows that tiles are configured for. */
DT_INLINE void rows_bf16(struct dt_amx_tiles *amx, int64_t *have, float *tile, int64_t ld,
			 const uint8_t *const w[2], const uint8_t *next, size_t next_bytes, const uint16_t *x,
			 int64_t m, int64_t blocks, const bool wide)
{
	const int64_t calls =
		m / (2 * DT_AMX_ROWS) + (m % (2 * DT_AMX_ROWS) >= DT_AMX_ROWS) + (m % DT_AMX_ROWS > 0);
	const int64_t ahead = dt_ceil_div((int64_t)next_bytes, 64 * calls * blocks) * 64;

	for (int64_t r = 0, n; r < m; r += n, next += blocks * ahead) {
		const int64_t rows = dt_min64(DT_AMX_ROWS, m - r);

		n = m - r >= 2 * DT_AMX_ROWS ? 2 * DT_AMX_ROWS : rows;
		if (rows != *have)
			configure_bf16(amx, *have = rows);
		if (n > DT_AMX_ROWS)
			block_bf16(amx, tile + r * ld, ld, w, next, ahead, x + r * blocks * DT_QK, blocks,
				   true, wide);
		else
			block_bf16(amx, tile + r * ld, ld, w, next, ahead, x + r * blocks * DT_QK, blocks,
				   false, wide);
	}
}

DT_QUANT_MUL(QUANT_NAME)
{
	struct dt_amx_tiles amx;
	int64_t have = 0;

	for (int64_t p = 0; p < panels; p += 2) {
		const uint8_t *const from[2] = {w + (size_t)p * panel_bytes,
						w + (size_t)(p + 1) * panel_bytes};
		const uint8_t *then = p + 2 < panels ? from[1] + panel_bytes : next;

		if (p + 1 < panels)
			rows_bf16(&amx, &have, tile + p * DT_PANEL, ld, from, then,
				  then ? 2 * panel_bytes : 0, xq, m, blocks, true);
		else
			rows_bf16(&amx, &have, tile + p * DT_PANEL, ld, from, then, then ? panel_bytes : 0,
				  xq, m, blocks, false);
	}
	tile_release(&amx);
}
/* SPDX-License-Identifier: Apache-2.0 */
