#include "base/crc.h"
#include "data/dataset.h"
#include "data/marks.h"
#include "data/shard_set.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_TOKENIZER ((int64_t)256 << 20)
#define VERIFY_TOKENS (1 << 20)

struct shard {
	char *path;
	hid_t file, tokens;
	int fd;		/* of the file's bytes where they are the tokens as they are used; else -1 */
	int64_t offset; /* of the tokens in it */
	int64_t first, n;
	uint32_t crc;
};

struct dt_dataset {
	char *path;
	struct shard *shard;
	int shards, token_bytes;
	bool through_hdf5; /* one of the shards */
	int64_t tokens, documents;
	int32_t vocab;
	char *hash, *source, *text;
	char *chat; /* template of its conversations; NULL: none */
	int64_t text_n;
	int64_t *start; /* [documents] first token of each, ascending; NULL: they are not kept apart */
	int64_t starts;
	uint8_t *kind; /* [starts] of enum dt_document_kind; NULL: all are plain */
	bool labelled; /* one is mismatched */
	struct dt_marks marks;
	int64_t row; /* tokens of a sample; 0: any */
};

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
		rc = dt_err_set(err, -EBADMSG, "'%s' is not a dataset of dt", path);
		dt_err_hint(err, "Make one with 'dt-dataset build'.");
		return rc;
	}
	free(format);
	return dt_h5_get_int(f, path, "version", 1, 1, &version, err);
}

/* Contiguous and in this machine's order, the tokens are read without HDF5, which is for one thread. */
static int open_bytes(struct dt_dataset *d, struct shard *s, size_t bytes, struct dt_err *err)
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

/* The tokens of one file: expect is their number when an index has said it, else -1. */
static int open_shard(struct dt_dataset *d, struct shard *s, hid_t f, int64_t expect, struct dt_err *err)
{
	size_t bytes;
	int64_t crc = 0;
	int rc = dt_h5_open_list(f, s->path, "tokens", H5T_INTEGER, &s->tokens, &s->n, &bytes, err);

	if (rc < 0)
		return rc;
	if (bytes != 2 && bytes != 4)
		return dt_err_set(err, -EBADMSG, "'%s': tokens of %zu bytes are not known", s->path, bytes);
	if (expect >= 0 && s->n != expect)
		return dt_err_set(err, -EBADMSG, "'%s' has %lld tokens, '%s' says %lld", s->path,
				  (long long)s->n, d->path, (long long)expect);
	rc = dt_h5_get_int(f, s->path, "crc32", 0, UINT32_MAX, &crc, err);
	if (rc < 0)
		return rc;
	if (expect >= 0 && crc != s->crc)
		return dt_err_set(err, -EBADMSG, "'%s' belongs to another dataset than '%s'", s->path,
				  d->path);
	s->crc = (uint32_t)crc;
	rc = open_bytes(d, s, bytes, err);
	if (rc < 0)
		return rc;
	s->first = d->tokens;
	d->token_bytes = (int)bytes;
	d->tokens += s->n;
	return 0;
}

static int open_named(struct dt_dataset *d, struct shard *s, const char *path, int64_t n, int64_t crc,
		      struct dt_err *err)
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

/* A text that is kept as a list of bytes; *ret is malloc'd and NUL-terminated. */
static int read_text(const struct dt_dataset *d, hid_t f, const char *name, char **ret, int64_t *ret_n,
		     struct dt_err *err)
{
	size_t bytes;
	hid_t list;
	int rc = dt_h5_open_list(f, d->path, name, H5T_INTEGER, &list, ret_n, &bytes, err);

	if (rc < 0)
		return rc;
	if (bytes != 1 || *ret_n > MAX_TOKENIZER)
		rc = dt_err_set(err, -EBADMSG, "'%s': '%s' is not a text", d->path, name);
	*ret = rc == 0 ? calloc(1, (size_t)*ret_n + 1) : NULL;
	if (rc == 0 && !*ret)
		rc = dt_err_sys(err, -ENOMEM, "cannot open '%s'", d->path);
	if (rc == 0 && set_read_list(list, 0, *ret_n, H5T_NATIVE_UINT8, *ret) < 0)
		rc = dt_h5_error(err, "cannot read '%s' of '%s'", name, d->path);
	H5Dclose(list);
	return rc;
}

