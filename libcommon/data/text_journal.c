#include "data/text_journal.h"

#include "base/crc.h"
#include "base/tmpfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORD_MAX ((uint64_t)1 << 30)

enum kind { DOCUMENTS = 1, IDS, NOTES, MARK };

struct head {
	uint32_t kind, crc;
	uint64_t bytes;
};

struct journal {
	char *dir, *path;
	FILE *f;
	off_t begin, end; /* range of the complete groups in the file */
	char *buf;	  /* one record */
	size_t cap;
};

static int failed(struct journal *j, const char *what, struct dt_err *err)
{
	return dt_err_sys(err, errno ? -errno : -EIO, "cannot %s '%s'", what, j->path);
}

/* Reads the next record: 1, or 0 if there is no complete one. */
static int next_record(struct journal *j, struct head *h, struct dt_err *err)
{
	errno = 0;
	if (fread(h, 1, sizeof(*h), j->f) != sizeof(*h))
		return ferror(j->f) ? failed(j, "read", err) : 0;
	if (h->kind < DOCUMENTS || h->kind > MARK || h->bytes > RECORD_MAX)
		return 0;
	if (h->bytes > j->cap) {
		char *grown = realloc(j->buf, h->bytes);

		if (!grown)
			return dt_err_sys(err, -ENOMEM, "cannot read '%s'", j->path);
		j->buf = grown;
		j->cap = h->bytes;
	}
	if (h->bytes && fread(j->buf, 1, h->bytes, j->f) != h->bytes)
		return ferror(j->f) ? failed(j, "read", err) : 0;
	return dt_crc32(0, j->buf, h->bytes) == h->crc;
}

/* Checks that the first line identifies this build; an empty file is a new journal. */
static int check_identity(struct journal *j, const char *identity, struct dt_err *err)
{
	char *line = NULL;
	size_t cap = 0;
	ssize_t n = getline(&line, &cap, j->f);
	const bool fresh = n <= 0 || line[n - 1] != '\n', same = !fresh &&
								 (size_t)n == strlen(identity) + 1 &&
								 !memcmp(line, identity, (size_t)n - 1);
	int rc = 0;

	free(line);
	if (!fresh && !same) {
		rc = dt_err_set(err, -EEXIST, "'%s' belongs to another build", j->path);
		dt_err_hint(err,
			    "the inputs or options differ: use another --work folder, or delete this one");
		return rc;
	}
	clearerr(j->f);
	if (fresh && (ftruncate(fileno(j->f), 0) < 0 || fseeko(j->f, 0, SEEK_SET) < 0 ||
		      fprintf(j->f, "%s\n", identity) < 0 || fflush(j->f) == EOF))
		return failed(j, "write", err);
	j->begin = j->end = ftello(j->f);
	return 0;
}

static int find_end(struct journal *j, struct dt_err *err)
{
	struct head h;
	int rc;

	while ((rc = next_record(j, &h, err)) > 0)
		if (h.kind == MARK)
			j->end = ftello(j->f);
	clearerr(j->f);
	return rc;
}

int journal_open(const char *dir, const char *identity, struct journal **ret, struct dt_err *err)
{
	struct journal *j = calloc(1, sizeof(*j));
	int fd, rc = dt_mkdir_p(dir, err);

	if (j)
		j->dir = strdup(dir);
	if (rc == 0 && (!j || !j->dir || asprintf(&j->path, "%s/journal", dir) < 0))
		rc = dt_err_sys(err, -ENOMEM, "cannot open '%s'", dir);
	if (rc == 0) {
		fd = open(j->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
		j->f = fd < 0 ? NULL : fdopen(fd, "r+");
		if (!j->f)
			rc = failed(j, "open", err);
		if (!j->f && fd >= 0)
			close(fd);
	}
	if (rc == 0)
		rc = check_identity(j, identity, err);
	if (rc == 0)
		rc = find_end(j, err);
	if (rc < 0) {
		journal_close(j);
		return rc;
	}
	*ret = j;
	return 0;
}

void journal_close(struct journal *j)
{
	if (!j)
		return;
	if (j->f)
		fclose(j->f);
	free(j->dir);
	free(j->path);
	free(j->buf);
	free(j);
}

void journal_remove(struct journal *j)
{
	unlink(j->path);
	rmdir(j->dir);
}

static int put(struct journal *j, enum kind kind, const void *data, size_t n, struct dt_err *err)
{
	const struct head h = {kind, dt_crc32(0, data, n), n};

	errno = 0;
	if (fwrite(&h, 1, sizeof(h), j->f) != sizeof(h) || fwrite(data, 1, n, j->f) != n)
		return failed(j, "write", err);
	return 0;
}

int journal_documents(struct journal *j, const struct journal_document *d, size_t n, struct dt_err *err)
{
	return put(j, DOCUMENTS, d, n * sizeof(*d), err);
}

int journal_ids(struct journal *j, const int32_t *ids, size_t n, struct dt_err *err)
{
	return put(j, IDS, ids, n * sizeof(*ids), err);
}

int journal_notes(struct journal *j, const char *text, size_t n, struct dt_err *err)
{
	return put(j, NOTES, text, n, err);
}

int journal_end(struct journal *j, const struct journal_mark *m, struct dt_err *err)
{
	int rc = put(j, MARK, m, sizeof(*m), err);

	return rc == 0 && fflush(j->f) == EOF ? failed(j, "write", err) : rc;
}

static int hand_out(const struct journal *j, const struct head *h, const struct journal_sink *to,
		    struct dt_err *err)
{
	const void *p = j->buf;
	struct journal_mark m;

	switch (h->kind) {
	case DOCUMENTS:
		return to->documents(to->ctx, p, h->bytes / sizeof(struct journal_document), err);
	case IDS:
		return to->ids(to->ctx, p, h->bytes / sizeof(int32_t), err);
	case NOTES:
		return to->notes(to->ctx, p, h->bytes, err);
	default:
		if (h->bytes != sizeof(m))
			return dt_err_set(err, -EBADMSG, "'%s' is damaged", j->path);
		memcpy(&m, p, sizeof(m));
		return to->end(to->ctx, &m, err);
	}
}

int journal_replay(struct journal *j, const struct journal_sink *to, struct dt_err *err)
{
	struct head h;
	int rc = fseeko(j->f, j->begin, SEEK_SET) < 0 ? failed(j, "read", err) : 0;

	while (rc == 0 && ftello(j->f) < j->end) {
		rc = next_record(j, &h, err);
		rc = rc > 0    ? hand_out(j, &h, to, err)
		     : rc == 0 ? dt_err_set(err, -EBADMSG, "'%s' was changed while it was read", j->path)
			       : rc;
	}
	if (rc == 0 && (ftruncate(fileno(j->f), j->end) < 0 || fseeko(j->f, j->end, SEEK_SET) < 0))
		rc = failed(j, "cut", err);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
