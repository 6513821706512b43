/*
 * Noise on embeddings in training (Jain et al. 2023, NEFTune): uniform within +-alpha / sqrt(L c) for an
 * example of L tokens and embeddings of c elements, drawn anew for every token of every sample. It depends on
 * the seed, the sample and the place in it alone.
 */
#ifndef DT_NN_EMBED_NOISE_H
#define DT_NN_EMBED_NOISE_H

#include "base/rng.h"
#include "kernels/ops.h"

/* Of the tokens of a microbatch, in their order on this rank; owned by who sets it. */
struct dt_noise {
	struct dt_rng rng;
	float *width;	/* [rows] half of the range; NULL: there is no noise */
	int64_t *token; /* [rows] sample x seq + place, which no other token of the run has */
};

/* The noise of one token, c elements. */
void dt_noise_draw(const struct dt_rng *rng, int64_t token, float width, float *out, int64_t c);
/* y [rows, c] on the host += noise. 0 or a negative errno. */
int dt_noise_add(struct dt_dev *dev, const struct dt_noise *n, struct dt_tensor y);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
