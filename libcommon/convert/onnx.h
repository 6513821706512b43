/*
 * A model as ONNX: the nodes of its graph (model/graph.h) in operators of onnx.ai's operator set 17, weights
 * in f32. Classifiers of images take "pixels" [batch, channels, height, width], normalised, and give "logits"
 * [batch, classes], with the running statistics of their batch norms; decoders take "input_ids" [batch,
 * sequence], whole sequences without a cache, and give "logits" [batch, sequence, vocabulary].
 */
#ifndef DT_CONVERT_ONNX_H
#define DT_CONVERT_ONNX_H

#include "convert/convert.h"

/*
 * -EEXIST: dst is there; -ENOTSUP: the model has an op without a form here (mixtures, latent attention, a
 * value head), named; -EFBIG: past the 2 GiB of an ONNX file.
 */
int dt_convert_onnx(const char *src, const char *dst, const struct dt_convert *c, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
