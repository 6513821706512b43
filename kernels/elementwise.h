/*
 * Elementwise. All tensors of a call have equally many elements; shapes are not looked at.
 *   add      y = a + b          one type, f32, bf16 or f16; y may alias a or b
 *   axpy     y += a x           y and x f32, bf16 or f16, each its own; computed in f32, rounded once
 *   scale    x *= a             f32, bf16 or f16
 *   fill     x = value          f32, bf16, f16
 *   fill_spans   elements span[2 i] .. span[2 i + 1] - 1 of x = value, i < n; others stay; span is the host's
 *   convert  y = x              between f32, bf16 and f16, to nearest even; y may be x where types are equal
 *   softcap  y = cap tanh(x / cap), cap > 0: f32, bf16 or f16, each its own; y may be x where types are
 *            equal (Bello et al. 2016; Gemma 2 caps attention scores and logits)
 *   softcap_backward   dx = dy (1 - (y / cap)^2), with forward's y: each its own type; dx may be dy where
 *            types are equal
 *   sumsq    *ret = sum x^2     f32, bf16 or f16, accumulated in f64 over 8192 elements at a time, then over
 *                               those in order: independent of the number of threads. NaN or Inf if any
 *                               element is.
 *   sumsq_spans   ret[i] is sumsq of elements span[2 i] .. span[2 i + 1] - 1 of x, i < n, to the bit; span is
 *                 the host's
 */
#ifndef DT_KERNELS_ELEMENTWISE_H
#define DT_KERNELS_ELEMENTWISE_H

#include "kernels/device.h"

#endif
/* SPDX-License-Identifier: Apache-2.0 */
