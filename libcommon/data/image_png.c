#include "data/image_codec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifndef DT_HAVE_PNG
int img_png_decode(const uint8_t *b, size_t n, int channels, struct dt_image *ret,
		   struct dt_image_facts *facts, struct dt_err *err)
{
	return dt_err_set(err, -ENOTSUP, "cannot read PNG: this dt was built without libpng");
}
#else
#include <setjmp.h>

#include <png.h>

struct input {
	const uint8_t *at;
	size_t left;
	char text[200];
	uint8_t *pixels; /* interleaved pixels: interlaced images are not decoded row by row */
	png_bytep *rows;
};

static void fail(png_structp png, png_const_charp text)
{
	struct input *in = png_get_error_ptr(png);

	strncpy(in->text, text, sizeof(in->text) - 1);
	png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp text)
{
}

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
	struct input *in = png_get_io_ptr(png);

	if (n > in->left)
		png_error(png, "the file ends early");
	memcpy(to, in->at, n);
	in->at += n;
	in->left -= n;
}

/* Requests 8-bit grey or RGB, with alpha if the file has it. */
static void ask_for_bytes(png_structp png, png_infop info, struct dt_image_facts *facts)
{
	int type = png_get_color_type(png, info), depth = png_get_bit_depth(png, info);

	facts->deep = depth == 16;
	facts->palette = type == PNG_COLOR_TYPE_PALETTE;
	facts->grey = !(type & PNG_COLOR_MASK_COLOR);
	facts->alpha = (type & PNG_COLOR_MASK_ALPHA) || png_get_valid(png, info, PNG_INFO_tRNS);
	if (facts->deep)
		png_set_scale_16(png);
	if (facts->palette)
		png_set_palette_to_rgb(png);
	if (facts->grey && depth < 8)
		png_set_expand_gray_1_2_4_to_8(png);
	if (facts->alpha)
		png_set_strip_alpha(png);
#ifdef PNG_eXIf_SUPPORTED
	png_bytep exif;
	png_uint_32 n;

	if (png_get_eXIf_1(png, info, &n, &exif))
		facts->orientation = img_exif_orientation(exif, n);
#endif
	png_set_interlace_handling(png);
	png_read_update_info(png, info);
}

static int read_image(png_structp png, png_infop info, struct input *in, int channels, struct dt_image *ret,
		      struct dt_image_facts *facts, struct dt_err *err)
{
	png_uint_32 width, height;
	size_t row;
	int rc, have;

	png_set_read_fn(png, in, read_bytes);
	png_set_user_limits(png, DT_IMAGE_SIDE_MAX, DT_IMAGE_SIDE_MAX);
	png_set_chunk_malloc_max(png, (png_alloc_size_t)64 << 20);
	png_read_info(png, info);
	ask_for_bytes(png, info, facts);
	width = png_get_image_width(png, info);
	height = png_get_image_height(png, info);
	have = png_get_channels(png, info);
	row = png_get_rowbytes(png, info);
	rc = img_claim(ret, in->left, channels ? channels : facts->grey ? 1 : 3, height, width, err);
	if (rc < 0)
		return rc;
	in->pixels = malloc(row * height);
	in->rows = malloc(height * sizeof(*in->rows));
	if (!in->pixels || !in->rows)
		return dt_err_sys(err, -ENOMEM, "cannot read an image");
	for (png_uint_32 i = 0; i < height; i++)
		in->rows[i] = in->pixels + row * i;
	png_read_image(png, in->rows);
	png_read_end(png, NULL);
	for (png_uint_32 i = 0; i < height; i++)
		img_row_out(ret, (int)i, in->rows[i], have);
	return 0;
}

int img_png_decode(const uint8_t *b, size_t n, int channels, struct dt_image *ret,
		   struct dt_image_facts *facts, struct dt_err *err)
{
	struct input in = {.at = b, .left = n};
	png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &in, fail, ignore);
	png_infop info = png ? png_create_info_struct(png) : NULL;
	int rc;

	if (!info) {
		png_destroy_read_struct(&png, NULL, NULL);
		return dt_err_sys(err, -ENOMEM, "cannot read an image");
	}
	if (setjmp(png_jmpbuf(png)))
		rc = dt_err_set(err, -EBADMSG, "damaged PNG: %s", in.text);
	else
		rc = read_image(png, info, &in, channels, ret, facts, err);
	png_destroy_read_struct(&png, &info, NULL);
	free(in.pixels);
	free(in.rows);
	return rc;
}
#endif
/* SPDX-License-Identifier: Apache-2.0 */
