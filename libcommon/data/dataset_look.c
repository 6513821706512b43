#include "data/dataset_look.h"

#include "base/json.h"
#include "base/table.h"
#include "data/tokenizer.h"

#include <errno.h>
#include <stdlib.h>

static json_t *facts_json(const struct dt_dataset *d, const char *path)
{
	struct dt_dataset_info i;
	json_t *o;

	dt_dataset_info(d, &i);
	o = json_pack("{s:i, s:s, s:I, s:I, s:s, s:i, s:i, s:i, s:s, s:I, s:s}", "schema", 1, "path", path,
		      "tokens", (json_int_t)i.tokens, "documents", (json_int_t)i.documents, "pack",
		      i.apart ? "documents" : "stream", "vocab", i.vocab, "token_bytes", i.token_bytes,
		      "shards", i.shards, "tokenizer_hash", i.tokenizer_hash, "tokenizer_bytes",
		      (json_int_t)i.tokenizer_bytes, "source", i.source);
	if (i.marked)
		json_object_set_new(o, "targets", json_integer(dt_dataset_targets(d, 0, i.tokens)));
	if (i.row)
		json_object_set_new(o, "row", json_integer(i.row));
	if (i.preferences)
		json_object_set_new(o, "preferences", json_true());
	if (i.labelled)
		json_object_set_new(o, "labelled", json_true());
	if (i.labels && !i.classes)
		json_object_set_new(o, "scores", json_true());
	if (i.classes)
		json_object_set_new(o, "classes", json_array());
	for (int k = 0; k < i.classes; k++)
		json_array_append_new(json_object_get(o, "classes"), json_string(i.class_name[k]));
	return o;
}

static struct dt_table *facts_table(const struct dt_dataset *d)
{
	struct dt_table *t = dt_table_new("property|value");
	struct dt_dataset_info i;

	dt_dataset_info(d, &i);
	dt_table_cell(t, "tokens");
	dt_table_cell(t, "%lld, %d bytes each", (long long)i.tokens, i.token_bytes);
	dt_table_cell(t, "documents");
	dt_table_cell(t, "%lld%s", (long long)i.documents, i.apart ? ", kept apart" : "");
	if (i.marked) {
		dt_table_cell(t, "targets");
		dt_table_cell(t, "%lld", (long long)dt_dataset_targets(d, 0, i.tokens));
	}
	if (i.row) {
		dt_table_cell(t, "packed into");
		dt_table_cell(t, "samples of %lld tokens%s", (long long)i.row,
			      i.labelled      ? ", labelled answers"
			      : i.preferences ? ", preferences"
					      : "");
	}
	if (i.labels) {
		dt_table_cell(t, "labels");
		dt_table_cell(t, i.classes ? "%d classes" : "scores", i.classes);
	}
	dt_table_cell(t, "vocabulary");
	dt_table_cell(t, "%d", i.vocab);
	dt_table_cell(t, "shards");
	dt_table_cell(t, "%d", i.shards);
	dt_table_cell(t, "tokenizer");
	dt_table_cell(t, "%s", i.tokenizer_hash);
	dt_table_cell(t, "source");
	dt_table_cell(t, "%s", i.source);
	return t;
}

int dt_dataset_print_info(struct dt_dataset *d, const char *path, const struct dt_data_look *how, FILE *f,
			  struct dt_err *err)
{
	struct dt_table *t;
	int rc = how->verify ? dt_dataset_verify(d, err) : 0;

	if (rc < 0)
		return rc;
	if (how->json) {
		json_t *o = facts_json(d, path);

		rc = dt_json_write_line(f, o, err);
		json_decref(o);
		return rc;
	}
	t = facts_table(d);
	if (how->verify) {
		dt_table_cell(t, "checksums");
		dt_table_cell(t, "match");
	}
	dt_table_print(t, f);
	dt_table_free(t);
	return 0;
}

static int open_tokenizer(const struct dt_dataset *d, const char *path, struct dt_tokenizer **ret,
			  struct dt_err *err)
{
	struct dt_dataset_info i;
	int rc;

	dt_dataset_info(d, &i);
	rc = dt_tokenizer_from_text(i.tokenizer_text, i.tokenizer_bytes, ret, err);
	return rc < 0 ? dt_err_prefix(err, "cannot use the tokenizer of '%s'", path) : 0;
}

static int written(FILE *f, struct dt_err *err)
{
	return ferror(f) ? dt_err_sys(err, errno ? -errno : -EIO, "cannot write tokens") : 0;
}

static int print_text(const struct dt_tokenizer *t, const int32_t *ids, size_t n, bool special, FILE *f,
		      struct dt_err *err)
{
	char *s;
	size_t len;
	int rc = dt_tokenizer_decode(t, ids, n, special, &s, &len, err);

	if (rc < 0)
		return rc;
	errno = 0;
	fwrite(s, 1, len, f);
	free(s);
	return written(f, err);
}

/* Prints ids with `between` between them and a newline at the end. */
static int print_ids(const int32_t *ids, size_t n, const char *between, FILE *f, struct dt_err *err)
{
	errno = 0;
	for (size_t i = 0; i < n; i++)
		fprintf(f, "%s%d", i ? between : "", ids[i]);
	fputc('\n', f);
	return written(f, err);
}

