/* Answers to the page's requests, as JSON. */
#include "board/board.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void number(FILE *f, double v, int digits)
{
	if (isfinite(v))
		fprintf(f, "%.*g", digits, v);
	else
		fputs("null", f);
}

static void text(FILE *f, const char *s)
{
	json_t *o = json_string(s);

	if (!o)
		fputs("\"?\"", f); /* invalid UTF-8 */
	else
		json_dumpf(o, f, JSON_COMPACT | JSON_ENCODE_ANY);
	json_decref(o);
}

static void value(FILE *f, const json_t *v)
{
	if (v)
		json_dumpf(v, f, JSON_COMPACT | JSON_ENCODE_ANY);
	else
		fputs("null", f);
}

/* Events of run i: its own and those of dt-run in the same folder. */
static void events(const struct dt_board *b, int i, FILE *f)
{
	json_t *all = json_array();

	if (b->run[i].events)
		json_array_extend(all, b->run[i].events);
	for (int k = 0; k < b->nfile; k++)
		if (!b->file[k].trace && b->file[k].folder == b->folder[i] && b->file[k].lines.events)
			json_array_extend(all, b->file[k].lines.events);
	while (json_array_size(all) > 200)
		json_array_remove(all, 0);
	value(f, all);
	json_decref(all);
}

void dt_board_put_runs(const struct dt_board *b, FILE *f)
{
	static const char *const newest[] = {"step",	   "loss",     "eval_loss",    "lr",
					     "grad_norm",  "mfu",      "tokens_per_s", "images_per_s",
					     "peak_bytes", "rss_bytes"};

	fprintf(f, "{\"version\":%llu,\"runs\":[", (unsigned long long)b->version);
	for (int i = 0; i < b->n; i++) {
		const struct dt_board_run *r = &b->run[i];
		const char *sep = "";

		fprintf(f, "%s{\"id\":%d,\"name\":", i ? "," : "", i);
		text(f, r->name);
		fprintf(f, ",\"run_id\":");
		text(f, r->run_id);
		fprintf(f, ",\"lines\":%zu,\"bad\":%zu,\"changed\":%.3f,\"newest\":{", r->rows, r->bad,
			r->changed);
		for (size_t k = 0; k < sizeof(newest) / sizeof(*newest); k++) {
			if (!dt_board_run_column(r, newest[k]))
				continue;
			fprintf(f, "%s\"%s\":", sep, newest[k]);
			number(f, dt_board_run_newest(r, newest[k]), 15);
			sep = ",";
		}
		fputs("},\"keys\":[", f);
		for (int k = 0; k < r->ncol; k++) {
			fputs(k ? "," : "", f);
			text(f, r->col[k].key);
		}
		fputs("],\"categories\":", f);
		value(f, r->categories);
		fputs(",\"memory_over_step\":", f);
		value(f, r->over);
		fputs(",\"answers\":", f);
		value(f, r->answers);
		fprintf(f, ",\"details\":%zu,\"events\":", json_array_size(r->details));
		events(b, i, f);
		fputs("}", f);
	}
	fputs("]}", f);
}

struct buckets { /* of the steps from .. to */
	double from;
	long double scale; /* of steps up to 1e308, whose differences are no double */
	int n;
	double *x, *sum, *least, *most; /* x: newest step of a bucket; the others: of one key */
	int *count;
	int *at; /* [rows] bucket of each line; -1: none */
};

static void release(struct buckets *k)
{
	free(k->x);
	free(k->sum);
	free(k->least);
	free(k->most);
	free(k->count);
	free(k->at);
}

static int bucket_of(const struct buckets *k, double step)
{
	long double at = ((long double)step - k->from) * k->scale;

	return at < k->n ? (int)at : k->n - 1;
}

/* Assigns each line to a bucket and finds each bucket's newest step: NAN if it has no line. */
static void find_buckets(const struct dt_board_run *r, const double *x, double to, struct buckets *k)
{
	for (int i = 0; i < k->n; i++)
		k->x[i] = NAN;
	for (size_t i = 0; i < r->rows; i++) {
		k->at[i] = x[i] >= k->from && x[i] <= to ? bucket_of(k, x[i]) : -1;
		if (k->at[i] >= 0)
			k->x[k->at[i]] = x[i];
	}
}

/* Writes a list of values of the non-empty buckets; null if not finite. */
static void put_list(const struct buckets *k, const double *v, int digits, FILE *f)
{
	const char *sep = "";

	fputs("[", f);
	for (int i = 0; i < k->n; i++) {
		if (isnan(k->x[i]))
			continue;
		fputs(sep, f);
		number(f, v[i], digits);
		sep = ",";
	}
	fputs("]", f);
}

/* Computes mean, minimum and maximum of a key in each bucket; NAN where no line has it. */
static void sum_up(const struct dt_board_run *r, const double *v, struct buckets *k)
{
	for (int i = 0; i < k->n; i++) {
		k->sum[i] = 0;
		k->count[i] = 0;
		k->least[i] = INFINITY;
		k->most[i] = -INFINITY;
	}
	for (size_t i = 0; i < r->rows; i++) {
		const int b = k->at[i];

		if (b < 0 || isnan(v[i]))
			continue;
		k->sum[b] += v[i];
		k->count[b]++;
		k->least[b] = v[i] < k->least[b] ? v[i] : k->least[b];
		k->most[b] = v[i] > k->most[b] ? v[i] : k->most[b];
	}
	for (int i = 0; i < k->n; i++)
		k->sum[i] = k->count[i] ? k->sum[i] / k->count[i] : NAN;
}

