/* Resumes the build of a data set from its journal. */
#include "data/text_import_priv.h"
#include "data/unpack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct replay {
	struct import *b; /* its entry and doc: [n] those of the current group */
	size_t n, next;	  /* next: the document whose ids come next */
};

static int replay_documents(void *ctx, const struct journal_document *d, size_t n, struct dt_err *err)
{
	struct replay *r = ctx;
	struct import *b = r->b;
	int rc = 0;

	r->next = 0;
	r->n = n < BATCH ? n : BATCH;
	memcpy(b->entry, d, r->n * sizeof(*d));
	for (size_t i = 0; i < r->n && rc == 0; i++) {
		struct document *own = &b->doc[i];

		rc = dt_clean_judge(b->im->cleaned, &d[i].look, &own->why, &(int64_t){0}, err);
		b->im->resumed += own->why == DT_CLEAN_KEPT;
		if (rc == 0 && d[i].large && own->why == DT_CLEAN_KEPT)
			rc = text_begin_document(b, b->out[d[i].eval != 0], err);
	}
	return rc;
}

static int replay_ids(void *ctx, const int32_t *ids, size_t n, struct dt_err *err)
{
	struct replay *r = ctx;
	struct import *b = r->b;
	struct dt_dataset_writer *w;
	int rc;

	while (r->next < r->n && b->doc[r->next].why != DT_CLEAN_KEPT)
		r->next++;
	if (r->next == r->n)
		return dt_err_set(err, -EBADMSG, "the journal has ids that belong to no document");
	w = b->out[b->entry[r->next].eval != 0];
	if (b->entry[r->next].large)
		return dt_dataset_append(w, ids, n, err);
	r->next++;
	rc = text_begin_document(b, w, err);
	if (rc == 0)
		rc = dt_dataset_append(w, ids, n, err);
	return rc == 0 ? dt_dataset_end_document(w, err) : rc;
}

static int replay_notes(void *ctx, const char *text, size_t n, struct dt_err *err)
{
	struct replay *r = ctx;

	if (r->b->removed.f && fwrite(text, 1, n, r->b->removed.f) != n)
		return dt_err_sys(err, -errno, "cannot write '%s'", r->b->im->removed);
	return 0;
}

static int replay_end(void *ctx, const struct journal_mark *m, struct dt_err *err)
{
	struct replay *r = ctx;
	struct import *b = r->b;

	b->im->in.from = m->from;
	b->im->in.bad = m->bad;
	b->im->in.empty = m->empty;
	text_tell(b, m->from);
	return r->n && b->entry[0].large && b->doc[0].why == DT_CLEAN_KEPT
		       ? dt_dataset_end_document(b->out[b->entry[0].eval != 0], err)
		       : 0;
}

static json_t *file_json(const char *path)
{
	struct stat st;

	if (!unpack_is_file(path) || stat(path, &st) < 0)
		return json_pack("{s:s}", "path", path);
	return json_pack("{s:s, s:I, s:I, s:I}", "path", path, "bytes", (json_int_t)st.st_size, "mtime_s",
			 (json_int_t)st.st_mtim.tv_sec, "mtime_ns", (json_int_t)st.st_mtim.tv_nsec);
}

static json_t *files_json(const char *const *path, int n)
{
	json_t *list = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(list, file_json(path[i]));
	return list;
}

/* What documents and ids depend on, but not where they go. malloc'd; NULL: out of memory. */
static char *identity_of(const struct dt_text_import *im)
{
	const struct dt_clean_options *c = &im->clean;
	json_t *o = json_pack("{s:i, s:s, s:i, s:s*, s:s*, s:f, s:b, s:b}", "version", 2, "tokenizer",
			      dt_tokenizer_hash(im->tok), "format", im->in.format, "field", im->in.field,
			      "separator", im->in.separator, "eval_percent", im->in.eval_percent, "skip_bad",
			      im->in.skip_bad, "removed", im->removed != NULL);
	char *text;

	json_object_set_new(o, "clean",
			    json_pack("{s:b, s:f, s:I, s:I, s:f, s:f, s:f, s:s*}", "exact", c->exact, "near",
				      c->near, "min_chars", (json_int_t)c->min_chars, "max_chars",
				      (json_int_t)c->max_chars, "max_symbols", c->max_symbols, "max_repeats",
				      c->max_repeats, "max_ngrams", c->max_ngrams, "script", c->script));
	json_object_set_new(o, "exclude", files_json(im->exclude, im->nexclude));
	json_object_set_new(o, "inputs", files_json(im->in.path, im->in.paths));
	text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(o);
	return text;
}

int text_resume(struct import *b, struct dt_err *err)
{
	struct replay r = {.b = b};
	const struct journal_sink to = {replay_documents, replay_ids, replay_notes, replay_end, &r};
	char *identity = identity_of(b->im);
	int rc = identity ? journal_open(b->im->work, identity, &b->journal, err)
			  : dt_err_sys(err, -ENOMEM, "cannot resume");

	free(identity);
	if (rc == 0)
		rc = journal_replay(b->journal, &to, err);
	b->notes = rc == 0 ? open_memstream(&b->note, &b->note_n) : NULL;
	return rc == 0 && !b->notes ? dt_err_sys(err, -ENOMEM, "cannot resume") : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
