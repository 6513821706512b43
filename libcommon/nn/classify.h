/*
 * Inference with an image classifier: the forward pass alone, as in the trainer's evaluation. Batch norms use
 * running statistics and are folded into the convolutions (model/fold.h). The result is logits over the
 * classes.
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
	bool unfolded;	     /* batch norms are not folded into convolutions */
};

/* How images are divided among ranks: by whole requests (batches), or every batch over all ranks. */
enum dt_image_split { DT_SPLIT_REQUESTS, DT_SPLIT_DATA };
#define DT_IMAGE_SPLITS "requests|data"

/*
 * Mean and deviation by which pixels in [0, 1] are normalised, per channel. by: "model": those of src;
 * "data": the caller's (of_mean NULL: there are none); or a published name (dt_augment_constants). -EINVAL.
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
