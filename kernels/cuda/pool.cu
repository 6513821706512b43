/* One element per thread, channels contiguous. Backward gathers: no element is written twice. */
#include "kernels/cuda/kernel.h"

struct pool {
	void *y;
	const void *x;
	uint8_t *at; /* NULL: average pooling */
	int t;
	int64_t n; /* elements of y, the output */
	int64_t c, h, w, oh, ow, kernel, stride, pad;
};

static struct pool pool_of(const struct dt_pooling *p, struct dt_tensor y, struct dt_tensor x,
			   struct dt_tensor at)
{
	struct pool a = {};

	a.y = y.data;
	a.x = x.data;
	a.at = (uint8_t *)at.data;
	a.t = (int)y.dtype;
	a.n = dt_numel(y);
	a.c = p->channels;
	a.h = p->height;
	a.w = p->width;
	a.oh = dt_window_out(p->height, p->kernel, p->stride, p->pad);
	a.ow = dt_window_out(p->width, p->kernel, p->stride, p->pad);
	a.kernel = p->kernel;
	a.stride = p->stride;
	a.pad = p->pad;
	return a;
}

__global__ void __launch_bounds__(256) forward_kernel(struct pool p)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;
	const float share = 1.f / (float)(p.kernel * p.kernel);

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += step) {
		const int64_t c = i % p.c, ox = i / p.c % p.ow, oy = i / p.c / p.ow % p.oh,
			      image = i / p.c / p.ow / p.oh, y0 = oy * p.stride - p.pad,
			      x0 = ox * p.stride - p.pad;
		float v = p.at ? -INFINITY : 0;
		int where = -1;

		for (int64_t ky = y0 < 0 ? -y0 : 0; ky < p.kernel && y0 + ky < p.h; ky++)
			for (int64_t kx = x0 < 0 ? -x0 : 0; kx < p.kernel && x0 + kx < p.w; kx++) {
				const int64_t from = ((image * p.h + y0 + ky) * p.w + x0 + kx) * p.c + c;
				const float x = dt_ld1(p.x, p.t, from);

				if (!p.at) {
					v += share * x;
				} else if (where < 0 || x > v || x != x) {
					v = x;
					where = (int)(ky * p.kernel + kx);
				}
			}
		dt_st1(p.y, p.t, i, v);
		if (p.at) {
			dt_touch(p.at + i, 1);
			p.at[i] = (uint8_t)where;
		}
	}
}

/* The first window along one dimension that covers position i, and one past the last. */
DT_DEVICE int64_t first_window(const struct pool &p, int64_t i)
{
	const int64_t n = i + p.pad - p.kernel + 1;

	return n <= 0 ? 0 : (n + p.stride - 1) / p.stride;
}
DT_DEVICE int64_t past_window(const struct pool &p, int64_t i, int64_t out)
{
	const int64_t n = (i + p.pad) / p.stride + 1;

	return n < out ? n : out;
}

/* y is the gradient of the pixels, x that of the windows. */
__global__ void __launch_bounds__(256) backward_kernel(struct pool p)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;
	const float share = 1.f / (float)(p.kernel * p.kernel);

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += step) {
		const int64_t c = i % p.c, px = i / p.c % p.w, py = i / p.c / p.w % p.h,
			      image = i / p.c / p.w / p.h;
		float v = 0;

		for (int64_t oy = first_window(p, py); oy < past_window(p, py, p.oh); oy++)
			for (int64_t ox = first_window(p, px); ox < past_window(p, px, p.ow); ox++) {
				const int64_t from = ((image * p.oh + oy) * p.ow + ox) * p.c + c;
				const int64_t where =
					(py - oy * p.stride + p.pad) * p.kernel + px - ox * p.stride + p.pad;

				if (!p.at) {
					v += share * dt_ld1(p.x, p.t, from);
					continue;
				}
				dt_touch(p.at + from, 1);
				if (p.at[from] == where)
					v += dt_ld1(p.x, p.t, from);
			}
		dt_st1(p.y, p.t, i, v);
	}
}

static int forward(struct dt_dev *dev, const struct pool &p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);

	return c ? DT_LAUNCH(c, forward_kernel, dt_blocks(c, p.n, 256), 256, 0, p) : -ENODEV;
}

static int backward(struct dt_dev *dev, const struct pool &p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);

	return c ? DT_LAUNCH(c, backward_kernel, dt_blocks(c, p.n, 256), 256, 0, p) : -ENODEV;
}

int dt_cuda_pool_max(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor at, struct dt_tensor x,
		     const struct dt_pooling *p)
{
	return forward(dev, pool_of(p, y, x, at));
}

int dt_cuda_pool_max_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy,
			      struct dt_tensor at, const struct dt_pooling *p)
{
	return backward(dev, pool_of(p, dx, dy, at));
}

int dt_cuda_pool_avg(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const struct dt_pooling *p)
{
	return forward(dev, pool_of(p, y, x, dt_tensor{}));
}

int dt_cuda_pool_avg_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy,
			      const struct dt_pooling *p)
{
	return backward(dev, pool_of(p, dx, dy, dt_tensor{}));
}

__global__ void __launch_bounds__(256)
	pixels_kernel(void *y, int t, const float *x, int64_t n, int64_t channels, int64_t pixels)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
		const int64_t c = i % channels, pixel = i / channels % pixels, image = i / channels / pixels;

		dt_st1(y, t, i, dt_ld1(x, DT_F32, (image * channels + c) * pixels + pixel));
	}
}

int dt_cuda_pixels(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, int64_t channels)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t n = dt_numel(x);

	return c ? DT_LAUNCH(c, pixels_kernel, dt_blocks(c, n, 256), 256, 0, y.data, (int)y.dtype,
			     (const float *)x.data, n, channels, x.dim[1] / channels)
		 : -ENODEV;
}
/* SPDX-License-Identifier: Apache-2.0 */
