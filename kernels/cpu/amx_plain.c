/* Emulation of the instructions of amx.h, bit for bit, for tests and for processors without AMX. */
#include "kernels/cpu/amx.h"

#include <float.h>
#include <math.h>

static bool there(const struct dt_amx_tiles *amx, int n)
{
	return n >= 0 && n < DT_AMX_REGISTERS && amx->config.rows[n];
}

int dt_amx_configure(struct dt_amx_tiles *amx, const struct dt_amx_config *config)
{
	const struct dt_amx_config none = {0};

	if (config->palette != 1 || config->start_row || memcmp(config->reserved, none.reserved, 14))
		return -EINVAL;
	for (int i = 0; i < 16; i++) {
		const int rows = config->rows[i], bytes = config->bytes[i];

		if (!rows != !bytes || rows > (i < DT_AMX_REGISTERS ? DT_AMX_ROWS : 0) ||
		    bytes > DT_AMX_BYTES || bytes % 4)
			return -EINVAL;
	}
	memset(amx->tile, 0, sizeof amx->tile);
	amx->config = *config;
	return 0;
}

int dt_amx_zero(struct dt_amx_tiles *amx, int n)
{
	if (!there(amx, n))
		return -EINVAL;
	memset(amx->tile[n], 0, sizeof amx->tile[n]);
	return 0;
}

int dt_amx_load(struct dt_amx_tiles *amx, int n, const void *from, int64_t stride)
{
	if (!there(amx, n))
		return -EINVAL;
	memset(amx->tile[n], 0, sizeof amx->tile[n]);
	for (int r = 0; r < amx->config.rows[n]; r++)
		memcpy(amx->tile[n][r], (const char *)from + r * stride, amx->config.bytes[n]);
	return 0;
}

int dt_amx_store(const struct dt_amx_tiles *amx, int n, void *to, int64_t stride)
{
	if (!there(amx, n))
		return -EINVAL;
	for (int r = 0; r < amx->config.rows[n]; r++)
		memcpy((char *)to + r * stride, amx->tile[n][r], amx->config.bytes[n]);
	return 0;
}

/* Whether the tile shapes of c += a b match. */
static bool fit(const struct dt_amx_tiles *amx, int c, int a, int b)
{
	const struct dt_amx_config *f = &amx->config;

	return there(amx, c) && there(amx, a) && there(amx, b) && c != a && c != b && a != b &&
	       f->bytes[c] == f->bytes[b] && f->rows[c] == f->rows[a] && f->bytes[a] == 4 * f->rows[b];
}

/* Which operands are uint8; the others are int8. */
enum signs { NEITHER, THOSE_OF_A, THOSE_OF_B };

DT_INLINE void dot_row(int32_t *c, const uint8_t *a, const uint8_t (*b)[DT_AMX_BYTES], int words, int columns,
		       const enum signs positive)
{
	for (int k = 0; k < words; k++)
		for (int n = 0; n < columns; n++)
			for (int e = 0; e < 4; e++) {
				const uint8_t x = a[4 * k + e], y = b[k][4 * n + e];

				c[n] += (positive == THOSE_OF_A ? x : (int8_t)x) *
					(positive == THOSE_OF_B ? y : (int8_t)y);
			}
}

static DT_SIMD void dot_row_of(int32_t *c, const uint8_t *a, const uint8_t (*b)[DT_AMX_BYTES], int words,
			       int columns, enum signs positive)
{
	if (positive == NEITHER)
		dot_row(c, a, b, words, columns, NEITHER);
	else if (positive == THOSE_OF_A)
		dot_row(c, a, b, words, columns, THOSE_OF_A);
	else
		dot_row(c, a, b, words, columns, THOSE_OF_B);
}

