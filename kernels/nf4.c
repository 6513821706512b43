#include "kernels/nf4.h"

#include <math.h>
#include <stdlib.h>

const float dt_nf4_table[16] = {
	-1.0f,
	-0.6961928009986877f,
	-0.5250730514526367f,
	-0.39491748809814453f,
	-0.28444138169288635f,
	-0.18477343022823334f,
	-0.09105003625154495f,
	0.0f,
	0.07958029955625534f,
	0.16093020141124725f,
	0.24611230194568634f,
	0.33791524171829224f,
	0.44070982933044434f,
	0.5626170039176941f,
	0.7229568362236023f,
	1.0f,
};

void dt_nf4_scales(const float *x, int64_t n, float *scale)
{
	for (int64_t b = 0; b < n / DT_NF4_BLOCK; b++) {
		float most = 0;

		for (int i = 0; i < DT_NF4_BLOCK; i++)
			most = fmaxf(most, fabsf(x[b * DT_NF4_BLOCK + i]));
		scale[b] = most;
	}
}

/* Index of the table value nearest to v: the number of midpoints below v. */
static unsigned nearest(float v)
{
	static const float middle[15] = {-0.8480964004993439f,	 -0.6106329262256622f,	-0.4599952697753906f,
					 -0.33967943489551544f,	 -0.23460740596055984f, -0.13791173323988914f,
					 -0.045525018125772476f, 0.03979014977812767f,	0.1202552504837513f,
					 0.2035212516784668f,	 0.2920137718319893f,	0.3893125355243683f,
					 0.5016634166240692f,	 0.6427869200706482f,	0.8614784181118011f};
	unsigned n = 0;

	for (int i = 0; i < 15; i++)
		n += v > middle[i];
	return n;
}

void dt_nf4_encode(const float *x, int64_t n, const float *scale, uint8_t *out)
{
	for (int64_t i = 0; i < n; i += 2) {
		float s = scale[i / DT_NF4_BLOCK], inverse = s > 0 ? 1 / s : 0;

		out[i / 2] = (uint8_t)(nearest(x[i] * inverse) << 4 | nearest(x[i + 1] * inverse));
	}
}

static int ascending(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

/* The i-th of parts + 1 evenly spaced points from 0.1 to 1, computed from the nearer end. */
static float boundary(int i, int parts)
{
	float step = (1.0f - 0.1f) / (float)parts;

	return i < (parts + 2) / 2 ? fmaf(step, (float)i, 0.1f) : fmaf(-step, (float)(parts - i), 1.0f);
}

/*
 * For i = 0 .. 6: the midpoints of 2^i equal parts of [0.1, 1], times 10^(i - 6), with both signs; and 0 and
 * 1.
 */
void dt_nf4_code(float code[256])
{
	int n = 0;

	for (int i = 0; i < 7; i++)
		for (int k = 0; k < 1 << i; k++) {
			float v = (float)pow(10, i - 6) *
				  ((boundary(k, 1 << i) + boundary(k + 1, 1 << i)) / 2.0f);

			code[n++] = v;
			code[n++] = -v;
		}
	code[n++] = 0;
	code[n++] = 1;
	qsort(code, 256, sizeof(*code), ascending);
}

static uint8_t nearest_code(const float code[256], float v)
{
	int lo = 0, hi = 255;

	while (hi - lo > 1) {
		int mid = (lo + hi) / 2;

		if (code[mid] <= v)
			lo = mid;
		else
			hi = mid;
	}
	return (uint8_t)(v - code[lo] <= code[hi] - v ? lo : hi);
}

float dt_nf4_mean(const float *scale, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += (double)scale[i];
	return n ? (float)(sum / (double)n) : 0;
}

void dt_nf4_quantize_scales(float *scale, int64_t n, float offset, const float code[256], uint8_t *out,
			    float *group)
{
	for (int64_t g = 0; g < n; g += DT_NF4_GROUP) {
		int64_t end = g + DT_NF4_GROUP < n ? g + DT_NF4_GROUP : n;
		float most = 0;

		for (int64_t i = g; i < end; i++) {
			scale[i] -= offset;
			most = fmaxf(most, fabsf(scale[i]));
		}
		group[g / DT_NF4_GROUP] = most;
		for (int64_t i = g; i < end; i++)
			out[i] = nearest_code(code, most > 0 ? scale[i] / most : 0);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
