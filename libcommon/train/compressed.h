/*
 * --grad-comm int8, powersgd, topk and onebit: gradients of the data-parallel ranks are added up compressed
 * (comm/compress.h), all of a rank together, once backward is done. What a rank could not send it adds to the
 * next step's. A card's go to the host and back for it. In checkpoints what is to be sent yet is errorR/NAME
 * of rank R of dp, and the factors of powersgd are factor/NAME: a run that goes on is the run that did not
 * stop. On another number of ranks each begins with an equal part of their sum.
 */
#ifndef DT_TRAIN_COMPRESSED_H
#define DT_TRAIN_COMPRESSED_H

#include "ckpt/ckpt.h"
#include "comm/compress.h"

struct trainer;

struct compressed {
	struct dt_compress *z; /* NULL: gradients are not compressed */
	float *kept;	       /* of all trained elements */
	float *grads;	       /* of a card's run: the gradients on the host; NULL: they are there */
	struct dt_compress_part *part;
	int *local; /* local parameter of a part */
	int n;
	double scale; /* the loss scale that kept has */
};

/* --grad-comm auto: the fastest way, measured, the same on all ranks. Before there is a memory plan. */
int compressed_choose(struct trainer *t, struct dt_err *err);
int compressed_bind(struct trainer *t, struct dt_err *err);
void compressed_release(struct trainer *t);
/* What the start of the run says of it. */
void compressed_announce(const struct trainer *t);
/* The sum over the data-parallel ranks; of gradients that are not finite on some rank nothing is sent. */
int compressed_reduce(struct trainer *t, struct dt_err *err);

/* What of it is in checkpoints: at most so many pieces, those of this rank, and reading them. */
int compressed_count(const struct trainer *t);
int compressed_pieces(struct trainer *t, struct dt_piece *ret);
int compressed_load(struct trainer *t, struct dt_ckpt *ck, struct dt_err *err);
/* Whether a piece is one that changes before the update does. */
bool compressed_changes(const struct dt_piece *p);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
