/*
 * Two-dimensional convolution (cross-correlation, as is usual in deep learning). Pixels are rows: a batch of
 * n images of h x w pixels and c channels is a matrix [n h w, c], so that per-channel ops (batch norm, bias)
 * act on columns, and a 1 x 1 convolution is a matrix product.
 *
 * conv_forward:  y[n, oy, ox, o] = sum over c, ky, kx of x[n, oy s + ky - p, ox s + kx - p, c]
 *                w[o, c, ky, kx]
 *                with zeros outside the image;                                              y overwritten
 * conv_backward: dx = the transpose of that applied to dy;                                 dx overwritten
 * conv_weights:  dw[o, c, ky, kx] = sum over n, oy, ox of dy[n, oy, ox, o] x[...], in f32; added to dw if
 *                accumulate is set, else dw is overwritten (with zeros if there are no images).
 * conv_bias:     y = conv_forward(x, w) + bias + residual, then ReLU if relu is set. Inference: a batch norm
 *                with constant statistics is folded into w and bias (model/fold.h).        y overwritten
 *
 * x [batch height width, channels], y [batch out_h out_w, out]; w [out, channels kernel kernel], the order of
 * PyTorch (OIHW); x, y, w, residual of one compute type, dw and bias f32. Accumulation is f32; y is rounded
 * once. bias [out]; residual has y's shape, may be absent, and may alias y; y may not alias x.
 *
 * CPU: oneDNN, or for f32 shapes where it is cheaper our Winograd (cpu/winograd.h). Both copy the weights at
 * each call. If the processor has no convolution of a type, whole tensors are widened to f32. Sums do not
 * depend on the number of images, but oneDNN's may depend on the number of threads.
 *
 * CUDA: deterministic cuDNN algorithms; -ENOTSUP without cuDNN (dt_dev_convolves). Weights are copied at each
 * call as well. For 16-bit types conv_weights rounds its sum over the batch to the type before it goes to dw,
 * and conv_bias rounds the convolution before anything is added to it.
 */
#ifndef DT_KERNELS_CONV_H
#define DT_KERNELS_CONV_H

#include "kernels/device.h"
#include "kernels/scratch.h"

struct dt_conv {
	int64_t batch, channels, height, width; /* of x */
	int64_t out;				/* channels of y */
	int64_t kernel, stride, pad;		/* the same in both dimensions */
};

/*
 * Scratch of a convolution of type t: conv_weights, or any other. Not what oneDNN takes, which only it can
 * say: reordered weights and scratchpads.
 */
DT_C void dt_conv_scratch(const struct dt_scratch_on *on, enum dt_dtype t, bool weights,
			  const struct dt_conv *p, struct dt_scratch *s);

/* Output size along one dimension of a sliding window over `size` pixels. */
static inline int64_t dt_window_out(int64_t size, int64_t kernel, int64_t stride, int64_t pad)
{
	return (size + 2 * pad - kernel) / stride + 1;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
