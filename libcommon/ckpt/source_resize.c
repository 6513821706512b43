/*
 * An image transformer for images of another size: the positions of its patches are interpolated by bicubic
 * convolution (Keys 1981, a = -0.75, borders repeated), as interpolate_pos_encoding of transformers does. All
 * else is unchanged.
 */
#include "ckpt/source_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define A (-0.75)

/* The weight of a sample at this distance. */
static double cubic(double x)
{
	x = fabs(x);
	return x < 1   ? ((A + 2) * x - (A + 3)) * x * x + 1
	       : x < 2 ? ((A * x - 5 * A) * x + 8 * A) * x - 4 * A
		       : 0;
}

static int64_t within(int64_t i, int64_t n)
{
	return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* Row `to` of n interpolated from `have` rows: the weights of rows first - 1 .. first + 2. */
static int64_t weights_of(int64_t to, int64_t n, int64_t have, double w[4])
{
	const double at = ((double)to + 0.5) * (double)have / (double)n - 0.5, first = floor(at);

	for (int k = 0; k < 4; k++)
		w[k] = cubic(at - first - (k - 1));
	return (int64_t)first;
}

/* Position (row, column) of a grid n wide from the old one, `have` wide; hidden columns of x. */
static void interpolate(const float *old, int64_t have, int64_t row, int64_t column, int64_t n,
			int64_t hidden, float *x)
{
	double wy[4], wx[4];
	const int64_t y = weights_of(row, n, have, wy), z = weights_of(column, n, have, wx);

	for (int64_t c = 0; c < hidden; c++) {
		double sum = 0;

		for (int i = 0; i < 4; i++)
			for (int k = 0; k < 4; k++)
				sum += wy[i] * wx[k] *
				       (double)old[(within(y + i - 1, have) * have +
						    within(z + k - 1, have)) *
							   hidden +
						   c];
		x[c] = (float)sum;
	}
}

static int64_t grid(const struct dt_config *c)
{
	return c->image_size / c->patch;
}

/* Reads all positions of the old model and interpolates them. */
static int positions(struct dt_source *s, int i, float *ret, struct dt_err *err)
{
	struct dt_source *old = s->mean[0];
	const int64_t hidden = s->config.hidden, n = grid(&s->config), have = grid(&old->config),
		      off[2] = {0}, all[2] = {have * have + 1, hidden};
	float *was = malloc((size_t)(all[0] * hidden) * sizeof(*was));
	int rc = was ? dt_source_read(old, s->from[i], off, all, DT_F32, was, err) : -ENOMEM;

	if (rc == 0) {
		memcpy(ret, was, (size_t)hidden * sizeof(*ret)); /* of the class token */
		for (int64_t p = 0; p < n * n; p++)
			interpolate(was + hidden, have, p / n, p % n, n, hidden, ret + (p + 1) * hidden);
	}
	free(was);
	return rc;
}

static int read_box(struct dt_source *s, int i, const int64_t *off, const int64_t *shape, float *x,
		    struct dt_err *err)
{
	const struct dt_param *p = &s->params.p[i];
	float *all;
	int rc;

	if (p->role != DT_W_POS)
		return dt_source_read(s->mean[0], s->from[i], off, shape, DT_F32, x, err);
	all = malloc((size_t)dt_param_numel(p) * sizeof(*all));
	rc = all ? positions(s, i, all, err) : -ENOMEM;
	for (int64_t r = 0; r < shape[0] && rc == 0; r++)
		memcpy(x + r * shape[1], all + (off[0] + r) * p->shape[1] + off[1],
		       (size_t)shape[1] * sizeof(*x));
	free(all);
	return rc == -ENOMEM ? dt_err_sys(err, rc, "cannot interpolate positions") : rc;
}

int dt_source_at_size(struct dt_source **s, int64_t size, struct dt_err *err)
{
	struct dt_source *old = *s, *fit;
	int rc;

	if (!size || !old->config.patch || size == old->config.image_size)
		return 0;
	fit = calloc(1, sizeof(*fit));
	if (!fit)
		return dt_err_sys(err, -ENOMEM, "cannot interpolate positions");
	fit->config = old->config;
	fit->config.image_size = size;
	rc = dt_config_check(&fit->config, err);
	if (rc == 0)
		rc = src_same_names(fit, old, err);
	if (rc < 0) {
		dt_source_close(fit);
		return rc == -ENOMEM ? dt_err_sys(err, rc, "cannot interpolate positions") : rc;
	}
	fit->box = read_box;
	src_made_of(fit, &old, 1);
	memcpy(fit->note, old->note, sizeof(fit->note));
	*s = fit;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
