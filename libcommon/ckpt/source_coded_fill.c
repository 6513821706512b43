/* Dequantizes the matrices of source_coded.c when they are first read. */
#include "ckpt/source_coded.h"

#include <string.h>

uint32_t src_coded_word(const uint8_t *p, int64_t i)
{
	uint32_t w;

	memcpy(&w, p + 4 * i, sizeof(w));
	return w;
}

/* Code i of a bit stream whose words start at word `at` and are `stride` apart. */
static unsigned stream(const uint8_t *p, int64_t at, int64_t stride, int64_t i, int bits)
{
	int64_t bit = i * bits, w = bit / 32;
	int shift = (int)(bit % 32);
	uint64_t v = src_coded_word(p, at + w * stride);

	if (shift + bits > 32)
		v |= (uint64_t)src_coded_word(p, at + (w + 1) * stride) << 32;
	return (unsigned)(v >> shift) & ((1u << bits) - 1);
}

static unsigned nibble_of_awq(const uint8_t *p, int64_t row, int64_t out, int64_t n)
{
	static const int shift[8] = {0, 16, 4, 20, 8, 24, 12, 28}; /* shift of column n % 8 */

	return src_coded_word(p, row * (out / 8) + n / 8) >> shift[n % 8] & 15;
}

static unsigned code(const struct src_coded *c, int64_t row, int64_t col)
{
	return c->scheme.method == SRC_AWQ ? nibble_of_awq(c->q, col, c->rows, row)
					   : stream(c->q, row, c->rows, col, c->scheme.bits);
}

int src_coded_zero(const struct src_coded *c, int64_t group, int64_t row)
{
	int bits = c->scheme.bits;

	if (c->scheme.method == SRC_AWQ)
		return (int)nibble_of_awq(c->zeros, group, c->rows, row);
	return (int)stream(c->zeros, group * (c->rows * bits / 32), 1, row, bits) + c->scheme.add;
}

static float number(const uint8_t *p, enum dt_format f, int64_t i)
{
	float x;

	dt_dequantize(f, p + i * dt_format_info(f)->bytes, 1, &x);
	return x;
}

static int64_t group_of(const struct src_coded *c, int64_t col)
{
	return c->group_of ? c->group_of[col] : col / c->scheme.group;
}

static void put_number(const struct src_coded *c, int64_t row, int64_t col, float x)
{
	dt_quantize(c->format, &x, 1, c->data + (row * c->cols + col) * dt_format_info(c->format)->bytes);
}

static void fill_block(const struct src_coded *c, int64_t row, int64_t col)
{
	int64_t group = group_of(c, col);
	uint8_t *b = c->data + dt_format_bytes(c->format, row * c->cols + col), *q;
	uint16_t offset;

	memcpy(b, c->scales + 2 * (group * c->rows + row), 2);
	if (c->format == DT_FMT_Q8_0) {
		for (int i = 0; i < 32; i++)
			b[2 + i] = (uint8_t)((int)code(c, row, col + i) - 128);
		return;
	}
	q = b + 2;
	if (c->format == DT_FMT_Q4_1) {
		offset = dt_f32_to_f16(-number(c->scales, DT_FMT_F16, group * c->rows + row) *
				       (float)src_coded_zero(c, group, row));
		memcpy(q, &offset, 2);
		q += 2;
	}
	for (int i = 0; i < 16; i++)
		q[i] = (uint8_t)(code(c, row, col + i) | code(c, row, col + i + 16) << 4);
}

static void fill_number(const struct src_coded *c, int64_t row, int64_t col)
{
	int64_t group = group_of(c, col);
	float scale = number(c->scales, c->scale_type, group * c->rows + row);

	put_number(c, row, col, scale * (float)((int)code(c, row, col) - src_coded_zero(c, group, row)));
}

static void fill_fp8(const struct src_coded *c, int64_t row, int64_t col)
{
	const int64_t *block = c->scheme.block;
	int64_t at =
		c->groups == 1 ? 0 : row / block[0] * ((c->cols + block[1] - 1) / block[1]) + col / block[1];

	put_number(c, row, col,
		   dt_e4m3_to_f32(c->q[row * c->cols + col]) * number(c->scales, c->scale_type, at));
}

/* The codes of a block lie two by two; those of the file format 16 apart. */
static void fill_mxfp4(const struct src_coded *c)
{
	uint8_t *to = c->data;

	for (int64_t b = 0; b < c->rows * c->cols / 32; b++, to += 17) {
		const uint8_t *from = c->q + 16 * b;

		to[0] = c->scales[b];
		for (int i = 0; i < 16; i++)
			to[1 + i] = (uint8_t)((from[i / 2] >> (4 * (i % 2)) & 15) |
					      (from[8 + i / 2] >> (4 * (i % 2)) & 15) << 4);
	}
}

/* Fills tiles of rows: words of adjacent rows are adjacent in the file, and are read only once. */
static void fill(struct src_coded *c)
{
	enum { TILE = 64 };
	int step = dt_format_info(c->format)->block;

	if (c->scheme.method == SRC_BNB) {
		src_bnb_fill(&c->bnb, c->data);
		return;
	}
	if (c->scheme.method == SRC_MXFP4) {
		fill_mxfp4(c);
		return;
	}
	for (int64_t r0 = 0; r0 < c->rows; r0 += TILE)
		for (int64_t col = 0; col < c->cols; col += step)
			for (int64_t r = r0; r < r0 + TILE && r < c->rows; r++)
				if (c->scheme.method == SRC_FP8)
					fill_fp8(c, r, col);
				else if (step > 1)
					fill_block(c, r, col);
				else
					fill_number(c, r, col);
}

void src_coded_need(const struct dt_source *s, const void *data)
{
	const uint8_t *p = data;

	for (int i = 0, n = s->ncoded; i < n;) { /* sorted by address */
		int mid = i + (n - i) / 2;
		struct src_coded *c = s->coded[mid];

		if (p < c->data) {
			n = mid;
		} else if (p >= c->data + c->bytes) {
			i = mid + 1;
		} else {
			if (atomic_load_explicit(&c->filled, memory_order_acquire))
				return;
			pthread_mutex_lock(&c->lock);
			if (!atomic_load(&c->filled))
				fill(c);
			atomic_store_explicit(&c->filled, true, memory_order_release);
			pthread_mutex_unlock(&c->lock);
			return;
		}
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
