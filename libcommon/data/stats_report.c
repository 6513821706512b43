/* dt-dataset stats for token sets: table, JSON, plot. */
#include "base/json.h"
#include "base/table.h"
#include "data/dataset_look.h"
#include "data/dataset_stats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BINS_MAX = 48, TOP = 10 };

static const struct {
	const char *key, *name;
	double share;
} quantiles[] = {{"min", "shortest", 0},	 {"p10", "10% are below", 0.10}, {"p50", "median", 0.50},
		 {"p90", "90% are below", 0.90}, {"p99", "99% are below", 0.99}, {"max", "longest", 1}};
#define NQUANTILES (sizeof(quantiles) / sizeof(quantiles[0]))

/*
 * Histogram of document lengths: bins of 2^i to 2^(i+1) - 1 tokens, from the first to the last non-empty one.
 */
struct bins {
	struct dt_bar bar[BINS_MAX];
	char name[BINS_MAX][48];
	int n;
};

static void fill_bins(const struct dt_dataset_stats *s, struct bins *b)
{
	int64_t at = 0;

	memset(b, 0, sizeof(*b));
	for (int i = 0; i < BINS_MAX && at < s->documents; i++) {
		const int64_t lo = (int64_t)1 << i, end = lo * 2, before = at;

		while (at < s->documents && s->length[at] < end)
			at++;
		if (at == 0)
			continue;
		snprintf(b->name[b->n], sizeof(b->name[0]), i ? "%lld to %lld" : "%lld", (long long)lo,
			 (long long)end - 1);
		b->bar[b->n] = (struct dt_bar){.name = b->name[b->n], .value = (double)(at - before)};
		b->n++;
	}
}

static int32_t ids_used(const struct dt_dataset_stats *s)
{
	int32_t n = 0;

	for (int32_t id = 0; id < s->vocab; id++)
		n += s->used[id] > 0;
	return n;
}

/* The most frequent ids, in order of decreasing count. */
static int top_ids(const struct dt_dataset_stats *s, int32_t *ret)
{
	int n = 0;

	for (int32_t id = 0; id < s->vocab; id++) {
		int at = n;

		if (!s->used[id])
			continue;
		for (; at > 0 && s->used[ret[at - 1]] < s->used[id]; at--)
			if (at < TOP)
				ret[at] = ret[at - 1];
		if (at < TOP)
			ret[at] = id;
		n += n < TOP;
	}
	return n;
}

static json_t *lengths_json(const struct dt_dataset_stats *s, const struct bins *b)
{
	json_t *o = json_object(), *list = json_array();

	json_object_set_new(o, "mean", json_real((double)s->tokens / (double)s->documents));
	for (size_t i = 0; i < NQUANTILES; i++)
		json_object_set_new(o, quantiles[i].key,
				    json_integer(dt_dataset_stats_quantile(s, quantiles[i].share)));
	for (int i = 0; i < b->n; i++)
		json_array_append_new(list, json_pack("{s:s, s:I}", "tokens", b->name[i], "documents",
						      (json_int_t)b->bar[i].value));
	json_object_set_new(o, "histogram", list);
	return o;
}

