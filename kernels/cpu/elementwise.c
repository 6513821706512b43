#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"

/* op(y, a, b, s) on n elements from i on; every elementwise op loops over chunks with one of these. */
typedef void chunk_fn(struct dt_tensor y, struct dt_tensor a, struct dt_tensor b, float s, int64_t i,
		      int64_t n);

struct chunks {
	chunk_fn *fn;
	struct dt_tensor y, a, b;
	float s;
};

static void some_chunks(void *arg, int t, int64_t first, int64_t last)
{
	const struct chunks *c = arg;
	const int64_t total = dt_numel(c->y);

	for (int64_t i = first * DT_CHUNK; i < dt_min64(total, last * DT_CHUNK); i += DT_CHUNK)
		c->fn(c->y, c->a, c->b, c->s, i, dt_min64(DT_CHUNK, total - i));
}

static void for_chunks(struct dt_dev *dev, chunk_fn *fn, struct dt_tensor y, struct dt_tensor a,
		       struct dt_tensor b, float s)
{
	struct chunks c = {fn, y, a, b, s};

	dt_cpu_rows(dev, dt_ceil_div(dt_numel(y), DT_CHUNK), DT_CHUNK, some_chunks, &c);
}

static DT_SIMD void add_chunk(struct dt_tensor y, struct dt_tensor a, struct dt_tensor b, float s, int64_t i,
			      int64_t n)
{
	float ba[DT_CHUNK], bb[DT_CHUNK];
	const float *pa = dt_load(ba, dt_at(a, i), a.dtype, n), *pb = dt_load(bb, dt_at(b, i), b.dtype, n);
	float *py = dt_stage(ba, dt_at(y, i), y.dtype);

#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		py[j] = pa[j] + pb[j];
	dt_store(dt_at(y, i), y.dtype, py, n);
}

int dt_cpu_add(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor a, struct dt_tensor b)
{
	for_chunks(dev, add_chunk, y, a, b, 0);
	return 0;
}

static DT_SIMD void axpy_chunk(struct dt_tensor y, struct dt_tensor x, struct dt_tensor none, float s,
			       int64_t i, int64_t n)
{
	float bx[DT_CHUNK], by[DT_CHUNK];
	const float *px = dt_load(bx, dt_at(x, i), x.dtype, n), *old = dt_load(by, dt_at(y, i), y.dtype, n);
	float *py = dt_stage(by, dt_at(y, i), y.dtype);

#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		py[j] = old[j] + s * px[j];
	dt_store(dt_at(y, i), y.dtype, py, n);
}

int dt_cpu_axpy(struct dt_dev *dev, struct dt_tensor y, float a, struct dt_tensor x)
{
	for_chunks(dev, axpy_chunk, y, x, DT_NONE, a);
	return 0;
}

static DT_SIMD void scale_chunk(struct dt_tensor x, struct dt_tensor none, struct dt_tensor none2, float s,
				int64_t i, int64_t n)
{
	float b[DT_CHUNK];
	const float *in = dt_load(b, dt_at(x, i), x.dtype, n);
	float *out = dt_stage(b, dt_at(x, i), x.dtype);

#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		out[j] = in[j] * s;
	dt_store(dt_at(x, i), x.dtype, out, n);
}

int dt_cpu_scale(struct dt_dev *dev, struct dt_tensor x, float a)
{
	for_chunks(dev, scale_chunk, x, DT_NONE, DT_NONE, a);
	return 0;
}

static DT_SIMD void fill_chunk(struct dt_tensor x, struct dt_tensor none, struct dt_tensor none2, float s,
			       int64_t i, int64_t n)
{
	uint16_t h = x.dtype == DT_F16 ? dt_f32_to_f16(s) : dt_f32_to_bf16(s);

	if (x.dtype == DT_F32) {
		float *p = dt_at(x, i);

		for (int64_t j = 0; j < n; j++)
			p[j] = s;
	} else {
		uint16_t *p = dt_at(x, i);

		for (int64_t j = 0; j < n; j++)
			p[j] = h;
	}
}

int dt_cpu_fill(struct dt_dev *dev, struct dt_tensor x, float value)
{
	for_chunks(dev, fill_chunk, x, DT_NONE, DT_NONE, value);
	return 0;
}

