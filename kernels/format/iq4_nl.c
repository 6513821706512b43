/*
 * iq4_nl: 32 elements in 18 bytes: f16 d, 4-bit codes in q4_0's order, which index a table v of 16 values,
 * denser near zero; x = d v. Products convert it exactly to q8_0. d is the weighted least-squares fit to the
 * best of 15 roundings; larger weights have a larger share in the error.
 */
#include "kernels/format/iq4.h"
#include "kernels/format/search.h"

#define TRIES 7

static DT_FORMAT_CODE void decode(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y)
{
	for (; n > 0; n -= 32, s += 18, y += 32)
		dt_nibbles_decode(s + 2, dt_half_at(s), iq4_values, y);
}

#ifdef DT_FORMAT_HOST
static void recode(const uint8_t *s, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 32, s += 18, out += 34) {
		memmove(out, s, 2);
		for (int j = 0; j < 16; j++) {
			out[2 + j] = (uint8_t)iq4_values[s[2 + j] & 15];
			out[18 + j] = (uint8_t)iq4_values[s[2 + j] >> 4];
		}
	}
}
#endif

static DT_FORMAT_CODE void put(const struct dt_format_traits *t, const uint8_t *code, uint8_t *s)
{
	dt_nibbles_put(code, s + 2);
}

/* The best of all roundings; 0: all of x are 0. */
static DT_FORMAT_WIDE float iq4_nl_fit(const float *x, const float *w)
{
	const float most = dt_largest32(x);
	float best = 0, d = 0, sqq[16], sxq[16];

	if (fabsf(most) <= DT_LEAST)
		return 0;
	for (int t = 0; t < 16; t++) { /* 16 fill a vector: the last is not tried */
		const float inverse = ((float)iq4_values[0] + (float)(t - TRIES)) / most;
		float a = 0, b = 0;

		for (int j = 0; j < 32; j++) {
			const float q = iq4_value_of(inverse * x[j]);

			a += w[j] * q * q;
			b += w[j] * q * x[j];
		}
		sqq[t] = a;
		sxq[t] = b;
	}
	for (int t = 0; t < 2 * TRIES + 1; t++)
		if (sqq[t] > 0 && sxq[t] * sxq[t] > best * sqq[t]) { /* the reduction of the error */
			best = sxq[t] * sxq[t] / sqq[t];
			d = sxq[t] / sqq[t];
		}
	return d;
}

static DT_FORMAT_WIDE void iq4_nl_round_off(const float *x, float inverse, uint8_t *code)
{
	for (int j = 0; j < 32; j++)
		code[j] = (uint8_t)iq4_code_of(inverse * x[j]);
}

static DT_FORMAT_CODE void weighted(const struct dt_format_traits *t, const float *x, const float *w,
				    uint8_t *out)
{
	uint8_t code[32];

	iq4_nl_round_off(x, dt_inverse_of(dt_put_half(out, iq4_nl_fit(x, w))), code);
	put(t, code, out);
}

static DT_FORMAT_CODE void encode(const struct dt_format_traits *t, const float *src, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 32, src += 32, out += 18) {
		float x[32], w[32];

		dt_take_finite(src, 32, x);
		for (int j = 0; j < 32; j++)
			w[j] = x[j] * x[j];
		weighted(t, x, w, out);
	}
}

#ifdef DT_FORMAT_HOST
const struct dt_format_traits dt_format_iq4_nl = {
	.info = {"iq4_nl", .gguf = 20, .file_type = 25, .block = 32, .bytes = 18, .dtype = -1,
		 .kept = DT_FMT_Q8_0},
	.decode = decode,
	.encode = encode,
	.recode = recode,
	.levels = 16,
	.values = iq4_values,
	.scales = dt_half_step,
	.put = put,
	.weighted = weighted,
};
#endif
/* SPDX-License-Identifier: Apache-2.0 */
