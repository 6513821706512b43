#include "data/image_codec.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum dt_image_kind dt_image_kind(const uint8_t *b, size_t n)
{
	if (n >= 3 && b[0] == 0xff && b[1] == 0xd8 && b[2] == 0xff)
		return DT_IMAGE_JPEG;
	if (n >= 8 && !memcmp(b, "\x89PNG\r\n\x1a\n", 8))
		return DT_IMAGE_PNG;
	if (n >= 3 && b[0] == 'P' && (b[1] == '5' || b[1] == '6') && isspace(b[2]))
		return DT_IMAGE_PNM;
	return DT_IMAGE_UNKNOWN;
}

bool dt_image_reads(enum dt_image_kind kind)
{
	switch (kind) {
	case DT_IMAGE_JPEG:
		return IMG_HAVE_JPEG;
	case DT_IMAGE_PNG:
		return IMG_HAVE_PNG;
	default:
		return kind == DT_IMAGE_PNM;
	}
}

#define PNM_LARGE (1 << 24) /* limit of numbers in a header */

/* Reads a number of a PNM header after white space and comments; -1: none. At most PNM_LARGE. */
static int pnm_number(const uint8_t **p, const uint8_t *end)
{
	int v = -1;

	while (*p < end && (isspace(**p) || **p == '#')) {
		if (**p == '#')
			while (*p < end && **p != '\n')
				(*p)++;
		else
			(*p)++;
	}
	for (; *p < end && isdigit(**p); (*p)++) {
		v = (v < 0 ? 0 : v) * 10 + (**p - '0');
		v = v < PNM_LARGE ? v : PNM_LARGE;
	}
	return v;
}

static int pnm_decode(const uint8_t *b, size_t n, int channels, struct dt_image *ret,
		      struct dt_image_facts *facts, struct dt_err *err)
{
	const uint8_t *p = b + 2, *end = b + n;
	int have = b[1] == '6' ? 3 : 1, width = pnm_number(&p, end), height = pnm_number(&p, end),
	    max = pnm_number(&p, end), wide = max > 255 ? 2 : 1, rc;
	uint8_t *row;

	if (width == PNM_LARGE || height == PNM_LARGE || max == PNM_LARGE)
		return dt_err_set(err, -EBADMSG, "a number in the header of the PNM file is too large");
	if (width < 1 || height < 1 || max < 1 || max > 65535 || p == end || !isspace(*p))
		return dt_err_set(err, -EBADMSG, "the header of the PNM file is damaged");
	p++;
	rc = dt_image_resize(ret, channels ? channels : have, height, width, err);
	if (rc < 0)
		return rc;
	if ((size_t)(end - p) / (size_t)(have * wide) / (size_t)width < (size_t)height)
		return dt_err_set(err, -EBADMSG, "the PNM file is truncated");
	row = malloc((size_t)width * (size_t)have);
	if (!row)
		return dt_err_sys(err, -ENOMEM, "cannot read an image");
	facts->grey = have == 1;
	facts->deep = wide == 2;
	for (int r = 0; r < height; r++) {
		for (int i = 0; i < width * have; i++, p += wide) {
			int v = wide == 2 ? p[0] << 8 | p[1] : p[0];

			row[i] = (uint8_t)(((v < max ? v : max) * 255 + max / 2) / max);
		}
		img_row_out(ret, r, row, have);
	}
	free(row);
	return 0;
}

/* Index of the stored pixel that belongs at (row, column) of the upright image. */
static size_t stored_at(int orientation, int row, int column, int height, int width)
{
	int r = orientation >= 5 ? column : row, c = orientation >= 5 ? row : column;

	if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7)
		r = height - 1 - r;
	if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8)
		c = width - 1 - c;
	return (size_t)r * (size_t)width + (size_t)c;
}

/* Rotates or mirrors x upright. */
static int turn(struct dt_image *x, int orientation, struct dt_err *err)
{
	bool across = orientation >= 5;
	int h = across ? x->width : x->height, w = across ? x->height : x->width;
	size_t plane = (size_t)h * (size_t)w;
	struct dt_image y = {0};
	int rc = dt_image_resize(&y, x->channels, h, w, err);

	if (rc < 0)
		return rc;
	for (int c = 0; c < x->channels; c++)
		for (int i = 0; i < h; i++)
			for (int j = 0; j < w; j++)
				y.pixel[(size_t)c * plane + (size_t)i * (size_t)w + (size_t)j] =
					x->pixel[(size_t)c * plane +
						 stored_at(orientation, i, j, x->height, x->width)];
	dt_image_release(x);
	*x = y;
	return 0;
}

int dt_image_decode(const uint8_t *b, size_t n, int channels, bool orient, struct dt_image *ret,
		    struct dt_image_facts *facts, struct dt_err *err)
{
	struct dt_image_facts own;
	int rc;

	facts = facts ? facts : &own;
	*facts = (struct dt_image_facts){.kind = dt_image_kind(b, n), .orientation = 1};
	if (channels != 0 && channels != 1 && channels != 3)
		return dt_err_set(err, -EINVAL, "images have 1 or 3 channels, not %d", channels);
	switch (facts->kind) {
	case DT_IMAGE_JPEG:
		rc = img_jpeg_decode(b, n, channels, ret, facts, err);
		break;
	case DT_IMAGE_PNG:
		rc = img_png_decode(b, n, channels, ret, facts, err);
		break;
	case DT_IMAGE_PNM:
		rc = pnm_decode(b, n, channels, ret, facts, err);
		break;
	default:
		return dt_err_set(err, -EBADMSG, "neither JPEG nor PNG nor PNM");
	}
	return rc == 0 && orient && facts->orientation > 1 ? turn(ret, facts->orientation, err) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
