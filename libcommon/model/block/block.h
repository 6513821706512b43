/*
 * Blocks that families are built from. Each adds its parameters and its nodes, and returns the value it
 * computes. x is the residual stream, delta what the block before wants added to it (-1: nothing).
 */
#ifndef DT_MODEL_BLOCK_H
#define DT_MODEL_BLOCK_H

#include "model/graph.h"

/* Embeddings of tokens, and of positions where the model learned them. */
int dt_block_embed(struct dt_builder *b);
/* *x += delta, in one pass with h = norm(*x), which is returned. role: the weight's. out: names of h, of the
 * sum, of the statistics. */
int dt_block_add_norm(struct dt_builder *b, int *x, int delta, enum dt_role role, const char *name,
		      const char *const out[4]);
/* x + delta, the residual stream between sublayers that have no norm in front; x itself where delta is -1. */
int dt_block_add(struct dt_builder *b, int x, int delta, const char *name, const char *out);
/* h = norm(x) with a weight of its own, inside a sublayer (Gemma's norms behind attention and MLP). */
int dt_block_norm(struct dt_builder *b, int x, enum dt_role role, const char *name, const char *const out[4]);
int dt_block_attention(struct dt_builder *b, int h);
int dt_block_latent_attention(struct dt_builder *b, int h);
int dt_block_mlp(struct dt_builder *b, int h);
int dt_block_experts(struct dt_builder *b, int h);
/* Logits of h against head.weight, or embed.weight where they are tied, and their loss. */
void dt_block_head(struct dt_builder *b, int h, int embed);

/* A linear y = h w^T + bias with n tensors joined along their rows. */
int dt_block_linear(struct dt_builder *b, const char *name, const char *out, int h, int n, const int *weight,
		    const int *bias);
/* What a projection that writes to the residual stream is initialised with (GPT-2, section 2.3). */
double dt_block_residual_std(const struct dt_builder *b);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
