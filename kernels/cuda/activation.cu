/* act moves 2 sizes of x (backward 3), gated 3 of y (backward 5). */
#include "kernels/cuda/act.h"

struct act_args {
	void *out;
	const void *x, *dy; /* dy NULL: forward */
	int t, f, to;	    /* to: type of out */
	int64_t n, width;   /* elements of the output, or of dy; columns of a gated half, 0: not gated */
};

template <int V> __global__ void __launch_bounds__(256) act_kernel(struct act_args a)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x * V;

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V; i < a.n; i += step) {
		const int64_t gate = a.width ? i / a.width * a.width + i : i, up = gate + a.width;
		float x[V], u[V] = {}, g[V] = {}, y[V], dup[V];

		dt_ld<V>(x, a.x, a.t, gate);
		if (a.width)
			dt_ld<V>(u, a.x, a.t, up);
		if (a.dy)
			dt_ld<V>(g, a.dy, a.t, i);
		for (int k = 0; k < V; k++) {
			float d;
			const float v = dt_act(x[k], a.f, &d), w = a.width ? u[k] : 1.f;

			y[k] = a.dy ? g[k] * d * w : v * w;
			dup[k] = a.dy ? g[k] * v : 0.f;
		}
		if (!a.dy) {
			dt_st<V>(a.out, a.to, i, y);
			continue;
		}
		dt_st<V>(a.out, a.to, gate, y);
		if (a.width)
			dt_st<V>(a.out, a.to, up, dup);
	}
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
		rc = DT_LAUNCH(c, act_kernel<8>, dt_blocks(c, whole, 2048), 256, 0, v);
		if (whole == a.n || rc < 0)
			return rc;
		const size_t skip = (size_t)whole * (size_t)dt_dtype_size((enum dt_dtype)a.t);

		a.out = (char *)a.out + skip;
		a.x = (const char *)a.x + skip;
		a.dy = a.dy ? (const char *)a.dy + skip : NULL;
		a.n -= whole;
	}
	return DT_LAUNCH(c, act_kernel<1>, dt_blocks(c, a.n, 256), 256, 0, a);
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
