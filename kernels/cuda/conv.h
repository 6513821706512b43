/*
 * Convolutions on a card by cuDNN, if this was built with it and it is found when the device is opened.
 * conv.cu has the kernels around them, dnn.c the library calls; no_dnn.c replaces dnn.c in builds without
 * cuDNN.
 */
#ifndef DT_KERNELS_CUDA_CONV_H
#define DT_KERNELS_CUDA_CONV_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y [out, pixels, channels] = w [out, channels, pixels], of w's type. */
int dt_conv_weights_in(const struct dt_cuda *c, void *y, struct dt_tensor w, int64_t channels,
		       int64_t pixels);
/* dw f32 [out, channels, pixels] = x [out, pixels, channels], or += */
int dt_conv_weights_out(const struct dt_cuda *c, struct dt_tensor dw, const void *x, enum dt_dtype type,
			int64_t channels, int64_t pixels, bool accumulate);
/* y = x + bias + residual, then ReLU if relu is set; residual NULL: none. y may alias x or residual. */
int dt_conv_epilogue(const struct dt_cuda *c, struct dt_tensor y, const void *x, const float *bias,
		     const void *residual, bool relu);

#ifdef __cplusplus
}
#endif
#endif
/* SPDX-License-Identifier: Apache-2.0 */