/* Where documents begin, where the set says so. The tokens are counted already. */
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
		rc = dt_err_set(err, -EBADMSG,
				"'%s': document_starts is not a list of %lld tokens' documents", d->path,
				(long long)d->tokens);
	d->start = rc == 0 ? malloc((size_t)d->starts * sizeof(*d->start)) : NULL;
	if (rc == 0 && !d->start)
		rc = dt_err_sys(err, -ENOMEM, "cannot open '%s'", d->path);
	if (rc == 0 && set_read_list(list, 0, d->starts, H5T_NATIVE_INT64, d->start) < 0)
		rc = dt_h5_error(err, "cannot read '%s'", d->path);
	H5Dclose(list);
	for (int64_t i = 0; i < d->starts && rc == 0; i++)
		if (d->start[i] >= d->tokens || (i ? d->start[i] <= d->start[i - 1] : d->start[i] != 0))
			rc = dt_err_set(err, -EBADMSG, "'%s': document %lld begins at token %lld", d->path,
					(long long)i, (long long)d->start[i]);
	return rc;
}

/* What the documents of a set of preferences are. */
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
		rc = dt_err_set(err, -EBADMSG, "'%s': document_kinds is not a list of %lld documents' kinds",
				d->path, (long long)d->starts);
	d->kind = rc == 0 ? malloc((size_t)n) : NULL;
	if (rc == 0 && !d->kind)
		rc = dt_err_sys(err, -ENOMEM, "cannot open '%s'", d->path);
	if (rc == 0 && set_read_list(list, 0, n, H5T_NATIVE_UINT8, d->kind) < 0)
		rc = dt_h5_error(err, "cannot read '%s'", d->path);
	H5Dclose(list);
	for (int64_t i = 0; i < n && rc == 0; i++) {
		d->labelled |= d->kind[i] == DT_DOCUMENT_MISMATCHED;
		if (d->kind[i] >= DT_DOCUMENT_KINDS)
			rc = dt_err_set(err, -EBADMSG, "'%s': document %lld is of no known kind", d->path,
					(long long)i);
	}
	return rc;
}

/* Documents, targets and samples, where the set says so. */
static int read_parts(struct dt_dataset *d, hid_t f, struct dt_err *err)
{
	int rc = read_starts(d, f, err);

	if (rc == 0)
		rc = read_kinds(d, f, err);
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
	dt_marks_release(&d->marks);
	free(d);
}

/* Of the shards' checksums, or of the only one's tokens. */
static uint32_t checksum(const struct dt_dataset *d)
{
	uint32_t crc = 0;

	for (int i = 0; i < d->shards && d->shards > 1; i++)
		crc = dt_crc32(crc, &d->shard[i].crc, sizeof(d->shard[i].crc));
	return d->shards > 1 ? crc : d->shard[0].crc;
}

void dt_dataset_info(const struct dt_dataset *d, struct dt_dataset_info *ret)
{
	*ret = (struct dt_dataset_info){
		.tokens = d->tokens,
		.documents = d->documents,
		.vocab = d->vocab,
		.tokenizer_hash = d->hash,
		.tokenizer_text = d->text,
		.tokenizer_bytes = (size_t)d->text_n,
		.shards = d->shards,
		.source = d->source,
		.token_bytes = d->token_bytes,
		.apart = d->start != NULL,
		.marked = d->marks.n > 0,
		.row = d->row,
		.preferences = d->kind != NULL,
		.labelled = d->labelled,
		.chat_template = d->chat,
		.crc = checksum(d),
	};
}

/* Documents that begin before token at. */
static int64_t starts_before(const struct dt_dataset *d, int64_t at)
{
	int64_t lo = 0, hi = d->starts;

	while (lo < hi) {
		int64_t m = (lo + hi) / 2;

		if (d->start[m] < at)
			lo = m + 1;
		else
			hi = m;
	}
	return lo;
}

int64_t dt_dataset_starts(const struct dt_dataset *d, int64_t at, int64_t n)
{
	return d->start ? starts_before(d, at + n) - starts_before(d, at) : 0;
}

int64_t dt_dataset_targets(const struct dt_dataset *d, int64_t at, int64_t n)
{
	return dt_marks_count(&d->marks, at, n);
}

void dt_dataset_mask(const struct dt_dataset *d, int64_t at, int64_t n, uint8_t *ret)
{
	dt_marks_fill(&d->marks, at, n, ret);
}

enum dt_document_kind dt_dataset_kind(const struct dt_dataset *d, int64_t at)
{
	int64_t i = d->kind ? starts_before(d, at + 1) : 0;

	return i > 0 ? (enum dt_document_kind)d->kind[i - 1] : DT_DOCUMENT_PLAIN;
}

int64_t dt_dataset_document(const struct dt_dataset *d, int64_t at)
{
	return d->start ? starts_before(d, at + 1) - 1 : 0;
}

int64_t dt_dataset_documents(const struct dt_dataset *d)
{
	return d->starts;
}

