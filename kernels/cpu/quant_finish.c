/* Converts tiles of sums to results: bias, gates, rounding. */
#include "kernels/cpu/quant.h"

#define GROUP DT_QUANT_GROUP
#define HALF  (GROUP / 2 * DT_PANEL)
#define BATCH 8 /* rows whose gates are applied together */

/* Prefetches n columns of rows [r, end) of y, from element `at` on. */
static void ask_for_rows(struct dt_tensor y, int64_t at, int64_t n, int64_t r, int64_t end)
{
	for (; r < end; r++)
		for (int64_t i = 0; i < n; i += 64 / dt_dtype_size(y.dtype))
			dt_prefetch_write(dt_at(y, at + r * dt_cols(y) + i));
}

/* n columns of a row of a tile with bias, in the tile or in buf; the first is column col of w */
DT_INLINE const float *with_bias(float *buf, const float *tile, struct dt_tensor bias, int64_t col, int64_t n)
{
	float wide[GROUP * DT_PANEL];
	const float *add;

	if (!bias.data)
		return tile;
	add = dt_load(wide, dt_at(bias, col), bias.dtype, n);
	for (int64_t j = 0; j < n; j++)
		buf[j] = tile[j] + add[j];
	return buf;
}

/* writes n columns of `rows` rows of y, from element `at` on: tile + bias */
static DT_SIMD void finish_tile(struct dt_tensor y, int64_t at, const float *tile, int64_t rows,
				struct dt_tensor bias, int64_t col, int64_t n)
{
	float sum[GROUP * DT_PANEL];
	const int64_t ld = dt_cols(y);

	for (int64_t r = 0; r < rows; r++, at += ld, tile += GROUP * DT_PANEL) {
		const float *from = with_bias(sum, tile, bias, col, n);

		if (r + BATCH < rows)
			ask_for_rows(y, at, n, BATCH, BATCH + 1);
		if (y.dtype == DT_F32)
			memcpy(dt_at(y, at), from, (size_t)n * 4);
		else if (n == GROUP * DT_PANEL) /* constant length: no remainder loop */
			dt_store(dt_at(y, at), y.dtype, from, GROUP * DT_PANEL);
		else
			dt_store(dt_at(y, at), y.dtype, from, n);
	}
}

/* copies n columns per row, with bias, from a stride of 2 HALF to a stride of HALF; pads with zeros */
static DT_SIMD void take_half(float *out, const float *tile, int64_t rows, struct dt_tensor bias, int64_t col,
			      int64_t n)
{
	float sum[HALF];

	if (n < HALF)
		memset(out, 0, (size_t)(rows * HALF) * 4);
	for (int64_t r = 0; r < rows; r++, tile += 2 * HALF, out += HALF)
		memcpy(out, with_bias(sum, tile, bias, col, n), (size_t)n * 4);
}

static DT_SIMD void store_gated(struct dt_tensor y, int64_t at, const float *x, int64_t rows, int64_t n)
{
	for (int64_t r = 0; r < rows; r++, at += dt_cols(y), x += HALF) {
		if (y.dtype == DT_F32)
			memcpy(dt_at(y, at), x, (size_t)n * 4);
		else if (n == HALF)
			dt_store(dt_at(y, at), y.dtype, x, HALF);
		else
			dt_store(dt_at(y, at), y.dtype, x, n);
	}
}

void dt_quant_finish(struct dt_tensor y, int64_t at, const float *tile, int64_t rows, struct dt_tensor bias,
		     int64_t col, int64_t n)
{
	finish_tile(y, at, tile, rows, bias, col, n);
}

void dt_quant_finish_gated(struct dt_tensor y, int64_t at, const float *tile, int64_t rows,
			   struct dt_tensor bias, int64_t col, int64_t n, enum dt_act_fn f)
{
	float gate[BATCH * HALF], up[BATCH * HALF];

	for (int64_t r = 0; r < rows; r += BATCH) {
		const int64_t some = dt_min64(BATCH, rows - r);

		ask_for_rows(y, at, n, r + BATCH, dt_min64(r + 2 * BATCH, rows));
		take_half(gate, tile + r * 2 * HALF, some, bias, col, n);
		take_half(up, tile + r * 2 * HALF + HALF, some, bias, dt_cols(y) + col, n);
		dt_cpu_gate(gate, gate, up, some * HALF, f);
		store_gated(y, at + r * dt_cols(y), gate, some, n);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
