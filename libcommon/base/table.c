#include "base/table.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COLS 32

struct dt_table {
	int ncol, ncell, cap;
	bool right[MAX_COLS];
	char **cell; /* ncell strings; a rule is a row whose first cell is NULL */
};

static void add(struct dt_table *t, char *s)
{
	if (t->ncell == t->cap) {
		int cap = t->cap ? 2 * t->cap : 64;
		char **p = realloc(t->cell, (size_t)cap * sizeof(*p));

		if (!p) {
			free(s);
			return;
		}
		t->cell = p;
		t->cap = cap;
	}
	t->cell[t->ncell++] = s;
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
		add(t, strdup(*s == '>' ? s + 1 : s));
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
	add(t, s ? s : strdup(""));
}

void dt_table_end_row(struct dt_table *t)
{
	if (!t)
		return;
	if (t->ncell % t->ncol == 0)
		add(t, NULL);
	while (t->ncell % t->ncol)
		add(t, strdup(""));
}

static int width(const char *s)
{
	int n = 0;

	for (; s && *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80; /* UTF-8 continuation bytes take no column */
	return n;
}

void dt_table_print(const struct dt_table *t, FILE *f)
{
	int w[MAX_COLS] = {0}, total = 0;

	if (!t)
		return;
	for (int i = 0; i < t->ncell; i++) {
		int n = width(t->cell[i]);

		if (n > w[i % t->ncol])
			w[i % t->ncol] = n;
	}
	for (int c = 0; c < t->ncol; c++)
		total += w[c] + (c ? 2 : 0);
	for (int r = 0; r + t->ncol <= t->ncell; r += t->ncol) {
		int pending = 0;

		if (!t->cell[r]) {
			for (int i = 0; i < total; i++)
				fputc('-', f);
			fputc('\n', f);
			continue;
		}
		for (int c = 0; c < t->ncol; c++) {
			const char *s = t->cell[r + c];
			int pad = w[c] - width(s);

			if (t->right[c])
				pending += pad;
			if (s && *s) {
				fprintf(f, "%*s%s", pending, "", s);
				pending = 0;
			}
			if (!t->right[c])
				pending += pad;
			pending += 2;
		}
		fputc('\n', f);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
