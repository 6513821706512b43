/* f32, f16 and bf16: a block is one element. */
#include "kernels/format/format.h"

static void f32_copy(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y)
{
	memcpy(y, s, (size_t)n * 4);
}

static void f32_put(const struct dt_format_traits *t, const float *x, int64_t n, uint8_t *out)
{
	memcpy(out, x, (size_t)n * 4);
}

const struct dt_format_traits dt_format_f32 = {
	.info = {"f32", .gguf = 0, .file_type = 0, .block = 1, .bytes = 4, .dtype = DT_F32},
	.panel = {2048, 0, 0, 0},
	.decode = f32_copy,
	.encode = f32_put,
};

static void f16_decode(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y)
{
	for (int64_t i = 0; i < n; i++)
		y[i] = dt_half_at(s + 2 * i);
}

static void f16_encode(const struct dt_format_traits *t, const float *x, int64_t n, uint8_t *out)
{
	for (int64_t i = 0; i < n; i++)
		dt_put_half(out + 2 * i, x[i]);
}

const struct dt_format_traits dt_format_f16 = {
	.info = {"f16", .gguf = 1, .file_type = 1, .block = 1, .bytes = 2, .dtype = DT_F16},
	.decode = f16_decode,
	.encode = f16_encode,
};

static void bf16_decode(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y)
{
	for (int64_t i = 0; i < n; i++)
		y[i] = dt_bf16_to_f32(dt_u16_at(s + 2 * i));
}

static void bf16_encode(const struct dt_format_traits *t, const float *x, int64_t n, uint8_t *out)
{
	for (int64_t i = 0; i < n; i++) {
		const uint16_t h = dt_f32_to_bf16(x[i]);

		memcpy(out + 2 * i, &h, 2);
	}
}

const struct dt_format_traits dt_format_bf16 = {
	.info = {"bf16", .gguf = 30, .file_type = 32, .block = 1, .bytes = 2, .dtype = DT_BF16},
	.panel = {1024, 0, 0, 0},
	.decode = bf16_decode,
	.encode = bf16_encode,
};
/* SPDX-License-Identifier: Apache-2.0 */
