/*
 * Building blocks of the families. Each adds parameters and nodes and returns its output value. x is the
 * residual stream, delta the previous block's output that still has to be added to it (-1: none).
 */
#ifndef DT_MODEL_BLOCK_H
#define DT_MODEL_BLOCK_H

#include "model/graph.h"

/* Embeddings of tokens, and of learned positions and token types if the model has them. */
int dt_block_embed(struct dt_builder *b);
/* The table of token embeddings alone. */
int dt_block_embed_table(struct dt_builder *b);
/*
 * *x += delta and h = norm(*x), in one pass; returns h. role: of the norm's weight. out: names of h, the sum
 * and the statistics.
 */
int dt_block_add_norm(struct dt_builder *b, int *x, int delta, enum dt_role role, const char *name,
		      const char *const out[4]);
/* Returns x + delta, for sublayers without a norm before them; x itself if delta is -1. */
int dt_block_add(struct dt_builder *b, int x, int delta, const char *name, const char *out);
/* h = norm(x) with its own weight, inside a sublayer (Gemma's norms after attention and MLP). */
int dt_block_norm(struct dt_builder *b, int x, enum dt_role role, const char *name, const char *const out[4]);
int dt_block_attention(struct dt_builder *b, int h);
int dt_block_latent_attention(struct dt_builder *b, int h);
int dt_block_ssm(struct dt_builder *b, int h);
int dt_block_mlp(struct dt_builder *b, int h);
int dt_block_experts(struct dt_builder *b, int h);
/* Logits of h by head.weight, or by embed.weight if tied, and their loss. Returns that tensor. */
int dt_block_head(struct dt_builder *b, int h, int embed);
/*
 * The stream with which the block of a module for a further token begins, from h, the result of the final
 * norm; and the loss of what comes out of it, by the model's head. b->ahead is set.
 */
int dt_block_mtp(struct dt_builder *b, int h, int embed);
void dt_block_mtp_head(struct dt_builder *b, int h, int head);
/* Rows that a module alone (dt_config_module), or a tower of vision, is given. */
int dt_block_given(struct dt_builder *b);

/* A linear y = h w^T + bias with n weights joined along their rows. */
int dt_block_linear(struct dt_builder *b, const char *name, const char *out, int h, int n, const int *weight,
		    const int *bias);
/*
 * Initial standard deviation of projections that write to the residual stream (GPT-2, section 2.3); that of
 * all matrices in image transformers and encoders.
 */
double dt_block_residual_std(const struct dt_builder *b);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
