#include "data/shard_set.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int set_read_list(hid_t d, int64_t first, int64_t n, hid_t type, void *ret)
{
	hsize_t at = (hsize_t)first, count = (hsize_t)n;
	hid_t file = H5Dget_space(d), mem = H5Screate_simple(1, &count, NULL);
	int rc = -EIO;

	if (file >= 0 && mem >= 0 &&
	    H5Sselect_hyperslab(file, H5S_SELECT_SET, &at, NULL, &count, NULL) >= 0 &&
	    H5Dread(d, type, mem, file, H5P_DEFAULT, ret) >= 0)
		rc = 0;
	if (file >= 0)
		H5Sclose(file);
	if (mem >= 0)
		H5Sclose(mem);
	return rc;
}

int set_read_numbers(hid_t f, const char *path, const char *name, int64_t n, int64_t *ret, struct dt_err *err)
{
	int64_t have;
	size_t bytes;
	hid_t d;
	int rc = dt_h5_open_list(f, path, name, H5T_INTEGER, &d, &have, &bytes, err);

	if (rc < 0)
		return rc;
	if (have != n)
		rc = dt_err_set(err, -EBADMSG, "'%s': '%s' has %lld values, not %lld", path, name,
				(long long)have, (long long)n);
	else if (set_read_list(d, 0, n, H5T_NATIVE_INT64, ret) < 0)
		rc = dt_h5_error(err, "cannot read '%s'", path);
	H5Dclose(d);
	return rc;
}

static char *beside(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');
	char *s;

	return asprintf(&s, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name) < 0 ? NULL : s;
}

/* Reads shard names, width bytes each. Only files in the index's own folder are allowed. */
static int take_names(const char *path, const char *names, size_t width, struct set_index *x,
		      struct dt_err *err)
{
	for (int i = 0; i < x->n; i++) {
		char name[DT_H5_TEXT_MAX + 1];

		memcpy(name, names + (size_t)i * width, width);
		name[width] = '\0';
		if (!*name || strchr(name, '/') || x->count[i] < 0 || x->crc[i] < 0 || x->crc[i] > UINT32_MAX)
			return dt_err_set(err, -EBADMSG, "'%s' names a bad shard '%.80s'", path, name);
		x->path[i] = beside(path, name);
		if (!x->path[i])
			return dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	}
	return 0;
}

static int read_names(hid_t list, const char *path, size_t width, struct set_index *x, struct dt_err *err)
{
	char *names = calloc((size_t)x->n, width + 1);
	hid_t type = H5Dget_type(list);
	int rc = names ? 0 : dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);

	if (rc == 0 && set_read_list(list, 0, x->n, type, names) < 0)
		rc = dt_h5_error(err, "cannot read '%s'", path);
	H5Tclose(type);
	if (rc == 0)
		rc = take_names(path, names, width, x, err);
	free(names);
	return rc;
}

int set_read_index(hid_t f, const char *path, const char *count_name, struct set_index *ret,
		   struct dt_err *err)
{
	struct set_index x = {0};
	int64_t n = 0;
	size_t width = 0;
	hid_t list = -1;
	int rc = dt_h5_open_list(f, path, "shards", H5T_STRING, &list, &n, &width, err);

	if (rc < 0)
		return rc;
	if (n < 1 || n > SET_SHARDS_MAX) {
		rc = dt_err_set(err, -EBADMSG, "'%s' lists %lld shards", path, (long long)n);
		goto out;
	}
	x.n = (int)n;
	x.path = calloc((size_t)n, sizeof(*x.path));
	x.count = calloc((size_t)n, sizeof(*x.count));
	x.crc = calloc((size_t)n, sizeof(*x.crc));
	if (!x.path || !x.count || !x.crc)
		rc = dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	if (rc == 0)
		rc = set_read_numbers(f, path, count_name, n, x.count, err);
	if (rc == 0)
		rc = set_read_numbers(f, path, "shard_crc32", n, x.crc, err);
	if (rc == 0)
		rc = read_names(list, path, width, &x, err);
out:
	H5Dclose(list);
	if (rc < 0)
		set_index_free(&x);
	else
		*ret = x;
	return rc;
}

void set_index_free(struct set_index *x)
{
	for (int i = 0; i < x->n && x->path; i++)
		free(x->path[i]);
	free(x->path);
	free(x->count);
	free(x->crc);
	*x = (struct set_index){0};
}
/* SPDX-License-Identifier: Apache-2.0 */
