/* Results of a sweep: sweep.jsonl, and the table. */
#include "base/jsonl.h"
#include "base/table.h"
#include "base/tmpfile.h"
#include "base/units.h"
#include "supervise/sweep_priv.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAST_MAX = 1000 };

/* What identifies a sweep: command, axes, rungs, and the metric. */
static json_t *describe(const struct sweep *s)
{
	json_t *command = json_array(), *axes = json_array();

	for (int i = 0; s->o->argv[i]; i++)
		json_array_append_new(command, json_string(s->o->argv[i]));
	for (int k = 0; k < s->o->grid.n; k++)
		json_array_append_new(axes, json_string(s->o->grid.v[k]));
	for (int k = 0; k < s->o->random.n; k++)
		json_array_append_new(axes, json_string(s->o->random.v[k]));
	return json_pack("{s:i, s:o, s:o, s:I, s:I, s:I, s:I, s:s, s:I, s:b}", "schema", 1, "command",
			 command, "axes", axes, "samples", (json_int_t)(s->o->random.n ? s->o->samples : 1),
			 "seed", (json_int_t)s->o->seed, "halve", (json_int_t)s->o->halve, "first",
			 (json_int_t)(s->o->halve ? s->o->first : 0), "metric", s->o->metric, "last",
			 (json_int_t)s->o->last, "largest", (int)s->o->largest);
}

/* Takes a result of an earlier call. */
static void take_line(struct sweep *s, const json_t *line)
{
	const json_int_t n = json_integer_value(json_object_get(line, "trial"));
	const json_t *score = json_object_get(line, "value");
	struct sweep_trial *t = n >= 1 && n <= s->ntrials ? &s->trial[n - 1] : NULL;

	if (!t || json_integer_value(json_object_get(line, "status"))) /* failed trials are retried */
		return;
	t->rung = (int)json_integer_value(json_object_get(line, "rung"));
	t->steps = json_integer_value(json_object_get(line, "steps"));
	t->seconds = json_number_value(json_object_get(line, "seconds"));
	t->score = json_is_number(score) ? json_number_value(score) : NAN;
	t->state = isnan(t->score) ? SWEEP_FAILED : SWEEP_ENDED;
}

static int take_over(struct sweep *s, const char *path, const json_t *own, struct dt_err *err)
{
	struct dt_jsonl j = {.fd = -1};
	json_t *line;
	bool first = true;
	int rc = dt_jsonl_open(&j, path, err), more = 0;

	j.skip_bad = true; /* a line cut off by a kill */
	while (rc == 0 && (more = dt_jsonl_next(&j, &line, err)) > 0) {
		if (first && !json_equal(line, own))
			rc = dt_err_set(err, -EEXIST,
					"'%s' belongs to another sweep: give this one another --dir", path);
		else if (!first)
			take_line(s, line);
		first = false;
		json_decref(line);
	}
	dt_jsonl_close(&j);
	return rc < 0 ? rc : more < 0 ? more : first ? 0 : 1;
}

int sweep_open(struct sweep *s, struct dt_err *err)
{
	json_t *own = describe(s);
	char path[PATH_MAX];
	int rc;

	snprintf(path, sizeof(path), "%s/sweep.jsonl", s->o->dir);
	rc = take_over(s, path, own, err);
	if (rc == -ENOENT)
		rc = 0;
	if (rc >= 0) {
		const bool fresh = rc == 0;

		rc = dt_out_stream(path, true, &s->file, err);
		if (rc == 0 && fseeko(s->file, 0, SEEK_END) == 0 && ftello(s->file) > 0)
			fputc('\n', s->file); /* after a line that a kill may have cut off */
		if (rc == 0 && fresh)
			rc = dt_json_write_line(s->file, own, err);
	}
	json_decref(own);
	return rc;
}

/*
 * *ret: the mean of the metric's last values; NAN: none. *ret_step: the newest step; unchanged if there is
 * none.
 */
static int read_score(const struct sweep *s, const struct sweep_trial *t, double *ret, int64_t *ret_step,
		      struct dt_err *err)
{
	const int last = (int)(s->o->last < LAST_MAX ? s->o->last : LAST_MAX);
	struct dt_jsonl j;
	double v[LAST_MAX], sum = 0;
	char path[PATH_MAX];
	json_t *line;
	int64_t n = 0;
	int rc;

