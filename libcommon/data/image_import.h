/*
 * From files of images to a data set (data/images.h): decoded, checked, scaled, stored, and what was found
 * told.
 */
#ifndef DT_DATA_IMAGE_IMPORT_H
#define DT_DATA_IMAGE_IMPORT_H

#include "base/json.h"
#include "data/image_source.h"
#include "data/images.h"

#include <stdio.h>

/* As pixels, all of one size, or as JPEG; auto: pixels of IDX, CIFAR and of what is cropped. */
enum dt_image_store { DT_STORE_AUTO, DT_STORE_RAW, DT_STORE_JPEG };

struct dt_image_import {
	/* set by the caller */
	enum dt_image_format format; /* DT_FROM_AUTO: of the first input */
	int channels;		     /* 1 or 3; 0: 1 of IDX, else 3 */
	enum dt_image_store store;   /* auto is replaced by what it is */
	int quality;
	int resize;	   /* shorter side is scaled to it; 0: as it is */
	int crop[2];	   /* the middle: height, width; 0: all of it */
	bool orientation;  /* EXIF is applied */
	const char *match; /* of members of a tar archive, as fnmatch; NULL: all */
	const char
		*names; /* file of class names, a line each, in the order of labels; NULL: from the source */
	bool skip_bad;	/* images that cannot be read are left out, else nothing is written */
	double eval_percent; /* of each class for the second set; 0: there is none */
	int shards;	     /* of the first set */
	const char *source;
	/*
	 * Told as it goes; may be NULL. Of images: done so far. Of a file passed over, an image that is
	 * bad: why.
	 */
	void (*progress)(void *ctx, uint64_t images);
	void (*told)(void *ctx, bool bad, const char *name, const char *why);
	void *ctx;
	/* filled; [2]: of the set to train on and of the other */
	int64_t images[2], bad, passed;
	int64_t grey, cmyk, deep, alpha, turned; /* images that were so; turned: by EXIF */
	int classes, empty_classes[2];
	char empty[2][128]; /* name of the first class without images */
};

/*
 * Reads paths, in order, into the data set out[0] and, with eval_percent, out[1], of the same classes.
 * Image k of a class goes to the second where floor((k + 1) P / 100) > floor(k P / 100): every class gives
 * its share, evenly spread, and the same input gives the same sets. Of IDX there are two paths, images and
 * labels. Classes: as the names file has them; else a folder's in the order of their names by code point;
 * else numbers. Threads of OpenMP decode.
 */
int dt_image_import(struct dt_image_import *im, int n, const char *const *paths, const char *const out[2],
		    struct dt_err *err);

/* What was found: in words, and as an object, the caller's. */
void dt_image_import_print(const struct dt_image_import *im, const char *const out[2], double seconds,
			   FILE *f);
json_t *dt_image_import_json(const struct dt_image_import *im, const char *const out[2], double seconds);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
