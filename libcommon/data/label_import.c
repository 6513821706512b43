#include "data/label_import.h"

#include "base/jsonl.h"
#include "data/dataset.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct text {
	int32_t *ids; /* without the tokens of the template */
	size_t n;
};

struct sink {
	struct dt_label_import *im;
	struct dt_dataset_writer *set[2];
	int32_t *row; /* [seq] */
	int64_t examples;
};

static int no_memory(struct dt_err *err)
{
	return dt_err_sys(err, -ENOMEM, "cannot hold the texts");
}

/* The tokens of a key's text, up to those of a row. */
static int encode(const struct sink *k, const json_t *line, const char *key, struct text *ret,
		  struct dt_err *err)
{
	const json_t *v = json_object_get(line, key);
	const int32_t bos = dt_tokenizer_bos(k->im->tok), end = dt_tokenizer_end(k->im->tok);
	int rc;

	if (!json_is_string(v))
		return dt_err_set(err, -EINVAL, "key '%s' is %s", key, v ? "not a string" : "missing");
	rc = dt_tokenizer_encode(k->im->tok, json_string_value(v), json_string_length(v), true, &ret->ids,
				 &ret->n, err);
	if (rc < 0)
		return rc;
	if (ret->n && bos >= 0 && ret->ids[0] == bos) /* written in the text */
		memmove(ret->ids, ret->ids + 1, --ret->n * sizeof(*ret->ids));
	if (ret->n && end >= 0 && ret->ids[ret->n - 1] == end)
		ret->n--;
	return 0;
}

/* Cuts the longer of two texts until both fit in room. Returns whether one was cut. */
static bool fit(struct text t[2], size_t room)
{
	const size_t n = t[0].n + t[1].n, over = n > room ? n - room : 0;
	const size_t differ = t[0].n > t[1].n ? t[0].n - t[1].n : t[1].n - t[0].n;
	struct text *longer = t[0].n > t[1].n ? &t[0] : &t[1];

	longer->n -= over < differ ? over : differ;
	if (over > differ) { /* as tokenizers does: of an odd number, the longer has one more */
		t[0].n = t[1].n = room / 2;
		longer->n += room % 2;
	}
	return over > 0;
}

static void put(struct sink *k, int64_t *n, int32_t id)
{
	if (id >= 0)
		k->row[(*n)++] = id;
}

/* Writes the row; returns its length. *ret_second: where the second text begins, 0: there is none. */
static int64_t compose(struct sink *k, const struct text t[2], bool pair, int32_t *ret_second)
{
	const int32_t end = dt_tokenizer_end(k->im->tok);
	int64_t n = 0;

	*ret_second = 0;
	put(k, &n, dt_tokenizer_bos(k->im->tok));
	for (int i = 0; i < 1 + pair; i++) {
		for (int s = 1; i && s < dt_tokenizer_seps(k->im->tok); s++)
			put(k, &n, end);
		if (i)
			*ret_second = (int32_t)n;
		memcpy(k->row + n, t[i].ids, t[i].n * sizeof(*k->row));
		n += (int64_t)t[i].n;
		put(k, &n, end);
	}
	return n;
}

static int read_label(struct sink *k, const json_t *line, float *ret, struct dt_err *err)
{
	const json_t *v = json_object_get(line, "label");
	struct dt_label_import *im = k->im;
	int number = 0, rc;

	if (im->scores) {
		*ret = (float)json_number_value(v);
		return json_is_number(v) && isfinite(*ret) ? 0
							   : dt_err_set(err, -EINVAL, "key 'label' is %s",
									v ? "not a number" : "missing");
	}
	if (!json_is_string(v) && !json_is_integer(v))
		return dt_err_set(err, -EINVAL, "key 'label' is %s",
				  v ? "neither a class's name nor its number" : "missing");
	if (json_is_integer(v) && (json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX))
		return dt_err_set(err, -EINVAL, "class %lld is out of range",
				  (long long)json_integer_value(v));
	number = (int)json_integer_value(v);
	rc = class_list_take(&im->classes, json_string_value(v), &number, err);
	*ret = (float)number;
	return rc;
}

