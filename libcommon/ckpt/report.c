/* Prints tables of tensors. */
#include "ckpt/internal.h"
#include "ckpt/look.h"

#include "base/table.h"
#include "base/units.h"
#include "kernels/rope.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static const char *by_x(char *buf, size_t n, int count, const int64_t *v)
{
	size_t k = 0;

	buf[0] = '\0';
	for (int i = 0; i < count && k < n; i++)
		k += (size_t)snprintf(buf + k, n - k, "%s%" PRId64, i ? "x" : "", v[i]);
	return buf;
}

/* ---- list ---- */

struct listing {
	const struct dt_tensors *t;
	struct dt_table *tab;
};

static void on_line(void *arg, const struct dt_tree_line *l)
{
	struct listing *v = arg;
	char buf[128], times[32] = "";

	if (l->copies > 1)
		snprintf(times, sizeof(times), " x %" PRId64, l->copies);
	dt_table_cell(v->tab, "%*s%s%s", 2 * l->depth, "", l->label, times);
	if (l->tensor >= 0) {
		const struct dt_tensor_desc *d = dt_tensors_desc(v->t, l->tensor);

		dt_table_cell(v->tab, "%s", d->type);
		dt_table_cell(v->tab, "%s", by_x(buf, sizeof(buf), d->ndim, d->shape));
		dt_table_cell(v->tab, "%s", d->regular ? by_x(buf, sizeof(buf), d->ndim, d->grid) : "ranges");
	} else {
		for (int i = 0; i < 3; i++)
			dt_table_cell(v->tab, "%s", "");
	}
	dt_table_cell(v->tab, "%" PRId64, l->npieces);
	dt_table_cell(v->tab, "%s", dt_format_size(l->bytes, buf, sizeof(buf)));
}

static uint64_t total_bytes(const struct dt_tensors *t)
{
	uint64_t total = 0;

	for (int i = 0; i < dt_tensors_n(t); i++)
		total += dt_tensors_desc(t, i)->bytes;
	return total;
}

int dt_report_list(struct dt_tensors *t, bool all, FILE *f, struct dt_err *err)
{
	struct listing v = {t, dt_table_new("tensor|dtype|shape|cut|>pieces|>size")};
	struct dt_ckpt *c = dt_tensors_ckpt(t);
	char size[32];
	int rc;

	rc = dt_tree(dt_tensors_n(t) ? dt_tensors_desc(t, 0) : NULL, dt_tensors_n(t), all, on_line, &v, err);
	if (rc == 0) {
		dt_table_print(v.tab, f);
		dt_format_size(total_bytes(t), size, sizeof(size));
		if (c) {
			const char *lay = json_string_value(json_object_get(dt_ckpt_meta(c), "layout"));

			fprintf(f, "\n%s: step %" PRId64 ", layout %s, %d tensors, %s\n", dt_tensors_path(t),
				dt_ckpt_step(c), lay ? lay : "unknown", dt_tensors_n(t), size);
		} else {
			fprintf(f, "\n%s: %s, family %s, %d tensors, %s\n", dt_tensors_path(t),
				dt_tensors_kind(t), dt_tensors_config(t)->family, dt_tensors_n(t), size);
		}
	}
	dt_table_free(v.tab);
	return rc;
}

json_t *dt_report_list_json(const struct dt_tensors *t)
{
	struct dt_ckpt *c = dt_tensors_ckpt(t);
	const char *lay = c ? json_string_value(json_object_get(dt_ckpt_meta(c), "layout")) : NULL;
	json_t *o = json_pack("{s:i, s:s, s:s, s:s*, s:o}", "schema", 1, "path", dt_tensors_path(t), "kind",
			      dt_tensors_kind(t), "layout", lay, "tensors", dt_tensors_json(t));

	if (c)
		json_object_set_new(o, "step", json_integer(dt_ckpt_step(c)));
	json_object_set_new(o, "total_bytes", json_integer((json_int_t)total_bytes(t)));
	return o;
}

/* ---- stats ---- */

static void stats_row(struct dt_table *tab, json_t *list, const char *name, const struct dt_tensor_stats *s)
{
	double v[] = {s->mean, s->std, s->min, s->max};
	uint64_t n[] = {s->zeros, s->nans, s->infs};

	dt_table_cell(tab, "%s", name);
	for (int i = 0; i < 4; i++)
		dt_table_cell(tab, "%.4g", v[i]);
	for (int i = 0; i < 3; i++)
		dt_table_cell(tab, "%" PRIu64, n[i]);
	json_array_append_new(list,
			      json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I}", "name", name,
					"elements", (json_int_t)s->n, "mean", s->mean, "std", s->std, "rms",
					s->rms, "min", s->min, "max", s->max, "zeros", (json_int_t)s->zeros,
					"nans", (json_int_t)s->nans, "infs", (json_int_t)s->infs));
}

int dt_report_stats(struct dt_tensors *t, void (*progress)(void *arg, uint64_t done, uint64_t total),
		    void *arg, FILE *f, json_t **ret_json, struct dt_err *err)
{
	struct dt_table *tab = dt_table_new("tensor|>mean|>std|>min|>max|>zeros|>nan|>inf");
	json_t *list = json_array();
	int rc = 0;

	if (dt_tensors_ckpt(t))
		dt_ckpt_read_once(dt_tensors_ckpt(t));
	for (int i = 0; i < dt_tensors_n(t) && rc == 0; i++) {
		struct dt_tensor_stats s;

		rc = dt_tensor_stats(t, i, &s, err);
		if (rc == 0)
			stats_row(tab, list, dt_tensors_desc(t, i)->name, &s);
		if (progress)
			progress(arg, (uint64_t)i + 1, (uint64_t)dt_tensors_n(t));
	}
	if (rc == 0 && ret_json)
		*ret_json = json_pack("{s:i, s:s, s:O}", "schema", 1, "path", dt_tensors_path(t), "tensors",
				      list);
	else if (rc == 0)
		dt_table_print(tab, f);
	dt_table_free(tab);
	json_decref(list);
	return rc;
}

/* ---- verify ---- */

struct verifying {
	json_t *findings;
	uint64_t bytes;
	void (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
};

static void on_finding(void *arg, const char *text)
{
	struct verifying *v = arg;

	json_array_append_new(v->findings, json_string(text));
}

static void on_verified(void *arg, uint64_t done, uint64_t total)
{
	struct verifying *v = arg;

	v->bytes = done;
	v->progress(v->arg, done, total);
}

int dt_report_verify(const char *path, int workers,
		     void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, FILE *f,
		     json_t *list, struct dt_err *err)
{
	struct verifying v = {.findings = json_array(), .progress = progress, .arg = arg};
	int n = dt_ckpt_verify(path, workers, on_finding, &v, on_verified, err);
	char size[32];
	json_t *text;
	size_t i;

	if (n == -EBADMSG) {
		json_array_append_new(v.findings, json_string(err->msg));
		n = 1;
	}
	json_array_foreach(v.findings, i, text)
	{
		if (f && n > 0)
			fprintf(f, "%s: broken: %s\n", path, json_string_value(text));
	}
	if (f && n == 0)
		fprintf(f, "%s: ok, %s\n", path, dt_format_size(v.bytes, size, sizeof(size)));
	if (n >= 0)
		json_array_append_new(list, json_pack("{s:s, s:b, s:I, s:O}", "path", path, "ok", n == 0,
						      "bytes", (json_int_t)v.bytes, "findings", v.findings));
	json_decref(v.findings);
	return n;
}
/* SPDX-License-Identifier: Apache-2.0 */
