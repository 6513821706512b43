/*
 * Images as what a run is trained on: data sets of data/images.h behind source_next, decoded and augmented
 * by a loader's threads ahead of the step.
 */
#ifndef DT_TRAIN_IMAGES_H
#define DT_TRAIN_IMAGES_H

#include "base/json.h"
#include "data/image_loader.h"
#include "nn/exec.h"

struct trainer;

struct image_source {
	struct dt_images *data, *eval; /* eval NULL: no evaluation */
	struct dt_images_info info, eval_info;
	struct dt_image_loader *loader, *eval_loader;
	struct dt_augment plain;	     /* of evaluations: size and normalisation alone */
	struct dt_image_loader_stats before; /* as of the last metrics line */
	float *whiten;			     /* filters of images_whiten; NULL: not asked for */
};

/*
 * Opens the data sets. A new model gets their classes, channels and size; one with weights keeps its own,
 * and -EINVAL names what differs (--new-head gives it another last layer).
 */
int images_open(struct trainer *t, struct dt_err *err);
/* Starts the loaders, once the layout is known. */
int images_start(struct trainer *t, struct dt_err *err);
void images_close(struct trainer *t);
/* Images of n .. end that a flight takes: a microbatch at most. */
int64_t images_rows(const struct trainer *t, int64_t n, int64_t end);
/* As source_next, but that rows past end are left alone: the program has none there. */
int images_next(struct trainer *t, bool eval, const struct dt_flight *f, int64_t n, int64_t end,
		struct dt_err *err);
/* A rank's images of a round from now on, which are read ahead. */
void images_expect(struct trainer *t, int64_t count);
/* Whitening filters of the training images (data/whiten.h); they stay the trainer's. */
int images_whiten(struct trainer *t, int kernel, const float **ret, struct dt_err *err);
int64_t images_eval_samples(const struct trainer *t);

/* Of a manifest: the names of the classes, and {"mean": [...], "deviation": [...]} of pixels. */
json_t *images_classes(const struct trainer *t);
json_t *images_pixels(const struct trainer *t);
/* -EINVAL names what differs from the run's classes; pixels go on being normalised as they were. */
int images_load_meta(struct trainer *t, const json_t *meta, const char *path, struct dt_err *err);
/* What the loader did since the last line. */
void images_metrics(struct trainer *t, json_t *line);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
