/*
 * From files of images to a data set (data/images.h): decoded, checked, scaled, stored, and what was found
 * told.
 */
#ifndef DT_DATA_IMAGE_IMPORT_H
#define DT_DATA_IMAGE_IMPORT_H

#include "data/image_source.h"
#include "data/images.h"

struct dt_image_import {
	/* set by the caller */
	enum dt_image_format format; /* DT_FROM_AUTO: of the first input */
	int channels;		     /* 1 or 3; 0: 1 of IDX, else 3 */
	bool jpeg;
	int quality;
	int resize;	   /* shorter side is scaled to it; 0: as it is */
	int crop[2];	   /* the middle: height, width; 0: all of it */
	bool orientation;  /* EXIF is applied */
	const char *match; /* of members of a tar archive, as fnmatch; NULL: all */
	const char
		*names; /* file of class names, a line each, in the order of labels; NULL: from the source */
	bool skip_bad;	/* images that cannot be read are left out, else nothing is written */
	int shards;
	const char *source;
	/*
	 * Told as it goes; may be NULL. Of images: done so far. Of a file passed over, an image that is
	 * bad: why.
	 */
	void (*progress)(void *ctx, int64_t images);
	void (*told)(void *ctx, bool bad, const char *name, const char *why);
	void *ctx;
	/* filled */
	int64_t images, bad, passed;
	int64_t grey, cmyk, deep, alpha, turned; /* images that were so; turned: by EXIF */
	int classes, empty_classes;
	char empty[128]; /* name of the first class without images */
};

/*
 * Reads paths, in order, into the data set out. Of IDX there are two, images and labels. Classes: as the
 * names file has them; else a folder's in the order of their names by code point; else numbers. Threads of
 * OpenMP decode.
 */
int dt_image_import(struct dt_image_import *im, int n, const char *const *paths, const char *out,
		    struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
