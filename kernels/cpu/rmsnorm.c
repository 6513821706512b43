#include "kernels/cpu/cpu.h"
#include "kernels/cpu/groups.h"
#include "kernels/cpu/norm.h"

#include <math.h>

struct forward {
	struct dt_tensor y, rstd, sum, x, delta, w;
	float eps;
};

/* buf: 3 rows of f32. */
static DT_SIMD void rmsnorm_forward_rows(const struct forward *a, float *buf, int64_t first, int64_t last)
{
	const int64_t n = dt_cols(a->x);
	const float *w = dt_load(buf + 2 * n, a->w.data, a->w.dtype, n);

	for (int64_t r = first; r < last; r++) {
		const float *x = dt_norm_input(buf, buf + n, a->sum, a->x, a->delta, r, n);
		float *y = dt_stage(buf, dt_at(a->y, r * n), a->y.dtype);
		float rstd = 1.f / sqrtf(dt_dot(x, x, n) / (float)n + a->eps);

#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			y[j] = x[j] * rstd * w[j];
		dt_store(dt_at(a->y, r * n), a->y.dtype, y, n);
		if (a->rstd.data)
			((float *)a->rstd.data)[r] = rstd;
	}
}

int dt_cpu_rmsnorm_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor rstd,
			   struct dt_tensor sum, struct dt_tensor x, struct dt_tensor delta,
			   struct dt_tensor w, float eps)
{
	const int64_t rows = dt_rows(x), n = dt_cols(x);
	const struct forward a = {y, rstd, sum, x, delta, w, eps};
	const struct dt_groups g = dt_groups(rows);
	float *buf;

	if (!rows || !n)
		return 0;
	if (!dt_is_compute(x.dtype) || !dt_is(y, x.dtype, rows * n) ||
	    (!dt_is(w, x.dtype, n) && !dt_is(w, DT_F32, n)) || !dt_is_or_absent(delta, x.dtype, rows * n) ||
	    (delta.data && !dt_is(sum, x.dtype, rows * n)) || !dt_is_or_absent(rstd, DT_F32, rows))
		return -EINVAL;
	buf = dt_cpu_scratch(dev, (size_t)(dev->nthreads * 3 * n) * sizeof *buf);
	if (!buf)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < g.n; i++)
		rmsnorm_forward_rows(&a, buf + omp_get_thread_num() * 3 * n, i * g.rows,
				     dt_min64(rows, (i + 1) * g.rows));
	return 0;
}

struct backward {
	struct dt_tensor dx, dw, dy, dresid, x, rstd, w;
};

/* buf: 4 rows of f32; part: dw of this group. */
static DT_SIMD void rmsnorm_backward_rows(const struct backward *a, float *buf, float *part, int64_t first,
					  int64_t last)
{
	const int64_t n = dt_cols(a->x);
	const float *w = dt_load(buf + 3 * n, a->w.data, a->w.dtype, n), *rstd = a->rstd.data;

	memset(part, 0, (size_t)n * sizeof *part);
	for (int64_t r = first; r < last; r++) {
		const float *x = dt_load(buf, dt_at(a->x, r * n), a->x.dtype, n);
		const float *dy = dt_load(buf + n, dt_at(a->dy, r * n), a->dy.dtype, n);
		const float *res = a->dresid.data
					   ? dt_load(buf + 2 * n, dt_at(a->dresid, r * n), a->dresid.dtype, n)
					   : NULL;
		float *dx = dt_stage(buf + 2 * n, dt_at(a->dx, r * n), a->dx.dtype);
		float s = rstd[r], gx = 0;

#pragma omp simd reduction(+ : gx)
		for (int64_t j = 0; j < n; j++) {
			float xh = x[j] * s;

			gx += dy[j] * w[j] * xh;
			part[j] += dy[j] * xh;
		}
		gx /= (float)n;
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			dx[j] = (res ? res[j] : 0.f) + s * (dy[j] * w[j] - x[j] * s * gx);
		dt_store(dt_at(a->dx, r * n), a->dx.dtype, dx, n);
	}
}

int dt_cpu_rmsnorm_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw, struct dt_tensor dy,
			    struct dt_tensor dresid, struct dt_tensor x, struct dt_tensor rstd,
			    struct dt_tensor w)
{
	const int64_t rows = dt_rows(x), n = dt_cols(x);
	const struct backward a = {dx, dw, dy, dresid, x, rstd, w};
	const struct dt_groups g = dt_groups(rows);
	float *buf, *part;

	if (!rows || !n)
		return 0;
	if (!dt_is_compute(x.dtype) || !dt_is(dx, x.dtype, rows * n) || !dt_is(dy, x.dtype, rows * n) ||
	    !dt_is_or_absent(dresid, x.dtype, rows * n) || !dt_is(rstd, DT_F32, rows) ||
	    (!dt_is(w, x.dtype, n) && !dt_is(w, DT_F32, n)) || !dt_is_or_absent(dw, DT_F32, n))
		return -EINVAL;
	buf = dt_cpu_scratch(dev, (size_t)((dev->nthreads * 4 + g.n) * n) * sizeof *buf);
	if (!buf)
		return -ENOMEM;
	part = buf + dev->nthreads * 4 * n;
#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < g.n; i++)
		rmsnorm_backward_rows(&a, buf + omp_get_thread_num() * 4 * n, part + i * n, i * g.rows,
				      dt_min64(rows, (i + 1) * g.rows));
	if (dw.data)
		dt_groups_add(dev, dw.data, part, n, g.n, n);
	return 0;
}
