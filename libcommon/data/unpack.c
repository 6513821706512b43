#include "data/unpack.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <zlib.h>
#ifdef DT_HAVE_ZSTD
#include <zstd.h>
#endif

#define BUFFER_BYTES 131072

struct unpack {
	FILE *f;      /* NULL: a command that has ended */
	bool command; /* f is a command's pipe */
	char *path;
	unsigned char buffer[BUFFER_BYTES];
	size_t at, n; /* unread bytes of the buffer */
	enum { PLAIN, GZIP, ZSTD } kind;
	z_stream z;
	bool inside; /* inside a gzip member or a zstd frame */
#ifdef DT_HAVE_ZSTD
	ZSTD_DStream *zstd;
#endif
};

static int damaged(const struct unpack *u, const char *how, struct dt_err *err)
{
	return dt_err_set(err, -EBADMSG, "'%s': the compressed file is %s", u->path, how);
}

/* At the end of a command's output: checks its exit status. */
static int ended(struct unpack *u, struct dt_err *err)
{
	int status = pclose(u->f);

	u->f = NULL;
	if (status < 0)
		return dt_err_sys(err, -errno, "cannot wait for '%s'", u->path);
	if (WIFSIGNALED(status))
		return dt_err_set(err, -EIO, "'%s': signal %d ended the command", u->path, WTERMSIG(status));
	if (WEXITSTATUS(status))
		return dt_err_set(err, -EIO, "'%s': the command failed with status %d", u->path,
				  WEXITSTATUS(status));
	return 0;
}

/* Fills the buffer if it is empty. Returns the bytes in it, 0 at the end. */
static int fill(struct unpack *u, struct dt_err *err)
{
	if (u->at < u->n)
		return (int)(u->n - u->at);
	errno = 0;
	u->at = u->n = 0;
	if (!u->f)
		return 0;
	u->n = fread(u->buffer, 1, sizeof(u->buffer), u->f);
	if (!u->n && ferror(u->f))
		return dt_err_sys(err, errno ? -errno : -EIO, "cannot read '%s'", u->path);
	return !u->n && u->command ? ended(u, err) : (int)u->n;
}

/* Recognizes other formats, which would pass for text, by their first bytes. No text begins like them. */
static int foreign(const struct unpack *u, struct dt_err *err)
{
	static const struct {
		const char *name, *instead;
		size_t at, n;
		char magic[8];
	} known[] = {{"xz", "use '|xz -dc FILE'", 0, 6, "\3757zXZ"},
		     {"bzip2", "use '|bzip2 -dc FILE'", 4, 6, "1AY&SY"},
		     {"lz4", "use '|lz4 -dc FILE'", 0, 4, "\4\"M\30"},
		     {"zip",
		      "for text use '|unzip -p FILE'; unpack images into a folder, or make a tar of them", 0,
		      4, "PK\3\4"},
		     {"Parquet", "use '|contrib/parquet-jsonl FILE' with --format jsonl", 0, 5, "PAR1\25"},
		     {"HDF5", "if it is a data set of dt, 'dt-dataset cat' prints its text", 0, 8,
		      "\211HDF\r\n\32\n"}};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (u->n < known[i].at + known[i].n ||
		    memcmp(u->buffer + known[i].at, known[i].magic, known[i].n))
			continue;
		dt_err_set(err, -ENOTSUP, "'%s' is a %s file, which is not supported", u->path,
			   known[i].name);
		dt_err_hint(err, "%s", known[i].instead);
		return -ENOTSUP;
	}
	return 0;
}

static int start(struct unpack *u, struct dt_err *err)
{
	static const unsigned char zstd_magic[] = {0x28, 0xb5, 0x2f, 0xfd};
	int rc = fill(u, err);

	if (rc < 0)
		return rc;
	if (u->n >= 2 && u->buffer[0] == 0x1f && u->buffer[1] == 0x8b) {
		u->kind = GZIP;
		if (inflateInit2(&u->z, 15 + 16) != Z_OK)
			return dt_err_sys(err, -ENOMEM, "cannot read '%s'", u->path);
	} else if (u->n >= 4 && !memcmp(u->buffer, zstd_magic, 4)) {
#ifdef DT_HAVE_ZSTD
		u->kind = ZSTD;
		u->zstd = ZSTD_createDStream();
		if (!u->zstd)
			return dt_err_sys(err, -ENOMEM, "cannot read '%s'", u->path);
#else
		return dt_err_set(err, -ENOTSUP, "'%s': cannot read zstd: this dt was built without libzstd",
				  u->path);
#endif
	} else {
		return foreign(u, err);
	}
	return 0;
}

bool unpack_is_file(const char *path)
{
	return strcmp(path, "-") != 0 && path[0] != '|';
}

