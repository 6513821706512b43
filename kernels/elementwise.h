/*
 * Elementwise ops. All tensors of a call have equally many elements; shapes are not checked.
 *   add      y = a + b          one type, f32, bf16 or f16; y may alias a or b
 *   axpy     y += a x           y and x each f32, bf16 or f16; computed in f32, rounded once
 *   scale    x *= a             f32, bf16 or f16
 *   fill     x = value          f32, bf16, f16
 *   fill_spans   elements span[2 i] .. span[2 i + 1] - 1 of x = value, i < n; span is host memory
 *   convert  y = x              between f32, bf16 and f16, to nearest even; y may alias x if types are equal
 *   softcap  y = cap tanh(x / cap), cap > 0: each f32, bf16 or f16; y may alias x if types are equal (Bello
 *            et al. 2016; Gemma 2 caps attention scores and logits)
 *   softcap_backward   dx = dy (1 - (y / cap)^2), with forward's y: each of its own type; dx may alias dy if
 *            types are equal
 *   sumsq    *ret = sum x^2     f32, bf16 or f16, accumulated in f64 over 8192 elements at a time, then over
 *                               those in order: independent of the number of threads. NaN or Inf if any
 *                               element is.
 *   sumsq_spans   ret[i] = sumsq of elements span[2 i] .. span[2 i + 1] - 1 of x, i < n, bit for bit; span is
 *                 host memory
 */
#ifndef DT_KERNELS_ELEMENTWISE_H
#define DT_KERNELS_ELEMENTWISE_H

#include "kernels/device.h"
#include "kernels/scratch.h"

#define DT_SUMSQ_CHUNK 8192 /* elements whose squares are summed in one go, the same on every device */

/* Scratch of sumsq over n elements. */
DT_C size_t dt_sumsq_scratch(const struct dt_scratch_on *on, int64_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
