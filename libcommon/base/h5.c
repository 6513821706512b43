#include "base/h5.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * The reason of the first failure since dt_h5_quiet, one for each thread like HDF5's error stack, which a
 * later HDF5 call clears.
 */
static _Thread_local struct {
	int code;
	bool truncated;
	char text[200];
} reason;

static herr_t look(unsigned n, const H5E_error2_t *e, void *ctx)
{
	const char *s = e->desc ? strstr(e->desc, "errno = ") : NULL;

	if (s && !reason.code)
		reason.code = atoi(s + 8);
	if (e->desc && strstr(e->desc, "truncated file"))
		reason.truncated = true;
	if (e->desc && !*reason.text) /* the innermost error comes first */
		snprintf(reason.text, sizeof(reason.text), "%s", e->desc);
	return 0;
}

static herr_t remember(hid_t stack, void *ctx)
{
	return H5Ewalk2(stack, H5E_WALK_UPWARD, look, NULL);
}

void dt_h5_quiet(void)
{
	/* a file that a full disk kept from being closed stays open, of which HDF5 complains at exit */
	H5dont_atexit();
	memset(&reason, 0, sizeof(reason));
	H5Eset_auto2(H5E_DEFAULT, remember, NULL);
}

int dt_h5_error(struct dt_err *err, const char *fmt, ...)
{
	char what[320];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (reason.truncated)
		return dt_err_set(err, -EBADMSG, "%s: the file is truncated", what);
	if (reason.code > 0)
		return dt_err_sys(err, -reason.code, "%s", what);
	for (char *c = reason.text; *c; c++)
		if (*c == '\n' || *c == '\t')
			*c = ' ';
	return dt_err_set(err, -EIO, "%s: HDF5: %.160s", what,
			  *reason.text ? reason.text : "no reason given");
}