int dt_cpu_fill_spans(struct dt_dev *dev, struct dt_tensor x, int n, const int64_t *span, float value)
{
	for (int i = 0; i < n; i++)
		dt_cpu_fill(dev, dt_t1(dt_at(x, span[2 * i]), x.dtype, span[2 * i + 1] - span[2 * i]), value);
	return 0;
}

static DT_SIMD void convert_chunk(struct dt_tensor y, struct dt_tensor x, struct dt_tensor none, float s,
				  int64_t i, int64_t n)
{
	float b[DT_CHUNK];
	const void *in = dt_at(x, i);
	void *out = dt_at(y, i);

	if (x.dtype == y.dtype) {
		memmove(out, in, (size_t)(n * dt_dtype_size(x.dtype)));
		return;
	}
	if (y.dtype == DT_F32)
		dt_load(out, in, x.dtype, n);
	else
		dt_store(out, y.dtype, dt_load(b, in, x.dtype, n), n);
}

int dt_cpu_convert(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x)
{
	for_chunks(dev, convert_chunk, y, x, DT_NONE, 0);
	return 0;
}

static DT_SIMD void softcap_chunk(struct dt_tensor y, struct dt_tensor x, struct dt_tensor none, float cap,
				  int64_t i, int64_t n)
{
	float b[DT_CHUNK];
	const float *px = dt_load(b, dt_at(x, i), x.dtype, n), inverse = 1.f / cap;
	float *py = dt_stage(b, dt_at(y, i), y.dtype);

#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		py[j] = dt_softcapf(px[j], cap, inverse);
	dt_store(dt_at(y, i), y.dtype, py, n);
}

int dt_cpu_softcap(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, float cap)
{
	for_chunks(dev, softcap_chunk, y, x, DT_NONE, cap);
	return 0;
}

static DT_SIMD void softcap_grad_chunk(struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor y,
				       float cap, int64_t i, int64_t n)
{
	float bd[DT_CHUNK], by[DT_CHUNK];
	const float *pd = dt_load(bd, dt_at(dy, i), dy.dtype, n), *py = dt_load(by, dt_at(y, i), y.dtype, n);
	const float inverse = 1.f / cap;
	float *out = dt_stage(bd, dt_at(dx, i), dx.dtype);

#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		const float t = py[j] * inverse;

		out[j] = pd[j] * (1.f - t * t);
	}
	dt_store(dt_at(dx, i), dx.dtype, out, n);
}

int dt_cpu_softcap_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor y,
			    float cap)
{
	for_chunks(dev, softcap_grad_chunk, dx, dy, y, cap);
	return 0;
}

static DT_SIMD double sumsq_chunk(struct dt_tensor x, int64_t i, int64_t n)
{
	float b[DT_SUMSQ_CHUNK];
	const float *p = dt_load(b, dt_at(x, i), x.dtype, n);
	double s = 0;

#pragma omp simd reduction(+ : s)
	for (int64_t j = 0; j < n; j++)
		s += (double)p[j] * p[j];
	return s;
}

int dt_cpu_sumsq(struct dt_dev *dev, double *ret, struct dt_tensor x)
{
	const int64_t n = dt_numel(x), chunks = dt_ceil_div(n, DT_SUMSQ_CHUNK);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	double *part, sum = 0;

	part = dt_cpu_scratch(dev, dt_sumsq_scratch(&on, n));
	if (!part)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) if (chunks > 1)
	for (int64_t c = 0; c < chunks; c++)
		part[c] =
			sumsq_chunk(x, c * DT_SUMSQ_CHUNK, dt_min64(DT_SUMSQ_CHUNK, n - c * DT_SUMSQ_CHUNK));
	for (int64_t c = 0; c < chunks; c++)
		sum += part[c];
	*ret = sum;
	return 0;
}

int dt_cpu_sumsq_spans(struct dt_dev *dev, double *ret, struct dt_tensor x, int n, const int64_t *span)
{
	int rc = 0;

	for (int i = 0; i < n && rc == 0; i++)
		rc = dt_cpu_sumsq(dev, &ret[i],
				  dt_t1(dt_at(x, span[2 * i]), x.dtype, span[2 * i + 1] - span[2 * i]));
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
