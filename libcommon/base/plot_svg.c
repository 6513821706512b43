/* The same pictures as SVG: text stays text, one path a series, a viewBox so that it scales. */
#include "base/plot.h"

#include <math.h>
#include <string.h>

/* Okabe and Ito's palette: told apart with any colour vision. */
static const char *const palette[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
				      "#e69f00", "#56b4e9", "#000000", "#f0e442"};

static void escaped(FILE *f, const char *s)
{
	for (; *s; s++) {
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
}

static void text(FILE *f, double x, double y, const char *anchor, const char *s)
{
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
	escaped(f, s);
	fputs("</text>\n", f);
}

static void open_svg(FILE *f, int width, int height, const char *title)
{
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
		"font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n",
		width, height, width, height);
	if (title && *title) {
		fputs("<title>", f);
		escaped(f, title);
		fputs("</title>\n", f);
	}
	fprintf(f, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", width, height);
	if (title && *title) {
		fprintf(f, "<text x=\"%d\" y=\"20\" text-anchor=\"middle\" font-size=\"15\">", width / 2);
		escaped(f, title);
		fputs("</text>\n", f);
	}
}

struct frame {
	double left, top, right, bottom; /* pixels of the plotting area */
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
	struct dt_ticks tx;
	char label[64];

	dt_ticks_choose(&r->x, (int)(r->right - r->left) / 90, &tx);
	fputs("<g stroke=\"#ddd\">\n", f);
	for (int i = 0; i < ty->n; i++)
		fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", r->left,
			py(r, ty->at[i]), r->right, py(r, ty->at[i]));
	for (int i = 0; i < tx.n; i++)
		fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", px(r, tx.at[i]),
			r->top, px(r, tx.at[i]), r->bottom);
	fputs("</g>\n", f);
	fprintf(f, "<path d=\"M%.1f %.1fV%.1fH%.1f\" fill=\"none\" stroke=\"#333\"/>\n", r->left, r->top,
		r->bottom, r->right);
	for (int i = 0; i < ty->n; i++)
		text(f, r->left - 6, py(r, ty->at[i]) + 4, "end",
		     dt_ticks_format(ty, i, label, sizeof(label)));
	for (int i = 0; i < tx.n; i++)
		text(f, px(r, tx.at[i]), r->bottom + 17, "middle",
		     dt_ticks_format(&tx, i, label, sizeof(label)));
	if (p->x_label)
		text(f, (r->left + r->right) / 2, r->bottom + 35, "middle", p->x_label);
}

/* One path. Many points a pixel become their first, lowest, highest and last: the same picture, small. */
static void curve(FILE *f, const struct dt_series *s, const struct frame *r, int number)
{
	bool thin = (double)s->n > 4 * (r->right - r->left);
	size_t i = 0;

	if (s->n == 1) {
		fprintf(f, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"3\" fill=\"%s\"/>\n", px(r, s->x[0]),
			py(r, s->y[0]), palette[number % 8]);
		return;
	}
	fprintf(f, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" stroke-linejoin=\"round\" d=\"",
		palette[number % 8]);
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
	fputs("\"/>\n", f);
}

void dt_plot_svg(const struct dt_plot *p, int width, int height, FILE *f)
{
	struct frame r = {.top = p->title && *p->title ? 36 : 16, .right = width - 20, .bottom = height - 46};
	struct dt_ticks ty;
	size_t widest = 1;
	char label[64];

	dt_plot_axes(p, &r.x, &r.y);
	dt_ticks_choose(&r.y, (int)(r.bottom - r.top) / 45, &ty);
	for (int i = 0; i < ty.n; i++) {
		size_t n = strlen(dt_ticks_format(&ty, i, label, sizeof(label)));

		widest = n > widest ? n : widest;
	}
	r.left = 16 + 7.5 * (double)widest;
	open_svg(f, width, height, p->title);
	axes(f, p, &r, &ty);
	for (int s = 0; s < p->n; s++)
		curve(f, &p->series[s], &r, s);
	for (int s = 0; s < p->n; s++) {
		double y = r.top + 14 + 17 * s;

		fprintf(f,
			"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
			"stroke-width=\"2\"/>\n",
			r.right - 26, y - 4, r.right - 6, y - 4, palette[s % 8]);
		text(f, r.right - 32, y, "end", p->series[s].name);
	}
	fputs("</svg>\n", f);
}

void dt_bars_svg(const struct dt_bars *b, int width, FILE *f)
{
	double lo = 0, hi = 0, left, right = width - 90, top = b->title && *b->title ? 40 : 16;
	size_t widest = 1;
	char label[64];

	for (int i = 0; i < b->n; i++) {
		lo = fmin(lo, b->bar[i].value);
		hi = fmax(hi, b->bar[i].value);
		widest = strlen(b->bar[i].name) > widest ? strlen(b->bar[i].name) : widest;
	}
	if (lo == hi)
		hi = 1;
	left = fmin(20 + 7.5 * (double)widest, width / 2.0);
	open_svg(f, width, (int)top + 24 * b->n + 12, b->title);
	for (int i = 0; i < b->n; i++) {
		double zero = left + (0 - lo / 2) / (hi / 2 - lo / 2) * (right - left), y = top + 24 * i;
		double end = left + (b->bar[i].value / 2 - lo / 2) / (hi / 2 - lo / 2) * (right - left);

		text(f, left - 8, y + 13, "end", b->bar[i].name);
		fprintf(f, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"18\" fill=\"%s\"/>\n",
			fmin(zero, end), y, fabs(end - zero), palette[0]);
		text(f, fmax(zero, end) + 6, y + 13, "start",
		     dt_bar_format(b, b->bar[i].value, label, sizeof(label)));
	}
	fputs("</svg>\n", f);
}