int dt_h5_open(const char *path, hid_t *ret, struct dt_err *err)
{
	htri_t is;
	hid_t f, plist;

	dt_h5_quiet();
	if (access(path, R_OK) < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	is = H5Fis_hdf5(path);
	if (is < 0)
		return dt_h5_error(err, "cannot read '%s'", path);
	if (!is)
		return dt_err_set(err, -EBADMSG, "'%s' is not an HDF5 file", path);
	plist = H5Pcreate(H5P_FILE_ACCESS);
#if H5_VERSION_GE(1, 10, 7)
	/* Data sets are never modified in place, and some parallel file systems have no locks. */
	H5Pset_file_locking(plist, false, true);
#endif
	f = H5Fopen(path, H5F_ACC_RDONLY, plist);
	H5Pclose(plist);
	if (f < 0)
		return dt_h5_error(err, "cannot open '%s'", path);
	*ret = f;
	return 0;
}

static int put_attr(hid_t file, const char *name, hid_t type, hid_t memory_type, const void *v)
{
	hid_t space = H5Screate(H5S_SCALAR);
	hid_t a = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
	int rc = a >= 0 && H5Awrite(a, memory_type, v) >= 0 ? 0 : -EIO;

	if (a >= 0)
		H5Aclose(a);
	H5Sclose(space);
	return rc;
}

int dt_h5_put_text(hid_t file, const char *name, const char *s)
{
	size_t n = strnlen(s, DT_H5_TEXT_MAX - 1);
	hid_t type = H5Tcopy(H5T_C_S1);
	char *copy = strndup(s, n);
	int rc = -EIO;

	if (copy && H5Tset_size(type, n + 1) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0)
		rc = put_attr(file, name, type, type, copy);
	free(copy);
	H5Tclose(type);
	return rc;
}

int dt_h5_put_int(hid_t file, const char *name, int64_t v)
{
	return put_attr(file, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &v);
}

/* Reads a scalar attribute of class cls into v, which has room for max bytes. */
static int get_attr(hid_t file, const char *name, H5T_class_t cls, size_t max, void *v)
{
	hid_t a, type = -1, space = -1;
	int rc = -EBADMSG;

	if (H5Aexists(file, name) <= 0)
		return rc;
	a = H5Aopen(file, name, H5P_DEFAULT);
	if (a < 0)
		return rc;
	type = H5Aget_type(a);
	space = H5Aget_space(a);
	if (type >= 0 && space >= 0 && H5Tget_class(type) == cls &&
	    H5Sget_simple_extent_npoints(space) == 1 && H5Tget_size(type) <= max &&
	    (cls != H5T_STRING || H5Tis_variable_str(type) == 0) &&
	    H5Aread(a, cls == H5T_STRING ? type : H5T_NATIVE_INT64, v) >= 0)
		rc = 0;
	if (type >= 0)
		H5Tclose(type);
	if (space >= 0)
		H5Sclose(space);
	H5Aclose(a);
	return rc;
}

int dt_h5_get_int(hid_t file, const char *path, const char *name, int64_t min, int64_t max, int64_t *ret,
		  struct dt_err *err)
{
	int64_t v = 0;

	if (get_attr(file, name, H5T_INTEGER, sizeof(v), &v) < 0)
		return dt_err_set(err, -EBADMSG, "'%s' has no whole number '%s'", path, name);
	if (v < min || v > max)
		return dt_err_set(err, -EBADMSG, "'%s': '%s' is out of range: %lld", path, name,
				  (long long)v);
	*ret = v;
	return 0;
}

int dt_h5_get_text(hid_t file, const char *path, const char *name, char **ret, struct dt_err *err)
{
	char *s = calloc(1, DT_H5_TEXT_MAX + 1);

	if (!s)
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", path);
	if (get_attr(file, name, H5T_STRING, DT_H5_TEXT_MAX, s) < 0) {
		free(s);
		return dt_err_set(err, -EBADMSG, "'%s' has no text '%s'", path, name);
	}
	*ret = s;
	return 0;
}

int dt_h5_open_list(hid_t file, const char *path, const char *name, H5T_class_t cls, hid_t *ret,
		    int64_t *ret_n, size_t *ret_bytes, struct dt_err *err)
{
	hid_t d = -1, type = -1, space = -1, plist = -1;
	hsize_t n = 0, stored;
	size_t bytes;
	int rc = -EBADMSG;

	if (H5Lexists(file, name, H5P_DEFAULT) > 0)
		d = H5Dopen2(file, name, H5P_DEFAULT);
	if (d < 0)
		return dt_err_set(err, rc, "'%s' has no dataset '%s'", path, name);
	type = H5Dget_type(d);
	space = H5Dget_space(d);
	plist = H5Dget_create_plist(d);
	if (type < 0 || space < 0 || plist < 0 || H5Tget_class(type) != cls ||
	    H5Sget_simple_extent_ndims(space) != 1 || (cls == H5T_STRING && H5Tis_variable_str(type) != 0)) {
		dt_err_set(err, rc, "'%s': dataset '%s' is not a list of %s", path, name,
			   cls == H5T_STRING ? "fixed text" : "whole numbers");
		goto out;
	}
	H5Sget_simple_extent_dims(space, &n, NULL);
	bytes = H5Tget_size(type);
	stored = H5Dget_storage_size(d);
	if (n > (hsize_t)INT64_MAX / 16 || bytes > DT_H5_TEXT_MAX ||
	    (H5Pget_nfilters(plist) == 0 ? stored / bytes < n : n / 1100 > stored)) {
		/* deflate shrinks data by at most a factor of 1032 */
		dt_err_set(err, rc, "'%s': dataset '%s' says %llu values and holds %llu bytes", path, name,
			   (unsigned long long)n, (unsigned long long)stored);
		goto out;
	}
	*ret = d;
	*ret_n = (int64_t)n;
	*ret_bytes = bytes;
	d = -1;
	rc = 0;
out:
	if (type >= 0)
		H5Tclose(type);
	if (space >= 0)
		H5Sclose(space);
	if (plist >= 0)
		H5Pclose(plist);
	if (d >= 0)
		H5Dclose(d);
	return rc;
}

hid_t dt_h5_new_dataset(void)
{
	hid_t plist = H5Pcreate(H5P_DATASET_CREATE);

	H5Pset_obj_track_times(plist, false);
	return plist;
}

int dt_h5_put_list(hid_t file, const char *name, hid_t type, hid_t memory_type, int64_t n, const void *v,
		   bool deflate)
{
	hsize_t dim = (hsize_t)n, chunk = n < 1 << 20 ? dim : 1 << 20;
	hid_t space = H5Screate_simple(1, &dim, NULL), plist = dt_h5_new_dataset(), d;
	int rc = -EIO;

	if (deflate) {
		H5Pset_chunk(plist, 1, &chunk);
		H5Pset_deflate(plist, 6);
	}
	d = H5Dcreate2(file, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
	if (d >= 0 && H5Dwrite(d, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, v) >= 0)
		rc = 0;
	if (d >= 0)
		H5Dclose(d);
	H5Pclose(plist);
	H5Sclose(space);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