static int dot_bytes(struct dt_amx_tiles *amx, int c, int a, int b, enum signs positive)
{
	if (!fit(amx, c, a, b))
		return -EINVAL;
	for (int r = 0; r < amx->config.rows[c]; r++) {
		int32_t sum[DT_AMX_BYTES / 4];

		memcpy(sum, amx->tile[c][r], sizeof sum);
		dot_row_of(sum, amx->tile[a][r], (const void *)amx->tile[b], amx->config.rows[b],
			   amx->config.bytes[c] / 4, positive);
		memcpy(amx->tile[c][r], sum, sizeof sum);
	}
	return 0;
}

int dt_amx_dot_ss(struct dt_amx_tiles *amx, int c, int a, int b)
{
	return dot_bytes(amx, c, a, b, NEITHER);
}

int dt_amx_dot_su(struct dt_amx_tiles *amx, int c, int a, int b)
{
	return dot_bytes(amx, c, a, b, THOSE_OF_B);
}

int dt_amx_dot_us(struct dt_amx_tiles *amx, int c, int a, int b)
{
	return dot_bytes(amx, c, a, b, THOSE_OF_A);
}

/* Flushes denormals to zero. */
DT_INLINE float flushed(float x)
{
	return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

/*
 * a b + c, with a and b from bf16. A result of FLT_MIN may have been rounded up from a denormal. It has if
 * the exact sum rounded to 24 bits without a minimum exponent is smaller, which scaling by 2^40 shows.
 */
DT_INLINE float multiply_add(float a, float b, float c)
{
	const float r = fmaf(a, b, c);

	if (fabsf(r) == FLT_MIN && fabsf(fmaf(a * 0x1p40f, b, c * 0x1p40f)) < FLT_MIN * 0x1p40f)
		return copysignf(0, r);
	return flushed(r);
}

enum { WORDS = DT_AMX_BYTES / 4 };

/* sum += x b; most have no result of FLT_MIN, and are one loop without branches. */
DT_INLINE void add_multiple(float sum[WORDS], float x, const float b[WORDS], int columns)
{
	float r[WORDS];
	int edges = 0;

	for (int n = 0; n < columns; n++) {
		r[n] = fmaf(x, b[n], sum[n]);
		edges |= fabsf(r[n]) == FLT_MIN;
	}
	for (int n = 0; edges && n < columns; n++)
		r[n] = multiply_add(x, b[n], sum[n]);
	for (int n = 0; n < columns; n++)
		sum[n] = flushed(r[n]);
}

/* c += a b for a row of a and c; b: the first numbers of all words of each row, then the second ones. */
static DT_SIMD void dot_row_bf16(float c[WORDS], const uint16_t *a, const float (*b)[2][WORDS], int words,
				 int columns)
{
	float sum[2][WORDS] = {0};

	for (int k = 0; k < words; k++)
		for (int i = 0; i < 2; i++)
			add_multiple(sum[i], flushed(dt_bf16_to_f32(a[2 * k + i])), b[k][i], columns);
	for (int n = 0; n < columns; n++)
		c[n] = flushed(flushed(c[n]) + flushed(sum[0][n] + sum[1][n]));
}

int dt_amx_dot_bf16(struct dt_amx_tiles *amx, int c, int a, int b)
{
	float wide[DT_AMX_ROWS][2][WORDS];

	if (!fit(amx, c, a, b))
		return -EINVAL;
	for (int k = 0; k < amx->config.rows[b]; k++)
		for (int n = 0; n < 2 * WORDS; n++)
			wide[k][n % 2][n / 2] =
				flushed(dt_bf16_to_f32(((const uint16_t *)amx->tile[b][k])[n]));
	for (int r = 0; r < amx->config.rows[c]; r++) {
		float sum[WORDS];

		memcpy(sum, amx->tile[c][r], sizeof sum);
		dot_row_bf16(sum, (const uint16_t *)amx->tile[a][r], (const void *)wide, amx->config.rows[b],
			     amx->config.bytes[c] / 4);
		memcpy(amx->tile[c][r], sum, sizeof sum);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
