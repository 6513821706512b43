/* Attention sinks (attention.h): a logit per head that joins the softmax's denominator. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

#include <math.h>

struct sink {
	struct dt_tensor o, sink, dout;
	float *lse, *dsink;
	int64_t heads, rows, d; /* rows of a sequence */
};

static float number(struct dt_tensor t, int64_t i)
{
	float buf;

	return *dt_load(&buf, dt_at(t, i), t.dtype, 1);
}

static DT_SIMD void scale_row(void *o, enum dt_dtype t, int64_t n, float by)
{
	float b[DT_CHUNK];

	for (int64_t c = 0; c < n; c += DT_CHUNK) {
		const int64_t w = dt_min64(DT_CHUNK, n - c);
		void *at = (char *)o + c * dt_dtype_size(t);
		const float *x = dt_load(b, at, t, w);
		float *to = dt_stage(b, at, t);

#pragma omp simd
		for (int64_t j = 0; j < w; j++)
			to[j] = x[j] * by;
		dt_store(at, t, to, w);
	}
}

/* Number i of lse [batch, heads, rows] has row i % rows of o in its sequence. */
static int64_t row_of(const struct sink *a, int64_t i)
{
	return i / a->rows / a->heads * a->rows + i % a->rows;
}

/* exp(lse) += exp(s), and o shrinks by the share that was there. A row without keys: o = 0, lse = s. */
static void some_rows(void *arg, int t, int64_t first, int64_t last)
{
	const struct sink *a = arg;

	for (int64_t i = first; i < last; i++) {
		const int64_t h = i / a->rows % a->heads;
		const float s = number(a->sink, h), more = s - a->lse[i];

		scale_row(dt_at(a->o, (row_of(a, i) * a->heads + h) * a->d), a->o.dtype, a->d,
			  1.f / (1.f + expf(more)));
		a->lse[i] = more > 0 ? s + log1pf(expf(-more)) : a->lse[i] + log1pf(expf(more));
	}
}

static struct sink sink_of(struct dt_tensor o, struct dt_tensor lse, struct dt_tensor sink)
{
	return (struct sink){.o = o,
			     .sink = sink,
			     .lse = lse.data,
			     .heads = lse.dim[1],
			     .rows = lse.dim[2],
			     .d = dt_numel(o) / dt_numel(lse)};
}

int dt_cpu_attention_sink(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse, struct dt_tensor sink)
{
	struct sink a = sink_of(o, lse, sink);

	dt_cpu_rows(dev, dt_numel(lse), a.d, some_rows, &a);
	return 0;
}

static DT_SIMD float dot(const struct sink *a, int64_t at)
{
	float bx[DT_CHUNK], by[DT_CHUNK], sum = 0;

	for (int64_t c = 0; c < a->d; c += DT_CHUNK) {
		const int64_t w = dt_min64(DT_CHUNK, a->d - c);
		const float *x = dt_load(bx, dt_at(a->o, at + c), a->o.dtype, w),
			    *y = dt_load(by, dt_at(a->dout, at + c), a->dout.dtype, w);

#pragma omp simd reduction(+ : sum)
		for (int64_t j = 0; j < w; j++)
			sum += x[j] * y[j];
	}
	return sum;
}

/* The rows of a head are added in order. */
static float head_gradient(const struct sink *a, int64_t batch, int64_t h)
{
	const float s = number(a->sink, h);
	double sum = 0;

	for (int64_t b = 0; b < batch; b++)
		for (int64_t r = 0; r < a->rows; r++) {
			const float share = expf(s - a->lse[(b * a->heads + h) * a->rows + r]);

			sum -= (double)(share * dot(a, ((b * a->rows + r) * a->heads + h) * a->d));
		}
	return (float)sum;
}

int dt_cpu_attention_sink_backward(struct dt_dev *dev, struct dt_tensor dsink, struct dt_tensor dout,
				   struct dt_tensor o, struct dt_tensor lse, struct dt_tensor sink)
{
	struct sink a = sink_of(o, lse, sink);
	float *to = dsink.data;

	a.dout = dout;
#pragma omp parallel for num_threads(dev->nthreads) if (dt_numel(o) > DT_SERIAL)
	for (int64_t h = 0; h < a.heads; h++)
		to[h] += head_gradient(&a, lse.dim[0], h);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
