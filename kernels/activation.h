/*
 * Activations, elementwise over tensors of one compute type and equal size.
 *   gelu_tanh  x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3): Hendrycks & Gimelshein 2016, the
 *              tanh form 0.5 x (1 + tanh u) written without its cancellation
 *   gelu_erf   0.5 x (1 + erf(x / sqrt 2))        silu  x / (1 + exp(-x))       relu  max(x, 0)
 *   tanh       of x; below 1/4 by its series, where 1 - 2 / (1 + exp(2 x)) cancels
 *   silu_clamped  of gated activations only (gpt-oss): g = min(x, 7), g / (1 + exp(-1.702 g)); what it is
 *              multiplied by is clamped to [-7, 7] and 1 is added. A clamped element has gradient 0.
 * act:   y = f(x);  dx = dy f'(x).   y may alias x; dx may alias dy or x.
 * gated: x [rows, 2 f] holds gate then up: y[r, j] = f(x[r, j]) x[r, f + j]   (Shazeer 2020: SwiGLU, GeGLU)
 *        y may be of another type than x.
 *        dx [rows, 2 f] from dy [rows, f]; dx may alias x.
 * All outputs are overwritten. Computed in f32; each element depends on its own inputs only. NaN stays NaN.
 * For bf16 gelu_tanh and silu of -Inf and their slopes at either Inf are NaN on the processor.
 * For bf16 the processor's sigmoids have a relative error of 4e-6 before the result is rounded, a
 * thousandth of the rounding.
 */
#ifndef DT_KERNELS_ACTIVATION_H
#define DT_KERNELS_ACTIVATION_H

#define DT_ACT_LIMIT 7.f    /* of silu_clamped */
#define DT_ACT_ALPHA 1.702f /* likewise */

enum dt_act_fn {
	DT_ACT_GELU_TANH,
	DT_ACT_GELU_ERF,
	DT_ACT_SILU,
	DT_ACT_RELU,
	DT_ACT_SILU_CLAMPED,
	DT_ACT_TANH,
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
