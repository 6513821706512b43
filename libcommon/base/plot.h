/*
 * Curves and bars as text for a terminal or as SVG. Axes carry round numbers; the data range is never
 * stretched to reach them. All values must be finite, and positive on a logarithmic axis.
 */
#ifndef DT_BASE_PLOT_H
#define DT_BASE_PLOT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct dt_series {
	char *name; /* owned */
	double *x, *y;
	size_t n, cap;
};

int dt_series_add(struct dt_series *s, double x, double y); /* 0 or -ENOMEM */
void dt_series_release(struct dt_series *s);

struct dt_plot {
	const char *title;   /* NULL: none */
	const char *x_label; /* NULL: none */
	bool log_x, log_y;
	const struct dt_series *series;
	int n;
};

struct dt_bar {
	char *name;
	double value;
};

struct dt_bars {
	const char *title;
	const char *unit; /* "bytes", "s" choose how values are written; NULL: plain numbers */
	const struct dt_bar *bar;
	int n;
};

struct dt_plot_style {
	int width, height; /* columns and lines; a bar chart is as high as it has bars */
	bool utf8;	   /* Braille dots and block characters; else ASCII */
	bool color;	   /* SGR sequences */
};

enum { DT_PLOT_MIN_WIDTH = 30, DT_PLOT_MIN_HEIGHT = 6 };

/* Prints and returns the number of lines printed, or -ENOMEM. */
int dt_plot_term(const struct dt_plot *p, const struct dt_plot_style *style, FILE *f);
int dt_bars_term(const struct dt_bars *b, const struct dt_plot_style *style, FILE *f);

/* One complete SVG document, width x height pixels. */
void dt_plot_svg(const struct dt_plot *p, int width, int height, FILE *f);
void dt_bars_svg(const struct dt_bars *b, int width, FILE *f);

/* What the renderers share: axes and numbers. */

struct dt_axis {
	double lo, hi; /* lo < hi */
	bool log;
};

enum { DT_TICKS_MAX = 20 };
struct dt_ticks {
	double at[DT_TICKS_MAX]; /* rising, inside the axis */
	int n;
	double step; /* between neighbours; 0 on a logarithmic axis */
};

/* The range of all series; a single value gets room around it. No point at all: 0 to 1 (1 to 10). */
void dt_plot_axes(const struct dt_plot *p, struct dt_axis *ret_x, struct dt_axis *ret_y);

/* At most `most` (2 to DT_TICKS_MAX) multiples of 1, 2 or 5 x 10^k; powers of ten on a logarithmic axis. */
void dt_ticks_choose(const struct dt_axis *a, int most, struct dt_ticks *ret);

/* "0.25", "2000", "1.5e7": just the digits that tell neighbours apart. Returns buf. */
const char *dt_ticks_format(const struct dt_ticks *t, int i, char *buf, size_t n);

/* Where v lies: 0 at lo, 1 at hi. */
double dt_axis_at(const struct dt_axis *a, double v);

/* The value beside a bar. Returns buf. */
const char *dt_bar_format(const struct dt_bars *b, double v, char *buf, size_t n);

#endif
