/*
 * Pooling over windows of pixels, and conversion of image planes to rows (conv.h: an image batch as a
 * matrix). Windows are kernel x kernel, at a distance of stride pixels, over an image padded by pad pixels.
 *
 * pool_max:   y = the largest pixel of the window that is inside the image, NaN if one is NaN; at = its index
 *             in the window, kernel ky + kx, the first of equal ones. y, at overwritten.
 * pool_max_backward: dx[that pixel] = sum of dy over the windows that chose it. dx overwritten.
 * pool_avg:   y = sum over the window (0 outside the image) / kernel^2. y overwritten.
 * pool_avg_backward: its transpose. dx overwritten.
 * pixels:     y[n, row, column, c] = x[n, c, row, column]: converts f32 planes to rows of a compute type.
 *
 * x, dx [batch height width, channels] and y, dy [batch out out, channels] of one compute type; at u8 with
 * y's shape. Sums are f32, in the order of the windows; they do not depend on the number of threads.
 */
#ifndef DT_KERNELS_POOL_H
#define DT_KERNELS_POOL_H

#include "kernels/conv.h"

struct dt_pooling {
	int64_t batch, channels, height, width; /* of x */
	int64_t kernel, stride, pad;		/* kernel at most 16, for average pooling 4096 */
};

/* pool_max and pool_avg, and their backward; pixels, of images of numel values. */
DT_C size_t dt_pool_scratch(const struct dt_scratch_on *on, const struct dt_pooling *p);
DT_C size_t dt_pool_backward_scratch(const struct dt_scratch_on *on, const struct dt_pooling *p);
DT_C size_t dt_pixels_scratch(const struct dt_scratch_on *on, int64_t numel);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
