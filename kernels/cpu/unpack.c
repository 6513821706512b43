#include "kernels/cpu/cpu.h"
#include "kernels/nf4.h"
#include "kernels/quant_formats.h"

#define PIECE 1024 /* elements at a time: a multiple of every block size */

/* Decodes n elements of row `row` from column `col` on. */
static void nf4_piece(const struct dt_blocks_part *p, int64_t part, int64_t width, int64_t row, int64_t col,
		      int64_t n, float *out)
{
	const float *code = (const float *)p->data, offset = code[256], *group = code + 257;
	const uint8_t *scale = p->data + dt_nf4_scales_at(p->whole),
		      *nibble = p->data + dt_nf4_nibbles_at(part, p->whole);
	int64_t here = row * width + col, there = p->first + row * p->cols + col;

	for (int64_t i = 0; i < n; i += DT_NF4_BLOCK, here += DT_NF4_BLOCK, there += DT_NF4_BLOCK) {
		const float product =
			code[scale[here / DT_NF4_BLOCK]] * group[there / DT_NF4_BLOCK / DT_NF4_GROUP];
		const float s = product + offset;

		for (int k = 0; k < DT_NF4_BLOCK; k += 2) {
			const uint8_t b = nibble[(here + k) / 2];

			out[i + k] = dt_nf4_table[b >> 4] * s;
			out[i + k + 1] = dt_nf4_table[b & 15] * s;
		}
	}
}

static void unpack_row(struct dt_tensor y, const struct dt_blocks_part *p, int64_t row)
{
	const int64_t width = dt_cols(y);
	const enum dt_format f = dt_blocks_format(p->kind);
	float wide[PIECE];

	for (int64_t c = 0; c < width; c += PIECE) {
		const int64_t n = dt_min64(PIECE, width - c);
		void *to = dt_at(y, row * width + c);
		float *out = dt_stage(wide, to, y.dtype);

		if (p->kind == DT_BLOCKS_NF4)
			nf4_piece(p, dt_numel(y), width, row, c, n, out);
		else
			dt_dequantize(f, p->data + dt_format_bytes(f, row * width + c), n, out);
		dt_store(to, y.dtype, out, n);
	}
}

int dt_cpu_unpack(struct dt_dev *dev, struct dt_tensor y, const struct dt_blocks_part *p)
{
	const int64_t rows = dt_rows(y);

#pragma omp parallel for num_threads(dev->nthreads) if (dt_numel(y) > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++)
		unpack_row(y, p, i);
	return 0;
}

int dt_cpu_round_blocks(struct dt_dev *dev, struct dt_tensor w, enum dt_format f)
{
	const int64_t n = dt_numel(w);

#pragma omp parallel for num_threads(dev->nthreads) if (n > DT_SERIAL)
	for (int64_t i = 0; i < n; i += PIECE) {
		const int64_t m = dt_min64(PIECE, n - i);
		float wide[PIECE], *x = dt_stage(wide, dt_at(w, i), w.dtype);
		uint8_t blocks[PIECE + PIECE / 8]; /* q8_0 is the largest */

		dt_quantize(f, dt_load(wide, dt_at(w, i), w.dtype, m), m, blocks);
		dt_dequantize(f, blocks, m, x);
		dt_store(dt_at(w, i), w.dtype, x, m);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
