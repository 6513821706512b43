#include "data/text_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES  (1 << 20)
#define BLOCK_LINES 8192
#define BLOCK_BYTES ((size_t)8 << 20)

struct span {
	size_t at, file_at, n;
};

struct block {
	const struct text_lines *t;
	char *buf;
	size_t at, n, cap; /* bytes at .. n - 1 of buf are unread */
	size_t searched;   /* leading unread bytes that contain no end of line */
	size_t file_at;	   /* file offset of buf[at] */
	size_t number;	   /* lines read */
	bool end;
	int lines;
	struct span span[BLOCK_LINES];
	struct text_line line[BLOCK_LINES];
};

static int fill(struct block *b, struct dt_err *err)
{
	int got;

	if (b->at) {
		memmove(b->buf, b->buf + b->at, b->n -= b->at);
		b->at = 0;
	}
	if (b->cap - b->n < READ_BYTES) {
		size_t cap = b->cap * 2 + READ_BYTES;
		char *grown = realloc(b->buf, cap);

		if (!grown)
			return dt_err_sys(err, -ENOMEM, "cannot hold lines of %zu bytes", cap);
		b->buf = grown;
		b->cap = cap;
	}
	got = b->t->more(b->t->ctx, b->buf + b->n, READ_BYTES, err);
	if (got <= 0) {
		b->end = true;
		return got;
	}
	b->n += (size_t)got;
	return 0;
}

/* Skips the rest of a line that is too long. *ret: bytes skipped. */
static int pass_over(struct block *b, size_t *ret, struct dt_err *err)
{
	const char *nl = NULL;
	int rc = 0;

	*ret = 0;
	b->searched = 0;
	while (rc == 0 && !nl && !b->end) {
		*ret += b->n - b->at;
		b->at = b->n = 0;
		rc = fill(b, err);
		nl = memchr(b->buf, '\n', b->n);
	}
	if (rc == 0 && nl) {
		b->at = (size_t)(nl - b->buf) + 1;
		*ret += b->at;
	}
	return rc;
}

static bool is_blank(const char *s, size_t n)
{
	while (n && memchr(" \t\r\n", s[n - 1], 4))
		n--;
	return n == 0;
}

static void parse(const char *s, struct text_line *l)
{
	size_t n = l->bytes;
	json_error_t je;

	if (l->number == 1 && n >= 3 && !memcmp(s, "\xef\xbb\xbf", 3)) { /* UTF-8 byte-order mark */
		s += 3;
		n -= 3;
	}
	if (is_blank(s, n))
		return;
	l->value = json_loadb(s, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
	if (!l->value)
		snprintf(l->why, sizeof(l->why), "line %zu: %s", l->number, je.text);
}

/* Splits buf's complete lines, as many as a block holds. */
static void cut_lines(struct block *b)
{
	for (b->lines = 0; b->lines < BLOCK_LINES && b->at < b->n; b->lines++) {
		const char *s = b->buf + b->at;
		const size_t left = b->n - b->at;
		const char *nl = memchr(s + b->searched, '\n', left - b->searched);
		const size_t n = nl ? (size_t)(nl - s) + 1 : left;

		if (!nl && !b->end) {
			b->searched = left;
			break;
		}
		b->searched = 0;
		b->span[b->lines] = (struct span){b->at, b->file_at, n};
		b->line[b->lines] = (struct text_line){.bytes = n, .number = ++b->number};
		b->at += n;
		b->file_at += n;
	}
}

static int take_lines(struct block *b, struct dt_err *err)
{
	const struct text_lines *t = b->t;
	int rc = 0;

#pragma omp parallel for schedule(dynamic, 8) if (b->lines > 8)
	for (int i = 0; i < b->lines; i++)
		if (!t->wanted || t->wanted(t->ctx, b->span[i].file_at))
			parse(b->buf + b->span[i].at, &b->line[i]);
	for (int i = 0; i < b->lines; i++) {
		if (rc == 0)
			rc = t->take(t->ctx, &b->line[i], err);
		json_decref(b->line[i].value);
	}
	return rc;
}

static int too_long(struct block *b, struct dt_err *err)
{
	struct text_line l = {.number = ++b->number};
	int rc;

	rc = pass_over(b, &l.bytes, err);
	if (rc < 0)
		return rc;
	b->file_at += l.bytes;
	snprintf(l.why, sizeof(l.why), "line %zu is longer than %zu MiB", l.number, TEXT_LINE_MAX >> 20);
	return b->t->take(b->t->ctx, &l, err);
}

int text_lines_read(const struct text_lines *t, struct dt_err *err)
{
	struct block *b = calloc(1, sizeof(*b));
	int rc = b ? 0 : dt_err_sys(err, -ENOMEM, "cannot read lines");

	if (b)
		b->t = t;
	while (rc == 0 && (b->at < b->n || !b->end)) {
		cut_lines(b);
		if (b->lines)
			rc = take_lines(b, err);
		else if (b->n - b->at > TEXT_LINE_MAX)
			rc = too_long(b, err);
		else
			do
				rc = fill(b, err);
			while (rc == 0 && !b->end && b->n < BLOCK_BYTES);
	}
	if (b)
		free(b->buf);
	free(b);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
