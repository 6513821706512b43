#include "kernels/blocks8.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/*
 * By the upper half of a value's bits: the smallest code that a value with these may have. The others may
 * have the next one, and no other: neighbours of the map are further apart than values with the same upper
 * half.
 */
struct codes {
	float value[256], middle[256]; /* middle[i]: between value[i] and value[i + 1] */
	uint8_t from[1 << 16];
};

static struct codes codes[2];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int by_value(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

/* Seven decades below 1, each twice as fine as the one below it. */
static void make_values(float *v, bool is_signed)
{
	int n = 0;

	for (int i = 0; i < 7; i++) {
		const int steps = 1 << (is_signed ? i : i + 1);
		const double decade = pow(10, i - 6);

		for (int k = 0; k < steps; k++) {
			const double x = 0.1 + 0.9 * (k + 0.5) / steps;

			v[n++] = (float)(x * decade);
			if (is_signed)
				v[n++] = (float)(-x * decade);
		}
	}
	v[n++] = 0;
	v[n++] = 1;
	qsort(v, 256, sizeof(*v), by_value);
}

static void make_codes(struct codes *c, bool is_signed)
{
	make_values(c->value, is_signed);
	for (int i = 0; i < 256; i++)
		c->middle[i] = i < 255 ? 0.5f * (c->value[i] + c->value[i + 1]) : INFINITY;
	for (uint32_t key = 0; key < 1 << 16; key++) {
		const uint32_t bits =
			key << 16 | (key & 0x8000 ? 0xffff : 0); /* the lowest of these values */
		float low;
		int i = 0;

		memcpy(&low, &bits, sizeof(low));
		while (i < 255 && low > c->middle[i])
			i++;
		c->from[key] = (uint8_t)i;
	}
}

static void make(void)
{
	make_codes(&codes[0], false);
	make_codes(&codes[1], true);
}

static const struct codes *get(bool is_signed)
{
	pthread_once(&once, make);
	return &codes[is_signed];
}

const float *dt_blocks8_map(bool is_signed)
{
	return get(is_signed)->value;
}

static int64_t blocks(int64_t n)
{
	return (n + DT_STATE_BLOCK - 1) / DT_STATE_BLOCK;
}

void dt_blocks8_decode(float *to, const void *state, int64_t all, int64_t first, int64_t n, bool is_signed)
{
	const struct codes *c = get(is_signed);
	const float *scale = state;
	const uint8_t *code = (const uint8_t *)(scale + blocks(all));

	for (int64_t i = 0, end; i < n; i = end) {
		const int64_t block = (first + i) / DT_STATE_BLOCK;
		const float s = scale[block];

		end = (block + 1) * DT_STATE_BLOCK - first;
		end = end < n ? end : n;
		for (int64_t k = i; k < end; k++)
			to[k] = c->value[code[first + k]] * s;
	}
}

/* The first value of the largest magnitude. */
static float largest(const float *x, int64_t n)
{
	float high = 0, low = 0;

#pragma omp simd reduction(max : high) reduction(min : low)
	for (int64_t i = 0; i < n; i++) {
		high = x[i] > high ? x[i] : high;
		low = x[i] < low ? x[i] : low;
	}
	if (high != -low || high == 0)
		return high > -low ? high : low;
	for (int64_t i = 0;; i++)
		if (x[i] == high || x[i] == low)
			return x[i];
}

static void encode(const struct codes *c, float *scale, uint8_t *code, const float *from, int64_t n)
{
	const float most = largest(from, n);
	const float inverse = fabsf(most) > 1e-37f ? 1 / most : 0;
	*scale = inverse != 0 ? most : 0;
	for (int64_t i = 0; i < n; i++) {
		const float x = from[i] * inverse;
		uint32_t bits;
		int k;

		memcpy(&bits, &x, sizeof(bits));
		k = c->from[bits >> 16];
		code[i] = (uint8_t)(k +
				    (x > c->middle[k])); /* as data, not as a branch that is guessed wrong */
	}
}

void dt_blocks8_encode(void *state, int64_t all, int64_t first, const float *from, int64_t n, bool is_signed)
{
	const struct codes *c = get(is_signed);
	float *scale = state;
	uint8_t *code = (uint8_t *)(scale + blocks(all));

	for (int64_t i = 0; i < n; i += DT_STATE_BLOCK)
		encode(c, &scale[(first + i) / DT_STATE_BLOCK], code + first + i, from + i,
		       n - i < DT_STATE_BLOCK ? n - i : DT_STATE_BLOCK);
}
/* SPDX-License-Identifier: Apache-2.0 */
