#include "kernels/cpu/cpu.h"

#include <math.h>

struct span { /* part of a window that is inside the image */
	int64_t first, last;
};

DT_INLINE struct span inside(int64_t at, int64_t kernel, int64_t size)
{
	return (struct span){at < 0 ? -at : 0, at + kernel > size ? size - at : kernel};
}

struct sides {
	int64_t h, w;
};

static struct sides out_of(const struct dt_pooling *p)
{
	return (struct sides){dt_window_out(p->height, p->kernel, p->stride, p->pad),
			      dt_window_out(p->width, p->kernel, p->stride, p->pad)};
}

/* v = max(v, x), at = `where` if x is larger; n channels. */
static DT_SIMD void pool_larger(float *v, uint8_t *at, const float *x, uint8_t where, int64_t n)
{
#pragma omp simd
	for (int64_t c = 0; c < n; c++) {
		const bool more = x[c] > v[c] || x[c] != x[c];

		at[c] = more ? where : at[c];
		v[c] = more ? x[c] : v[c];
	}
}

static DT_SIMD void pool_plus(float *v, const float *x, float k, int64_t n)
{
#pragma omp simd
	for (int64_t c = 0; c < n; c++)
		v[c] += k * x[c];
}

static DT_SIMD void pool_plus_where(float *v, const float *x, const uint8_t *at, uint8_t where, int64_t n)
{
#pragma omp simd
	for (int64_t c = 0; c < n; c++)
		v[c] += at[c] == where ? x[c] : 0;
}

struct work {
	const struct dt_pooling *p;
	struct dt_tensor x, y;
	uint8_t *at; /* NULL: average pooling */
	struct sides out;
};

/* One output pixel; visits rows of x in order. */
static void window(const struct work *a, int64_t image, int64_t oy, int64_t ox, float *v, float *buf)
{
	const struct dt_pooling *p = a->p;
	const int64_t n = p->channels, y0 = oy * p->stride - p->pad, x0 = ox * p->stride - p->pad,
		      row = (image * a->out.h + oy) * a->out.w + ox;
	const struct span sy = inside(y0, p->kernel, p->height), sx = inside(x0, p->kernel, p->width);
	const float share = 1.f / (float)(p->kernel * p->kernel);

	for (int64_t c = 0; c < n; c++)
		v[c] = a->at ? -INFINITY : 0;
	if (a->at)
		memset(a->at + row * n, (int)(sy.first * p->kernel + sx.first), (size_t)n);
	for (int64_t ky = sy.first; ky < sy.last; ky++)
		for (int64_t kx = sx.first; kx < sx.last; kx++) {
			const int64_t from = (image * p->height + y0 + ky) * p->width + x0 + kx;
			const float *x = dt_load(buf, dt_at(a->x, from * n), a->x.dtype, n);

			if (a->at)
				pool_larger(v, a->at + row * n, x, (uint8_t)(ky * p->kernel + kx), n);
			else
				pool_plus(v, x, share, n);
		}
	if (a->y.dtype == DT_F32)
		memcpy(dt_at(a->y, row * n), v, (size_t)n * 4);
	dt_store(dt_at(a->y, row * n), a->y.dtype, v, n);
}

static int forward(struct dt_dev *dev, const struct work *a)
{
	const int64_t n = a->p->channels, rows = a->p->batch * a->out.h;
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *buf = dt_cpu_scratch(dev, dt_pool_scratch(&on, a->p));

	if (!buf)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) if (rows * a->out.w * n > DT_SERIAL)
	for (int64_t r = 0; r < rows; r++) {
		float *mine = buf + omp_get_thread_num() * 2 * n;

		for (int64_t ox = 0; ox < a->out.w; ox++)
			window(a, r / a->out.h, r % a->out.h, ox, mine, mine + n);
	}
	return 0;
}

/* Backward of one image: sums its gradient in f32, then rounds it. */
static void backward_image(const struct work *a, int64_t image, float *sum, float *buf)
{
	const struct dt_pooling *p = a->p;
	const int64_t n = p->channels, pixels = p->height * p->width;
	const float share = 1.f / (float)(p->kernel * p->kernel);

	memset(sum, 0, (size_t)(pixels * n) * sizeof *sum);
	for (int64_t o = 0; o < a->out.h * a->out.w; o++) {
		const int64_t y0 = o / a->out.w * p->stride - p->pad, x0 = o % a->out.w * p->stride - p->pad,
			      row = image * a->out.h * a->out.w + o;
		const struct span sy = inside(y0, p->kernel, p->height), sx = inside(x0, p->kernel, p->width);
		const float *dy = dt_load(buf, dt_at(a->y, row * n), a->y.dtype, n);

		for (int64_t ky = sy.first; ky < sy.last; ky++)
			for (int64_t kx = sx.first; kx < sx.last; kx++) {
				float *to = sum + ((y0 + ky) * p->width + x0 + kx) * n;

				if (a->at)
					pool_plus_where(to, dy, a->at + row * n,
							(uint8_t)(ky * p->kernel + kx), n);
				else
					pool_plus(to, dy, share, n);
			}
	}
	dt_store(dt_at(a->x, image * pixels * n), a->x.dtype, sum, pixels * n);
}

static int backward(struct dt_dev *dev, const struct work *a)
{
	const int64_t n = a->p->channels, each = a->p->height * a->p->width * n;
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *buf = dt_cpu_scratch(dev, dt_pool_backward_scratch(&on, a->p));

	if (!buf)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) if (a->p->batch * each > DT_SERIAL)
	for (int64_t i = 0; i < a->p->batch; i++) {
		float *mine = buf + omp_get_thread_num() * (each + n);

		backward_image(a, i, dt_stage(mine, dt_at(a->x, i * each), a->x.dtype), mine + each);
	}
	return 0;
}

int dt_cpu_pool_max(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor at, struct dt_tensor x,
		    const struct dt_pooling *p)
{
	return forward(dev, &(struct work){p, x, y, at.data, out_of(p)});
}

int dt_cpu_pool_max_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy,
			     struct dt_tensor at, const struct dt_pooling *p)
{
	return backward(dev, &(struct work){p, dx, dy, at.data, out_of(p)});
}

int dt_cpu_pool_avg(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const struct dt_pooling *p)
{
	return forward(dev, &(struct work){p, x, y, NULL, out_of(p)});
}

int dt_cpu_pool_avg_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy,
			     const struct dt_pooling *p)
{
	return backward(dev, &(struct work){p, dx, dy, NULL, out_of(p)});
}

/* Pixels [first, first + n) of an image. */
static DT_SIMD void pixels_rows(float *to, const float *x, int64_t channels, int64_t pixels, int64_t first,
				int64_t n)
{
	for (int64_t c = 0; c < channels; c++)
		for (int64_t i = 0; i < n; i++)
			to[i * channels + c] = x[c * pixels + first + i];
}

int dt_cpu_pixels(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, int64_t channels)
{
	const int64_t batch = x.dim[0], pixels = x.dim[1] / channels;
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *buf = dt_cpu_scratch(dev, dt_pixels_scratch(&on, pixels * channels));

	if (!buf)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) if (dt_numel(x) > DT_SERIAL)
	for (int64_t i = 0; i < batch; i++) {
		void *to = dt_at(y, i * x.dim[1]);
		float *f = dt_stage(buf + omp_get_thread_num() * x.dim[1], to, y.dtype);

		pixels_rows(f, (const float *)x.data + i * x.dim[1], channels, pixels, 0, pixels);
		dt_store(to, y.dtype, f, x.dim[1]);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
