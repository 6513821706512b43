/* Tables of tensors for people. */
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

/* ---- diff ---- */

struct entry {
	struct dt_tensor_delta d;
	char *pattern; /* the name with # for each number */
	int order;
};

struct dt_diff_report {
	struct entry *v;
	int n, cap, differ, reordered, shifted;
	bool lost; /* out of memory */
};

struct dt_diff_report *dt_diff_report_new(void)
{
	return calloc(1, sizeof(struct dt_diff_report));
}

void dt_diff_report_free(struct dt_diff_report *r)
{
	for (int i = 0; r && i < r->n; i++)
		free(r->v[i].pattern);
	if (r)
		free(r->v);
	free(r);
}

/* Whether a number that is a whole part of a name begins at s. */
static size_t number_at(const char *name, const char *s)
{
	size_t n = strspn(s, "0123456789");

	return n && n < 10 && (s == name || s[-1] == '.' || s[-1] == '/') &&
			       (!s[n] || s[n] == '.' || s[n] == '/')
		       ? n
		       : 0;
}

static char *pattern_of(const char *name)
{
	char *p = strdup(name), *to = p;

	for (const char *s = name; p && *s;) {
		size_t n = number_at(name, s);

		*to++ = n ? '#' : *s;
		s += n ? n : 1;
	}
	if (p)
		*to = '\0';
	return p;
}

void dt_diff_report_add(struct dt_diff_report *r, const struct dt_tensor_delta *d)
{
	if (r->n == r->cap) {
		int cap = 2 * r->cap + 64;
		struct entry *grown = realloc(r->v, (size_t)cap * sizeof(*grown));

		if (!grown) {
			r->lost = true;
			return;
		}
		r->v = grown;
		r->cap = cap;
	}
	r->v[r->n] = (struct entry){*d, pattern_of(d->name), r->n};
	r->lost |= !r->v[r->n++].pattern;
	r->differ += d->differs;
	r->reordered += d->reordered;
	r->shifted += d->shifted;
}

