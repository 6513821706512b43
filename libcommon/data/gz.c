#include "data/gz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

struct gz_file {
	gzFile f;
	char *path;
};

int gz_open(const char *path, struct gz_file **ret, struct dt_err *err)
{
	struct gz_file *f = calloc(1, sizeof(*f));

	if (f)
		f->path = strdup(strcmp(path, "-") ? path : "standard input");
	if (!f || !f->path) {
		free(f);
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	}
	errno = 0;
	f->f = strcmp(path, "-") ? gzopen(path, "rbe") : gzdopen(dup(STDIN_FILENO), "rb");
	if (!f->f) {
		int rc = dt_err_sys(err, errno ? -errno : -ENOMEM, "cannot open '%s'", path);

		gz_close(f);
		return rc;
	}
	gzbuffer(f->f, 1 << 17);
	*ret = f;
	return 0;
}

void gz_close(struct gz_file *f)
{
	if (!f)
		return;
	if (f->f)
		gzclose_r(f->f);
	free(f->path);
	free(f);
}

int gz_read(struct gz_file *f, void *buf, int n, struct dt_err *err)
{
	int code, got;

	errno = 0;
	got = gzread(f->f, buf, (unsigned)n);
	if (got >= n)
		return got;
	gzerror(f->f, &code); /* a stream that ends early is told only here */
	if (code == Z_ERRNO && errno)
		return dt_err_sys(err, -errno, "cannot read '%s'", f->path);
	if (got < 0 || code == Z_BUF_ERROR)
		return dt_err_set(err, -EBADMSG, "'%s': the compressed file is %s", f->path,
				  code == Z_BUF_ERROR ? "truncated" : "damaged");
	return got;
}

int gz_read_all(struct gz_file *f, void *buf, size_t n, const char *what, struct dt_err *err)
{
	char *to = buf;

	while (n) {
		int part = n < (size_t)1 << 30 ? (int)n : 1 << 30, got = gz_read(f, to, part, err);

		if (got < 0)
			return got;
		if (!got)
			return dt_err_set(err, -EBADMSG, "'%s': %s is cut short", f->path, what);
		to += got;
		n -= (size_t)got;
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
