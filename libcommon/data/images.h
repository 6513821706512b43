/*
 * Data sets of labelled images in HDF5.
 *
 * File D.h5: /data, /labels (i32, one an image), /classes (names as fixed text, one a class), /pixel_sum
 * and /pixel_squares (i64, one a channel: sums over every pixel of every image), attributes format
 * ("dt-images"), version, encoding, images, channels, height, width, min_height, min_width, max_height,
 * max_width, pixels (of one channel, all images together), orientation, crc32 (of /data, then /labels, then
 * /offsets) and source.
 *
 * encoding "raw": /data is u8, N x C x H x W, contiguous. All images have one size.
 * encoding "jpeg": /data is u8, one dimension, contiguous; image i is bytes [offsets[i], offsets[i + 1]), and
 * /offsets (i64) has N + 1 values. Images may differ in size: height and width are then 0. channels is what
 * they decode to. orientation 1: the decoder turns an image as its EXIF tag says; 0: the tag is ignored.
 *
 * A sharded set is D-00000-of-00004.h5 ... beside D.h5. D.h5 then has /shards (names), /shard_images,
 * /shard_crc32, all attributes but crc32, and for encoding "raw" virtual /data and /labels that join the
 * shards for h5py and h5dump; dt reads the shards.
 */
#ifndef DT_DATA_IMAGES_H
#define DT_DATA_IMAGES_H

#include "base/err.h"
#include "data/image.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dt_images;

/*
 * Checks every length against the files, and every label against the classes: a truncated set is refused
 * here. -EBADMSG with its own hint where path is a data set of tokens.
 */
int dt_images_open(const char *path, struct dt_images **ret, struct dt_err *err);
void dt_images_close(struct dt_images *d);
/* Whether path is a data set of images rather than of tokens: 1 or 0, or an error when it is neither. */
int dt_images_is(const char *path, struct dt_err *err);

struct dt_images_info {
	int64_t images;
	int classes, channels; /* channels 1 or 3 */
	int height, width;     /* of every image; 0: they differ */
	int min_height, min_width, max_height, max_width;
	const char *const *class_name; /* classes of them, unique; index is the label */
	bool jpeg;		       /* images are stored encoded */
	bool orientation;	       /* EXIF orientation is applied */
	int shards;		       /* files that hold images: 1 when not sharded */
	int64_t bytes;		       /* of /data */
	const char *source;
	float mean[3], deviation[3]; /* a channel, of all pixels / 255 */
};
void dt_images_info(const struct dt_images *d, struct dt_images_info *ret);

/* Label of image i, 0 <= i < images. */
int dt_images_label(const struct dt_images *d, int64_t i);

/*
 * Image i decoded, with the set's channels. ret holds its own memory and is grown as needed: start with
 * {0}, release with dt_image_release. Safe to call from many threads with a ret each. -EBADMSG names file
 * and image.
 */
int dt_images_read(const struct dt_images *d, int64_t i, struct dt_image *ret, struct dt_err *err);
/* Image i as it is stored: *ret is malloc'd. Safe to call from many threads. */
int dt_images_bytes(const struct dt_images *d, int64_t i, uint8_t **ret, size_t *ret_n, struct dt_err *err);

/* Reads every byte and compares with the checksums: 0, or -EBADMSG naming the file. */
int dt_images_verify(const struct dt_images *d, struct dt_err *err);

/*
 * -EINVAL naming the first class that differs when the set's classes are not these names in this order (those
 * of a checkpoint, or of another set).
 */
int dt_images_check_classes(const struct dt_images *d, int n, const char *const *names, const char *whose,
			    struct dt_err *err);

/*
 * Writer: atomic as dt_dataset_create (data/dataset.h). Images wait in an unlinked file beside path. With
 * jpeg false every image must have one size.
 */
struct dt_images_writer;
struct dt_images_create {
	int channels; /* 1 or 3 */
	bool jpeg, orientation;
	int classes; /* 0: dt_images_set_classes gives them before the end */
	const char *const *class_name;
	const char *source;
	int shards; /* 0 and 1: one file */
};
int dt_images_create(const char *path, const struct dt_images_create *how, struct dt_images_writer **ret,
		     struct dt_err *err);
/*
 * Adds one image: decoded x (for the sums, and what is stored raw), and with jpeg its n stored bytes. -EINVAL
 * for a size, a number of channels or a label that does not fit.
 */
int dt_images_append(struct dt_images_writer *w, const struct dt_image *x, const uint8_t *bytes, size_t n,
		     int label, struct dt_err *err);
/* The classes; label i of what was appended becomes map[i] (NULL: stays). Their names must be unique. */
int dt_images_set_classes(struct dt_images_writer *w, int classes, const char *const *class_name,
			  const int *map, struct dt_err *err);
int dt_images_finish(struct dt_images_writer *w, struct dt_err *err); /* frees w in every case */
void dt_images_abandon(struct dt_images_writer *w);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
