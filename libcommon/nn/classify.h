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

/* How ranks share images: each takes whole requests (batches), or all a part of every batch. */
enum dt_image_split { DT_SPLIT_REQUESTS, DT_SPLIT_DATA };
#define DT_IMAGE_SPLITS "requests|data"

/*
 * What pixels between 0 and 1 are normalised by, a channel: by "model", what src came with; "data", the
 * caller's (of_mean NULL: there are none); or a published name (dt_augment_constants). -EINVAL.
 */
int dt_classifier_normalisation(const struct dt_source *src, const char *by, const float *of_mean,
				const float *of_deviation, float mean[3], float deviation[3],
				struct dt_err *err);

/*
 * src may be closed afterwards; dev outlives the classifier. -EINVAL where src is no classifier, or cannot
 * take images of this size.
 */
int dt_classifier_open(struct dt_classifier **ret, struct dt_dev *dev, struct dt_source *src,
		       const struct dt_classifier_params *p, struct dt_err *err);
void dt_classifier_close(struct dt_classifier *c);
/* Bytes of weights and of everything else. */
void dt_classifier_bytes(const struct dt_classifier *c, uint64_t *weights, uint64_t *work);
/* With the size of its images. */
const struct dt_config *dt_classifier_config(const struct dt_classifier *c);
/* pixels [n, channels, side, side] normalised; logits [n, classes] written. n is at most the batch. */
int dt_classifier_run(struct dt_classifier *c, const float *pixels, int n, float *logits, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
