#include "comm/compress_priv.h"

#include "base/progress.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

/* Subtracts from column k of p [rows, r] its parts along the columns before it, which have norm 1 or 0. */
static void subtract_before(float *p, size_t rows, size_t r, size_t k)
{
	for (size_t j = 0; j < k; j++) {
		double dot = 0;

		for (size_t i = 0; i < rows; i++)
			dot += (double)p[i * r + k] * (double)p[i * r + j];
		for (size_t i = 0; i < rows; i++)
			p[i * r + k] -= (float)dot * p[i * r + j];
	}
}

static double squares(const float *p, size_t rows, size_t r, size_t k)
{
	double sum = 0;

	for (size_t i = 0; i < rows; i++)
		sum += (double)p[i * r + k] * (double)p[i * r + k];
	return sum;
}

/* Orthonormalizes the columns of p [rows, r]; a column that depends on those before it becomes zero, or a
 * direction of rounding errors. Such a direction is orthogonal to the others only after a second pass, and
 * would otherwise count a part of the matrix twice. */
static void orthonormalise(float *p, size_t rows, size_t r)
{
	for (size_t k = 0; k < r; k++) {
		const double before = squares(p, rows, r, k);
		double norm;

		subtract_before(p, rows, r, k);
		subtract_before(p, rows, r, k);
		norm = squares(p, rows, r, k);
		norm = norm > 1e-12 * before ? 1 / sqrt(norm) : 0;
		for (size_t i = 0; i < rows; i++)
			p[i * r + k] *= (float)norm;
	}
}

/* A part as a matrix of n elements, whose last row may be incomplete, and its factors P and Q. */
struct matrix {
	struct dt_compress_shape s;
	size_t n;
	float *m, *p, *q;
};

/* The number of elements in row i. */
static size_t row(const struct matrix *a, size_t i)
{
	size_t left = a->n - i * a->s.cols;

	return left < a->s.cols ? left : a->s.cols;
}

/* P = M Q */
static void left_factor(const struct matrix *a)
{
	const size_t r = a->s.rank;

	memset(a->p, 0, a->s.rows * r * sizeof(float));
	for (size_t i = 0; i * a->s.cols < a->n; i++)
		for (size_t j = 0; j < row(a, i); j++)
			for (size_t k = 0; k < r; k++)
				a->p[i * r + k] += a->m[i * a->s.cols + j] * a->q[j * r + k];
}

/* Q = M^T P */
static void right_factor(const struct matrix *a)
{
	const size_t r = a->s.rank;

	memset(a->q, 0, a->s.cols * r * sizeof(float));
	for (size_t i = 0; i * a->s.cols < a->n; i++)
		for (size_t j = 0; j < row(a, i); j++)
			for (size_t k = 0; k < r; k++)
				a->q[j * r + k] += a->m[i * a->s.cols + j] * a->p[i * r + k];
}

/* x = ranks P Q^T; subtracts P Q^T from M. */
static void product(const struct matrix *a, float *x, float ranks)
{
	const size_t r = a->s.rank;

	for (size_t i = 0; i * a->s.cols < a->n; i++)
		for (size_t j = 0; j < row(a, i); j++) {
			float v = 0;

			for (size_t k = 0; k < r; k++)
				v += a->p[i * r + k] * a->q[j * r + k];
			a->m[i * a->s.cols + j] -= v;
			x[i * a->s.cols + j] = ranks * v;
		}
}

void dt_compress_draw(const struct dt_compress_shape *s, size_t n, float *q, size_t k)
{
	const struct dt_rng g = dt_rng_make(1, DT_RNG_INIT, (uint32_t)n);

	for (size_t j = 0; j < s->cols; j++)
		q[j * s->rank + k] = dt_rng_normal(&g, j * s->rank + k);
}

/* Draws the zero columns of Q again: a column of P that was zero in this step, as all are where the gradients
 * are zero, would remain zero. */
static void renew(const struct matrix *a)
{
	const size_t r = a->s.rank;

	for (size_t k = 0; k < r; k++) {
		bool zero = true;

		for (size_t j = 0; j < a->s.cols && zero; j++)
			zero = !(fabsf(a->q[j * r + k]) > 0);
		if (zero)
			dt_compress_draw(&a->s, a->n, a->q, k);
	}
}

/* Advances to the next part's matrix; its factors follow those of `a`. False: no more parts. */
static bool next(const struct dt_compress *z, int *part, struct matrix *a)
{
	float *p = *part < 0 ? dt_compress_floats(z, z->w.p) : a->p + a->s.rows * a->s.rank,
	      *q = *part < 0 ? dt_compress_floats(z, z->w.q) : a->q + a->s.cols * a->s.rank;
	int i = *part + 1;

	while (i < z->nparts && (z->part[i].plain || !z->part[i].n))
		i++;
	if (i == z->nparts)
		return false;
	*part = i;
	*a = (struct matrix){dt_compress_shape(&z->o, &z->part[i]), z->part[i].n, z->kept + z->part[i].at, p,
			     q};
	return true;
}

static int mean(struct dt_compress *z, size_t at, size_t n, const char *what, double *net_s,
		struct dt_err *err)
{
	double t0 = dt_now();
	int rc = dt_all_reduce(z->c, z->work + at, NULL, n, DT_F32, DT_AVG, what, err);

	*net_s += dt_now() - t0;
	return rc;
}

int dt_compress_powersgd(struct dt_compress *z, float *x, const char *what, double *net_s, struct dt_err *err)
{
	struct matrix a;
	int rc;

	for (int i = -1; next(z, &i, &a);)
		left_factor(&a);
	rc = mean(z, z->w.p, z->w.rows, what, net_s, err);
	if (rc < 0)
		return rc;
	for (int i = -1; next(z, &i, &a);) {
		orthonormalise(a.p, a.s.rows, a.s.rank);
		right_factor(&a);
	}
	rc = mean(z, z->w.q, z->w.cols, what, net_s, err);
	for (int i = -1; rc == 0 && next(z, &i, &a);) {
		product(&a, x + z->part[i].at, (float)z->ranks);
		renew(&a);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
