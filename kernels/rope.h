/*
 * Rotary position embedding (Su et al. 2021, eq. 34), in place on the first rot_heads heads of each row of
 * qkv [rows, width]: those are the q heads and the k heads that follow them.
 *   (x_a, x_b) -> (x_a c - x_b s, x_a s + x_b c),  c, s = table[pos][i] for pair i of rot_dim / 2
 * pairing half: a = i, b = i + rot_dim / 2 (GPT-NeoX, Hugging Face); adjacent: a = 2i, b = 2i + 1 (Meta, GGUF
 * llama). inverse applies the transposed rotation, which is the backward pass.
 */
#ifndef DT_KERNELS_ROPE_H
#define DT_KERNELS_ROPE_H

#include <stdbool.h>
#include <stdint.h>

enum dt_rope_pairing { DT_ROPE_HALF, DT_ROPE_ADJACENT };

struct dt_rope {
	int64_t rot_heads; /* heads + kv_heads */
	int64_t head_dim, rot_dim;
	enum dt_rope_pairing pairing;
	const float *cos, *sin; /* [positions, rot_dim / 2] */
	int64_t positions;
};

/* Whether the tables cover the positions of these rows. */
static inline bool dt_rope_has(const struct dt_rope *p, const int32_t *pos, int64_t rows)
{
	for (int64_t r = 0; r < rows; r++)
		if (pos[r] < 0 || pos[r] >= p->positions)
			return false;
	return true;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
