#include "base/rng.h"

#include "kernels/philox.h"

#include <math.h>

struct dt_rng dt_rng_make(uint64_t seed, enum dt_rng_purpose purpose, uint32_t sub)
{
	return (struct dt_rng){
		{.key = {(uint32_t)seed, (uint32_t)(seed >> 32)}, .name = {(uint32_t)purpose, sub}}};
}

static struct dt_philox block(const struct dt_rng *r, uint64_t n)
{
	return dt_philox_block(&r->stream, n);
}

uint32_t dt_rng_u32(const struct dt_rng *r, uint64_t index)
{
	return block(r, index / 4).v[index % 4];
}

float dt_rng_uniform(const struct dt_rng *r, uint64_t index)
{
	return (float)(dt_rng_u32(r, index) >> 8) * 0x1p-24f;
}

static uint64_t u64(const struct dt_rng *r, uint64_t index)
{
	struct dt_philox b = block(r, index / 2);

	return (uint64_t)b.v[index % 2 * 2] << 32 | b.v[index % 2 * 2 + 1];
}

double dt_rng_uniform53(const struct dt_rng *r, uint64_t index)
{
	return (double)(u64(r, index) >> 11) * 0x1p-53;
}

uint64_t dt_rng_below(const struct dt_rng *r, uint64_t index, uint64_t n)
{
	return (uint64_t)(((unsigned __int128)u64(r, index) * n) >> 64);
}

/* Computes both normal numbers of pair p. u1 is in (0, 1], so the logarithm is finite. */
static void normal_pair(const struct dt_rng *r, uint64_t p, float out[2])
{
	struct dt_philox b = block(r, p / 2);
	uint32_t a = b.v[p % 2 * 2], c = b.v[p % 2 * 2 + 1];
	double u1 = ((double)a + 1) * 0x1p-32, u2 = (double)c * 0x1p-32;
	double rad = sqrt(-2 * log(u1)), phi = 6.283185307179586 * u2;

	out[0] = (float)(rad * cos(phi));
	out[1] = (float)(rad * sin(phi));
}

float dt_rng_normal(const struct dt_rng *r, uint64_t index)
{
	float two[2];

	normal_pair(r, index / 2, two);
	return two[index % 2];
}

void dt_rng_fill_normal(const struct dt_rng *r, uint64_t first, float *out, uint64_t n, float mean, float std)
{
	float two[2];
	uint64_t i = 0;

	while (i < n) {
		uint64_t at = first + i;

		normal_pair(r, at / 2, two);
		out[i++] = mean + std * two[at % 2];
		if (at % 2 == 0 && i < n)
			out[i++] = mean + std * two[1];
	}
}

uint32_t dt_hash_str(const char *s)
{
	uint32_t h = 2166136261u;

	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * 16777619u;
	return h;
}

uint64_t dt_rng_permute(const struct dt_rng *r, uint64_t i, uint64_t n)
{
	unsigned half = 1;
	uint64_t mask;

	if (n <= 1)
		return 0;
	while (half < 32 && (1ull << (2 * half)) < n)
		half++;
	mask = (1ull << half) - 1;
	do {
		uint64_t left = i >> half, right = i & mask;

		for (uint32_t round = 0; round < 6; round++) {
			const uint64_t ctr = right | (uint64_t)round << 32;
			uint64_t f = dt_philox_block(&r->stream, ctr).v[0] & mask;
			uint64_t next = left ^ f;

			left = right;
			right = next;
		}
		i = left << half | right;
	} while (i >= n);
	return i;
}
/* SPDX-License-Identifier: Apache-2.0 */
