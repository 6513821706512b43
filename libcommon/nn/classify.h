/*
 * A classifier of images that is asked: forward alone, with running statistics in its batch norms, which are
 * those of the trainer's evaluation, and which are folded into its convolutions (model/fold.h). Of each image
 * logits over the classes.
 */
#ifndef DT_NN_CLASSIFY_H
#define DT_NN_CLASSIFY_H

#include "ckpt/source.h"
#include "kernels/device.h"

struct dt_classifier;

struct dt_classifier_params {
	enum dt_dtype dtype; /* f32 or bf16: of weights and activations */
	int batch;	     /* images of one pass at most */
	int64_t image_size;  /* side of an image; 0: the model's */
	bool unfolded;	     /* batch norms stay nodes of their own */
};

/*
 * src may be closed afterwards; dev outlives the classifier. -EINVAL where src is no classifier, or cannot
 * take images of this size.
 */
int dt_classifier_open(struct dt_classifier **ret, struct dt_dev *dev, struct dt_source *src,
		       const struct dt_classifier_params *p, struct dt_err *err);
void dt_classifier_close(struct dt_classifier *c);
/* With the size of its images. */
const struct dt_config *dt_classifier_config(const struct dt_classifier *c);
/* pixels [n, channels, side, side] normalised; logits [n, classes] written. n is at most the batch. */
int dt_classifier_run(struct dt_classifier *c, const float *pixels, int n, float *logits, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
