/* HDF5 with errors as dt has them, and what small files of lists need. A library of its own: base_h5_dep. */
#ifndef DT_BASE_H5_H
#define DT_BASE_H5_H

#include "base/err.h"

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>

#define DT_H5_TEXT_MAX 4096 /* bytes of a text attribute */

/*
 * HDF5 prints its own errors unless told otherwise, thread by thread: called first by every entry point. From
 * here on the first failure is remembered instead.
 */
void dt_h5_quiet(void);
/*
 * As dt_err_set, with the reason of the first failure since dt_h5_quiet: the system's errno where there was
 * one, -EBADMSG for a truncated file, else -EIO and HDF5's own words. Returns the code.
 */
int dt_h5_error(struct dt_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Refuses what is missing, not HDF5, or truncated, each by its name. */
int dt_h5_open(const char *path, hid_t *ret, struct dt_err *err);

int dt_h5_put_text(hid_t file, const char *name, const char *s);
int dt_h5_put_int(hid_t file, const char *name, int64_t v);
/* -EBADMSG when missing, of another kind or out of [min, max]. */
int dt_h5_get_int(hid_t file, const char *path, const char *name, int64_t min, int64_t max, int64_t *ret,
		  struct dt_err *err);
/* *ret is malloc'd. */
int dt_h5_get_text(hid_t file, const char *path, const char *name, char **ret, struct dt_err *err);

/*
 * Opens a one-dimensional dataset of whole numbers (H5T_INTEGER) or fixed text (H5T_STRING), checks that its
 * values are in the file, and gives their number and bytes each.
 */
int dt_h5_open_list(hid_t file, const char *path, const char *name, H5T_class_t cls, hid_t *ret,
		    int64_t *ret_n, size_t *ret_bytes, struct dt_err *err);
/* A dataset creation list without times: the same input makes the same bytes. The caller closes it. */
hid_t dt_h5_new_dataset(void);
int dt_h5_put_list(hid_t file, const char *name, hid_t type, hid_t memory_type, int64_t n, const void *v,
		   bool deflate);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