static json_t *top_json(const struct dt_dataset_stats *s, const struct dt_tokenizer *t)
{
	json_t *list = json_array();
	int32_t top[TOP];
	const int n = top_ids(s, top);

	for (int i = 0; i < n; i++) {
		size_t len = 0;
		const char *piece = dt_tokenizer_piece(t, top[i], true, &len);
		json_t *o = json_pack("{s:i, s:I}", "id", top[i], "count", (json_int_t)s->used[top[i]]);

		json_object_set_new(o, "text", piece ? json_stringn(piece, len) : NULL);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *stats_json(const struct dt_dataset_stats *s, const struct dt_tokenizer *t, const char *path)
{
	json_t *o = json_pack("{s:i, s:s, s:I, s:I, s:i, s:i, s:f, s:o}", "schema", 1, "path", path, "tokens",
			      (json_int_t)s->tokens, "text_bytes", (json_int_t)s->bytes, "vocab", s->vocab,
			      "ids_used", ids_used(s), "entropy_bits", s->entropy, "top", top_json(s, t));
	struct bins b;

	if (s->documents < 0)
		return o;
	json_object_set_new(o, "documents", json_integer(s->documents));
	json_object_set_new(o, "exact_duplicates", json_integer(s->exact));
	if (s->near >= 0)
		json_object_set_new(o, "near_duplicates", json_integer(s->near));
	fill_bins(s, &b);
	if (s->documents)
		json_object_set_new(o, "length", lengths_json(s, &b));
	return o;
}

static double percent(int64_t part, int64_t of)
{
	return of ? 100.0 * (double)part / (double)of : 0;
}

static void documents_rows(struct dt_table *t, const struct dt_dataset_stats *s)
{
	dt_table_cell(t, "documents");
	if (s->documents < 0) {
		dt_table_cell(t, "unknown: the dataset does not record where they end");
		return;
	}
	dt_table_cell(t, "%lld", (long long)s->documents);
	dt_table_cell(t, "exact duplicates");
	dt_table_cell(t, "%lld (%.2f%%)", (long long)s->exact, percent(s->exact, s->documents));
	if (s->near >= 0) {
		dt_table_cell(t, "near duplicates");
		dt_table_cell(t, "%lld (%.2f%%)", (long long)s->near, percent(s->near, s->documents));
	}
	for (size_t i = 0; i < NQUANTILES && s->documents; i++) {
		dt_table_cell(t, "%s", quantiles[i].name);
		dt_table_cell(t, "%lld tokens", (long long)dt_dataset_stats_quantile(s, quantiles[i].share));
	}
}

static void print_facts(const struct dt_dataset_stats *s, FILE *f)
{
	struct dt_table *t = dt_table_new("property|value");

	dt_table_cell(t, "tokens");
	dt_table_cell(t, "%lld", (long long)s->tokens);
	dt_table_cell(t, "text");
	dt_table_cell(t, "%lld bytes, %.3f per token", (long long)s->bytes,
		      s->tokens ? (double)s->bytes / (double)s->tokens : 0);
	dt_table_cell(t, "ids used");
	dt_table_cell(t, "%d of %d (%.1f%%)", ids_used(s), s->vocab, percent(ids_used(s), s->vocab));
	dt_table_cell(t, "entropy");
	dt_table_cell(t, "%.3f bits per token", s->entropy);
	documents_rows(t, s);
	dt_table_print(t, f);
	dt_table_free(t);
}

/* Prints an id's text in quotes, with escapes. */
static void piece_cell(struct dt_table *table, const struct dt_tokenizer *t, int32_t id)
{
	size_t n = 0;
	const char *piece = dt_tokenizer_piece(t, id, true, &n);
	json_t *s = piece ? json_stringn(piece, n) : NULL;
	char *text = s ? json_dumps(s, JSON_ENCODE_ANY) : NULL;

	dt_table_cell(table, "%s", text ? text : "(not valid UTF-8)");
	free(text);
	json_decref(s);
}

static void print_top(const struct dt_dataset_stats *s, const struct dt_tokenizer *t, FILE *f)
{
	struct dt_table *table = dt_table_new(">id|text|>count|>share");
	int32_t top[TOP];
	const int n = top_ids(s, top);

	for (int i = 0; i < n; i++) {
		dt_table_cell(table, "%d", top[i]);
		piece_cell(table, t, top[i]);
		dt_table_cell(table, "%lld", (long long)s->used[top[i]]);
		dt_table_cell(table, "%.2f%%", percent(s->used[top[i]], s->tokens));
	}
	fputc('\n', f);
	dt_table_print(table, f);
	dt_table_free(table);
}

static int report(const struct dt_dataset_stats *s, const struct dt_tokenizer *t, const char *path,
		  const struct dt_data_look *how, FILE *f, struct dt_err *err)
{
	struct bins b;
	struct dt_bars bars = {.title = "documents by length in tokens", .bar = b.bar};
	int rc;

	fill_bins(s, &b);
	bars.n = b.n;
	if (how->svg && b.n == 0)
		return dt_err_set(err, -EINVAL,
				  "'%s' does not record where documents end: there are no lengths to draw",
				  path);
	if (how->svg && (rc = dt_data_draw(how->svg, &bars, err)) < 0)
		return rc;
	if (how->json) {
		json_t *o = stats_json(s, t, path);

		rc = dt_json_write_line(f, o, err);
		json_decref(o);
		return rc;
	}
	print_facts(s, f);
	if (b.n)
		dt_data_print_bars(&bars, f);
	print_top(s, t, f);
	return 0;
}

int dt_dataset_print_stats(struct dt_dataset *d, const char *path, const struct dt_data_look *how, FILE *f,
			   struct dt_err *err)
{
	struct dt_dataset_info i;
	struct dt_dataset_stats s;
	struct dt_tokenizer *t;
	int rc;

	dt_dataset_info(d, &i);
	rc = dt_tokenizer_from_text(i.tokenizer_text, i.tokenizer_bytes, &t, err);
	if (rc < 0)
		return dt_err_prefix(err, "cannot use the tokenizer of '%s'", path);
	rc = dt_dataset_stats(d, t, how->near, &s, err);
	if (rc == 0) {
		rc = report(&s, t, path, how, f, err);
		dt_dataset_stats_release(&s);
	}
	dt_tokenizer_close(t);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