	*ret = NAN;
	snprintf(path, sizeof(path), "%s/%03d/metrics.jsonl", s->o->dir, t->number);
	rc = dt_jsonl_open(&j, path, err);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	j.skip_bad = true;
	while ((rc = dt_jsonl_next(&j, &line, err)) > 0) {
		const json_t *x = json_object_get(line, s->o->metric), *step = json_object_get(line, "step");

		if (json_is_integer(step))
			*ret_step = json_integer_value(step);
		if (json_is_number(x))
			v[n++ % last] = json_number_value(x);
		json_decref(line);
	}
	dt_jsonl_close(&j);
	n = n < last ? n : last;
	for (int64_t i = 0; i < n; i++)
		sum += v[i];
	*ret = n && isfinite(sum) ? sum / (double)n : NAN;
	return rc;
}

int sweep_note(struct sweep *s, struct sweep_trial *t, int status, struct dt_err *err)
{
	json_t *line, *values = json_object();
	int rc;

	t->steps = 0;
	rc = read_score(s, t, &t->score, &t->steps, err);
	if (status != 0)
		t->score = NAN;
	t->state = isnan(t->score) ? SWEEP_FAILED : SWEEP_ENDED;
	for (int i = 0; i < s->naxes; i++)
		json_object_set_new(values, s->axis[i].name, json_string(t->value[i]));
	line = json_pack("{s:i, s:i, s:I, s:o, s:f, s:i}", "trial", t->number, "rung", t->rung, "steps",
			 (json_int_t)t->steps, "options", values, "seconds", t->seconds, "status", status);
	json_object_set_new(line, "value", isnan(t->score) ? json_null() : json_real(t->score));
	if (rc >= 0)
		rc = dt_json_write_line(s->file, line, err);
	json_decref(line);
	return rc < 0 ? rc : 0;
}

static const struct sweep *sorted; /* the sweep being sorted; only one thread prints */

/* Sorts by rungs done, then by score. */
static int compare(const void *a, const void *b)
{
	const struct sweep_trial *x = *(const struct sweep_trial *const *)a,
				 *y = *(const struct sweep_trial *const *)b;

	if (isnan(x->score) == isnan(y->score) && x->rung != y->rung)
		return y->rung - x->rung;
	if (sweep_better(sorted, x, y) != sweep_better(sorted, y, x))
		return sweep_better(sorted, x, y) ? -1 : 1;
	return x->number - y->number;
}

static void print_row(const struct sweep *s, const struct sweep_trial *t, struct dt_table *table)
{
	static const char *const states[] = {"waits", "interrupted", "ended", "failed"};
	const bool part = t->state == SWEEP_RUNS; /* of a rung */
	double score = t->score;
	int64_t steps = t->steps;
	char took[32];

	if (part)
		read_score(s, t, &score, &steps, NULL);
	dt_table_cell(table, "%03d", t->number);
	for (int i = 0; i < s->naxes; i++)
		dt_table_cell(table, "%s", t->value[i]);
	dt_table_cell(table, "%lld", (long long)steps);
	if (isnan(score))
		dt_table_cell(table, "%s", states[t->state]);
	else
		dt_table_cell(table, part ? "%.6g so far" : "%.6g", score);
	dt_table_cell(table, "%s", dt_format_duration(t->seconds, took, sizeof(took)));
}

void sweep_print(const struct sweep *s, FILE *f)
{
	const struct sweep_trial **by = calloc((size_t)s->ntrials, sizeof(const struct sweep_trial *));
	char columns[1024];
	struct dt_table *table;
	size_t n = (size_t)snprintf(columns, sizeof(columns), "trial");

	for (int i = 0; i < s->naxes && n < sizeof(columns); i++)
		n += (size_t)snprintf(columns + n, sizeof(columns) - n, "|>%s", s->axis[i].name);
	if (n < sizeof(columns))
		snprintf(columns + n, sizeof(columns) - n, "|>steps|>%s|>time", s->o->metric);
	table = dt_table_new(columns);
	for (int i = 0; by && i < s->ntrials; i++)
		by[i] = &s->trial[i];
	sorted = s;
	if (by)
		qsort(by, (size_t)s->ntrials, sizeof(const struct sweep_trial *), compare);
	for (int i = 0; by && i < s->ntrials; i++)
		print_row(s, by[i], table);
	dt_table_print(table, f);
	dt_table_free(table);
	free(by);
}
/* SPDX-License-Identifier: Apache-2.0 */
