/* Opens an image set: finds its shards and checks that they are complete. */
#include "data/images_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLASSES_MAX 1000000

static int bad(const struct dt_images *d, const char *path, const char *what, struct dt_err *err)
{
	return dt_err_set(err, -EBADMSG, "'%s': %s", path ? path : d->path, what);
}

/* Returns 1 for images, 0 for tokens. */
static int format_of(hid_t f, const char *path, struct dt_err *err)
{
	char *format = NULL;
	int rc = dt_h5_get_text(f, path, "format", &format, NULL);

	if (rc == 0)
		rc = !strcmp(format, "dt-images") ? 1 : !strcmp(format, "dt-dataset") ? 0 : -EBADMSG;
	free(format);
	return rc < 0 ? dt_err_set(err, -EBADMSG, "'%s' is not a dataset made by dt", path) : rc;
}

int dt_images_is(const char *path, struct dt_err *err)
{
	hid_t f;
	int rc = dt_h5_open(path, &f, err);

	if (rc == -EBADMSG)
		dt_err_hint(err, DT_DATASET_MADE_BY);
	if (rc < 0)
		return rc;
	rc = format_of(f, path, err);
	H5Fclose(f);
	return rc;
}

static int check_format(hid_t f, const char *path, struct dt_err *err)
{
	int64_t version;
	int rc = format_of(f, path, err);

	if (rc == 0) {
		rc = dt_err_set(err, -EBADMSG, "'%s' holds tokens, not images", path);
		dt_err_hint(err, "make a data set of images with 'dt-dataset images'");
	}
	return rc < 0 ? rc : dt_h5_get_int(f, path, "version", 1, 1, &version, err);
}