static bool same_kind(const struct entry *a, const struct entry *b)
{
	return !strcmp(a->pattern, b->pattern) && a->d.differs == b->d.differs && !a->d.why == !b->d.why &&
	       (!a->d.why || !strcmp(a->d.why, b->d.why));
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* The numbers that stand at place k of the names of v[0..n), each once, rising. */
static int numbers_at_place(const struct entry *const *v, int n, int k, int64_t *ret)
{
	int count = 0, kept = 0;

	for (int i = 0; i < n; i++) {
		const char *name = v[i]->d.name;
		int seen = 0;

		for (const char *s = name; *s;) {
			size_t len = number_at(name, s);

			if (len && seen++ == k)
				ret[count++] = strtoll(s, NULL, 10);
			s += len ? len : 1;
		}
	}
	if (count)
		qsort(ret, (size_t)count, sizeof(*ret), by_value);
	for (int i = 0; i < count; i++)
		if (i == 0 || ret[i] != ret[i - 1])
			ret[kept++] = ret[i];
	return kept;
}

/* "model/layers.{0..11}.attn.q.weight x 12"; malloc'd, NULL: out of memory. */
static char *joint_name(const struct entry *const *v, int n)
{
	int64_t *numbers = malloc((size_t)n * sizeof(*numbers));
	char *text = NULL;
	size_t len;
	FILE *f = numbers ? open_memstream(&text, &len) : NULL;
	int place = 0;

	for (const char *s = v[0]->pattern; f && *s; s++) {
		int many;

		if (*s != '#') {
			fputc(*s, f);
			continue;
		}
		many = numbers_at_place(v, n, place++, numbers);
		if (many > 1)
			fputc('{', f);
		dt_print_numbers(f, numbers, many);
		if (many > 1)
			fputc('}', f);
	}
	if (f && n > 1)
		fprintf(f, " x %d", n);
	if (f)
		fclose(f);
	free(numbers);
	return text;
}

static void put_row(struct dt_table *tab, const struct entry *const *v, int n)
{
	char *name = n > 1 ? joint_name(v, n) : NULL;
	double max_abs = 0, max_rel = 0;
	uint64_t count = 0;

	for (int i = 0; i < n; i++) {
		count += v[i]->d.n_differ;
		max_abs = fmax(max_abs, v[i]->d.max_abs);
		max_rel = fmax(max_rel, v[i]->d.max_rel);
	}
	dt_table_cell(tab, "%s", name ? name : v[0]->d.name);
	free(name);
	dt_table_cell(tab, "%s", v[0]->d.why ? v[0]->d.why : "values");
	if (v[0]->d.why) {
		dt_table_end_row(tab);
		return;
	}
	dt_table_cell(tab, "%" PRIu64, count);
	dt_table_cell(tab, "%.3e", max_abs);
	dt_table_cell(tab, "%.3e", max_rel);
}

static void put_table(const struct dt_diff_report *r, bool all, FILE *f)
{
	struct dt_table *tab = dt_table_new("tensor|differs in|>elements|>max abs|>max rel");
	const struct entry **v = malloc(((size_t)r->n + 1) * sizeof(*v));
	bool *done = calloc((size_t)r->n + 1, sizeof(*done));

	for (int i = 0; v && done && i < r->n; i++) {
		int n = 0;

		if (done[i] || !r->v[i].d.differs)
			continue;
		for (int j = i; j < (all ? i + 1 : r->n); j++)
			if (!done[j] && same_kind(&r->v[i], &r->v[j])) {
				done[j] = true;
				v[n++] = &r->v[j];
			}
		put_row(tab, v, n);
	}
	dt_table_print(tab, f);
	dt_table_free(tab);
	free(v);
	free(done);
}

void dt_diff_report_print(const struct dt_diff_report *r, const struct dt_tensors *a,
			  const struct dt_tensors *b, bool all, FILE *f)
{
	static const char *const order[] = {"half", "adjacent"};

	if (r->differ) {
		put_table(r, all, f);
		fprintf(f, "%d of %d tensors differ\n", r->differ, r->n);
	} else {
		fprintf(f, "equal: %d tensors\n", r->n);
	}
	if (r->reordered)
		fprintf(f, "rows of %d tensors compared in A's rotary order: A has %s pairs, B %s\n",
			r->reordered, order[dt_tensors_config(a)->rope_pairing == DT_ROPE_ADJACENT],
			order[dt_tensors_config(b)->rope_pairing == DT_ROPE_ADJACENT]);
	if (r->shifted)
		fprintf(f, "%d norms compared as A has them: B's are stored %s by 1\n", r->shifted,
			dt_tensors_config(b)->norm_plus_one ? "smaller" : "larger");
	if (r->lost)
		fprintf(f, "(some lines are missing: out of memory)\n");
}

/* JSON has no infinity: a NaN against a number is null. */
static json_t *or_null(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

json_t *dt_diff_report_json(const struct dt_diff_report *r)
{
	json_t *list = json_array();

	for (int i = 0; i < r->n; i++) {
		const struct dt_tensor_delta *d = &r->v[i].d;

		json_array_append_new(list, json_pack("{s:s, s:b, s:s*, s:I, s:o, s:o}", "name", d->name,
						      "equal", !d->differs, "why", d->why, "elements_differ",
						      (json_int_t)d->n_differ, "max_abs", or_null(d->max_abs),
						      "max_rel", or_null(d->max_rel)));
	}
	return json_pack("{s:i, s:b, s:i, s:i, s:i, s:i, s:o}", "schema", 1, "equal", r->differ == 0,
			 "tensors_total", r->n, "tensors_differ", r->differ, "tensors_rotary_reordered",
			 r->reordered, "tensors_norm_shifted", r->shifted, "tensors", list);
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
