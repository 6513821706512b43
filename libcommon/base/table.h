/* Column tables for people: cells are collected, then printed with columns as wide as their widest cell. */
#ifndef DT_BASE_TABLE_H
#define DT_BASE_TABLE_H

#include <stdio.h>

struct dt_table; /* owns copies of its cells */

/*
 * columns: headings separated by '|', a leading '>' right-aligns: "name|>size|>share". NULL when out of
 * memory, which every function below accepts: instead of a table without memory for all of it, nothing is
 * printed, and dt_output_lost lets the program fail.
 */
struct dt_table *dt_table_new(const char *columns);
void dt_table_free(struct dt_table *t);

/* Adds the next cell, left to right, row by row. */
void dt_table_cell(struct dt_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Ends the row early (the missing cells are empty), or draws a rule when the row has no cell. */
void dt_table_end_row(struct dt_table *t);

/*
 * Prints headings and rows with two spaces between columns and no trailing blanks. On a terminal that is
 * narrower than the table, a last column of text is wrapped, or moved to a line of its own if too little room
 * is left; columns of numbers (>) and short ones are not wrapped. Columns that still do not fit go into a
 * further table below, which repeats the first column.
 */
void dt_table_print(const struct dt_table *t, FILE *f);

/* The same for a given width in columns; 0: unlimited. */
void dt_table_print_within(const struct dt_table *t, FILE *f, int columns);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
