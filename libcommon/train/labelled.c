#include "train/labelled.h"

#include "base/rng.h"
#include "ckpt/source.h"
#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NEW_HEAD "--new-head gives the model a last layer of its own for this data"

static struct labelled *labels_of(struct trainer *t)
{
	return &t->source.labelled;
}

static int labels_in(const struct dt_dataset_info *i)
{
	return i->classes ? i->classes : 1;
}

json_t *labelled_classes(const struct trainer *t)
{
	const struct dt_dataset_info *i = &t->source.labelled.info;
	json_t *list = i->classes ? json_array() : NULL;

	for (int k = 0; k < i->classes; k++)
		json_array_append_new(list, json_string(i->class_name[k]));
	return list;
}

/* -EINVAL unless the list's names, if it has some, are those of the data. */
static int same_classes(const struct trainer *t, const json_t *list, const char *whose, struct dt_err *err)
{
	json_t *own = labelled_classes(t);
	int rc = 0;

	for (size_t i = 0; i < json_array_size(own) && json_array_size(list) == json_array_size(own); i++) {
		const char *a = json_string_value(json_array_get(own, i)),
			   *b = json_string_value(json_array_get(list, i));

		if (rc == 0 && b && strcmp(a, b))
			rc = dt_err_set(err, -EINVAL, "class %zu is '%.80s' in '%s', but '%.80s' in '%s'", i,
					a, t->run.data.train, b, whose);
	}
	json_decref(own);
	return rc;
}

/* Checks the labels against those of the model that came with the weights. */
static int follow_data(struct trainer *t, struct dt_err *err)
{
	const struct dt_dataset_info *i = &labels_of(t)->info;
	const struct dt_config *c = &t->config;
	int rc = 0;

	if (t->run.labels && t->run.labels != labels_in(i))
		return dt_err_set(err, -EINVAL, "--labels %lld, but '%s' has %d", (long long)t->run.labels,
				  t->run.data.train, labels_in(i));
	t->run.labels = labels_in(i);
	if (!t->init || !dt_config_has_labels(c) || t->run.image.new_head)
		return 0;
	if (c->labels != t->run.labels)
		rc = dt_err_set(err, -EINVAL, "'%s' has %lld labels, '%s' has %lld", t->run.model,
				(long long)c->labels, t->run.data.train, (long long)t->run.labels);
	else
		rc = same_classes(t, json_object_get(dt_source_images(t->init), "classes"), t->run.model,
				  err);
	if (rc < 0)
		dt_err_hint(err, NEW_HEAD);
	return rc;
}

int labelled_describe(struct trainer *t, struct dt_err *err)
{
	struct labelled *l = labels_of(t);

	/* what cannot be opened, or has no labels, is for source_open */
	if (!t->config.encoder || !t->run.data.train ||
	    dt_dataset_open(t->run.data.train, &l->data, NULL) < 0)
		return 0;
	dt_dataset_info(l->data, &l->info);
	if (l->info.labels)
		return follow_data(t, err);
	dt_dataset_close(l->data);
	l->data = NULL;
	return 0;
}

/* The model decides how many tokens stand between two texts, the tokenizer has decided it for the data. */
static int check_pairs(const struct trainer *t, struct dt_dataset *d, const char *path, struct dt_err *err)
{
	const bool two =
		t->config.pos_first || t->config.token_types < 2; /* as in serve/api/served_engine.c */
	struct dt_dataset_info info;
	int32_t ids[2];
	int rc;

	dt_dataset_info(d, &info);
	for (int64_t i = 0; i < info.documents; i++) {
		const struct dt_labelled_document o = dt_dataset_labelled(d, i);

		if (o.second < 2)
			continue;
		rc = dt_dataset_read(d, o.at + o.second - 2, 2, ids, err);
		if (rc < 0)
			return rc;
		return (ids[0] == ids[1]) == two
			       ? 0
			       : dt_err_set(err, -EINVAL,
					    "the tokenizer of '%s' puts %s between two texts, '%s' reads %s",
					    path, two ? "one token" : "two tokens", t->config.name,
					    two ? "two" : "one");
	}
	return 0;
}

/* Checks a set against the run. */
static int check_set(const struct trainer *t, struct dt_dataset *d, const char *path, struct dt_err *err)
{
	struct dt_dataset_info info;

	dt_dataset_info(d, &info);
	if (info.vocab > t->config.vocab) {
		dt_err_set(err, -EINVAL,
			   "model vocabulary %lld is smaller than the %d of the tokenizer of '%s'",
			   (long long)t->config.vocab, info.vocab, path);
		dt_err_hint(err, "weights need a data set of their own tokenizer");
		return -EINVAL;
	}
	for (int64_t i = 0; i < info.documents; i++)
		if (dt_dataset_labelled(d, i).n > t->run.seq) {
			dt_err_set(err, -EINVAL, "text %lld of '%s' has %lld tokens, more than --seq %lld",
				   (long long)i, path, (long long)dt_dataset_labelled(d, i).n,
				   (long long)t->run.seq);
			dt_err_hint(err, "'dt-dataset labels --seq %lld' cuts longer texts",
				    (long long)t->run.seq);
			return -EINVAL;
		}
	return check_pairs(t, d, path, err);
}

