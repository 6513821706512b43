/* Text of a drawing on a terminal: colours, and strings by the columns that they take. */
#ifndef DT_BASE_PLOT_TEXT_H
#define DT_BASE_PLOT_TEXT_H

#include "base/plot.h"

enum { DT_PLOT_COLORS = 6 };

/* The colour of a series, where the style has colours; back to the terminal's own. */
void dt_plot_set_color(FILE *f, const struct dt_plot_style *st, int series);
void dt_plot_reset_color(FILE *f, const struct dt_plot_style *st);
/* Columns a string takes: characters, not bytes. In both, what is no UTF-8 is U+FFFD. */
int dt_plot_columns(const char *s);
/* As much of s as fits into room columns, which it returns; control characters never reach the terminal. */
int dt_plot_put_text(FILE *f, const char *s, int room);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
