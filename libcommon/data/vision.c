#include "data/vision.h"

#include <errno.h>
#include <string.h>

#define SIDE_MAX 4096 /* of a scaled image, in transformers */

/* Scales the longer side to `longest`; the other one is made even. Both are below SIDE_MAX. */
static void scale_longest(int64_t longest, int *height, int *width)
{
	const double aspect = (double)*width / *height;
	double h, w;

	if (*width >= *height) {
		*width = (int)longest;
		*height = (int)(*width / aspect);
		*height += *height % 2;
	} else {
		*height = (int)longest;
		*width = (int)(*height * aspect);
		*width += *width % 2;
	}
	*height = *height > 1 ? *height : 1;
	*width = *width > 1 ? *width : 1;
	h = *height;
	w = *width;
	if (w >= h && w > SIDE_MAX) {
		*width = SIDE_MAX;
		*height = (int)(SIDE_MAX / (w / h));
	} else if (h > w && h > SIDE_MAX) {
		*height = SIDE_MAX;
		*width = (int)(SIDE_MAX * (w / h));
	}
	*height = *height > 1 ? *height : 1;
	*width = *width > 1 ? *width : 1;
}

static int multiple(int v, int tile)
{
	return (v + tile - 1) / tile * tile;
}

/* Multiples of a tile for both sides: of the longer one first, from which the other follows. */
static void scale_to_tiles(int tile, int *height, int *width)
{
	const double aspect = (double)*width / *height;

	if (*width >= *height) {
		*width = multiple(*width, tile);
		*height = multiple((int)(*width / aspect), tile);
	} else {
		*height = multiple(*height, tile);
		*width = multiple((int)(*height * aspect), tile);
	}
}

int dt_vision_grid(const struct dt_vision *v, int height, int width, struct dt_vision_grid *ret,
		   struct dt_err *err)
{
	const int tile = (int)v->tile;
	struct dt_vision_grid g = {.tiles = 1, .height = tile, .width = tile};
	int h = height, w = width;

	if (v->longest)
		scale_longest(v->longest, &h, &w);
	g.first[0] = h;
	g.first[1] = w;
	if (v->split) {
		scale_to_tiles(tile, &h, &w);
		g.height = h;
		g.width = w;
		if (h < tile || w < tile || (int64_t)(h / tile) * (w / tile) >= DT_VISION_TILES_MAX)
			return dt_err_set(
				err, -EINVAL,
				"an image of %d x %d pixels cannot be cut into 1 to %d tiles of %d a side",
				height, width, DT_VISION_TILES_MAX - 1, tile);
	}
	if (g.height > tile || g.width > tile) {
		g.rows = g.height / tile;
		g.cols = g.width / tile;
		g.tiles = g.rows * g.cols + 1;
	}
	*ret = g;
	return 0;
}

static enum dt_image_filter filter_of(const struct dt_vision *v)
{
	return v->filter == DT_VISION_BICUBIC	 ? DT_IMAGE_BICUBIC
	       : v->filter == DT_VISION_BILINEAR ? DT_IMAGE_BILINEAR
						 : DT_IMAGE_LANCZOS;
}

/* Copies the tile whose first pixel is at (top, left). */
static void copy_tile(const struct dt_image *x, int top, int left, int tile, uint8_t *to)
{
	for (int c = 0; c < 3; c++)
		for (int r = 0; r < tile; r++, to += tile)
			memcpy(to,
			       x->pixel +
				       ((size_t)c * (size_t)x->height + (size_t)(top + r)) *
					       (size_t)x->width +
				       (size_t)left,
			       (size_t)tile);
}

int dt_vision_cut(const struct dt_vision *v, const struct dt_vision_grid *g, const struct dt_image *x,
		  uint8_t *ret, struct dt_err *err)
{
	const int tile = (int)v->tile;
	const size_t bytes = 3 * (size_t)tile * (size_t)tile;
	struct dt_image a = {0}, b = {0};
	int rc = dt_image_scale_by(x, filter_of(v), g->first[0], g->first[1], &a, err);

	if (rc == 0)
		rc = dt_image_scale_by(&a, filter_of(v), g->height, g->width, &b, err);
	for (int r = 0; r < g->rows && rc == 0; r++)
		for (int c = 0; c < g->cols; c++, ret += bytes)
			copy_tile(&b, r * tile, c * tile, tile, ret);
	if (rc == 0)
		rc = dt_image_scale_by(&b, filter_of(v), tile, tile, &a, err);
	if (rc == 0)
		copy_tile(&a, 0, 0, tile, ret);
	dt_image_release(&a);
	dt_image_release(&b);
	return rc;
}

/* Row and column of the patch at place i of the order in which joined ones lie one behind another. */
static void patch_at(const struct dt_vision *v, int64_t i, int64_t *row, int64_t *col)
{
	const int64_t joined = v->join * v->join, group = i / joined, in = i % joined,
		      across = v->patches / v->join;

	*row = group / across * v->join + in / v->join;
	*col = group % across * v->join + in % v->join;
}

/*
 * The position of patch i of n, of `side` positions: where i / n of the side is. transformers computes it
 * in f32, where a patch that begins just at a position may get the one before: with 49 a side, not with 26,
 * 27 or 32.
 */
static int32_t bucket(int64_t i, int64_t n, int64_t side)
{
	return (int32_t)(i * side / n);
}

void dt_vision_positions(const struct dt_vision *v, int64_t side, int32_t *ret)
{
	for (int64_t i = 0; i < v->patches * v->patches; i++) {
		int64_t row, col;

		patch_at(v, i, &row, &col);
		ret[i] = bucket(row, v->patches, side) * (int32_t)side + bucket(col, v->patches, side);
	}
}

void dt_vision_pixels(const struct dt_vision *v, int64_t patch, const uint8_t *tile, float *ret)
{
	float value[3][256];

	for (int c = 0; c < 3; c++)
		for (int p = 0; p < 256; p++)
			value[c][p] = ((float)p * v->scale - v->mean[c]) / v->deviation[c];
	for (int64_t i = 0; i < v->patches * v->patches; i++) {
		int64_t row, col;

		patch_at(v, i, &row, &col);
		for (int c = 0; c < 3; c++)
			for (int64_t r = 0; r < patch; r++) {
				const uint8_t *from =
					tile + (c * v->tile + row * patch + r) * v->tile + col * patch;

				for (int64_t k = 0; k < patch; k++)
					*ret++ = value[c][from[k]];
			}
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
