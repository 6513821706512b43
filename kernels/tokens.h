/*
 * Tokens of images (Dosovitskiy et al., An Image is Worth 16x16 Words, 2021, equation 1): a class token in
 * front of an image's patches, and learned positions.
 *
 * image_tokens:          y[b, 0] = class + pos[0],  y[b, 1 + i] = x[b, i] + pos[1 + i].   y overwritten
 * image_tokens_backward: dx[b, i] = dy[b, 1 + i]                                          dx overwritten
 *                        dpos[j] += sum over b of dy[b, j],  dclass += sum over b of dy[b, 0]
 *
 * x, dx [images patches, n] and y, dy [images (patches + 1), n] of one compute type, class [n] and pos
 * [patches + 1, n] of that type; dclass [n] and dpos f32, either may be absent. tokens: patches + 1. Sums are
 * f32, in the order of the images; they do not depend on the number of threads. y and x do not overlap.
 */
#ifndef DT_KERNELS_TOKENS_H
#define DT_KERNELS_TOKENS_H

#include "kernels/device.h"

#endif
/* SPDX-License-Identifier: Apache-2.0 */
