#include "data/gz.h"
#include "data/image_source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The bytes of a plain file that is not compressed; -1: not known. */
static int64_t size_of(const char *path, const struct stat *st)
{
	FILE *f = fopen(path, "rbe");
	int gz = f && getc(f) == 0x1f && getc(f) == 0x8b;

	if (f)
		fclose(f);
	return gz ? -1 : (int64_t)st->st_size;
}

int dt_image_format_of(const char *path, enum dt_image_format *ret, struct dt_err *err)
{
	unsigned char head[512] = {0};
	struct gz_file *f;
	struct stat st;
	int64_t size;
	int rc;

	if (!strcmp(path, "-")) {
		*ret = DT_FROM_TAR;
		return 0;
	}
	if (stat(path, &st) < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	if (S_ISDIR(st.st_mode)) {
		*ret = DT_FROM_FOLDER;
		return 0;
	}
	rc = gz_open(path, &f, err);
	if (rc < 0)
		return rc;
	rc = gz_read(f, head, sizeof(head), err);
	gz_close(f);
	if (rc < 0)
		return rc;
	size = size_of(path, &st);
	if (!memcmp(head + 257, "ustar", 5))
		*ret = DT_FROM_TAR;
	else if (!head[0] && !head[1] && head[2] >= 8 && head[2] <= 14 && (head[3] == 1 || head[3] == 3))
		*ret = DT_FROM_IDX;
	else if (size > 0 && size % 3073 == 0 && head[0] < 10)
		*ret = DT_FROM_CIFAR10;
	else if (size > 0 && size % 3074 == 0 && head[0] < 20 && head[1] < 100)
		*ret = DT_FROM_CIFAR100;
	else {
		rc = dt_err_set(err, -EINVAL, "'%s' is neither a folder nor IDX nor CIFAR nor tar", path);
		dt_err_hint(err, "--from says what it is.");
		return rc;
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
