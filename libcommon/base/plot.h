/*
 * Curves and bars as text for a terminal or as SVG. Axis labels are round numbers; axes end at the data's
 * range, not at a label. All values must be finite, and positive on a logarithmic axis.
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

/*
 * Running mean along x: each point becomes the mean of the points in (x - window, x] of its run; a run ends
 * where x decreases. log_x: the window is in log(x). A curve whose points are further apart than the window
 * is unchanged.
 */
int dt_series_smooth(struct dt_series *ret, const struct dt_series *s, double window, bool log_x);
/* Mean spacing in x of the densest series, in log(x) if log_x; 0: no series has two points. */
double dt_plot_spacing(const struct dt_series *s, int n, bool log_x);

/*
 * Adds to each point of s the latest value of `below` at its x. Runs (x decreases) are matched in order. A
 * `below` without points counts as zero. Returns 0 or -ENOMEM.
 */
int dt_series_stack(struct dt_series *ret, const struct dt_series *s, const struct dt_series *below);

enum { DT_PLOT_CURVES_MAX = 64 };

struct dt_plot {
	const char *title;   /* NULL: none */
	const char *x_label; /* NULL: none */
	const char *y_label; /* NULL: none; a single curve's name */
	bool log_x, log_y;
	bool bytes_x, bytes_y; /* values are bytes: ticks at powers of two, written as sizes */
	bool stacked; /* each series already includes those before it; drawn as areas from zero, y >= 0 */
	const struct dt_series *series;
	const struct dt_series *raw; /* [n] curves before smoothing, drawn faintly in an SVG; NULL: none */
	int n;			     /* at most DT_PLOT_CURVES_MAX */
};

struct dt_bar {
	char *name;
	double value;
};

struct dt_bars {
	const char *title;
	const char *unit; /* "bytes" or "s" set how values are written; NULL: plain numbers */
	const struct dt_bar *bar;
	int n;
};

struct dt_plot_style {
	int width, height; /* columns and lines; a bar chart has one line a bar and ignores height */
	bool utf8;	   /* Braille dots and block characters; else ASCII */
	bool color;	   /* colour by SGR escape sequences */
};

enum { DT_PLOT_MIN_WIDTH = 30, DT_PLOT_MIN_HEIGHT = 6 };

/* Prints and returns the number of lines printed, or -ENOMEM. */
int dt_plot_term(const struct dt_plot *p, const struct dt_plot_style *style, FILE *f);
int dt_bars_term(const struct dt_bars *b, const struct dt_plot_style *style, FILE *f);

/* Writes a complete SVG document of width x height pixels. dark: light colours on a dark background. */
void dt_plot_svg(const struct dt_plot *p, int width, int height, bool dark, FILE *f);
void dt_bars_svg(const struct dt_bars *b, int width, bool dark, FILE *f);

/* Shared by the renderers: axes and numbers. */

struct dt_axis {
	double lo, hi; /* lo < hi */
	bool log, bytes;
};

enum { DT_TICKS_MAX = 20 };
struct dt_ticks {
	double at[DT_TICKS_MAX]; /* increasing, inside the axis */
	int n;
	double step; /* distance of neighbours; 0 on a logarithmic axis */
	bool bytes;
};

/*
 * The range of all series; a single value gets a margin. Without points: 0 to 1, or 1 to 10 on a logarithmic
 * axis.
 */
void dt_plot_axes(const struct dt_plot *p, struct dt_axis *ret_x, struct dt_axis *ret_y);

/*
 * At most `most` (2 to DT_TICKS_MAX) multiples of 1, 2 or 5 x 10^k; powers of ten on a logarithmic axis. For
 * bytes, multiples of a power of two, and powers of two.
 */
void dt_ticks_choose(const struct dt_axis *a, int most, struct dt_ticks *ret);

/* "0.25", "2000", "1.5e7", "64 KiB": as many digits as neighbouring ticks need to differ. Returns buf. */
const char *dt_ticks_format(const struct dt_ticks *t, int i, char *buf, size_t n);

/* The position of v on the axis: 0 at lo, 1 at hi. */
double dt_axis_at(const struct dt_axis *a, double v);

/*
 * The y value at which to put the name of curve s: its last value, or for an area the middle of the area
 * there.
 */
double dt_plot_name_at(const struct dt_plot *p, int s);
/*
 * Places labels beside the ends of curves: as near to want[i] as possible, at least gap apart, inside [lo,
 * hi]. If they do not fit, they are spaced evenly over the range. n is at most DT_PLOT_CURVES_MAX.
 */
void dt_plot_spread(const double *want, int n, double lo, double hi, double gap, double *ret);

/* Formats the value shown beside a bar. Returns buf. */
const char *dt_bar_format(const struct dt_bars *b, double v, char *buf, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
