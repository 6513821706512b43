/* Column tables for people: cells are collected, then printed with columns as wide as their widest cell. */
#ifndef DT_BASE_TABLE_H
#define DT_BASE_TABLE_H

#include <stdio.h>

struct dt_table; /* owns copies of its cells */

/*
 * columns: headings separated by '|', a leading '>' right-aligns: "name|>size|>share". NULL when out of
 * memory; every function below accepts NULL, so that one check at the end is enough.
 */
struct dt_table *dt_table_new(const char *columns);
void dt_table_free(struct dt_table *t);

/* Adds the next cell, left to right, row by row. */
void dt_table_cell(struct dt_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Ends the row early (the missing cells are empty), or draws a rule when the row has no cell. */
void dt_table_end_row(struct dt_table *t);

/*
 * Prints headings and rows, two spaces between columns, no trailing blanks. On a terminal that is narrower
 * than the table the words of the last column go on in further lines, or stand below where it has no room
 * at all; not of numbers (>) and of a few letters. Columns that have no room either go on in a table below,
 * beside the first column again.
 */
void dt_table_print(const struct dt_table *t, FILE *f);

/* The same in so many columns; 0: any number. */
void dt_table_print_within(const struct dt_table *t, FILE *f, int columns);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
