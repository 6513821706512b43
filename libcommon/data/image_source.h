/*
 * Where images come from: one file a format, each behind a function that gives the images one after another.
 * Files may be compressed by gzip. "-" is standard input where a format is one file.
 */
#ifndef DT_DATA_IMAGE_SOURCE_H
#define DT_DATA_IMAGE_SOURCE_H

#include "data/image.h"

#define DT_IMAGE_FILE_MAX ((size_t)1 << 30) /* bytes of one encoded image */

enum dt_image_format {
	DT_FROM_AUTO,
	DT_FROM_IDX,
	DT_FROM_CIFAR10,
	DT_FROM_CIFAR100,
	DT_FROM_FOLDER,
	DT_FROM_TAR,
};

struct dt_image_item {
	const char *name;	     /* for messages: file, member or number */
	const char *cls;	     /* its class by name; NULL: by number */
	int label;		     /* where cls is NULL */
	bool raw;		     /* bytes are pixels, C x H x W */
	int channels, height, width; /* of raw ones */
	const uint8_t *bytes;	     /* good during the call; NULL: those of the file `name`, not yet read */
	size_t n;
};

struct dt_image_sink {
	void *ctx;
	/* The next image. A negative code ends the reading. */
	int (*image)(void *ctx, const struct dt_image_item *item, struct dt_err *err);
	/* A class that the source knows of, in its order, with or without images. May be NULL. */
	int (*cls)(void *ctx, const char *name, struct dt_err *err);
	/* What is not an image among images: why says it. May be NULL. */
	void (*passed)(void *ctx, const char *name, const char *why);
};

/* Why a file is passed over, by the ending of its name; NULL: it ends as that of an image that is read. */
const char *dt_image_ending(const char *name);

/* What path is, by its kind, its first bytes and its name; -EINVAL when that does not say. */
int dt_image_format_of(const char *path, enum dt_image_format *ret, struct dt_err *err);

/*
 * IDX (yann.lecun.com/exdb/mnist, section "File formats"): a file of images, n x height x width bytes, and
 * one of as many labels, in either order.
 */
int dt_image_from_idx(const char *const path[2], const struct dt_image_sink *to, struct dt_err *err);
/*
 * CIFAR's binary version: records of a label (CIFAR-100: coarse, fine; the fine one counts) and 3 x 32 x 32
 * pixels. Names of classes come from batches.meta.txt or fine_label_names.txt beside the file, where one is.
 */
int dt_image_from_cifar(const char *path, bool hundred, const struct dt_image_sink *to, struct dt_err *err);
/*
 * A folder a class, in the order of their names by code point; within one, files by name, its folders too.
 * Files whose ending is not of an image are passed over.
 */
int dt_image_from_folder(const char *path, const struct dt_image_sink *to, struct dt_err *err);
/*
 * A tar archive (ustar, with pax and GNU long names). A sample of WebDataset is the consecutive members of
 * one key, the path up to the first dot of its last part: an image, and its class as a number in .cls.
 * Without .cls the folder of a member is its class. match: a pattern as of fnmatch(3) that paths must have;
 * NULL: all.
 */
int dt_image_from_tar(const char *path, const char *match, const struct dt_image_sink *to,
		      struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
