/* Plots as SVG: text stays text, one path a series, scalable by a viewBox. */
#include "base/plot.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COLORS = 7, SHAPES = 5, DASHES = 4 };

struct theme {
	const char *ground, *text, *frame, *grid;
	const char *color[COLORS];
};

/* Okabe and Ito's palette without yellow: distinguishable with any colour vision. */
static const struct theme themes[2] = {
	{"#fff",
	 "#333",
	 "#333",
	 "#ddd",
	 {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}},
	{"#15181c",
	 "#d8dce0",
	 "#9aa3ab",
	 "#343a41",
	 {"#4fa8e8", "#ff7f40", "#2fc796", "#e9a3c9", "#f2bd3f", "#9fd8ff", "#ffffff"}},
};

static const char *const dashes[DASHES] = {"", "7 3", "2 3", "9 3 2 3"};

/* Colour, dash pattern and marker of curve n. A pair of colour and marker repeats only after 35 curves. */
static const char *color_of(const struct theme *t, int n)
{
	return t->color[n % COLORS];
}

static const char *dash_of(int n)
{
	return dashes[n / COLORS % DASHES];
}

/* U+FFFE and U+FFFF, which XML does not have. */
static bool is_no_character(const char *s)
{
	return !strncmp(s, "\xef\xbf\xbe", 3) || !strncmp(s, "\xef\xbf\xbf", 3);
}

/* Prints text escaped for XML. Invalid UTF-8, which would be invalid XML, is replaced. */
static void escaped(FILE *f, const char *from)
{
	size_t n;
	char *clean = dt_utf8_clean(from, strlen(from), &n);

	for (const char *s = clean ? clean : ""; *s; s++) {
		if (is_no_character(s)) {
			s += 2;
			continue;
		}
		switch (*s) {
		case '&':
			fputs("&amp;", f);
			break;
		case '<':
			fputs("&lt;", f);
			break;
		case '>':
			fputs("&gt;", f);
			break;
		case '"':
			fputs("&quot;", f);
			break;
		default:
			if ((unsigned char)*s >= 0x20 || *s == '\t')
				fputc(*s, f);
		}
	}
	free(clean);
}

static void text(FILE *f, double x, double y, const char *anchor, const char *s)
{
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
	escaped(f, s);
	fputs("</text>\n", f);
}

static void open_svg(FILE *f, const struct theme *t, int width, int height, const char *title)
{
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
		"font-family=\"sans-serif\" font-size=\"12\" fill=\"%s\">\n",
		width, height, width, height, t->text);
	if (title && *title) {
		fputs("<title>", f);
		escaped(f, title);
		fputs("</title>\n", f);
	}
	fprintf(f, "<rect width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", width, height, t->ground);
	if (title && *title) {
		fprintf(f, "<text x=\"%d\" y=\"20\" text-anchor=\"middle\" font-size=\"15\">", width / 2);
		escaped(f, title);
		fputs("</text>\n", f);
	}
}

struct frame {
	const struct theme *t;
	double left, top, right, bottom; /* plotting area in pixels */
	struct dt_axis x, y;
};

static double px(const struct frame *r, double v)
{
	return r->left + dt_axis_at(&r->x, v) * (r->right - r->left);
}

static double py(const struct frame *r, double v)
{
	return r->bottom - dt_axis_at(&r->y, v) * (r->bottom - r->top);
}

static void axes(FILE *f, const struct dt_plot *p, const struct frame *r, const struct dt_ticks *ty)
{
	const char *y_label = p->y_label ? p->y_label : p->n == 1 ? p->series[0].name : NULL;
	struct dt_ticks tx;
	char label[64];

	dt_ticks_choose(&r->x, (int)(r->right - r->left) / 75, &tx);
	fprintf(f, "<g stroke=\"%s\">\n", r->t->grid);
	for (int i = 0; i < ty->n; i++)
		fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", r->left,
			py(r, ty->at[i]), r->right, py(r, ty->at[i]));
	for (int i = 0; i < tx.n; i++)
		fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", px(r, tx.at[i]),
			r->top, px(r, tx.at[i]), r->bottom);
	fputs("</g>\n", f);
	fprintf(f, "<path d=\"M%.1f %.1fV%.1fH%.1f\" fill=\"none\" stroke=\"%s\"/>\n", r->left, r->top,
		r->bottom, r->right, r->t->frame);
	for (int i = 0; i < ty->n; i++)
		text(f, r->left - 6, py(r, ty->at[i]) + 4, "end",
		     dt_ticks_format(ty, i, label, sizeof(label)));
	for (int i = 0; i < tx.n; i++)
		text(f, px(r, tx.at[i]), r->bottom + 17, "middle",
		     dt_ticks_format(&tx, i, label, sizeof(label)));
	if (p->x_label)
		text(f, (r->left + r->right) / 2, r->bottom + 35, "middle", p->x_label);
	if (y_label)
		text(f, 10, r->top - 9, "start", y_label);
}