int64_t dt_dataset_count(const struct dt_dataset *d, int64_t at, int64_t n, enum dt_document_kind kind)
{
	int64_t end = starts_before(d, at + n), sum = 0;

	for (int64_t i = starts_before(d, at); i < end; i++)
		sum += (d->kind ? d->kind[i] : DT_DOCUMENT_PLAIN) == kind;
	return sum;
}

void dt_dataset_first(const struct dt_dataset *d, int64_t at, int64_t n, int32_t *ret)
{
	int64_t next = d->start ? starts_before(d, at) : 0;
	int32_t first = 0;

	for (int64_t i = 0; i < n; i++) {
		if (next < d->starts && d->start[next] == at + i) {
			first = (int32_t)i;
			next++;
		}
		ret[i] = first;
	}
}

/* The shard that holds token at. */
static const struct shard *find_shard(const struct dt_dataset *d, int64_t at)
{
	int lo = 0, hi = d->shards - 1;

	while (lo < hi) {
		int m = (lo + hi + 1) / 2;

		if (d->shard[m].first <= at)
			lo = m;
		else
			hi = m - 1;
	}
	return &d->shard[lo];
}

/* u16 are read into the upper half of ret and widened from the front: the gap closes exactly at the end. */
static int read_shard(const struct dt_dataset *d, const struct shard *s, int64_t first, int64_t n,
		      int32_t *ret, struct dt_err *err)
{
	char *half = (char *)ret + 2 * n;
	bool narrow = d->token_bytes == 2;

	if (s->fd >= 0) {
		int rc = set_read(s->fd, narrow ? (void *)half : ret, (size_t)n * (size_t)d->token_bytes,
				  s->offset + first * d->token_bytes);

		if (rc < 0)
			return dt_err_sys(err, rc, "cannot read '%s'", s->path);
	} else if (set_read_list(s->tokens, first, n, narrow ? H5T_NATIVE_UINT16 : H5T_NATIVE_INT32,
				 narrow ? (void *)half : ret) < 0) {
		return dt_h5_error(err, "cannot read '%s'", s->path);
	}
	for (int64_t i = 0; i < n; i++) {
		if (narrow) {
			uint16_t v;

			memcpy(&v, half + 2 * i, 2);
			ret[i] = v;
		}
		if (ret[i] < 0 || ret[i] >= d->vocab)
			return dt_err_set(err, -EBADMSG,
					  "'%s': token %lld is %d, outside the vocabulary of %d", s->path,
					  (long long)(first + i), ret[i], d->vocab);
	}
	return 0;
}

bool dt_dataset_threads(const struct dt_dataset *d)
{
	return !d->through_hdf5;
}

int dt_dataset_read(const struct dt_dataset *d, int64_t first, int64_t n, int32_t *ret, struct dt_err *err)
{
	if (first < 0 || n < 0 || first > d->tokens || n > d->tokens - first)
		return dt_err_set(err, -ERANGE, "'%s' has %lld tokens: no %lld of them from %lld", d->path,
				  (long long)d->tokens, (long long)n, (long long)first);
	if (d->through_hdf5)
		dt_h5_quiet();
	while (n) {
		const struct shard *s = find_shard(d, first);
		int64_t at = first - s->first, part = s->n - at < n ? s->n - at : n;
		int rc = read_shard(d, s, at, part, ret, err);

		if (rc < 0)
			return rc;
		first += part;
		ret += part;
		n -= part;
	}
	return 0;
}

int dt_dataset_verify(struct dt_dataset *d, struct dt_err *err)
{
	int32_t *buf = malloc(VERIFY_TOKENS * sizeof(*buf));
	int rc = buf ? 0 : dt_err_sys(err, -ENOMEM, "cannot read '%s'", d->path);

	dt_h5_quiet();
	for (int k = 0; k < d->shards && rc == 0; k++) {
		struct shard *s = &d->shard[k];
		uint32_t crc = 0;

		for (int64_t at = 0; at < s->n && rc == 0; at += VERIFY_TOKENS) {
			int64_t n = s->n - at < VERIFY_TOKENS ? s->n - at : VERIFY_TOKENS;

			rc = read_shard(d, s, at, n, buf, err);
			for (int64_t i = 0; i < n && d->token_bytes == 2; i++) {
				uint16_t v = (uint16_t)buf[i];

				memcpy((char *)buf + 2 * i, &v, 2);
			}
			crc = dt_crc32(crc, buf, (size_t)(n * d->token_bytes));
		}
		if (rc == 0 && crc != s->crc)
			rc = dt_err_set(err, -EBADMSG, "'%s': the tokens do not have the checksum %08x",
					s->path, s->crc);
	}
	free(buf);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
