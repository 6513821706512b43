/*
 * Tokens are appended to an unlinked file (the spool). When their number is known each shard becomes an HDF5
 * file whose contiguous /tokens is made by HDF5 and filled by copying from the spool: large writes are plain
 * ones with their errno, and readers get one stretch of bytes.
 */
#include "base/crc.h"
#include "base/h5.h"
#include "base/tmpfile.h"
#include "data/dataset.h"
#include "data/tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_TOKENS 65536
#define COPY_BYTES    ((size_t)1 << 20)

struct dt_dataset_writer {
	char *path, *source, *hash, *text;
	size_t text_n;
	int32_t vocab, eot;
	int64_t max_shard, tokens, documents;
	int fd, token_bytes, shards; /* shards 0: from max_shard */
	int64_t begun;		     /* first token of the document under way */
	bool apart;		     /* starts are written down */
	int64_t *start, starts, cap; /* first token of each document so far */
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
	const char *text = dt_tokenizer_text(t, &w->text_n);
	char name[PATH_MAX];
	int rc;

	if (!w)
		return no_memory(err, path);
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
	if (snprintf(name, sizeof(name), "%s.tmp.%d.XXXXXX", w->path, (int)getpid()) >= (int)sizeof(name)) {
		rc = dt_err_sys(err, -ENAMETOOLONG, "cannot write '%s'", path);
		goto fail;
	}
	w->fd = mkostemp(name, O_CLOEXEC);
	if (w->fd < 0) {
		rc = dt_err_sys(err, -errno, "cannot write '%s'", path);
		goto fail;
	}
	unlink(name);
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

static int write_all(int fd, const char *s, size_t n, int64_t at)
{
	while (n) {
		ssize_t done = at < 0 ? write(fd, s, n) : pwrite(fd, s, n, at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		s += done;
		n -= (size_t)done;
		if (at >= 0)
			at += done;
	}
	return 0;
}

static int flush(struct dt_dataset_writer *w, struct dt_err *err)
{
	int rc = write_all(w->fd, w->buffer, (size_t)w->buffered * (size_t)w->token_bytes, -1);

	w->buffered = 0;
	return rc < 0 ? dt_err_sys(err, rc, "cannot write '%s'", w->path) : 0;
}

void dt_dataset_keep_apart(struct dt_dataset_writer *w)
{
	w->apart = true;
}

/* A document of at least one token is over: where did it begin? */
static int note_start(struct dt_dataset_writer *w, struct dt_err *err)
{
	int64_t *bigger;

	if (!w->apart || w->tokens == w->begun)
		return 0;
	if (w->starts == w->cap) {
		w->cap = w->cap ? 2 * w->cap : 1024;
		bigger = realloc(w->start, (size_t)w->cap * sizeof(*bigger));
		if (!bigger)
			return no_memory(err, w->path);
		w->start = bigger;
	}
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
	return rc < 0 ? rc : note_start(w, err);
}

struct shard_file {
	char *path;		  /* name that the index gives */
	char *target, *tmp;	  /* path less a symbolic link; "TARGET.tmp.PID" */
	int64_t first, n, offset; /* offset of the tokens in the file */
	uint32_t crc;
	bool committed;
};

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
	return dt_h5_put_list(f, "tokenizer", H5T_STD_U8LE, H5T_NATIVE_UINT8, (int64_t)w->text_n, w->text,
			      w->text_n > 4096);
}

static hid_t create_file(const char *tmp)
{
	hid_t plist = H5Pcreate(H5P_FILE_ACCESS), made = H5Pcreate(H5P_FILE_CREATE), f;

	H5Pset_libver_bounds(plist, H5F_LIBVER_V18, H5F_LIBVER_LATEST);
	H5Pset_obj_track_times(made, false); /* the same input makes the same bytes */
	f = H5Fcreate(tmp, H5F_ACC_TRUNC, made, plist);
	H5Pclose(made);
	H5Pclose(plist);
	return f;
}

/* A file with everything but the tokens, whose place is made and found. */
static int make_shard(const struct dt_dataset_writer *w, struct shard_file *s, bool whole, struct dt_err *err)
{
	hsize_t dim = (hsize_t)s->n;
	hid_t f = create_file(s->tmp), space, plist, d;
	haddr_t at = HADDR_UNDEF;
	int rc = -EIO;

	if (f < 0)
		return dt_h5_error(err, "cannot create '%s'", s->tmp);
	space = H5Screate_simple(1, &dim, NULL);
	plist = dt_h5_new_dataset();
	H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY);
	H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER);
	d = H5Dcreate2(f, "tokens", w->token_bytes == 2 ? H5T_STD_U16LE : H5T_STD_I32LE, space, H5P_DEFAULT,
		       plist, H5P_DEFAULT);
	if (d >= 0) {
		at = H5Dget_offset(d);
		H5Dclose(d);
	}
	H5Pclose(plist);
	H5Sclose(space);
	if (d >= 0 && dt_h5_put_int(f, "crc32", s->crc) == 0)
		rc = whole ? put_facts(w, f, w->documents) : dt_h5_put_text(f, "format", "dt-dataset");
	if (rc == 0 && !whole)
		rc = dt_h5_put_int(f, "version", 1);
	if (rc < 0)
		dt_h5_error(err, "cannot write '%s'", s->path);
	if (H5Fclose(f) < 0 && rc == 0)
		rc = dt_h5_error(err, "cannot write '%s'", s->path);
	if (rc == 0 && s->n && at == HADDR_UNDEF)
		rc = dt_err_set(err, -EIO, "cannot write '%s': no place for the tokens", s->path);
	s->offset = s->n ? (int64_t)at : 0;
	return rc;
}

