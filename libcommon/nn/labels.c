#include "nn/labels.h"

#include "ckpt/source.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct dt_labels {
	int64_t hidden, n;
	float *dense, *dense_bias, *weight, *bias;
	json_t *classes;   /* list of names; NULL: not known */
	const char **name; /* [n] of these */
};

/* Reads a tensor of this role as a whole. */
static int take(struct dt_source *src, enum dt_role role, float **ret, struct dt_err *err)
{
	const struct dt_params *t = dt_source_params(src);
	const int64_t off[2] = {0, 0};
	int i = 0;

	while (i < t->n && t->p[i].role != role)
		i++;
	if (i == t->n)
		return dt_err_set(err, -EINVAL, "the model has no classes");
	*ret = malloc((size_t)dt_param_numel(&t->p[i]) * sizeof(**ret));
	return *ret ? dt_source_read(src, i, off, t->p[i].shape, DT_F32, *ret, err)
		    : dt_err_sys(err, -ENOMEM, "cannot load '%s'", t->p[i].name);
}

static int take_names(struct dt_source *src, struct dt_labels *l, struct dt_err *err)
{
	json_t *list = json_object_get(dt_source_images(src), "classes");

	if (!list)
		return 0;
	l->classes = json_incref(list);
	l->name = calloc((size_t)l->n, sizeof(*l->name));
	if (!l->name)
		return dt_err_sys(err, -ENOMEM, "cannot load the model");
	for (int64_t i = 0; i < l->n; i++)
		l->name[i] = json_string_value(json_array_get(list, (size_t)i));
	return 0;
}

int dt_labels_open(struct dt_source *src, struct dt_labels **ret, struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(src);
	struct dt_labels *l;
	int rc;

	*ret = NULL;
	if (c->head != DT_ENCODER_CLASSES)
		return 0;
	l = calloc(1, sizeof(*l));
	if (!l)
		return dt_err_sys(err, -ENOMEM, "cannot load the model");
	l->hidden = c->hidden;
	l->n = c->labels;
	if ((rc = take(src, DT_W_LABELS_DENSE, &l->dense, err)) < 0 ||
	    (rc = take(src, DT_W_LABELS_DENSE_B, &l->dense_bias, err)) < 0 ||
	    (rc = take(src, DT_W_LABELS, &l->weight, err)) < 0 ||
	    (rc = take(src, DT_W_LABELS_B, &l->bias, err)) < 0 || (rc = take_names(src, l, err)) < 0) {
		dt_labels_close(l);
		return rc;
	}
	*ret = l;
	return 0;
}

void dt_labels_close(struct dt_labels *l)
{
	if (!l)
		return;
	json_decref(l->classes);
	free(l->name);
	free(l->dense);
	free(l->dense_bias);
	free(l->weight);
	free(l->bias);
	free(l);
}

const char *const *dt_labels_names(const struct dt_labels *l)
{
	return l->name;
}

/* y = x w^T + b; w [rows, n] */
static void linear(const float *w, const float *b, const float *x, int64_t rows, int64_t n, float *y)
{
	for (int64_t i = 0; i < rows; i++) {
		double sum = (double)b[i];

		for (int64_t k = 0; k < n; k++)
			sum += (double)w[i * n + k] * (double)x[k];
		y[i] = (float)sum;
	}
}

int dt_labels_of(const struct dt_labels *l, const float *x, float *ret)
{
	float *h = malloc((size_t)l->hidden * sizeof(*h));

	if (!h)
		return -ENOMEM;
	linear(l->dense, l->dense_bias, x, l->hidden, l->hidden, h);
	for (int64_t i = 0; i < l->hidden; i++)
		h[i] = tanhf(h[i]);
	linear(l->weight, l->bias, h, l->n, l->hidden, ret);
	free(h);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
