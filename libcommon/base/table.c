#include "base/table.h"

#include "base/room.h"
#include "base/tmpfile.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MAX_COLS   32
#define LEAST_ROOM 16 /* minimal width of a last column that is wrapped */
#define INDENT	   4  /* indentation of a wrapped last column that has less room */

struct dt_table {
	int ncol, ncell, cap;
	bool right[MAX_COLS], lost; /* lost: memory was too little for a cell */
	char **cell;		    /* ncell strings; a row whose first cell is NULL is a rule */
};

/* Takes s; NULL begins a rule. */
static void add(struct dt_table *t, char *s)
{
	if (DT_ROOM(t->cell, t->ncell, t->cap, 64)) {
		t->cell[t->ncell++] = s;
		return;
	}
	free(s);
	t->lost = true;
}

/* NULL: there was no memory for the cell. */
static void add_cell(struct dt_table *t, char *s)
{
	if (s)
		add(t, s);
	else
		t->lost = true;
}

struct dt_table *dt_table_new(const char *columns)
{
	struct dt_table *t = calloc(1, sizeof(*t));
	char *copy = strdup(columns), *rest = copy, *s;

	if (!t || !copy) {
		free(t);
		free(copy);
		return NULL;
	}
	while (t->ncol < MAX_COLS && (s = strsep(&rest, "|"))) { /* a heading may be empty */
		t->right[t->ncol++] = *s == '>';
		add_cell(t, strdup(*s == '>' ? s + 1 : s));
	}
	free(copy);
	return t;
}

void dt_table_free(struct dt_table *t)
{
	if (!t)
		return;
	for (int i = 0; i < t->ncell; i++)
		free(t->cell[i]);
	free(t->cell);
	free(t);
}

void dt_table_cell(struct dt_table *t, const char *fmt, ...)
{
	va_list ap;
	char *s;

	if (!t)
		return;
	va_start(ap, fmt);
	if (vasprintf(&s, fmt, ap) < 0)
		s = NULL;
	va_end(ap);
	add_cell(t, s);
}

void dt_table_end_row(struct dt_table *t)
{
	if (!t)
		return;
	if (t->ncell % t->ncol == 0)
		add(t, NULL);
	while (t->ncell % t->ncol && !t->lost)
		add_cell(t, strdup(""));
}

static int width_of(const char *s, int bytes)
{
	int n = 0;

	for (int i = 0; i < bytes; i++)
		n += ((unsigned char)s[i] & 0xc0) != 0x80; /* UTF-8 continuation bytes take no column */
	return n;
}

static int width(const char *s)
{
	return s ? width_of(s, (int)strlen(s)) : 0;
}

/* Bytes of s that fit in `room` columns, up to a blank; at least one whole word. *ret_next: the rest. */
static int piece(const char *s, int room, const char **ret_next)
{
	const char *end = NULL;

	for (const char *p = s;; p++) {
		if (*p && *p != ' ')
			continue;
		if (!end || width_of(s, (int)(p - s)) <= room)
			end = p;
		else
			break;
		if (!*p)
			break;
	}
	*ret_next = *end ? end + 1 : end;
	return (int)(end - s);
}

/* How the last cell of a row is wrapped: from column `at` in lines of `room` columns; room 0: not wrapped. */
struct fold {
	int at, room;
	bool below; /* it starts on a line of its own */
};

/* Columns printed side by side: the first column, which names the rows, and columns from .. end - 1. */
struct block {
	int from, end, width;
	struct fold fold;
};

static void print_folded(FILE *f, const char *s, const struct fold *fold)
{
	for (bool first = true; *s; first = false) {
		const char *next;
		int n = piece(s, fold->room, &next);

		if (first && !fold->below)
			fprintf(f, "%.*s", n, s);
		else
			fprintf(f, "\n%*s%.*s", fold->at, "", n, s);
		s = next;
	}
}

static void print_row(const struct dt_table *t, char *const *row, const int *w, const struct block *b,
		      FILE *f)
{
	const struct fold *fold = &b->fold;
	int pending = 0;

	for (int c = 0; c < b->end; c = c ? c + 1 : b->from) {
		const char *s = row[c];
		int pad = w[c] - width(s);
		bool folded = fold->room && c == t->ncol - 1;

		if (t->right[c])
			pending += pad;
		if (s && *s) {
			if (!folded || !fold->below)
				fprintf(f, "%*s", pending, "");
			if (folded)
				print_folded(f, s, fold);
			else
				fputs(s, f);
			pending = 0;
		}
		if (!t->right[c])
			pending += pad;
		pending += 2;
	}
	fputc('\n', f);
}

static void print_block(const struct dt_table *t, const int *w, const struct block *b, FILE *f)
{
	for (int r = 0; r + t->ncol <= t->ncell; r += t->ncol) {
		if (t->cell[r]) {
			print_row(t, t->cell + r, w, b, f);
			continue;
		}
		for (int i = 0; i < b->width; i++)
			fputc('-', f);
		fputc('\n', f);
	}
}

/*
 * The block that starts at column `from`, as wide as fits but at least one column; a last column that folds
 * always fits.
 */
static struct block block_of(const struct dt_table *t, const int *w, int from, bool folds, int columns)
{
	const int last = t->ncol - 1;
	struct block b = {.from = from, .end = from, .width = w[0]};

	while (b.end < t->ncol) {
		const int width = b.width + 2 + w[b.end];

		if (columns && b.end > from && width > columns && !(folds && b.end == last))
			break;
		b.width = width;
		b.end++;
	}
	if (b.end == t->ncol && folds && b.width > columns) {
		b.fold.at = b.width - w[last];
		b.fold.below = columns - b.fold.at < LEAST_ROOM;
		b.fold.at = b.fold.below ? INDENT : b.fold.at;
		b.fold.room = columns - b.fold.at;
		b.width = columns;
	}
	return b;
}

void dt_table_print_within(const struct dt_table *t, FILE *f, int columns)
{
	int w[MAX_COLS] = {0}, from = 1, last;
	bool folds;

	if (!t || t->lost) {
		dt_output_lost();
		return;
	}
	for (int i = 0; i < t->ncell; i++) {
		int n = width(t->cell[i]);

		if (n > w[i % t->ncol])
			w[i % t->ncol] = n;
	}
	last = t->ncol - 1;
	columns = columns < INDENT + LEAST_ROOM ? 0 : columns;
	folds = columns && last > 0 && w[last] > LEAST_ROOM && !t->right[last];
	do {
		const struct block b = block_of(t, w, from, folds, columns);

		if (from > 1)
			fputc('\n', f);
		print_block(t, w, &b, f);
		from = b.end;
	} while (from < t->ncol);
}

void dt_table_print(const struct dt_table *t, FILE *f)
{
	struct winsize w;
	int fd = fileno(f);

	dt_table_print_within(t, f, fd >= 0 && isatty(fd) && ioctl(fd, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0);
}
/* SPDX-License-Identifier: Apache-2.0 */
