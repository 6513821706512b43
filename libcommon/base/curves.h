/* Curves and bars gathered from JSON objects, one point an object. */
#ifndef DT_BASE_CURVES_H
#define DT_BASE_CURVES_H

#include "base/json.h"
#include "base/plot.h"

enum { DT_CURVES_NAMES = 24 };

/* What to draw; all pointers are borrowed. */
struct dt_curves_opts {
	const char *const *key, *const *file; /* keys to draw; input files, for the names of curves */
	int nkey, nfile;
	const char *x;	/* key of the x axis; NULL: "step" if the first point has it, else the line number */
	const char *by; /* one curve or bar for each value of this key; NULL: no grouping */
	const char *bars;	  /* draw bars of this key instead of curves */
	bool log_x, log_y, stack; /* stack: draw areas, each on top of those before it */
	double smooth; /* window of the running mean, in points of the densest curve; 1: no smoothing */
};

struct dt_curves {
	struct dt_curves_opts o;
	struct dt_curve {
		struct dt_series s; /* points as read */
		int key, file;
		char *by;
	} curve[DT_PLOT_CURVES_MAX];
	int n;
	struct dt_bar *bar;
	int nbar, capbar;
	json_t *bar_of; /* with by: index of a bar by its name */
	const char *x;	/* key of the x axis, chosen at the first point */
	bool x_known;
	/* numeric keys seen, for the error message when there is nothing to draw */
	char *names[DT_CURVES_NAMES];
	int nnames;
	size_t nonpositive, objects; /* points that a logarithmic axis cannot show; objects read */
	const char *lacks; /* --x or --by key that the first value without a place on the chart lacks */
	bool text;	   /* that key is text where a number is needed */
};

/*
 * Adds the points of object o, read from line `line` of file number `file`. -ENOMEM; -E2BIG: too many curves.
 */
int dt_curves_take(struct dt_curves *c, json_t *o, int file, size_t line, struct dt_err *err);
bool dt_curves_empty(const struct dt_curves *c);
/*
 * Sets err to the reason why there is nothing to draw, with the available keys as a hint. Returns -ENODATA.
 */
int dt_curves_nothing(const struct dt_curves *c, struct dt_err *err);

/* The plot, after smoothing and stacking; borrows from the curves. Must be released also after an error. */
struct dt_curves_picture {
	struct dt_plot plot;
	struct dt_series series[DT_PLOT_CURVES_MAX]; /* borrowed from the curves and from smooth */
	struct dt_series raw[DT_PLOT_CURVES_MAX];    /* borrowed */
	struct dt_series smooth[DT_PLOT_CURVES_MAX], sum[DT_PLOT_CURVES_MAX];
};
/* -EINVAL: a stacked curve has a negative value. */
int dt_curves_plot(const struct dt_curves *c, struct dt_curves_picture *ret, struct dt_err *err);
void dt_curves_picture_release(struct dt_curves_picture *p);
void dt_curves_bars(const struct dt_curves *c, struct dt_bars *ret);
void dt_curves_release(struct dt_curves *c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
