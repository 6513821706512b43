/* The folders of a root: their names, stale ones, which are complete, which may be removed. */
#include "ckpt/internal.h"

#include "base/step_name.h"
#include "base/tmpfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

const char *ck_join(char buf[CK_PATH], const char *dir, const char *name)
{
	snprintf(buf, CK_PATH, "%s/%s", dir, name);
	return buf;
}

static int newest_first(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

int ck_list_steps(const char *root, int64_t **ret, struct dt_err *err)
{
	DIR *d = opendir(root);
	int64_t *v = NULL, step;
	int n = 0;

	if (!d)
		return dt_err_sys(err, -errno, "cannot open '%s'", root);
	for (struct dirent *e; (e = readdir(d));) {
		int64_t *grown;

		step = dt_step_of(e->d_name);
		if (step < 0)
			continue;
		grown = realloc(v, ((size_t)n + 1) * sizeof(*v));
		if (!grown) {
			free(v);
			closedir(d);
			return dt_err_sys(err, -ENOMEM, "cannot read '%s'", root);
		}
		v = grown;
		v[n++] = step;
	}
	closedir(d);
	if (n)
		qsort(v, (size_t)n, sizeof(*v), newest_first);
	*ret = v;
	return n;
}

static bool is_leftover(const char *name)
{
	size_t n = strlen(name);

	return (!strncmp(name, "step-", 5) && n > 9 && !strcmp(name + n - 4, ".tmp")) ||
	       !strncmp(name, "latest.tmp.", 11);
}

static int remove_leftovers(const char *root, struct dt_err *err)
{
	DIR *d = opendir(root);
	int rc = 0;

	if (!d)
		return dt_err_sys(err, -errno, "cannot open '%s'", root);
	for (struct dirent *e; rc == 0 && (e = readdir(d));) {
		char path[CK_PATH];

		if (!is_leftover(e->d_name))
			continue;
		ck_join(path, root, e->d_name);
		rc = dt_remove_tree(path, err);
	}
	closedir(d);
	return rc;
}

int dt_ckpt_begin(const char *root, int64_t step, char **ret_tmpdir, struct dt_err *err)
{
	char name[DT_STEP_NAME], *dir;
	int rc;

	if (step < 0)
		return dt_err_set(err, -EINVAL, "step %lld is negative", (long long)step);
	rc = dt_mkdir_p(root, err);
	if (rc == 0)
		rc = remove_leftovers(root, err);
	if (rc < 0)
		return rc;
	dt_step_name(name, step);
	if (asprintf(&dir, "%s/%s.tmp", root, name) < 0)
		return dt_err_sys(err, -ENOMEM, "cannot begin a checkpoint");
	if (mkdir(dir, 0777) < 0) {
		rc = dt_err_sys(err, -errno, "cannot create folder '%s'", dir);
		free(dir);
		return rc;
	}
	*ret_tmpdir = dir;
	return 0;
}

void dt_ckpt_discard(const char *root, const char *tmpdir, bool made)
{
	dt_remove_tree(tmpdir, NULL);
	if (made)
		rmdir(root);
}

int ck_load(const char *dir, struct ck_manifest *ret, struct dt_err *err)
{
	char path[CK_PATH], *text;
	struct stat st;
	size_t n;
	int rc;

	if ((size_t)snprintf(path, sizeof(path), "%s/manifest.json", dir) >= sizeof(path))
		return dt_err_sys(err, -ENAMETOOLONG, "cannot open '%s'", dir);
	if (stat(path, &st) < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	if (!S_ISREG(st.st_mode))
		return dt_err_set(err, -EBADMSG, "'%s' is not a regular file", path);
	rc = dt_read_file(path, CK_MANIFEST_MAX, &text, &n, err);
	if (rc < 0)
		return rc;
	rc = ck_manifest_parse(text, n, path, ret, err);
	free(text);
	return rc;
}

int ck_open_file(const char *dir, const struct ck_file *f, int *ret_fd, uint64_t *ret_bytes,
		 struct dt_err *err)
{
	char path[CK_PATH];
	struct stat st;
	int fd;

	ck_join(path, dir, f->name);
	/* O_NONBLOCK: opening a FIFO must not block before its type is checked */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return dt_err_set(err, -EBADMSG, "'%s' is not a regular file", path);
	}
	*ret_fd = fd;
	*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

int ck_check_files(const char *dir, const struct ck_manifest *m, struct dt_err *err)
{
	for (int i = 0; i < m->nfile; i++) {
		uint64_t bytes;
		int fd, rc = ck_open_file(dir, &m->file[i], &fd, &bytes, err);

		if (rc < 0)
			return rc;
		close(fd);
		if (bytes != m->file[i].bytes)
			return dt_err_set(err, -EBADMSG, "'%s/%s' has %llu bytes, the manifest says %llu",
					  dir, m->file[i].name, (unsigned long long)bytes,
					  (unsigned long long)m->file[i].bytes);
	}
	return 0;
}

/* Whether DIR is a checkpoint with all its files. */
static bool is_whole(const char *dir)
{
	struct ck_manifest m;
	bool whole;

	if (ck_load(dir, &m, NULL) < 0)
		return false;
	whole = ck_check_files(dir, &m, NULL) == 0;
	ck_manifest_release(&m);
	return whole;
}

int64_t dt_ckpt_newest(const char *root, int64_t most)
{
	int64_t *step = NULL, found = -1;
	int n = ck_list_steps(root, &step, NULL);

	for (int i = 0; i < n && found < 0; i++) {
		char name[DT_STEP_NAME], dir[CK_PATH];

		dt_step_name(name, step[i]);
		if (step[i] <= most && is_whole(ck_join(dir, root, name)))
			found = step[i];
	}
	free(step);
	return found;
}

/*
 * Only complete checkpoints are counted and removed: unreadable ones are left for the user to inspect. A
 * folder is renamed to .tmp before it is deleted, so that no reader finds half of it.
 */
static int prune(const char *root, int64_t safe, int keep, int64_t every, bool dry,
		 void (*report)(void *arg, const char *folder), void *arg, struct dt_err *err)
{
	int64_t *step = NULL;
	const int64_t latest = ck_latest(root);
	int n = ck_list_steps(root, &step, err), good = safe >= 0, gone = 0, rc = n < 0 ? n : 0;

	for (int i = 0; i < n && rc == 0; i++) {
		char name[DT_STEP_NAME], dir[CK_PATH], tmp[CK_PATH + 8];

		dt_step_name(name, step[i]);
		ck_join(dir, root, name);
		if (!is_whole(dir))
			continue;
		if (safe < 0) { /* the newest complete one */
			safe = step[i];
			good++;
		}
		if (step[i] == safe)
			continue;
		if (good < keep) {
			good++;
			continue;
		}
		if ((every > 0 && step[i] % every == 0) || step[i] == latest)
			continue;
		gone++;
		if (report)
			report(arg, dir);
		if (dry)
			continue;
		snprintf(tmp, sizeof(tmp), "%s.tmp", dir);
		if (rename(dir, tmp) < 0)
			rc = dt_err_sys(err, -errno, "cannot rename '%s'", dir);
		else
			rc = dt_remove_tree(tmp, err);
	}
	if (rc == 0 && safe < 0)
		rc = dt_err_set(err, -ENOENT,
				n > 0 ? "no checkpoint in '%s' is complete" : "'%s' has no step folder",
				root);
	free(step);
	return rc < 0 ? rc : gone;
}

int ck_prune(const char *root, int64_t just_written, int keep, struct dt_err *err)
{
	int rc = keep <= 0 ? 0 : prune(root, just_written, keep, 0, false, NULL, NULL, err);

	return rc < 0 ? rc : 0;
}

int dt_ckpt_prune(const char *root, int64_t safe, int keep, int64_t every, bool dry,
		  void (*report)(void *arg, const char *folder), void *arg, struct dt_err *err)
{
	return prune(root, safe, keep, every, dry, report, arg, err);
}

int dt_ckpt_split_path(const char *dst, int64_t step, char *root, char *made, size_t n, struct dt_err *err)
{
	char want[DT_STEP_NAME], *base;
	struct stat st;
	size_t k;

	dt_step_name(want, step);
	if (strlen(dst) + sizeof(want) + 8 > n)
		return dt_err_sys(err, -ENAMETOOLONG, "cannot write '%s'", dst);
	strcpy(root, dst);
	for (k = strlen(root); k > 1 && root[k - 1] == '/'; k--)
		root[k - 1] = '\0';
	base = basename(root);
	if (!strncmp(base, "step-", 5)) {
		if (strcmp(base, want))
			return dt_err_set(err, -EINVAL,
					  "'%s' names a step other than that of the source, %lld", dst,
					  (long long)step);
		if (base == root)
			strcpy(root, ".");
		else
			base[base - root > 1 ? -1 : 0] = '\0';
	}
	snprintf(made, n, "%s/%s", root, want);
	return lstat(made, &st) == 0 ? dt_err_sys(err, -EEXIST, "cannot write '%s'", made) : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