int labelled_open(struct trainer *t, struct dt_err *err)
{
	struct labelled *l = labels_of(t);
	const char *path = t->run.data.eval;
	int rc = check_set(t, l->data, t->run.data.train, err);

	t->source.info = l->info;
	t->run.documents = DT_RUN_DOCUMENTS_JOINED;
	if (rc < 0 || !path)
		return rc;
	rc = dt_dataset_open(path, &l->eval, err);
	if (rc < 0)
		return rc;
	dt_dataset_info(l->eval, &l->eval_info);
	if (!l->eval_info.labels)
		return dt_err_set(err, -EINVAL, "'%s' has no labels", path);
	if (strcmp(l->eval_info.tokenizer_hash, l->info.tokenizer_hash))
		return dt_err_set(err, -EINVAL, "'%s' and '%s' were made with different tokenizers",
				  t->run.data.train, path);
	if (l->eval_info.classes != l->info.classes)
		return dt_err_set(err, -EINVAL, "'%s' has %d classes, '%s' has %d", path,
				  l->eval_info.classes, t->run.data.train, l->info.classes);
	for (int k = 0; k < l->info.classes; k++)
		if (strcmp(l->eval_info.class_name[k], l->info.class_name[k]))
			return dt_err_set(err, -EINVAL, "class %d is '%.80s' in '%s', but '%.80s' in '%s'", k,
					  l->eval_info.class_name[k], path, l->info.class_name[k],
					  t->run.data.train);
	return check_set(t, l->eval, path, err);
}

void labelled_close(struct trainer *t)
{
	struct labelled *l = labels_of(t);

	dt_dataset_close(l->data);
	dt_dataset_close(l->eval);
	memset(l, 0, sizeof(*l));
}

/* Sets sequence b to a document; NULL: to padding, which has no target. row: room for its tokens. */
static int put(const struct trainer *t, const struct dt_dataset *d, const struct dt_labelled_document *o,
	       const struct dt_flight *f, int64_t b, int32_t *row, struct dt_err *err)
{
	const int64_t seq = t->run.seq, n = o ? o->n : 1;
	const int rc = o ? dt_dataset_read(d, o->at, o->n, row, err) : 0;

	for (int64_t p = 0; p < seq && rc == 0; p++) {
		const int64_t at = seq - 1 - p, i = b * seq + p;
		const bool real = o && at < n;

		f->host_ids[i] = real ? row[at] : 0;
		f->host_first[i] = (int32_t)(seq - n);
		if (f->host_types)
			f->host_types[i] = real && o->second && at >= o->second;
	}
	f->host_targets[b] = !o ? -1 : f->host_share ? 0 : (int32_t)o->label;
	if (f->host_share)
		f->host_share[b] = o ? o->label : 0;
	return rc;
}

int labelled_next(struct trainer *t, bool eval, const struct dt_flight *f, int64_t n, int64_t end,
		  struct dt_err *err)
{
	const struct labelled *l = labels_of(t);
	const struct dt_dataset *d = eval ? l->eval : l->data;
	const int64_t documents = eval ? l->eval_info.documents : l->info.documents;
	int32_t *row = malloc((size_t)t->run.seq * sizeof(*row));
	int rc = row ? 0 : dt_err_sys(err, -ENOMEM, "cannot load a text");

	for (int64_t b = 0; b < t->run.microbatch && rc == 0; b++) {
		const bool real = n + b < end;
		const int64_t i = dt_sample_at(t->run.data.seed, !eval, n + b, documents);
		const struct dt_labelled_document o = dt_dataset_labelled(d, i);

		rc = put(t, d, real ? &o : NULL, f, b, row, err);
	}
	free(row);
	return rc == 0 ? dt_flight_upload(f, &t->exec, err) : rc;
}

int labelled_load_meta(const struct trainer *t, const json_t *meta, const char *path, struct dt_err *err)
{
	return same_classes(t, json_object_get(meta, "classes"), path, err);
}

void labelled_announce(struct trainer *t)
{
	const struct dt_dataset_info *i = &labels_of(t)->info;

	if (i->classes)
		dt_log_msg(&t->root_log, "%lld texts of %d classes, from '%.40s' to '%.40s'",
			   (long long)i->documents, i->classes, i->class_name[0],
			   i->class_name[i->classes - 1]);
	else
		dt_log_msg(&t->root_log, "%lld texts with scores, which are learned by %s",
			   (long long)i->documents,
			   t->config.label_loss == DT_CLASS_LOSS_BCE ? "binary cross-entropy"
								     : "squared error");
}
/* SPDX-License-Identifier: Apache-2.0 */
