/*
 * Curves as Braille dots (two columns and four lines of dots a character), or in plain ASCII if the terminal
 * has no UTF-8. Without colour, or with more curves than colours, each of several curves has its own marker
 * character. Names of curves are beside their ends if there is room.
 */
#include "base/plot_text.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* One for each possible curve. */
static const char marks[] = "*+ox#@%&=$~^abcdefghijklmnpqrstuvwyzABCDEFGHIJKLMNOPQRSTUVWXYZ01";
_Static_assert(sizeof(marks) - 1 >= DT_PLOT_CURVES_MAX, "a mark for every curve");

struct canvas {
	int cols, rows; /* characters */
	int dx, dy;	/* dots a character, horizontally and vertically */
	uint8_t *dots;	/* bit mask of the dots of each character */
	uint8_t *owner; /* 1 + index of the series drawn last */
};

static void dot(struct canvas *c, int x, int y, int series)
{
	static const uint8_t bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
	int cell;

	if (x < 0 || y < 0 || x >= c->cols * c->dx || y >= c->rows * c->dy)
		return;
	cell = y / c->dy * c->cols + x / c->dx;
	c->dots[cell] |= bit[y % c->dy][x % c->dx];
	c->owner[cell] = (uint8_t)(series + 1);
}

static void line(struct canvas *c, int x0, int y0, int x1, int y1, int series)
{
	int dx = abs(x1 - x0), dy = -abs(y1 - y0), sx = x0 < x1 ? 1 : -1, sy = y0 < y1 ? 1 : -1, e = dx + dy;

	for (;;) {
		int e2 = 2 * e;

		dot(c, x0, y0, series);
		if (x0 == x1 && y0 == y1)
			return;
		if (e2 >= dy) {
			e += dy;
			x0 += sx;
		}
		if (e2 <= dx) {
			e += dx;
			y0 += sy;
		}
	}
}

/* Fills all dots below a line. A character cell belongs to the area drawn last. */
static void fill_below(struct canvas *c, int x0, int y0, int x1, int y1, int series)
{
	for (int x = x0; x <= x1; x++) {
		int y = x1 > x0 ? y0 + (int)lround((double)(y1 - y0) * (x - x0) / (x1 - x0)) : y1;

		for (; y < c->rows * c->dy; y++)
			dot(c, x, y, series);
	}
}

static void draw_series(struct canvas *c, const struct dt_series *s, int number, const struct dt_axis *ax,
			const struct dt_axis *ay, bool fill)
{
	int px = 0, py = 0;

	for (size_t i = 0; i < s->n; i++) {
		int x = (int)lround(dt_axis_at(ax, s->x[i]) * (c->cols * c->dx - 1));
		int y = (int)lround((1 - dt_axis_at(ay, s->y[i])) * (c->rows * c->dy - 1));
		bool first = i == 0 || s->x[i] < s->x[i - 1]; /* a resumed run starts a new line */

		if (fill)
			fill_below(c, first ? x : px, first ? y : py, x, y, number);
		else if (first)
			dot(c, x, y, number);
		else
			line(c, px, py, x, y, number);
		px = x;
		py = y;
	}
}

/* Prints a row; returns the columns written. */
static int put_row(FILE *f, const struct canvas *c, const struct dt_plot_style *st, bool braille, int row)
{
	int last = c->cols - 1, now = 0;

	while (last >= 0 && !c->owner[row * c->cols + last])
		last--;
	for (int x = 0; x <= last; x++) {
		int cell = row * c->cols + x, owner = c->owner[cell];

		if (owner && owner != now)
			dt_plot_set_color(f, st, owner - 1);
		if (owner)
			now = owner;
		if (!owner)
			fputc(' ', f);
		else if (braille)
			fprintf(f, "\xe2%c%c", 0xa0 | c->dots[cell] >> 6, 0x80 | (c->dots[cell] & 0x3f));
		else
			fputc(marks[owner - 1], f);
	}
	if (now)
		dt_plot_reset_color(f, st);
	return last + 1;
}

static void sample(FILE *f, const struct dt_plot_style *st, bool braille, int series)
{
	dt_plot_set_color(f, st, series);
	if (braille)
		fputs("\xe2\xa0\x92\xe2\xa0\x92", f);
	else
		fprintf(f, "%c%c", marks[series], marks[series]);
	dt_plot_reset_color(f, st);
	fputc(' ', f);
}