int unpack_open(const char *path, struct unpack **ret, struct dt_err *err)
{
	bool in = !strcmp(path, "-");
	struct unpack *u = calloc(1, sizeof(*u));
	int rc;

	if (u)
		u->path = strdup(in ? "standard input" : path);
	if (!u || !u->path) {
		free(u);
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	}
	u->command = path[0] == '|';
	u->f = in ? stdin : u->command ? popen(path + 1, "re") : fopen(path, "rbe");
	rc = u->f ? start(u, err) : dt_err_sys(err, -errno, "cannot open '%s'", path);
	if (rc < 0) {
		unpack_close(u);
		return rc;
	}
	*ret = u;
	return 0;
}

void unpack_close(struct unpack *u)
{
	if (!u)
		return;
	if (u->kind == GZIP)
		inflateEnd(&u->z);
#ifdef DT_HAVE_ZSTD
	ZSTD_freeDStream(u->zstd);
#endif
	if (u->f && u->command)
		pclose(u->f); /* if it is still running, it gets SIGPIPE */
	else if (u->f && u->f != stdin)
		fclose(u->f);
	free(u->path);
	free(u);
}

bool unpack_is_packed(const struct unpack *u)
{
	return u->kind != PLAIN;
}

/* Reads gzip members one after another, as pigz and cat write them. */
static int read_gzip(struct unpack *u, void *buf, int n, struct dt_err *err)
{
	u->z.next_out = buf;
	u->z.avail_out = (unsigned)n;
	while (u->z.avail_out == (unsigned)n) {
		int have = fill(u, err), code;

		if (have < 0)
			return have;
		if (!have)
			return u->inside ? damaged(u, "truncated", err) : 0;
		u->inside = true;
		u->z.next_in = u->buffer + u->at;
		u->z.avail_in = (unsigned)have;
		code = inflate(&u->z, Z_NO_FLUSH);
		u->at = u->n - u->z.avail_in;
		if (code == Z_STREAM_END) {
			u->inside = false;
			inflateReset(&u->z);
		} else if (code != Z_OK && code != Z_BUF_ERROR) {
			return damaged(u, "damaged", err);
		}
	}
	return n - (int)u->z.avail_out;
}

#ifdef DT_HAVE_ZSTD
static int read_zstd(struct unpack *u, void *buf, int n, struct dt_err *err)
{
	ZSTD_outBuffer out = {buf, (size_t)n, 0};

	while (!out.pos) {
		int have = fill(u, err);
		ZSTD_inBuffer in = {u->buffer, u->n, u->at};
		size_t code;

		if (have < 0)
			return have;
		if (!have && !u->inside)
			return 0;
		/* without input it flushes what it still holds */
		code = ZSTD_decompressStream(u->zstd, &out, &in);
		u->at = in.pos;
		if (ZSTD_isError(code))
			return damaged(u, "damaged", err);
		u->inside = code != 0;
		if (!have && !out.pos && u->inside)
			return damaged(u, "truncated", err);
	}
	return (int)out.pos;
}
#endif

int unpack_read(struct unpack *u, void *buf, int n, struct dt_err *err)
{
	int have;

	if (n < 1)
		return 0;
	if (u->kind == GZIP)
		return read_gzip(u, buf, n, err);
#ifdef DT_HAVE_ZSTD
	if (u->kind == ZSTD)
		return read_zstd(u, buf, n, err);
#endif
	have = fill(u, err);
	if (have <= 0)
		return have;
	have = have < n ? have : n;
	memcpy(buf, u->buffer + u->at, (size_t)have);
	u->at += (size_t)have;
	return have;
}

int unpack_all(struct unpack *u, void *buf, size_t n, const char *what, struct dt_err *err)
{
	char *to = buf;

	while (n) {
		int part = n < (size_t)1 << 30 ? (int)n : 1 << 30, got = unpack_read(u, to, part, err);

		if (got < 0)
			return got;
		if (!got)
			return dt_err_set(err, -EBADMSG, "'%s': %s is cut short", u->path, what);
		to += got;
		n -= (size_t)got;
	}
	return 0;
}

int unpack_rest(struct unpack *u, size_t most, char **ret, size_t *ret_n, struct dt_err *err)
{
	size_t room = 0, n = 0;
	char *buf = NULL;
	int got = 0;

	do {
		n += (size_t)got;
		if (n > most) {
			got = dt_err_set(err, -EFBIG, "'%s' is larger than %zu bytes", u->path, most);
			break;
		}
		if (room - n < BUFFER_BYTES + 1) {
			char *grown = realloc(buf, room = room * 2 + BUFFER_BYTES + 1);

			if (!grown) {
				got = dt_err_sys(err, -ENOMEM, "cannot hold a text of %zu bytes", room);
				break;
			}
			buf = grown;
		}
	} while ((got = unpack_read(u, buf + n, BUFFER_BYTES, err)) > 0);
	if (got < 0) {
		free(buf);
		return got;
	}
	buf[n] = '\0';
	*ret = buf;
	*ret_n = n;
	return 0;
}

int unpack_whole(const char *path, size_t most, char **ret, size_t *ret_n, struct dt_err *err)
{
	struct unpack *u;
	int rc = unpack_open(path, &u, err);

	if (rc < 0)
		return rc;
	rc = unpack_rest(u, most, ret, ret_n, err);
	unpack_close(u);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
