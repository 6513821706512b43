/* Builds the parts of an adapter from a file's matrices: pairs A, B with their scale, by parameter. */
#include "ckpt/adapter_halves.h"

#include "kernels/quant_formats.h"
#include "kernels/rope.h"
#include "model/family.h"

#include <errno.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct adapter_half *find(const struct adapter_halves *f, const char *name, int kind)
{
	for (int i = 0; i < f->n; i++)
		if (f->h[i].kind == kind && !strcmp(f->h[i].name, name))
			return &f->h[i];
	return NULL;
}

static float *numbers(const struct adapter_half *h)
{
	int64_t n = h->rows * h->cols;
	float *x = malloc((size_t)(n + 1) * sizeof(*x));

	if (x)
		dt_dequantize(h->format, h->data, n, x);
	return x;
}

/* The value of a module in a table of regular expressions, matched like PEFT at the end of its name. */
static double pattern(const json_t *table, const char *module, double otherwise)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)table, key, v)
	{
		char text[512];
		regex_t re;
		bool meets;

		snprintf(text, sizeof(text), "^(.*\\.)?(%s)$", key);
		if (!json_is_number(v) || regcomp(&re, text, REG_EXTENDED | REG_NOSUB))
			continue;
		meets = regexec(&re, module, 0, NULL, 0) == 0;
		regfree(&re);
		if (meets)
			return json_number_value(v);
	}
	return otherwise;
}

/* The scale of a module. -EINVAL if its rank is not that of the configuration. */
static int scale_of(const struct adapter_in *in, const struct adapter_halves *f, const char *module,
		    int64_t rank, double *ret, struct dt_err *err)
{
	const char *prefix = strcmp(module, "lm_head") ? dt_family_find(in->c->family)->prefix : "";
	char full[2 * ADAPTER_NAME];
	double r, alpha;

	snprintf(full, sizeof(full), "%s%s", prefix, module);
	if (!f->config) {
		*ret = f->alpha / (double)rank;
		return 0;
	}
	r = pattern(json_object_get(f->config, "rank_pattern"), full,
		    json_number_value(json_object_get(f->config, "r")));
	alpha = pattern(json_object_get(f->config, "alpha_pattern"), full,
			json_number_value(json_object_get(f->config, "lora_alpha")));
	if ((double)rank != r)
		return dt_err_set(err, -EINVAL,
				  "adapter '%s': '%s' has rank %lld, but adapter_config.json says %g",
				  in->a->path, module, (long long)rank, r);
	*ret = json_is_true(json_object_get(f->config, "use_rslora")) ? alpha / sqrt(r) : alpha / r;
	return 0;
}

/* Adds the pair of a parameter, if the file has it. */
static int add_param(struct adapter_in *in, enum dt_names scheme, const struct adapter_halves *f, int i,
		     struct dt_err *err)
{
	const struct dt_param *p = &in->params->p[i];
	struct dt_place_in_file at;
	struct adapter_half *a, *b, *m;
	float *xa = NULL, *xb = NULL, *xm = NULL;
	double scale = 0;
	int rc;

	if (!adapter_place(in, scheme, i, &at))
		return 0;
	a = find(f, at.name, ADAPTER_HALF_A);
	b = find(f, at.name, ADAPTER_HALF_B);
	m = find(f, at.name, ADAPTER_HALF_M);
	if (!a && !b)
		return 0;
	if (!a || !b)
		return dt_err_set(err, -EINVAL, "adapter '%s': '%s' has no %s", in->a->path, at.name,
				  a ? "B" : "A");
	a->used = b->used = true;
	if ((m != NULL) != json_is_true(json_object_get(f->config, "use_dora")))
		return dt_err_set(err, -EINVAL,
				  "adapter '%s': '%s' has %s lora_magnitude_vector, use_dora %s", in->a->path,
				  at.name, m ? "a" : "no", m ? "is not set" : "asks for one");
	if (m) {
		m->used = true;
		if (m->rows * m->cols != at.rows)
			return dt_err_set(err, -EINVAL, "adapter '%s': '%s' has %lld magnitudes, not %lld",
					  in->a->path, at.name, (long long)(m->rows * m->cols),
					  (long long)at.rows);
	}
	if (a->cols != p->shape[1] || b->rows != at.rows || a->rows != b->cols || a->rows > ADAPTER_RANK_MAX)
		return dt_err_set(
			err, -EINVAL,
			"adapter '%s': '%s' is %lld x %lld and %lld x %lld, the base's linear %lld x "
			"%lld",
			in->a->path, at.name, (long long)a->rows, (long long)a->cols, (long long)b->rows,
			(long long)b->cols, (long long)at.rows, (long long)p->shape[1]);
	rc = scale_of(in, f, at.name, a->rows, &scale, err);
	if (rc < 0)
		return rc;
	xa = numbers(a);
	xb = numbers(b);
	xm = m ? numbers(m) : NULL;
	if (xa && xb && (xm || !m))
		rc = adapter_add(
			in, i,
			&(struct adapter_part_in){
				.rank = a->rows, .scale = scale, .a = xa, .b = xb, .m = xm, .at = &at},
			err);
	else
		rc = dt_err_sys(err, -ENOMEM, "cannot read '%s'", in->a->path);
	free(xa);
	free(xb);
	free(xm);
	return rc;
}

int adapter_add_halves(struct adapter_in *in, enum dt_names scheme, const struct adapter_halves *f,
		       struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < in->params->n && rc == 0; i++)
		rc = add_param(in, scheme, f, i, err);
	for (int i = 0; i < f->n && rc == 0; i++)
		if (!f->h[i].used)
			rc = dt_err_set(err, -EINVAL, "adapter '%s': '%s' is not a linear layer of '%s'",
					in->a->path, f->h[i].name, in->c->name);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
