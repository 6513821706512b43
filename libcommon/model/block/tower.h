/* Building blocks of towers of vision. Each adds parameters and nodes. */
#ifndef DT_MODEL_BLOCK_TOWER_H
#define DT_MODEL_BLOCK_TOWER_H

#include "model/block/block.h"

/* Rows of a table, one for each position of a patch: tokens of the batch are positions. */
int dt_block_patch_positions(struct dt_builder *b);
/* The linear of patches, whose pixels are given; a convolution whose stride is its kernel in files. */
int dt_block_patch_rows(struct dt_builder *b);
/*
 * Rows of patches that lie one behind another become one (pixel shuffle: Shi et al. 2016), and a linear makes
 * rows of the decoder of them, which end the model.
 */
void dt_block_connector(struct dt_builder *b, int h);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