/* Prints the names of all curves above the plot. Returns the number of lines. */
static int legend_above(FILE *f, const struct dt_plot *p, const struct dt_plot_style *st, bool braille)
{
	int at = 0, lines = 0;

	for (int s = 0; s < p->n; s++) {
		int need = dt_plot_columns(p->series[s].name) + 3;

		if (at > 0 && at + 2 + need > st->width) {
			fputc('\n', f);
			lines++;
			at = 0;
		}
		if (at > 0)
			at += fprintf(f, "  ");
		sample(f, st, braille, s);
		at += 3 + dt_plot_put_text(f, p->series[s].name, st->width - 3);
	}
	fputc('\n', f);
	return lines + 1;
}

/* Columns for the names beside the plot, with a space before them; 0: the names go above it. */
static int legend_columns(const struct dt_plot *p, int width, int rows)
{
	int widest = 0;

	if (p->n < 2 || p->n > rows)
		return 0;
	for (int s = 0; s < p->n; s++)
		widest = dt_plot_columns(p->series[s].name) > widest ? dt_plot_columns(p->series[s].name)
								     : widest;
	return widest + 4 <= width / 3 ? widest + 4 : 0;
}

/* Assigns the names of curves to rows, each as near as possible to its curve's end. -1: no name. */
static void place_names(const struct dt_plot *p, const struct dt_axis *ay, int rows, int *of_row)
{
	double want[DT_PLOT_CURVES_MAX], at[DT_PLOT_CURVES_MAX];

	for (int s = 0; s < p->n; s++) {
		want[s] =
			p->series[s].n ? (1 - dt_axis_at(ay, dt_plot_name_at(p, s))) * (rows - 1) : rows - 1;
	}
	dt_plot_spread(want, p->n, 0, rows - 1, 1, at);
	for (int i = 0; i < rows; i++)
		of_row[i] = -1;
	for (int s = 0; s < p->n; s++) {
		int row = (int)lround(at[s]);

		while (row < rows - 1 && of_row[row] >= 0) /* two may round to the same row */
			row++;
		while (row > 0 && of_row[row] >= 0)
			row--;
		of_row[row] = s;
	}
}

struct x_row {
	char text[512]; /* the numbers */
	bool tick[512];
	int placed, end; /* numbers; columns of the text */
};

/* Places up to `most` numbers in the columns before `end`, at least two columns apart. */
static void place_numbers(const struct dt_axis *ax, int most, int cols, int end, struct x_row *ret)
{
	char label[64];
	int free_from = 0;
	struct dt_ticks t;

	*ret = (struct x_row){0};
	memset(ret->text, ' ', sizeof(ret->text));
	dt_ticks_choose(ax, most, &t);
	for (int i = 0; i < t.n; i++) {
		int at = (int)lround(dt_axis_at(ax, t.at[i]) * (cols - 1));
		int n = (int)strlen(dt_ticks_format(&t, i, label, sizeof(label))), from = at - n / 2;

		if (from < 0)
			from = 0;
		if (at < 0 || at >= cols || from < free_from || from + n + 2 > end)
			continue;
		memcpy(ret->text + from, label, (size_t)n);
		free_from = from + n + 2;
		ret->tick[at] = true;
		ret->placed++;
	}
	ret->end = free_from;
}

/* Prints the horizontal axis and its numbers; the first `left` columns belong to the vertical axis. */
static void put_x_axis(FILE *f, const struct dt_plot *p, const struct dt_plot_style *st,
		       const struct dt_axis *ax, int left, int cols)
{
	int label_at, most;
	struct x_row row, finer;

	if (cols > (int)sizeof(row.text) - 1)
		cols = (int)sizeof(row.text) - 1;
	label_at = cols;
	if (p->x_label && dt_plot_columns(p->x_label) < cols / 3)
		label_at = cols - dt_plot_columns(p->x_label);
	most = cols / 10 < 2 ? 2 : cols / 10;
	place_numbers(ax, most, cols, label_at, &row);
	while (row.placed < 2 && ++most <= cols / 4) { /* the label may stand where the numbers would */
		place_numbers(ax, most, cols, label_at, &finer);
		if (finer.placed > row.placed)
			row = finer;
	}
	fprintf(f, "%*s%s", left - 1, "", st->utf8 ? "\xe2\x94\x94" : "+");
	for (int i = 0; i < cols; i++)
		fputs(row.tick[i] ? (st->utf8 ? "\xe2\x94\xac" : "+") : (st->utf8 ? "\xe2\x94\x80" : "-"), f);
	fprintf(f, "\n%*s%.*s", left, "", label_at < cols ? label_at : row.end, row.text);
	if (label_at < cols)
		dt_plot_put_text(f, p->x_label, cols - label_at);
	fputc('\n', f);
}

