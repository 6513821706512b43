/*
 * How a model that reads images cuts one into tiles for its tower (model/family/idefics3.c): the settings of
 * transformers' Idefics3ImageProcessor and SmolVLMImageProcessor. data/vision.h does it.
 */
#ifndef DT_MODEL_VISION_H
#define DT_MODEL_VISION_H

#include "model/config.h"

enum { DT_VISION_LANCZOS = 1, DT_VISION_BILINEAR = 2, DT_VISION_BICUBIC = 3 }; /* as Pillow numbers them */

struct dt_vision {
	int64_t tile;	 /* pixels a side of a tile; 0: the model reads no images */
	int64_t longest; /* pixels that the longer side is scaled to first; 0: it is left */
	bool split;	 /* into tiles, and one of the whole image behind them; else that one alone */
	int filter;
	float scale, mean[3], deviation[3]; /* a pixel p is (p scale - mean) / deviation */
	int64_t patches;		    /* in a row and in a column of a tile */
	int64_t join; /* of these, in a row and in a column, become one row of the decoder */
	int64_t rows; /* of the decoder, that a tile becomes */
};

/*
 * From preprocessor_config.json (NULL: the class's defaults) and processor_config.json (NULL: nothing to
 * compare with), which may have the former as its "image_processor". -EINVAL, -ENOTSUP by name.
 */
int dt_vision_from_hf(const json_t *images, const json_t *processor, const struct dt_config *c,
		      struct dt_vision *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
