#include "data/whiten.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SWEEPS 60

/* Rotates rows and columns p and q to make m[p][q] 0, and rows of v with them. */
static void rotate(double *m, double *v, int n, int p, int q)
{
	const double apq = m[p * n + q], theta = (m[q * n + q] - m[p * n + p]) / (2 * apq);
	const double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
	const double c = 1 / sqrt(t * t + 1), s = t * c;

	for (int k = 0; k < n; k++) {
		const double x = m[k * n + p], y = m[k * n + q];

		m[k * n + p] = c * x - s * y;
		m[k * n + q] = s * x + c * y;
	}
	for (int k = 0; k < n; k++) {
		const double x = m[p * n + k], y = m[q * n + k], vx = v[p * n + k], vy = v[q * n + k];

		m[p * n + k] = c * x - s * y;
		m[q * n + k] = s * x + c * y;
		v[p * n + k] = c * vx - s * vy;
		v[q * n + k] = s * vx + c * vy;
	}
}

static void swap_rows(double *v, int n, int a, int b)
{
	for (int k = 0; k < n; k++) {
		const double x = v[a * n + k];

		v[a * n + k] = v[b * n + k];
		v[b * n + k] = x;
	}
}

void dt_eigen_symmetric(double *m, int n, double *ret_value, double *ret_v)
{
	bool turned = true;

	for (int i = 0; i < n * n; i++)
		ret_v[i] = i / n == i % n;
	for (int sweep = 0; sweep < SWEEPS && turned; sweep++) {
		turned = false;
		for (int p = 0; p < n; p++)
			for (int q = p + 1; q < n; q++)
				if (fabs(m[p * n + q]) > 1e-15 * sqrt(fabs(m[p * n + p] * m[q * n + q]))) {
					rotate(m, ret_v, n, p, q);
					turned = true;
				}
	}
	for (int i = 0; i < n; i++)
		ret_value[i] = m[i * n + i];
	for (int i = 0; i < n; i++)
		for (int j = i + 1; j < n; j++)
			if (ret_value[j] > ret_value[i]) {
				const double x = ret_value[i];

				ret_value[i] = ret_value[j];
				ret_value[j] = x;
				swap_rows(ret_v, n, i, j);
			}
}

/* Adds p p^T of every patch p of y [channels, height, width] to sum. */
static void add_patches(const float *y, int channels, int height, int width, int kernel, double *patch,
			double *sum)
{
	const int n = channels * kernel * kernel;

	for (int r = 0; r + kernel <= height; r++)
		for (int c = 0; c + kernel <= width; c++) {
			const float *at = y + r * width + c;

			for (int i = 0; i < n; at += height * width)
				for (int ky = 0; ky < kernel; ky++)
					for (int kx = 0; kx < kernel; kx++)
						patch[i++] = (double)at[ky * width + kx];
			for (int i = 0; i < n; i++)
				for (int j = 0; j <= i; j++)
					sum[i * n + j] += patch[i] * patch[j];
		}
}

/* The mean of p p^T over the patches p of the first images. */
static int covariance(const struct dt_images *d, const struct dt_augment *a, int channels, int64_t images,
		      int kernel, double *patch, double *m, struct dt_err *err)
{
	const int n = channels * kernel * kernel;
	const double patches = (double)images * (a->height - kernel + 1) * (a->width - kernel + 1);
	struct dt_image image = {0}, tmp = {0};
	float *y = malloc((size_t)channels * (size_t)a->height * (size_t)a->width * sizeof(*y));
	int rc = y ? 0 : dt_err_sys(err, -ENOMEM, "cannot compute whitening filters");

	for (int64_t i = 0; i < images && rc == 0; i++) {
		rc = dt_images_read(d, i, &image, err);
		if (rc == 0)
			rc = dt_augment_apply(a, 0, 0, &image, &tmp, y, err);
		if (rc == 0)
			add_patches(y, channels, a->height, a->width, kernel, patch, m);
	}
	for (int i = 0; i < n; i++)
		for (int j = 0; j <= i; j++)
			m[i * n + j] = m[j * n + i] = m[i * n + j] / patches;
	dt_image_release(&image);
	dt_image_release(&tmp);
	free(y);
	return rc;
}

/* Returns -1 if the element of largest magnitude is negative, else 1. */
static double sign_of(const double *v, int n)
{
	int at = 0;

	for (int i = 1; i < n; i++)
		at = fabs(v[i]) > fabs(v[at]) ? i : at;
	return v[at] < 0 ? -1 : 1;
}

int dt_whiten_filters(const struct dt_images *d, const struct dt_augment *a, int kernel, float *ret,
		      struct dt_err *err)
{
	struct dt_images_info info;
	double *m, *v, *value, *patch;
	int n, rc;

	dt_images_info(d, &info);
	n = info.channels * kernel * kernel;
	m = calloc((size_t)(2 * n * n + 2 * n), sizeof(*m));
	if (!m)
		return dt_err_sys(err, -ENOMEM, "cannot compute whitening filters");
	v = m + n * n;
	value = v + n * n;
	patch = value + n;
	rc = covariance(d, a, info.channels, info.images < DT_WHITEN_IMAGES ? info.images : DT_WHITEN_IMAGES,
			kernel, patch, m, err);
	if (rc == 0)
		dt_eigen_symmetric(m, n, value, v);
	for (int i = 0; i < n && rc == 0; i++) {
		const double by = sign_of(v + i * n, n) / sqrt(fmax(value[i], 0) + DT_WHITEN_EPS);

		for (int k = 0; k < n; k++) {
			ret[i * n + k] = (float)(v[i * n + k] * by);
			ret[(n + i) * n + k] = -ret[i * n + k];
		}
	}
	free(m);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
