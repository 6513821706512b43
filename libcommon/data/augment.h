/*
 * Augmentation: from a stored image to a training sample, by geometry, normalisation and mixing of two
 * samples. Random choices depend on (seed, global sample number) alone, never on threads, ranks or layouts.
 */
#ifndef DT_DATA_AUGMENT_H
#define DT_DATA_AUGMENT_H

#include "data/image.h"

enum dt_crop {
	DT_CROP_NONE,	 /* the image has the size of the sample */
	DT_CROP_PAD,	 /* padded by pad on every side, a random part of it (CIFAR) */
	DT_CROP_RESIZED, /* a random part of random area and ratio, scaled (ImageNet training) */
	DT_CROP_CENTRE,	 /* shorter side scaled to resize (0: not scaled), the middle (evaluation) */
};

struct dt_augment {
	int height, width; /* of a sample */
	enum dt_crop crop;
	int pad;      /* DT_CROP_PAD */
	bool reflect; /* DT_CROP_PAD: the border mirrors the image (edge not repeated), else it is 0 */
	int resize;   /* DT_CROP_CENTRE */
	double scale[2], ratio[2]; /* DT_CROP_RESIZED: area as a share of the image, width / height */
	bool flip;		   /* left and right with probability 1/2 */
	/*
	 * > 0, images of the set: with flip, an image is flipped in every other epoch, half of them in the
	 * first (Jordan 2024, section 3.6). Samples are of a shuffled set (data/image_loader.h).
	 */
	int64_t alternate;
	int cutout; /* side of the square set to the mean; 0: none */
	double mixup,
		cutmix; /* alpha of the Beta distribution of the share; 0: none. Both: one of them, evenly */
	float mean[3], deviation[3]; /* y = (x / 255 - mean) / deviation, a channel */
};

/* scale 0.08 to 1, ratio 3/4 to 4/3, mean 0, deviation 1, the rest 0. */
struct dt_augment dt_augment_default(int height, int width);
/*
 * For images of height x width (0: they differ) that are to be seen whole: of another size than the sample
 * they are scaled and cut in the middle, square ones to its size, others so that it is 0.875 of the shorter
 * side.
 */
void dt_augment_whole(struct dt_augment *a, int height, int width);
/*
 * Published mean and deviation of "cifar10", "cifar100", "mnist", "fashion-mnist", "imagenet": 0 or
 * -EINVAL.
 */
int dt_augment_constants(const char *name, float mean[3], float deviation[3]);
/* -EINVAL for options that contradict each other or are out of range. */
int dt_augment_check(const struct dt_augment *a, struct dt_err *err);
/* -EINVAL naming the sizes when images from min_height x min_width up do not hold the crop. */
int dt_augment_fits(const struct dt_augment *a, int min_height, int min_width, struct dt_err *err);

/* The random choices of sample n; boxes are in pixels. */
struct dt_augment_draw {
	struct dt_image_box box; /* of the image, padded or scaled as the crop has it */
	bool flip;
	struct dt_image_box hole; /* cutout, clipped to the sample */
};
struct dt_augment_draw dt_augment_draw(const struct dt_augment *a, uint64_t seed, int64_t n, int height,
				       int width);

/*
 * Makes sample n from image x: y is C x a.height x a.width floats. tmp is scratch, which the caller keeps
 * from call to call.
 */
int dt_augment_apply(const struct dt_augment *a, uint64_t seed, int64_t n, const struct dt_image *x,
		     struct dt_image *tmp, float *y, struct dt_err *err);

/*
 * How sample n is mixed with its partner, sample n ^ 1: mixup takes share of n and 1 - share of the
 * partner; cutmix takes box from the partner, and share is what is left of n. share 1, box empty: not mixed.
 */
struct dt_augment_mix {
	float share;
	struct dt_image_box box;
};
struct dt_augment_mix dt_augment_mix(const struct dt_augment *a, uint64_t seed, int64_t n);
/* out = x mixed with partner; out may be x. */
void dt_augment_blend(const struct dt_augment *a, struct dt_augment_mix m, int channels, const float *x,
		      const float *partner, float *out);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
