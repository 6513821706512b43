/* Opens a token set: finds its shards and checks that they are complete. */
#include "data/dataset_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_TOKENIZER ((int64_t)256 << 20)

static int check_format(hid_t f, const char *path, struct dt_err *err)
{
	char *format = NULL;
	int64_t version;
	int rc = dt_h5_get_text(f, path, "format", &format, err);

	if (rc == 0 && !strcmp(format, "dt-images")) {
		free(format);
		return dt_err_set(err, -EBADMSG, "'%s' holds images, not tokens", path);
	}
	if (rc < 0 || strcmp(format, "dt-dataset")) {
		free(format);
		rc = dt_err_set(err, -EBADMSG, "'%s' is not a dataset made by dt", path);
		dt_err_hint(err, "make one with 'dt-dataset build'");
		return rc;
	}
	free(format);
	return dt_h5_get_int(f, path, "version", 1, 1, &version, err);
}

/* If tokens are contiguous and in native byte order, they are read without HDF5, which is not thread-safe. */
static int open_bytes(struct dt_dataset *d, struct dt_dataset_shard *s, size_t bytes, struct dt_err *err)
{
	hid_t type = H5Dget_type(s->tokens);
	bool plain = H5Tequal(type, bytes == 2 ? H5T_NATIVE_UINT16 : H5T_NATIVE_INT32) > 0;
	haddr_t at = H5Dget_offset(s->tokens);
	struct stat st;

	H5Tclose(type);
	if (!plain || at == HADDR_UNDEF) {
		d->through_hdf5 = true;
		return 0;
	}
	s->fd = open(s->path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0 || fstat(s->fd, &st) < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", s->path);
	if ((int64_t)at > st.st_size || s->n > (st.st_size - (int64_t)at) / (int64_t)bytes)
		return dt_err_set(err, -EBADMSG, "'%s': the file is truncated", s->path);
	s->offset = (int64_t)at;
	return 0;
}

/* Opens the tokens of one file; expect: their number from an index, -1: unknown. */
static int open_shard(struct dt_dataset *d, struct dt_dataset_shard *s, hid_t f, int64_t expect,
		      struct dt_err *err)
{
	size_t bytes;
	int64_t crc = 0;
	int rc = dt_h5_open_list(f, s->path, "tokens", H5T_INTEGER, &s->tokens, &s->n, &bytes, err);

	if (rc < 0)
		return rc;
	if (bytes != 2 && bytes != 4)
		return dt_err_set(err, -EBADMSG, "'%s': tokens of %zu bytes are not supported", s->path,
				  bytes);
	if (expect >= 0 && s->n != expect)
		return dt_err_set(err, -EBADMSG, "'%s' has %lld tokens, '%s' says %lld", s->path,
				  (long long)s->n, d->path, (long long)expect);
	rc = dt_h5_get_int(f, s->path, "crc32", 0, UINT32_MAX, &crc, err);
	if (rc < 0)
		return rc;
	if (expect >= 0 && crc != s->crc)
		return dt_err_set(err, -EBADMSG, "'%s' belongs to another dataset than '%s'", s->path,
				  d->path);
	if (d->token_bytes && d->token_bytes != (int)bytes)
		return dt_err_set(err, -EBADMSG, "'%s': tokens of %zu bytes, but %d in the shards before it",
				  s->path, bytes, d->token_bytes);
	s->crc = (uint32_t)crc;
	rc = open_bytes(d, s, bytes, err);
	if (rc < 0)
		return rc;
	s->first = d->tokens;
	d->token_bytes = (int)bytes;
	d->tokens += s->n;
	return 0;
}

static int open_named(struct dt_dataset *d, struct dt_dataset_shard *s, const char *path, int64_t n,
		      int64_t crc, struct dt_err *err)
{
	int rc;

	s->path = strdup(path);
	if (!s->path)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", d->path);
	s->crc = (uint32_t)crc;
	rc = dt_h5_open(s->path, &s->file, err);
	if (rc == 0)
		rc = check_format(s->file, s->path, err);
	return rc < 0 ? rc : open_shard(d, s, s->file, n, err);
}

static int alloc_shards(struct dt_dataset *d, int n, struct dt_err *err)
{
	d->shard = calloc((size_t)n, sizeof(*d->shard));
	if (!d->shard)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", d->path);
	d->shards = n;
	for (int i = 0; i < d->shards; i++)
		d->shard[i].file = d->shard[i].tokens = d->shard[i].fd = -1;
	return 0;
}

static int open_shards(struct dt_dataset *d, hid_t f, struct dt_err *err)
{
	struct set_index x = {0};
	int rc = set_read_index(f, d->path, "shard_tokens", &x, err);

	if (rc == 0)
		rc = alloc_shards(d, x.n, err);
	for (int i = 0; i < x.n && rc == 0; i++)
		rc = open_named(d, &d->shard[i], x.path[i], x.count[i], x.crc[i], err);
	set_index_free(&x);
	return rc;
}

/* Reads a text stored as a list of bytes; *ret is malloc'd and NUL-terminated. */
static int read_text(const struct dt_dataset *d, hid_t f, const char *name, char **ret, int64_t *ret_n,
		     struct dt_err *err)
{
	size_t bytes;
	hid_t list;
	int rc = dt_h5_open_list(f, d->path, name, H5T_INTEGER, &list, ret_n, &bytes, err);

	if (rc < 0)
		return rc;
	if (bytes != 1 || *ret_n > MAX_TOKENIZER)
		rc = dt_err_set(err, -EBADMSG, "'%s': '%s' is not a string", d->path, name);
	*ret = rc == 0 ? calloc(1, (size_t)*ret_n + 1) : NULL;
	if (rc == 0 && !*ret)
		rc = dt_err_sys(err, -ENOMEM, "cannot open '%s'", d->path);
	if (rc == 0 && set_read_list(list, 0, *ret_n, H5T_NATIVE_UINT8, *ret) < 0)
		rc = dt_h5_error(err, "cannot read '%s' of '%s'", name, d->path);
	H5Dclose(list);
	return rc;
}

/* Reads the starts of documents, if the set has them. The number of tokens is known. */
static int read_starts(struct dt_dataset *d, hid_t f, struct dt_err *err)
{
	size_t bytes;
	hid_t list;
	int rc;

	if (H5Lexists(f, "document_starts", H5P_DEFAULT) <= 0)
		return 0;
	rc = dt_h5_open_list(f, d->path, "document_starts", H5T_INTEGER, &list, &d->starts, &bytes, err);
	if (rc < 0)
		return rc;
	if (d->starts < 1 || d->starts > d->tokens || bytes != 8)
		rc = dt_err_set(err, -EBADMSG, "'%s': document_starts does not fit a dataset of %lld tokens",
				d->path, (long long)d->tokens);
	d->start = rc == 0 ? malloc((size_t)d->starts * sizeof(*d->start)) : NULL;
	if (rc == 0 && !d->start)
		rc = dt_err_sys(err, -ENOMEM, "cannot open '%s'", d->path);
	if (rc == 0 && set_read_list(list, 0, d->starts, H5T_NATIVE_INT64, d->start) < 0)
		rc = dt_h5_error(err, "cannot read '%s'", d->path);
	H5Dclose(list);
	for (int64_t i = 0; i < d->starts && rc == 0; i++)
		if (d->start[i] >= d->tokens || (i ? d->start[i] <= d->start[i - 1] : d->start[i] != 0))
			rc = dt_err_set(err, -EBADMSG, "'%s': document %lld has an invalid start, token %lld",
					d->path, (long long)i, (long long)d->start[i]);
	return rc;
}

/* Reads the kinds of documents of a preference set. */
static int read_kinds(struct dt_dataset *d, hid_t f, struct dt_err *err)
{
	int64_t n = 0;
	size_t bytes;
	hid_t list;
	int rc;

	if (H5Lexists(f, "document_kinds", H5P_DEFAULT) <= 0)
		return 0;
	rc = dt_h5_open_list(f, d->path, "document_kinds", H5T_INTEGER, &list, &n, &bytes, err);
	if (rc < 0)
		return rc;
	if (n != d->starts || bytes != 1)
		rc = dt_err_set(err, -EBADMSG,
				"'%s': document_kinds does not fit a dataset of %lld documents", d->path,
				(long long)d->starts);
	d->kind = rc == 0 ? malloc((size_t)n) : NULL;
	if (rc == 0 && !d->kind)
		rc = dt_err_sys(err, -ENOMEM, "cannot open '%s'", d->path);
	if (rc == 0 && set_read_list(list, 0, n, H5T_NATIVE_UINT8, d->kind) < 0)
		rc = dt_h5_error(err, "cannot read '%s'", d->path);
	H5Dclose(list);
	for (int64_t i = 0; i < n && rc == 0; i++) {
		d->labelled |= d->kind[i] == DT_DOCUMENT_MISMATCHED;
		if (d->kind[i] >= DT_DOCUMENT_KINDS)
			rc = dt_err_set(err, -EBADMSG, "'%s': document %lld has an unknown kind", d->path,
					(long long)i);
	}
	return rc;
}

/* Reads documents, targets and samples, if the set has them. */
static int read_parts(struct dt_dataset *d, hid_t f, struct dt_err *err)
{
	int rc = read_starts(d, f, err);

	if (rc == 0)
		rc = read_kinds(d, f, err);
	if (rc == 0)
		rc = dt_doc_labels_read(&d->labels, f, d->path, d->start, d->starts, d->tokens, err);
	if (rc == 0)
		rc = dt_marks_read(&d->marks, f, d->path, d->tokens, err);
	if (rc == 0 && H5Lexists(f, "chat_template", H5P_DEFAULT) > 0)
		rc = read_text(d, f, "chat_template", &d->chat, &(int64_t){0}, err);
	if (rc == 0 && H5Aexists(f, "row") > 0)
		rc = dt_h5_get_int(f, d->path, "row", 1, 1 << 24, &d->row, err);
	return rc;
}

static int open_all(struct dt_dataset *d, struct dt_err *err)
{
	int64_t vocab = 0;
	hid_t f;
	int rc = dt_h5_open(d->path, &f, err);

	if (rc == -EBADMSG)
		dt_err_hint(err, DT_DATASET_MADE_BY);
	if (rc < 0)
		return rc;
	rc = check_format(f, d->path, err);
	if (rc == 0)
		rc = dt_h5_get_int(f, d->path, "vocab", 1, INT32_MAX, &vocab, err);
	if (rc == 0)
		rc = dt_h5_get_int(f, d->path, "documents", 0, INT64_MAX, &d->documents, err);
	if (rc == 0)
		rc = dt_h5_get_text(f, d->path, "tokenizer_hash", &d->hash, err);
	if (rc == 0)
		rc = dt_h5_get_text(f, d->path, "source", &d->source, err);
	if (rc == 0)
		rc = read_text(d, f, "tokenizer", &d->text, &d->text_n, err);
	d->vocab = (int32_t)vocab;
	if (rc == 0 && H5Lexists(f, "shards", H5P_DEFAULT) > 0) {
		rc = open_shards(d, f, err);
	} else if (rc == 0) {
		rc = alloc_shards(d, 1, err);
		if (rc == 0) {
			d->shard[0].path = strdup(d->path);
			d->shard[0].file = f;
			rc = d->shard[0].path ? open_shard(d, &d->shard[0], f, -1, err)
					      : dt_err_sys(err, -ENOMEM, "cannot open '%s'", d->path);
			return rc < 0 ? rc : read_parts(d, f, err);
		}
	}
	if (rc == 0)
		rc = read_parts(d, f, err);
	H5Fclose(f);
	return rc;
}

int dt_dataset_open(const char *path, struct dt_dataset **ret, struct dt_err *err)
{
	struct dt_dataset *d = calloc(1, sizeof(*d));
	int rc;

	if (d)
		d->path = strdup(path);
	if (!d || !d->path) {
		free(d);
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	}
	dt_h5_quiet();
	rc = open_all(d, err);
	if (rc < 0) {
		dt_dataset_close(d);
		return rc;
	}
	*ret = d;
	return 0;
}

void dt_dataset_close(struct dt_dataset *d)
{
	if (!d)
		return;
	dt_h5_quiet();
	for (int i = 0; i < d->shards; i++) {
		if (d->shard[i].tokens >= 0)
			H5Dclose(d->shard[i].tokens);
		if (d->shard[i].file >= 0)
			H5Fclose(d->shard[i].file);
		if (d->shard[i].fd >= 0)
			close(d->shard[i].fd);
		free(d->shard[i].path);
	}
	free(d->shard);
	free(d->path);
	free(d->hash);
	free(d->source);
	free(d->text);
	free(d->start);
	free(d->kind);
	free(d->chat);
	dt_doc_labels_release(&d->labels);
	dt_marks_release(&d->marks);
	free(d);
}
/* SPDX-License-Identifier: Apache-2.0 */
