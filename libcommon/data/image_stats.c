/* dt-dataset stats for image sets: classes, and images stored more than once. */
#include "base/json.h"
#include "base/table.h"
#include "data/clean.h"
#include "data/image_look.h"

#include <errno.h>
#include <stdlib.h>

struct image_stats {
	int64_t *of_class;	   /* [classes] number of images */
	int64_t fewest, most;	   /* images of the smallest and of the largest class */
	int64_t smallest, largest; /* bytes of the smallest and of the largest stored image */
	int64_t same,
		same_other_class; /* images with the same bytes as an earlier one; those with another label */
};

static int look_at_image(const struct dt_images *d, int64_t i, struct dt_clean *seen, struct image_stats *s,
			 struct dt_err *err)
{
	enum dt_clean_reason why;
	uint8_t *bytes;
	int64_t like;
	size_t n;
	int rc = dt_images_bytes(d, i, &bytes, &n, err);

	if (rc < 0)
		return rc;
	rc = dt_clean_take(seen, (const char *)bytes, n, &why, &like, err);
	free(bytes);
	if (rc == 0 && why == DT_CLEAN_EXACT) {
		s->same++;
		s->same_other_class += dt_images_label(d, i) != dt_images_label(d, like);
	}
	s->of_class[dt_images_label(d, i)]++;
	s->smallest = i == 0 || (int64_t)n < s->smallest ? (int64_t)n : s->smallest;
	s->largest = (int64_t)n > s->largest ? (int64_t)n : s->largest;
	return rc;
}

static int look_at_all(const struct dt_images *d, const struct dt_images_info *info, struct image_stats *s,
		       struct dt_err *err)
{
	const struct dt_clean_options same = {
		.exact = true, .max_symbols = 1, .max_repeats = 1, .max_ngrams = 1};
	struct dt_clean *seen;
	int rc = dt_clean_open(&same, &seen, err);

	if (rc < 0)
		return rc;
	for (int64_t i = 0; i < info->images && rc == 0; i++)
		rc = look_at_image(d, i, seen, s, err);
	dt_clean_close(seen);
	for (int c = 0; c < info->classes; c++) {
		s->fewest = c == 0 || s->of_class[c] < s->fewest ? s->of_class[c] : s->fewest;
		s->most = s->of_class[c] > s->most ? s->of_class[c] : s->most;
	}
	return rc;
}

static json_t *stats_json(const struct dt_images_info *i, const struct image_stats *s, const char *path)
{
	json_t *classes = json_array();

	for (int c = 0; c < i->classes; c++)
		json_array_append_new(classes, json_pack("{s:s, s:I}", "name", i->class_name[c], "images",
							 (json_int_t)s->of_class[c]));
	return json_pack("{s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "schema", 1, "path", path,
			 "images", (json_int_t)i->images, "smallest_bytes", (json_int_t)s->smallest,
			 "largest_bytes", (json_int_t)s->largest, "fewest", (json_int_t)s->fewest, "most",
			 (json_int_t)s->most, "exact_duplicates", (json_int_t)s->same,
			 "duplicates_of_another_class", (json_int_t)s->same_other_class, "classes", classes);
}

static void print_facts(const struct dt_images_info *i, const struct image_stats *s, FILE *f)
{
	struct dt_table *t = dt_table_new("property|value");

	dt_table_cell(t, "images");
	dt_table_cell(t, "%lld in %d classes", (long long)i->images, i->classes);
	dt_table_cell(t, "images per class");
	dt_table_cell(t, "%lld to %lld", (long long)s->fewest, (long long)s->most);
	dt_table_cell(t, "bytes per image");
	dt_table_cell(t, "%lld to %lld", (long long)s->smallest, (long long)s->largest);
	dt_table_cell(t, "exact duplicates");
	dt_table_cell(t, "%lld, of which %lld have another class", (long long)s->same,
		      (long long)s->same_other_class);
	dt_table_print(t, f);
	dt_table_free(t);
}

static int report(const struct dt_images_info *i, const struct image_stats *s, const char *path,
		  const struct dt_data_look *how, FILE *f, struct dt_err *err)
{
	struct dt_bar *bar = calloc((size_t)i->classes, sizeof(*bar));
	const struct dt_bars bars = {.title = "images by class", .bar = bar, .n = i->classes};
	json_t *o = how->json ? stats_json(i, s, path) : NULL;
	int rc = bar ? 0 : dt_err_sys(err, -ENOMEM, "cannot describe '%s'", path);

	for (int c = 0; c < i->classes && rc == 0; c++)
		bar[c] = (struct dt_bar){.name = (char *)i->class_name[c], .value = (double)s->of_class[c]};
	if (rc == 0 && how->svg)
		rc = dt_data_draw(how->svg, &bars, err);
	if (rc == 0 && o)
		rc = dt_json_write_line(f, o, err);
	if (rc == 0 && !o) {
		print_facts(i, s, f);
		dt_data_print_bars(&bars, f);
	}
	json_decref(o);
	free(bar);
	return rc;
}

int dt_images_print_stats(const struct dt_images *d, const char *path, const struct dt_data_look *how,
			  FILE *f, struct dt_err *err)
{
	struct dt_images_info i;
	struct image_stats s = {0};
	int rc;

	dt_images_info(d, &i);
	s.of_class = calloc((size_t)i.classes, sizeof(*s.of_class));
	rc = s.of_class ? look_at_all(d, &i, &s, err)
			: dt_err_sys(err, -ENOMEM, "cannot describe '%s'", path);
	if (rc == 0)
		rc = report(&i, &s, path, how, f, err);
	free(s.of_class);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
