/*
 * Images for a tower of vision, as transformers' image processors of Idefics3 and SmolVLM prepare them: an
 * image is scaled, cut into square tiles, and one tile of the whole image follows; each tile is cut into
 * patches.
 *
 * Pixels are to the bit those of Pillow up to 12; later versions take the columns first where an image
 * becomes much less high than wide by scaling, and may then differ by 1. Normalised pixels differ by
 * rounding in f32.
 */
#ifndef DT_DATA_VISION_H
#define DT_DATA_VISION_H

#include "data/image.h"
#include "model/vision.h"

struct dt_vision_grid {
	int rows, cols;		     /* of tiles; 0: the tile of the whole image is all there is */
	int tiles;		     /* all of them */
	int first[2], height, width; /* what the image is scaled to first, and then */
};

enum { DT_VISION_TILES_MAX = 1024 };

/* The tiles of an image of these sizes. -EINVAL: a side vanishes, or there are too many. */
int dt_vision_grid(const struct dt_vision *v, int height, int width, struct dt_vision_grid *ret,
		   struct dt_err *err);
/* Their pixels [tiles, 3, tile, tile]. x has three channels, and the sizes of g. */
int dt_vision_cut(const struct dt_vision *v, const struct dt_vision_grid *g, const struct dt_image *x,
		  uint8_t *ret, struct dt_err *err);

/*
 * Patches of a tile in the order in which those that are joined lie one behind another: their positions, of
 * `side` a side, found by the fraction of a side where a patch begins, [patches^2]; and their pixels,
 * normalised, [patches^2, 3 patch^2], by channel, row and column.
 */
void dt_vision_positions(const struct dt_vision *v, int64_t side, int32_t *ret);
void dt_vision_pixels(const struct dt_vision *v, int64_t patch, const uint8_t *tile, float *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
