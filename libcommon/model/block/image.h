/*
 * Blocks that classifiers of images are built from. Each adds its parameters and nodes, and returns what it
 * computes: a value, and its channels and sides a sample.
 */
#ifndef DT_MODEL_BLOCK_IMAGE_H
#define DT_MODEL_BLOCK_IMAGE_H

#include "model/block/block.h"

#include "kernels/activation.h"

struct dt_plane {
	int v;
	int64_t channels, height, width;
};

/* The images of the data set, as config's image_size and channels say. */
struct dt_plane dt_block_pixels(struct dt_builder *b);
/* A convolution without a bias, zeros around the image so that stride 1 keeps its size. */
struct dt_plane dt_block_conv(struct dt_builder *b, struct dt_plane x, const char *tensor, const char *name,
			      int64_t out, int64_t kernel, int64_t stride);
/*
 * PREFIX.weight, 2 channels kernel^2 whitening filters of the training images that are not trained, and
 * PREFIX.bias; no zeros around the image.
 */
struct dt_plane dt_block_whiten(struct dt_builder *b, struct dt_plane x, const char *prefix, int64_t kernel);
/*
 * relu(norm(x) + residual); residual -1: none. Tensors and buffers are PREFIX.weight, ...
 */
struct dt_plane dt_block_batch_norm(struct dt_builder *b, struct dt_plane x, const char *prefix,
				    const char *name, int residual, bool relu);
struct dt_plane dt_block_pool(struct dt_builder *b, struct dt_plane x, bool max, int64_t kernel,
			      int64_t stride, int64_t pad);
/* Element by element. */
struct dt_plane dt_block_act(struct dt_builder *b, struct dt_plane x, enum dt_act_fn act);
/* All pixels of a sample as one row, pixel by pixel. */
struct dt_plane dt_block_flatten(struct dt_builder *b, struct dt_plane x);
/* relu(x w^T + b) of a row. */
struct dt_plane dt_block_dense(struct dt_builder *b, struct dt_plane x, const char *prefix, int64_t out);
/* fc.weight and, where it has one, fc.bias to config's classes, and the loss. */
void dt_block_classify(struct dt_builder *b, struct dt_plane x, bool bias);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
