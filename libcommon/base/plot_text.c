#include "base/plot_text.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

static const int colors[DT_PLOT_COLORS] = {36, 33, 35, 32, 31, 34};

void dt_plot_set_color(FILE *f, const struct dt_plot_style *st, int series)
{
	if (st->color)
		fprintf(f, "\033[%dm", colors[series % DT_PLOT_COLORS]);
}

void dt_plot_reset_color(FILE *f, const struct dt_plot_style *st)
{
	if (st->color)
		fputs("\033[0m", f);
}

int dt_plot_columns(const char *s)
{
	size_t n;
	char *clean = dt_utf8_clean(s, strlen(s), &n);
	int columns = clean ? (int)dt_utf8_count(clean, n) : 0;

	free(clean);
	return columns;
}

int dt_plot_put_text(FILE *f, const char *from, int room)
{
	size_t len;
	char *clean = dt_utf8_clean(from, strlen(from), &len);
	int n = 0;

	for (const char *s = clean ? clean : ""; *s; s++) {
		bool first = ((unsigned char)*s & 0xc0) != 0x80;

		if (first && n == room)
			break;
		fputc((unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s, f);
		n += first;
	}
	free(clean);
	return n;
}
/* SPDX-License-Identifier: Apache-2.0 */
