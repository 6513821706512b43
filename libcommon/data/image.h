/* One image in memory, 8 bits a channel, and its way from and to files. */
#ifndef DT_DATA_IMAGE_H
#define DT_DATA_IMAGE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DT_IMAGE_SIDE_MAX   65535
#define DT_IMAGE_PIXELS_MAX ((int64_t)1 << 27) /* of one image: a small file may claim more than memory has */

struct dt_image {
	int channels, height, width;
	uint8_t *pixel; /* C x H x W */
	size_t room;	/* bytes of pixel */
	int64_t limit;	/* of its pixels, set by whoever reads an image; 0: DT_IMAGE_PIXELS_MAX */
};

/* Sizes x, growing its memory; pixels are undefined. */
int dt_image_resize(struct dt_image *x, int channels, int height, int width, struct dt_err *err);
void dt_image_release(struct dt_image *x);

/* "N" or "HxW" as height and width: 0, or -EINVAL. */
int dt_image_size_parse(const char *s, int ret[2]);

enum dt_image_kind { DT_IMAGE_UNKNOWN, DT_IMAGE_JPEG, DT_IMAGE_PNG, DT_IMAGE_PNM };

/* By the first bytes, whatever the name says. */
enum dt_image_kind dt_image_kind(const uint8_t *bytes, size_t n);
/* Whether this build has the library that kind needs. */
bool dt_image_reads(enum dt_image_kind kind);

struct dt_image_facts { /* of what was decoded */
	enum dt_image_kind kind;
	bool grey, cmyk, deep, alpha, palette; /* deep: 16 bits a channel, scaled to 8 */
	int orientation;		       /* EXIF 1..8; 1 upright or not said */
};

/*
 * Decodes with channels 1 or 3; 0: as the file has it (grey 1, all else 3). Grey becomes three equal
 * channels; colour becomes grey as ITU-R 601 has it, (19595 R + 38470 G + 7471 B + 32768) >> 16. CMYK
 * becomes RGB as (255 - C)(255 - K) / 255. Alpha is left out. With orient the image is turned upright by
 * its EXIF orientation. JPEG: integer inverse DCT and smooth upsampling of colour. facts may be NULL.
 *
 * -EBADMSG: damaged or truncated; -ENOTSUP: a kind that this build does not read.
 */
int dt_image_decode(const uint8_t *bytes, size_t n, int channels, bool orient, struct dt_image *ret,
		    struct dt_image_facts *facts, struct dt_err *err);
/* As JPEG of the quality (1..100), colour not subsampled; *ret is malloc'd. -ENOTSUP without the library. */
int dt_image_encode_jpeg(const struct dt_image *x, int quality, uint8_t **ret, size_t *ret_n,
			 struct dt_err *err);

struct dt_image_box { /* part of an image, in its pixels */
	int top, left, height, width;
};

/*
 * The box of x, scaled to height x width by a triangle filter as wide as the reduction (antialiased): to
 * the bit what crop and resize(BILINEAR) of Pillow up to 12 give, which torchvision uses for images. Later
 * ones take the columns before the rows where that is cheaper: a value may then differ by 1.
 */
int dt_image_scale(const struct dt_image *x, struct dt_image_box box, int height, int width,
		   struct dt_image *ret, struct dt_err *err);

/*
 * The whole image, likewise to the bit of Pillow up to 12, by another filter: BICUBIC of Keys 1981 with a =
 * -1/2, LANCZOS of three lobes.
 */
enum dt_image_filter { DT_IMAGE_BILINEAR, DT_IMAGE_BICUBIC, DT_IMAGE_LANCZOS, DT_IMAGE_FILTERS };
int dt_image_scale_by(const struct dt_image *x, enum dt_image_filter f, int height, int width,
		      struct dt_image *ret, struct dt_err *err);

/* Only a part of dt_image_scale's result, in its pixels. */
int dt_image_scale_part(const struct dt_image *x, struct dt_image_box box, int height, int width,
			struct dt_image_box part, struct dt_image *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
