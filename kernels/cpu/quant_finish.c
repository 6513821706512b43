/* Converts tiles of sums to results: bias, gates, rounding. */
#include "kernels/cpu/quant.h"

#define GROUP DT_QUANT_GROUP
#define WIDE  (GROUP * DT_PANEL) /* columns of a tile; of these, gates and their factors have half each */
#define HALF  (WIDE / 2)
#define BATCH 8 /* rows whose results are prefetched */

/* Rows of y from an element on; in loops, where compilers would copy a struct dt_tensor in each iteration. */
struct out {
	char *at;
	int64_t step; /* bytes per row */
	enum dt_dtype type;
};

static struct out out_of(struct dt_tensor y, int64_t at)
{
	return (struct out){dt_at(y, at), dt_cols(y) * dt_dtype_size(y.dtype), y.dtype};
}

/* Prefetches n columns of rows [r, end). */
DT_INLINE void ask_for_rows(const struct out *y, int64_t n, int64_t r, int64_t end)
{
	const int64_t bytes = n * dt_dtype_size(y->type);

	for (; r < end; r++)
		for (int64_t i = 0; i < bytes; i += 64)
			dt_prefetch_write(y->at + r * y->step + i);
}

/* Adds n elements of the bias, from column col on, to rows of a tile. */
static DT_SIMD void add_bias(float *tile, int64_t rows, struct dt_tensor bias, int64_t col, int64_t n)
{
	float wide[WIDE];
	const float *add = dt_load(wide, dt_at(bias, col), bias.dtype, n);

	for (int64_t r = 0; r < rows; r++, tile += WIDE)
		for (int64_t j = 0; j < n; j++)
			tile[j] += add[j];
}

/* Rounds n columns of each row. type and n may be constants after inlining: no remainder loop then, and the
 * conversion's constants stay in registers. */
DT_INLINE void store_rows(const struct out *y, enum dt_dtype type, const float *tile, int64_t rows, int64_t n)
{
	char *to = y->at;

	ask_for_rows(y, n, 0, dt_min64(BATCH, rows));
	for (int64_t r = 0; r < rows; r++, tile += WIDE, to += y->step) {
		ask_for_rows(y, n, r + BATCH, dt_min64(r + BATCH + 1, rows));
		if (type == DT_F32)
			memcpy(to, tile, (size_t)n * 4);
		else
			dt_store(to, type, tile, n);
	}
}

static DT_SIMD void finish_tile(const struct out *y, const float *tile, int64_t rows, int64_t n)
{
	if (y->type == DT_BF16 && n == WIDE)
		store_rows(y, DT_BF16, tile, rows, WIDE);
	else if (y->type == DT_BF16 && n == HALF)
		store_rows(y, DT_BF16, tile, rows, HALF);
	else
		store_rows(y, y->type, tile, rows, n);
}

void dt_quant_finish(struct dt_tensor y, int64_t at, float *tile, int64_t rows, struct dt_tensor bias,
		     int64_t col, int64_t n)
{
	const struct out out = out_of(y, at);

	if (bias.data)
		add_bias(tile, rows, bias, col, n);
	finish_tile(&out, tile, rows, n);
}

void dt_quant_finish_gated(struct dt_tensor y, int64_t at, float *tile, int64_t rows, struct dt_tensor bias,
			   int64_t col, int64_t n, enum dt_act_fn f)
{
	const struct out out = out_of(y, at);

	if (bias.data) {
		add_bias(tile, rows, bias, col, n);
		add_bias(tile + HALF, rows, bias, dt_cols(y) + col, n);
	}
	ask_for_rows(&out, n, 0, rows);
	dt_cpu_gate(tile, WIDE, HALF, rows, dt_ceil_div(n, DT_PANEL) * DT_PANEL, f); /* panels are whole */
	finish_tile(&out, tile, rows, n);
}
/* SPDX-License-Identifier: Apache-2.0 */
