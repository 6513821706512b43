/* The loss of a microbatch: shared by call_loss.c and call_loss_rows.c. */
#ifndef DT_NN_CALL_LOSS_H
#define DT_NN_CALL_LOSS_H

#include "nn/call.h"

/* rows: those that are computed; in and din have them first. */
struct dt_loss {
	struct dt_tensor in, din, head, dhead, value, dvalue; /* of the value head; DT_NONE: there is none */
	struct dt_tensor bias, dbias;			      /* of the logits; likewise */
	float scale, cap; /* factor of logits, then their soft cap; 0: none */
	char *logits, *dlogits;
	float *stats;
	int64_t vocab, ld, first; /* ld: row stride of the logits */
	int64_t rows;
	const int32_t *targets, *host_targets; /* [rows], on the device and the host */
	float weight;			       /* factor of the gradients besides loss_scale */
	bool adds;			       /* the head has a gradient already in this pass */
	double *sum;			       /* the loss is added to this */
	const int32_t *row; /* [rows] their rows in the microbatch; NULL: it is all of them */
};

/* Whether the loss of this pass includes a divergence from a teacher. */
static inline bool dt_loss_taught(const struct dt_exec *x)
{
	return x->teaching.k > 0 && x->training && x->flight->columns;
}

/*
 * Leaves out the rows without a target, which have no loss and no gradient, where that saves work: prompts of
 * chats, what a reward does not count, padding. pick: moves the other rows of in to its front, which changes
 * it. unpick: moves their gradients back, and sets the others to 0. weights: of the rows, from those of all.
 * On the CPU only; -ENOMEM.
 */
int dt_loss_pick(struct dt_exec *x, const struct dt_node *n, struct dt_loss *l);
void dt_loss_unpick(const struct dt_exec *x, const struct dt_loss *l);
const float *dt_loss_weights(struct dt_exec *x, const struct dt_loss *l, const float *all);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
