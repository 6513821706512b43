#include "base/tmpfile.h"

#include "base/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int fsync_open(const char *path, int flags, struct dt_err *err)
{
	int fd = open(path, flags | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	if (fsync(fd) < 0)
		rc = dt_err_sys(err, -errno, "cannot flush '%s' to disk", path);
	close(fd);
	return rc;
}

int dt_fsync_dir(const char *path, struct dt_err *err)
{
	return fsync_open(path, O_RDONLY | O_DIRECTORY, err);
}

int dt_fsync_path(const char *path, struct dt_err *err)
{
	return fsync_open(path, O_RDONLY, err);
}

static int fsync_parent(const char *path, struct dt_err *err)
{
	char copy[PATH_MAX];

	snprintf(copy, sizeof(copy), "%s", path);
	return dt_fsync_dir(dirname(copy), err);
}

static void tmpfile_clear(struct dt_tmpfile *t)
{
	free(t->path);
	free(t->tmp);
	memset(t, 0, sizeof(*t));
}

static const char *kind_of(mode_t mode)
{
	return S_ISDIR(mode)	? "a folder"
	       : S_ISFIFO(mode) ? "a FIFO"
	       : S_ISSOCK(mode) ? "a socket"
				: "a device";
}

/* Returns path, or the target if it is a symbolic link; malloc'd. *ret_mode is 0 for a missing file. */
static int resolve(const char *path, char **ret, mode_t *ret_mode, struct dt_err *err)
{
	struct stat st;
	bool link;

	if (lstat(path, &st) < 0) {
		if (errno != ENOENT)
			return dt_err_sys(err, -errno, "cannot write '%s'", path);
		if (!*path || path[strlen(path) - 1] == '/')
			return dt_err_set(err, -ENOENT, "cannot write '%s': no name of a file", path);
		st.st_mode = 0;
	}
	link = S_ISLNK(st.st_mode);
	if (link && stat(path, &st) < 0)
		return errno == ENOENT
			       ? dt_err_set(err, -ENOENT,
					    "cannot write '%s': it is a symbolic link to a missing file",
					    path)
			       : dt_err_sys(err, -errno, "cannot write '%s'", path);
	*ret = link ? realpath(path, NULL) : strdup(path);
	*ret_mode = st.st_mode;
	return *ret ? 0 : dt_err_sys(err, -errno, "cannot write '%s'", path);
}

int dt_out_path(const char *path, char **ret, struct dt_err *err)
{
	char *full;
	mode_t mode;
	int rc = resolve(path, &full, &mode, err);

	if (rc < 0)
		return rc;
	if (mode && !S_ISREG(mode)) {
		free(full);
		return dt_err_set(err, S_ISDIR(mode) ? -EISDIR : -EINVAL, "cannot write '%s': it is %s", path,
				  kind_of(mode));
	}
	*ret = full;
	return 0;
}

int dt_out_check(const char *path, struct dt_err *err)
{
	char *full = NULL;
	mode_t mode = 0;
	int rc = resolve(path, &full, &mode, err);

	if (rc < 0)
		return rc;
	if (S_ISDIR(mode) || S_ISSOCK(mode))
		rc = dt_err_set(err, S_ISDIR(mode) ? -EISDIR : -EINVAL, "cannot write '%s': it is %s", path,
				kind_of(mode));
	else if (access(!mode || S_ISREG(mode) ? dirname(full) : full, W_OK) < 0)
		rc = dt_err_sys(err, -errno, "cannot write '%s'", path);
	free(full);
	return rc;
}

int dt_out_check_dir(const char *path, struct dt_err *err)
{
	char copy[PATH_MAX], *at = copy;
	struct stat st;

	if ((size_t)snprintf(copy, sizeof(copy), "%s", path) >= sizeof(copy))
		return dt_err_sys(err, -ENAMETOOLONG, "cannot write into '%s'", path);
	while (lstat(at, &st) < 0 && errno == ENOENT && strcmp(at, ".") && strcmp(at, "/"))
		at = dirname(at);
	if (stat(at, &st) < 0)
		return errno == ENOENT ? dt_err_set(err, -ENOENT,
						    "cannot write into '%s': '%s' is a symbolic link to a "
						    "missing folder",
						    path, at)
				       : dt_err_sys(err, -errno, "cannot write into '%s'", path);
	if (!S_ISDIR(st.st_mode) && strlen(at) == strlen(path))
		return dt_err_set(err, -ENOTDIR, "cannot write into '%s': it is %s", path,
				  S_ISREG(st.st_mode) ? "a file" : kind_of(st.st_mode));
	if (!S_ISDIR(st.st_mode))
		return dt_err_sys(err, -ENOTDIR, "cannot write into '%s'", path);
	return access(at, W_OK | X_OK) < 0 ? dt_err_sys(err, -errno, "cannot write into '%s'", path) : 0;
}

/* The next part of a path that is not ".", its length; 0 at the end. */
static size_t next_part(const char **p)
{
	size_t n;

	do {
		*p += strspn(*p, "/");
		n = strcspn(*p, "/");
	} while (n == 1 && **p == '.' && ++*p);
	return n;
}

bool dt_out_in(const char *path, const char *dir)
{
	char cwd[PATH_MAX] = "", full[2][2 * PATH_MAX];
	const char *a = full[0], *b = full[1];
	size_t n, m;

	if (*path != '/' || *dir != '/')
		(void)!getcwd(cwd, sizeof(cwd));
	snprintf(full[0], sizeof(full[0]), "%s/%s", *path == '/' ? "" : cwd, path);
	snprintf(full[1], sizeof(full[1]), "%s/%s", *dir == '/' ? "" : cwd, dir);
	while ((m = next_part(&b)) > 0) {
		n = next_part(&a);
		if (n != m || strncmp(a, b, n))
			return false;
		a += n;
		b += n;
	}
	n = next_part(&a);
	a += n;
	return n > 0 && next_part(&a) == 0;
}

/* Whether two names of missing files are the same: equal names in the same folder. */
static bool same_name(const char *a, const char *b)
{
	char dir_a[PATH_MAX], dir_b[PATH_MAX], name_a[PATH_MAX], name_b[PATH_MAX];
	struct stat x, y;

	snprintf(dir_a, sizeof(dir_a), "%s", a);
	snprintf(dir_b, sizeof(dir_b), "%s", b);
	strcpy(name_a, dir_a);
	strcpy(name_b, dir_b);
	return !strcmp(basename(name_a), basename(name_b)) && stat(dirname(dir_a), &x) == 0 &&
	       stat(dirname(dir_b), &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool dt_out_is(const char *out, const char *in)
{
	struct stat x, y;

	if ((strcmp(in, "-") ? stat(in, &y) : fstat(STDIN_FILENO, &y)) < 0)
		return stat(out, &x) < 0 && same_name(out, in);
	return stat(out, &x) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Opens a FIFO once a program reads it. */
static int open_fifo(const char *path, FILE **ret, struct dt_err *err)
{
	const struct timespec nap = {.tv_nsec = 20 * 1000 * 1000};
	int fd;

	while ((fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0 && errno == ENXIO) {
		if (dt_signals_ending())
			return dt_err_set(err, -EINTR,
					  "cannot write '%s': a signal came before a program read this FIFO",
					  path);
		nanosleep(&nap, NULL);
	}
	if (fd >= 0 && fcntl(fd, F_SETFL, O_WRONLY) == 0 && (*ret = fdopen(fd, "w")))
		return 0;
	dt_err_sys(err, -errno, "cannot write '%s'", path);
	if (fd >= 0)
		close(fd);
	return err->code;
}

int dt_out_stream(const char *path, bool append, FILE **ret, struct dt_err *err)
{
	char *full;
	mode_t mode;
	FILE *f;
	int rc = resolve(path, &full, &mode, err);

	if (rc < 0)
		return rc;
	if (S_ISFIFO(mode)) {
		rc = open_fifo(full, ret, err);
		free(full);
		return rc;
	}
	f = fopen(full, append ? "ae" : "we");
	free(full);
	if (!f)
		return dt_err_sys(err, -errno, "cannot write '%s'", path);
	*ret = f;
	return 0;
}

int dt_tmpfile_open(struct dt_tmpfile *t, const char *path, struct dt_err *err)
{
	mode_t mode;
	int rc;

	memset(t, 0, sizeof(*t));
	rc = resolve(path, &t->path, &mode, err);
	if (rc < 0)
		return rc;
	if (mode && !S_ISREG(mode)) {
		/* A rename over /dev/null would replace the device for every program of the machine. */
		t->f = fopen(path, "we");
		if (t->f)
			return 0;
		rc = dt_err_sys(err, -errno, "cannot open '%s'", path);
		tmpfile_clear(t);
		return rc;
	}
	if (asprintf(&t->tmp, "%s.tmp.%d", t->path, (int)getpid()) < 0) {
		t->tmp = NULL;
		tmpfile_clear(t);
		return dt_err_sys(err, -ENOMEM, "cannot create '%s'", path);
	}
	unlink(t->tmp); /* left by a killed process with the same PID */
	t->f = fopen(t->tmp, "wxe");
	if (t->f && mode) /* who could not read the old file shall not read the new one */
		(void)!fchmod(fileno(t->f), mode & 0777);
	if (!t->f) {
		rc = dt_err_sys(err, -errno, "cannot create '%s'", t->path);
		tmpfile_clear(t);
		return rc;
	}
	return 0;
}

/*
 * Flushes. An earlier write that failed is an error too: fflush says why if bytes are left in the buffer, and
 * else one more byte does, in a file that is removed anyway.
 */
static int flush(const struct dt_tmpfile *t)
{
	errno = 0;
	if (fflush(t->f) == 0 && !ferror(t->f))
		return 0;
	if (!errno && t->tmp && fputc(0, t->f) != EOF)
		fflush(t->f);
	return errno ? -errno : -EIO;
}

static int finish(struct dt_tmpfile *t, bool durable, struct dt_err *err)
{
	int rc = flush(t);

	if (rc == 0 && durable && t->tmp && fsync(fileno(t->f)) < 0)
		rc = -errno;
	if (rc < 0)
		dt_err_sys(err, rc, "cannot write '%s'", t->path);
	if (fclose(t->f) == EOF && rc == 0)
		rc = dt_err_sys(err, -errno, "cannot write '%s'", t->path);
	t->f = NULL;
	if (!t->tmp) {
		tmpfile_clear(t);
		return rc;
	}
	if (rc == 0 && rename(t->tmp, t->path) < 0)
		rc = dt_err_sys(err, -errno, "cannot rename '%s' to '%s'", t->tmp, t->path);
	if (rc < 0)
		unlink(t->tmp);
	else if (durable)
		rc = fsync_parent(t->path, err);
	tmpfile_clear(t);
	return rc;
}

int dt_tmpfile_commit(struct dt_tmpfile *t, struct dt_err *err)
{
	return finish(t, true, err);
}

int dt_tmpfile_publish(struct dt_tmpfile *t, struct dt_err *err)
{
	return finish(t, false, err);
}

void dt_tmpfile_abort(struct dt_tmpfile *t)
{
	if (!t->f)
		return;
	fclose(t->f);
	if (t->tmp)
		unlink(t->tmp);
	tmpfile_clear(t);
}

int dt_symlink_replace(const char *target, const char *linkpath, struct dt_err *err)
{
	char *tmp;
	int rc = 0;

	if (asprintf(&tmp, "%s.tmp.%d", linkpath, (int)getpid()) < 0)
		return dt_err_sys(err, -ENOMEM, "cannot link '%s'", linkpath);
	unlink(tmp);
	if (symlink(target, tmp) < 0 || rename(tmp, linkpath) < 0) {
		rc = dt_err_sys(err, -errno, "cannot link '%s'", linkpath);
		unlink(tmp);
	} else {
		rc = fsync_parent(linkpath, err);
	}
	free(tmp);
	return rc;
}

static atomic_bool lost;

void dt_output_lost(void)
{
	atomic_store(&lost, true);
}

int dt_close_stdout(struct dt_err *err)
{
	struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
	bool some = __fpending(stdout) > 0, failed = ferror(stdout);
	bool gone = poll(&out, 1, 0) > 0 && (out.revents & POLLERR);

	errno = 0;
	if (fclose(stdout) == EOF) {
		if (errno == EBADF && !some && !failed && !atomic_load(&lost))
			return 0; /* stdout was closed before we started, and there was nothing to print */
		return dt_err_sys(err, errno ? -errno : -EIO, "cannot write to standard output");
	}
	if (failed) /* an earlier write failed and its errno is lost; a closed pipe can still be detected */
		return dt_err_sys(err, gone ? -EPIPE : -EIO, "cannot write to standard output");
	if (atomic_load(&lost))
		return dt_err_sys(err, -ENOMEM, "the output is incomplete");
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
