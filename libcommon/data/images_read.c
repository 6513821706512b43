/* Reads images of an open set, in any order. */
#include "base/crc.h"
#include "data/images_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VERIFY_BYTES ((size_t)1 << 20)

void dt_images_info(const struct dt_images *d, struct dt_images_info *ret)
{
	*ret = d->info;
}

int dt_images_label(const struct dt_images *d, int64_t i)
{
	return d->label[i];
}

static const struct dt_images_shard *find_shard(const struct dt_images *d, int64_t i)
{
	int lo = 0, hi = d->info.shards - 1;

	while (lo < hi) {
		int m = (lo + hi + 1) / 2;

		if (d->shard[m].first <= i)
			lo = m;
		else
			hi = m - 1;
	}
	return &d->shard[lo];
}

/* Offset and length of image i in its shard's file. */
static int find_bytes(const struct dt_images *d, int64_t i, const struct dt_images_shard **ret,
		      int64_t *ret_at, size_t *ret_n, struct dt_err *err)
{
	size_t each = (size_t)d->info.channels * (size_t)d->info.height * (size_t)d->info.width;
	const struct dt_images_shard *s;

	if (i < 0 || i >= d->info.images)
		return dt_err_set(err, -ERANGE, "'%s' has only %lld images: there is no image %lld", d->path,
				  (long long)d->info.images, (long long)i);
	s = find_shard(d, i);
	i -= s->first;
	*ret = s;
	*ret_at = s->offset + (d->info.jpeg ? s->at[i] : i * (int64_t)each);
	*ret_n = d->info.jpeg ? (size_t)(s->at[i + 1] - s->at[i]) : each;
	return 0;
}

int dt_images_bytes(const struct dt_images *d, int64_t i, uint8_t **ret, size_t *ret_n, struct dt_err *err)
{
	const struct dt_images_shard *s;
	int64_t at;
	size_t n;
	uint8_t *b;
	int rc = find_bytes(d, i, &s, &at, &n, err);

	if (rc < 0)
		return rc;
	b = malloc(n);
	rc = b ? set_read(s->fd, b, n, at) : -ENOMEM;
	if (rc < 0) {
		free(b);
		return dt_err_sys(err, rc, "cannot read image %lld of '%s'", (long long)i, s->path);
	}
	*ret = b;
	*ret_n = n;
	return 0;
}

static int read_raw(const struct dt_images *d, int64_t i, struct dt_image *ret, struct dt_err *err)
{
	const struct dt_images_shard *s;
	int64_t at;
	size_t n;
	int rc = find_bytes(d, i, &s, &at, &n, err);

	if (rc == 0)
		rc = dt_image_resize(ret, d->info.channels, d->info.height, d->info.width, err);
	if (rc < 0)
		return rc;
	rc = set_read(s->fd, ret->pixel, n, at);
	return rc < 0 ? dt_err_sys(err, rc, "cannot read image %lld of '%s'", (long long)i, s->path) : 0;
}

int dt_images_read(const struct dt_images *d, int64_t i, struct dt_image *ret, struct dt_err *err)
{
	uint8_t *bytes;
	size_t n;
	int rc;

	if (!d->info.jpeg)
		return read_raw(d, i, ret, err);
	rc = dt_images_bytes(d, i, &bytes, &n, err);
	if (rc < 0)
		return rc;
	rc = dt_image_decode(bytes, n, d->info.channels, d->info.orientation, ret, NULL, err);
	free(bytes);
	if (rc < 0)
		return dt_err_prefix(err, "image %lld of '%s'", (long long)i, d->path);
	if (ret->height < d->info.min_height || ret->height > d->info.max_height ||
	    ret->width < d->info.min_width || ret->width > d->info.max_width)
		return dt_err_set(err, -EBADMSG,
				  "image %lld of '%s' is %d x %d, outside the range that the dataset states",
				  (long long)i, d->path, ret->height, ret->width);
	return 0;
}

static int verify_shard(const struct dt_images *d, const struct dt_images_shard *s, uint8_t *buf,
			struct dt_err *err)
{
	uint32_t crc = 0;

	for (int64_t at = 0; at < s->bytes;) {
		size_t n = s->bytes - at < (int64_t)VERIFY_BYTES ? (size_t)(s->bytes - at) : VERIFY_BYTES;
		int rc = set_read(s->fd, buf, n, s->offset + at);

		if (rc < 0)
			return dt_err_sys(err, rc, "cannot read '%s'", s->path);
		crc = dt_crc32(crc, buf, n);
		at += (int64_t)n;
	}
	crc = dt_crc32(crc, d->label + s->first, (size_t)s->n * sizeof(*d->label));
	if (s->at)
		crc = dt_crc32(crc, s->at, (size_t)(s->n + 1) * sizeof(*s->at));
	return crc == s->crc ? 0
			     : dt_err_set(err, -EBADMSG, "'%s': the images do not have the checksum %08x",
					  s->path, s->crc);
}

int dt_images_verify(const struct dt_images *d, struct dt_err *err)
{
	uint8_t *buf = malloc(VERIFY_BYTES);
	int rc = buf ? 0 : dt_err_sys(err, -ENOMEM, "cannot read '%s'", d->path);

	for (int i = 0; i < d->info.shards && rc == 0; i++)
		rc = verify_shard(d, &d->shard[i], buf, err);
	free(buf);
	return rc;
}

/* Whether each name is its class's decimal number, as in a set without names. */
static bool are_numbers(int n, const char *const *names)
{
	char number[16];

	for (int i = 0; i < n; i++) {
		snprintf(number, sizeof(number), "%d", i);
		if (strcmp(names[i], number))
			return false;
	}
	return true;
}

int dt_images_check_classes(const struct dt_images *d, int n, const char *const *names, const char *whose,
			    struct dt_err *err)
{
	int have = d->info.classes, same = n < have ? n : have;

	if (are_numbers(n, names) || are_numbers(have, (const char *const *)d->name))
		same = 0; /* compare by number */
	for (int i = 0; i < same; i++)
		if (strcmp(names[i], d->name[i]))
			return dt_err_set(err, -EINVAL,
					  "class %d is '%.60s' in '%.120s' and '%.60s' in %.120s", i,
					  d->name[i], d->path, names[i], whose);
	if (n != have)
		return dt_err_set(err, -EINVAL, "'%.160s' has %d classes, %.160s has %d", d->path, have,
				  whose, n);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