/* label: of a labelled text; NULL: none. */
static int print_json(const struct dt_tokenizer *t, int64_t number, const int32_t *ids, size_t n,
		      bool special, json_t *label, FILE *f, struct dt_err *err)
{
	json_t *o, *list;
	char *s;
	size_t len;
	int rc = dt_tokenizer_decode(t, ids, n, special, &s, &len, err);

	if (rc < 0)
		return rc;
	list = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, json_integer(ids[i]));
	o = json_pack("{s:i, s:I, s:o}", "schema", 1, "sample", (json_int_t)number, "ids", list);
	json_object_set_new(o, "text", json_stringn(s, len));
	if (label)
		json_object_set(o, "label", label);
	free(s);
	rc = dt_json_write_line(f, o, err);
	json_decref(o);
	return rc;
}

/* label: as of print_json. */
static int print_sample(const struct dt_tokenizer *t, int64_t number, const int32_t *ids, size_t n,
			const json_t *label, const struct dt_data_look *how, FILE *f, struct dt_err *err)
{
	int rc;

	if (how->json)
		return print_json(t, number, ids, n, how->special, (json_t *)label, f, err);
	if (how->ids)
		return print_ids(ids, n, " ", f, err);
	fprintf(f, "--- sample %lld", (long long)number);
	if (json_is_string(label))
		fprintf(f, ": %s", json_string_value(label));
	else if (label)
		fprintf(f, ": %g", json_number_value(label));
	fputc('\n', f);
	rc = print_text(t, ids, n, how->special, f, err);
	fputc('\n', f);
	return rc;
}

static int print_samples(struct dt_sampler *s, const struct dt_tokenizer *t, const struct dt_data_look *how,
			 FILE *f, struct dt_err *err)
{
	int32_t *ids = malloc((size_t)(s->seq + 1) * sizeof(*ids));
	int rc = ids ? 0 : dt_err_sys(err, -ENOMEM, "cannot sample");

	if (rc == 0 && how->first >= s->samples)
		rc = dt_err_set(err, -ERANGE,
				"--first is too large: an epoch has %lld samples of %lld tokens",
				(long long)s->samples, (long long)s->seq);
	for (int64_t n = how->first;
	     rc == 0 && n < s->samples && (how->count < 0 || n - how->first < how->count); n++) {
		rc = dt_sampler_get(s, how->epoch * s->samples + n, ids, err);
		if (rc == 0)
			rc = print_sample(t, n, ids, (size_t)s->seq, NULL, how, f, err);
	}
	free(ids);
	return rc;
}

/* Texts with labels, whole and in the order of training. */
static int print_labelled(struct dt_dataset *d, const struct dt_dataset_info *i, const struct dt_tokenizer *t,
			  const struct dt_data_look *how, FILE *f, struct dt_err *err)
{
	int rc = 0;

	if (how->first >= i->documents)
		return dt_err_set(err, -ERANGE, "--first is too large: the dataset has %lld texts",
				  (long long)i->documents);
	for (int64_t n = how->first;
	     rc == 0 && n < i->documents && (how->count < 0 || n - how->first < how->count); n++) {
		const struct dt_labelled_document o =
			dt_dataset_labelled(d, dt_sample_at((uint64_t)how->seed, !how->in_order,
							    how->epoch * i->documents + n, i->documents));
		int32_t *ids = malloc((size_t)o.n * sizeof(*ids));
		json_t *label =
			i->classes ? json_string(i->class_name[(int)o.label]) : json_real((double)o.label);

		rc = ids ? dt_dataset_read(d, o.at, o.n, ids, err)
			 : dt_err_sys(err, -ENOMEM, "cannot sample");
		if (rc == 0)
			rc = print_sample(t, n, ids, (size_t)o.n, label, how, f, err);
		json_decref(label);
		free(ids);
	}
	return rc;
}

int dt_dataset_print_samples(struct dt_dataset *d, const char *path, const struct dt_data_look *how, FILE *f,
			     struct dt_err *err)
{
	struct dt_dataset_info i;
	struct dt_tokenizer *t;
	struct dt_sampler s;
	int rc = open_tokenizer(d, path, &t, err);

	if (rc < 0)
		return rc;
	dt_dataset_info(d, &i);
	if (i.labels)
		rc = print_labelled(d, &i, t, how, f, err);
	else
		rc = dt_sampler_init(&s, d,
				     how->seq ? how->seq
				     : i.row  ? i.row
					      : 64,
				     (uint64_t)how->seed, !how->in_order, err);
	if (rc == 0 && !i.labels)
		rc = print_samples(&s, t, how, f, err);
	dt_tokenizer_close(t);
	return rc;
}

int dt_dataset_print_tokens(struct dt_dataset *d, const char *path, const struct dt_data_look *how, FILE *f,
			    struct dt_err *err)
{
	struct dt_dataset_info i;
	struct dt_tokenizer *t;
	int32_t ids[16384];
	int64_t end;
	int rc;

	dt_dataset_info(d, &i);
	if (how->first > i.tokens)
		return dt_err_set(err, -ERANGE, "--first is too large: the dataset has %lld tokens",
				  (long long)i.tokens);
	end = how->count >= 0 && how->count < i.tokens - how->first ? how->first + how->count : i.tokens;
	rc = open_tokenizer(d, path, &t, err);
	if (rc < 0)
		return rc;
	for (int64_t at = how->first; at < end && rc == 0;) {
		int64_t n = end - at < 16384 ? end - at : 16384;

		rc = dt_dataset_read(d, at, n, ids, err);
		if (rc == 0)
			rc = how->ids ? print_ids(ids, (size_t)n, "\n", f, err)
				      : print_text(t, ids, (size_t)n, how->special, f, err);
		at += n;
	}
	dt_tokenizer_close(t);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
