/*
 * The tower of vision of a model that reads images, as an encoder of nn/infer.h whose sequences are the
 * patches of a tile: pixels of a tile in, rows of the decoder out.
 */
#ifndef DT_NN_SEE_H
#define DT_NN_SEE_H

#include "data/vision.h"
#include "nn/infer.h"

struct dt_see;

/*
 * src: of dt_source_open_tower, may be closed afterwards; v: how its images are cut. dtype: of activations
 * and of the rows, f32 or bf16; matrices are kept as it is, too. On the CPU. -ENOTSUP, -EINVAL, -ENOMEM.
 */
int dt_see_open(struct dt_see **ret, struct dt_dev *dev, struct dt_source *src, const struct dt_vision *v,
		enum dt_dtype dtype, struct dt_err *err);
void dt_see_close(struct dt_see *s);
/* What it opens the model with. */
struct dt_infer_params dt_see_params(const struct dt_vision *v, enum dt_dtype dtype);

/* tile [3, v.tile, v.tile]; rows [v.rows, the decoder's hidden] in dtype, written. */
int dt_see_tile(struct dt_see *s, const uint8_t *tile, void *rows, struct dt_err *err);
/* The same of pixels [patches^2, 3 patch^2] in f32, as dt_vision_pixels orders them. */
int dt_see_pixels(struct dt_see *s, const float *pixels, void *rows, struct dt_err *err);
/* Bytes of rows of a tile. */
size_t dt_see_bytes(const struct dt_see *s);
struct dt_infer_memory dt_see_memory(const struct dt_see *s);
/* The scratch that it has reserved of its device, which others on it share. */
const struct dt_scratch *dt_see_reserved(const struct dt_see *s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