static int read_spool(const struct dt_dataset_writer *w, char *buf, size_t n, int64_t at)
{
	while (n) {
		ssize_t got = pread(w->fd, buf, n, at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EIO;
		buf += got;
		n -= (size_t)got;
		at += got;
	}
	return 0;
}

/*
 * Goes over a shard's bytes in the spool: with fd < 0 to take their checksum, else to copy them to fd and
 * give their place in the spool back.
 */
static int pass(struct dt_dataset_writer *w, struct shard_file *s, int fd, struct dt_err *err)
{
	int64_t at = s->first * w->token_bytes, left = s->n * w->token_bytes, to = s->offset;
	uint32_t crc = 0;
	char *buf = malloc(COPY_BYTES);
	int rc = buf ? 0 : -ENOMEM;

	while (left && rc == 0) {
		size_t n = left < (int64_t)COPY_BYTES ? (size_t)left : COPY_BYTES;

		rc = read_spool(w, buf, n, at);
		if (rc == 0 && fd < 0)
			crc = dt_crc32(crc, buf, n);
		else if (rc == 0)
			rc = write_all(fd, buf, n, to);
		if (rc == 0 && fd >= 0) /* where the file system cannot, the spool just stays */
			fallocate(w->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, (off_t)n);
		at += (int64_t)n;
		to += (int64_t)n;
		left -= (int64_t)n;
	}
	free(buf);
	if (fd < 0)
		s->crc = crc;
	return rc < 0 ? dt_err_sys(err, rc, "cannot write '%s'", s->path) : 0;
}

static int write_shard(struct dt_dataset_writer *w, struct shard_file *s, bool whole, struct dt_err *err)
{
	int fd, rc = pass(w, s, -1, err);

	if (rc == 0)
		rc = make_shard(w, s, whole, err);
	if (rc < 0)
		return rc;
	fd = open(s->tmp, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return dt_err_sys(err, -errno, "cannot write '%s'", s->path);
	rc = pass(w, s, fd, err);
	if (rc == 0 && fsync(fd) < 0)
		rc = dt_err_sys(err, -errno, "cannot write '%s'", s->path);
	close(fd);
	return rc;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* /tokens of the index: the shards end to end. */
static int put_view(const struct dt_dataset_writer *w, hid_t f, const struct shard_file *s, int n)
{
	hsize_t total = (hsize_t)w->tokens;
	hid_t space = H5Screate_simple(1, &total, NULL), plist = dt_h5_new_dataset(), d;
	int rc = 0;

	for (int i = 0; i < n && rc == 0; i++) {
		hsize_t at = (hsize_t)s[i].first, count = (hsize_t)s[i].n;
		hid_t src = H5Screate_simple(1, &count, NULL);

		if (H5Sselect_hyperslab(space, H5S_SELECT_SET, &at, NULL, &count, NULL) < 0 ||
		    H5Pset_virtual(plist, space, base_name(s[i].path), "tokens", src) < 0)
			rc = -EIO;
		H5Sclose(src);
	}
	H5Sselect_all(space);
	d = rc == 0 ? H5Dcreate2(f, "tokens", w->token_bytes == 2 ? H5T_STD_U16LE : H5T_STD_I32LE, space,
				 H5P_DEFAULT, plist, H5P_DEFAULT)
		    : -1;
	rc = d >= 0 ? 0 : -EIO;
	if (d >= 0)
		H5Dclose(d);
	H5Pclose(plist);
	H5Sclose(space);
	return rc;
}

static int put_index(const struct dt_dataset_writer *w, hid_t f, const struct shard_file *s, int n)
{
	size_t width = strlen(base_name(s[0].path)) + 1;
	char *names = calloc((size_t)n, width);
	int64_t *count = calloc((size_t)n * 2, sizeof(*count));
	hid_t type = H5Tcopy(H5T_C_S1);
	int rc = -ENOMEM;

	if (!names || !count || H5Tset_size(type, width) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)
		goto out;
	for (int i = 0; i < n; i++) {
		strcpy(names + (size_t)i * width, base_name(s[i].path));
		count[i] = s[i].n;
		count[n + i] = s[i].crc;
	}
	rc = put_facts(w, f, w->documents);
	if (rc == 0)
		rc = dt_h5_put_list(f, "shards", type, type, n, names, false);
	if (rc == 0)
		rc = dt_h5_put_list(f, "shard_tokens", H5T_STD_I64LE, H5T_NATIVE_INT64, n, count, false);
	if (rc == 0)
		rc = dt_h5_put_list(f, "shard_crc32", H5T_STD_I64LE, H5T_NATIVE_INT64, n, count + n, false);
	if (rc == 0)
		rc = put_view(w, f, s, n);
out:
	H5Tclose(type);
	free(names);
	free(count);
	return rc;
}

static int write_index(const struct dt_dataset_writer *w, const char *tmp, const struct shard_file *s, int n,
		       struct dt_err *err)
{
	hid_t f = create_file(tmp);
	int rc;

	if (f < 0)
		return dt_h5_error(err, "cannot create '%s'", tmp);
	rc = put_index(w, f, s, n);
	if (rc < 0)
		dt_h5_error(err, "cannot write '%s'", w->path);
	if (H5Fclose(f) < 0 && rc == 0)
		rc = dt_h5_error(err, "cannot write '%s'", w->path);
	return rc < 0 ? rc : dt_fsync_path(tmp, err);
}

static int commit(const char *tmp, const char *path, struct dt_err *err)
{
	if (rename(tmp, path) < 0)
		return dt_err_sys(err, -errno, "cannot rename '%s' to '%s'", tmp, path);
	return 0;
}

static int count_shards(const struct dt_dataset_writer *w)
{
	int64_t n = w->shards ? w->shards : w->max_shard ? (w->tokens + w->max_shard - 1) / w->max_shard : 1;

	if (n > w->tokens)
		n = w->tokens;
	return n < 1 ? 1 : n > 99999 ? 99999 : (int)n;
}

/* "D.h5" -> "D-00002-of-00004.h5"; alone it keeps its name. */
static int name_shard(const struct dt_dataset_writer *w, struct shard_file *s, int i, int n,
		      struct dt_err *err)
{
	const char *dot = strrchr(base_name(w->path), '.');
	int stem = dot && dot != base_name(w->path) ? (int)(dot - w->path) : (int)strlen(w->path), rc;

	if (n == 1)
		s->path = strdup(w->path);
	else if (asprintf(&s->path, "%.*s-%05d-of-%05d%s", stem, w->path, i, n, w->path + stem) < 0)
		s->path = NULL;
	if (!s->path)
		return no_memory(err, w->path);
	rc = dt_out_path(s->path, &s->target, err);
	if (rc == 0 && asprintf(&s->tmp, "%s.tmp.%d", s->target, (int)getpid()) < 0) {
		s->tmp = NULL;
		rc = no_memory(err, w->path);
	}
	return rc;
}

/* Where shard i of n starts: lengths differ by at most one. */
static int64_t cut_at(const struct dt_dataset_writer *w, int i, int n)
{
	int64_t each = w->tokens / n, more = w->tokens % n;

	return each * i + (i < more ? i : more);
}

/* Shards are renamed first and the index last, so that a D.h5 that is there finds its shards. */
static int write_set(struct dt_dataset_writer *w, struct shard_file *s, int n, struct dt_err *err)
{
	char *index = NULL;
	int rc = 0;

	for (int i = 0; i < n && rc == 0; i++) {
		s[i].first = cut_at(w, i, n);
		s[i].n = cut_at(w, i + 1, n) - s[i].first;
		rc = name_shard(w, &s[i], i, n, err);
		if (rc == 0)
			rc = write_shard(w, &s[i], n == 1, err);
	}
	if (rc == 0 && n > 1) {
		if (asprintf(&index, "%s.tmp.%d", w->path, (int)getpid()) < 0)
			return no_memory(err, w->path);
		rc = write_index(w, index, s, n, err);
	}
	for (int i = 0; i < n && rc == 0; i++) {
		rc = commit(s[i].tmp, s[i].target, err);
		s[i].committed = rc == 0;
	}
	if (rc == 0 && index)
		rc = commit(index, w->path, err);
	if (rc < 0 && index)
		unlink(index);
	free(index);
	return rc;
}

static int sync_folder(const char *path, struct dt_err *err)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
	int rc = dir ? dt_fsync_dir(dir, err) : no_memory(err, path);

	free(dir);
	return rc;
}

int dt_dataset_finish(struct dt_dataset_writer *w, struct dt_err *err)
{
	struct shard_file *s = NULL;
	int n = count_shards(w), rc = flush(w, err);

	if (rc == 0)
		rc = note_start(w, err); /* of tokens whose document nobody ended */

	dt_h5_quiet();
	if (rc == 0 && w->tokens == 0)
		rc = dt_err_set(err, -EINVAL, "cannot write '%s': there are no tokens", w->path);
	if (rc == 0) {
		s = calloc((size_t)n, sizeof(*s));
		rc = s ? write_set(w, s, n, err) : no_memory(err, w->path);
	}
	for (int i = 0; s && i < n; i++) {
		if (rc < 0 && s[i].tmp && !s[i].committed)
			unlink(s[i].tmp);
		free(s[i].path);
		free(s[i].target);
		free(s[i].tmp);
	}
	free(s);
	if (rc == 0)
		rc = sync_folder(w->path, err);
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
	free(w);
}
/* SPDX-License-Identifier: Apache-2.0 */
