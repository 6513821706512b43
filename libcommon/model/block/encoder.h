/* Building blocks of encoders. Each adds parameters and nodes. */
#ifndef DT_MODEL_BLOCK_ENCODER_H
#define DT_MODEL_BLOCK_ENCODER_H

#include "model/block/block.h"

/* norm(x + delta); last: the layer ends with it. delta -1: norm(x). out: names of h, sum and statistics. */
int dt_block_post_norm(struct dt_builder *b, int x, int delta, enum dt_role role, const char *name,
		       const char *const out[4], bool last);
/*
 * The loss of masked tokens: logits = norm(act(h w^T + b)) e^T + d, where e is embed (tied) or a tensor of
 * its own.
 */
void dt_block_masked_head(struct dt_builder *b, int h, int embed);
/*
 * The end of a model whose results are the final hidden states h. Adds the tensors that classify the first
 * token's: labels.weight tanh(pooler.weight x + pooler.bias) + labels.bias. nn/labels.h computes it.
 */
void dt_block_states(struct dt_builder *b, int h);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
