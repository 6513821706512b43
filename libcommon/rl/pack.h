/*
 * Answers packed into rows of seq tokens, prompt in front, without padding between: each is a document that
 * looks at nothing else. Its targets are the answer's tokens, the end of text among them.
 */
#ifndef DT_RL_PACK_H
#define DT_RL_PACK_H

#include "rl/rollout.h"

struct dt_placed {	 /* in the order of rows, and within a row */
	int64_t row, at; /* of its first target */
	int group, answer;
	int64_t number; /* of the answer, counted over all groups */
};

struct dt_pack {
	int64_t rows, seq;
	int32_t *ids, *targets, *first; /* [rows, seq] */
	struct dt_placed *placed;	/* [n] */
	int64_t n;
	int64_t tokens; /* targets */
	int64_t *row;	/* [rows + 1] where its answers begin in placed */
};

/*
 * First fit, in the order of the answers. An answer that has no reward is left out. -E2BIG: one does not fit
 * into a row; -ENOMEM.
 */
int dt_pack_make(struct dt_pack *p, const struct dt_group *g, int64_t n, int64_t seq, struct dt_err *err);
void dt_pack_release(struct dt_pack *p);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
