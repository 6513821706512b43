/*
 * Tokens are appended to a file without a name (the spool). When their number is known, each shard becomes an
 * HDF5 file with a contiguous /tokens, created by HDF5 and filled from the spool (set_fill): writes are
 * plain, with their errno, and readers get one range of bytes.
 */
#include "base/io.h"
#include "base/tmpfile.h"
#include "data/dataset.h"
#include "data/doc_labels.h"
#include "data/marks.h"
#include "data/shard_set.h"
#include "data/tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_TOKENS 65536

struct dt_dataset_writer {
	char *path, *source, *hash, *text;
	size_t text_n;
	int32_t vocab, eot;
	int64_t max_shard, tokens, documents;
	int fd, token_bytes, shards; /* shards 0: by max_shard */
	int64_t begun;		     /* first token of the current document */
	bool apart;		     /* record the starts of documents */
	int64_t *start, starts, cap; /* first token of each document */
	uint8_t *kind;		     /* [starts] of enum dt_document_kind */
	bool preferences;	     /* some document is not plain */
	struct dt_marks marks;
	struct dt_doc_labels labels;
	int64_t row;	  /* tokens a sample; 0: not sampled */
	const char *chat; /* chat template; NULL: none */
	int buffered;
	char buffer[BUFFER_TOKENS * 4];
};

static int no_memory(struct dt_err *err, const char *path)
{
	return dt_err_sys(err, -ENOMEM, "cannot write '%s'", path);
}

int dt_dataset_create(const char *path, const struct dt_tokenizer *t, int64_t max_shard_tokens,
		      const char *source, struct dt_dataset_writer **ret, struct dt_err *err)
{
	struct dt_dataset_writer *w = calloc(1, sizeof(*w));
	const char *text;
	int rc;

	if (!w)
		return no_memory(err, path);
	text = dt_tokenizer_text(t, &w->text_n);
	w->fd = -1;
	rc = dt_out_path(path, &w->path, err);
	if (rc < 0)
		goto fail;
	w->source = strdup(source ? source : "");
	w->hash = strdup(dt_tokenizer_hash(t));
	w->text = malloc(w->text_n + 1);
	w->vocab = dt_tokenizer_vocab(t);
	w->eot = dt_tokenizer_eot(t);
	w->max_shard = max_shard_tokens;
	w->token_bytes = w->vocab <= 65536 ? 2 : 4;
	if (!w->source || !w->hash || !w->text) {
		rc = no_memory(err, path);
		goto fail;
	}
	memcpy(w->text, text, w->text_n);
	rc = set_spool_open(w->path, &w->fd, err);
	if (rc < 0)
		goto fail;
	*ret = w;
	return 0;
fail:
	dt_dataset_abandon(w);
	return rc;
}

void dt_dataset_set_shards(struct dt_dataset_writer *w, int n)
{
	w->shards = n;
}

int64_t dt_dataset_written(const struct dt_dataset_writer *w, int64_t *ret_documents)
{
	*ret_documents = w->documents;
	return w->tokens;
}

static int flush(struct dt_dataset_writer *w, struct dt_err *err)
{
	int rc = dt_write_all(w->fd, w->buffer, (size_t)w->buffered * (size_t)w->token_bytes,
			      SET_HEAD + (w->tokens - w->buffered) * w->token_bytes);

	w->buffered = 0;
	return rc < 0 ? dt_err_sys(err, rc, "cannot write '%s'", w->path) : 0;
}

void dt_dataset_keep_apart(struct dt_dataset_writer *w)
{
	w->apart = true;
}

/* Records the start of a finished document, unless it is empty. */
static int note_start(struct dt_dataset_writer *w, enum dt_document_kind kind, struct dt_err *err)
{
	int64_t *bigger;
	uint8_t *kinds;

	if (!w->apart || w->tokens == w->begun)
		return 0;
	if (w->starts == w->cap) {
		w->cap = w->cap ? 2 * w->cap : 1024;
		bigger = realloc(w->start, (size_t)w->cap * sizeof(*bigger));
		if (!bigger)
			return no_memory(err, w->path);
		w->start = bigger;
		kinds = realloc(w->kind, (size_t)w->cap);
		if (!kinds)
			return no_memory(err, w->path);
		w->kind = kinds;
	}
	w->preferences |= kind != DT_DOCUMENT_PLAIN;
	w->kind[w->starts] = (uint8_t)kind;
	w->start[w->starts++] = w->begun;
	w->begun = w->tokens;
	return 0;
}

