#include "kernels/cpu/batchnorm_rows.h"
#include "kernels/cpu/groups.h"

int dt_cpu_bn_stats(struct dt_dev *dev, struct dt_tensor mean, struct dt_tensor sqdev, struct dt_tensor x)
{
	const int64_t c = dt_cols(x), groups = dt_numel(mean) / c, rows = dt_rows(x) / groups;
	const struct dt_groups p = dt_bn_parts(rows);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *parts = dt_cpu_scratch(dev, dt_bn_stats_scratch(&on, groups, rows, c)), *bufs;

	if (!parts)
		return -ENOMEM;
	bufs = parts + groups * p.n * 2 * c;
#pragma omp parallel for num_threads(dev->nthreads) if (groups * rows * c > DT_SERIAL)
	for (int64_t i = 0; i < groups * p.n; i++) {
		const int64_t g = i / p.n, k = i % p.n;

		dt_bn_stats_rows(parts + i * 2 * c, parts + (i * 2 + 1) * c,
				 bufs + omp_get_thread_num() * 2 * c, x, g * rows + k * p.rows,
				 g * rows + dt_min64(rows, (k + 1) * p.rows));
	}
	for (int64_t g = 0; g < groups; g++) {
		float *m = (float *)mean.data + g * c, *q = (float *)sqdev.data + g * c;

		memset(m, 0, (size_t)c * sizeof *m);
		memset(q, 0, (size_t)c * sizeof *q);
		for (int64_t k = 0; k < p.n && rows > 0; k++) {
			const float *from = parts + (g * p.n + k) * 2 * c;

			dt_bn_rows_merge(m, q, (double)(k * p.rows), from, from + c,
					 (double)(dt_min64(rows, (k + 1) * p.rows) - k * p.rows), c);
		}
	}
	return 0;
}

static const float *of_group(struct dt_tensor stats, int64_t g, int64_t c)
{
	return (const float *)stats.data + g * c;
}

int dt_cpu_bn_forward(struct dt_dev *dev, const struct dt_bn *p, struct dt_tensor residual,
		      struct dt_tensor beta)
{
	const int64_t c = dt_cols(p->x), groups = dt_numel(p->mean) / c, rows = dt_rows(p->x) / groups;
	const struct dt_groups parts = dt_bn_parts(rows);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *v = dt_cpu_scratch(dev, dt_bn_forward_scratch(&on, c));

	if (!v)
		return -ENOMEM;
	for (int64_t g = 0; g < groups; g++) {
		const float *gamma = dt_load(v, p->gamma.data, p->gamma.dtype, c),
			    *rstd = of_group(p->rstd, g, c);
		const struct dt_bn_work a = {.p = p,
					     .residual = residual,
					     .m = of_group(p->mean, g, c),
					     .k = v + c,
					     .b = dt_load(v + 2 * c, beta.data, beta.dtype, c)};

		for (int64_t j = 0; j < c; j++)
			v[c + j] = gamma[j] * rstd[j];
#pragma omp parallel for num_threads(dev->nthreads) if (rows * c > DT_SERIAL)
		for (int64_t i = 0; i < parts.n; i++)
			dt_bn_forward_rows(&a, g * rows + i * parts.rows,
					   g * rows + dt_min64(rows, (i + 1) * parts.rows));
	}
	return 0;
}

int dt_cpu_bn_sums(struct dt_dev *dev, struct dt_tensor sum, struct dt_tensor dot, struct dt_tensor dy,
		   const struct dt_bn *p)
{
	const int64_t c = dt_cols(p->x), groups = dt_numel(p->mean) / c, rows = dt_rows(p->x) / groups;
	const struct dt_groups parts = dt_bn_parts(rows);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *v = dt_cpu_scratch(dev, dt_bn_sums_scratch(&on, rows, c));

	if (!v)
		return -ENOMEM;
	memset(sum.data, 0, (size_t)(groups * c) * sizeof(float));
	memset(dot.data, 0, (size_t)(groups * c) * sizeof(float));
	for (int64_t g = 0; g < groups && rows > 0; g++) {
		const struct dt_bn_work a = {
			.p = p, .dy = dy, .k = of_group(p->rstd, g, c), .m = of_group(p->mean, g, c)};

#pragma omp parallel for num_threads(dev->nthreads) if (rows * c > DT_SERIAL)
		for (int64_t i = 0; i < parts.n; i++)
			dt_bn_sums_rows(v + 2 * i * c, v + (2 * i + 1) * c, &a, g * rows + i * parts.rows,
					g * rows + dt_min64(rows, (i + 1) * parts.rows));
		dt_groups_add(dev, (float *)sum.data + g * c, v, 2 * c, parts.n, c);
		dt_groups_add(dev, (float *)dot.data + g * c, v + c, 2 * c, parts.n, c);
	}
	return 0;
}

/* dx = k dz + d (x - mean) + b, which is gamma rstd (dz - (sum + xh dot) / count). */
static void fold_backward(const struct dt_bn *p, const float *gamma, const float *sum, const float *dot,
			  double count, int64_t g, float *k, float *d, float *b)
{
	const int64_t c = dt_cols(p->x);
	const float *rstd = of_group(p->rstd, g, c);
	const float share = count > 0 ? (float)(1 / count) : 0;

	for (int64_t j = 0; j < c; j++) {
		k[j] = gamma[j] * rstd[j];
		d[j] = share > 0 ? -k[j] * rstd[j] * dot[g * c + j] * share : 0;
		b[j] = share > 0 ? -k[j] * sum[g * c + j] * share : 0;
	}
}

int dt_cpu_bn_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dresidual,
		       struct dt_tensor dy, struct dt_tensor sum, struct dt_tensor dot, double count,
		       const struct dt_bn *p)
{
	const int64_t c = dt_cols(p->x), groups = dt_numel(p->mean) / c, rows = dt_rows(p->x) / groups;
	const struct dt_groups parts = dt_bn_parts(rows);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *v = dt_cpu_scratch(dev, dt_bn_backward_scratch(&on, c));

	if (!v)
		return -ENOMEM;
	for (int64_t g = 0; g < groups; g++) {
		const struct dt_bn_work a = {.p = p,
					     .dx = dx,
					     .dresidual = dresidual,
					     .dy = dy,
					     .m = of_group(p->mean, g, c),
					     .k = v,
					     .d = v + c,
					     .b = v + 2 * c};

		fold_backward(p, dt_load(v + 3 * c, p->gamma.data, p->gamma.dtype, c), sum.data, dot.data,
			      count, g, v, v + c, v + 2 * c);
#pragma omp parallel for num_threads(dev->nthreads) if (rows * c > DT_SERIAL)
		for (int64_t i = 0; i < parts.n; i++)
			dt_bn_backward_rows(&a, g * rows + i * parts.rows,
					    g * rows + dt_min64(rows, (i + 1) * parts.rows));
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
