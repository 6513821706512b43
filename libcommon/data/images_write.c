/*
 * As in dataset_write.c, bytes wait in a spool until the shards are cut; labels and offsets wait in memory.
 */
#include "base/clones.h"
#include "base/crc.h"
#include "base/io.h"
#include "base/tmpfile.h"
#include "data/images.h"
#include "data/shard_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct dt_images_writer {
	char *path, *source, *names;
	size_t name_width;
	struct dt_images_create how; /* its pointers are not kept */
	int fd;
	int64_t images, room, bytes;
	uint32_t crc; /* of all bytes */
	int32_t *label;
	int64_t *end; /* [image] end offset in the spool */
	int height, width, min_height, min_width, max_height, max_width;
	int64_t pixels, sum[3], squares[3];
};

static int no_memory(struct dt_err *err, const char *path)
{
	return dt_err_sys(err, -ENOMEM, "cannot write '%s'", path);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_unique(int n, const char *const *name, struct dt_err *err)
{
	const char **sorted = malloc((size_t)n * sizeof(*sorted));
	int rc = sorted ? 0 : dt_err_sys(err, -ENOMEM, "cannot sort the names of classes");

	if (rc < 0)
		return rc;
	memcpy(sorted, name, (size_t)n * sizeof(*sorted));
	qsort(sorted, (size_t)n, sizeof(*sorted), by_text);
	for (int i = 1; i < n && rc == 0; i++)
		if (!strcmp(sorted[i - 1], sorted[i]))
			rc = dt_err_set(err, -EINVAL, "two classes have the name '%.200s'", sorted[i]);
	free(sorted);
	return rc;
}

int dt_images_set_classes(struct dt_images_writer *w, int classes, const char *const *name, const int *map,
			  struct dt_err *err)
{
	size_t width = 1;
	char *names;
	int rc = check_unique(classes, name, err);

	if (rc < 0)
		return rc;
	for (int i = 0; i < classes; i++) {
		size_t n = strlen(name[i]) + 1;

		if (n > DT_H5_TEXT_MAX)
			return dt_err_set(err, -EINVAL, "the name of class %d is longer than %d bytes", i,
					  DT_H5_TEXT_MAX - 1);
		width = n > width ? n : width;
	}
	names = calloc(width, (size_t)classes);
	if (!names)
		return no_memory(err, w->path);
	for (int i = 0; i < classes; i++)
		strcpy(names + (size_t)i * width, name[i]);
	free(w->names);
	w->names = names;
	w->name_width = width;
	w->how.classes = classes;
	for (int64_t i = 0; i < w->images && map; i++)
		w->label[i] = map[w->label[i]];
	return 0;
}

int dt_images_create(const char *path, const struct dt_images_create *how, struct dt_images_writer **ret,
		     struct dt_err *err)
{
	struct dt_images_writer *w;
	int rc;

	if (how->classes < 0 || (how->channels != 1 && how->channels != 3))
		return dt_err_set(err, -EINVAL, "cannot write '%s': %d classes of images of %d channels",
				  path, how->classes, how->channels);
	w = calloc(1, sizeof(*w));
	if (!w)
		return no_memory(err, path);
	w->fd = -1;
	w->how = *how;
	w->source = strdup(how->source ? how->source : "");
	rc = w->source ? dt_out_path(path, &w->path, err) : no_memory(err, path);
	if (rc == 0 && how->classes)
		rc = dt_images_set_classes(w, how->classes, how->class_name, NULL, err);
	if (rc == 0)
		rc = set_spool_open(w->path, &w->fd, err);
	if (rc < 0) {
		dt_images_abandon(w);
		return rc;
	}
	*ret = w;
	return 0;
}

static int grow(struct dt_images_writer *w, struct dt_err *err)
{
	int64_t room = w->room ? w->room * 2 : 1024;
	int32_t *label;
	int64_t *end;

	if (w->images < w->room)
		return 0;
	label = realloc(w->label, (size_t)room * sizeof(*label));
	if (label)
		w->label = label;
	end = label ? realloc(w->end, (size_t)room * sizeof(*end)) : NULL;
	if (!end)
		return no_memory(err, w->path);
	w->end = end;
	w->room = room;
	return 0;
}

static int check_image(const struct dt_images_writer *w, const struct dt_image *x, int label,
		       struct dt_err *err)
{
	if (label < 0 || (w->how.classes && label >= w->how.classes))
		return dt_err_set(err, -EINVAL, "label %d is not one of %d classes", label, w->how.classes);
	if (x->channels != w->how.channels)
		return dt_err_set(err, -EINVAL, "an image has %d channels, the others %d", x->channels,
				  w->how.channels);
	if (!w->how.jpeg && w->images && (x->height != w->height || x->width != w->width)) {
		dt_err_set(err, -EINVAL, "an image is %d x %d, the others %d x %d", x->height, x->width,
			   w->height, w->width);
		dt_err_hint(err, "use --resize and --crop to give all the same size, or --store jpeg");
		return -EINVAL;
	}
	return 0;
}

/* Sums of n values and of their squares; n at most 65536. */
static DT_CLONES void sum_pixels(const uint8_t *p, size_t n, uint32_t ret[2])
{
	uint32_t sum = 0, squares = 0;

	for (size_t i = 0; i < n; i++) {
		sum += p[i];
		squares += (uint32_t)p[i] * p[i];
	}
	ret[0] = sum;
	ret[1] = squares;
}

static void count_pixels(struct dt_images_writer *w, const struct dt_image *x)
{
	size_t plane = (size_t)x->height * (size_t)x->width, n;
	uint32_t sum[2];

	for (int c = 0; c < x->channels; c++)
		for (size_t at = 0; at < plane; at += n) {
			n = plane - at < 65536 ? plane - at : 65536;
			sum_pixels(x->pixel + (size_t)c * plane + at, n, sum);
			w->sum[c] += sum[0];
			w->squares[c] += sum[1];
		}
	w->pixels += (int64_t)plane;
}

static void count_size(struct dt_images_writer *w, int height, int width)
{
	bool first = !w->images;

	w->height = first || height == w->height ? height : 0;
	w->width = first || width == w->width ? width : 0;
	w->min_height = first || height < w->min_height ? height : w->min_height;
	w->min_width = first || width < w->min_width ? width : w->min_width;
	w->max_height = first || height > w->max_height ? height : w->max_height;
	w->max_width = first || width > w->max_width ? width : w->max_width;
}

int dt_images_append(struct dt_images_writer *w, const struct dt_image *x, const uint8_t *bytes, size_t n,
		     int label, struct dt_err *err)
{
	int rc = check_image(w, x, label, err);

	if (rc == 0)
		rc = grow(w, err);
	if (rc < 0)
		return rc;
	if (!w->how.jpeg) {
		bytes = x->pixel;
		n = (size_t)x->channels * (size_t)x->height * (size_t)x->width;
	}
	rc = dt_write_all(w->fd, bytes, n, SET_HEAD + w->bytes);
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot write '%s'", w->path);
	count_pixels(w, x);
	count_size(w, x->height, x->width);
	w->crc = dt_crc32(w->crc, bytes, n);
	w->bytes += (int64_t)n;
	w->label[w->images] = label;
	w->end[w->images++] = w->bytes;
	return 0;
}

static int put_facts(const struct dt_images_writer *w, hid_t f)
{
	const struct {
		const char *name;
		int64_t v;
	} number[] = {{"version", 1},
		      {"images", w->images},
		      {"channels", w->how.channels},
		      {"height", w->height && w->width ? w->height : 0},
		      {"width", w->height && w->width ? w->width : 0},
		      {"min_height", w->min_height},
		      {"min_width", w->min_width},
		      {"max_height", w->max_height},
		      {"max_width", w->max_width},
		      {"pixels", w->pixels},
		      {"orientation", w->how.orientation}};
	hid_t type = H5Tcopy(H5T_C_S1);
	int rc = dt_h5_put_text(f, "format", "dt-images");

	for (size_t i = 0; i < sizeof(number) / sizeof(number[0]) && rc == 0; i++)
		rc = dt_h5_put_int(f, number[i].name, number[i].v);
	if (rc == 0)
		rc = dt_h5_put_text(f, "encoding", w->how.jpeg ? "jpeg" : "raw");
	if (rc == 0)
		rc = dt_h5_put_text(f, "source", w->source);
	if (rc == 0 && (H5Tset_size(type, w->name_width) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0))
		rc = -EIO;
	if (rc == 0)
		rc = dt_h5_put_list(f, "classes", type, type, w->how.classes, w->names, false);
	H5Tclose(type);
	if (rc == 0)
		rc = dt_h5_put_list(f, "pixel_sum", H5T_STD_I64LE, H5T_NATIVE_INT64, w->how.channels, w->sum,
				    false);
	if (rc == 0)
		rc = dt_h5_put_list(f, "pixel_squares", H5T_STD_I64LE, H5T_NATIVE_INT64, w->how.channels,
				    w->squares, false);
	return rc;
}

struct part { /* images [first, first + n) and their bytes in the spool */
	int64_t first, n, at, bytes;
	int64_t *offsets;
};

static int cut_part(const struct dt_images_writer *w, int64_t first, int64_t n, struct part *p)
{
	*p = (struct part){.first = first, .n = n, .at = first ? w->end[first - 1] : 0};
	p->bytes = w->end[first + n - 1] - p->at;
	if (!w->how.jpeg)
		return 0;
	p->offsets = calloc((size_t)n + 1, sizeof(*p->offsets));
	for (int64_t i = 0; i < n && p->offsets; i++)
		p->offsets[i + 1] = w->end[first + i] - p->at;
	return p->offsets ? 0 : -ENOMEM;
}

static int make_shard(const struct dt_images_writer *w, struct set_file *s, const struct part *p, bool whole,
		      struct dt_err *err)
{
	hsize_t dim[4] = {(hsize_t)p->n, (hsize_t)w->how.channels, (hsize_t)w->height, (hsize_t)w->width};
	hid_t f = set_create(s->tmp);
	int rc;

	if (f < 0)
		return dt_h5_error(err, "cannot create '%s'", s->tmp);
	if (w->how.jpeg)
		dim[0] = (hsize_t)p->bytes;
	rc = set_put_place(f, "data", H5T_STD_U8LE, w->how.jpeg ? 1 : 4, dim, &s->offset);
	if (rc == 0)
		rc = dt_h5_put_list(f, "labels", H5T_STD_I32LE, H5T_NATIVE_INT32, p->n, w->label + p->first,
				    false);
	if (rc == 0 && p->offsets)
		rc = dt_h5_put_list(f, "offsets", H5T_STD_I64LE, H5T_NATIVE_INT64, p->n + 1, p->offsets,
				    false);
	if (rc == 0)
		rc = dt_h5_put_int(f, "crc32", s->crc);
	if (rc == 0)
		rc = whole ? put_facts(w, f) : dt_h5_put_text(f, "format", "dt-images");
	if (rc == 0 && !whole)
		rc = dt_h5_put_int(f, "version", 1);
	if (rc < 0)
		dt_h5_error(err, "cannot write '%s'", s->path);
	if (H5Fclose(f) < 0 && rc == 0)
		rc = dt_h5_error(err, "cannot write '%s'", s->path);
	return rc;
}

static int write_shard(void *arg, struct set_file *s, int64_t first, int64_t n, bool whole,
		       struct dt_err *err)
{
	struct dt_images_writer *w = arg;
	struct part p;
	int rc = cut_part(w, first, n, &p);

	if (rc == 0 && n == w->images)
		s->crc = w->crc;
	else if (rc == 0)
		rc = set_checksum(w->fd, p.at, p.bytes, &s->crc);
	if (rc < 0) {
		free(p.offsets);
		return dt_err_sys(err, rc, "cannot write '%s'", s->path);
	}
	s->crc = dt_crc32(s->crc, w->label + first, (size_t)n * sizeof(*w->label));
	if (p.offsets)
		s->crc = dt_crc32(s->crc, p.offsets, (size_t)(n + 1) * sizeof(*p.offsets));
	rc = make_shard(w, s, &p, whole, err);
	free(p.offsets);
	if (rc < 0)
		return rc;
	rc = set_fill(s, w->fd, p.at, p.bytes, whole);
	return rc < 0 ? dt_err_sys(err, rc, "cannot write '%s'", s->path) : 0;
}

static int write_index(void *arg, const char *tmp, const struct set_file *s, const int64_t *count, int n,
		       struct dt_err *err)
{
	struct dt_images_writer *w = arg;
	hsize_t dim[4] = {(hsize_t)w->images, (hsize_t)w->how.channels, (hsize_t)w->height,
			  (hsize_t)w->width};
	hid_t f = set_create(tmp);
	int rc;

	if (f < 0)
		return dt_h5_error(err, "cannot create '%s'", tmp);
	rc = put_facts(w, f);
	if (rc == 0)
		rc = set_put_index(f, "shard_images", s, count, n);
	if (rc == 0 && !w->how.jpeg)
		rc = set_put_view(f, "data", H5T_STD_U8LE, 4, dim, s, count, n);
	if (rc == 0 && !w->how.jpeg)
		rc = set_put_view(f, "labels", H5T_STD_I32LE, 1, dim, s, count, n);
	if (rc < 0)
		dt_h5_error(err, "cannot write '%s'", w->path);
	if (H5Fclose(f) < 0 && rc == 0)
		rc = dt_h5_error(err, "cannot write '%s'", w->path);
	return rc < 0 ? rc : dt_fsync_path(tmp, err);
}

int dt_images_finish(struct dt_images_writer *w, struct dt_err *err)
{
	static const struct set_writer how = {write_shard, write_index};
	int n = w->how.shards > 1 ? w->how.shards : 1, rc = 0;

	n = n > w->images ? (int)w->images : n > SET_SHARDS_MAX ? SET_SHARDS_MAX : n;
	dt_h5_quiet();
	if (!w->images)
		rc = dt_err_set(err, -EINVAL, "cannot write '%s': there are no images", w->path);
	else if (!w->how.classes)
		rc = dt_err_set(err, -EINVAL, "cannot write '%s': there are no classes", w->path);
	if (rc == 0)
		rc = set_make(&how, w, w->path, w->images, n, err);
	dt_images_abandon(w);
	return rc;
}

void dt_images_abandon(struct dt_images_writer *w)
{
	if (!w)
		return;
	if (w->fd >= 0)
		close(w->fd);
	free(w->path);
	free(w->source);
	free(w->names);
	free(w->label);
	free(w->end);
	free(w);
}
/* SPDX-License-Identifier: Apache-2.0 */
