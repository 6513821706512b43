/*
 * Kernels around cuDNN's convolutions: conversion of weights and weight gradients, and the epilogue. One
 * element per thread.
 */
#include "kernels/cuda/conv.h"
#include "kernels/cuda/kernel.h"

/* y[o, pixel, c] = x[o, c, pixel] */
__global__ void __launch_bounds__(256)
	weights_in_kernel(void *y, const void *x, int t, int64_t n, int64_t c, int64_t pixels)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
		const int64_t o = i / c / pixels;

		dt_st1(y, t, i, dt_ld1(x, t, (o * c + i % c) * pixels + i / c % pixels));
	}
}

int dt_conv_weights_in(const struct dt_cuda *c, void *y, struct dt_tensor w, int64_t channels, int64_t pixels)
{
	const int64_t n = dt_numel(w);

	return DT_LAUNCH(c, weights_in_kernel, dt_blocks(c, n, 256), 256, 0, y, w.data, (int)w.dtype, n,
			 channels, pixels);
}

/* y[o, c, pixel] = x[o, pixel, c], or += */
__global__ void __launch_bounds__(256)
	weights_out_kernel(float *y, const void *x, int t, int64_t n, int64_t c, int64_t pixels, bool add)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
		const int64_t o = i / c / pixels;
		const float v = dt_ld1(x, t, (o * pixels + i % pixels) * c + i / pixels % c);

		dt_st1(y, DT_F32, i, add ? dt_ld1(y, DT_F32, i) + v : v);
	}
}

int dt_conv_weights_out(const struct dt_cuda *c, struct dt_tensor dw, const void *x, enum dt_dtype type,
			int64_t channels, int64_t pixels, bool accumulate)
{
	const int64_t n = dt_numel(dw);

	return DT_LAUNCH(c, weights_out_kernel, dt_blocks(c, n, 256), 256, 0, (float *)dw.data, x, (int)type,
			 n, channels, pixels, accumulate);
}

__global__ void __launch_bounds__(256)
	epilogue_kernel(void *y, const void *x, const float *bias, const void *residual, int t, bool relu,
			int64_t n, int64_t c)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
		float v = dt_ld1(x, t, i) + dt_ld1(bias, DT_F32, i % c);

		v += residual ? dt_ld1(residual, t, i) : 0;
		dt_st1(y, t, i, relu && v < 0 ? 0 : v);
	}
}

int dt_conv_epilogue(const struct dt_cuda *c, struct dt_tensor y, const void *x, const float *bias,
		     const void *residual, bool relu)
{
	const int64_t n = dt_numel(y);

	return DT_LAUNCH(c, epilogue_kernel, dt_blocks(c, n, 256), 256, 0, y.data, x, bias, residual,
			 (int)y.dtype, relu, n, dt_cols(y));
}
/* SPDX-License-Identifier: Apache-2.0 */
