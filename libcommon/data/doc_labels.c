#include "data/doc_labels.h"

#include "data/shard_set.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX (16 << 20)

int dt_doc_labels_add(struct dt_doc_labels *l, float label, int32_t second)
{
	if (l->n == l->cap) {
		const int64_t cap = l->cap ? 2 * l->cap : 1024;
		float *labels = realloc(l->label, (size_t)cap * sizeof(*labels));
		int32_t *seconds;

		if (!labels)
			return -ENOMEM;
		l->label = labels;
		seconds = realloc(l->second, (size_t)cap * sizeof(*seconds));
		if (!seconds)
			return -ENOMEM;
		l->second = seconds;
		l->cap = cap;
	}
	l->label[l->n] = label;
	l->second[l->n++] = second;
	return 0;
}

int dt_doc_labels_name(struct dt_doc_labels *l, int classes, char *const *name, const int *map,
		       struct dt_err *err)
{
	size_t bytes = 1, at = 0;

	for (int i = 0; i < classes; i++) {
		if (!*name[i] || strchr(name[i], '\n'))
			return dt_err_set(err, -EINVAL, "the name of class %d is not one line", i);
		bytes += strlen(name[i]) + 1;
	}
	free(l->names);
	l->names = malloc(bytes);
	if (!l->names)
		return dt_err_sys(err, -ENOMEM, "cannot hold the names of classes");
	for (int i = 0; i < classes; i++) {
		const size_t n = strlen(name[i]);

		memcpy(l->names + at, name[i], n);
		at += n;
		l->names[at++] = '\n';
	}
	l->names[at] = '\0';
	l->classes = classes;
	for (int64_t i = 0; i < l->n; i++)
		l->label[i] = (float)map[(int)l->label[i]];
	return 0;
}

void dt_doc_labels_release(struct dt_doc_labels *l)
{
	free(l->label);
	free(l->second);
	free(l->names);
	free(l->name);
	*l = (struct dt_doc_labels){0};
}

int dt_doc_labels_put(const struct dt_doc_labels *l, hid_t f)
{
	if (!l->n)
		return 0;
	if (dt_h5_put_list(f, "document_labels", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, l->n, l->label,
			   l->n > 1024) < 0 ||
	    dt_h5_put_list(f, "second_starts", H5T_STD_I32LE, H5T_NATIVE_INT32, l->n, l->second,
			   l->n > 1024) < 0)
		return -EIO;
	return l->classes ? dt_h5_put_list(f, "class_names", H5T_STD_U8LE, H5T_NATIVE_UINT8,
					   (int64_t)strlen(l->names), l->names, strlen(l->names) > 4096)
			  : 0;
}

/* Reads a list of elements of `size` bytes; want: their number, -1: any up to NAMES_MAX. NUL behind them. */
static int read_list(hid_t f, const char *path, const char *name, H5T_class_t cls, hid_t type, size_t size,
		     int64_t want, void *ret, int64_t *ret_n, struct dt_err *err)
{
	size_t bytes;
	hid_t list;
	char *p = NULL;
	int rc = dt_h5_open_list(f, path, name, cls, &list, ret_n, &bytes, err);

	if (rc < 0)
		return rc;
	if (bytes != size || (want >= 0 ? *ret_n != want : *ret_n > NAMES_MAX))
		rc = dt_err_set(err, -EBADMSG, "'%s': %s does not fit the documents", path, name);
	if (rc == 0) {
		p = calloc((size_t)*ret_n + 1, size);
		rc = p ? 0 : dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	}
	if (rc == 0 && set_read_list(list, 0, *ret_n, type, p) < 0)
		rc = dt_h5_error(err, "cannot read '%s'", path);
	H5Dclose(list);
	*(void **)ret = p;
	return rc;
}

/* Cuts the names into lines. */
static int read_names(struct dt_doc_labels *l, hid_t f, const char *path, struct dt_err *err)
{
	int64_t n;
	int rc = read_list(f, path, "class_names", H5T_INTEGER, H5T_NATIVE_UINT8, 1, -1, &l->names, &n, err);
	char *at, *end;

	if (rc < 0)
		return rc;
	for (at = l->names; (end = strchr(at, '\n')); at = end + 1)
		l->classes++;
	if (*at || at - l->names != n || l->classes > DT_DOC_CLASSES_MAX || !l->classes)
		return dt_err_set(err, -EBADMSG, "'%s': class_names are not lines", path);
	l->name = calloc((size_t)l->classes, sizeof(*l->name));
	if (!l->name)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	at = l->names;
	for (int i = 0; i < l->classes; i++, at = end + 1) {
		end = strchr(at, '\n');
		*end = '\0';
		l->name[i] = at;
	}
	return 0;
}

int dt_doc_labels_read(struct dt_doc_labels *l, hid_t f, const char *path, const int64_t *start,
		       int64_t documents, int64_t tokens, struct dt_err *err)
{
	int rc;

	if (H5Lexists(f, "document_labels", H5P_DEFAULT) <= 0)
		return 0;
	rc = read_list(f, path, "document_labels", H5T_FLOAT, H5T_NATIVE_FLOAT, 4, documents, &l->label,
		       &l->n, err);
	if (rc == 0)
		rc = read_list(f, path, "second_starts", H5T_INTEGER, H5T_NATIVE_INT32, 4, documents,
			       &l->second, &l->n, err);
	if (rc == 0 && H5Lexists(f, "class_names", H5P_DEFAULT) > 0)
		rc = read_names(l, f, path, err);
	for (int64_t i = 0; i < documents && rc == 0; i++) {
		const int64_t end = i + 1 < documents ? start[i + 1] : tokens;
		const float v = l->label[i];

		if (!isfinite(v) || (l->classes && (v < 0 || v >= (float)l->classes || v != floorf(v))))
			rc = dt_err_set(err, -EBADMSG, "'%s': document %lld has an invalid label", path,
					(long long)i);
		else if (l->second[i] < 0 || l->second[i] > end - start[i])
			rc = dt_err_set(err, -EBADMSG, "'%s': document %lld has an invalid second text", path,
					(long long)i);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
