/*
 * mxfp4: 32 elements in 17 bytes: u8 e, 16 bytes of e2m1 codes in q4_0's order with values v; x = 2^(e - 127)
 * v (OCP Microscaling 1.0). e = 127 + floor(log2 max |x|) - 2; larger values saturate to 6; ties go to the
 * smaller magnitude.
 */
#include "kernels/format/format.h"
#include "kernels/quant_grid.h"

DT_FORMAT_TABLE int8_t twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static DT_FORMAT_CODE float half_scale(uint8_t e)
{
	return e == 255 ? NAN : ldexpf(1, e - 128);
}

static DT_FORMAT_CODE void decode(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y)
{
	for (; n > 0; n -= 32, s += 17, y += 32)
		dt_nibbles_decode(s + 1, half_scale(s[0]), twice, y);
}

/* First code nearest to q; q is in units of dt_e2m1_twice. */
static inline DT_FORMAT_CODE unsigned code_of(float q)
{
	unsigned ret = 0;
	float least = fabsf((float)twice[0] - q);

	for (unsigned c = 1; c < 16; c++) {
		const float away = fabsf((float)twice[c] - q);

		ret = away < least ? c : ret;
		least = away < least ? away : least;
	}
	return ret;
}

static DT_FORMAT_WIDE void mxfp4_round_off(const float *x, float d, uint8_t *code)
{
	for (int j = 0; j < 32; j++)
		code[j] = (uint8_t)code_of(x[j] / d);
}

static DT_FORMAT_CODE void encode(const struct dt_format_traits *t, const float *x, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 32, x += 32, out += 17) {
		uint8_t code[32];
		float max = 0, d;
		int e = 0;

		for (int j = 0; j < 32; j++)
			max = fabsf(x[j]) > max && isfinite(x[j]) ? fabsf(x[j]) : max;
		if (max > 0) {
			frexpf(max, &e); /* max = f 2^e, 0.5 <= f < 1 */
			e += 127 - 1 - 2;
		}
		out[0] = (uint8_t)(e < 0 ? 0 : e);
		d = half_scale(out[0]);
		mxfp4_round_off(x, d, code);
		dt_nibbles_put(code, out + 1);
	}
}

#ifdef DT_FORMAT_HOST
const int8_t dt_e2m1_twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void scales(const uint8_t *s, float step[16], float min[16])
{
	step[0] = step[1] = half_scale(s[0]);
	min[0] = min[1] = 0;
}

static void put(const struct dt_format_traits *t, const uint8_t *code, uint8_t *s)
{
	dt_nibbles_put(code, s + 1);
}

/* Tries the exponent that encode chooses and its neighbours; keeps the one of smallest weighted error. */
static void weighted(const struct dt_format_traits *t, const float *x, const float *w, uint8_t *out)
{
	uint8_t code[32], first;
	float best = INFINITY;
	struct dt_grid g;

	encode(t, x, 32, out);
	first = out[0];
	for (int e = first > 0 ? first - 1 : 0; e <= first + 1 && e < 255; e++) {
		uint8_t scale = (uint8_t)e;
		float error;

		dt_grid_of(DT_FMT_MXFP4, &scale, &g);
		error = dt_grid_error32(&g, x, w, code);
		if (error < best) {
			best = error;
			out[0] = scale;
			put(t, code, out);
		}
	}
}

static void piece(const struct dt_format_traits *t, struct dt_panel_piece *r, const uint8_t *s, int j)
{
	r->d = dt_f32_to_bf16(half_scale(s[0]));
	dt_nibbles(r->q, s + 1);
}

const struct dt_format_traits dt_format_mxfp4 = {
	.info = {"mxfp4", .gguf = 39, .file_type = 38, .block = 32, .bytes = 17, .dtype = -1},
	.panel = {256, 32, 0, 12},
	.decode = decode,
	.encode = encode,
	.levels = 16,
	.values = twice,
	.scales = scales,
	.put = put,
	.weighted = weighted,
	.piece = piece,
};
#endif
/* SPDX-License-Identifier: Apache-2.0 */