int dt_dataset_append(struct dt_dataset_writer *w, const int32_t *ids, size_t n, struct dt_err *err)
{
	int rc;

	for (size_t i = 0; i < n; i++) {
		uint16_t narrow = (uint16_t)ids[i];

		if (ids[i] < 0 || ids[i] >= w->vocab)
			return dt_err_set(err, -EINVAL, "id %d is outside the vocabulary of %d", ids[i],
					  w->vocab);
		if (w->buffered == BUFFER_TOKENS && (rc = flush(w, err)) < 0)
			return rc;
		memcpy(w->buffer + (size_t)w->buffered++ * (size_t)w->token_bytes,
		       w->token_bytes == 2 ? (const void *)&narrow : &ids[i], (size_t)w->token_bytes);
		w->tokens++;
	}
	return 0;
}

int dt_dataset_end_document(struct dt_dataset_writer *w, struct dt_err *err)
{
	int rc = w->eot < 0 ? 0 : dt_dataset_append(w, &w->eot, 1, err);

	w->documents++;
	return rc < 0 ? rc : note_start(w, DT_DOCUMENT_PLAIN, err);
}

void dt_dataset_set_row(struct dt_dataset_writer *w, int64_t tokens)
{
	w->row = tokens;
	w->apart = true;
}

void dt_dataset_set_chat(struct dt_dataset_writer *w, const char *text)
{
	w->chat = text;
}

int dt_dataset_append_marked(struct dt_dataset_writer *w, const int32_t *ids, const uint8_t *mask, size_t n,
			     enum dt_document_kind kind, struct dt_err *err)
{
	int64_t first = w->tokens;
	int rc = dt_dataset_append(w, ids, n, err);

	for (size_t i = 1; i < n && rc == 0 && mask; i++) /* the first token is not predicted */
		if (mask[i])
			rc = dt_marks_add(&w->marks, first + (int64_t)i);
	if (rc == -ENOMEM)
		return no_memory(err, w->path);
	w->documents += mask != NULL;
	return rc < 0 ? rc : note_start(w, kind, err);
}

int dt_dataset_append_labelled(struct dt_dataset_writer *w, const int32_t *ids, size_t n, float label,
			       int32_t second, struct dt_err *err)
{
	int rc = dt_dataset_append(w, ids, n, err);

	if (rc == 0 && dt_doc_labels_add(&w->labels, label, second) < 0)
		return no_memory(err, w->path);
	w->documents++;
	return rc < 0 ? rc : note_start(w, DT_DOCUMENT_PLAIN, err);
}

int dt_dataset_set_classes(struct dt_dataset_writer *w, int classes, char *const *name, const int *map,
			   struct dt_err *err)
{
	return dt_doc_labels_name(&w->labels, classes, name, map, err);
}

static hid_t token_type(const struct dt_dataset_writer *w)
{
	return w->token_bytes == 2 ? H5T_STD_U16LE : H5T_STD_I32LE;
}

static int put_facts(const struct dt_dataset_writer *w, hid_t f, int64_t documents)
{
	if (dt_h5_put_text(f, "format", "dt-dataset") < 0 || dt_h5_put_int(f, "version", 1) < 0 ||
	    dt_h5_put_int(f, "vocab", w->vocab) < 0 || dt_h5_put_int(f, "documents", documents) < 0 ||
	    dt_h5_put_text(f, "tokenizer_hash", w->hash) < 0 || dt_h5_put_text(f, "source", w->source) < 0)
		return -EIO;
	if (w->apart && (dt_h5_put_text(f, "pack", "documents") < 0 ||
			 dt_h5_put_list(f, "document_starts", H5T_STD_I64LE, H5T_NATIVE_INT64, w->starts,
					w->start, w->starts > 512) < 0))
		return -EIO;
	if ((w->row && dt_h5_put_int(f, "row", w->row) < 0) || dt_marks_put(&w->marks, f) < 0 ||
	    dt_doc_labels_put(&w->labels, f) < 0)
		return -EIO;
	if (w->chat && *w->chat &&
	    dt_h5_put_list(f, "chat_template", H5T_STD_U8LE, H5T_NATIVE_UINT8, (int64_t)strlen(w->chat),
			   w->chat, strlen(w->chat) > 4096) < 0)
		return -EIO;
	if (w->preferences && dt_h5_put_list(f, "document_kinds", H5T_STD_U8LE, H5T_NATIVE_UINT8, w->starts,
					     w->kind, w->starts > 4096) < 0)
		return -EIO;
	return dt_h5_put_list(f, "tokenizer", H5T_STD_U8LE, H5T_NATIVE_UINT8, (int64_t)w->text_n, w->text,
			      w->text_n > 4096);
}

