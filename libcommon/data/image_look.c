#include "data/image_look.h"

#include "base/units.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

/* Images of each class, malloc'd. */
static int64_t *count_classes(const struct dt_images *d, const struct dt_images_info *i)
{
	int64_t *n = calloc((size_t)i->classes, sizeof(*n));

	for (int64_t k = 0; k < i->images && n; k++)
		n[dt_images_label(d, k)]++;
	return n;
}

static json_t *facts_json(const struct dt_images_info *i, const int64_t *of_class, const char *path)
{
	json_t *classes = json_array(), *mean = json_array(), *deviation = json_array();

	for (int c = 0; c < i->classes; c++)
		json_array_append_new(classes, json_pack("{s:s, s:I}", "name", i->class_name[c], "images",
							 (json_int_t)of_class[c]));
	for (int c = 0; c < i->channels; c++) {
		json_array_append_new(mean, json_real((double)i->mean[c]));
		json_array_append_new(deviation, json_real((double)i->deviation[c]));
	}
	return json_pack("{s:i, s:s, s:I, s:s, s:i, s:[ii], s:[ii], s:I, s:i, s:o, s:o, s:s, s:o}", "schema",
			 1, "path", path, "images", (json_int_t)i->images, "encoding",
			 i->jpeg ? "jpeg" : "raw", "channels", i->channels, "smallest", i->min_height,
			 i->min_width, "largest", i->max_height, i->max_width, "data_bytes",
			 (json_int_t)i->bytes, "shards", i->shards, "mean", mean, "deviation", deviation,
			 "source", i->source, "classes", classes);
}

static struct dt_table *facts_table(const struct dt_images_info *i)
{
	struct dt_table *t = dt_table_new("property|value");
	char size[32];

	dt_table_cell(t, "images");
	dt_table_cell(t, "%lld as %s", (long long)i->images, i->jpeg ? "JPEG" : "pixels");
	dt_table_cell(t, "bytes");
	dt_table_cell(t, "%s", dt_format_size((uint64_t)i->bytes, size, sizeof(size)));
	dt_table_cell(t, "height x width");
	if (i->height && i->width)
		dt_table_cell(t, "%d x %d", i->height, i->width);
	else
		dt_table_cell(t, "%d to %d x %d to %d", i->min_height, i->max_height, i->min_width,
			      i->max_width);
	dt_table_cell(t, "channels");
	dt_table_cell(t, "%d", i->channels);
	for (int k = 0; k < 2; k++) {
		const float *v = k ? i->deviation : i->mean;

		dt_table_cell(t, k ? "deviation" : "mean");
		if (i->channels == 3)
			dt_table_cell(t, "%.4f %.4f %.4f", (double)v[0], (double)v[1], (double)v[2]);
		else
			dt_table_cell(t, "%.4f", (double)v[0]);
	}
	dt_table_cell(t, "shards");
	dt_table_cell(t, "%d", i->shards);
	dt_table_cell(t, "source");
	dt_table_cell(t, "%s", i->source);
	return t;
}

int dt_images_json(const struct dt_images *d, const char *path, json_t **ret, struct dt_err *err)
{
	struct dt_images_info i;
	int64_t *of_class;

	dt_images_info(d, &i);
	of_class = count_classes(d, &i);
	if (!of_class)
		return dt_err_sys(err, -ENOMEM, "cannot describe '%s'", path);
	*ret = facts_json(&i, of_class, path);
	free(of_class);
	return 0;
}

int dt_images_tables(const struct dt_images *d, struct dt_table **ret_facts, struct dt_table **ret_classes,
		     struct dt_err *err)
{
	struct dt_images_info i;
	int64_t *of_class;
	struct dt_table *t;

	dt_images_info(d, &i);
	of_class = count_classes(d, &i);
	if (!of_class)
		return dt_err_sys(err, -ENOMEM, "cannot describe a set of images");
	*ret_facts = facts_table(&i);
	t = dt_table_new("label|class|images");
	for (int c = 0; c < i.classes; c++) {
		dt_table_cell(t, "%d", c);
		dt_table_cell(t, "%s", i.class_name[c]);
		dt_table_cell(t, "%lld", (long long)of_class[c]);
	}
	*ret_classes = t;
	free(of_class);
	return 0;
}

static const struct {
	const char *key, *words;
	size_t at;
} found[] = {
	{"bad", "left out", offsetof(struct dt_image_import, bad)},
	{"passed_over", "other files passed over", offsetof(struct dt_image_import, passed)},
	{"grey", "grey made colour", offsetof(struct dt_image_import, grey)},
	{"cmyk", "CMYK", offsetof(struct dt_image_import, cmyk)},
	{"deep", "of 16 bits made 8", offsetof(struct dt_image_import, deep)},
	{"alpha", "without their alpha", offsetof(struct dt_image_import, alpha)},
	{"turned", "turned by EXIF", offsetof(struct dt_image_import, turned)},
};
#define FOUND (sizeof(found) / sizeof(found[0]))

static int64_t found_of(const struct dt_image_import *im, size_t i)
{
	return *(const int64_t *)((const char *)im + found[i].at);
}

void dt_image_import_summary(const struct dt_image_import *im, char *buf, size_t n)
{
	size_t at = (size_t)snprintf(buf, n, "%lld image%s of %d class%s", (long long)im->images,
				     im->images == 1 ? "" : "s", im->classes, im->classes == 1 ? "" : "es");

	for (size_t i = 0; i < FOUND && at < n; i++)
		if (found_of(im, i))
			at += (size_t)snprintf(buf + at, n - at, "; %lld %s", (long long)found_of(im, i),
					       found[i].words);
}

json_t *dt_image_import_json(const struct dt_image_import *im, const char *path)
{
	json_t *o = json_pack("{s:i, s:s, s:I, s:i, s:i, s:s, s:i}", "schema", 1, "path", path, "images",
			      (json_int_t)im->images, "classes", im->classes, "empty_classes",
			      im->empty_classes, "encoding", im->jpeg ? "jpeg" : "raw", "shards", im->shards);

	for (size_t i = 0; i < FOUND; i++)
		json_object_set_new(o, found[i].key, json_integer((json_int_t)found_of(im, i)));
	return o;
}

int dt_image_write_pnm(const struct dt_image *x, FILE *f, struct dt_err *err)
{
	size_t plane = (size_t)x->height * (size_t)x->width;

	errno = 0;
	fprintf(f, "P%d\n%d %d\n255\n", x->channels == 3 ? 6 : 5, x->width, x->height);
	for (size_t i = 0; i < plane; i++)
		for (int c = 0; c < x->channels; c++)
			putc(x->pixel[(size_t)c * plane + i], f);
	fflush(f);
	return ferror(f) ? dt_err_sys(err, errno ? -errno : -EIO, "cannot write an image") : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
