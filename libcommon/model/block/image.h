/*
 * Building blocks of image classifiers, whose ends encoders have too. Each adds parameters and nodes and
 * returns its output: a value with its channels, height and width.
 */
#ifndef DT_MODEL_BLOCK_IMAGE_H
#define DT_MODEL_BLOCK_IMAGE_H

#include "model/block/block.h"

#include "kernels/activation.h"

struct dt_plane {
	int v;
	int64_t channels, height, width;
};

/* The input images, of config's image_size and channels. */
struct dt_plane dt_block_pixels(struct dt_builder *b);
/* A convolution without bias, zero-padded so that stride 1 keeps the size. */
struct dt_plane dt_block_conv(struct dt_builder *b, struct dt_plane x, const char *tensor, const char *name,
			      int64_t out, int64_t kernel, int64_t stride);
/*
 * Frozen whitening filters of the training images: PREFIX.weight with 2 channels kernel^2 filters, and
 * PREFIX.bias; no padding.
 */
struct dt_plane dt_block_whiten(struct dt_builder *b, struct dt_plane x, const char *prefix, int64_t kernel);
/* relu(norm(x) + residual); residual -1: none. Tensors and buffers are named PREFIX.weight, ... */
struct dt_plane dt_block_batch_norm(struct dt_builder *b, struct dt_plane x, const char *prefix,
				    const char *name, int residual, bool relu);
struct dt_plane dt_block_pool(struct dt_builder *b, struct dt_plane x, bool max, int64_t kernel,
			      int64_t stride, int64_t pad);
/* Patches of config's size as rows: a convolution whose stride is its kernel, with a bias. */
struct dt_plane dt_block_patches(struct dt_builder *b, struct dt_plane x);
/* Tokens of patches: the class token in front of them, and positions; returns the residual stream. */
int dt_block_tokens(struct dt_builder *b, struct dt_plane x);
/* The row of each image's class token, or of each text's first token. */
struct dt_plane dt_block_class_row(struct dt_builder *b, int x);
/* An element-wise activation. */
struct dt_plane dt_block_act(struct dt_builder *b, struct dt_plane x, enum dt_act_fn act);
/* Makes all pixels of a sample one row. */
struct dt_plane dt_block_flatten(struct dt_builder *b, struct dt_plane x);
/* relu(x w^T + b) on rows. */
struct dt_plane dt_block_dense(struct dt_builder *b, struct dt_plane x, const char *prefix, int64_t out);
/* labels.weight and labels.bias to an encoder's classes, and the loss. */
void dt_block_labels_loss(struct dt_builder *b, struct dt_plane x);
/* fc.weight and, if bias, fc.bias to config's classes, and the loss. */
void dt_block_classify(struct dt_builder *b, struct dt_plane x, bool bias);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
