/*
 * Two-dimensional convolution (cross-correlation, as the field calls it). Pixels are rows: an image batch of
 * n images, h x w pixels and c channels is a matrix [n h w, c], so that what is by channel (batch norms,
 * biases) is by column, and a 1 x 1 convolution is a product.
 *
 * conv_forward:  y[n, oy, ox, o] = sum over c, ky, kx of x[n, oy s + ky - p, ox s + kx - p, c]
 *                w[o, c, ky, kx]
 *                with zeros outside the image;                                              y overwritten
 * conv_backward: dx = the transpose of that applied to dy;                                 dx overwritten
 * conv_weights:  dw[o, c, ky, kx] = sum over n, oy, ox of dy[n, oy, ox, o] x[...], in f32; added to dw where
 *                accumulate is set, else overwritten: with 0, where there are no images.
 * conv_bias:     y = relu(conv_forward(x, w) + bias + residual), the ReLU where relu is set; a batch norm
 *                with constants is folded into w and bias (model/fold.h).                  y overwritten
 *
 * x [batch height width, channels], y [batch out_h out_w, out]; w [out, channels kernel kernel], the order of
 * PyTorch (OIHW); x, y, w, residual of one compute type, dw and bias f32. Accumulation is f32; y is rounded
 * once. bias [out]; residual has y's shape, or is absent, or is y; y is not x.
 *
 * CPU: oneDNN's, or in f32 Winograd's where a shape is cheaper so (cpu/winograd.h); both copy weights at each
 * call, into the device's scratch. A type that the processor has no convolution for is widened to f32, whole
 * tensors. Sums do not depend on the number of images, but oneDNN's may on the number of threads.
 *
 * CUDA: cuDNN's, of algorithms that give the same bits each time; -ENOTSUP where it is not there
 * (dt_dev_convolves). Weights are copied at each call as well. Of 16-bit types conv_weights' sum over a batch
 * is rounded to the type before it goes to dw, and conv_bias' convolution before anything is added to it.
 */
#ifndef DT_KERNELS_CONV_H
#define DT_KERNELS_CONV_H

#include "kernels/device.h"

struct dt_conv {
	int64_t batch, channels, height, width; /* of x */
	int64_t out;				/* channels of y */
	int64_t kernel, stride, pad;		/* the same both ways */
};

/* Pixels of a side of the result of a window that slides over a side of `size`. */
static inline int64_t dt_window_out(int64_t size, int64_t kernel, int64_t stride, int64_t pad)
{
	return (size + 2 * pad - kernel) / stride + 1;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
