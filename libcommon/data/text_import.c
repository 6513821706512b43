/*
 * With a journal (data/text_journal.h), everything written to the sets is written there too: a batch, or a
 * large document, is a group. When it is replayed, documents are judged again in the same way.
 */
#include "data/text_import_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_BYTES ((size_t)8 << 20)
#define LARGE	    ((size_t)1 << 20) /* larger documents are encoded in pieces, in place */
#define PIECE	    ((size_t)1 << 18)
#define PIECES	    64

static void encode_pieces(const struct dt_tokenizer *tok, struct piece *p, int n)
{
#pragma omp parallel for schedule(dynamic, 1) if (n > 1)
	for (int i = 0; i < n; i++) {
		p[i].ids = NULL;
		p[i].nids = 0;
		p[i].rc = p[i].n ? dt_tokenizer_encode(tok, p[i].text, p[i].n, false, &p[i].ids, &p[i].nids,
						       &p[i].err)
				 : 0;
	}
}

static int append(struct import *b, bool eval, const int32_t *ids, size_t n, struct dt_err *err)
{
	int rc = dt_dataset_append(b->out[eval], ids, n, err);

	return rc == 0 && b->journal ? journal_ids(b->journal, ids, n, err) : rc;
}

/* Appends a piece's ids and frees them. rc < 0: only frees them. */
static int append_piece(struct import *b, bool eval, struct piece *p, int rc, struct dt_err *err)
{
	if (rc == 0 && p->rc < 0)
		*err = p->err;
	if (rc == 0)
		rc = p->rc < 0 ? p->rc : append(b, eval, p->ids, p->nids, err);
	free(p->ids);
	return rc;
}

int text_begin_document(struct import *b, struct dt_dataset_writer *w, struct dt_err *err)
{
	const int32_t bos = dt_tokenizer_bos(b->im->tok);

	return bos >= 0 && bos != dt_tokenizer_eot(b->im->tok) ? dt_dataset_append(w, &bos, 1, err) : 0;
}

/* Decides whether the next document is kept. Call in the order of documents. */
static int judge(struct import *b, struct document *d, struct dt_err *err)
{
	int64_t like;
	int rc = d->rc < 0 ? dt_err_sys(err, d->rc, "cannot look at a document")
			   : dt_clean_judge(b->im->cleaned, &d->look, &d->why, &like, err);

	if (rc == 0 && d->why != DT_CLEAN_KEPT && b->removed.f)
		rc = dt_clean_note(b->im->cleaned, b->removed.f, d->why, like, d->text, d->n, err);
	if (rc == 0 && d->why != DT_CLEAN_KEPT && b->notes)
		rc = dt_clean_note(b->im->cleaned, b->notes, d->why, like, d->text, d->n, err);
	return rc;
}

/* Writes a group's documents to the journal, before their ids. */
static int begin_group(struct import *b, const struct document *d, int n, bool large, struct dt_err *err)
{
	for (int i = 0; i < n && b->journal; i++)
		b->entry[i] = (struct journal_document){
			.at = d[i].at, .large = large, .eval = d[i].eval, .look = d[i].look};
	return b->journal ? journal_documents(b->journal, b->entry, (size_t)n, err) : 0;
}

static int end_group(struct import *b, const struct document *last, struct dt_err *err)
{
	const struct journal_mark m = {.from = last->at + 1, .bad = last->bad, .empty = last->empty};
	int rc = 0;

	text_tell(b, last->at + last->n);
	if (!b->journal)
		return 0;
	fflush(b->notes);
	if (b->note_n)
		rc = journal_notes(b->journal, b->note, b->note_n, err);
	rewind(b->notes);
	return rc == 0 ? journal_end(b->journal, &m, err) : rc;
}

struct encoding {
	struct import *b;
	const struct document *d;
};

static int take_ids(void *ctx, const int32_t *ids, size_t n, size_t done, struct dt_err *err)
{
	const struct encoding *e = ctx;

	text_tell(e->b, e->d->at + done);
	return append(e->b, e->d->eval, ids, n, err);
}

/* Encodes a large document: in pieces by all threads if the tokenizer allows it; else by one. */
static int encode_large(struct import *b, const struct document *d, struct dt_err *err)
{
	struct encoding e = {b, d};
	size_t at = 0;
	int rc = 0;

	if (!dt_tokenizer_may_cut(b->im->tok, false))
		return dt_tokenizer_encode_to(b->im->tok, d->text, d->n, false, take_ids, &e, err);
	while (rc == 0 && at < d->n) {
		int n = 0;

		for (; n < PIECES && at < d->n; n++) {
			const size_t end =
				d->n - at > PIECE ? dt_tokenizer_cut(d->text, d->n, at + PIECE) : d->n;

			b->piece[n] = (struct piece){.text = d->text + at, .n = end - at};
			at = end;
		}
		encode_pieces(b->im->tok, b->piece, n);
		for (int i = 0; i < n; i++)
			rc = append_piece(b, d->eval, &b->piece[i], rc, err);
		text_tell(b, d->at + at);
	}
	return rc;
}

