/*
 * Random numbers keyed by (seed, purpose, global index): the same on every layout and device.
 * The generator is Philox4x32-10 (kernels/philox.h); a stream has 2^66 numbers.
 */
#ifndef DT_BASE_RNG_H
#define DT_BASE_RNG_H

#include "kernels/philox.h"

#include <stdint.h>

enum dt_rng_purpose {
	DT_RNG_INIT = 1, /* index: element of the global tensor; sub-stream: parameter */
	DT_RNG_DROPOUT,
	DT_RNG_DATA,   /* index: position in the epoch; sub-stream: epoch */
	DT_RNG_SAMPLE, /* index: token; sub-stream: request */
	DT_RNG_TEST,
	DT_RNG_ROUND,	/* index: element of a local parameter; sub-stream: parameter */
	DT_RNG_AUGMENT, /* index: draws of a global sample; sub-stream: kind of draw */
	/* of an encoder's training; sub-stream: twice the global sample, 1 more of an evaluation's: */
	DT_RNG_MASK_WHERE, /* permutation of positions */
	DT_RNG_MASK_WHAT,  /* index: twice the position */
};

struct dt_rng {
	struct dt_philox_stream stream; /* key: the seed; name: purpose and sub-stream */
};

/* sub: which stream of this purpose (a parameter's hash, an epoch, ...). */
struct dt_rng dt_rng_make(uint64_t seed, enum dt_rng_purpose purpose, uint32_t sub);

/* Element `index` of the stream: 32 random bits. */
uint32_t dt_rng_u32(const struct dt_rng *r, uint64_t index);
/* Uniform on [0, 1), 24 bits. */
float dt_rng_uniform(const struct dt_rng *r, uint64_t index);
/* Uniform on [0, 1), 53 bits (uses numbers 2 index and 2 index + 1). */
double dt_rng_uniform53(const struct dt_rng *r, uint64_t index);
/* Uniform on [0, n), n > 0; bias under 2^-32 n / 2^64. */
uint64_t dt_rng_below(const struct dt_rng *r, uint64_t index, uint64_t n);
/* Element `index` of a stream of Normal(0, 1) numbers (Box-Muller over pairs). */
float dt_rng_normal(const struct dt_rng *r, uint64_t index);
/* out[i] = mean + std * normal(first + i), i < n. */
void dt_rng_fill_normal(const struct dt_rng *r, uint64_t first, float *out, uint64_t n, float mean,
			float std);

/* FNV-1a of a string: stable sub-stream numbers from names. */
uint32_t dt_hash_str(const char *s);

/*
 * Permutation of [0, n) keyed by the stream, in O(1) memory: a Feistel network over the next power of four
 * with cycle walking. The data order of an epoch is dt_rng_permute(stream of the epoch, i, n).
 */
uint64_t dt_rng_permute(const struct dt_rng *r, uint64_t i, uint64_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
