/*
 * Speculative decoding: draft tokens are computed in one forward pass together with the last known token. A
 * draft token is accepted when it equals the token that the request's own sampling draws from the model's
 * logits, so the text is the same, token for token, as without speculation.
 *
 * Draft tokens come from a smaller model (draft.c) or from prompt lookup (Saxena 2023): the longest suffix of
 * the last few tokens that occurred before is assumed to continue as it did then. Rejected tokens cost time,
 * so a controller measures tokens a second with and without speculation for each size of the running batch,
 * and uses the faster one.
 */
#ifndef DT_SERVE_SPECULATE_H
#define DT_SERVE_SPECULATE_H

#include <stdbool.h>
#include <stdint.h>

#define DT_SPEC_SIZES 12 /* classes of batch size, by powers of two */

struct dt_spec {
	int max; /* max draft tokens a sequence, 0: no speculation */
	struct dt_spec_arm {
		double rate[2]; /* tokens a second without and with speculation, moving average; 0: not
				 * measured yet */
		int turn;	/* steps since the slower alternative was last tried */
	} arm[DT_SPEC_SIZES];
};

/* Prompt lookup: writes up to max tokens that may follow ids [n] to out; returns their number. */
int dt_spec_lookup(const int32_t *ids, int n, int max, int32_t *out);

/*
 * Whether the next step of nseq sequences shall speculate. From time to time the slower alternative is
 * chosen, to measure it again.
 */
bool dt_spec_on(struct dt_spec *s, int nseq);
/*
 * Records that a step of nseq decoding sequences produced `tokens` tokens in `seconds`; guessed: as
 * dt_spec_on said.
 */
void dt_spec_measured(struct dt_spec *s, int nseq, bool guessed, int tokens, double seconds);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
