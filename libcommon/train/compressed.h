/*
 * --grad-comm int8, powersgd, topk and onebit: the all-reduce of gradients over the data-parallel ranks is
 * compressed (comm/compress.h). It runs once after backward, over all gradients of a rank. The compression
 * error of a rank is added to its gradients of the next step (error feedback). With a CUDA device gradients
 * are copied to the host and back. Checkpoints hold the error of rank R of dp as errorR/NAME, and the factors
 * of powersgd as factor/NAME, so that a resumed run is identical to one that did not stop. If the number of
 * ranks has changed, each rank starts with an equal part of the sum of the errors.
 */
#ifndef DT_TRAIN_COMPRESSED_H
#define DT_TRAIN_COMPRESSED_H

#include "ckpt/ckpt.h"
#include "comm/compress.h"

struct trainer;

struct compressed {
	struct dt_compress *z; /* NULL: gradients are not compressed */
	float *kept;	       /* the compression error of every trained element */
	float *grads;	       /* with a CUDA device: the host's copy of the gradients; else NULL */
	struct dt_compress_part *part;
	int *local; /* [n] the local parameter that a part is of */
	int n;
	double scale; /* the loss scale by which kept is multiplied */
};

/*
 * --grad-comm auto: measures and picks the fastest method, the same on all ranks. Before memory is planned.
 */
int compressed_choose(struct trainer *t, struct dt_err *err);
int compressed_bind(struct trainer *t, struct dt_err *err);
void compressed_release(struct trainer *t);
/* Log messages at the start of the run. */
void compressed_announce(const struct trainer *t);
/* All-reduces over the data-parallel ranks. Sends nothing if some rank's gradients are not finite. */
int compressed_reduce(struct trainer *t, struct dt_err *err);

/* Drops what is not sent yet: a step that is left out has added its gradients to it. */
void compressed_drop(struct trainer *t);

/* Checkpoints: an upper bound of the pieces of this rank; the pieces themselves; reading them. */
int compressed_count(const struct trainer *t);
int compressed_pieces(struct trainer *t, struct dt_piece *ret);
int compressed_load(struct trainer *t, struct dt_ckpt *ck, struct dt_err *err);
/* Whether a piece changes already during the reduction, that is before the optimizer's update. */
bool compressed_changes(const struct dt_piece *p);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
