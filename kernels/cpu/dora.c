#include "kernels/cpu/cpu.h"
#include "kernels/cpu/groups.h"

#include <math.h>

/* Copies n elements to buf as f32, whatever their type. */
static void load_to(float *buf, const void *p, enum dt_dtype t, int64_t n)
{
	if (dt_load(buf, p, t, n) != buf)
		memcpy(buf, p, (size_t)n * sizeof *buf);
}

static DT_SIMD double squares(const float *x, int64_t n)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t j = 0; j < n; j++)
		sum += x[j] * x[j];
	return (double)sum;
}

/* t [n] += sum over rows k of a, columns c .. c + n, times s b[k]. */
static DT_SIMD void add_update(float *t, struct dt_tensor a, int64_t c, int64_t n, const float *b, float s)
{
	float buf[DT_CHUNK];

	for (int64_t k = 0; k < dt_rows(a); k++) {
		const float *pa = dt_load(buf, dt_at(a, k * dt_cols(a) + c), a.dtype, n), by = s * b[k];

#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			t[j] += by * pa[j];
	}
}

int dt_cpu_dora_norms(struct dt_dev *dev, struct dt_tensor r, struct dt_tensor w, struct dt_tensor a,
		      struct dt_tensor b, float s)
{
	const int64_t out = dt_rows(w), in = dt_cols(w), rank = dt_rows(a);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *sums = r.data, *rows = dt_cpu_scratch(dev, dt_dora_norms_scratch(&on, out, rank));

	if (!rows)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) if (out * in * rank > DT_SERIAL)
	for (int64_t i = 0; i < out; i++) {
		float t[DT_CHUNK], *own = rows + i * rank;
		double plain = 0, whole = 0;

		for (int64_t k = 0; k < rank; k += DT_CHUNK)
			load_to(own + k, dt_at(b, i * rank + k), b.dtype, dt_min64(DT_CHUNK, rank - k));
		for (int64_t c = 0; c < in; c += DT_CHUNK) {
			const int64_t n = dt_min64(DT_CHUNK, in - c);

			load_to(t, dt_at(w, i * in + c), w.dtype, n);
			plain += squares(t, n);
			add_update(t, a, c, n, own, s);
			whole += squares(t, n);
		}
		sums[i] = (float)plain;
		sums[out + i] = (float)whole;
	}
	return 0;
}

int dt_cpu_dora_ratio(struct dt_dev *dev, struct dt_tensor r, struct dt_tensor m)
{
	const int64_t n = dt_numel(m);
	float *g = r.data, *inverse = g + n, buf[DT_CHUNK];

	for (int64_t i = 0; i < n; i += DT_CHUNK) {
		const int64_t here = dt_min64(DT_CHUNK, n - i);
		const float *pm = dt_load(buf, dt_at(m, i), m.dtype, here);

		for (int64_t j = 0; j < here; j++) {
			const float norm = sqrtf(inverse[i + j]), magnitude = sqrtf(g[i + j]) + pm[j];

			g[i + j] = norm > 0 ? magnitude / norm : 1;
			inverse[i + j] = norm > 0 ? 1 / norm : 0;
		}
	}
	return 0;
}

static DT_SIMD void scale_part(char *y, enum dt_dtype t, const float *g, const float *bias, int64_t n)
{
	float b[DT_CHUNK], *py = dt_stage(b, y, t);

	dt_load(b, y, t, n);
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		py[j] += (g[j] - 1) * (py[j] - bias[j]);
	dt_store(y, t, py, n);
}

/* The bias as f32, zeros if absent, at the start of `bytes` of scratch. */
static const float *bias_of(struct dt_dev *dev, struct dt_tensor bias, int64_t n, size_t bytes, float **rest)
{
	float *b = dt_cpu_scratch(dev, bytes);

	if (!b)
		return NULL;
	*rest = b + n;
	memset(b, 0, (size_t)n * sizeof *b);
	for (int64_t i = 0; i < n && bias.data; i += DT_CHUNK)
		load_to(b + i, dt_at(bias, i), bias.dtype, dt_min64(DT_CHUNK, n - i));
	return b;
}

int dt_cpu_dora_scale(struct dt_dev *dev, struct dt_tensor y, int64_t at, struct dt_tensor g,
		      struct dt_tensor bias)
{
	const int64_t rows = dt_rows(y), wide = dt_cols(y), n = dt_numel(g);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	const float *pg = g.data, *b;
	float *rest;

	b = bias_of(dev, bias, n, dt_dora_scale_scratch(&on, n), &rest);
	if (!b)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < n; j += DT_CHUNK)
			scale_part(dt_at(y, i * wide + at + j), y.dtype, pg + j, b + j,
				   dt_min64(DT_CHUNK, n - j));
	return 0;
}

struct back { /* shared by the groups of backward; at: the first column */
	struct dt_tensor dx, u;
	const float *g, *inverse, *bias;
	int64_t at, n;
};

/* Backward of rows first .. last, with their sums of dy (u - bias) / n. */
static DT_SIMD void back_group(const struct back *p, float *part, int64_t first, int64_t last)
{
	float bx[DT_CHUNK], bu[DT_CHUNK];

	memset(part, 0, (size_t)p->n * sizeof *part);
	for (int64_t r = first; r < last; r++)
		for (int64_t c = 0; c < p->n; c += DT_CHUNK) {
			const int64_t w = dt_min64(DT_CHUNK, p->n - c), i = r * dt_cols(p->dx) + p->at + c;
			void *x = dt_at(p->dx, i);
			const float *pu = dt_load(bu, dt_at(p->u, i), p->u.dtype, w);
			float *px = dt_stage(bx, x, p->dx.dtype);

			dt_load(bx, x, p->dx.dtype, w);
#pragma omp simd
			for (int64_t j = 0; j < w; j++) {
				part[c + j] += px[j] * (pu[j] - p->bias[c + j]) * p->inverse[c + j];
				px[j] *= p->g[c + j];
			}
			dt_store(x, p->dx.dtype, px, w);
		}
}

int dt_cpu_dora_backward(struct dt_dev *dev, struct dt_tensor dx, int64_t at, struct dt_tensor dm,
			 struct dt_tensor u, struct dt_tensor r, struct dt_tensor bias)
{
	const int64_t rows = dt_rows(dx), n = dt_numel(r) / 2;
	const struct dt_groups g = dt_groups(rows);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	struct back p = {
		.dx = dx, .u = u, .g = r.data, .inverse = (const float *)r.data + n, .at = at, .n = n};
	float *part;

	p.bias = bias_of(dev, bias, n, dt_dora_backward_scratch(&on, rows, n), &part);
	if (!p.bias)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < g.n; i++)
		back_group(&p, part + i * n, i * g.rows, dt_min64(rows, (i + 1) * g.rows));
	if (dm.data)
		dt_groups_add(dev, dm.data, part, n, g.n, n);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