/* Draws the curve's marker, filled. */
static void mark(FILE *f, const struct frame *r, int number, double x, double y)
{
	fprintf(f, "<path fill=\"%s\" d=\"M%.2f %.2f", color_of(r->t, number), x, y);
	switch (number % SHAPES) {
	case 0:
		fputs("m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z", f);
		break;
	case 1:
		fputs("m-3 -3h6v6h-6z", f);
		break;
	case 2:
		fputs("m0 -4l3.6 6.4h-7.2z", f);
		break;
	case 3:
		fputs("m0 -4.2l4.2 4.2l-4.2 4.2l-4.2 -4.2z", f);
		break;
	default:
		fputs("m0 4l3.6 -6.4h-7.2z", f);
	}
	fputs("\"/>\n", f);
}

static void stroke(FILE *f, const struct theme *t, int number, double width)
{
	fprintf(f, " fill=\"none\" stroke=\"%s\" stroke-width=\"%g\"", color_of(t, number), width);
	if (*dash_of(number))
		fprintf(f, " stroke-dasharray=\"%s\"", dash_of(number));
}

/*
 * Prints the points of a path. Many points on one pixel are reduced to the first, lowest, highest and last.
 */
static void points(FILE *f, const struct dt_series *s, const struct frame *r)
{
	bool thin = (double)s->n > 4 * (r->right - r->left);
	size_t i = 0;

	while (i < s->n) {
		size_t end = i + 1, lo = i, hi = i;
		bool jump = i == 0 || s->x[i] < s->x[i - 1]; /* a resumed run starts a new line */

		fprintf(f, "%c%.2f %.2f", jump ? 'M' : 'L', px(r, s->x[i]), py(r, s->y[i]));
		if (thin) {
			double column = floor(px(r, s->x[i]));

			while (end < s->n && s->x[end] >= s->x[end - 1] &&
			       floor(px(r, s->x[end])) == column) {
				lo = s->y[end] < s->y[lo] ? end : lo;
				hi = s->y[end] > s->y[hi] ? end : hi;
				end++;
			}
			if (end - i > 3)
				fprintf(f, "L%.2f %.2fL%.2f %.2fL%.2f %.2f", px(r, s->x[lo < hi ? lo : hi]),
					py(r, s->y[lo < hi ? lo : hi]), px(r, s->x[lo < hi ? hi : lo]),
					py(r, s->y[lo < hi ? hi : lo]), px(r, s->x[end - 1]),
					py(r, s->y[end - 1]));
			else
				end = i + 1;
		}
		i = end;
	}
}

static bool has_marks(const struct dt_series *s)
{
	return s->n <= 40;
}

/* Draws the area below each run of a series down to zero. */
static void area(FILE *f, const struct dt_series *s, const struct frame *r, int number)
{
	double base = py(r, fmax(r->y.lo, 0));

	for (size_t i = 0, end; i < s->n; i = end) {
		struct dt_series run = {.x = s->x + i, .y = s->y + i};

		for (end = i + 1; end < s->n && s->x[end] >= s->x[end - 1];)
			end++;
		run.n = end - i;
		fprintf(f, "<path fill=\"%s\"", color_of(r->t, number));
		if (number >= COLORS)
			fputs(" fill-opacity=\"0.55\"", f);
		fputs(" d=\"", f);
		points(f, &run, r);
		fprintf(f, "V%.2fH%.2fz\"/>\n", base, px(r, run.x[0]));
	}
}

static void curve(FILE *f, const struct dt_series *s, const struct frame *r, int number)
{
	if (s->n > 1) {
		fputs("<path", f);
		stroke(f, r->t, number, 1.5);
		fputs(" stroke-linejoin=\"round\" d=\"", f);
		points(f, s, r);
		fputs("\"/>\n", f);
	}
	for (size_t i = 0; i < s->n && has_marks(s); i++)
		mark(f, r, number, px(r, s->x[i]), py(r, s->y[i]));
}

/* Draws the curves before smoothing, clipped to the plotting area. */
static void raw_curves(FILE *f, const struct dt_plot *p, const struct frame *r)
{
	fprintf(f,
		"<clipPath id=\"area\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
		"height=\"%.1f\"/>"
		"</clipPath>\n"
		"<g clip-path=\"url(#area)\" opacity=\"0.25\">\n",
		r->left, r->top, r->right - r->left, r->bottom - r->top);
	for (int s = 0; s < p->n; s++) {
		fputs("<path", f);
		stroke(f, r->t, s, 1);
		fputs(" d=\"", f);
		points(f, &p->raw[s], r);
		fputs("\"/>\n", f);
	}
	fputs("</g>\n", f);
}

#define NAME_AT 40 /* pixels between the plotting area and a name: leader line, line sample, space */

/* Pixels between names that share the height; below 12, their text is as small. */
static double name_gap(const struct dt_plot *p, const struct frame *r)
{
	return (r->bottom - r->top) / (p->n > 1 ? p->n - 1 : 1);
}

