/*
 * How diloco's outer gradients are sent: the units of a rank in fragments, each merged at its own steps
 * (Streaming DiLoCo, Douillard et al. 2025), as f32, bf16, or blocks of 4-bit values with a sign and an
 * exponent.
 */
#ifndef DT_PLAN_OUTER_H
#define DT_PLAN_OUTER_H

#include "plan/layout.h"
#include "plan/run.h"

/*
 * A block of e3m0 as it is sent: two values a byte, the first in its low half. Of a value the highest bit is
 * its sign, and the others are e: 0, or scale 2^(e - 7); scale is the largest magnitude of the block.
 */
enum { DT_E3M0_BLOCK = 256 };
struct dt_e3m0 {
	float scale;
	uint8_t code[DT_E3M0_BLOCK / 2];
};

/*
 * The fragment of unit u; -1: it is not trained. Embedding, layers and head take turns by their numbers in
 * the model, so that a pipeline's stages divide it as one rank does. A head that is tied to the embedding has
 * its turn: two stages hold copies of their weights.
 */
int dt_outer_fragment(const struct dt_run_sync *s, const struct dt_config *c, const struct dt_local *l,
		      int u);
/* Steps behind a merge of all at which fragment p is merged: one of 1 ... every. */
int64_t dt_outer_turn(const struct dt_run_sync *s, int p);
/*
 * Bytes that a rank sends of unit u. Every parameter begins a block of e3m0, so that the copies of a tied
 * embedding in two stages are rounded alike; n elements of it take dt_outer_blocks(n).
 */
size_t dt_outer_sent(const struct dt_run_sync *s, const struct dt_local *l, int u);
/* Bytes of n consecutive elements of one parameter. */
size_t dt_outer_bytes(const struct dt_run_sync *s, int64_t n);
static inline int64_t dt_outer_blocks(int64_t n)
{
	return (n + DT_E3M0_BLOCK - 1) / DT_E3M0_BLOCK;
}
/* Bytes of DT_B_OUTER_WIRE: the largest fragment as it is sent, and of e3m0 what all ranks have sent too. */
size_t dt_outer_wire(const struct dt_run_sync *s, const struct dt_config *c, const struct dt_local *l,
		     int ranks);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
