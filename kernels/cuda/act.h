/* The activations themselves, for the kernels that end in one. */
#ifndef DT_KERNELS_CUDA_ACT_H
#define DT_KERNELS_CUDA_ACT_H

#include "kernels/cuda/kernel.h"

#define GELU_K 0.79788456080286536f /* sqrt(2 / pi) */
#define GELU_C 0.044715f

/* f(x), and f'(x) in d. */
DT_DEVICE float dt_act(float x, int f, float *d)
{
	float s;

	switch (f) {
	case DT_ACT_GELU_TANH:
		s = 1.f / (1.f + expf(-2.f * GELU_K * (x + GELU_C * x * x * x)));
		*d = s + x * s * (1.f - s) * 2.f * GELU_K * (1.f + 3.f * GELU_C * x * x);
		break;
	case DT_ACT_GELU_ERF:
		s = 0.5f + 0.5f * erff(x * 0.70710678118654752f);
		*d = s + x * 0.39894228040143268f * expf(-0.5f * x * x);
		break;
	case DT_ACT_SILU:
		s = 1.f / (1.f + expf(-x));
		*d = s + x * s * (1.f - s);
		break;
	default:
		*d = x > 0 ? 1.f : 0.f;
		return x < 0 ? 0.f : x; /* NaN stays NaN */
	}
	/* The slope far out, also where the formula would be zero times Inf. */
	*d = x < -88.f ? 0.f : x > 88.f ? 1.f : *d;
	return x * s;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