/* Draws names to the right of the curves, each with a line sample and a leader line from the curve's end. */
static void names(FILE *f, const struct dt_plot *p, const struct frame *r)
{
	double want[DT_PLOT_CURVES_MAX], at[DT_PLOT_CURVES_MAX], x = r->right + NAME_AT, gap;

	for (int s = 0; s < p->n; s++)
		want[s] = p->series[s].n ? py(r, dt_plot_name_at(p, s)) : r->bottom;
	dt_plot_spread(want, p->n, r->top, r->bottom, 15, at);
	gap = name_gap(p, r);
	if (gap < 12)
		fprintf(f, "<g font-size=\"%.1f\">\n", gap);
	for (int s = 0; s < p->n; s++) {
		const struct dt_series *c = &p->series[s];
		double end = c->n ? px(r, c->x[c->n - 1]) : r->right;

		fprintf(f,
			"<path fill=\"none\" stroke=\"%s\" stroke-opacity=\"0.4\" d=\"M%.1f %.1fH%.1fL%.1f "
			"%.1f\"/>\n",
			color_of(r->t, s), fmin(end + 4, r->right), want[s], r->right, r->right + 10, at[s]);
		fputs("<path", f);
		stroke(f, r->t, s, 2);
		fprintf(f, " d=\"M%.1f %.1fh24\"/>\n", x - 28, at[s]);
		if (has_marks(c) && !p->stacked)
			mark(f, r, s, x - 16, at[s]);
		text(f, x, at[s] + 4, "start", c->name);
	}
	if (gap < 12)
		fputs("</g>\n", f);
}

/* Approximate width in pixels of text of the default size. */
static double text_width(const char *s)
{
	double n = 0;

	for (; *s; s++) {
		if (((unsigned char)*s & 0xc0) == 0x80)
			continue;
		n += strchr("fijlrt .,:;|'()", *s) ? 5 : strchr("mwMW%@", *s) ? 12 : 7.7;
	}
	return n;
}

void dt_plot_svg(const struct dt_plot *p, int width, int height, bool dark, FILE *f)
{
	struct frame r = {.t = &themes[dark],
			  .top = p->title && *p->title ? 46 : 26,
			  .right = width - 24,
			  .bottom = height - 46};
	double widest = 0, side = 0;
	struct dt_ticks ty;
	char label[64];

	dt_plot_axes(p, &r.x, &r.y);
	dt_ticks_choose(&r.y, (int)(r.bottom - r.top) / 45, &ty);
	for (int i = 0; i < ty.n; i++)
		widest = fmax(widest, text_width(dt_ticks_format(&ty, i, label, sizeof(label))));
	r.left = 16 + widest;
	for (int s = 0; s < p->n && p->n > 1; s++)
		side = fmax(side,
			    text_width(p->series[s].name) * fmin(1, name_gap(p, &r) / 12) + NAME_AT + 6);
	r.right = fmax(side > 0 ? width - side : r.right, r.left + (width - r.left) / 3);
	open_svg(f, r.t, width, height, p->title);
	axes(f, p, &r, &ty);
	if (p->raw && !p->stacked)
		raw_curves(f, p, &r);
	/* uppermost area first; the others are drawn over it */
	for (int s = p->n - 1; s >= 0 && p->stacked; s--)
		area(f, &p->series[s], &r, s);
	for (int s = 0; s < p->n && !p->stacked; s++)
		curve(f, &p->series[s], &r, s);
	if (p->n > 1)
		names(f, p, &r);
	fputs("</svg>\n", f);
}

void dt_bars_svg(const struct dt_bars *b, int width, bool dark, FILE *f)
{
	double lo = 0, hi = 0, left, right = width - 90, top = b->title && *b->title ? 40 : 16;
	size_t widest = 1;
	const struct theme *t = &themes[dark];
	char label[64];

	for (int i = 0; i < b->n; i++) {
		lo = fmin(lo, b->bar[i].value);
		hi = fmax(hi, b->bar[i].value);
		widest = strlen(b->bar[i].name) > widest ? strlen(b->bar[i].name) : widest;
	}
	if (lo == hi)
		hi = 1;
	left = fmin(20 + 7.5 * (double)widest, width / 2.0);
	open_svg(f, t, width, (int)top + 24 * b->n + 12, b->title);
	for (int i = 0; i < b->n; i++) {
		double zero = left + (0 - lo / 2) / (hi / 2 - lo / 2) * (right - left), y = top + 24 * i;
		double end = left + (b->bar[i].value / 2 - lo / 2) / (hi / 2 - lo / 2) * (right - left);

		text(f, left - 8, y + 13, "end", b->bar[i].name);
		fprintf(f, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"18\" fill=\"%s\"/>\n",
			fmin(zero, end), y, fabs(end - zero), t->color[0]);
		text(f, fmax(zero, end) + 6, y + 13, "start",
		     dt_bar_format(b, b->bar[i].value, label, sizeof(label)));
	}
	fputs("</svg>\n", f);
}
/* SPDX-License-Identifier: Apache-2.0 */
