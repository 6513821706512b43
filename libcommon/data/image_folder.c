#include "data/image_source.h"

#include "base/room.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define DEPTH 32

struct walk {
	const struct dt_image_sink *to;
	const char *cls;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_list(char **list, int n)
{
	for (int i = 0; i < n; i++)
		free(list[i]);
	free(list);
}

/* Lists a folder's names, sorted by bytes, without those that start with a dot. */
static int list_folder(const char *path, char ***ret, int *ret_n, struct dt_err *err)
{
	DIR *d = opendir(path);
	char **list = NULL;
	int n = 0, room = 0, rc = 0;
	struct dirent *e;

	if (!d)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	while (rc == 0 && (errno = 0, e = readdir(d))) {
		if (*e->d_name == '.')
			continue;
		rc = DT_ROOM(list, n, room, 64) && (list[n] = strdup(e->d_name)) ? 0 : -ENOMEM;
		n += rc == 0;
	}
	rc = rc < 0 ? rc : -errno;
	closedir(d);
	if (rc < 0) {
		free_list(list, n);
		return dt_err_sys(err, rc, "cannot read '%s'", path);
	}
	if (n)
		qsort(list, (size_t)n, sizeof(*list), by_name);
	*ret = list;
	*ret_n = n;
	return 0;
}

static int give_file(struct walk *w, const char *path, struct dt_err *err)
{
	return w->to->image(w->to->ctx, &(struct dt_image_item){.name = path, .cls = w->cls}, err);
}

static int walk_folder(struct walk *w, const char *path, int depth, struct dt_err *err);

static int walk_entry(struct walk *w, const char *path, int depth, struct dt_err *err)
{
	const char *why;
	struct stat st;

	if (stat(path, &st) < 0)
		return dt_err_sys(err, -errno, "cannot read '%s'", path);
	if (S_ISDIR(st.st_mode))
		return depth < DEPTH ? walk_folder(w, path, depth + 1, err)
				     : dt_err_set(err, -ELOOP, "'%s': folders are nested too deep", path);
	why = S_ISREG(st.st_mode) ? dt_image_ending(path) : "it is not a regular file";
	if (!why)
		return give_file(w, path, err);
	if (w->to->passed)
		w->to->passed(w->to->ctx, path, why);
	return 0;
}

static int walk_folder(struct walk *w, const char *path, int depth, struct dt_err *err)
{
	char **list, *entry;
	int n, rc = list_folder(path, &list, &n, err);

	if (rc < 0)
		return rc;
	for (int i = 0; i < n && rc == 0; i++) {
		if (asprintf(&entry, "%s/%s", path, list[i]) < 0) {
			rc = dt_err_sys(err, -ENOMEM, "cannot read '%s'", path);
			break;
		}
		rc = walk_entry(w, entry, depth, err);
		free(entry);
	}
	free_list(list, n);
	return rc;
}

/* Keeps only the folders of the list, as classes; other files are skipped. */
static int keep_folders(const char *path, char **list, int *n, const struct dt_image_sink *to,
			struct dt_err *err)
{
	struct stat st;
	int kept = 0, rc = 0;

	for (int i = 0; i < *n; i++) {
		char *entry = NULL;

		if (rc == 0 && asprintf(&entry, "%s/%s", path, list[i]) < 0) {
			entry = NULL;
			rc = dt_err_sys(err, -ENOMEM, "cannot read '%s'", path);
		}
		if (rc == 0 && stat(entry, &st) == 0 && S_ISDIR(st.st_mode)) {
			rc = to->cls ? to->cls(to->ctx, list[i], err) : 0;
			list[kept++] = list[i];
		} else {
			if (rc == 0 && to->passed)
				to->passed(to->ctx, entry, "it is not in the folder of a class");
			free(list[i]);
		}
		free(entry);
	}
	*n = kept;
	return rc;
}

int dt_image_from_folder(const char *path, const struct dt_image_sink *to, struct dt_err *err)
{
	char **list, *entry;
	int n, rc = list_folder(path, &list, &n, err);

	if (rc < 0)
		return rc;
	rc = keep_folders(path, list, &n, to, err);
	if (rc == 0 && n == 0) {
		rc = dt_err_set(err, -EINVAL, "'%s' has no subfolders: each class needs one", path);
		dt_err_hint(err, "give the folder above the classes: 'train' for train/cat/1.jpg");
	}
	for (int i = 0; i < n && rc == 0; i++) {
		struct walk w = {.to = to, .cls = list[i]};

		if (asprintf(&entry, "%s/%s", path, list[i]) < 0) {
			rc = dt_err_sys(err, -ENOMEM, "cannot read '%s'", path);
			break;
		}
		rc = walk_folder(&w, entry, 0, err);
		free(entry);
	}
	free_list(list, n);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
