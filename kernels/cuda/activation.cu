/* Memory traffic: act moves 2 times the bytes of x (backward 3), gated 3 times those of y (backward 5). */
#include "kernels/cuda/act.h"
#include "kernels/cuda/raw.h"

struct act_args {
	void *out;
	const void *x, *dy; /* dy NULL: forward */
	int t, f, to;	    /* to: type of out */
	int64_t n, width;   /* elements of the output, or of dy; columns of a gated half, 0: not gated */
};

/* Eight elements from i on; issues all loads at once. If gated, a.width is a multiple of 8. */
template <int T> __global__ void __launch_bounds__(256) act_by_8_kernel(struct act_args a)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x * 8;

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; i < a.n; i += step) {
		/* Divides in 32 bits where possible. */
		const int64_t row = !a.width  ? 0
				    : i >> 35 ? i / a.width
					      : (uint32_t)(i / 8) / (uint32_t)(a.width / 8);
		const int64_t gate = i + row * a.width, up = gate + a.width;
		dt_raw<T> x, u = {}, g = {};
		float y[8], dup[8];

		dt_ask<T>(x, a.x, gate);
		if (a.width)
			dt_ask<T>(u, a.x, up);
		if (a.dy)
			dt_ask<T>(g, a.dy, i);
		DT_UNROLL
		for (int k = 0; k < 8; k++) {
			float d, slope = 1.f;
			const float v = dt_act(dt_look<T>(x, k), a.f, &d),
				    w = a.width ? dt_act_up(dt_look<T>(u, k), a.f, &slope) : 1.f;

			y[k] = a.dy ? dt_look<T>(g, k) * d * w : v * w;
			dup[k] = a.dy ? dt_look<T>(g, k) * v * slope : 0.f;
		}
		dt_st<8>(a.out, a.to, a.dy ? gate : i, y);
		if (a.dy && a.width)
			dt_st<8>(a.out, a.to, up, dup);
	}
}

/* The remaining elements, one by one. */
__global__ void __launch_bounds__(256) act_kernel(struct act_args a)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += step) {
		const int64_t gate = a.width ? i / a.width * a.width + i : i, up = gate + a.width;
		float d, slope = 1.f;
		const float u = a.width ? dt_act_up(dt_ld1(a.x, a.t, up), a.f, &slope) : 1.f,
			    g = a.dy ? dt_ld1(a.dy, a.t, i) : 0.f;
		const float v = dt_act(dt_ld1(a.x, a.t, gate), a.f, &d);

		dt_st1(a.out, a.to, a.dy ? gate : i, a.dy ? g * d * u : v * u);
		if (a.dy && a.width)
			dt_st1(a.out, a.to, up, g * v * slope);
	}
}

static int start_by_8(const struct dt_cuda *c, const struct act_args &a)
{
	const unsigned blocks = dt_blocks(c, a.n, 2048);

	if (a.t == DT_F32)
		return DT_LAUNCH(c, act_by_8_kernel<DT_F32>, blocks, 256, 0, a);
	if (a.t == DT_BF16)
		return DT_LAUNCH(c, act_by_8_kernel<DT_BF16>, blocks, 256, 0, a);
	return DT_LAUNCH(c, act_by_8_kernel<DT_F16>, blocks, 256, 0, a);
}

static int start(struct dt_dev *dev, struct act_args a)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	int64_t whole = a.width ? 0 : a.n / 8 * 8;
	int rc = 0;

	if (!c)
		return -ENODEV;
	if (a.width && dt_by_8(a.width, a.out, a.x, a.dy))
		whole = a.n;
	if (!dt_by_8(8, a.out, a.x, a.dy))
		whole = 0;
	if (whole) {
		struct act_args v = a;

		v.n = whole;
		rc = start_by_8(c, v);
		if (whole == a.n || rc < 0)
			return rc;
		const size_t skip = (size_t)whole * (size_t)dt_dtype_size((enum dt_dtype)a.t);

		a.out = (char *)a.out + skip;
		a.x = (const char *)a.x + skip;
		a.dy = a.dy ? (const char *)a.dy + skip : NULL;
		a.n -= whole;
	}
	return DT_LAUNCH(c, act_kernel, dt_blocks(c, a.n, 256), 256, 0, a);
}

int dt_cuda_act_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f)
{
	const int64_t n = dt_numel(x);

	return start(dev, {y.data, x.data, NULL, x.dtype, f, x.dtype, n, 0});
}

int dt_cuda_act_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor x,
			 enum dt_act_fn f)
{
	const int64_t n = dt_numel(x);

	return start(dev, {dx.data, x.data, dy.data, x.dtype, f, x.dtype, n, 0});
}

int dt_cuda_gated_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f)
{
	const int64_t rows = dt_rows(y), width = dt_cols(y);

	return start(dev, {y.data, x.data, NULL, x.dtype, f, y.dtype, rows * width, width});
}

int dt_cuda_gated_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor x,
			   enum dt_act_fn f)
{
	const int64_t rows = dt_rows(dy), width = dt_cols(dy);

	return start(dev, {dx.data, x.data, dy.data, x.dtype, f, x.dtype, rows * width, width});
}
/* SPDX-License-Identifier: Apache-2.0 */
