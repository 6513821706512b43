/*
 * Philox4x32-10, the counter-based generator of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3"
 * (SC11). Plain inline C so that every device computes the same bits.
 */
#ifndef DT_KERNELS_PHILOX_H
#define DT_KERNELS_PHILOX_H

#include "kernels/dtype.h"

#include <stdint.h>

struct dt_philox {
	uint32_t v[4];
};

static inline DT_HOST_DEVICE struct dt_philox dt_philox4x32(struct dt_philox ctr, uint32_t k0, uint32_t k1)
{
	for (int round = 0; round < 10; round++) {
		uint64_t p0 = (uint64_t)0xD2511F53u * ctr.v[0];
		uint64_t p1 = (uint64_t)0xCD9E8D57u * ctr.v[2];
		struct dt_philox n = {{(uint32_t)(p1 >> 32) ^ ctr.v[1] ^ k0, (uint32_t)p1,
				       (uint32_t)(p0 >> 32) ^ ctr.v[3] ^ k1, (uint32_t)p0}};

		ctr = n;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	return ctr;
}

/* A stream of 2^66 32-bit numbers; four of them are a block. */
struct dt_philox_stream {
	uint32_t key[2], name[2];
};

/* Numbers 4 n .. 4 n + 3 of the stream. */
static inline DT_HOST_DEVICE struct dt_philox dt_philox_block(const struct dt_philox_stream *s, uint64_t n)
{
	const struct dt_philox ctr = {{(uint32_t)n, (uint32_t)(n >> 32), s->name[0], s->name[1]}};

	return dt_philox4x32(ctr, s->key[0], s->key[1]);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