/* Whether the next example goes to the second set: so that these are spread evenly. */
static bool held_out(struct sink *k)
{
	const double share = k->im->eval_percent / 100;
	const int64_t i = k->examples++;

	return floor((double)(i + 1) * share) > floor((double)i * share);
}

static int take(struct sink *k, const json_t *line, struct dt_err *err)
{
	const struct dt_tokenizer *tok = k->im->tok;
	const json_t *second = json_object_get(line, "text_pair");
	const bool pair = second && !json_is_null(second);
	const int64_t around = (dt_tokenizer_bos(tok) >= 0) + (dt_tokenizer_end(tok) >= 0) +
			       (pair ? dt_tokenizer_seps(tok) : 0);
	struct dt_label_import *im = k->im;
	struct text t[2] = {0};
	int32_t at;
	int64_t n;
	float label = 0;
	int rc = 0, to;

	if (pair && dt_tokenizer_end(tok) < 0)
		rc = dt_err_set(err, -EINVAL,
				"the tokenizer has no token that separates a text from its 'text_pair'");
	else if (around >= im->seq)
		rc = dt_err_set(err, -EINVAL, "%lld tokens have no room for a text", (long long)im->seq);
	if (rc == 0)
		rc = encode(k, line, "text", &t[0], err);
	if (rc == 0 && pair)
		rc = encode(k, line, "text_pair", &t[1], err);
	if (rc == 0)
		rc = read_label(k, line, &label, err);
	if (rc == 0) {
		im->cut += fit(t, (size_t)(im->seq - around));
		im->pairs += pair;
		n = compose(k, t, pair, &at);
		if (n == 0)
			rc = dt_err_set(err, -EINVAL, "the text is empty");
	}
	if (rc == 0) {
		to = held_out(k) ? 1 : 0;
		im->least = im->texts[0] + im->texts[1] == 0 || label < im->least ? label : im->least;
		im->most = im->texts[0] + im->texts[1] == 0 || label > im->most ? label : im->most;
		im->texts[to]++;
		im->tokens[to] += n;
		if (!im->scores)
			im->classes.images[(int)label]++;
		rc = dt_dataset_append_labelled(k->set[to], k->row, (size_t)n, label, at, err);
	}
	free(t[0].ids);
	free(t[1].ids);
	return rc;
}

static int read_file(struct sink *k, const char *path, struct dt_err *err)
{
	struct dt_label_import *im = k->im;
	struct dt_jsonl j;
	json_t *line;
	int rc = dt_jsonl_open(&j, path, err), got;

	if (rc < 0)
		return rc;
	j.skip_bad = im->skip_bad;
	while (rc == 0 && (got = dt_jsonl_next(&j, &line, err)) != 0) {
		struct dt_err why = {0};

		if (got < 0) {
			rc = got;
			break;
		}
		rc = take(k, line, &why);
		json_decref(line);
		if (rc < 0)
			dt_err_prefix(&why, "%s:%zu", j.name, j.line);
		if (rc == -EINVAL && im->skip_bad) {
			im->bad++;
			if (im->told)
				im->told(im->ctx, why.msg);
			rc = 0;
		} else if (rc < 0 && err) {
			*err = why;
		}
	}
	im->bad += (int64_t)j.bad;
	dt_jsonl_close(&j);
	return rc;
}

