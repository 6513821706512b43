/*
 * Speculation: tokens guessed without the model are computed together with the last known one; those that the
 * model itself would have drawn are kept. A guess is right when it equals the token that the request's own
 * sampling draws from the model's logits, so the text is the same, token for token, as without guessing.
 *
 * Guesses are a smaller model's (draft.c), or looked up in the text so far (prompt lookup: Saxena
 * 2023; the longest of the last few tokens that occurred before is taken to go on as it did then). They cost
 * when they are wrong: the controller measures tokens a second with and without them, for each size of the
 * running batch, and does what is faster.
 */
#ifndef DT_SERVE_SPECULATE_H
#define DT_SERVE_SPECULATE_H

#include <stdbool.h>
#include <stdint.h>

#define DT_SPEC_SIZES 12 /* running sequences by powers of two */

struct dt_spec {
	int max; /* tokens guessed a sequence, 0: never */
	struct dt_spec_arm {
		double rate[2]; /* tokens a second without and with, smoothed; 0: not yet measured */
		int steps;
	} arm[DT_SPEC_SIZES];
};

/* Up to max tokens that may follow ids [n] into out; how many. */
int dt_spec_lookup(const int32_t *ids, int n, int max, int32_t *out);

/* Whether the next step of a batch of nseq sequences shall guess. Now and then it is the slower way's turn to
 * be measured again. */
bool dt_spec_on(struct dt_spec *s, int nseq);
/* A step of nseq decoding sequences gave tokens in seconds; guessed as dt_spec_on said. */
void dt_spec_measured(struct dt_spec *s, int nseq, bool guessed, int tokens, double seconds);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
