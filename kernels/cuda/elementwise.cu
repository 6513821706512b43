/* Memory bound: add moves 3 times the bytes of a tensor, axpy 3, scale 2, fill 1, convert 2. */
#include "kernels/cuda/kernel.h"

enum what { ADD, AXPY, SCALE, FILL, CONVERT, SOFTCAP, SOFTCAP_GRAD };

struct each {
	int64_t n;
	int what;
	void *y;
	int ty;
	const void *a, *b;
	int ta, tb;
	float s;
};

template <int V> DT_DEVICE void one(const struct each &e, int64_t i)
{
	float y[V], a[V] = {}, b[V] = {};

	if (e.what != FILL)
		dt_ld<V>(a, e.a, e.ta, i);
	if (e.what == ADD || e.what == AXPY || e.what == SOFTCAP_GRAD)
		dt_ld<V>(b, e.b, e.tb, i);
	for (int k = 0; k < V; k++)
		y[k] = e.what == ADD		? a[k] + b[k]
		       : e.what == AXPY		? a[k] + e.s * b[k]
		       : e.what == SCALE	? a[k] * e.s
		       : e.what == FILL		? e.s
		       : e.what == SOFTCAP	? dt_softcap(a[k], e.s)
		       : e.what == SOFTCAP_GRAD ? a[k] * (1.f - b[k] / e.s * (b[k] / e.s))
						: a[k];
	dt_st<V>(e.y, e.ty, i, y);
}

template <int V> __global__ void __launch_bounds__(256) each_kernel(struct each e)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x * V;

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V; i < e.n; i += step) {
		if (V == 1 || i + V <= e.n)
			one<V>(e, i);
		else
			for (int64_t k = i; k < e.n; k++)
				one<1>(e, k);
	}
}

static int start(struct dt_dev *dev, struct each e)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);

	if (!c)
		return -ENODEV;
	/* The tail is scalar: only the addresses matter. */
	if (dt_by_8(8, e.y, e.a, e.b))
		return DT_LAUNCH(c, each_kernel<8>, dt_blocks(c, e.n, 2048), 256, 0, e);
	return DT_LAUNCH(c, each_kernel<1>, dt_blocks(c, e.n, 256), 256, 0, e);
}

int dt_cuda_add(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor a, struct dt_tensor b)
{
	const int64_t n = dt_numel(y);

	return start(dev, {n, ADD, y.data, y.dtype, a.data, b.data, a.dtype, b.dtype, 0});
}

int dt_cuda_axpy(struct dt_dev *dev, struct dt_tensor y, float a, struct dt_tensor x)
{
	const int64_t n = dt_numel(y);

	return start(dev, {n, AXPY, y.data, y.dtype, y.data, x.data, y.dtype, x.dtype, a});
}

int dt_cuda_scale(struct dt_dev *dev, struct dt_tensor x, float a)
{
	return start(dev, {dt_numel(x), SCALE, x.data, x.dtype, x.data, NULL, x.dtype, 0, a});
}

int dt_cuda_softcap(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, float cap)
{
	return start(dev, {dt_numel(y), SOFTCAP, y.data, y.dtype, x.data, NULL, x.dtype, 0, cap});
}

int dt_cuda_softcap_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor y,
			     float cap)
{
	return start(dev, {dt_numel(dx), SOFTCAP_GRAD, dx.data, dx.dtype, dy.data, y.data, dy.dtype, y.dtype,
			   cap});
}

int dt_cuda_fill(struct dt_dev *dev, struct dt_tensor x, float value)
{
	return start(dev, {dt_numel(x), FILL, x.data, x.dtype, NULL, NULL, 0, 0, value});
}

#define FILL_CHUNK 2048 /* elements per block and iteration, 8 per thread */
#define FILL_SPANS 128

struct fill {
	void *x;
	int t, n; /* type; number of spans */
	float value;
	int64_t chunks; /* over all spans */
	struct {
		int64_t from, to, first; /* elements; number of its first chunk */
	} span[FILL_SPANS];
};