/* Creates a file with everything but the tokens, and finds their offset. */
static int make_shard(const struct dt_dataset_writer *w, struct set_file *s, int64_t n, bool whole,
		      struct dt_err *err)
{
	hsize_t dim = (hsize_t)n;
	hid_t f = set_create(s->tmp);
	int rc;

	if (f < 0)
		return dt_h5_error(err, "cannot create '%s'", s->tmp);
	rc = set_put_place(f, "tokens", token_type(w), 1, &dim, &s->offset);
	if (rc == 0)
		rc = dt_h5_put_int(f, "crc32", s->crc);
	if (rc == 0)
		rc = whole ? put_facts(w, f, w->documents) : dt_h5_put_text(f, "format", "dt-dataset");
	if (rc == 0 && !whole)
		rc = dt_h5_put_int(f, "version", 1);
	if (rc < 0)
		dt_h5_error(err, "cannot write '%s'", s->path);
	if (H5Fclose(f) < 0 && rc == 0)
		rc = dt_h5_error(err, "cannot write '%s'", s->path);
	return rc;
}

/* Writes tokens [first, first + n) of the spool. */
static int write_shard(void *arg, struct set_file *s, int64_t first, int64_t n, bool whole,
		       struct dt_err *err)
{
	struct dt_dataset_writer *w = arg;
	int64_t at = first * w->token_bytes, bytes = n * w->token_bytes;
	int rc = set_checksum(w->fd, at, bytes, &s->crc);

	if (rc < 0)
		return dt_err_sys(err, rc, "cannot write '%s'", s->path);
	rc = make_shard(w, s, n, whole, err);
	if (rc < 0)
		return rc;
	rc = set_fill(s, w->fd, at, bytes, whole);
	return rc < 0 ? dt_err_sys(err, rc, "cannot write '%s'", s->path) : 0;
}

static int write_index(void *arg, const char *tmp, const struct set_file *s, const int64_t *count, int n,
		       struct dt_err *err)
{
	struct dt_dataset_writer *w = arg;
	hsize_t total = (hsize_t)w->tokens;
	hid_t f = set_create(tmp);
	int rc;

	if (f < 0)
		return dt_h5_error(err, "cannot create '%s'", tmp);
	rc = put_facts(w, f, w->documents);
	if (rc == 0)
		rc = set_put_index(f, "shard_tokens", s, count, n);
	if (rc == 0)
		rc = set_put_view(f, "tokens", token_type(w), 1, &total, s, count, n);
	if (rc < 0)
		dt_h5_error(err, "cannot write '%s'", w->path);
	if (H5Fclose(f) < 0 && rc == 0)
		rc = dt_h5_error(err, "cannot write '%s'", w->path);
	return rc < 0 ? rc : dt_fsync_path(tmp, err);
}

static int count_shards(const struct dt_dataset_writer *w)
{
	int64_t n = w->shards ? w->shards : w->max_shard ? (w->tokens + w->max_shard - 1) / w->max_shard : 1;

	if (n > w->tokens)
		n = w->tokens;
	return n < 1 ? 1 : n > 99999 ? 99999 : (int)n;
}

int dt_dataset_finish(struct dt_dataset_writer *w, struct dt_err *err)
{
	static const struct set_writer how = {write_shard, write_index};
	int n = count_shards(w), rc = flush(w, err);

	if (rc == 0)
		/* of tokens after the last dt_dataset_end_document */
		rc = note_start(w, DT_DOCUMENT_PLAIN, err);

	dt_h5_quiet();
	if (rc == 0 && w->tokens == 0)
		rc = dt_err_set(err, -EINVAL, "cannot write '%s': there are no tokens", w->path);
	if (rc == 0)
		rc = set_make(&how, w, w->path, w->tokens, n, err);
	dt_dataset_abandon(w);
	return rc;
}

void dt_dataset_abandon(struct dt_dataset_writer *w)
{
	if (!w)
		return;
	if (w->fd >= 0)
		close(w->fd);
	free(w->path);
	free(w->source);
	free(w->hash);
	free(w->text);
	free(w->start);
	free(w->kind);
	dt_marks_release(&w->marks);
	dt_doc_labels_release(&w->labels);
	free(w);
}
/* SPDX-License-Identifier: Apache-2.0 */
