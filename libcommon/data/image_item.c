#include "data/image_item.h"

#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int from_raw(struct image_item *it, int channels, struct dt_image *ret)
{
	size_t plane = (size_t)it->height * (size_t)it->width;
	int rc = dt_image_resize(ret, channels, it->height, it->width, &it->err);

	if (rc < 0)
		return rc;
	it->facts = (struct dt_image_facts){.grey = it->channels == 1, .orientation = 1};
	if (it->channels == channels)
		memcpy(ret->pixel, it->bytes, (size_t)channels * plane);
	else if (it->channels == 1)
		for (int c = 0; c < 3; c++)
			memcpy(ret->pixel + (size_t)c * plane, it->bytes, plane);
	else
		for (size_t i = 0; i < plane; i++)
			ret->pixel[i] = (uint8_t)((19595u * it->bytes[i] + 38470u * it->bytes[plane + i] +
						   7471u * it->bytes[2 * plane + i] + 32768) >>
						  16);
	return 0;
}

/* Scales and crops x as requested. Gives the item the result, or x itself. */
static int fit(const struct dt_image_import *im, struct dt_image *x, struct image_item *it)
{
	const struct dt_image_box all = {0, 0, x->height, x->width};
	const struct dt_image swap = it->image;
	struct dt_image_box part;
	int h = all.height, w = all.width;

	if (im->resize) {
		h = all.height <= all.width ? im->resize
					    : (int)((int64_t)im->resize * all.height / all.width);
		w = all.width <= all.height ? im->resize
					    : (int)((int64_t)im->resize * all.width / all.height);
	}
	part = (struct dt_image_box){0, 0, h, w};
	if (im->crop[0])
		part = (struct dt_image_box){(int)rint((h - im->crop[0]) / 2.0),
					     (int)rint((w - im->crop[1]) / 2.0), im->crop[0], im->crop[1]};
	if (h < part.height || w < part.width)
		return dt_err_set(&it->err, -EINVAL, "%d x %d pixels are smaller than the crop of %d x %d", h,
				  w, im->crop[0], im->crop[1]);
	if (h != all.height || w != all.width || part.height != h || part.width != w)
		return dt_image_scale_part(x, all, h, w, part, &it->image, &it->err);
	it->image = *x;
	*x = swap;
	return 0;
}

static int process(const struct dt_image_import *im, struct image_item *it, struct dt_image *decoded)
{
	int h, w,
		rc = it->raw ? from_raw(it, im->channels, decoded)
			     : dt_image_decode(it->bytes, it->n, im->channels, im->orientation, decoded,
					       &it->facts, &it->err);

	if (rc < 0)
		return rc;
	h = decoded->height;
	w = decoded->width;
	rc = fit(im, decoded, it);
	if (rc < 0 || im->store == DT_STORE_RAW)
		return rc;
	if (it->facts.kind == DT_IMAGE_JPEG && it->image.height == h && it->image.width == w)
		return 0;
	free(it->bytes);
	it->bytes = NULL;
	return dt_image_encode_jpeg(&it->image, im->quality, &it->bytes, &it->n, &it->err);
}

void image_item_take(const struct dt_image_import *im, struct image_item *it, struct dt_image *decoded)
{
	char *bytes;

	it->rc = 0;
	it->unread = false;
	if (!it->bytes) {
		it->rc = dt_read_file(it->name, DT_IMAGE_FILE_MAX, &bytes, &it->n, &it->err);
		it->unread = it->rc < 0;
		it->bytes = it->unread ? NULL : (uint8_t *)bytes;
	}
	if (it->rc == 0)
		it->rc = process(im, it, decoded);
}

void image_item_clear(struct image_item *it)
{
	free(it->name);
	free(it->bytes);
	it->name = NULL;
	it->bytes = NULL;
	it->err.code = 0;
	*it->err.msg = '\0';
}
/* SPDX-License-Identifier: Apache-2.0 */