/* Gives both sets the classes, of which there are at least two. */
static int name_classes(struct sink *k, struct dt_err *err)
{
	struct class_list *c = &k->im->classes;
	int *map = NULL, rc;

	if (k->im->scores)
		return 0;
	if (c->n < 2) {
		dt_err_set(err, -EINVAL, "the lines have %d classes; at least 2 are told apart", c->n);
		dt_err_hint(err, "--scores reads labels as scores");
		return -EINVAL;
	}
	rc = class_list_finish(c, true, &map, err);
	for (int i = 0; i < 2 && rc == 0 && k->set[i]; i++)
		rc = dt_dataset_set_classes(k->set[i], c->n, c->name, map, err);
	free(map);
	return rc;
}

int dt_label_import(struct dt_label_import *im, int n, const char *const *paths, const char *const out[2],
		    struct dt_err *err)
{
	struct sink k = {.im = im};
	int rc = im->names ? class_list_read(&im->classes, im->names, err) : 0;

	k.row = malloc((size_t)im->seq * sizeof(*k.row));
	if (rc == 0 && !k.row)
		rc = no_memory(err);
	for (int i = 0; i < 2 && rc == 0 && out[i]; i++) {
		rc = dt_dataset_create(out[i], im->tok, 0, im->source, &k.set[i], err);
		if (rc == 0)
			dt_dataset_keep_apart(k.set[i]);
	}
	if (rc == 0)
		dt_dataset_set_shards(k.set[0], im->shards);
	for (int i = 0; i < n && rc == 0; i++)
		rc = read_file(&k, paths[i], err);
	if (rc == 0 && (!im->texts[0] || (out[1] && !im->texts[1])))
		rc = dt_err_set(err, -EINVAL, "there are no lines for '%s'", out[im->texts[0] ? 1 : 0]);
	if (rc == 0)
		rc = name_classes(&k, err);
	for (int i = 0; i < 2; i++) {
		if (rc == 0 && k.set[i])
			rc = dt_dataset_finish(k.set[i], err);
		else
			dt_dataset_abandon(k.set[i]);
	}
	free(k.row);
	return rc;
}

void dt_label_import_release(struct dt_label_import *im)
{
	class_list_free(&im->classes);
}

void dt_label_import_print(const struct dt_label_import *im, const char *const out[2], FILE *f)
{
	for (int i = 0; i < 2 && out[i]; i++)
		fprintf(f, "%s: %lld texts, %lld tokens\n", out[i], (long long)im->texts[i],
			(long long)im->tokens[i]);
	if (im->scores)
		fprintf(f, "scores from %g to %g\n", (double)im->least, (double)im->most);
	for (int i = 0; i < im->classes.n; i++)
		fprintf(f, "class %d: %s, %lld texts\n", i, im->classes.name[i],
			(long long)im->classes.images[i]);
	if (im->pairs)
		fprintf(f, "%lld are pairs\n", (long long)im->pairs);
	if (im->cut)
		fprintf(f, "%lld were cut to %lld tokens\n", (long long)im->cut, (long long)im->seq);
	if (im->bad)
		fprintf(f, "%lld lines were skipped\n", (long long)im->bad);
}

json_t *dt_label_import_json(const struct dt_label_import *im, const char *const out[2])
{
	json_t *o = json_pack("{s:i, s:I, s:I, s:I, s:o}", "schema", 1, "pairs", (json_int_t)im->pairs, "cut",
			      (json_int_t)im->cut, "skipped", (json_int_t)im->bad, "sets", json_array());
	json_t *classes = json_array();

	for (int i = 0; i < 2 && out[i]; i++)
		json_array_append_new(json_object_get(o, "sets"),
				      json_pack("{s:s, s:I, s:I}", "path", out[i], "texts",
						(json_int_t)im->texts[i], "tokens",
						(json_int_t)im->tokens[i]));
	for (int i = 0; i < im->classes.n; i++)
		json_array_append_new(classes, json_pack("{s:s, s:I}", "name", im->classes.name[i], "texts",
							 (json_int_t)im->classes.images[i]));
	json_object_set_new(o, "classes", classes);
	return o;
}
/* SPDX-License-Identifier: Apache-2.0 */
