#include "data/teacher.h"

#include "base/h5.h"
#include "base/signals.h"
#include "base/tmpfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COLUMNS, LOGPROBS, REST, LISTS };

struct dt_teacher_writer {
	char *to, *tmp;
	struct dt_teacher_info i;
	int64_t done; /* positions written */
	hid_t file, list[LISTS];
};

static hid_t new_list(const struct dt_teacher_writer *w, const char *name, hid_t type, int64_t n)
{
	const hsize_t dim = (hsize_t)n;
	hid_t space = H5Screate_simple(1, &dim, NULL), plist = dt_h5_new_dataset(), d;

	d = H5Dcreate2(w->file, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
	H5Pclose(plist);
	H5Sclose(space);
	return d;
}

static int describe(struct dt_teacher_writer *w)
{
	const struct dt_teacher_info *i = &w->i;
	char temperature[32];

	snprintf(temperature, sizeof(temperature), "%.17g", i->temperature);
	if (dt_h5_put_text(w->file, "format", "dt-teacher") < 0 || dt_h5_put_int(w->file, "version", 1) < 0 ||
	    dt_h5_put_int(w->file, "tokens", i->tokens) < 0 || dt_h5_put_int(w->file, "top_k", i->k) < 0 ||
	    dt_h5_put_int(w->file, "seq", i->seq) < 0 || dt_h5_put_int(w->file, "vocab", i->vocab) < 0 ||
	    dt_h5_put_int(w->file, "apart", i->apart) < 0 ||
	    dt_h5_put_int(w->file, "data_tokens", i->data_tokens) < 0 ||
	    dt_h5_put_int(w->file, "data_crc32", i->data_crc) < 0 ||
	    dt_h5_put_text(w->file, "tokenizer_hash", i->tokenizer_hash) < 0 ||
	    dt_h5_put_text(w->file, "temperature", temperature) < 0 ||
	    dt_h5_put_text(w->file, "teacher", i->teacher) < 0)
		return -EIO;
	w->list[COLUMNS] =
		new_list(w, "columns", i->vocab <= 65536 ? H5T_STD_U16LE : H5T_STD_I32LE, i->tokens * i->k);
	w->list[LOGPROBS] = new_list(w, "logprobs", H5T_IEEE_F32LE, i->tokens * i->k);
	w->list[REST] = new_list(w, "rest", H5T_IEEE_F32LE, i->tokens);
	return w->list[COLUMNS] < 0 || w->list[LOGPROBS] < 0 || w->list[REST] < 0 ? -EIO : 0;
}

int dt_teacher_create(const char *path, const struct dt_teacher_info *i, struct dt_teacher_writer **ret,
		      struct dt_err *err)
{
	struct dt_teacher_writer *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", path);
	w->i = *i;
	w->file = w->list[COLUMNS] = w->list[LOGPROBS] = w->list[REST] = -1;
	rc = dt_out_path(path, &w->to, err);
	if (rc == 0 && asprintf(&w->tmp, "%s.tmp.%d", w->to, (int)getpid()) < 0) {
		w->tmp = NULL;
		rc = dt_err_sys(err, -ENOMEM, "cannot write '%s'", path);
	}
	if (rc == 0) {
		dt_h5_quiet();
		dt_signals_remove(w->tmp); /* a teacher of all data takes hours */
		w->file = H5Fcreate(w->tmp, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
		if (w->file < 0 || describe(w) < 0)
			rc = dt_h5_error(err, "cannot write '%s'", path);
	}
	if (rc < 0)
		dt_teacher_abandon(w);
	else
		*ret = w;
	return rc;
}

static int put(hid_t list, hid_t type, int64_t at, int64_t n, const void *v)
{
	const hsize_t first = (hsize_t)at, count = (hsize_t)n;
	hid_t room = H5Screate_simple(1, &count, NULL), space = H5Dget_space(list);
	int rc = H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, NULL, &count, NULL) < 0 ||
				 H5Dwrite(list, type, room, space, H5P_DEFAULT, v) < 0
			 ? -EIO
			 : 0;

	H5Sclose(space);
	H5Sclose(room);
	return rc;
}

int dt_teacher_append(struct dt_teacher_writer *w, int64_t n, const int32_t *columns, const float *logprobs,
		      const float *rest, struct dt_err *err)
{
	const int64_t k = w->i.k;

	dt_h5_quiet();
	if (put(w->list[COLUMNS], H5T_NATIVE_INT32, w->done * k, n * k, columns) < 0 ||
	    put(w->list[LOGPROBS], H5T_NATIVE_FLOAT, w->done * k, n * k, logprobs) < 0 ||
	    put(w->list[REST], H5T_NATIVE_FLOAT, w->done, n, rest) < 0)
		return dt_h5_error(err, "cannot write '%s'", w->to);
	w->done += n;
	return 0;
}

static int close_all(struct dt_teacher_writer *w)
{
	int rc = 0;

	for (int l = 0; l < LISTS; l++)
		if (w->list[l] >= 0 && H5Dclose(w->list[l]) < 0)
			rc = -EIO;
	if (w->file >= 0 && H5Fclose(w->file) < 0)
		rc = -EIO;
	w->file = w->list[COLUMNS] = w->list[LOGPROBS] = w->list[REST] = -1;
	return rc;
}

int dt_teacher_finish(struct dt_teacher_writer *w, struct dt_err *err)
{
	int rc;

	dt_h5_quiet();
	rc = close_all(w) < 0 ? dt_h5_error(err, "cannot write '%s'", w->to) : dt_fsync_path(w->tmp, err);
	if (rc == 0 && rename(w->tmp, w->to) < 0)
		rc = dt_err_sys(err, -errno, "cannot write '%s'", w->to);
	dt_teacher_abandon(w);
	return rc;
}

void dt_teacher_abandon(struct dt_teacher_writer *w)
{
	if (!w)
		return;
	close_all(w);
	if (w->tmp) {
		unlink(w->tmp); /* a finished file has been renamed */
		dt_signals_remove(NULL);
	}
	free(w->tmp);
	free(w->to);
	free(w);
}
/* SPDX-License-Identifier: Apache-2.0 */
