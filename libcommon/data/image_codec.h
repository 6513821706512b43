/* Decoders of one format each, behind dt_image_decode. Without its library a format is refused by name. */
#ifndef DT_DATA_IMAGE_CODEC_H
#define DT_DATA_IMAGE_CODEC_H

#include "data/image.h"

#ifdef DT_HAVE_JPEG
#define IMG_HAVE_JPEG true
#else
#define IMG_HAVE_JPEG false
#endif
#ifdef DT_HAVE_PNG
#define IMG_HAVE_PNG true
#else
#define IMG_HAVE_PNG false
#endif

int img_jpeg_decode(const uint8_t *bytes, size_t n, int channels, struct dt_image *ret,
		    struct dt_image_facts *facts, struct dt_err *err);
int img_png_decode(const uint8_t *bytes, size_t n, int channels, struct dt_image *ret,
		   struct dt_image_facts *facts, struct dt_err *err);

/*
 * Sizes ret for what a file of n bytes claims to hold. No format packs more than 16384 pixels in a byte (1
 * bit a pixel under deflate: 8256; a JPEG's DC coefficients: 700): one that claims more is refused before
 * it takes memory.
 */
int img_claim(struct dt_image *ret, size_t n, int channels, uint32_t height, uint32_t width,
	      struct dt_err *err);

/* -EBADMSG: sizes that dt_image_resize refuses. */
int img_check_size(int channels, int height, int width, struct dt_err *err);

/* Row of interleaved pixels, have bytes each, into the planes of x. Of 4 bytes the last is left out. */
void img_row_out(struct dt_image *x, int row, const uint8_t *from, int have);

/* The orientation that an EXIF block (behind "Exif\0\0") gives: 1..8, or 1 where it gives none. */
int img_exif_orientation(const uint8_t *tiff, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
