/*
 * Training on images: the data sets of data/images.h, served through source_next. The threads of a loader
 * decode and augment images ahead of the step.
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
	struct dt_augment plain;	     /* for evaluation: resizing and normalisation alone */
	struct dt_image_loader_stats before; /* at the last metrics line */
	float *whiten;			     /* the filters of images_whiten; NULL: not computed */
};

/*
 * Opens the data sets. A new model takes its classes, channels and size from them. A model with weights keeps
 * its own; -EINVAL with a message on what differs (--new-head gives it a new last layer).
 */
int images_open(struct trainer *t, struct dt_err *err);
/* Starts the loaders, once the layout is known. */
int images_start(struct trainer *t, struct dt_err *err);
void images_close(struct trainer *t);
/* The number of images in a flight that begins at image n: end - n, at most a microbatch. */
int64_t images_rows(const struct trainer *t, int64_t n, int64_t end);
/* As source_next, but rows past end are not written: the program has no such rows. */
int images_next(struct trainer *t, bool eval, const struct dt_flight *f, int64_t n, int64_t end,
		struct dt_err *err);
/* Sets how many images of a round this rank computes from now on, for reading ahead. */
void images_expect(struct trainer *t, int64_t count);
/* Whitening filters of the training images (data/whiten.h), owned by the trainer. */
int images_whiten(struct trainer *t, int kernel, const float **ret, struct dt_err *err);
int64_t images_eval_samples(const struct trainer *t);

/* For a manifest: the names of the classes, and {"mean": [...], "deviation": [...]} of the pixels. */
json_t *images_classes(const struct trainer *t);
json_t *images_pixels(const struct trainer *t);
/* Checks a manifest's classes (-EINVAL: they differ from the run's) and takes its pixel normalisation. */
int images_load_meta(struct trainer *t, const json_t *meta, const char *path, struct dt_err *err);
/* Adds the loader's statistics since the last line. */
void images_metrics(struct trainer *t, json_t *line);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
