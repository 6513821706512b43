#include "data/image_look.h"

#include "base/json.h"
#include "base/table.h"
#include "base/units.h"
#include "data/dataset.h"

#include <errno.h>
#include <stdlib.h>

/* Number of images of each class, malloc'd. */
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

static struct dt_table *classes_table(const struct dt_images_info *i, const int64_t *of_class)
{
	struct dt_table *t = dt_table_new("label|class|images");

	for (int c = 0; c < i->classes; c++) {
		dt_table_cell(t, "%d", c);
		dt_table_cell(t, "%s", i->class_name[c]);
		dt_table_cell(t, "%lld", (long long)of_class[c]);
	}
	return t;
}

static void print_tables(const struct dt_images_info *i, const int64_t *of_class, bool verified, FILE *f)
{
	struct dt_table *facts = facts_table(i), *classes = classes_table(i, of_class);

	if (verified) {
		dt_table_cell(facts, "checksums");
		dt_table_cell(facts, "match");
	}
	dt_table_print(facts, f);
	fputc('\n', f);
	dt_table_print(classes, f);
	dt_table_free(facts);
	dt_table_free(classes);
}

int dt_images_print_info(const struct dt_images *d, const char *path, const struct dt_data_look *how, FILE *f,
			 struct dt_err *err)
{
	int rc = how->verify ? dt_images_verify(d, err) : 0;
	struct dt_images_info i;
	int64_t *of_class;
	json_t *o;

	if (rc < 0)
		return rc;
	dt_images_info(d, &i);
	of_class = count_classes(d, &i);
	if (!of_class)
		return dt_err_sys(err, -ENOMEM, "cannot describe '%s'", path);
	if (how->json) {
		o = facts_json(&i, of_class, path);
		rc = dt_json_write_line(f, o, err);
		json_decref(o);
	} else {
		print_tables(&i, of_class, how->verify, f);
	}
	free(of_class);
	return rc;
}

/* Prints image n of an epoch as a line of JSON or a table row. */
static int print_sample(const struct dt_images *d, const struct dt_images_info *i, int64_t n, int64_t image,
			struct dt_table *t, FILE *f, struct dt_err *err)
{
	int label = dt_images_label(d, image), rc;
	json_t *o;

	if (t) {
		dt_table_cell(t, "%lld", (long long)n);
		dt_table_cell(t, "%lld", (long long)image);
		dt_table_cell(t, "%d", label);
		dt_table_cell(t, "%s", i->class_name[label]);
		return 0;
	}
	o = json_pack("{s:i, s:I, s:I, s:i, s:s}", "schema", 1, "sample", (json_int_t)n, "image",
		      (json_int_t)image, "label", label, "class", i->class_name[label]);
	rc = dt_json_write_line(f, o, err);
	json_decref(o);
	return rc;
}

int dt_images_print_samples(const struct dt_images *d, const char *path, const struct dt_data_look *how,
			    FILE *f, struct dt_err *err)
{
	struct dt_table *t = how->json ? NULL : dt_table_new("sample|image|label|class");
	struct dt_images_info i;
	int rc = 0;

	dt_images_info(d, &i);
	if (how->first >= i.images)
		rc = dt_err_set(err, -ERANGE, "--first is too large: an epoch has %lld samples",
				(long long)i.images);
	for (int64_t n = how->first;
	     rc == 0 && n < i.images && (how->count < 0 || n - how->first < how->count); n++)
		rc = print_sample(d, &i, n,
				  dt_sample_at((uint64_t)how->seed, !how->in_order, how->epoch * i.images + n,
					       i.images),
				  t, f, err);
	if (t && rc == 0)
		dt_table_print(t, f);
	dt_table_free(t);
	return rc;
}

/* Writes PGM or PPM. */
static void write_pnm(const struct dt_image *x, FILE *f)
{
	size_t plane = (size_t)x->height * (size_t)x->width;

	fprintf(f, "P%d\n%d %d\n255\n", x->channels == 3 ? 6 : 5, x->width, x->height);
	for (size_t i = 0; i < plane; i++)
		for (int c = 0; c < x->channels; c++)
			putc(x->pixel[(size_t)c * plane + i], f);
}

int dt_images_print_files(const struct dt_images *d, const char *path, const struct dt_data_look *how,
			  FILE *f, struct dt_err *err)
{
	struct dt_images_info i;
	struct dt_image x = {0};
	uint8_t *bytes;
	size_t n;
	int rc = 0;

	dt_images_info(d, &i);
	if (how->first >= i.images)
		return dt_err_set(err, -ERANGE, "--first is too large: the dataset has %lld images",
				  (long long)i.images);
	for (int64_t k = how->first;
	     rc == 0 && k < i.images && (how->count < 0 || k - how->first < how->count); k++) {
		rc = i.jpeg ? dt_images_bytes(d, k, &bytes, &n, err) : dt_images_read(d, k, &x, err);
		if (rc < 0)
			break;
		errno = 0;
		if (i.jpeg) {
			fwrite(bytes, 1, n, f);
			free(bytes);
		} else {
			write_pnm(&x, f);
		}
		if (ferror(f))
			rc = dt_err_sys(err, errno ? -errno : -EIO, "cannot write an image");
	}
	dt_image_release(&x);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
