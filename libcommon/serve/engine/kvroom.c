#include "serve/engine/kvroom.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LEFT_AFTER 600 /* seconds after which an unfinished file counts as abandoned */

struct found {
	char *path;
	uint64_t bytes;
	struct timespec used;
};

struct list {
	struct found *f;
	size_t n, cap;
	uint64_t bytes;
};

/* Whether s is n lower-case hexadecimal digits followed by `end`. */
static bool is_hex(const char *s, size_t n, const char *end)
{
	for (size_t i = 0; i < n; i++)
		if (!isxdigit((unsigned char)s[i]) || isupper((unsigned char)s[i]))
			return false;
	return !strcmp(s + n, end);
}

static void keep(struct list *l, const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 256;
		struct found *f = realloc(l->f, cap * sizeof(*f));

		if (!f)
			return;
		l->f = f;
		l->cap = cap;
	}
	l->f[l->n] = (struct found){strdup(path), (uint64_t)st.st_size, st.st_mtim};
	l->bytes += (uint64_t)st.st_size;
	l->n += l->f[l->n].path != NULL;
}

/* An unfinished file of a process, "KEY.kv.*", that is older than LEFT_AFTER. */
static bool is_left(const char *path, const char *name)
{
	struct stat st;

	return strlen(name) > 34 && !strncmp(name + 30, ".kv.", 4) && is_hex(name, 30, name + 30) &&
	       lstat(path, &st) == 0 && time(NULL) - st.st_mtime > LEFT_AFTER;
}

static void look_in(struct list *l, const char *dir)
{
	DIR *d = opendir(dir);
	const struct dirent *e;
	char path[PATH_MAX];

	while (d && (e = readdir(d))) {
		if (snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) >= (int)sizeof(path))
			continue;
		if (strlen(e->d_name) == 33 && is_hex(e->d_name, 30, ".kv"))
			keep(l, path);
		else if (is_left(path, e->d_name))
			unlink(path);
	}
	if (d)
		closedir(d);
}

/* Lists the blocks below dir; depth 0: folders of cache names, 1: of first key digits, 2: blocks. */
static void look(struct list *l, const char *dir, int depth)
{
	static const size_t digits[] = {16, 2};
	const struct dirent *e;
	char path[PATH_MAX];
	DIR *d;

	if (depth == 2) {
		look_in(l, dir);
		return;
	}
	d = opendir(dir);
	while (d && (e = readdir(d)))
		if (strlen(e->d_name) == digits[depth] && is_hex(e->d_name, digits[depth], "") &&
		    snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) < (int)sizeof(path))
			look(l, path, depth + 1);
	if (d)
		closedir(d);
}

static int oldest_first(const void *x, const void *y)
{
	const struct timespec *a = &((const struct found *)x)->used, *b = &((const struct found *)y)->used;

	return a->tv_sec != b->tv_sec ? (a->tv_sec > b->tv_sec) - (a->tv_sec < b->tv_sec)
				      : (a->tv_nsec > b->tv_nsec) - (a->tv_nsec < b->tv_nsec);
}

/* Scans the folder; if it is too large, removes the oldest blocks down to seven eighths. */
static void settle(struct dt_kvroom *r)
{
	struct list l = {0};

	look(&l, r->dir, 0);
	r->used = l.bytes;
	r->since = 0;
	if (r->used > r->size) {
		qsort(l.f, l.n, sizeof(*l.f), oldest_first);
		for (size_t i = 0; i < l.n && r->used > r->size - r->size / 8; i++) {
			unlink(l.f[i].path);
			r->used -= l.f[i].bytes;
		}
	}
	for (size_t i = 0; i < l.n; i++)
		free(l.f[i].path);
	free(l.f);
}

void dt_kvroom_open(struct dt_kvroom *r, const char *dir, uint64_t size)
{
	*r = (struct dt_kvroom){.dir = dir, .size = size};
	settle(r);
}

void dt_kvroom_add(struct dt_kvroom *r, uint64_t bytes)
{
	r->used += bytes;
	r->since += bytes;
	if (r->used > r->size || r->since > r->size / 8)
		settle(r);
}
/* SPDX-License-Identifier: Apache-2.0 */
