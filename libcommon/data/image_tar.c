/*
 * Our own tar reader, like ckpt/tar.c: libarchive would add fifteen libraries to every program that reads a
 * data set. Formats: POSIX.1-1988 ustar, pax records path and size, GNU long names and base-256 sizes.
 */
#include "data/image_source.h"
#include "data/unpack.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BLOCK	  512
#define NAME_MAX_ 4096
#define TEXT_MAX  ((uint64_t)1 << 20) /* limit of a pax header and of .cls */

struct tar {
	struct unpack *f;
	const char *path;
	char name[NAME_MAX_]; /* name of the member */
	uint64_t size;
	char type;
};

struct sample {
	char key[NAME_MAX_], name[NAME_MAX_];
	uint8_t *bytes; /* NULL: no image yet */
	size_t n;
	char cls[NAME_MAX_]; /* contents of .cls; empty: none */
};

static int damaged(const struct tar *t, const char *what, struct dt_err *err)
{
	return dt_err_set(err, -EBADMSG, "'%s' is a damaged tar archive: %s", t->path, what);
}

/* Parses octal digits or, if the top bit is set, a base-256 number. */
static int number(const uint8_t *p, int n, uint64_t *ret)
{
	uint64_t v = 0;
	int i = 0;

	if (p[0] & 0x80) {
		v = p[0] & 0x7f;
		for (i = 1; i < n; i++) {
			if (v >> 55)
				return -ERANGE;
			v = v << 8 | p[i];
		}
		*ret = v;
		return 0;
	}
	while (i < n && p[i] == ' ')
		i++;
	for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
		v = v << 3 | (uint64_t)(p[i] - '0');
	*ret = v;
	return i == n || !p[i] || p[i] == ' ' ? 0 : -EINVAL;
}

static bool checksum_fits(const uint8_t *h)
{
	uint64_t want, sum = 0;

	for (int i = 0; i < BLOCK; i++)
		sum += i >= 148 && i < 156 ? ' ' : h[i];
	return number(h + 148, 8, &want) == 0 && sum == want;
}

static int skip(struct tar *t, uint64_t n, struct dt_err *err)
{
	char buf[16384];
	int rc = 0;

	for (; n && rc == 0; n -= n < sizeof(buf) ? n : sizeof(buf))
		rc = unpack_all(t->f, buf, n < sizeof(buf) ? (size_t)n : sizeof(buf), t->name, err);
	return rc;
}

static uint64_t padding(uint64_t n)
{
	return (BLOCK - n % BLOCK) % BLOCK;
}

/* Reads the member's contents and padding; *ret is malloc'd and NUL-terminated. */
static int content(struct tar *t, uint64_t most, uint8_t **ret, struct dt_err *err)
{
	uint8_t *b;
	int rc;

	if (t->size > most)
		return dt_err_set(err, -EBADMSG, "'%s': member '%.200s' has %llu bytes", t->path, t->name,
				  (unsigned long long)t->size);
	b = malloc((size_t)t->size + 1);
	if (!b)
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", t->path);
	b[t->size] = 0;
	rc = unpack_all(t->f, b, (size_t)t->size, t->name, err);
	if (rc == 0)
		rc = skip(t, padding(t->size), err);
	if (rc < 0)
		free(b);
	else
		*ret = b;
	return rc;
}

/* Reads pax records "LENGTH KEY=VALUE\n" for the next member. */
static int pax(struct tar *t, char *name, uint64_t *size, struct dt_err *err)
{
	uint8_t *b, *p, *end;
	int rc = content(t, TEXT_MAX, &b, err);

	if (rc < 0)
		return rc;
	for (p = b, end = b + t->size; p < end && rc == 0;) {
		char *key;
		uint64_t n = strtoull((char *)p, &key, 10);
		size_t value;

		if (n < 5 || n > (uint64_t)(end - p) || *key != ' ' || p[n - 1] != '\n') {
			rc = damaged(t, "a pax header", err);
			break;
		}
		p[n - 1] = 0;
		key++;
		value = (size_t)((char *)p + n - 1 - key);
		if (!strncmp(key, "path=", 5) && value - 5 < NAME_MAX_)
			snprintf(name, NAME_MAX_, "%s", key + 5);
		else if (!strncmp(key, "size=", 5))
			*size = strtoull(key + 5, NULL, 10);
		p += n;
	}
	free(b);
	return rc;
}

static int long_name(struct tar *t, char *name, struct dt_err *err)
{
	uint8_t *b;
	int rc = content(t, NAME_MAX_ - 1, &b, err);

	if (rc < 0)
		return rc;
	snprintf(name, NAME_MAX_, "%s", (char *)b);
	free(b);
	return 0;
}

static int take_header(struct tar *t, const uint8_t *h, struct dt_err *err)
{
	bool prefix = !memcmp(h + 257, "ustar", 5) && memcmp(h + 257, "ustar ", 6) && h[345];

	if (!checksum_fits(h))
		return damaged(t, "a header does not have its checksum", err);
	if (number(h + 124, 12, &t->size) < 0 || t->size > INT64_MAX)
		return damaged(t, "a size is not a number", err);
	t->type = (char)h[156];
	snprintf(t->name, sizeof(t->name), "%.*s%s%.100s", prefix ? 155 : 0, (const char *)h + 345,
		 prefix ? "/" : "", (const char *)h);
	return 0;
}

