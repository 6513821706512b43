#include "data/shard_set.h"

#include "base/crc.h"
#include "base/io.h"
#include "base/tmpfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES ((size_t)1 << 20)

/* The folder of path, malloc'd. */
static char *folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
}

int set_spool_open(const char *path, int *ret_fd, struct dt_err *err)
{
	char name[PATH_MAX], *folder = folder_of(path);
	int fd = folder ? open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666) : -1;

	free(folder);
	if (snprintf(name, sizeof(name), "%s.tmp.%d.XXXXXX", path, (int)getpid()) >= (int)sizeof(name)) {
		if (fd >= 0)
			close(fd);
		return dt_err_sys(err, -ENAMETOOLONG, "cannot write '%s'", path);
	}
	if (fd < 0) { /* a file system without files that have no name yet */
		fd = mkostemp(name, O_CLOEXEC);
		if (fd < 0)
			return dt_err_sys(err, -errno, "cannot write '%s'", path);
		unlink(name);
	}
	*ret_fd = fd;
	return 0;
}

int set_read(int fd, void *buf, size_t n, int64_t at)
{
	ssize_t got = dt_read_all(fd, buf, n, at);

	return got < 0 ? (int)got : (size_t)got < n ? -EIO : 0;
}

/* Goes over n bytes from at: to_fd < 0 continues their checksum, else they are copied to place to of it. */
static int pass(int fd, int64_t at, int64_t left, int to_fd, int64_t to, bool punch, uint32_t *crc)
{
	char *buf = malloc(COPY_BYTES);
	int rc = buf ? 0 : -ENOMEM;

	while (left && rc == 0) {
		size_t n = left < (int64_t)COPY_BYTES ? (size_t)left : COPY_BYTES;

		rc = set_read(fd, buf, n, at);
		if (rc == 0 && to_fd < 0)
			*crc = dt_crc32(*crc, buf, n);
		else if (rc == 0)
			rc = dt_write_all(to_fd, buf, n, to);
		if (rc == 0 && punch) /* if the file system cannot punch holes, the spool stays */
			fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, (off_t)n);
		at += (int64_t)n;
		to += (int64_t)n;
		left -= (int64_t)n;
	}
	free(buf);
	return rc;
}

int set_checksum(int spool, int64_t at, int64_t n, uint32_t *crc)
{
	return pass(spool, SET_HEAD + at, n, -1, 0, false, crc);
}

/* Gives the spool the name f->tmp in place of the file that has it. */
static int take_name(const struct set_file *f, int spool)
{
	char self[64], *name;
	int rc = 0;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", spool);
	if (asprintf(&name, "%s.spool", f->tmp) < 0)
		return -ENOMEM;
	if (linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) < 0)
		rc = -errno;
	else if (rename(name, f->tmp) < 0) {
		rc = -errno;
		unlink(name);
	}
	free(name);
	return rc;
}

/*
 * Puts all that f->tmp holds beside n bytes of values, which are 0 there, around those of the spool, and the
 * spool in its place. < 0: f->tmp and the values are as before.
 */
static int adopt(const struct set_file *f, int spool, int64_t n)
{
	struct stat st;
	int fd = open(f->tmp, O_RDONLY | O_CLOEXEC), rc = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;
	const int64_t behind = SET_HEAD + n;

	if (rc == 0)
		rc = pass(fd, 0, SET_HEAD, spool, 0, false, NULL);
	if (rc == 0 && st.st_size > behind)
		rc = pass(fd, behind, st.st_size - behind, spool, behind, false, NULL);
	if (fd >= 0)
		close(fd);
	if (rc == 0 && fsync(spool) < 0)
		rc = -errno;
	return rc < 0 ? rc : take_name(f, spool);
}

int set_fill(const struct set_file *f, int spool, int64_t at, int64_t n, bool only)
{
	int fd, rc;

	if (only && at == 0 && f->offset == SET_HEAD && adopt(f, spool, n) == 0)
		return 0;
	fd = open(f->tmp, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = pass(spool, SET_HEAD + at, n, fd, f->offset, true, NULL);
	if (rc == 0 && fsync(fd) < 0)
		rc = -errno;
	close(fd);
	return rc;
}

/* Names shard i of n: "D.h5" -> "D-00002-of-00004.h5"; a single shard keeps the name. */
static int name_file(const char *path, int i, int n, struct set_file *f, struct dt_err *err)
{
	const char *dot = strrchr(basename(path), '.');
	int stem = dot && dot != basename(path) ? (int)(dot - path) : (int)strlen(path), rc;

	if (n == 1)
		f->path = strdup(path);
	else if (asprintf(&f->path, "%.*s-%05d-of-%05d%s", stem, path, i, n, path + stem) < 0)
		f->path = NULL;
	if (!f->path)
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", path);
	rc = dt_out_path(f->path, &f->target, err);
	if (rc == 0 && asprintf(&f->tmp, "%s.tmp.%d", f->target, (int)getpid()) < 0) {
		f->tmp = NULL;
		rc = dt_err_sys(err, -ENOMEM, "cannot write '%s'", path);
	}
	return rc;
}

static int move(const char *tmp, const char *path, struct dt_err *err)
{
	if (rename(tmp, path) < 0)
		return dt_err_sys(err, -errno, "cannot rename '%s' to '%s'", tmp, path);
	return 0;
}

static int sync_folder(const char *path, struct dt_err *err)
{
	char *dir = folder_of(path);
	int rc = dir ? dt_fsync_dir(dir, err) : dt_err_sys(err, -ENOMEM, "cannot write '%s'", path);

	free(dir);
	return rc;
}

/* Renames the files, then the index (NULL: none) to path, so that a D.h5 that is there finds its shards. */
static int commit(struct set_file *f, int n, const char *index, const char *path, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < n && rc == 0; i++) {
		rc = move(f[i].tmp, f[i].target, err);
		f[i].committed = rc == 0;
	}
	if (rc == 0 && index)
		rc = move(index, path, err);
	return rc < 0 ? rc : sync_folder(path, err);
}

