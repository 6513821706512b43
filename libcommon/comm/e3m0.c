#include "comm/e3m0.h"

#include <math.h>
#include <string.h>

static void put_block(struct dt_e3m0 *to, const float *x, int64_t n)
{
	float most = 0;
	bool finite = true;

	for (int64_t i = 0; i < n; i++) {
		most = fmaxf(most, fabsf(x[i]));
		finite &= isfinite(x[i]);
	}
	memset(to, 0, sizeof(*to));
	to->scale = finite ? most : NAN;
	if (!finite)
		return;
	for (int64_t i = 0; i < n && most > 0; i++) {
		const float y = fabsf(x[i]) / most;
		float bound = 0.75f; /* halfway between 1 and 1/2 */
		int e = 7;

		while (e > 1 && y < bound) {
			bound *= 0.5f;
			e--;
		}
		if (e == 1 && y < 0x1p-7f) /* nearer to 0 than to 2^-6 */
			e = 0;
		to->code[i / 2] |= (uint8_t)((e | (signbit(x[i]) ? 8 : 0)) << (i % 2 * 4));
	}
}

void dt_e3m0_put(struct dt_e3m0 *to, const float *x, int64_t n)
{
	for (int64_t at = 0; at < n; at += DT_E3M0_BLOCK)
		put_block(to++, x + at, n - at < DT_E3M0_BLOCK ? n - at : DT_E3M0_BLOCK);
}

void dt_e3m0_add(float *x, const struct dt_e3m0 *from, int64_t n)
{
	for (int64_t at = 0; at < n; at += DT_E3M0_BLOCK, from++) {
		const int64_t k = n - at < DT_E3M0_BLOCK ? n - at : DT_E3M0_BLOCK;
		float value[16];

		for (int c = 0; c < 16; c++)
			value[c] = from->scale * (c & 7 ? ldexpf(c & 8 ? -1.0f : 1.0f, (c & 7) - 7) : 0.0f);
		for (int64_t i = 0; i < k; i++)
			x[at + i] += value[from->code[i / 2] >> (i % 2 * 4) & 15];
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
