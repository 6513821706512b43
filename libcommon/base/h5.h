/* HDF5 with struct dt_err, and helpers for small files of lists. Linked separately: base_h5_dep. */
#ifndef DT_BASE_H5_H
#define DT_BASE_H5_H

#include "base/err.h"

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>

#define DT_H5_TEXT_MAX 4096 /* bytes of a text attribute */

/*
 * Turns off HDF5's own error printing for this thread and records the first failure instead. Every entry
 * point calls it first.
 */
void dt_h5_quiet(void);
/*
 * Like dt_err_set, with the reason of the first failure since dt_h5_quiet appended: the system's errno if
 * there was one, -EBADMSG for a truncated file, else -EIO and HDF5's message. Returns the code.
 */
int dt_h5_error(struct dt_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Opens a file for reading. A missing, non-HDF5 or truncated file gives an error that says which it is. */
int dt_h5_open(const char *path, hid_t *ret, struct dt_err *err);

int dt_h5_put_text(hid_t file, const char *name, const char *s);
int dt_h5_put_int(hid_t file, const char *name, int64_t v);
/* -EBADMSG: the attribute is missing, of another type, or out of [min, max]. */
int dt_h5_get_int(hid_t file, const char *path, const char *name, int64_t min, int64_t max, int64_t *ret,
		  struct dt_err *err);
/* *ret is malloc'd. */
int dt_h5_get_text(hid_t file, const char *path, const char *name, char **ret, struct dt_err *err);

/*
 * Opens a one-dimensional dataset of integers (H5T_INTEGER) or fixed-length strings (H5T_STRING), checks that
 * its values are stored in the file, and returns their number and the bytes of each.
 */
int dt_h5_open_list(hid_t file, const char *path, const char *name, H5T_class_t cls, hid_t *ret,
		    int64_t *ret_n, size_t *ret_bytes, struct dt_err *err);
/*
 * A dataset creation property list without timestamps: the same input gives the same bytes. The caller closes
 * it.
 */
hid_t dt_h5_new_dataset(void);
int dt_h5_put_list(hid_t file, const char *name, hid_t type, hid_t memory_type, int64_t n, const void *v,
		   bool deflate);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
