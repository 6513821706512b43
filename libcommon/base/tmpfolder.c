/* Folders: made, removed, and written so that they appear when they are complete (tmpfile.h). */
#include "base/tmpfile.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* mode: of the last folder, if it is new. */
static int make_folders(const char *path, mode_t mode, struct dt_err *err)
{
	char copy[PATH_MAX];
	struct stat st;
	size_t n = (size_t)snprintf(copy, sizeof(copy), "%s", path);

	if (n >= sizeof(copy))
		return dt_err_sys(err, -ENAMETOOLONG, "cannot create folder '%s'", path);
	while (n > 1 && copy[n - 1] == '/')
		copy[--n] = '\0';
	for (char *p = copy + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (mkdir(copy, 0777) < 0 && errno != EEXIST)
			return dt_err_sys(err, -errno, "cannot create folder '%s'", copy);
		*p = '/';
	}
	if (mkdir(copy, mode) < 0 && errno != EEXIST)
		return dt_err_sys(err, -errno, "cannot create folder '%s'", copy);
	if (stat(copy, &st) == 0 && !S_ISDIR(st.st_mode))
		return dt_err_sys(err, -ENOTDIR, "cannot create folder '%s'", copy);
	return 0;
}

int dt_mkdir_p(const char *path, struct dt_err *err)
{
	return make_folders(path, 0777, err);
}

int dt_mkdir_own(const char *path, struct dt_err *err)
{
	return make_folders(path, 0700, err);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	return remove(path) < 0 && errno != ENOENT ? -1 : 0; /* another process may remove it too */
}

int dt_remove_tree(const char *path, struct dt_err *err)
{
	if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) < 0 && errno != ENOENT)
		return dt_err_sys(err, -errno, "cannot remove '%s'", path);
	return 0;
}

int dt_tmpfolder_write(const char *path, int (*fill)(void *arg, const char *folder, struct dt_err *err),
		       void *arg, struct dt_err *err)
{
	enum { NAMES = 64 }; /* room for the names of files in it */
	char tmp[PATH_MAX];
	int rc;

	if (snprintf(tmp, sizeof(tmp), "%s.tmp.%d", path, (int)getpid()) > PATH_MAX - NAMES)
		return dt_err_sys(err, -ENAMETOOLONG, "cannot write '%s'", path);
	rc = dt_mkdir_p(tmp, err);
	if (rc == 0)
		rc = fill(arg, tmp, err);
	if (rc == 0 && rename(tmp, path) < 0)
		rc = dt_err_sys(err, -errno, "cannot rename '%s' to '%s'", tmp, path);
	if (rc < 0)
		dt_remove_tree(tmp, NULL);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
