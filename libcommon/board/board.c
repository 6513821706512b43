#include "board/board.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum what { NOTHING, METRICS, EVENTS, TRACE };

/* Detects what kind of file a line belongs to. */
static enum what look_line(const char *text)
{
	if (*text != '{')
		return NOTHING;
	if (strstr(text, "\"run_id\"") && strstr(text, "\"step\""))
		return METRICS;
	if (strstr(text, "\"update\"") && strstr(text, "\"frames\"")) /* of dt-rl train --json */
		return METRICS;
	return strstr(text, "\"time\"") && strstr(text, "\"event\"") ? EVENTS : NOTHING;
}

/*
 * Detects the kind of a file from its first 64 KiB. The first line that tells it counts: earlier ones may be
 * damaged.
 */
static enum what look(const char *path)
{
	char text[65536];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	ssize_t n =
		fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? read(fd, text, sizeof(text) - 1) : 0;
	enum what what = NOTHING;
	char *nl, *line = text;

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return NOTHING;
	text[n] = '\0';
	if (!strncmp(text, "[\n{\"name\":", 10) && strstr(text, "\"ph\":"))
		return TRACE;
	do {
		nl = memchr(line, '\n', (size_t)(text + n - line));
		if (nl)
			*nl = '\0';
		what = look_line(line);
		line = nl ? nl + 1 : line;
	} while (what == NOTHING && nl);
	return what;
}

static bool known(const struct dt_board *b, const char *path)
{
	for (int i = 0; i < b->n; i++)
		if (!strcmp(b->run[i].path, path))
			return true;
	for (int i = 0; i < b->nfile; i++)
		if (!strcmp(b->file[i].path, path))
			return true;
	return false;
}

static int add_file(struct dt_board *b, const char *path, int folder, bool trace, struct dt_err *err)
{
	struct dt_board_file *grown = realloc(b->file, (size_t)(b->nfile + 1) * sizeof(*grown)), *f;
	int rc;

	if (!grown)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	b->file = grown;
	f = &grown[b->nfile];
	*f = (struct dt_board_file){.folder = folder, .trace = trace, .lines.fd = -1};
	rc = trace ? 0 : dt_board_run_open(&f->lines, path, path, err);
	if (rc < 0)
		return rc;
	f->path = strdup(path);
	if (!f->path) {
		dt_board_run_close(&f->lines);
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	}
	b->nfile++;
	return 0;
}

static int add(struct dt_board *b, const char *path, const char *name, int folder, struct dt_err *err)
{
	enum what what = known(b, path) ? NOTHING : look(path);
	int rc;

	if (what == NOTHING)
		return 0;
	if (what != METRICS)
		return add_file(b, path, folder, what == TRACE, err);
	if (b->n == DT_BOARD_RUNS) {
		b->left_out++;
		return 0;
	}
	rc = dt_board_run_open(&b->run[b->n], path, name, err);
	if (rc == 0)
		b->folder[b->n++] = folder;
	return rc;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static char **names_in(DIR *d, int *ret_n)
{
	char **name = NULL;
	struct dirent *e;
	int n = 0;

	while ((e = readdir(d))) {
		char **grown = e->d_name[0] == '.' ? NULL : realloc(name, (size_t)(n + 1) * sizeof(*name));

		if (!grown)
			continue;
		name = grown;
		name[n] = strdup(e->d_name);
		n += name[n] != NULL;
	}
	if (n)
		qsort(name, (size_t)n, sizeof(*name), by_name);
	*ret_n = n;
	return name;
}

static int add_folder(struct dt_board *b, const char *dir, int folder, struct dt_err *err)
{
	DIR *d = opendir(dir);
	char copy[4096], path[4096 + 260], name[600], **entry;
	int rc = 0, n;

	if (!d)
		return dt_err_sys(err, -errno, "cannot open folder '%s'", dir);
	entry = names_in(d, &n);
	closedir(d);
	snprintf(copy, sizeof(copy), "%s", dir);
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, entry[i]);
		snprintf(name, sizeof(name), "%s/%s", basename(copy), entry[i]);
		if (rc == 0)
			rc = add(b, path, name, folder, err);
		free(entry[i]);
	}
	free(entry);
	return rc;
}

static int find_all(struct dt_board *b, struct dt_err *err)
{
	int rc = 0;

	b->left_out = 0;
	for (int i = 0; i < b->ndir && rc == 0; i++) {
		struct stat st;

		if (stat(b->dir[i], &st) < 0)
			rc = dt_err_sys(err, -errno, "cannot open '%s'", b->dir[i]);
		else
			rc = S_ISDIR(st.st_mode) ? add_folder(b, b->dir[i], i, err)
						 : add(b, b->dir[i], b->dir[i], i, err);
		if (b->opened) /* an operand that was removed since does not stop the others */
			rc = 0;
	}
	return rc;
}

/* Reads a piece of each run in turn, so that no run waits until another has been read completely. */
static int read_runs(struct dt_board *b, struct dt_err *err)
{
	size_t left = b->most ? b->most : SIZE_MAX;
	int rc = 0;

	b->behind = false;
	for (int k = 0, first = b->next; k < b->n; k++) {
		const int i = (first + k) % b->n;
		const int one = dt_board_run_read(&b->run[i], &left, err);

		rc = one < 0 ? one : rc;
		b->version += one > 0;
		if (left || b->behind)
			continue;
		b->behind = true;
		b->next = (i + 1) % b->n;
	}
	return rc;
}

int dt_board_refresh(struct dt_board *b, struct dt_err *err)
{
	int rc = find_all(b, err);

	if (rc == 0)
		rc = read_runs(b, err);
	for (int i = 0; i < b->nfile && rc >= 0; i++) {
		rc = b->file[i].trace ? 0 : dt_board_run_read(&b->file[i].lines, NULL, err);
		b->version += rc > 0;
	}
	return rc < 0 ? rc : 0;
}

int dt_board_open(struct dt_board *b, char *const *dirs, int n, size_t most, struct dt_err *err)
{
	int rc;

	*b = (struct dt_board){.dir = dirs, .ndir = n, .most = most};
	b->run = calloc(DT_BOARD_RUNS, sizeof(*b->run));
	b->folder = calloc(DT_BOARD_RUNS, sizeof(*b->folder));
	if (!b->run || !b->folder)
		rc = dt_err_sys(err, -ENOMEM, "cannot read runs");
	else
		rc = dt_board_refresh(b, err);
	if (rc == 0 && !b->n) {
		rc = dt_err_set(err, -ENOENT, "no metrics of dt-train or dt-rl in '%s'%s", n ? dirs[0] : "",
				n > 1 ? " or the others" : "");
		dt_err_hint(err, "dt-train --metrics FILE and dt-rl train --json write them");
	}
	if (rc < 0)
		dt_board_close(b);
	b->opened = rc == 0;
	return rc;
}

void dt_board_close(struct dt_board *b)
{
	for (int i = 0; i < b->n; i++)
		dt_board_run_close(&b->run[i]);
	for (int i = 0; i < b->nfile; i++) {
		dt_board_run_close(&b->file[i].lines);
		free(b->file[i].path);
	}
	free(b->run);
	free(b->folder);
	free(b->file);
	*b = (struct dt_board){0};
}
/* SPDX-License-Identifier: Apache-2.0 */
