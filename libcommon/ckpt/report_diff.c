/* Prints a comparison of two sets of tensors, as a table or JSON. */
#include "ckpt/look.h"

#include "base/json.h"
#include "base/order.h"
#include "base/room.h"
#include "base/table.h"
#include "kernels/rope.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	struct dt_tensor_delta d;
	char *pattern; /* the name with # for each number */
	int order;
};

struct found {
	struct entry *v;
	int n, cap, differ, reordered, shifted;
	bool lost; /* out of memory */
	void (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
};

static void release(struct found *r)
{
	for (int i = 0; i < r->n; i++)
		free(r->v[i].pattern);
	free(r->v);
}

/* Length of the number at s if it is a whole part of the name; else 0. */
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

static void on_delta(void *arg, const struct dt_tensor_delta *d)
{
	struct found *r = arg;

	if (!DT_ROOM(r->v, r->n, r->cap, 64)) {
		r->lost = true;
		return;
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

/* The distinct numbers at place k of the names of v[0..n), ascending. */
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
		qsort(ret, (size_t)count, sizeof(*ret), dt_order_i64);
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

static void put_table(const struct found *r, bool all, FILE *f)
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

static void put_text(const struct found *r, const struct dt_tensors *a, const struct dt_tensors *b, bool all,
		     FILE *f)
{
	static const char *const order[] = {"half", "adjacent"};

	if (r->differ) {
		put_table(r, all, f);
		fprintf(f, "%d of %d tensors differ\n", r->differ, r->n);
	} else {
		fprintf(f, "equal: %d tensors\n", r->n);
	}
	if (r->reordered)
		fprintf(f, "%d tensors of B were converted to the rotary order of A (A: %s, B: %s)\n",
			r->reordered, order[dt_tensors_config(a)->rope_pairing == DT_ROPE_ADJACENT],
			order[dt_tensors_config(b)->rope_pairing == DT_ROPE_ADJACENT]);
	if (r->shifted)
		fprintf(f, "%d norms of B were converted to the convention of A (B stores them %s by 1)\n",
			r->shifted, dt_tensors_config(b)->norm_plus_one ? "smaller" : "larger");
	if (r->lost)
		fprintf(f, "(some lines are missing: out of memory)\n");
}

static json_t *to_json(const struct found *r)
{
	json_t *list = json_array();

	for (int i = 0; i < r->n; i++) {
		const struct dt_tensor_delta *d = &r->v[i].d;

		json_array_append_new(list, json_pack("{s:s, s:b, s:s*, s:I, s:o, s:o}", "name", d->name,
						      "equal", !d->differs, "why", d->why, "elements_differ",
						      (json_int_t)d->n_differ, "max_abs",
						      dt_json_number(d->max_abs), "max_rel",
						      dt_json_number(d->max_rel)));
	}
	return json_pack("{s:i, s:b, s:i, s:i, s:i, s:i, s:o}", "schema", 1, "equal", r->differ == 0,
			 "tensors_total", r->n, "tensors_differ", r->differ, "tensors_rotary_reordered",
			 r->reordered, "tensors_norm_shifted", r->shifted, "tensors", list);
}

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
	struct found *r = arg;

	r->progress(r->arg, done, total);
}

int dt_report_diff(struct dt_tensors *a, struct dt_tensors *b, const struct dt_report_diff *o, FILE *f,
		   json_t **ret_json, struct dt_err *err)
{
	struct found r = {.progress = o->progress, .arg = o->arg};
	const struct dt_diff diff = {.tolerance = o->tolerance,
				     .weights_only = o->weights_only,
				     .workers = o->workers,
				     .report = on_delta,
				     .progress = o->progress ? on_progress : NULL,
				     .arg = &r};
	int n = dt_tensors_diff(a, b, &diff, err);

	if (n >= 0 && ret_json)
		*ret_json = to_json(&r);
	else if (n >= 0)
		put_text(&r, a, b, o->all, f);
	release(&r);
	return n;
}
/* SPDX-License-Identifier: Apache-2.0 */