/* Removes the temporaries of a set that failed, frees the names. f NULL: nothing. */
static void release(struct set_file *f, int n, bool failed)
{
	for (int i = 0; f && i < n; i++) {
		if (failed && f[i].tmp && !f[i].committed)
			unlink(f[i].tmp);
		free(f[i].path);
		free(f[i].target);
		free(f[i].tmp);
	}
	free(f);
}

hid_t set_create(const char *tmp)
{
	hid_t plist = H5Pcreate(H5P_FILE_ACCESS), made = H5Pcreate(H5P_FILE_CREATE), f;

	H5Pset_libver_bounds(plist, H5F_LIBVER_V18, H5F_LIBVER_LATEST);
	H5Pset_obj_track_times(made, false);
	f = H5Fcreate(tmp, H5F_ACC_TRUNC, made, plist);
	H5Pclose(made);
	H5Pclose(plist);
	return f;
}

int set_put_place(hid_t f, const char *name, hid_t type, int rank, const hsize_t *dim, int64_t *ret_offset)
{
	hid_t space = H5Screate_simple(rank, dim, NULL), plist = dt_h5_new_dataset(), d;
	bool empty = false;
	haddr_t at;

	for (int i = 0; i < rank; i++)
		empty |= !dim[i];
	H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY);
	H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER);
	d = H5Dcreate2(f, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
	at = d >= 0 ? H5Dget_offset(d) : HADDR_UNDEF;
	if (d >= 0)
		H5Dclose(d);
	H5Pclose(plist);
	H5Sclose(space);
	if (d < 0 || (at == HADDR_UNDEF && !empty))
		return -EIO;
	*ret_offset = empty ? 0 : (int64_t)at;
	return 0;
}

int set_put_index(hid_t f, const char *count_name, const struct set_file *s, const int64_t *count, int n)
{
	size_t width = strlen(basename(s[0].path)) + 1;
	char *names = calloc((size_t)n, width);
	int64_t *crc = calloc((size_t)n, sizeof(*crc));
	hid_t type = H5Tcopy(H5T_C_S1);
	int rc = -ENOMEM;

	if (!names || !crc || H5Tset_size(type, width) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)
		goto out;
	for (int i = 0; i < n; i++) {
		strcpy(names + (size_t)i * width, basename(s[i].path));
		crc[i] = s[i].crc;
	}
	rc = dt_h5_put_list(f, "shards", type, type, n, names, false);
	if (rc == 0)
		rc = dt_h5_put_list(f, count_name, H5T_STD_I64LE, H5T_NATIVE_INT64, n, count, false);
	if (rc == 0)
		rc = dt_h5_put_list(f, "shard_crc32", H5T_STD_I64LE, H5T_NATIVE_INT64, n, crc, false);
out:
	H5Tclose(type);
	free(names);
	free(crc);
	return rc;
}

int set_put_view(hid_t f, const char *name, hid_t type, int rank, const hsize_t *dim,
		 const struct set_file *s, const int64_t *count, int n)
{
	hid_t space = H5Screate_simple(rank, dim, NULL), plist = dt_h5_new_dataset(), d;
	hsize_t at[4] = {0}, part[4];
	int rc = 0;

	memcpy(part, dim, (size_t)rank * sizeof(*part));
	for (int i = 0; i < n && rc == 0; i++, at[0] += part[0]) {
		hid_t src;

		part[0] = (hsize_t)count[i];
		src = H5Screate_simple(rank, part, NULL);
		if (H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, part, NULL) < 0 ||
		    H5Pset_virtual(plist, space, basename(s[i].path), name, src) < 0)
			rc = -EIO;
		H5Sclose(src);
	}
	H5Sselect_all(space);
	d = rc == 0 ? H5Dcreate2(f, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT) : -1;
	rc = d >= 0 ? 0 : -EIO;
	if (d >= 0)
		H5Dclose(d);
	H5Pclose(plist);
	H5Sclose(space);
	return rc;
}
static int write_files(const struct set_writer *how, void *w, const char *path, int64_t values, int n,
		       struct set_file *f, int64_t *count, struct dt_err *err)
{
	int64_t first = 0;
	char *index = NULL;
	int rc = 0;

	for (int i = 0; i < n && rc == 0; first += count[i++]) {
		count[i] = values / n + (i < values % n);
		rc = name_file(path, i, n, &f[i], err);
		if (rc == 0)
			rc = how->shard(w, &f[i], first, count[i], n == 1, err);
	}
	if (rc == 0 && n > 1) {
		if (asprintf(&index, "%s.tmp.%d", path, (int)getpid()) < 0)
			return dt_err_sys(err, -ENOMEM, "cannot write '%s'", path);
		rc = how->index(w, index, f, count, n, err);
	}
	if (rc == 0)
		rc = commit(f, n, index, path, err);
	if (rc < 0 && index)
		unlink(index);
	free(index);
	return rc;
}

int set_make(const struct set_writer *how, void *w, const char *path, int64_t values, int n,
	     struct dt_err *err)
{
	struct set_file *f = calloc((size_t)n, sizeof(*f));
	int64_t *count = calloc((size_t)n, sizeof(*count));
	int rc = f && count ? write_files(how, w, path, values, n, f, count, err)
			    : dt_err_sys(err, -ENOMEM, "cannot write '%s'", path);

	release(f, n, rc < 0);
	free(count);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
