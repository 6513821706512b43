#include "kernels/blocks8_wide.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct codes codes[2];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int by_value(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

/* Seven decades up to 1; each has twice as many values as the decade below it. */
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

/* The lower and the upper halves of floats. */
static void split(uint16_t to[2][256], const float *from)
{
	for (int i = 0; i < 256; i++) {
		uint32_t bits;

		memcpy(&bits, &from[i], 4);
		to[0][i] = (uint16_t)bits;
		to[1][i] = (uint16_t)(bits >> 16);
	}
}

/* The tables of blocks8_wide.h. */
static void make_wide(struct codes *c, bool is_signed)
{
	struct wide_codes *w = &c->wide;
	int first = 0; /* number of the positive codes below the decade */

	memset(w->decade, 0, sizeof(w->decade));
	w->least = is_signed ? 128 : 1;
	w->base[0] = w->most[0] = -1;
	w->base[8] = w->most[8] = (float)(255 - w->least);
	for (int d = 0; d < 7; d++) {
		const int steps = 1 << (is_signed ? d : d + 1);

		w->times[d + 1] = (float)(steps / (0.9 * pow(10, d - 6)));
		w->base[d + 1] = (float)(first - steps / 9.);
		w->most[d + 1] = (float)(first + steps - 1);
		first += steps;
	}
	for (int k = 0; k < 32; k++)
		w->bound[k] = INFINITY;
	for (int d = first = 0; d < 8; d++) {
		const float bound = c->middle[w->least - 1 + first];
		const int k = wide_binade(bound);

		w->bound[k] = bound;
		for (int i = k + 1; i < 32; i++)
			w->decade[i] = d + 1;
		first += d < 7 ? 1 << (is_signed ? d : d + 1) : 0;
	}
	split(w->value, c->value);
	split(w->middle, c->middle);
}

static void make_codes(struct codes *c, bool is_signed)
{
	make_values(c->value, is_signed);
	for (int i = 0; i < 256; i++)
		c->middle[i] = i < 255 ? 0.5f * (c->value[i] + c->value[i + 1]) : INFINITY;
	for (uint32_t key = 0; key < 1 << 16; key++) {
		const uint32_t bits =
			key << 16 | (key & 0x8000 ? 0xffff : 0); /* the lowest of these floats */
		float low;
		int i = 0;

		memcpy(&low, &bits, sizeof(low));
		while (i < 255 && low > c->middle[i])
			i++;
		c->from[key] = (uint8_t)i;
	}
	make_wide(c, is_signed);
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
		if (dt_isa()->avx512)
			i += wide_decode(to + i, &c->wide, code + first + i, s, end - i);
		for (int64_t k = i; k < end; k++)
			to[k] = c->value[code[first + k]] * s;
	}
}

/* The first value of largest magnitude. */
static DT_SIMD float largest_of(const float *x, int64_t n)
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

static void encode(const struct codes *c, float *scale, uint8_t *code, const float *from, int64_t n,
		   bool is_signed)
{
	const float most = largest_of(from, n);
	const float inverse = fabsf(most) > 1e-37f ? 1 / most : 0;

	*scale = inverse != 0 ? most : 0;
	for (int64_t i = dt_isa()->avx512 ? wide_encode(&c->wide, code, from, inverse, n, is_signed) : 0;
	     i < n; i++) {
		const float x = from[i] * inverse;
		uint32_t bits;
		int k;

		memcpy(&bits, &x, sizeof(bits));
		k = c->from[bits >> 16];
		code[i] =
			(uint8_t)(k + (x > c->middle[k])); /* arithmetic, as a branch would be mispredicted */
	}
}

void dt_blocks8_encode(void *state, int64_t all, int64_t first, const float *from, int64_t n, bool is_signed)
{
	const struct codes *c = get(is_signed);
	float *scale = state;
	uint8_t *code = (uint8_t *)(scale + blocks(all));

	for (int64_t i = 0; i < n; i += DT_STATE_BLOCK)
		encode(c, &scale[(first + i) / DT_STATE_BLOCK], code + first + i, from + i,
		       n - i < DT_STATE_BLOCK ? n - i : DT_STATE_BLOCK, is_signed);
}
/* SPDX-License-Identifier: Apache-2.0 */
