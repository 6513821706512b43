#include "data/text_import.h"

#include "base/tmpfile.h"
#include "data/dataset.h"

struct import {
	struct dt_text_import *im;
	struct dt_dataset_writer *out[2]; /* to train on, to evaluate */
	struct dt_tmpfile removed;	  /* f NULL: not written */
	int to;
	uint64_t before; /* bytes of input in documents behind us */
};

static int keeps(struct import *b, const char *s, size_t n, struct dt_err *err)
{
	enum dt_clean_reason why;
	int64_t like;
	int rc = dt_clean_take(b->im->cleaned, s, n, &why, &like, err);

	if (rc == 0 && why != DT_CLEAN_KEPT && b->removed.f)
		rc = dt_clean_note(b->im->cleaned, b->removed.f, why, like, s, n, err);
	return rc < 0 ? rc : why == DT_CLEAN_KEPT;
}

static int take_ids(void *ctx, const int32_t *ids, size_t n, size_t done, struct dt_err *err)
{
	struct import *b = ctx;

	if (b->im->progress)
		b->im->progress(b->im->ctx, b->before + done);
	return dt_dataset_append(b->out[b->to], ids, n, err);
}

static int add_document(void *ctx, const char *s, size_t n, bool eval, uint64_t at, struct dt_err *err)
{
	struct import *b = ctx;
	int32_t bos = dt_tokenizer_bos(b->im->tok);
	int rc = keeps(b, s, n, err);

	if (rc <= 0)
		return rc;
	rc = 0;
	b->to = eval;
	b->before = at;
	if (bos >= 0 && bos != dt_tokenizer_eot(b->im->tok))
		rc = dt_dataset_append(b->out[b->to], &bos, 1, err);
	if (rc == 0)
		rc = dt_tokenizer_encode_to(b->im->tok, s, n, false, take_ids, b, err);
	return rc < 0 ? rc : dt_dataset_end_document(b->out[b->to], err);
}

static int exclude_document(void *ctx, const char *s, size_t n, bool eval, uint64_t at, struct dt_err *err)
{
	return dt_clean_exclude(ctx, s, n, err);
}

int dt_text_import_open(struct dt_text_import *im, int n, const char *const *paths, struct dt_err *err)
{
	struct dt_text_source s = {.field = im->in.field};
	int rc = dt_clean_open(&im->clean, &im->cleaned, err);

	if (rc == 0 && im->nexclude) {
		rc = dt_text_source_open(&s, im->nexclude, im->exclude, err);
		if (rc == 0)
			rc = dt_text_source_read(&s, exclude_document, im->cleaned, err);
		dt_text_source_close(&s);
	}
	return rc < 0 ? rc : dt_text_source_open(&im->in, n, paths, err);
}

void dt_text_import_release(struct dt_text_import *im)
{
	dt_text_source_close(&im->in);
	dt_clean_close(im->cleaned);
	im->cleaned = NULL;
}

static int create(struct import *b, const char *const out[2], struct dt_err *err)
{
	const struct dt_text_import *im = b->im;
	int rc = 0;

	for (int i = 0; i < 2 && rc == 0; i++) {
		if (!out[i])
			continue;
		rc = dt_dataset_create(out[i], im->tok, 0, im->source, &b->out[i], err);
		if (rc == 0 && im->apart)
			dt_dataset_keep_apart(b->out[i]);
	}
	if (rc == 0)
		dt_dataset_set_shards(b->out[0], im->shards);
	return rc == 0 && im->removed ? dt_tmpfile_open(&b->removed, im->removed, err) : rc;
}

/* The evaluation set first: a train.h5 that is there has its eval.h5. */
static int finish(struct import *b, struct dt_err *err)
{
	int rc = 0;

	for (int i = 1; i >= 0 && rc == 0; i--) {
		struct dt_dataset_writer *w = b->out[i];

		if (!w)
			continue;
		b->im->tokens[i] = dt_dataset_written(w, &b->im->documents[i]);
		b->out[i] = NULL;
		rc = dt_dataset_finish(w, err);
	}
	return rc;
}

int dt_text_import(struct dt_text_import *im, const char *const out[2], struct dt_err *err)
{
	struct import b = {.im = im};
	int rc = create(&b, out, err);

	if (rc == 0)
		rc = dt_text_source_read(&im->in, add_document, &b, err);
	if (rc == 0)
		rc = finish(&b, err);
	if (rc == 0 && b.removed.f)
		rc = dt_tmpfile_commit(&b.removed, err);
	dt_tmpfile_abort(&b.removed);
	dt_dataset_abandon(b.out[0]);
	dt_dataset_abandon(b.out[1]);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
