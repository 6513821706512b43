/* Scales by which columns are multiplied before rounding: AWQ's and SmoothQuant's. */
#include "eval/rounding_sites.h"

#include "kernels/ops.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define TRIES	  20
#define MOST_ROWS 256 /* rows of a matrix, evenly spaced, on which a scale is tried */
#define LEAST	  1e-4f

/* scale = x / sqrt(min x max x), with x = max(base, LEAST)^power. */
static void scale_of(const float *base, int64_t k, float power, float *scale)
{
	float low = INFINITY, high = 0, middle;

	for (int64_t j = 0; j < k; j++) {
		scale[j] = powf(base[j] > LEAST ? base[j] : LEAST, power);
		low = scale[j] < low ? scale[j] : low;
		high = scale[j] > high ? scale[j] : high;
	}
	middle = sqrtf(low * high);
	for (int64_t j = 0; j < k; j++)
		scale[j] /= middle;
}

/* The rounding error of w's rows with this scale: d [n, k]. */
static int difference(enum dt_format f, const float *w, int64_t rows, int64_t k, const float *scale, float *d)
{
	const int64_t n = rows < MOST_ROWS ? rows : MOST_ROWS;
	int failed = 0;

#pragma omp parallel
	{
		float *x = malloc((size_t)k * sizeof(*x));
		char *blocks = malloc(dt_format_bytes(f, k));

		if (!x || !blocks)
#pragma omp atomic write
			failed = 1;
#pragma omp for schedule(static)
		for (int64_t r = 0; r < n; r++) {
			const float *row = w + r * rows / n * k;

			if (!x || !blocks)
				continue;
			for (int64_t j = 0; j < k; j++)
				x[j] = row[j] * scale[j];
			dt_quantize(f, x, k, blocks);
			dt_dequantize(f, blocks, k, x);
			for (int64_t j = 0; j < k; j++)
				d[r * k + j] = x[j] / scale[j] - row[j];
		}
		free(x);
		free(blocks);
	}
	return failed ? -ENOMEM : (int)n;
}

struct trial { /* scratch */
	struct dt_dev *dev;
	float *d, *dh; /* [MOST_ROWS, k] */
};

/* The sum of d H d^T over the rows of all matrices: the squared error of the products. */
static int loss_of(const struct trial *t, const struct dt_site *s, enum dt_format f, const float *const *w,
		   const int64_t *rows, const float *scale, double *ret)
{
	double sum = 0;

	for (int i = 0; i < 3; i++) {
		int n = s->param[i] < 0 ? 0 : difference(f, w[i], rows[i], s->k, scale, t->d);
		double part = 0;
		int rc;

		if (n <= 0 && s->param[i] >= 0)
			return n;
		if (n == 0)
			continue;
		rc = t->dev->ops->matmul(t->dev, dt_t2(t->dh, DT_F32, n, s->k), dt_t2(t->d, DT_F32, n, s->k),
					 false, dt_t2(s->h, DT_F32, s->k, s->k), false, DT_NONE, false);
		if (rc < 0)
			return rc;
		for (int64_t j = 0; j < n * s->k; j++)
			part += (double)t->d[j] * (double)t->dh[j];
		sum += part * (double)rows[i] / (double)n;
	}
	*ret = sum;
	return 0;
}

static int search(struct dt_site *s, enum dt_format f, struct dt_dev *dev, const float *const *w,
		  const int64_t *rows)
{
	const size_t k = (size_t)s->k;
	struct trial t = {dev, malloc(MOST_ROWS * k * sizeof(float)), malloc(MOST_ROWS * k * sizeof(float))};
	float *scale = malloc(k * sizeof(*scale));
	double best = INFINITY, loss = 0;
	int rc = t.d && t.dh && scale ? 0 : -ENOMEM;

	for (int i = 0; i < TRIES && rc == 0; i++) {
		scale_of(s->mean, s->k, (float)i / TRIES, scale);
		rc = loss_of(&t, s, f, w, rows, scale, &loss);
		if (rc == 0 && loss < best) {
			best = loss;
			for (size_t j = 0; j < k; j++)
				s->scale[j] = scale[j];
		}
	}
	free(scale);
	free(t.d);
	free(t.dh);
	return rc;
}

static void smooth(struct dt_site *s, const float *const *w, const int64_t *rows)
{
	for (int64_t j = 0; j < s->k; j++) {
		float most = 0;

		for (int i = 0; i < 3; i++)
			for (int64_t r = 0; s->param[i] >= 0 && r < rows[i]; r++)
				most = fmaxf(most, fabsf(w[i][r * s->k + j]));
		s->scale[j] = most > 0 ? fmaxf(s->most[j], LEAST) / fmaxf(most, LEAST) : 1;
	}
	scale_of(s->scale, s->k, 0.5f, s->scale);
}

int dt_site_scale(struct dt_site *s, const struct dt_rounding *r, struct dt_dev *dev, const float *const *w,
		  const int64_t *rows, struct dt_err *err)
{
	int rc = 0;

	if ((s->norm[0] < 0 && s->up < 0) || dt_format_info(s->format)->dtype >= 0)
		return 0;
	s->scale = malloc((size_t)s->k * sizeof(*s->scale));
	if (!s->scale)
		return dt_err_sys(err, -ENOMEM, "cannot scale '%s'", s->node.name);
	for (int64_t j = 0; j < s->k; j++)
		s->scale[j] = 1;
	if (r->method == DT_ROUND_AWQ)
		rc = search(s, s->format, dev, w, rows);
	else
		smooth(s, w, rows);
	return rc < 0 ? dt_err_sys(err, rc, "cannot scale '%s'", s->node.name) : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
