#include "train/verify_run.h"

#include "base/json.h"
#include "base/tmpfile.h"
#include "ckpt/ckpt.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_LAYOUTS 64

/* Reads the values of a key, one per step, malloc'd; NaN for null. */
static int read_series(const char *dir, const char *layout, const char *key, double **ret, int *ret_n,
		       struct dt_err *err)
{
	char path[PATH_MAX], *text, *next;
	size_t len;
	int rc, n = 0;
	double *v;

	snprintf(path, sizeof(path), "%s/%s.jsonl", dir, layout);
	rc = dt_read_file(path, 1u << 30, &text, &len, err);
	if (rc < 0)
		return rc;
	v = malloc((len / 2 + 1) * sizeof(*v));
	for (char *line = text; v && line && *line && rc == 0; line = next) {
		json_t *o = NULL;

		next = strchr(line, '\n');
		rc = dt_json_parse(line, next ? (size_t)(next - line) : strlen(line), path, &o, err);
		if (rc == 0 && json_object_get(o, key))
			v[n++] = json_is_number(json_object_get(o, key))
					 ? json_number_value(json_object_get(o, key))
					 : NAN;
		json_decref(o);
		next = next ? next + 1 : NULL;
	}
	free(text);
	if (!v || rc < 0) {
		free(v);
		return rc < 0 ? rc : dt_err_sys(err, -ENOMEM, "cannot read '%s'", path);
	}
	*ret = v;
	*ret_n = n;
	return 0;
}

static int compare_series(const char *dir, const char *a, const char *b, const char *key, double *ret,
			  struct dt_err *err)
{
	double *x = NULL, *y = NULL;
	int n = 0, m = 0, rc = read_series(dir, a, key, &x, &n, err);

	if (rc == 0)
		rc = read_series(dir, b, key, &y, &m, err);
	if (rc == 0 && (n != m || n == 0))
		rc = dt_err_set(err, -EINVAL, "layouts '%s' and '%s' did %d and %d steps", a, b, n, m);
	*ret = 0;
	for (int i = 0; i < n && rc == 0; i++) {
		double d = fabs(x[i] - y[i]) / fabs(x[i]);

		if (!(d <= *ret))
			*ret = d; /* also if d is NaN */
	}
	free(x);
	free(y);
	return rc;
}

static int64_t numel(const struct dt_ckpt_tensor *t)
{
	int64_t n = 1;

	for (int d = 0; d < t->ndim; d++)
		n *= t->shape[d];
	return n;
}

static int read_tensor(struct dt_ckpt *c, const char *name, int64_t n, float *ret, struct dt_err *err)
{
	static const int64_t zero[DT_CKPT_MAX_DIM];
	struct dt_ckpt_tensor t;
	int i = dt_ckpt_find(c, name);

	if (i < 0)
		return dt_err_set(err, -ENOENT, "'%s' has no tensor '%s'", dt_ckpt_path(c), name);
	dt_ckpt_tensor(c, i, &t);
	if (numel(&t) != n)
		return dt_err_set(err, -EINVAL, "'%s': '%s' has another size", dt_ckpt_path(c), name);
	return dt_ckpt_read(c, i, zero, t.shape, DT_F32, ret, err);
}

/* *ret_a: sum of squares of a; *ret_d: of a - b (0 if b is NULL). */
static void squares(const float *a, const float *b, int64_t n, double *ret_a, double *ret_d)
{
	double s = 0, d = 0;

	for (int64_t i = 0; i < n; i++) {
		double x = a[i], y = b ? (double)a[i] - (double)b[i] : 0;

		s += x * x;
		d += y * y;
	}
	*ret_a = s;
	*ret_d = d;
}

static bool of_kind(const struct dt_ckpt_tensor *t, const char *kind)
{
	size_t n = strlen(kind);

	return !strncmp(t->name, kind, n) && t->name[n] == '/';
}

/* Root mean square over all tensors of a kind. */
static int typical(struct dt_ckpt *c, const char *kind, float *buf, double *ret, struct dt_err *err)
{
	double sum = 0, count = 0, s, d;
	int rc = 0;

	for (int i = 0; i < dt_ckpt_ntensors(c) && rc == 0; i++) {
		struct dt_ckpt_tensor t;

		dt_ckpt_tensor(c, i, &t);
		if (!of_kind(&t, kind))
			continue;
		rc = read_tensor(c, t.name, numel(&t), buf, err);
		if (rc == 0)
			squares(buf, NULL, numel(&t), &s, &d);
		sum += rc == 0 ? s : 0;
		count += (double)numel(&t);
	}
	*ret = count > 0 ? sqrt(sum / count) : 0;
	return rc;
}

static int compare_kind(struct dt_ckpt *a, struct dt_ckpt *b, const char *kind, float *x, float *y,
			double least, double bound, double *worst, char worst_name[80], char first[80],
			struct dt_err *err)
{
	double rms, s, d;
	int rc = typical(a, kind, x, &rms, err);

