/*
 * One activation (activation.h) and its derivative, for CPU and CUDA alike. DT_ACT_POINT defines
 * name(x, f, d), which returns f(x) and stores f'(x) in *d, and name_up(u, f, d), which returns what a gated
 * activation multiplies f(x) by and stores its derivative. head holds the qualifiers of an inlined function;
 * exponential and error_function are the device's own f32 functions. f is an enum dt_act_fn.
 */
#ifndef DT_KERNELS_ACT_POINT_H
#define DT_KERNELS_ACT_POINT_H

#include "kernels/activation.h"

#define DT_GELU_K 0.79788456080286536f /* sqrt(2 / pi) */
#define DT_GELU_C 0.044715f
/* tanh(x) / x from y = x^2; the first term left out is 2e-9 at y = 1/16 */
#define DT_TANH_SERIES(y)                                                                                    \
	(1.f + (y) * (-0.333333333f + (y) * (0.133333333f + (y) * (-0.0539682540f + (y)*0.0218694885f))))

/* The derivative is clamped for large |x|, where the formula could be zero times Inf. NaN stays NaN. */
#define DT_ACT_POINT(head, name, exponential, error_function)                                                \
	head float name(float x, int f, float *d)                                                            \
	{                                                                                                    \
		float s;                                                                                     \
                                                                                                             \
		switch (f) {                                                                                 \
		case DT_ACT_GELU_TANH:                                                                       \
			s = 1.f / (1.f + exponential(-2.f * DT_GELU_K * (x + DT_GELU_C * x * x * x)));       \
			*d = s + x * s * (1.f - s) * 2.f * DT_GELU_K * (1.f + 3.f * DT_GELU_C * x * x);      \
			break;                                                                               \
		case DT_ACT_GELU_ERF:                                                                        \
			s = 0.5f + 0.5f * error_function(x * 0.70710678118654752f);                          \
			*d = s + x * 0.39894228040143268f * exponential(-0.5f * x * x);                      \
			break;                                                                               \
		case DT_ACT_SILU:                                                                            \
			s = 1.f / (1.f + exponential(-x));                                                   \
			*d = s + x * s * (1.f - s);                                                          \
			break;                                                                               \
		case DT_ACT_SILU_CLAMPED:                                                                    \
			*d = x > DT_ACT_LIMIT ? 0.f : 1.f;                                                   \
			x = x > DT_ACT_LIMIT ? DT_ACT_LIMIT : x;                                             \
			s = 1.f / (1.f + exponential(-DT_ACT_ALPHA * x));                                    \
			*d *= x < -50.f ? 0.f : s + x * s * (1.f - s) * DT_ACT_ALPHA;                        \
			return x * s;                                                                        \
		case DT_ACT_TANH:                                                                            \
			s = 1.f - 2.f / (1.f + exponential(2.f * x));                                        \
			x = x * x < 0.0625f ? x * DT_TANH_SERIES(x * x) : s;                                 \
			*d = 1.f - x * x;                                                                    \
			return x;                                                                            \
		default:                                                                                     \
			*d = x > 0 ? 1.f : 0.f;                                                              \
			return x < 0 ? 0.f : x;                                                              \
		}                                                                                            \
		*d = x < -88.f ? 0.f : x > 88.f ? 1.f : *d;                                                  \
		return x * s;                                                                                \
	}                                                                                                    \
	head float name##_up(float u, int f, float *d)                                                       \
	{                                                                                                    \
		*d = 1.f;                                                                                    \
		if (f != DT_ACT_SILU_CLAMPED)                                                                \
			return u;                                                                            \
		*d = u > DT_ACT_LIMIT || u < -DT_ACT_LIMIT ? 0.f : 1.f;                                      \
		u = u > DT_ACT_LIMIT ? DT_ACT_LIMIT : u < -DT_ACT_LIMIT ? -DT_ACT_LIMIT : u;                 \
		return u + 1.f;                                                                              \
	}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
