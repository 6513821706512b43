/* Bar charts of block characters, or of plain ASCII if the terminal has no UTF-8. */
#include "base/plot_text.h"

#include <math.h>
#include <string.h>

/* Prints a bar from a to b, positions in eighths of a column. */
static void put_bar(FILE *f, const struct dt_plot_style *st, int from, int to)
{
	int whole = (to - from) / 8, rest = (to - from) % 8;

	fprintf(f, "%*s", from / 8, "");
	for (int i = 0; i < whole; i++)
		fputs(st->utf8 ? "\xe2\x96\x88" : "#", f);
	if (rest && st->utf8)
		fprintf(f, "\xe2\x96%c", 0x90 - rest); /* U+2588 - rest: eighths of a block */
	else if (rest >= 4)
		fputc('#', f);
}

/* Where bars start and how long they are, in eighths of a column. */
struct scale {
	int zero;	   /* a whole column, so that bars of both signs meet there */
	double value, len; /* a bar of this value has this length */
};

/* lo <= 0 <= hi. Each sign that occurs has a column at least; bars of both signs have one scale. */
static struct scale scale_of(double lo, double hi, int cols)
{
	int left = (int)lround(-lo / 2 / (hi / 2 - lo / 2) * cols), right;

	left = lo < 0 && left < 1 ? 1 : hi > 0 && left > cols - 1 ? cols - 1 : left;
	right = cols - left;
	if (hi > 0 && right * (-lo / cols) <= left * (hi / cols))
		return (struct scale){left * 8, hi, right * 8};
	return (struct scale){left * 8, -lo, left * 8};
}

int dt_bars_term(const struct dt_bars *b, const struct dt_plot_style *style, FILE *f)
{
	int names = 0, values = 0, width = style->width, cols, lines = 0;
	double lo = 0, hi = 0;
	struct scale at;
	char text[64];

	for (int i = 0; i < b->n; i++) {
		int n = dt_plot_columns(b->bar[i].name),
		    v = (int)strlen(dt_bar_format(b, b->bar[i].value, text, sizeof(text)));

		names = n > names ? n : names;
		values = v > values ? v : values;
		lo = fmin(lo, b->bar[i].value);
		hi = fmax(hi, b->bar[i].value);
	}
	if (width < DT_PLOT_MIN_WIDTH)
		width = DT_PLOT_MIN_WIDTH;
	if (names > width / 2)
		names = width / 2;
	cols = width - names - values - 4;
	if (cols < 4)
		cols = 4;
	if (lo == hi)
		hi = 1;
	if (b->title && *b->title) {
		dt_plot_put_text(f, b->title, width);
		fputc('\n', f);
		lines++;
	}
	at = scale_of(lo, hi, cols);
	for (int i = 0; i < b->n; i++) {
		int len = (int)lround(b->bar[i].value / at.value * at.len),
		    n = dt_plot_put_text(f, b->bar[i].name, names);

		fprintf(f, "%*s ", names - n, "");
		fprintf(f, " %*s ", values, dt_bar_format(b, b->bar[i].value, text, sizeof(text)));
		dt_plot_set_color(f, style, 0);
		if (len >= 0)
			put_bar(f, style, at.zero, at.zero + len);
		else /* blocks fill a column from the left only: a whole number of columns */
			put_bar(f, style, at.zero - (4 - len) / 8 * 8, at.zero);
		dt_plot_reset_color(f, style);
		fputc('\n', f);
		lines++;
	}
	return lines;
}
/* SPDX-License-Identifier: Apache-2.0 */
