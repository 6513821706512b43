/* Terminal output for plots: colours, and strings measured in columns. */
#ifndef DT_BASE_PLOT_TEXT_H
#define DT_BASE_PLOT_TEXT_H

#include "base/plot.h"

enum { DT_PLOT_COLORS = 6 };

/* Switch to a series' colour and back to the terminal's default; nothing if the style has no colours. */
void dt_plot_set_color(FILE *f, const struct dt_plot_style *st, int series);
void dt_plot_reset_color(FILE *f, const struct dt_plot_style *st);
/* Columns of a string: characters, not bytes. Here and below, invalid UTF-8 counts as U+FFFD. */
int dt_plot_columns(const char *s);
/* Prints as much of s as fits in `room` columns, without control characters. Returns the columns used. */
int dt_plot_put_text(FILE *f, const char *s, int room);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