/* Prints a row of the plot: number, axis, dots, a curve's name. */
static void put_line(FILE *f, const struct canvas *c, const struct dt_plot *p, const struct dt_plot_style *st,
		     const struct dt_axis *ay, const struct dt_ticks *t, int left, bool braille, int row,
		     int name)
{
	const char *side = st->utf8 ? "\xe2\x94\x82" : "|";
	char label[64] = "";
	int n;

	for (int i = 0; i < t->n; i++) {
		if (lround((1 - dt_axis_at(ay, t->at[i])) * (c->rows * c->dy - 1)) / c->dy != row)
			continue;
		dt_ticks_format(t, i, label, sizeof(label));
		side = st->utf8 ? "\xe2\x94\xa4" : "+";
	}
	fprintf(f, "%*s %s", left - 2, label, side);
	n = put_row(f, c, st, braille, row);
	if (name >= 0) {
		fprintf(f, "%*s", c->cols - n + 1, "");
		sample(f, st, braille, name);
		dt_plot_put_text(f, p->series[name].name, st->width);
	}
	fputc('\n', f);
}

/*
 * Prints the title and the label of the y axis, and the names of curves unless they go beside them. Returns
 * the lines.
 */
static int put_head(FILE *f, const struct dt_plot *p, const struct dt_plot_style *st, bool beside,
		    bool braille)
{
	int lines = 0;

	if (p->title && *p->title) {
		dt_plot_put_text(f, p->title, st->width);
		fputc('\n', f);
		lines++;
	}
	if (p->y_label && p->n != 1) {
		dt_plot_put_text(f, p->y_label, st->width);
		fputc('\n', f);
		lines++;
	}
	return beside ? lines : lines + legend_above(f, p, st, braille);
}

/* Number of lines of put_head if the names of curves fit on one. */
static int head_lines(const struct dt_plot *p, bool beside)
{
	return (p->title && *p->title) + (p->y_label && p->n != 1) + !beside;
}

int dt_plot_term(const struct dt_plot *p, const struct dt_plot_style *style, FILE *f)
{
	struct dt_plot_style st = *style;
	bool braille = st.utf8 && (p->n <= 1 || (st.color && p->n <= DT_PLOT_COLORS));
	int left = 0, lines = -ENOMEM, names, *of_row = NULL;
	struct dt_axis ax, ay;
	struct canvas c = {0};
	struct dt_ticks t;
	char label[64];

	if (st.width < DT_PLOT_MIN_WIDTH)
		st.width = DT_PLOT_MIN_WIDTH;
	if (st.height < DT_PLOT_MIN_HEIGHT)
		st.height = DT_PLOT_MIN_HEIGHT;
	dt_plot_axes(p, &ax, &ay);
	names = legend_columns(p, st.width, st.height - 2 - head_lines(p, true));
	c.rows = st.height - 2 - head_lines(p, names > 0);
	if (c.rows < 3)
		c.rows = 3;
	dt_ticks_choose(&ay, c.rows / 3 < 3 ? 3 : c.rows / 3, &t);
	for (int i = 0; i < t.n; i++) {
		int n = (int)strlen(dt_ticks_format(&t, i, label, sizeof(label)));

		left = n > left ? n : left;
	}
	left += 2;
	c.cols = st.width - left - names;
	c.dx = braille ? 2 : 1;
	c.dy = braille ? 4 : 1;
	c.dots = calloc((size_t)c.cols * (size_t)c.rows, 1);
	c.owner = calloc((size_t)c.cols * (size_t)c.rows, 1);
	of_row = malloc((size_t)c.rows * sizeof(*of_row));
	if (!c.dots || !c.owner || !of_row)
		goto out;
	for (int s = 0; s < p->n; s++) { /* of areas the uppermost first; the others are drawn over it */
		int k = p->stacked ? p->n - 1 - s : s;

		draw_series(&c, &p->series[k], k, &ax, &ay, p->stacked);
	}
	for (int i = 0; i < c.rows; i++)
		of_row[i] = -1;
	if (names)
		place_names(p, &ay, c.rows, of_row);
	lines = put_head(f, p, &st, names > 0, braille);
	for (int row = 0; row < c.rows; row++)
		put_line(f, &c, p, &st, &ay, &t, left, braille, row, of_row[row]);
	put_x_axis(f, p, &st, &ax, left, c.cols);
	lines += c.rows + 2;
out:
	free(c.dots);
	free(c.owner);
	free(of_row);
	return lines;
}
/* SPDX-License-Identifier: Apache-2.0 */