/* Elements [from, to). */
DT_DEVICE void fill_range(const struct fill &f, int64_t from, int64_t to)
{
	const float v[8] = {f.value, f.value, f.value, f.value, f.value, f.value, f.value, f.value};
	const int64_t at = (int64_t)(uintptr_t)f.x + from * (f.t == DT_F32 ? 4 : 2);
	const int64_t eights = at % 16 == 0 ? from + (to - from) / 8 * 8 : from;

	for (int64_t i = from + threadIdx.x * 8; i < eights; i += 256 * 8)
		dt_st<8, true>(f.x, f.t, i, v);
	for (int64_t i = eights + threadIdx.x; i < to; i += 256)
		dt_st1(f.x, f.t, i, f.value);
}

/* A block has consecutive chunks. */
__global__ void __launch_bounds__(256) fill_kernel(struct fill f)
{
	int64_t c = f.chunks * blockIdx.x / gridDim.x;
	const int64_t end = f.chunks * (blockIdx.x + 1) / gridDim.x;

	for (int k = dt_part_of(f.span, f.n, c); c < end; k++) {
		const int64_t first = f.span[k].first, from = f.span[k].from, to = f.span[k].to;
		const int64_t all = from + (end - first) * FILL_CHUNK;

		fill_range(f, from + (c - first) * FILL_CHUNK, to < all ? to : all);
		c = first + (to - from + FILL_CHUNK - 1) / FILL_CHUNK;
	}
}

/* Takes the next non-empty spans from *at on, as many as fit a launch. */
static void take_spans(struct fill *f, int n, const int64_t *span, int *at)
{
	f->n = 0;
	f->chunks = 0;
	for (; *at < n && f->n < FILL_SPANS; ++*at) {
		const int64_t from = span[2 * *at], to = span[2 * *at + 1];

		if (from == to)
			continue;
		f->span[f->n++] = {from, to, f->chunks};
		f->chunks += dt_ceil_div(to - from, FILL_CHUNK);
	}
}

int dt_cuda_fill_spans(struct dt_dev *dev, struct dt_tensor x, int n, const int64_t *span, float value)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	struct fill f = {x.data, (int)x.dtype, 0, value, 0, {}};
	int rc = 0;

	if (!c)
		return -ENODEV;
	for (int at = 0; at < n && rc == 0;) {
		take_spans(&f, n, span, &at);
		if (f.n)
			rc = DT_LAUNCH(c, fill_kernel, dt_blocks(c, f.chunks, 1), 256, 0, f);
	}
	return rc;
}

int dt_cuda_convert(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x)
{
	if (y.dtype == x.dtype)
		return y.data == x.data ? 0
					: dt_dev_copy(dev, y.data, x.data,
						      (size_t)(dt_numel(x) * dt_dtype_size(x.dtype)));
	return start(dev, {dt_numel(y), CONVERT, y.data, y.dtype, x.data, NULL, x.dtype, 0, 0});
}

/* Spans of x in chunks of DT_SUMSQ_CHUNK; chunk[i] is the first chunk of span i; part: one sum per chunk. */
struct spans {
	const void *x;
	int t, n;
	const int64_t *span, *chunk;
	double *part, *ret;
};

/* Sum of squares of the thread's elements in [first, last); V at a time where alignment allows. */
template <int V> DT_DEVICE double squares(const struct spans &a, int64_t first, int64_t last)
{
	double s = 0;

	for (int64_t i = first + threadIdx.x * V; i < last; i += blockDim.x * V) {
		if (V > 1 && i + V <= last) {
			float r[V];

			dt_ld<V>(r, a.x, a.t, i);
			for (int k = 0; k < V; k++)
				s += (double)r[k] * (double)r[k];
			continue;
		}
		for (int64_t k = i; k < last && k < i + V; k++) {
			const double r = (double)dt_ld1(a.x, a.t, k);

			s += r * r;
		}
	}
	return s;
}

