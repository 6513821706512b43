#include "kernels/cpu/isa.h"
#include "kernels/cpu/tile_int8.h"

static const struct dt_tile plain = {.mul = dt_tile_mul_plain, .turn = dt_tile_turn_plain};
#ifdef __x86_64__
/* v4 leaves out products in halves: with AVX-512, many rows times int8 are faster in f32. */
#define ROWS .across_rows = dt_tile_across_rows_v3, .down_rows = dt_tile_down_rows_v3
static const struct dt_tile v3 = {ROWS,
				  .mul = dt_tile_mul_v3,
				  .halves_of = dt_tile_halves_of,
				  .halves_across = dt_tile_halves_across,
				  .halves_down = dt_tile_halves_down,
				  .turn = dt_tile_turn_v3},
			    v4 = {ROWS, .mul = dt_tile_mul_v4, .turn = dt_tile_turn_v4};
/* Packing and other functions shared by all implementations of pair products. */
#define PAIRS                                                                                                \
	.pairs = true, .turn = dt_tile_turn_v4, .along = dt_tile_along_bf16, .across = dt_tile_across_bf16,  \
	.lanes = dt_tile_lanes_bf16, .depth = dt_tile_depth_bf16
#define BY_AMX(name)                                                                                         \
	.begin = dt_tile_begin_##name, .end = dt_tile_end_##name, .mul = dt_tile_mul_##name,                 \
	.mul_across = dt_tile_mul_across_##name, .mul_down = dt_tile_mul_down_##name,                        \
	.mul_few = dt_tile_mul_few_bf16, .mul_asking = dt_tile_mul_asking_##name
static const struct dt_tile bf16 = {PAIRS, .mul = dt_tile_mul_bf16, .mul_across = dt_tile_mul_across_bf16,
				    .mul_down = dt_tile_mul_down_bf16, .mul_asking = dt_tile_mul_asking_bf16},
			    amx = {PAIRS, BY_AMX(amx)}, amx_plain = {PAIRS, BY_AMX(amx_plain_v4)};
#endif

void dt_tile_turn_plain(uint32_t *out, const uint32_t *in, int64_t n)
{
	for (int64_t w = 0; w < n; w++)
		for (int64_t i = 0; i < 16; i++)
			out[w * DT_TILE + i] = in[i * 64 + w];
}

const struct dt_tile *dt_tile(enum dt_dtype t)
{
#ifdef __x86_64__
	const struct dt_isa *isa = dt_isa();

	if (t == DT_BF16 && isa->bf16)
		return &bf16;
	if (isa->avx512)
		return &v4;
	if (isa->avx2)
		return &v3;
#endif
	return &plain;
}

const struct dt_tile *dt_tile_with_amx(enum dt_dtype t)
{
#ifdef __x86_64__
	const struct dt_isa *isa = dt_isa();

	if (t == DT_BF16 && isa->bf16 && isa->amx)
		return isa->amx == DT_AMX_TILES ? &amx : &amx_plain;
#endif
	return dt_tile(t);
}

bool dt_tile_int8(void)
{
	return dt_isa()->vnni;
}

/* A small integer as bf16, exactly. */
DT_INLINE uint16_t small_bf16(int8_t q)
{
	const float f = q;
	uint32_t u;

	memcpy(&u, &f, 4);
	return (uint16_t)(u >> 16);
}

/* Copies elements of a row as words; an odd last one is paired with zero. */
DT_INLINE void copy_words(uint32_t *out, const void *row, enum dt_dtype type, int64_t d, bool pairs)
{
	const int8_t *q = row;

	if (type == DT_I8 && pairs) {
		uint16_t *half = (uint16_t *)out;

		out[(d - 1) / 2] = 0;
#pragma omp simd
		for (int64_t i = 0; i < d; i++)
			half[i] = small_bf16(q[i]);
	} else if (type == DT_I8) {
#pragma omp simd
		for (int64_t i = 0; i < d; i++)
			((float *)out)[i] = q[i];
	} else if (type == DT_F32) {
		memcpy(out, row, (size_t)d * 4);
	} else if (pairs) {
		out[(d - 1) / 2] = 0;
		memcpy(out, row, (size_t)d * 2);
	} else {
		dt_load((float *)out, row, type, d);
	}
}

static DT_SIMD void pack_rows(const struct dt_tile *t, uint32_t *out, const void *const *row,
			      enum dt_dtype type, int64_t rows, int64_t d)
{
	const int64_t words = dt_tile_words(t, d);