/* Finds the file offset of a byte dataset's values. */
static int find_data(const struct dt_images *d, hid_t f, struct dt_images_shard *s, struct dt_err *err)
{
	hid_t data = H5Lexists(f, "data", H5P_DEFAULT) > 0 ? H5Dopen2(f, "data", H5P_DEFAULT) : -1, space,
	      type;
	hsize_t dim[4] = {0};
	struct stat st;
	haddr_t at;
	int rank;
	bool fits;

	if (data < 0)
		return bad(d, s->path, "there is no dataset 'data'", err);
	space = H5Dget_space(data);
	type = H5Dget_type(data);
	rank = H5Sget_simple_extent_ndims(space);
	if (rank == (d->info.jpeg ? 1 : 4))
		H5Sget_simple_extent_dims(space, dim, NULL);
	fits = H5Tget_class(type) == H5T_INTEGER && H5Tget_size(type) == 1;
	at = H5Dget_offset(data);
	H5Tclose(type);
	H5Sclose(space);
	H5Dclose(data);
	if (d->info.jpeg)
		fits &= rank == 1 && dim[0] <= INT64_MAX;
	else
		fits &= rank == 4 && (int64_t)dim[0] == s->n && (int64_t)dim[1] == d->info.channels &&
			(int64_t)dim[2] == d->info.height && (int64_t)dim[3] == d->info.width;
	if (!fits)
		return bad(d, s->path, "dataset 'data' does not have the shape that the attributes say", err);
	s->bytes = d->info.jpeg ? (int64_t)dim[0] : s->n * d->info.channels * d->info.height * d->info.width;
	if (at == HADDR_UNDEF)
		return bad(d, s->path, "dataset 'data' is not contiguous", err);
	s->offset = (int64_t)at;
	s->fd = open(s->path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0 || fstat(s->fd, &st) < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", s->path);
	if (s->offset > st.st_size || s->bytes > st.st_size - s->offset)
		return bad(d, s->path, "the file is truncated", err);
	return 0;
}

static int read_offsets(const struct dt_images *d, hid_t f, struct dt_images_shard *s, struct dt_err *err)
{
	int rc;

	if (!d->info.jpeg)
		return 0;
	s->at = malloc((size_t)(s->n + 1) * sizeof(*s->at));
	if (!s->at)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", s->path);
	rc = set_read_numbers(f, s->path, "offsets", s->n + 1, s->at, err);
	if (rc < 0)
		return rc;
	for (int64_t i = 0; i < s->n; i++)
		if (s->at[i] < 0 || s->at[i + 1] <= s->at[i] || s->at[i + 1] > s->bytes ||
		    s->at[i + 1] - s->at[i] > INT32_MAX)
			return dt_err_set(err, -EBADMSG, "'%s': image %lld has no bytes in 'data'", s->path,
					  (long long)i);
	return s->at[0] == 0 && s->at[s->n] == s->bytes
		       ? 0
		       : bad(d, s->path, "'offsets' do not cover all bytes of 'data'", err);
}

static int read_labels(struct dt_images *d, hid_t f, struct dt_images_shard *s, struct dt_err *err)
{
	int32_t *to = d->label + s->first;
	int64_t have;
	size_t bytes;
	hid_t list;
	int rc = dt_h5_open_list(f, s->path, "labels", H5T_INTEGER, &list, &have, &bytes, err);

	if (rc < 0)
		return rc;
	if (have != s->n)
		rc = dt_err_set(err, -EBADMSG, "'%s' has %lld labels for %lld images", s->path,
				(long long)have, (long long)s->n);
	else if (set_read_list(list, 0, s->n, H5T_NATIVE_INT32, to) < 0)
		rc = dt_h5_error(err, "cannot read '%s'", s->path);
	H5Dclose(list);
	for (int64_t i = 0; i < s->n && rc == 0; i++)
		if (to[i] < 0 || to[i] >= d->info.classes)
			rc = dt_err_set(err, -EBADMSG,
					"'%s': label %d of image %lld is not one of %d classes", s->path,
					to[i], (long long)i, d->info.classes);
	return rc;
}

static int open_shard(struct dt_images *d, struct dt_images_shard *s, hid_t f, int64_t expect_crc,
		      struct dt_err *err)
{
	int64_t crc = 0;
	int rc = dt_h5_get_int(f, s->path, "crc32", 0, UINT32_MAX, &crc, err);

	if (rc < 0)
		return rc;
	if (expect_crc >= 0 && crc != expect_crc)
		return dt_err_set(err, -EBADMSG, "'%s' belongs to another dataset than '%s'", s->path,
				  d->path);
	s->crc = (uint32_t)crc;
	rc = find_data(d, f, s, err);
	if (rc == 0)
		rc = read_offsets(d, f, s, err);
	if (rc == 0)
		rc = read_labels(d, f, s, err);
	d->info.bytes += s->bytes;
	return rc;
}

static int alloc_shards(struct dt_images *d, int n, struct dt_err *err)
{
	d->shard = calloc((size_t)n, sizeof(*d->shard));
	if (!d->shard)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", d->path);
	d->info.shards = n;
	for (int i = 0; i < n; i++)
		d->shard[i].fd = -1;
	return 0;
}

static int open_shards(struct dt_images *d, hid_t f, struct dt_err *err)
{
	struct set_index x = {0};
	int64_t first = 0;
	int rc = set_read_index(f, d->path, "shard_images", &x, err);

	if (rc == 0)
		rc = alloc_shards(d, x.n, err);
	for (int i = 0; i < x.n && rc == 0; i++) {
		struct dt_images_shard *s = &d->shard[i];
		hid_t file;

		if (x.count[i] > d->info.images - first) {
			rc = bad(d, NULL, "its shards have more images than it says", err);
			break;
		}
		s->path = strdup(x.path[i]);
		s->first = first;
		s->n = x.count[i];
		first += s->n;
		rc = s->path ? dt_h5_open(s->path, &file, err)
			     : dt_err_sys(err, -ENOMEM, "cannot open '%s'", d->path);
		if (rc < 0)
			break;
		rc = check_format(file, s->path, err);
		if (rc == 0)
			rc = open_shard(d, s, file, x.crc[i], err);
		H5Fclose(file);
	}
	set_index_free(&x);
	if (rc == 0 && first != d->info.images)
		rc = bad(d, NULL, "its shards have fewer images than it says", err);
	return rc;
}

static int read_classes(struct dt_images *d, hid_t f, struct dt_err *err)
{
	int64_t n;
	size_t width;
	hid_t list, type;
	int rc = dt_h5_open_list(f, d->path, "classes", H5T_STRING, &list, &n, &width, err);

	if (rc < 0)
		return rc;
	if (n < 1 || n > CLASSES_MAX) {
		H5Dclose(list);
		return dt_err_set(err, -EBADMSG, "'%s' has %lld classes", d->path, (long long)n);
	}
	d->info.classes = (int)n;
	d->names = calloc((size_t)n, width + 1);
	d->name = calloc((size_t)n, sizeof(*d->name));
	type = H5Dget_type(list);
	if (!d->names || !d->name)
		rc = dt_err_sys(err, -ENOMEM, "cannot open '%s'", d->path);
	else if (set_read_list(list, 0, n, type, d->names) < 0)
		rc = dt_h5_error(err, "cannot read '%s'", d->path);
	H5Tclose(type);
	H5Dclose(list);
	/* from the last: each name moves up to make room for the NULs before it */
	for (int64_t i = n; i-- > 0 && rc == 0;) {
		d->name[i] = d->names + (size_t)i * (width + 1);
		memmove(d->name[i], d->names + (size_t)i * width, width);
		d->name[i][width] = '\0';
	}
	d->info.class_name = (const char *const *)d->name;
	return rc;
}

/* Computes mean and standard deviation from the exact sums over pixels. */
static int read_sums(struct dt_images *d, hid_t f, struct dt_err *err)
{
	int64_t sum[3], squares[3], pixels = 1;
	int rc = dt_h5_get_int(f, d->path, "pixels", 1, INT64_MAX / 65025, &pixels, err);

	if (rc == 0)
		rc = set_read_numbers(f, d->path, "pixel_sum", d->info.channels, sum, err);
	if (rc == 0)
		rc = set_read_numbers(f, d->path, "pixel_squares", d->info.channels, squares, err);
	for (int c = 0; c < d->info.channels && rc == 0; c++) {
		long double m = (long double)sum[c] / pixels, v = (long double)squares[c] / pixels - m * m;

		if (sum[c] < 0 || m > 255 || v < 0)
			return bad(d, NULL, "its pixel sums are invalid", err);
		d->info.mean[c] = (float)(m / 255);
		d->info.deviation[c] = (float)(sqrtl(v) / 255);
	}
	return rc;
}

static int read_facts(struct dt_images *d, hid_t f, struct dt_err *err)
{
	static const char *const names[] = {"channels",	 "height",     "width",	    "min_height",
					    "min_width", "max_height", "max_width", "orientation"};
	int *to[] = {&d->info.channels,	 &d->info.height,     &d->info.width,	  &d->info.min_height,
		     &d->info.min_width, &d->info.max_height, &d->info.max_width, NULL};
	int64_t v = 0;
	char *encoding = NULL;
	int rc = dt_h5_get_int(f, d->path, "images", 1, INT64_MAX / 8, &d->info.images, err);

	for (int i = 0; i < 8 && rc == 0; i++) {
		int64_t low = i == 1 || i == 2 || i == 7 ? 0 : 1, high = i == 7 ? 1 : DT_IMAGE_SIDE_MAX;

		rc = dt_h5_get_int(f, d->path, names[i], low, high, &v, err);
		if (rc == 0 && to[i])
			*to[i] = (int)v;
		else
			d->info.orientation = v;
	}
	if (rc == 0)
		rc = dt_h5_get_text(f, d->path, "encoding", &encoding, err);
	if (rc < 0)
		return rc;
	d->info.jpeg = !strcmp(encoding, "jpeg");
	if (!d->info.jpeg && strcmp(encoding, "raw"))
		rc = dt_err_set(err, -EBADMSG, "'%s': encoding '%.40s' is not supported", d->path, encoding);
	else if (!d->info.jpeg && (!d->info.height || !d->info.width))
		rc = bad(d, NULL, "raw images must all have one size", err);
	else if (d->info.channels != 1 && d->info.channels != 3)
		rc = bad(d, NULL, "images must have 1 or 3 channels", err);
	else if (!d->info.jpeg && d->info.images > INT64_MAX / 3 / DT_IMAGE_SIDE_MAX / DT_IMAGE_SIDE_MAX)
		rc = bad(d, NULL, "the number of images is invalid", err);
	free(encoding);
	return rc < 0 ? rc : dt_h5_get_text(f, d->path, "source", &d->source, err);
}

static int open_file(struct dt_images *d, hid_t f, struct dt_err *err)
{
	int rc = check_format(f, d->path, err);

	if (rc == 0)
		rc = read_facts(d, f, err);
	if (rc == 0)
		rc = read_classes(d, f, err);
	if (rc == 0)
		rc = read_sums(d, f, err);
	d->info.source = d->source;
	if (rc == 0) {
		d->label = malloc((size_t)d->info.images * sizeof(*d->label));
		rc = d->label ? 0 : dt_err_sys(err, -ENOMEM, "cannot open '%s'", d->path);
	}
	if (rc == 0 && H5Lexists(f, "shards", H5P_DEFAULT) > 0)
		return open_shards(d, f, err);
	if (rc == 0)
		rc = alloc_shards(d, 1, err);
	if (rc < 0)
		return rc;
	d->shard[0].n = d->info.images;
	d->shard[0].path = strdup(d->path);
	return d->shard[0].path ? open_shard(d, &d->shard[0], f, -1, err)
				: dt_err_sys(err, -ENOMEM, "cannot open '%s'", d->path);
}

int dt_images_open(const char *path, struct dt_images **ret, struct dt_err *err)
{
	struct dt_images *d = calloc(1, sizeof(*d));
	hid_t f;
	int rc;

	if (d)
		d->path = strdup(path);
	if (!d || !d->path) {
		free(d);
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	}
	rc = dt_h5_open(path, &f, err);
	if (rc == 0) {
		rc = open_file(d, f, err);
		H5Fclose(f);
	}
	if (rc < 0) {
		dt_images_close(d);
		return rc;
	}
	*ret = d;
	return 0;
}

void dt_images_close(struct dt_images *d)
{
	if (!d)
		return;
	for (int i = 0; d->shard && i < d->info.shards; i++) {
		if (d->shard[i].fd >= 0)
			close(d->shard[i].fd);
		free(d->shard[i].path);
		free(d->shard[i].at);
	}
	free(d->shard);
	free(d->label);
	free(d->names);
	free(d->name);
	free(d->source);
	free(d->path);
	free(d);
}
/* SPDX-License-Identifier: Apache-2.0 */