static bool asked(const char *keys, const char *key)
{
	size_t n = strlen(key);

	for (const char *p = keys; p; p = strchr(p, ','), p = p ? p + 1 : NULL)
		if (!strncmp(p, key, n) && (!p[n] || p[n] == ','))
			return true;
	return false;
}

enum { DIGITS = 6 }; /* enough for a picture */

/* Writes a list for each requested key: mean, minimum or maximum, as `which` points to. */
static void put_keys(const struct dt_board_run *r, const char *keys, double *const *which, struct buckets *k,
		     FILE *f)
{
	const char *sep = "";

	fputs("{", f);
	for (int c = 0; keys && c < r->ncol; c++) {
		if (!asked(keys, r->col[c].key))
			continue;
		sum_up(r, r->col[c].v, k);
		fputs(sep, f);
		text(f, r->col[c].key);
		fputs(":", f);
		put_list(k, *which, DIGITS, f);
		sep = ",";
	}
	fputs("}", f);
}

static void run_series(const struct dt_board_run *r, const double *x, const struct dt_board_ask *q,
		       struct buckets *k, FILE *f)
{
	double to = q->to;

	k->from = isnan(q->from) ? x[0] : q->from;
	for (size_t i = 0; isnan(q->to) && i < r->rows; i++)
		to = isnan(to) || x[i] > to ? x[i] : to;
	k->scale = to > k->from ? k->n / ((long double)to - k->from) : 0;
	find_buckets(r, x, to, k);
	fputs("\"x\":", f);
	put_list(k, k->x, 15, f);
	fputs(",\"series\":", f);
	put_keys(r, q->keys, &k->sum, k, f);
	fputs(",\"least\":", f);
	put_keys(r, q->spread, &k->least, k, f);
	fputs(",\"most\":", f);
	put_keys(r, q->spread, &k->most, k, f);
}

/* Allocates n buckets and enough rows for any run. */
static bool make_room(const struct dt_board *b, int n, struct buckets *k)
{
	size_t rows = 1;

	for (int i = 0; i < b->n; i++)
		rows = b->run[i].rows > rows ? b->run[i].rows : rows;
	*k = (struct buckets){.n = n,
			      .x = malloc((size_t)n * sizeof(*k->x)),
			      .sum = malloc((size_t)n * sizeof(*k->sum)),
			      .least = malloc((size_t)n * sizeof(*k->least)),
			      .most = malloc((size_t)n * sizeof(*k->most)),
			      .count = malloc((size_t)n * sizeof(*k->count)),
			      .at = malloc(rows * sizeof(*k->at))};
	return k->x && k->sum && k->least && k->most && k->count && k->at;
}

void dt_board_put_series(const struct dt_board *b, const struct dt_board_ask *q, FILE *f)
{
	int n = q->points < 2 ? 2 : q->points > DT_BOARD_POINTS ? DT_BOARD_POINTS : q->points;
	const char *comma = "";
	struct buckets k;
	bool room = make_room(b, n, &k);

	fprintf(f, "{\"version\":%llu,\"runs\":[", (unsigned long long)b->version);
	for (int i = 0; i < b->n && room; i++) {
		const double *x = dt_board_run_column(&b->run[i], "step");

		if (!x || !b->run[i].rows || (q->run >= 0 && q->run != i))
			continue;
		fprintf(f, "%s{\"id\":%d,", comma, i);
		run_series(&b->run[i], x, q, &k, f);
		fputs("}", f);
		comma = ",";
	}
	fputs("]}", f);
	release(&k);
}

/* A list of values by rank: seconds of a section, or the usage of ranks and their machines. */
static const json_t *of_ranks(const json_t *details, const char *name)
{
	const json_t *list = json_object_get(json_object_get(details, "ranks"), name);

	return list ? list : json_object_get(json_object_get(details, "usage"), name);
}

void dt_board_put_details(const struct dt_board *b, const struct dt_board_ask *q, FILE *f)
{
	const json_t *list = q->run >= 0 && q->run < b->n ? b->run[q->run].details : NULL;
	size_t n = json_array_size(list), points = q->points < 2 ? 2 : (size_t)q->points;
	const char *sep = "";

	fputs("{\"lines\":[", f);
	/* if there are too many lines, the newest of each interval */
	for (size_t k = 0; k < points && n; k++) {
		size_t i = n <= points ? k : (k + 1) * n / points - 1;
		const json_t *o = json_array_get(list, i), *d = json_object_get(o, "details");

		if (i >= n)
			break;
		fprintf(f, "%s{\"step\":", sep);
		value(f, json_object_get(o, "step"));
		fputs(",\"ranks\":", f);
		value(f, of_ranks(d, q->section ? q->section : "compute_s"));
		fputs(",\"step_s\":", f);
		value(f, json_object_get(d, "step_s"));
		fputs(",\"units\":", f);
		value(f, json_object_get(d, "units"));
		fputs("}", f);
		sep = ",";
	}
	fputs("]}", f);
}
/* SPDX-License-Identifier: Apache-2.0 */
