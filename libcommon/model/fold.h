/*
 * Batch norms with constants, folded into the convolutions in front of them, as a rewrite of a graph for
 * inference: relu(norm(conv(x, w)) + residual) becomes one node, conv_bias (kernels/conv.h), with
 *   w' = w gamma / s,  shift = beta - mean gamma / s,  s = sqrt(variance + eps), for each channel of the
 * result. The norm's weight and bias are no tensors of the new graph, and its two buffers are one,
 * PREFIX.shift. The result of a convolution is then written once, and read by what comes next alone.
 */
#ifndef DT_MODEL_FOLD_H
#define DT_MODEL_FOLD_H

#include "model/graph.h"

#define DT_FOLD_SHIFT ".shift"

/* A norm stays as it is where another node reads the convolution too, or where it adds what that reads. */
int dt_graph_fold(struct dt_graph *g, struct dt_err *err);

/* One channel of a norm as it is stored. */
struct dt_fold {
	float gamma, beta, mean, variance, eps;
};
/* Row w [n] of the convolution's weights, f32, in place; returns the shift. f64 inside. */
float dt_fold_row(float *w, int64_t n, const struct dt_fold *f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