	for (int64_t i = 0; i < rows; i++)
		copy_words(out + i * words, row[i], type, d, t->pairs);
	memset(out + rows * words, 0, (size_t)((DT_TILE - rows) * words) * 4);
}

/* Sixteen rows at a time, through a block that stays in L1. */
static DT_SIMD void pack_lanes(const struct dt_tile *t, uint32_t *out, const void *const *row,
			       enum dt_dtype type, int64_t rows, int64_t d)
{
	const int64_t words = dt_tile_words(t, d);
	uint32_t part[16][64];

	for (int64_t first = 0; first < DT_TILE; first += 16)
		for (int64_t w = 0; w < words; w += 64) {
			const int64_t n = dt_min64(64, words - w);
			const int64_t at = t->pairs ? 2 * w : w, left = d - at, take = t->pairs ? 2 * n : n;

			for (int64_t i = 0; i < 16; i++) {
				const char *p = first + i < rows ? row[first + i] : NULL;

				if (p)
					copy_words(part[i], p + at * dt_dtype_size(type), type,
						   dt_min64(take, left), t->pairs);
				else
					memset(part[i], 0, (size_t)n * 4);
			}
			t->turn(out + w * DT_TILE + first, part[0], n);
		}
}

DT_INLINE void pack_depth_i8(uint32_t *out, const void *const *row, int64_t rows, int64_t d, int64_t pad)
{
	static const int8_t zero[512];

	for (int64_t i = 0; i < DT_TILE; i += 2) {
		uint32_t *w = out + i / 2 * pad;

		for (int64_t c = 0; c < d; c += 512) {
			const int8_t *a = i < rows && row[i] ? (const int8_t *)row[i] + c : zero;
			const int8_t *b = i + 1 < rows && row[i + 1] ? (const int8_t *)row[i + 1] + c : zero;
			const int64_t n = dt_min64(512, d - c);

#pragma omp simd
			for (int64_t j = 0; j < n; j++)
				w[c + j] = small_bf16(a[j]) | (uint32_t)small_bf16(b[j]) << 16;
		}
		for (int64_t j = d; j < pad; j++)
			w[j] = 0;
	}
}

static DT_SIMD void pack_depth(const struct dt_tile *t, uint32_t *out, const void *const *row,
			       enum dt_dtype type, int64_t rows, int64_t d)
{
	static const uint16_t zero[512];
	const int64_t pad = (d + 15) / 16 * 16;

	if (!t->pairs) {
		for (int64_t i = 0; i < DT_TILE; i++) {
			const int64_t n = i < rows && row[i] ? d : 0;

			if (n)
				copy_words(out + i * pad, row[i], type, n, false);
			memset(out + i * pad + n, 0, (size_t)(pad - n) * 4);
		}
		return;
	}
	if (type == DT_I8) {
		pack_depth_i8(out, row, rows, d, pad);
		return;
	}
	for (int64_t i = 0; i < DT_TILE; i += 2) {
		uint32_t *w = out + i / 2 * pad;

		for (int64_t c = 0; c < d; c += 512) {
			const uint16_t *a = i < rows && row[i] ? (const uint16_t *)row[i] + c : zero;
			const uint16_t *b =
				i + 1 < rows && row[i + 1] ? (const uint16_t *)row[i + 1] + c : zero;
			const int64_t n = dt_min64(512, d - c);

#pragma omp simd
			for (int64_t j = 0; j < n; j++)
				w[c + j] = a[j] | (uint32_t)b[j] << 16;
		}
		for (int64_t j = d; j < pad; j++)
			w[j] = 0;
	}
}

void dt_tile_pack_rows(const struct dt_tile *t, uint32_t *out, const void *const *row, enum dt_dtype type,
		       int64_t rows, int64_t d)
{
	pack_rows(t, out, row, type, rows, d);
}

void dt_tile_pack_lanes(const struct dt_tile *t, uint32_t *out, const void *const *row, enum dt_dtype type,
			int64_t rows, int64_t d)
{
	if (t->lanes && type == DT_BF16 && d % 32 == 0)
		t->lanes(out, row, rows, d);
	else
		pack_lanes(t, out, row, type, rows, d);
}

void dt_tile_pack_depth(const struct dt_tile *t, uint32_t *out, const void *const *row, enum dt_dtype type,
			int64_t rows, int64_t d)
{
	if (t->depth && type == DT_BF16 && d % 32 == 0)
		t->depth(out, row, rows, d);
	else
		pack_depth(t, out, row, type, rows, d);
}
/* SPDX-License-Identifier: Apache-2.0 */