	*worst = 0;
	for (int i = 0; i < dt_ckpt_ntensors(a) && rc == 0; i++) {
		struct dt_ckpt_tensor t;
		int64_t n;
		double e;

		dt_ckpt_tensor(a, i, &t);
		if (!of_kind(&t, kind))
			continue;
		n = numel(&t);
		rc = read_tensor(a, t.name, n, x, err);
		if (rc == 0)
			rc = read_tensor(b, t.name, n, y, err);
		if (rc < 0)
			break;
		squares(x, y, n, &s, &d);
		e = sqrt(d) / fmax(sqrt(s), least * rms * sqrt((double)n));
		if (!(e <= *worst)) {
			*worst = e;
			snprintf(worst_name, 80, "%s", t.name);
		}
		if (!(e <= bound) && !first[0])
			snprintf(first, 80, "%s", t.name);
	}
	return rc;
}

static int compare_tensors(const struct dt_verify_opts *o, const char *dir, const char *la, const char *lb,
			   struct dt_verify_report *r, struct dt_err *err)
{
	char path[PATH_MAX];
	struct dt_ckpt *a = NULL, *b = NULL;
	uint64_t most = 0;
	float *x = NULL, *y = NULL;
	int rc;

	snprintf(path, sizeof(path), "%s/%s", dir, la);
	rc = dt_ckpt_open(path, &a, err);
	snprintf(path, sizeof(path), "%s/%s", dir, lb);
	if (rc == 0)
		rc = dt_ckpt_open(path, &b, err);
	for (int i = 0; rc == 0 && i < dt_ckpt_ntensors(a); i++) {
		struct dt_ckpt_tensor t;

		dt_ckpt_tensor(a, i, &t);
		most = numel(&t) > (int64_t)most ? (uint64_t)numel(&t) : most;
	}
	if (rc == 0) {
		x = malloc(most * sizeof(*x));
		y = malloc(most * sizeof(*y));
		if (!x || !y)
			rc = dt_err_sys(err, -ENOMEM, "cannot compare tensors");
	}
	if (rc == 0)
		rc = compare_kind(a, b, "grad", x, y, 1e-3, o->tensor_bound, &r->grad, r->grad_name, r->first,
				  err);
	if (rc == 0)
		rc = compare_kind(a, b, "model", x, y, 1, o->tensor_bound, &r->model, r->model_name, r->first,
				  err);
	free(x);
	free(y);
	if (a)
		dt_ckpt_close(a);
	if (b)
		dt_ckpt_close(b);
	return rc;
}

static bool agrees(const struct dt_verify_opts *o, const struct dt_verify_report *r)
{
	return r->loss <= o->loss_bound && r->norm <= o->tensor_bound && r->grad <= o->tensor_bound &&
	       r->model <= o->tensor_bound;
}

static int compare(const struct dt_verify_opts *o, const char *dir, const struct dt_verify_run *first,
		   const struct dt_verify_run *run, bool *same, struct dt_err *err)
{
	struct dt_verify_report r = {0};
	int rc = compare_series(dir, first->name, run->name, "loss", &r.loss, err);

	if (rc == 0)
		rc = compare_series(dir, first->name, run->name, "grad_norm", &r.norm, err);
	if (rc == 0)
		rc = compare_tensors(o, dir, first->name, run->name, &r, err);
	if (rc < 0)
		return rc;
	*same = agrees(o, &r);
	o->each(o->arg, run->layout, &r, *same);
	return 0;
}

int dt_train_verify(const struct dt_verify_opts *o, struct dt_err *err)
{
	const char *tmp = getenv("TMPDIR");
	char dir[PATH_MAX], *list = strdup(o->layouts), *save = NULL;
	struct dt_verify_run r[MAX_LAYOUTS];
	struct dt_err ignored = {0};
	bool same = false, all = true;
	int n = 0, rc = 0;

	if (!list)
		return dt_err_sys(err, -ENOMEM, "cannot verify");
	for (char *s = strtok_r(list, ",", &save); s && n < MAX_LAYOUTS; s = strtok_r(NULL, ",", &save)) {
		r[n].layout = s;
		snprintf(r[n].name, sizeof(r[n].name), "%d-%s", n + 1, s);
		n++;
	}
	snprintf(dir, sizeof(dir), "%s/dt-verify-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (n < 2)
		rc = dt_err_set(err, -EINVAL, "--layouts wants two or more layouts, joined by commas");
	else if (!mkdtemp(dir))
		rc = dt_err_sys(err, -errno, "cannot make '%s'", dir);
	if (rc < 0) {
		free(list);
		return rc;
	}
	dt_train_verify_catch();
	for (int i = 0; i < n && rc == 0; i++) {
		rc = dt_train_verify_run(o, &r[i], dir, err);
		if (rc == 0 && i > 0) {
			char path[PATH_MAX];

			rc = compare(o, dir, &r[0], &r[i], &same, err);
			all = all && same;
			snprintf(path, sizeof(path), "%s/%s", dir, r[i].name);
			dt_remove_tree(path, &ignored);
		}
	}
	dt_remove_tree(dir, &ignored);
	free(list);
	return rc < 0 ? rc : !all;
}
/* SPDX-License-Identifier: Apache-2.0 */
