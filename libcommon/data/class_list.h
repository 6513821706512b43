/* The classes of a data set while it is built: fixed by a list, or added as they occur. */
#ifndef DT_DATA_CLASS_LIST_H
#define DT_DATA_CLASS_LIST_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct class_list {
	char **name;
	int64_t *images; /* of each class: the caller counts */
	int n, room;
	bool fixed;   /* from a file: no other class may come */
	bool numbers; /* labels came as numbers without names: the names are these numbers */
	int *by_name; /* hash of names to indices, -1 free; a power of two, at least twice n */
	int slots;
};

/* The names from a file, a line each. */
int class_list_read(struct class_list *c, const char *path, struct dt_err *err);
/* Adds a class, unless it is there. */
int class_list_name(struct class_list *c, const char *name, struct dt_err *err);
/*
 * Looks up the class of an image, by name, or if name is NULL by number *label, and adds it if needed. Sets
 * *label to its index. -EINVAL for a class that a fixed list does not have.
 */
int class_list_take(struct class_list *c, const char *name, int *label, struct dt_err *err);
/* With sort, names that were met are sorted by code point: *ret_map[old index] is the new one, malloc'd. */
int class_list_finish(struct class_list *c, bool sort, int **ret_map, struct dt_err *err);
void class_list_free(struct class_list *c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