/* Reads the next header: 1, or 0 at the end mark. A file that ends without the mark is truncated. */
static int next(struct tar *t, struct dt_err *err)
{
	static const uint8_t zeros[BLOCK];
	char name[NAME_MAX_] = "";
	uint64_t size = UINT64_MAX;
	uint8_t h[BLOCK];

	for (;;) {
		int rc = unpack_all(t->f, h, BLOCK, "the archive", err);

		if (rc == 0 && !memcmp(h, zeros, BLOCK))
			return 0;
		if (rc == 0)
			rc = take_header(t, h, err);
		if (rc < 0)
			return rc;
		if (t->type == 'x')
			rc = pax(t, name, &size, err);
		else if (t->type == 'L')
			rc = long_name(t, name, err);
		else if (t->type == 'g' || t->type == 'K')
			rc = skip(t, t->size + padding(t->size), err);
		else
			break;
		if (rc < 0)
			return rc;
	}
	if (*name)
		snprintf(t->name, sizeof(t->name), "%s", name);
	if (size != UINT64_MAX)
		t->size = size;
	if (t->type == '1' || t->type == '2') /* links have no contents, whatever size says */
		t->size = 0;
	return t->size > INT64_MAX ? damaged(t, "a size is not a number", err) : 1;
}

/* The class from the path: its last folder. */
static bool folder_of(const char *name, char *ret)
{
	const char *end = strrchr(name, '/'), *start = end;

	if (!end || end == name)
		return false;
	while (start > name && start[-1] != '/')
		start--;
	snprintf(ret, NAME_MAX_, "%.*s", (int)(end - start), start);
	return *ret && strcmp(ret, ".");
}

static int give(const struct tar *t, struct sample *s, const struct dt_image_sink *to, struct dt_err *err)
{
	char folder[NAME_MAX_], *end;
	struct dt_image_item item = {.name = s->name, .bytes = s->bytes, .n = s->n};
	long label;
	int rc = 0;

	if (!s->bytes) {
		if (*s->cls && to->passed)
			to->passed(to->ctx, s->key, "the sample has no image");
		*s->cls = '\0';
		return 0;
	}
	errno = 0;
	label = strtol(s->cls, &end, 10);
	if (*s->cls && !*end && (errno || label < 0 || label > INT_MAX))
		rc = dt_err_set(err, -EBADMSG, "'%s': '%.200s' has the invalid class %s", t->path, s->key,
				s->cls);
	else if (*s->cls && !*end)
		item.label = (int)label;
	else if (*s->cls)
		item.cls = s->cls;
	else if (folder_of(s->name, folder))
		item.cls = folder;
	else
		rc = dt_err_set(err, -EBADMSG,
				"'%s': '%.200s' has neither a .cls member nor a folder that names its class",
				t->path, s->name);
	if (rc == 0)
		rc = to->image(to->ctx, &item, err);
	free(s->bytes);
	s->bytes = NULL;
	*s->cls = '\0';
	return rc;
}

static const char *ending_of(const char *name, size_t *ret_key)
{
	const char *slash = strrchr(name, '/'), *dot = strchr(slash ? slash : name, '.');

	*ret_key = dot ? (size_t)(dot - name) : strlen(name);
	return dot ? dot + 1 : "";
}

static int take_class(struct tar *t, struct sample *s, struct dt_err *err)
{
	uint8_t *text;
	size_t n;
	int rc = content(t, TEXT_MAX, &text, err);

	if (rc < 0)
		return rc;
	n = strlen((char *)text);
	while (n && isspace(text[n - 1]))
		n--;
	snprintf(s->cls, sizeof(s->cls), "%.*s", (int)(n < NAME_MAX_ ? n : NAME_MAX_ - 1), (char *)text);
	free(text);
	return 0;
}

static int take_member(struct tar *t, struct sample *s, const struct dt_image_sink *to, struct dt_err *err)
{
	size_t key_n;
	const char *ending = ending_of(t->name, &key_n), *why;
	int rc = 0;

	if (key_n != strlen(s->key) || strncmp(s->key, t->name, key_n)) {
		rc = give(t, s, to, err);
		snprintf(s->key, sizeof(s->key), "%.*s", (int)key_n, t->name);
	}
	if (rc < 0)
		return rc;
	if (!strcmp(ending, "cls"))
		return take_class(t, s, err);
	why = dt_image_ending(t->name);
	if (!why && s->bytes)
		why = "it is the second image of its sample";
	if (why) {
		if (to->passed)
			to->passed(to->ctx, t->name, why);
		return skip(t, t->size + padding(t->size), err);
	}
	rc = content(t, DT_IMAGE_FILE_MAX, &s->bytes, err);
	if (rc == 0) {
		s->n = (size_t)t->size;
		snprintf(s->name, sizeof(s->name), "%s", t->name);
	}
	return rc;
}

int dt_image_from_tar(const char *path, const char *match, const struct dt_image_sink *to, struct dt_err *err)
{
	struct tar *t = calloc(1, sizeof(*t));
	struct sample *s = calloc(1, sizeof(*s));
	int rc = t && s ? unpack_open(path, &t->f, err) : dt_err_sys(err, -ENOMEM, "cannot read '%s'", path);

	if (rc == 0) {
		t->path = path;
		while ((rc = next(t, err)) > 0) {
			bool file = t->type == '0' || t->type == '\0' || t->type == '7';

			rc = file && (!match || fnmatch(match, t->name, 0) == 0)
				     ? take_member(t, s, to, err)
				     : skip(t, t->size + padding(t->size), err);
			if (rc < 0)
				break;
		}
		if (rc == 0)
			rc = give(t, s, to, err);
	}
	if (s)
		free(s->bytes);
	unpack_close(t ? t->f : NULL);
	free(s);
	free(t);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