static int take_large(struct import *b, struct document *d, struct dt_err *err)
{
	struct dt_dataset_writer *w = b->out[d->eval];
	int rc;

	d->rc = dt_clean_look(b->im->cleaned, d->text, d->n, &d->look);
	rc = judge(b, d, err);
	if (rc == 0)
		rc = begin_group(b, d, 1, true, err);
	if (rc == 0 && d->why == DT_CLEAN_KEPT) {
		rc = text_begin_document(b, w, err);
		if (rc == 0)
			rc = encode_large(b, d, err);
		if (rc == 0)
			rc = dt_dataset_end_document(w, err);
	}
	return rc < 0 ? rc : end_group(b, d, err);
}

static int flush(struct import *b, struct dt_err *err)
{
	int rc = 0;

#pragma omp parallel for schedule(dynamic, 1) if (b->n > 1)
	for (int i = 0; i < b->n; i++)
		b->doc[i].rc = dt_clean_look(b->im->cleaned, b->doc[i].text, b->doc[i].n, &b->doc[i].look);
	for (int i = 0; i < b->n && rc == 0; i++) {
		struct document *d = &b->doc[i];

		rc = judge(b, d, err);
		b->piece[i] = (struct piece){.text = d->text, .n = d->why == DT_CLEAN_KEPT ? d->n : 0};
	}
	if (rc == 0 && b->n)
		rc = begin_group(b, b->doc, b->n, false, err);
	if (rc < 0)
		return rc;
	encode_pieces(b->im->tok, b->piece, b->n);
	for (int i = 0; i < b->n; i++) {
		const struct document *d = &b->doc[i];
		struct dt_dataset_writer *w = b->out[d->eval];
		const bool kept = d->why == DT_CLEAN_KEPT;

		if (rc == 0 && kept)
			rc = text_begin_document(b, w, err);
		if (kept)
			rc = append_piece(b, d->eval, &b->piece[i], rc, err);
		if (rc == 0 && kept)
			rc = dt_dataset_end_document(w, err);
	}
	if (rc == 0 && b->n)
		rc = end_group(b, &b->doc[b->n - 1], err);
	b->n = 0;
	b->bytes = 0;
	return rc;
}

static int add_document(void *ctx, const char *s, size_t n, bool eval, uint64_t at, struct dt_err *err)
{
	struct import *b = ctx;
	const struct dt_text_source *in = &b->im->in;
	struct document d = {.text = s, .n = n, .at = at, .bad = in->bad, .empty = in->empty, .eval = eval};
	const bool large = n > LARGE;
	int rc = large || b->n == BATCH || b->bytes + n > BATCH_BYTES ? flush(b, err) : 0;

	if (rc < 0 || large)
		return rc < 0 ? rc : take_large(b, &d, err);
	d.text = memcpy(b->text + b->bytes, s, n);
	b->doc[b->n++] = d;
	b->bytes += n;
	return 0;
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

/* The evaluation set first: whoever sees train.h5 finds eval.h5 too. */
static int finish(struct import *b, struct dt_err *err)
{
	char left[256];
	int rc = 0;

	for (int i = 1; i >= 0 && rc == 0; i--) {
		struct dt_dataset_writer *w = b->out[i];

		if (!w)
			continue;
		b->im->tokens[i] = dt_dataset_written(w, &b->im->documents[i]);
		b->out[i] = NULL;
		rc = dt_dataset_finish(w, err);
		if (rc == 0 || b->im->tokens[i] > 0)
			continue;
		dt_clean_summary(b->im->cleaned, left, sizeof(left));
		if (*left)
			dt_err_prefix(err, "all documents were dropped (%s)", left);
	}
	return rc;
}

int dt_text_import(struct dt_text_import *im, const char *const out[2], struct dt_err *err)
{
	struct import *b = calloc(1, sizeof(*b));
	int rc;

	if (b)
		b->text = malloc(BATCH_BYTES);
	if (!b || !b->text) {
		free(b);
		return dt_err_sys(err, -ENOMEM, "cannot read the input");
	}
	b->im = im;
	rc = create(b, out, err);
	if (rc == 0 && im->work)
		rc = text_resume(b, err);
	if (rc == 0)
		rc = dt_text_source_read(&im->in, add_document, b, err);
	if (rc == 0)
		rc = flush(b, err);
	if (rc == 0)
		rc = finish(b, err);
	if (rc == 0 && b->removed.f)
		rc = dt_tmpfile_commit(&b->removed, err);
	if (rc == 0 && b->journal)
		journal_remove(b->journal);
	journal_close(b->journal);
	if (b->notes)
		fclose(b->notes);
	free(b->note);
	dt_tmpfile_abort(&b->removed);
	dt_dataset_abandon(b->out[0]);
	dt_dataset_abandon(b->out[1]);
	free(b->text);
	free(b);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
