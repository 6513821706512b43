/* Curves and bars gathered from JSON objects, one a point. */
#ifndef DT_BASE_CURVES_H
#define DT_BASE_CURVES_H

#include "base/json.h"
#include "base/plot.h"

enum { DT_CURVES_NAMES = 24 };

/* What is asked for; everything is borrowed. */
struct dt_curves_opts {
	const char *const *key, *const *file; /* keys to draw; files they come from, for names */
	int nkey, nfile;
	const char *x;	  /* key of the x axis; NULL: "step" where the first point has it, else its number */
	const char *by;	  /* a curve or bar for each value of this key; NULL: one */
	const char *bars; /* bars of this key instead of curves */
	bool log_x, log_y, stack; /* stack: areas, each on top of those before it */
	double smooth;		  /* points of the densest curve in the window of the running mean; 1: none */
};

struct dt_curves {
	struct dt_curves_opts o;
	struct dt_curve {
		struct dt_series s; /* as read */
		int key, file;
		char *by;
	} curve[DT_PLOT_CURVES_MAX];
	int n;
	struct dt_bar *bar;
	int nbar, capbar;
	const char *x; /* decided at the first point */
	bool x_known;
	char *names[DT_CURVES_NAMES]; /* numeric keys met, for the message when there is nothing to draw */
	int nnames;
	size_t nonpositive, objects; /* points left out by a logarithmic axis; objects seen */
};

/* An object of file number file, from that line. -ENOMEM; -E2BIG: too many curves. */
int dt_curves_take(struct dt_curves *c, json_t *o, int file, size_t line, struct dt_err *err);
bool dt_curves_empty(const struct dt_curves *c);
/* Why it is empty, with the keys there are as a hint. Returns -ENODATA. */
int dt_curves_nothing(const struct dt_curves *c, struct dt_err *err);

/* The picture, smoothed and stacked; borrows from the curves. Released also after an error. */
struct dt_curves_picture {
	struct dt_plot plot;
	struct dt_series series[DT_PLOT_CURVES_MAX]; /* borrowed from the curves and from smooth */
	struct dt_series raw[DT_PLOT_CURVES_MAX];    /* borrowed */
	struct dt_series smooth[DT_PLOT_CURVES_MAX], sum[DT_PLOT_CURVES_MAX];
};
/* -EINVAL: a negative value in a stack. */
int dt_curves_plot(const struct dt_curves *c, struct dt_curves_picture *ret, struct dt_err *err);
void dt_curves_picture_release(struct dt_curves_picture *p);
void dt_curves_bars(const struct dt_curves *c, struct dt_bars *ret);
void dt_curves_release(struct dt_curves *c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
