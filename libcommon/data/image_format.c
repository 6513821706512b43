#include "data/image_source.h"
#include "data/unpack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const char *dt_image_ending(const char *name)
{
	static const char *const read[] = {"jpg", "jpeg", "png", "ppm", "pgm", "pnm"};
	static const char *const other[] = {"webp", "bmp", "gif",  "tif", "tiff", "avif",
					    "heic", "jp2", "jfif", "pbm", "svg",  "ico"};
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; dot && i < sizeof(read) / sizeof(read[0]); i++)
		if (!strcasecmp(dot + 1, read[i]))
			return NULL;
	for (size_t i = 0; dot && i < sizeof(other) / sizeof(other[0]); i++)
		if (!strcasecmp(dot + 1, other[i]))
			return "this format is not supported; JPEG, PNG, PGM and PPM are";
	return "its name does not have the extension of an image";
}

int dt_image_format_of(const char *path, enum dt_image_format *ret, struct dt_err *err)
{
	unsigned char head[512] = {0};
	struct unpack *f;
	struct stat st;
	int64_t size;
	int rc, n = 0;
	bool packed;

	if (!unpack_is_file(path)) {
		*ret = DT_FROM_TAR;
		return 0;
	}
	if (stat(path, &st) < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	if (S_ISDIR(st.st_mode)) {
		*ret = DT_FROM_FOLDER;
		return 0;
	}
	rc = unpack_open(path, &f, err);
	if (rc < 0)
		return rc;
	do {
		rc = unpack_read(f, head + n, (int)sizeof(head) - n, err);
		n += rc > 0 ? rc : 0;
	} while (rc > 0 && n < (int)sizeof(head));
	packed = unpack_is_packed(f);
	unpack_close(f);
	if (rc < 0)
		return rc;
	size = packed ? -1 : (int64_t)st.st_size;
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
		dt_err_hint(err, "use --from to give the format");
		return rc;
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