/* One chunk per block. */
__global__ void __launch_bounds__(256) chunks_kernel(struct spans a)
{
	const int64_t c = blockIdx.x, size = a.t == DT_F32 ? 4 : 2;
	int at = 0, end = a.n;

	/* The last span whose first chunk is at or before this one: spans after it are not empty. */
	while (end - at > 1) {
		const int mid = (at + end) / 2;

		if (dt_at(a.chunk, mid) <= c)
			at = mid;
		else
			end = mid;
	}
	const int64_t from = dt_at(a.span, 2 * at), to = dt_at(a.span, 2 * at + 1);
	const int64_t first = from + (c - dt_at(a.chunk, at)) * DT_SUMSQ_CHUNK;
	const int64_t last = to - first < DT_SUMSQ_CHUNK ? to : first + DT_SUMSQ_CHUNK;
	const bool by_8 = ((uintptr_t)a.x + (uint64_t)(from * size)) % 16 == 0;
	const double s = dt_block_sum(by_8 ? squares<8>(a, first, last) : squares<1>(a, first, last),
				      (double *)dt_shared());

	if (threadIdx.x == 0)
		a.part[c] = s;
}

/* One span per block: each thread adds every 256th chunk in order, then the threads' sums in a fixed
 * order. */
__global__ void __launch_bounds__(256) spans_kernel(struct spans a)
{
	const int64_t last = dt_at(a.chunk, blockIdx.x + 1);
	double s = 0;

	for (int64_t i = dt_at(a.chunk, blockIdx.x) + threadIdx.x; i < last; i += blockDim.x)
		s += dt_at(a.part, i);
	s = dt_block_sum(s, (double *)dt_shared());
	if (threadIdx.x == 0)
		a.ret[blockIdx.x] = s;
}

static int add_spans(struct dt_dev *dev, double *ret, struct dt_tensor x, int n, const int64_t *span,
		     const int64_t *chunk)
{
	const size_t room = (size_t)n * sizeof *span;
	struct dt_table t[] = {{span, 2 * room, NULL}, {chunk, room + sizeof *chunk, NULL}};
	struct dt_cuda *c = dt_cuda_enter(dev);
	double *sums;
	int rc;

	if (!c)
		return -ENODEV;
	sums = (double *)dt_cuda_scratch(dev, (size_t)(n + chunk[n]) * sizeof *sums);
	if (!sums)
		return -ENOMEM;
	rc = dt_cuda_tables(dev, t, 2);
	const struct spans a = {
		x.data,	  (int)x.dtype, n, (const int64_t *)t[0].ret, (const int64_t *)t[1].ret,
		sums + n, sums};
	if (rc == 0 && chunk[n])
		rc = DT_LAUNCH(c, chunks_kernel, (unsigned)chunk[n], 256, 256, a);
	if (rc == 0)
		rc = DT_LAUNCH(c, spans_kernel, (unsigned)n, 256, 256, a);
	if (rc == 0)
		rc = dt_gpu_copy(ret, sums, (size_t)n * sizeof *ret, c->stream);
	return rc < 0 ? rc : dt_gpu_stream_sync(c->stream);
}

int dt_cuda_sumsq_spans(struct dt_dev *dev, double *ret, struct dt_tensor x, int n, const int64_t *span)
{
	int64_t *chunk = (int64_t *)calloc((size_t)n + 1, sizeof *chunk);
	int rc;

	if (!chunk)
		return -ENOMEM;
	for (int i = 0; i < n; i++)
		chunk[i + 1] = chunk[i] + dt_ceil_div(span[2 * i + 1] - span[2 * i], DT_SUMSQ_CHUNK);
	rc = add_spans(dev, ret, x, n, span, chunk);
	free(chunk);
	return rc;
}

int dt_cuda_sumsq(struct dt_dev *dev, double *ret, struct dt_tensor x)
{
	const int64_t span[] = {0, dt_numel(x)};

	return dt_cuda_sumsq_spans(dev, ret, x, 1, span);
}
/* SPDX-License-Identifier: Apache-2.0 */
