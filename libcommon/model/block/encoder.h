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
/* The end of a model whose results are the final hidden states h, and the tensors of a pooler that it has. */
void dt_block_states(struct dt_builder *b, int h);
/*
 * The classes of a text: labels.weight tanh(pooler.weight x + pooler.bias) + labels.bias, of the first
 * token's final hidden state x, and their loss. A server ends with the states: nn/labels.h computes the rest.
 */
void dt_block_labels(struct dt_builder *b, int h);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
