/*
 * Samples of images for training and evaluation, decoded and augmented by threads ahead of the step.
 *
 * Sample n of a run is image permute(n % images) of epoch n / images, as data/dataset.h has it for tokens. A
 * sample is the same whatever the number of threads, ranks, and requests.
 */
#ifndef DT_DATA_IMAGE_LOADER_H
#define DT_DATA_IMAGE_LOADER_H

#include "data/augment.h"
#include "data/images.h"

struct dt_image_loader;

struct dt_image_loader_options {
	const struct dt_images *data; /* outlives the loader */
	struct dt_augment augment;
	uint64_t seed;
	bool shuffle;  /* false: in file order (evaluation) */
	int count;     /* samples of a request, at most */
	int64_t every; /* requests are this many samples apart: microbatch x dp; 0: count */
	int64_t end;   /* samples from here on are rows without an image; 0: there is no end */
	int workers;   /* threads; 0: the caller decodes when it asks */
	int ahead;     /* requests to prepare ahead; 0: 2 */
};

int dt_image_loader_open(const struct dt_image_loader_options *o, struct dt_image_loader **ret,
			 struct dt_err *err);
void dt_image_loader_close(struct dt_image_loader *l);
/* Another normalisation than that of the options, before the first request. */
void dt_image_loader_normalise(struct dt_image_loader *l, const float mean[3], const float deviation[3]);

struct dt_image_batch {
	const float *pixels;   /* count x C x H x W, normalised; 0 in rows past the end */
	const int32_t *label;  /* -1 in rows past the end */
	const int32_t *label2; /* of the partner; label where nothing is mixed */
	const float *share;    /* of label, 1 - share is label2's; 1 where nothing is mixed */
	const int64_t *image;  /* which image of the set; -1 in rows past the end */
};

/*
 * Samples n .. n + count - 1, count at most options.count. Any n is allowed; n + every is prepared ahead. The
 * batch is the loader's and valid until the next call. -EBADMSG with its name if an image cannot be decoded.
 */
int dt_image_loader_get(struct dt_image_loader *l, int64_t n, int count, struct dt_image_batch *ret,
			struct dt_err *err);

/* Sets the samples of later requests, at most options.count, for reading ahead. */
void dt_image_loader_expect(struct dt_image_loader *l, int count);

struct dt_image_loader_stats { /* since the loader was opened */
	int64_t images;	       /* decoded and augmented */
	double busy_s;	       /* of all threads together */
	double waited_s;       /* of the caller, for samples that were not ready */
	double images_per_s;   /* that the threads could decode: images / (busy_s / threads) */
};
void dt_image_loader_stats(struct dt_image_loader *l, struct dt_image_loader_stats *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
